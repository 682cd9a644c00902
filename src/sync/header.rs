//! What each rank says first: 80 bytes, enough for the gather of one value.
//!
//! Ranks of one trial run the same program on machines of the same kind (the launch checks it), so this
//! has no version.

use super::gather::Flags;
use super::items::Kind;
use super::reduce::{How, Nan};
use super::value::{Dtype, Form};

/// Dimensions that fit; a value with more is described in the tail.
pub(super) const DIMENSIONS: usize = 8;

/// Bytes of a header.
pub(super) const SIZE: usize = 16 + 8 * DIMENSIONS;

/// What a rank is about to do.
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

/// What one rank is about to do and, when it brings one value, what that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) op: Op,
    /// Settings that must be the same everywhere.
    pub(super) options: u16,
    /// The one value; none when the tail says what there is.
    pub(super) kind: Option<Kind>,
    /// Bytes of what does not fit in here.
    pub(super) tail: u64,
}

impl Header {
    /// As bytes.
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

    /// Read back; none when these bytes are no header.
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
        for (code, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
        }
    }
}
