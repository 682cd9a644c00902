//! Slices of one type, straight from memory to memory: for programs that link the library.

use super::header::{self, Header, Op};
use super::items::{self, Kind};
use super::meeting::{self, Meeting, Said};
use super::peers::Peers;
use super::say;
use super::value::{Element, Form};
use crate::base::fault::Fault;

/// Everyone's numbers in rank order, into a vector that is used again and again: what was in it is lost, its memory kept.
/// Lengths may differ, the type may not.
///
/// # Errors
/// The same on every rank, when ranks differ in their request or type; when a rank is gone.
pub fn gather_slice_into<T: Element>(
    peers: &mut dyn Peers,
    mine: &[T],
    all: &mut Vec<T>,
) -> Result<(), Fault> {
    let (op, len) = (Op::GatherSlice, mine.len() as u64);
    let header = || {
        let kind = Some(Kind { form: Form::Array, dtype: T::DTYPE, shape: vec![len] });
        Header { op, options: 0, kind, tail: 0 }.encode()
    };
    let word = header::word(op, 0, Some((Form::Array, T::DTYPE, &[len])));
    let headers = match meeting::announce(peers, word, header)? {
        // The usual case, in which not even a length differs, costs no more than the two exchanges.
        Said::Same => {
            all.resize(mine.len() * peers.size() as usize, T::zeroed());
            return match mine {
                [] => Ok(()),
                _ => peers.all_gather(bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(all)),
            };
        }
        Said::Headers(headers) => headers,
    };
    let meeting = Meeting::with_headers(peers, headers, &[])?;
    meeting.agree()?;
    let kinds: Vec<Kind> = meeting.headers.into_iter().filter_map(|header| header.kind).collect();
    if kinds.iter().any(|kind| kind.dtype != T::DTYPE) {
        let types =
            say::by_rank(&kinds.iter().map(|kind| kind.dtype).collect::<Vec<_>>(), |dtype| {
                format!("`{}`", dtype.name())
            });
        return Err(Fault::request(format!("the ranks bring different types: {types}")));
    }
    let lens: Vec<usize> = kinds.iter().map(|kind| kind.count() * size_of::<T>()).collect();
    all.resize(kinds.iter().map(Kind::count).sum(), T::zeroed());
    items::gather_into(peers, bytemuck::cast_slice(mine), &lens, bytemuck::cast_slice_mut(all))
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Flags, Synced, mp_sync};
    use super::super::threads;
    use super::super::value::Value;
    use super::*;

    fn gather_slice<T: Element>(peers: &mut dyn Peers, mine: &[T]) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        gather_slice_into(peers, mine, &mut all)?;
        Ok(all)
    }

    #[test]
    fn slices_of_any_length_come_in_rank_order() {
        for world in [1, 2, 3, 5] {
            let all = threads::run(world, |peers| {
                let rank = peers.rank();
                let even = gather_slice(peers, &[rank as f32, 0.5]).unwrap();
                let uneven = gather_slice(peers, &vec![i64::from(rank); rank as usize]).unwrap();
                let none = gather_slice::<f64>(peers, &[]).unwrap();
                (even, uneven, none)
            });
            let even: Vec<f32> = (0..world).flat_map(|r| [r as f32, 0.5]).collect();
            let uneven = (0..world).flat_map(|r| vec![i64::from(r); r as usize]).collect();
            assert_eq!(all, vec![(even, uneven, Vec::new()); world as usize]);
        }
    }

    #[test]
    fn another_type_is_the_same_error_everywhere_and_the_next_call_works() {
        let all = threads::run(3, |peers| {
            let error = match peers.rank() {
                1 => gather_slice(peers, &[1i32]).unwrap_err(),
                _ => gather_slice(peers, &[1.0f32]).unwrap_err(),
            };
            (error.sentence, gather_slice(peers, &[7u8]).unwrap())
        });
        let sentence =
            "the ranks bring different types: `float32` on ranks 0 and 2, `int32` on rank 1";
        assert_eq!(all, vec![(sentence.to_owned(), vec![7; 3]); 3]);
    }

    #[test]
    fn a_slice_does_not_meet_a_value() {
        let all = threads::run(2, |peers| match peers.rank() {
            0 => gather_slice(peers, &[1.0f64]).unwrap_err().sentence,
            _ => mp_sync(peers, Ok(Value::float(1.0)), Flags::default()).unwrap_err().sentence,
        });
        let sentence =
            "the ranks ask for different things: `gather_slice` on rank 0, `gather` on rank 1";
        assert_eq!(all, [sentence, sentence]);
    }

    #[test]
    fn memory_of_the_result_is_used_again() {
        let same = threads::run(2, |peers| {
            let mut all = vec![0.0f32; 6];
            let before = all.as_ptr();
            gather_slice_into(peers, &[1.0, 2.0, 3.0], &mut all).unwrap();
            assert_eq!(all, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
            before == all.as_ptr()
        });
        assert_eq!(same, [true, true]);
        let value = Value::from_numbers(Form::Tensor, vec![2], &[1u8, 2]);
        let alone = mp_sync(&mut super::super::peers::Alone, Ok(value.clone()), Flags::default());
        assert_eq!(alone.unwrap(), Synced::Joined(value));
    }
}
