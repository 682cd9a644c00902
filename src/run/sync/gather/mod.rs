//! `mp_sync`: every rank gets the values of all ranks, in rank order.

use super::convert::convert;
use super::header::Op;
use super::items::{self, Entry, Item, Kind, Piece};
use super::meeting;
pub use super::options::Flags;
use super::peers::Peers;
use super::say;
use super::value::{Dtype, Form, Value};
use crate::base::fault::{Fault, Kind as Blame};

/// What every rank gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Synced {
    /// All values along the first dimension, in rank order.
    Joined(Value),
    /// One value a rank; what that rank alone would get. Types and shapes may differ.
    PerRank(Vec<Value>),
}

/// Gathers one value.
///
/// A single number counts as one of shape `[1]`. Lengths of the first dimension may differ; types that
/// differ become the common one ([`Dtype::promote`]), each number converted once. An empty list of plain
/// numbers fits everything: it has no type of its own.
///
/// # Errors
/// The same on every rank, naming the ranks: a value that cannot be sent (`Err(why)`), shapes that differ
/// beyond the first dimension, complex numbers, ranks that ask for something else. The next call works.
pub(crate) fn mp_sync(
    peers: &mut dyn Peers,
    value: Result<Value, String>,
    flags: Flags,
) -> Result<Synced, Fault> {
    let mut results = gather(peers, Op::Gather, &[(Vec::new(), value)], flags)?;
    results.pop().map(|(_, synced)| synced).ok_or_else(lost)
}

/// Gathers the leaves of a map, matched by key (the path to the leaf) whatever their order, each as
/// [`mp_sync`] does. The result comes in the order of the keys, the same on every rank.
///
/// # Errors
/// As [`mp_sync`]; and when a key is missing on a rank, or there twice.
pub fn mp_sync_map(
    peers: &mut dyn Peers,
    mut items: Vec<(Vec<String>, Result<Value, String>)>,
    flags: Flags,
) -> Result<Vec<(Vec<String>, Synced)>, Fault> {
    items.sort_by(|a, b| a.0.cmp(&b.0));
    gather(peers, Op::GatherMap, &items, flags)
}

/// Gathers items that are sorted by key.
fn gather(
    peers: &mut dyn Peers,
    op: Op,
    values: &[(Vec<String>, Result<Value, String>)],
    flags: Flags,
) -> Result<Vec<(Vec<String>, Synced)>, Fault> {
    let entries: Vec<Entry> =
        values.iter().map(|(key, value)| Entry::new(key, value, 1.0)).collect();
    let met = meeting::meet(peers, op, flags.code(), &entries)?;
    let plans: Vec<Plan> =
        met.iter().map(|item| Plan::for_item(item, flags)).collect::<Result<_, _>>()?;
    let rank = peers.rank() as usize;
    let mut pieces = Vec::with_capacity(plans.len());
    for (plan, (_, value)) in plans.iter().zip(values) {
        let Ok(value) = value else { return Err(lost()) };
        // A list without a type of its own is empty in every type.
        let mine = convert(&value.data, value.dtype, plan.dtypes[rank]).ok_or_else(lost)?;
        pieces.push(Piece { mine, lens: plan.lens() });
    }
    let gathered = items::carry(peers, &pieces)?;
    let synced = met.into_iter().zip(plans).zip(gathered);
    Ok(synced.map(|((item, plan), data)| (item.key, plan.build(data))).collect())
}

/// The plan for one item: every rank computes it from the announcements of all.
struct Plan {
    /// Type in which each rank sends.
    dtypes: Vec<Dtype>,
    /// Shape of what each rank sends.
    shapes: Vec<Vec<u64>>,
    /// What each piece becomes, or the whole.
    forms: Vec<Form>,
    /// Shape of the whole; none when ranks stay apart.
    joined: Option<Vec<u64>>,
}

impl Plan {
    fn for_item(item: &Item, flags: Flags) -> Result<Self, Fault> {
        item.real()?;
        let kinds = &item.kinds;
        let dtypes: Vec<Dtype> = kinds.iter().map(|kind| declared(kind, flags)).collect();
        let shapes: Vec<Vec<u64>> = kinds.iter().map(lifted).collect();
        if !flags.concat {
            let forms = kinds.iter().map(|kind| result_form([kind], flags)).collect();
            return Ok(Self { dtypes, shapes, forms, joined: None });
        }
        let mut voices: Vec<usize> = (0..kinds.len()).filter(|r| !is_blank(&kinds[*r])).collect();
        if voices.is_empty() {
            voices = (0..kinds.len()).collect();
        }
        let inner = &shapes[voices[0]][1..];
        if voices.iter().any(|rank| shapes[*rank][1..] != *inner) {
            let rank_shapes: Vec<&[u64]> = kinds.iter().map(|kind| kind.shape.as_slice()).collect();
            let shapes_words = say::by_rank(&rank_shapes, |shape| format!("{shape:?}"));
            return Err(item
                .fault(&format!("the shapes differ beyond the first dimension: {shapes_words}"))
                .hint("pass concat=false to get the values of the ranks one by one"));
        }
        let common = voices.iter().map(|rank| dtypes[*rank]).reduce(Dtype::promote);
        let common = common.ok_or_else(lost)?;
        let rows = shapes.iter().try_fold(0u64, |sum, shape| sum.checked_add(shape[0]));
        let rows = rows.ok_or_else(|| item.fault("the result is larger than any memory"))?;
        let mut joined_shape = vec![rows];
        joined_shape.extend_from_slice(inner);
        Ok(Self {
            dtypes: vec![common; kinds.len()],
            forms: vec![result_form(voices.iter().map(|rank| &kinds[*rank]), flags)],
            joined: Some(joined_shape),
            shapes,
        })
    }

    /// Bytes of each rank.
    fn lens(&self) -> Vec<usize> {
        let count = |shape: &[u64]| shape.iter().fold(1, |n, d| n * *d as usize);
        self.shapes.iter().zip(&self.dtypes).map(|(shape, d)| count(shape) * d.size()).collect()
    }

    /// The result, from everyone's numbers.
    fn build(self, data: Vec<u8>) -> Synced {
        let lens = self.lens();
        if let Some(shape) = self.joined {
            return Synced::Joined(Value {
                form: self.forms[0],
                dtype: self.dtypes[0],
                shape,
                data,
            });
        }
        let mut unread = data.as_slice();
        let ranks = self.forms.into_iter().zip(self.dtypes).zip(self.shapes).zip(lens);
        Synced::PerRank(
            ranks
                .map(|(((form, dtype), shape), len)| {
                    let (mine, after) = unread.split_at(len);
                    unread = after;
                    Value { form, dtype, shape, data: mine.to_vec() }
                })
                .collect(),
        )
    }
}

/// The type that a value alone becomes.
fn declared(kind: &Kind, flags: Flags) -> Dtype {
    match (kind.form, kind.dtype) {
        (Form::Tensor, dtype) => dtype,
        _ if flags.double_precision => Dtype::Float64,
        (Form::Scalar | Form::List, Dtype::Float64) => Dtype::Float32,
        (_, dtype) => dtype,
    }
}

/// A single number becomes a row of one.
fn lifted(kind: &Kind) -> Vec<u64> {
    if kind.shape.is_empty() { vec![1] } else { kind.shape.clone() }
}

/// An empty list of plain numbers fits any type.
fn is_blank(kind: &Kind) -> bool {
    kind.form == Form::List && kind.shape == [0]
}

fn result_form<'a>(kinds: impl IntoIterator<Item = &'a Kind>, flags: Flags) -> Form {
    if flags.return_tensor {
        Form::Tensor
    } else if kinds.into_iter().all(|kind| kind.form == Form::Array) {
        Form::Array
    } else {
        Form::List
    }
}

/// A step that the meeting has made impossible.
fn lost() -> Fault {
    Fault::new(Blame::Bug, "a sync went on with a value that it had refused")
}

#[cfg(test)]
mod tests;
