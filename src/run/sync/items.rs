//! The values of the ranks, matched by key: the same items in the same order on every rank, or the same
//! error.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::peers::Peers;
use super::say;
use super::value::{Dtype, Form, Value};
use crate::base::fault::Fault;

/// A hint about the values that can be sent.
const SENDABLE: &str = "numbers, truth values, lists of them, arrays and tensors can be synced";

/// Items whose pieces have fewer bytes than this together travel in one message; a larger one goes alone,
/// straight from where it lies into the result.
const PACKED: usize = 64 << 10;

/// A value without its numbers. The shape has passed [`Value::check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kind {
    pub(super) form: Form,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
}

impl Kind {
    /// How many numbers the value has; 1 without dimensions.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().fold(1, |n, d| n * *d as usize)
    }
}

/// One rank's value for one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) key: Vec<String>,
    /// Or why it cannot be sent.
    pub(super) kind: Result<Kind, String>,
    /// How much it counts.
    pub(super) weight: f64,
}

impl Entry {
    /// The entry of a value.
    pub(super) fn new(key: &[String], value: &Result<Value, String>, weight: f64) -> Self {
        let kind = match value {
            Ok(value) => value.check().map(|()| Kind {
                form: value.form,
                dtype: value.dtype,
                shape: value.shape.clone(),
            }),
            Err(why) => Err(crate::base::words::short(why, 500)),
        };
        Self { key: key.to_vec(), kind, weight }
    }
}

/// All ranks' values for one key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) key: Vec<String>,
    /// What each rank sends, by rank.
    pub(super) kinds: Vec<Kind>,
    /// How much each rank's value counts, by rank.
    pub(super) weights: Vec<f64>,
}

impl Item {
    /// A fault of this item.
    pub(super) fn fault(&self, sentence: &str) -> Fault {
        match self.key.as_slice() {
            [] => Fault::request(sentence),
            key => Fault::request(format!("`{}`: {sentence}", say::key(key))),
        }
    }

    /// Refuses complex numbers, and names the ranks that sent some.
    pub(super) fn real(&self) -> Result<(), Fault> {
        let complex: Vec<usize> =
            (0..self.kinds.len()).filter(|r| self.kinds[*r].dtype.is_complex()).collect();
        let Some(first) = complex.first() else { return Ok(()) };
        let (dtype, who) = (self.kinds[*first].dtype.name(), say::ranks(&complex));
        Err(self
            .fault(&format!("complex numbers cannot be synced: `{dtype}` on {who}"))
            .hint("sync the real and the imaginary parts by themselves"))
    }
}

/// The items, if every rank has the same keys, each once, with values that can be sent. `ranks` are sorted by
/// key, one list a rank.
pub(super) fn match_up(ranks: &[Cow<'_, [Entry]>]) -> Result<Vec<Item>, Fault> {
    let Some(first) = ranks.first() else { return Ok(Vec::new()) };
    for (rank, entries) in ranks.iter().enumerate() {
        if let Some(two) = entries.windows(2).find(|two| two[0].key == two[1].key) {
            let key = say::key(&two[0].key);
            return Err(Fault::request(format!("rank {rank} brings the key `{key}` twice")));
        }
    }
    // This comes before the keys: a value that is not a map arrives as one that cannot be sent, and lacks
    // every key.
    let refusals = ranks.iter().enumerate().flat_map(|(rank, entries)| {
        entries.iter().filter_map(move |e| Some((rank, (&e.key, e.kind.as_ref().err()?))))
    });
    let refusals = say::groups(refusals);
    if !refusals.is_empty() {
        return Err(cannot_be_sent(&refusals));
    }
    let same_keys = |entries: &[Entry]| {
        entries.len() == first.len()
            && entries.iter().zip(first.iter()).all(|(a, b)| a.key == b.key)
    };
    if !ranks.iter().all(|entries| same_keys(entries)) {
        return Err(missing_keys(ranks));
    }
    let items = first.iter().enumerate().map(|(i, entry)| Item {
        key: entry.key.clone(),
        kinds: ranks.iter().filter_map(|entries| entries[i].kind.clone().ok()).collect(),
        weights: ranks.iter().map(|entries| entries[i].weight).collect(),
    });
    Ok(items.collect())
}

/// Which keys are missing on which ranks.
fn missing_keys(ranks: &[Cow<'_, [Entry]>]) -> Fault {
    let mut holders: BTreeMap<&[String], BTreeSet<usize>> = BTreeMap::new();
    for (rank, entries) in ranks.iter().enumerate() {
        for entry in entries.iter() {
            holders.entry(&entry.key).or_default().insert(rank);
        }
    }
    let missing = holders.iter().filter(|(_, who)| who.len() < ranks.len()).map(|(key, who)| {
        let lack: Vec<usize> = (0..ranks.len()).filter(|rank| !who.contains(rank)).collect();
        format!("the key `{}` is missing on {}", say::key(key), say::ranks(&lack))
    });
    Fault::request(say::list(missing, "; ")).hint("every rank brings the same keys, in any order")
}

/// A key, and why its value cannot be sent.
type Refusal<'a> = (&'a Vec<String>, &'a String);

/// A value that cannot be sent, where, and why.
fn cannot_be_sent(refusals: &[(Refusal<'_>, Vec<usize>)]) -> Fault {
    let sentences = refusals.iter().map(|((key, why), who)| match key.as_slice() {
        [] => format!("{}: {why}", say::ranks(who)),
        key => format!("{}, key `{}`: {why}", say::ranks(who), say::key(key)),
    });
    Fault::request(say::list(sentences, "; ")).hint(SENDABLE)
}

/// The numbers of one item.
pub(super) struct Piece<'a> {
    /// The bytes of this rank's numbers.
    pub(super) mine: Cow<'a, [u8]>,
    /// How many bytes each rank has.
    pub(super) lens: Vec<usize>,
}

/// Everyone's numbers of each item, in rank order.
pub(super) fn carry(peers: &mut dyn Peers, pieces: &[Piece<'_>]) -> Result<Vec<Vec<u8>>, Fault> {
    let mut received = vec![Vec::new(); pieces.len()];
    let (packed, alone): (Vec<usize>, Vec<usize>) =
        (0..pieces.len()).partition(|i| pieces.len() > 1 && total(&pieces[*i].lens) < PACKED);
    if !packed.is_empty() {
        let mine: Vec<u8> = packed.iter().flat_map(|i| pieces[*i].mine.iter().copied()).collect();
        let ranks = 0..peers.size() as usize;
        let lens: Vec<usize> =
            ranks.clone().map(|r| packed.iter().map(|i| pieces[*i].lens[r]).sum()).collect();
        let bytes = gather_bytes(peers, &mine, &lens)?;
        let mut unread = bytes.as_slice();
        for rank in ranks {
            for i in &packed {
                let (piece, after) = unread.split_at(pieces[*i].lens[rank]);
                received[*i].extend_from_slice(piece);
                unread = after;
            }
        }
    }
    for i in alone {
        received[i] = gather_bytes(peers, &pieces[i].mine, &pieces[i].lens)?;
    }
    Ok(received)
}

/// The bytes of all ranks in rank order; no call if no rank has any.
pub(super) fn gather_bytes(
    peers: &mut dyn Peers,
    mine: &[u8],
    lens: &[usize],
) -> Result<Vec<u8>, Fault> {
    let mut gathered = vec![0; total(lens)];
    gather_into(peers, mine, lens, &mut gathered)?;
    Ok(gathered)
}

/// [`gather_bytes`] into a place of the right length.
pub(super) fn gather_into(
    peers: &mut dyn Peers,
    mine: &[u8],
    lens: &[usize],
    all: &mut [u8],
) -> Result<(), Fault> {
    if all.is_empty() {
        Ok(())
    } else if lens.iter().all(|len| *len == lens[0]) {
        peers.all_gather(mine, all)
    } else {
        peers.all_gather_pieces(mine, lens, all)
    }
}

/// Lengths of things that lie in some memory; their sum is bounded by that of all machines together.
fn total(lens: &[usize]) -> usize {
    lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
}
