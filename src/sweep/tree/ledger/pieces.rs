//! Taking units out of lists of pieces.

use super::{Held, Piece};

/// Takes units out of an agent's hands.
pub(super) fn let_go(held: &mut Vec<Held>, gone: &Piece) {
    let all = std::mem::take(held);
    held.extend(all.into_iter().flat_map(|Held { since, piece }| {
        let mut left = vec![piece];
        remove(&mut left, gone);
        left.into_iter().map(move |piece| Held { since, piece })
    }));
}

/// Takes units out of a list of pieces.
pub(super) fn remove(held: &mut Vec<Piece>, gone: &Piece) {
    let end = gone.from + gone.count;
    let mut rest = Vec::with_capacity(held.len() + 1);
    for piece in held.drain(..) {
        let last = piece.from + piece.count;
        if last <= gone.from || piece.from >= end {
            rest.push(piece);
            continue;
        }
        if piece.from < gone.from {
            rest.push(Piece { count: gone.from - piece.from, ..piece });
        }
        if last > end {
            rest.push(Piece { from: end, count: last - end, ..piece });
        }
    }
    *held = rest;
}
