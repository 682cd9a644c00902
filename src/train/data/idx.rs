//! IDX, the format of MNIST: a big-endian header (two zero bytes, type, number of dimensions, their
//! lengths), then the numbers, big-endian too (Y. LeCun, C. Cortes, C. Burges, "The MNIST database").
//!
//! Images of one byte a pixel stay in the map; wider numbers are turned once, in memory. The files are
//! handed out as `.gz`: those are unpacked into memory, once a rank.

use super::array::{self, Array, Bytes, Dtype};
use super::npy::swap;
use super::packed::{self, Unpacked};
use crate::base::fault::Fault;

/// Whether a file begins as IDX does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    matches!(bytes, [0, 0, kind, n, ..] if *n > 0 && dtype(*kind).is_some())
}

/// Whether a file begins as gzip does (RFC 1952).
pub(super) fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// The content of a gzip file.
pub(super) fn unpack(bytes: &[u8], name: &str) -> Result<Bytes, Fault> {
    let decoder = flate2::read::MultiGzDecoder::new(bytes);
    match packed::unpack(decoder, bytes.len() as u64, name, whole_size) {
        Unpacked::Whole(inside) => Ok(inside),
        Unpacked::Broken(why) => Err(Fault::request(format!("{name} cannot be unpacked: {why}"))
            .hint("`gunzip -t` looks it through; copy it again from where it came from")),
        Unpacked::Refused(fault) => Err(fault),
    }
}

/// Bytes of the whole file, according to its first ones; `None` if it is not such a file.
fn whole_size(bytes: &[u8]) -> Option<u64> {
    let [0, 0, kind, n, rest @ ..] = bytes else { return None };
    let lengths = rest.get(..4 * usize::from(*n)).filter(|_| *n > 0)?.as_chunks::<4>().0;
    let shape: Vec<u64> = lengths.iter().map(|b| u64::from(u32::from_be_bytes(*b))).collect();
    array::size(dtype(*kind)?, &shape)?.checked_add(4 + 4 * u64::from(*n))
}

/// Reads a whole file that [`is_one`].
pub(super) fn read(bytes: &Bytes, name: &str) -> Result<Array, Fault> {
    let not_one = || Fault::request(format!("{name} is not an IDX file: it does not begin as one"));
    let (dtype, n) = match bytes.get(..4) {
        Some([0, 0, kind, n]) => (dtype(*kind).ok_or_else(not_one)?, usize::from(*n)),
        _ => return Err(not_one()),
    };
    let start = 4 + 4 * n;
    let (Some(lengths), Some(numbers)) = (bytes.get(4..start), bytes.piece(start..bytes.len()))
    else {
        return Err(Fault::request(format!("{name} is cut off within its header"))
            .hint("copy it again from where it came from"));
    };
    let lengths = lengths.as_chunks::<4>().0;
    let shape: Vec<u64> = lengths.iter().map(|b| u64::from(u32::from_be_bytes(*b))).collect();
    let array = Array::new(dtype, shape, numbers, name)?;
    if dtype.size() == 1 {
        return Ok(array);
    }
    let mut numbers = array.bytes().to_vec();
    swap(&mut numbers, dtype.size());
    Array::new(dtype, array.shape().to_vec(), numbers.into(), name)
}

fn dtype(kind: u8) -> Option<Dtype> {
    match kind {
        0x08 => Some(Dtype::Uint8),
        0x09 => Some(Dtype::Int8),
        0x0b => Some(Dtype::Int16),
        0x0c => Some(Dtype::Int32),
        0x0d => Some(Dtype::Float32),
        0x0e => Some(Dtype::Float64),
        _ => None,
    }
}
