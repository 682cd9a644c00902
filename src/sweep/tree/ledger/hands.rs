//! Who holds which unit.

use super::{Ledger, Piece};

/// Units that an agent holds or may take.
#[derive(Debug)]
pub(crate) struct Hands<'a>(Vec<(Piece, Option<&'a str>)>);

impl Ledger {
    /// Who holds each unit.
    pub(crate) fn hands(&self) -> Hands<'_> {
        let held = self.living().flat_map(|(name, agent)| {
            agent.held.iter().map(|held| (held.piece, Some(name.as_str())))
        });
        let again = self.again.iter().map(|piece| (*piece, None));
        let mut pieces: Vec<(Piece, Option<&str>)> = held.chain(again).collect();
        pieces.push((Piece::untouched(self.fresh, u64::MAX - self.fresh), None));
        pieces.sort_by_key(|(piece, _)| piece.from);
        Hands(pieces)
    }
}

impl<'a> Hands<'a> {
    /// The agent that holds a unit, if one does; `None` where no agent holds the unit and none can take it.
    pub(crate) fn holder(&self, unit: u64) -> Option<Option<&'a str>> {
        let after = self.0.partition_point(|(piece, _)| piece.from <= unit);
        let (piece, holder) = self.0[..after].last()?;
        piece.has(unit).then_some(*holder)
    }
}
