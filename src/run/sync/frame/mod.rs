//! The messages of docs/sync-protocol.md, over anything that can be read and written: a program's requests
//! and its worker's answers.
//!
//! A message whose end can be found is read to its end. One that makes no sense becomes [`Request::Broken`],
//! which is an error on every rank, and the rank stays in the exchange.

use std::io::{self, Read, Write};

use super::gather::{Flags, Synced};
use super::reduce::{How, Nan, Share};
use super::value::Value;
use crate::base::fault::Fault;

#[cfg(test)]
mod tests;
mod wire;

use wire::{AnswerHead, ItemHead, Length, Op, RequestHead, lost};

/// A key and its value, or why it cannot be sent.
pub type Leaf = (Vec<String>, Result<Value, String>);

/// A request of a program to the helper that carries its syncs.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Asks for the rank and the number of ranks.
    Hello,
    /// One value for [`super::gather::mp_sync`], or why it cannot be sent.
    Gather(Result<Value, String>, Flags),
    /// Values by key for [`super::gather::mp_sync_map`].
    GatherMap(Vec<Leaf>, Flags),
    /// Values by key for [`super::reduce::reduce_values`].
    Reduce(Vec<Share>, How, Nan),
    /// A message that makes no sense, and why.
    Broken(String),
}

/// The answer to a program's request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The answer to [`Request::Hello`].
    Hello {
        /// The rank, from 0.
        rank: u32,
        /// How many ranks there are.
        world: u32,
        /// Version of the hpcsweep that answers.
        version: String,
    },
    /// One value a key, in the order of the keys.
    Joined(Vec<(Vec<String>, Value)>),
    /// One value a rank for each key, in the order of the keys.
    PerRank(Vec<(Vec<String>, Vec<Value>)>),
    /// The same error on every rank.
    Failed(Fault),
}

impl Request {
    /// Reads the next one; none where the stream ends between two messages.
    ///
    /// # Errors
    /// When the stream breaks, ends within a message, or holds something whose end cannot be found. No
    /// further request can be read then.
    pub fn read(from: &mut impl Read) -> Result<Option<Self>, Fault> {
        let Some(head) = wire::read_head(from)? else { return Ok(None) };
        let head: RequestHead = match serde_json::from_slice(&head) {
            Ok(head) => head,
            Err(error) => {
                // serde would read a list as the fields in their order.
                let is_object = head.trim_ascii_start().starts_with(b"{");
                let length = serde_json::from_slice(&head).ok().filter(|_| is_object);
                let Some(Length { bytes }) = length else {
                    return Err(lost(format!("the head is not as it should be: {error}")));
                };
                wire::skip(from, bytes)?;
                return Ok(Some(Self::Broken(format!("the request makes no sense: {error}"))));
            }
        };
        let item_bytes = head.items.iter().try_fold(0u64, |sum, item| sum.checked_add(item.bytes));
        if item_bytes != Some(head.bytes) {
            wire::skip(from, head.bytes)?;
            let bytes = head.bytes;
            let reason = format!("the items do not have the {bytes} bytes of their sum");
            return Ok(Some(Self::Broken(reason)));
        }
        let mut items = Vec::with_capacity(head.items.len());
        for item in head.items {
            let weight = item.weight.unwrap_or(1.0);
            items.push(Share {
                key: item.key.clone(),
                value: wire::read_value(from, item)?,
                weight,
            });
        }
        Ok(Some(Self::from_parts(
            head.op,
            head.flags,
            head.how,
            head.nan.unwrap_or_default(),
            items,
        )))
    }

    fn from_parts(
        op: Op,
        flags: Option<Flags>,
        how: Option<How>,
        nan: Nan,
        mut items: Vec<Share>,
    ) -> Self {
        let flags = flags.unwrap_or_default();
        let broken = |why: &str| Self::Broken(why.to_owned());
        match op {
            Op::Hello => Self::Hello,
            Op::Gather => match items.pop() {
                Some(item) if items.is_empty() && item.key.is_empty() => {
                    Self::Gather(item.value, flags)
                }
                _ => broken("`gather` takes one item, whose key is []; `gather_map` takes more"),
            },
            Op::GatherMap => {
                Self::GatherMap(items.into_iter().map(|i| (i.key, i.value)).collect(), flags)
            }
            Op::Reduce => match how {
                Some(how) => Self::Reduce(items, how, nan),
                None => broken("`reduce` needs `how`"),
            },
        }
    }

    /// Writes it, as a program would.
    ///
    /// # Errors
    /// When the stream breaks.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let item = |key: &[String], value: &Result<Value, String>, weight: Option<f64>| match value
        {
            Ok(value) => ItemHead { weight, ..ItemHead::describing(key, value) },
            Err(why) => ItemHead { error: Some(why.clone()), weight, ..ItemHead::blank(key) },
        };
        let blank = |op, flags, items: Vec<ItemHead>| RequestHead {
            op,
            flags,
            how: None,
            nan: None,
            bytes: items.iter().map(|item| item.bytes).sum(),
            items,
        };
        let (head, values): (_, Vec<&Result<Value, String>>) = match self {
            Self::Hello => (blank(Op::Hello, None, Vec::new()), Vec::new()),
            Self::Gather(value, flags) => {
                (blank(Op::Gather, Some(*flags), vec![item(&[], value, None)]), vec![value])
            }
            Self::GatherMap(leaves, flags) => {
                let items = leaves.iter().map(|(key, value)| item(key, value, None)).collect();
                let values = leaves.iter().map(|(_, value)| value).collect();
                (blank(Op::GatherMap, Some(*flags), items), values)
            }
            Self::Reduce(shares, how, nan) => {
                let items = shares.iter().map(|s| item(&s.key, &s.value, Some(s.weight))).collect();
                let head = RequestHead {
                    how: Some(*how),
                    nan: Some(*nan),
                    ..blank(Op::Reduce, None, items)
                };
                (head, shares.iter().map(|share| &share.value).collect())
            }
            Self::Broken(why) => {
                let head = serde_json::json!({ "op": why });
                return wire::write_message(to, &head, []);
            }
        };
        wire::write_message(
            to,
            &head,
            values.into_iter().flatten().map(|value| value.data.as_slice()),
        )
    }
}

impl Answer {
    /// The answer to a gather of one value or of a map.
    pub(crate) fn from_gathered(items: Vec<(Vec<String>, Synced)>, flags: Flags) -> Self {
        if flags.concat {
            let joined = items.into_iter().filter_map(|(key, synced)| match synced {
                Synced::Joined(value) => Some((key, value)),
                Synced::PerRank(_) => None,
            });
            return Self::Joined(joined.collect());
        }
        let apart = items.into_iter().filter_map(|(key, synced)| match synced {
            Synced::PerRank(values) => Some((key, values)),
            Synced::Joined(_) => None,
        });
        Self::PerRank(apart.collect())
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the stream breaks.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut head = AnswerHead {
            ok: true,
            rank: None,
            world: None,
            version: None,
            joined: None,
            items: None,
            error: None,
            hint: None,
            bytes: 0,
        };
        let mut values: Vec<(&[String], &Value)> = Vec::new();
        match self {
            Self::Hello { rank, world, version } => {
                (head.rank, head.world) = (Some(*rank), Some(*world));
                head.version = Some(version.clone());
            }
            Self::Joined(items) => {
                head.joined = Some(true);
                values.extend(items.iter().map(|(key, value)| (key.as_slice(), value)));
            }
            Self::PerRank(items) => {
                head.joined = Some(false);
                for (key, ranks) in items {
                    values.extend(ranks.iter().map(|value| (key.as_slice(), value)));
                }
            }
            Self::Failed(fault) => {
                head.ok = false;
                (head.error, head.hint) = (Some(fault.sentence.clone()), fault.hint.clone());
            }
        }
        if head.joined.is_some() {
            let items: Vec<ItemHead> =
                values.iter().map(|(key, v)| ItemHead::describing(key, v)).collect();
            head.bytes = items.iter().map(|item| item.bytes).sum();
            head.items = Some(items);
        }
        wire::write_message(to, &head, values.iter().map(|(_, value)| value.data.as_slice()))
    }

    /// Reads one, as a program would. Errors come back as faults of the request.
    ///
    /// # Errors
    /// When the stream breaks or ends, or the message is not an answer.
    pub fn read(from: &mut impl Read) -> Result<Self, Fault> {
        let head = wire::read_head(from)?.ok_or_else(|| lost("there is no answer".to_owned()))?;
        let head: AnswerHead =
            serde_json::from_slice(&head).map_err(|e| lost(format!("not an answer: {e}")))?;
        if !head.ok {
            let fault = Fault::request(head.error.unwrap_or_default());
            return Ok(Self::Failed(Fault { hint: head.hint, ..fault }));
        }
        let (Some(joined), Some(items)) = (head.joined, head.items) else {
            let (Some(rank), Some(world)) = (head.rank, head.world) else {
                return Err(lost("an answer has neither items nor a rank".to_owned()));
            };
            return Ok(Self::Hello { rank, world, version: head.version.unwrap_or_default() });
        };
        let mut values_by_key: Vec<(Vec<String>, Vec<Value>)> = Vec::new();
        for item in items {
            let key = item.key.clone();
            let value = wire::read_value(from, item)?.map_err(lost)?;
            match values_by_key.last_mut() {
                Some((last, values)) if *last == key => values.push(value),
                _ => values_by_key.push((key, vec![value])),
            }
        }
        Ok(match joined {
            false => Self::PerRank(values_by_key),
            true => Self::Joined(
                values_by_key
                    .into_iter()
                    .filter_map(|(key, mut values)| Some((key, values.pop()?)))
                    .collect(),
            ),
        })
    }
}
