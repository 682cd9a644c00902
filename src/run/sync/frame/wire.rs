//! How a message lies in the stream: a length, a head of JSON, the numbers.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::super::gather::Flags;
use super::super::reduce::{How, Nan};
use super::super::value::{self, Dtype, Form, Value};
use crate::base::fault::{Fault, Kind as Blame};

/// The longest head, in bytes.
pub(crate) const MOST_HEAD: usize = 16 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Op {
    Hello,
    Gather,
    GatherMap,
    Reduce,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RequestHead {
    pub(super) op: Op,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flags: Option<Flags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) how: Option<How>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nan: Option<Nan>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) items: Vec<ItemHead>,
    #[serde(default)]
    pub(super) bytes: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ItemHead {
    #[serde(default)]
    pub(super) key: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) form: Option<Form>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dtype: Option<Dtype>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shape: Option<Vec<u64>>,
    #[serde(default)]
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct AnswerHead {
    pub(super) ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) world: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) joined: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) items: Option<Vec<ItemHead>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
    #[serde(default)]
    pub(super) bytes: u64,
}

/// The one thing that must be there for the end of a message to be found.
#[derive(Deserialize)]
pub(super) struct Length {
    #[serde(default)]
    pub(super) bytes: u64,
}

impl ItemHead {
    pub(super) fn blank(key: &[String]) -> Self {
        let key = key.to_vec();
        Self { key, form: None, dtype: None, shape: None, bytes: 0, weight: None, error: None }
    }

    pub(super) fn describing(key: &[String], value: &Value) -> Self {
        Self {
            form: Some(value.form),
            dtype: Some(value.dtype),
            shape: Some(value.shape.clone()),
            bytes: value.data.len() as u64,
            ..Self::blank(key)
        }
    }
}

/// The head of the next message; none at the end of the stream.
pub(super) fn read_head(from: &mut impl Read) -> Result<Option<Vec<u8>>, Fault> {
    let mut length = [0; 4];
    let mut got = 0;
    while got < length.len() {
        match from.read(&mut length[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(lost("the stream ends within a message".to_owned())),
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(error.to_string())),
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST_HEAD {
        return Err(lost(format!("a head of {length} bytes; at most {MOST_HEAD} are taken")));
    }
    read_bytes(from, length as u64).map(Some)
}

/// The value of an item, or why there is none. Its bytes are read in any case.
pub(super) fn read_value(
    from: &mut impl Read,
    item: ItemHead,
) -> Result<Result<Value, String>, Fault> {
    let checked = match (item.error, item.form, item.dtype, item.shape) {
        (Some(why), ..) => Err(why),
        (None, Some(form), Some(dtype), Some(shape)) => {
            value::check(form, dtype, &shape, item.bytes).map(|()| (form, dtype, shape))
        }
        _ => Err("an item needs `form`, `dtype` and `shape`, or `error`".to_owned()),
    };
    match checked {
        Ok((form, dtype, shape)) => {
            Ok(Ok(Value { form, dtype, shape, data: read_bytes(from, item.bytes)? }))
        }
        Err(why) => skip(from, item.bytes).map(|()| Err(why)),
    }
}

/// That many bytes. The memory is asked for in one piece, and only what comes is touched.
fn read_bytes(from: &mut impl Read, count: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let fits = usize::try_from(count).is_ok_and(|n| bytes.try_reserve_exact(n).is_ok());
    if !fits {
        return Err(lost(format!("there is no memory for {count} bytes")));
    }
    let got = from.take(count).read_to_end(&mut bytes).map_err(|e| lost(e.to_string()))?;
    if (got as u64) < count {
        return Err(lost("the stream ends within a message".to_owned()));
    }
    Ok(bytes)
}

/// Reads past that many bytes.
pub(super) fn skip(from: &mut impl Read, count: u64) -> Result<(), Fault> {
    let gone = io::copy(&mut from.take(count), &mut io::sink()).map_err(|e| lost(e.to_string()))?;
    if gone < count { Err(lost("the stream ends within a message".to_owned())) } else { Ok(()) }
}

pub(super) fn write_message<'a>(
    to: &mut impl Write,
    head: &impl Serialize,
    data: impl IntoIterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut message = vec![0; 4];
    serde_json::to_writer(&mut message, head)?;
    let length = message.len() - 4;
    if length > MOST_HEAD {
        let reason = format!("a head of {length} bytes; at most {MOST_HEAD} are taken");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    message[..4].copy_from_slice(&(length as u32).to_le_bytes());
    for piece in data {
        // Small numbers travel with the head, large ones from where they lie.
        if piece.len() > 4096 {
            to.write_all(&message)?;
            message.clear();
            to.write_all(piece)?;
        } else {
            message.extend_from_slice(piece);
        }
    }
    to.write_all(&message)?;
    to.flush()
}

/// The stream can no longer be followed.
pub(super) fn lost(why: String) -> Fault {
    Fault::new(Blame::Machine, format!("the sync connection is of no more use: {why}"))
        .hint("docs/sync-protocol.md says what messages look like")
}
