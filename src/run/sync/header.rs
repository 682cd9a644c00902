//! Each rank's first announcement: a word of 8 bytes, and, if that does not suffice, a header of 80, enough
//! for the gather of one value. MPI exchanges 8 bytes in less time than any more.
//!
//! Ranks of one trial run the same program on machines of the same kind (the launch checks it), so this
//! has no version.

use super::items::Kind;
use super::options::{Flags, How, Nan};
use super::value::{Dtype, Form};

/// Dimensions that fit; a value with more is described in the tail.
pub(super) const DIMENSIONS: usize = 8;

/// Bytes of a header.
pub(super) const SIZE: usize = 16 + 8 * DIMENSIONS;

/// The word of a rank whose header follows.
pub(super) const LONG: u64 = 0;

/// The next operation of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Gather,
    GatherMap,
    GatherSlice,
    Reduce,
    /// Nothing: its program has ended.
    Absent,
    /// Nothing: what it was asked for makes no sense.
    Broken,
}

impl Op {
    const ALL: [Self; 6] = [
        Self::Gather,
        Self::GatherMap,
        Self::GatherSlice,
        Self::Reduce,
        Self::Absent,
        Self::Broken,
    ];

    /// Its name in sentences and in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::GatherMap => "gather_map",
            Self::GatherSlice => "gather_slice",
            Self::Reduce => "reduce",
            Self::Absent => "nothing",
            Self::Broken => "a broken request",
        }
    }

    /// The settings in `options`, by name, for telling two ranks' apart.
    pub(super) fn settings(self, options: u16) -> Vec<(&'static str, String)> {
        match self {
            Self::Gather | Self::GatherMap => {
                let flags = Flags::from_code(options);
                vec![
                    ("double_precision", flags.double_precision.to_string()),
                    ("concat", flags.concat.to_string()),
                    ("return_tensor", flags.return_tensor.to_string()),
                ]
            }
            Self::Reduce => {
                let [how, nan] = options.to_le_bytes();
                let name = |text: Option<&str>| format!("`{}`", text.unwrap_or("?"));
                vec![
                    ("how", name(How::ALL.get(usize::from(how)).map(|how| how.name()))),
                    ("nan", name(Nan::ALL.get(usize::from(nan)).map(|nan| nan.name()))),
                ]
            }
            Self::GatherSlice | Self::Absent | Self::Broken => Vec::new(),
        }
    }
}

/// The next operation of one rank and, if it has one value, the kind of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) op: Op,
    /// Settings that must be the same everywhere.
    pub(super) options: u16,
    /// The kind of the one value; none if the tail describes the values.
    pub(super) kind: Option<Kind>,
    /// Bytes of what does not fit in here.
    pub(super) tail: u64,
}

impl Header {
    /// As one word, or [`LONG`].
    pub(super) fn word(&self) -> u64 {
        let kind = self.kind.as_ref().map(|kind| (kind.form, kind.dtype, kind.shape.as_slice()));
        if self.tail > 0 { LONG } else { word(self.op, self.options, kind) }
    }

    /// What [`Self::word`] has made; none when it is [`LONG`] or nothing of ours.
    pub(super) fn of_word(word: u64) -> Option<Self> {
        let op = *Op::ALL.get(((word & 7) as usize).checked_sub(1)?)?;
        let kind_bits = word >> 19;
        let kind = match kind_bits & 3 {
            0 => None,
            ndim => Some(Kind {
                form: *Form::ALL.get((kind_bits >> 2 & 7) as usize)?,
                dtype: *Dtype::ALL.get((kind_bits >> 5 & 15) as usize)?,
                shape: if ndim == 1 { Vec::new() } else { vec![kind_bits >> 9] },
            }),
        };
        Some(Self { op, options: (word >> 3) as u16, kind, tail: 0 })
    }

    /// The header in its fixed length, numbers little-endian.
    pub(super) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0] = self.op as u8;
        bytes[2..4].copy_from_slice(&self.options.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tail.to_le_bytes());
        if let Some(kind) = &self.kind {
            bytes[1] = 1;
            bytes[4] = kind.form as u8;
            bytes[5] = kind.dtype as u8;
            bytes[6] = kind.shape.len() as u8;
            for (place, d) in bytes[16..].as_chunks_mut::<8>().0.iter_mut().zip(&kind.shape) {
                *place = d.to_le_bytes();
            }
        }
        bytes
    }

    /// Read back; none when these bytes are not a header.
    pub(super) fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let [op, has_kind, o0, o1, form, dtype, ndim, _, rest @ ..] = bytes;
        let (words, _) = rest.as_chunks::<8>();
        let kind = match has_kind {
            0 => None,
            _ => Some(Kind {
                form: *Form::ALL.get(usize::from(*form))?,
                dtype: *Dtype::ALL.get(usize::from(*dtype))?,
                shape: words
                    .get(1..1 + usize::from(*ndim))?
                    .iter()
                    .map(|d| u64::from_le_bytes(*d))
                    .collect(),
            }),
        };
        Some(Self {
            op: *Op::ALL.get(usize::from(*op))?,
            options: u16::from_le_bytes([*o0, *o1]),
            kind,
            tail: u64::from_le_bytes(words[0]),
        })
    }
}

/// A header without a tail as one word, where it fits: at most one dimension. [`LONG`] stands for all that
/// does not.
pub(super) fn word(op: Op, options: u16, kind: Option<(Form, Dtype, &[u64])>) -> u64 {
    let kind = match kind {
        None => 0,
        Some((form, dtype, shape)) => {
            let (ndim, len) = match shape {
                [] => (1, 0),
                [len] if *len < 1 << 36 => (2, *len),
                _ => return LONG,
            };
            ndim | (form as u64) << 2 | (dtype as u64) << 5 | len << 9
        }
    };
    (op as u64 + 1) | u64::from(options) << 3 | kind << 19
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back() {
        let shape: Vec<u64> = (0..8).map(|i| u64::MAX - i).collect();
        let kind = Kind { form: Form::Tensor, dtype: Dtype::Complex128, shape };
        for kind in [None, Some(kind)] {
            let header = Header { op: Op::Broken, options: 0x0201, kind, tail: 1 << 40 };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[0xff; SIZE]), None);
        assert_eq!(Header::of_word(u64::MAX), None);
        for (code, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
        }
    }
    #[test]
    fn a_word_is_all_that_a_short_header_says() {
        let kind = |shape: &[u64]| {
            Some(Kind { form: Form::Tensor, dtype: Dtype::Complex128, shape: shape.to_vec() })
        };
        let most = (1 << 36) - 1;
        for op in Op::ALL {
            for kind in [None, kind(&[]), kind(&[0]), kind(&[most])] {
                let header = Header { op, options: 0xffff, kind, tail: 0 };
                assert_eq!(Header::of_word(header.word()), Some(header));
            }
        }
        let long = |kind, tail| Header { op: Op::Gather, options: 0, kind, tail }.word() == LONG;
        assert!(long(kind(&[most + 1]), 0) && long(kind(&[1, 1]), 0) && long(None, 1));
        assert_eq!(Header::of_word(LONG), None);
    }
}
