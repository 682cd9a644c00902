//! Reductions over ranks: computed by every rank from the numbers of all, in f64 and in rank order, so that
//! all have the same bits, whatever the number of nodes and the MPI.
//!
//! Concatenation is [`super::gather::mp_sync`].

use super::convert::convert;
use super::header::Op;
use super::items::{self, Entry, Item, Kind, Piece};
use super::meeting;
pub use super::options::{How, Nan};
use super::peers::Peers;
use super::say;
use super::value::{Dtype, Value};
use crate::base::fault::{Fault, Kind as Blame};

mod fold;
#[cfg(test)]
mod tests;

/// A number that [`reduce`] takes or returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number of 64 bits with a sign.
    Int(i64),
    /// A number in 64 bit; may be infinite or NaN.
    Float(f64),
}

impl From<i64> for Number {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

/// A rank's value for one key of [`reduce`].
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// The path to the number: `["loss"]`.
    pub key: Vec<String>,
    /// This rank's number for the key.
    pub value: Number,
    /// How much it counts in a mean or a variance: the number of samples. With 0 the rank has no value at
    /// all, in any reduction.
    pub weight: f64,
}

/// A rank's value for one key of [`reduce_values`].
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// The path to the value: `["loss"]`.
    pub(crate) key: Vec<String>,
    /// The numbers, or why they cannot be sent.
    pub(crate) value: Result<Value, String>,
    /// How much it counts, as [`Measure::weight`].
    pub(crate) weight: f64,
}

/// Reduces numbers by key, whatever their order. The result comes in the order of the keys.
///
/// Sum, smallest and largest of whole numbers alone are whole. Where no rank has a value (every weight
/// is 0, or every value a NaN left out) the sum is 0 and everything else NaN.
///
/// # Errors
/// The same on every rank: a key that is missing on a rank or there twice, a weight below 0 or not finite,
/// a NaN under [`Nan::Error`], a sum of whole numbers beyond 64 bits. The next call works.
pub fn reduce(
    peers: &mut dyn Peers,
    items: &[Measure],
    how: How,
    nan: Nan,
) -> Result<Vec<(Vec<String>, Number)>, Fault> {
    let shares = items.iter().map(|item| {
        let value = match item.value {
            Number::Int(n) => Value::int(n),
            Number::Float(x) => Value::float(x),
        };
        Share { key: item.key.clone(), value: Ok(value), weight: item.weight }
    });
    let reduced = reduce_values(peers, shares.collect(), how, nan)?;
    let number = |value: Value| match value.dtype {
        Dtype::Int64 => value.numbers::<i64>()?.first().copied().map(Number::Int),
        _ => value.numbers::<f64>()?.first().copied().map(Number::Float),
    };
    reduced.into_iter().map(|(key, value)| Ok((key, number(value).ok_or_else(lost)?))).collect()
}

/// Reduces values of equal shape number by number, by key. Everything is computed in f64, or exactly for
/// sums, smallest and largest of whole numbers, and rounded once.
///
/// Sums of whole numbers and truth values are int64; smallest and largest have the common type
/// ([`Dtype::promote`]); mean and variance of whole numbers are float64, of others the common type. The
/// form is that of the lowest rank that has a value.
///
/// # Errors
/// As [`reduce`]; and shapes that differ, complex numbers, a value that cannot be sent.
pub(crate) fn reduce_values(
    peers: &mut dyn Peers,
    mut items: Vec<Share>,
    how: How,
    nan: Nan,
) -> Result<Vec<(Vec<String>, Value)>, Fault> {
    items.sort_by(|a, b| a.key.cmp(&b.key));
    let entries: Vec<Entry> = items.iter().map(entry).collect();
    let options = u16::from_le_bytes([how as u8, nan as u8]);
    let met = meeting::meet(peers, Op::Reduce, options, &entries)?;
    let plans: Vec<Plan> =
        met.iter().map(|item| Plan::for_item(item, how)).collect::<Result<_, _>>()?;
    let rank = peers.rank() as usize;
    let mut pieces = Vec::with_capacity(plans.len());
    for (plan, share) in plans.iter().zip(&items) {
        let Ok(value) = &share.value else { return Err(lost()) };
        let mine = match plan.voices.contains(&rank) {
            true => convert(&value.data, value.dtype, plan.wire).ok_or_else(lost)?,
            false => (&[]).into(),
        };
        pieces.push(Piece { mine, lens: plan.lens(met[0].kinds.len()) });
    }
    let gathered = items::carry(peers, &pieces)?;
    let results = met.into_iter().zip(plans).zip(gathered);
    results.map(|((item, plan), data)| plan.build(item, &data, how, nan)).collect()
}

/// The announcement of a share.
fn entry(share: &Share) -> Entry {
    let mut entry = Entry::new(&share.key, &share.value, share.weight);
    if !(share.weight >= 0.0 && share.weight.is_finite()) {
        let weight = share.weight;
        entry.kind = Err(format!("a weight is a number of at least 0, and this is {weight}"));
        entry.weight = 0.0;
    }
    entry
}

/// The plan for one item: every rank computes it from the announcements of all.
struct Plan {
    /// Ranks that have a value.
    voices: Vec<usize>,
    /// Type in which values are sent and computed: int64 or float64.
    wire: Dtype,
    /// The kind of the result.
    kind: Kind,
}

impl Plan {
    fn for_item(item: &Item, how: How) -> Result<Self, Fault> {
        item.real()?;
        let ranks = 0..item.kinds.len();
        let voices: Vec<usize> = ranks.clone().filter(|r| item.weights[*r] > 0.0).collect();
        let likeness = if voices.is_empty() { ranks.collect() } else { voices.clone() };
        let kinds: Vec<&Kind> = likeness.iter().map(|rank| &item.kinds[*rank]).collect();
        let shape = &kinds[0].shape;
        if kinds.iter().any(|kind| kind.shape != *shape) {
            let rank_shapes: Vec<&[u64]> =
                item.kinds.iter().map(|kind| kind.shape.as_slice()).collect();
            let shapes_words = say::by_rank(&rank_shapes, |shape| format!("{shape:?}"));
            return Err(item.fault(&format!("the shapes differ: {shapes_words}")));
        }
        let common = kinds.iter().map(|kind| kind.dtype).reduce(Dtype::promote);
        let common = common.ok_or_else(lost)?;
        let is_integer = common.is_integer();
        let wire = if is_integer { Dtype::Int64 } else { Dtype::Float64 };
        let dtype = match how {
            How::Sum if is_integer => Dtype::Int64,
            How::Mean | How::Variance if is_integer => Dtype::Float64,
            // The minimum of no values is NaN, which is not an integer.
            How::Min | How::Max if is_integer && voices.is_empty() => Dtype::Float64,
            _ => common,
        };
        let kind = Kind { form: kinds[0].form, dtype, shape: shape.clone() };
        Ok(Self { voices, wire, kind })
    }

    /// Bytes of each rank.
    fn lens(&self, world: usize) -> Vec<usize> {
        let mut lens = vec![0; world];
        for rank in &self.voices {
            lens[*rank] = self.kind.count() * self.wire.size();
        }
        lens
    }

    /// The result, from the numbers of those who have some.
    fn build(
        self,
        item: Item,
        data: &[u8],
        how: How,
        nan: Nan,
    ) -> Result<(Vec<String>, Value), Fault> {
        let count = self.kind.count();
        let weights: Vec<f64> = self.voices.iter().map(|rank| item.weights[*rank]).collect();
        let exact = matches!(how, How::Sum | How::Min | How::Max);
        let (computed, bytes) =
            if self.wire == Dtype::Int64 && exact && self.kind.dtype.is_integer() {
                let integers: Vec<i64> = bytemuck::allocation::pod_collect_to_vec(data);
                let results =
                    (0..count).map(|i| fold::ints(integers.iter().skip(i).step_by(count), how));
                let results: Vec<i64> = results.collect::<Option<_>>().ok_or_else(|| {
                    item.fault("the sum of the whole numbers does not fit into 64 bits")
                        .hint("send them as real numbers, which are rounded")
                })?;
                (Dtype::Int64, bytemuck::cast_slice(&results).to_vec())
            } else {
                let float_bytes = convert(data, self.wire, Dtype::Float64).ok_or_else(lost)?;
                let floats: Vec<f64> = bytemuck::allocation::pod_collect_to_vec(&float_bytes);
                if nan == Nan::Error {
                    self.no_nan(&item, &floats)?;
                }
                let column = |i: usize| {
                    let numbers = floats.iter().copied().skip(i).step_by(count);
                    numbers
                        .zip(weights.iter().copied())
                        .filter(|(x, _)| nan != Nan::Ignore || !x.is_nan())
                };
                let results: Vec<f64> = (0..count).map(|i| fold::floats(column(i), how)).collect();
                (Dtype::Float64, bytemuck::cast_slice(&results).to_vec())
            };
        let Kind { form, dtype, shape } = self.kind;
        let data = convert(&bytes, computed, dtype).ok_or_else(lost)?.into_owned();
        Ok((item.key, Value { form, dtype, shape, data }))
    }

    /// Refuses values with a NaN, and names the ranks that sent them.
    fn no_nan(&self, item: &Item, all: &[f64]) -> Result<(), Fault> {
        let pieces = all.chunks(self.kind.count().max(1));
        let ranks = self.voices.iter().zip(pieces);
        let nan_ranks: Vec<usize> =
            ranks.filter(|(_, piece)| piece.iter().any(|x| x.is_nan())).map(|(r, _)| *r).collect();
        match nan_ranks.as_slice() {
            [] => Ok(()),
            nan_ranks => Err(item.fault(&format!("NaN on {}", say::ranks(nan_ranks)))),
        }
    }
}

/// A step that the meeting has made impossible.
fn lost() -> Fault {
    Fault::new(Blame::Bug, "a reduction went on with a value that it had refused")
}
