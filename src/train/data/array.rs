//! Arrays as files hold them: a type, a shape, and bytes in C order, little-endian, mapped or in memory.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::base::fault::Fault;
use crate::base::host::map::Map;
use crate::base::words;

/// Type of the numbers of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte; 0 is false, all others are true.
    Bool,
    /// 8 bit, without sign.
    Uint8,
    /// 8 bit, with a sign.
    Int8,
    /// 16 bit, without sign.
    Uint16,
    /// 16 bit, with a sign.
    Int16,
    /// 32 bit, without sign.
    Uint32,
    /// 32 bit, with a sign.
    Int32,
    /// 64 bit, without sign.
    Uint64,
    /// 64 bit, with a sign.
    Int64,
    /// IEEE 754 binary16, 16 bit.
    Float16,
    /// The upper half of a binary32.
    Bfloat16,
    /// IEEE 754 binary32, 32 bit.
    Float32,
    /// IEEE 754 binary64, 64 bit.
    Float64,
}

impl Dtype {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint32 | Self::Int32 | Self::Float32 => 4,
            Self::Uint64 | Self::Int64 | Self::Float64 => 8,
        }
    }

    /// Its name in torch and numpy.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Uint8 => "uint8",
            Self::Int8 => "int8",
            Self::Uint16 => "uint16",
            Self::Int16 => "int16",
            Self::Uint32 => "uint32",
            Self::Int32 => "int32",
            Self::Uint64 => "uint64",
            Self::Int64 => "int64",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What owns the bytes: a mapped file or memory.
#[derive(Clone)]
enum Store {
    Mapped(Arc<Map>),
    Memory(Arc<Vec<u8>>),
}

/// A piece of a mapped file or of memory. A copy of it, or a piece of a piece, copies no bytes.
#[derive(Clone)]
pub struct Bytes {
    store: Store,
    range: Range<usize>,
}

impl Bytes {
    /// The piece `range` of these bytes, or `None` if they end before it does.
    pub(crate) fn piece(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let range = self.range.start + range.start..self.range.start + range.end;
        Some(Self { store: self.store.clone(), range })
    }
}

impl From<Map> for Bytes {
    fn from(map: Map) -> Self {
        Self { range: 0..map.len(), store: Store::Mapped(Arc::new(map)) }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), store: Store::Memory(Arc::new(bytes)) }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.store {
            Store::Mapped(map) => &map[self.range.clone()],
            Store::Memory(bytes) => &bytes[self.range.clone()],
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            Store::Mapped(map) => write!(f, "Bytes({:?} of {map:?})", self.range),
            Store::Memory(_) => write!(f, "Bytes({:?} in memory)", self.range),
        }
    }
}

/// Numbers of one type in C order, little-endian.
#[derive(Debug, Clone)]
pub struct Array {
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: Bytes,
}

impl Array {
    /// An array of `bytes`. `name` is what faults call it, with backticks: "`a.npy`".
    ///
    /// # Errors
    /// When there are fewer or more bytes than the shape says.
    pub(crate) fn new(
        dtype: Dtype,
        shape: Vec<u64>,
        bytes: Bytes,
        name: &str,
    ) -> Result<Self, Fault> {
        let n_bytes = bytes.len() as u64;
        match size(dtype, &shape) {
            Some(size) if size == n_bytes => Ok(Self { dtype, shape, bytes }),
            Some(size) if size > n_bytes => Err(Fault::request(format!(
                "{name} is cut off: it says that it holds {dtype} of shape {}, {}, and has {}",
                Shape(&shape),
                words::count(size, "byte"),
                words::thousands(n_bytes)
            ))
            .hint("copy it again from where it came from")),
            Some(size) => Err(Fault::request(format!(
                "{name} has {} behind its last number",
                words::count(n_bytes - size, "byte")
            ))
            .hint("write it again: what stands there would be lost")),
            None => Err(Fault::request(format!(
                "{name} is broken: no array has the shape {}",
                Shape(&shape)
            ))),
        }
    }

    /// Type of the numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Lengths of its dimensions.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The bytes of the numbers, as many as shape and type need.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes of an array, or `None` if the count needs more than 64 bits.
pub(super) fn size(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    count(shape)?.checked_mul(dtype.size() as u64)
}

/// Numbers of an array, or `None` if the count needs more than 64 bits. A product whose parts overflow is
/// refused even if a later dimension is 0: no program writes such a file.
pub(super) fn count(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |n, length| n.checked_mul(*length))
}

/// A shape as people read it: `[1797, 8, 8]`.
pub(super) struct Shape<'a>(pub(super) &'a [u64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_piece_is_where_it_was() {
        let bytes = Bytes::from((0..10).collect::<Vec<u8>>());
        let piece = bytes.piece(2..8).unwrap();
        assert_eq!(&*piece.piece(1..3).unwrap(), [3, 4]);
        assert_eq!(&*piece.piece(6..6).unwrap(), [0; 0]);
        assert!(piece.piece(5..7).is_none(), "beyond its end, though not beyond the whole");
        #[expect(clippy::reversed_empty_ranges, reason = "what a broken file may ask for")]
        let backwards = 3..2;
        assert!(piece.piece(backwards).is_none());
    }

    #[test]
    fn an_array_has_as_many_bytes_as_its_shape() {
        let make = |shape: &[u64], bytes: usize| {
            let bytes = Bytes::from(vec![0; bytes]);
            Array::new(Dtype::Int16, shape.to_vec(), bytes, "`a`").map_err(|f| f.sentence)
        };
        assert_eq!(make(&[2, 3], 12).unwrap().bytes().len(), 12);
        assert_eq!(make(&[], 2).unwrap().bytes().len(), 2);
        assert_eq!(
            make(&[2, 3], 11).unwrap_err(),
            "`a` is cut off: it says that it holds int16 of shape [2, 3], 12 bytes, and has 11"
        );
        assert_eq!(make(&[2, 3], 13).unwrap_err(), "`a` has 1 byte behind its last number");
        assert_eq!(
            make(&[1 << 40, 1 << 40], 13).unwrap_err(),
            "`a` is broken: no array has the shape [1099511627776, 1099511627776]"
        );
    }
}
