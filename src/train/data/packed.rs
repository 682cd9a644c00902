//! Packed data, unpacked no further than it should go: a small file can hold terabytes.
//!
//! Unpacked data begins with a header that states the length of the whole. So the header is unpacked first, and
//! then as many bytes as it states.

use std::io::Read;

use super::array::Bytes;
use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::words;

/// Bytes in which a header ends.
const HEAD: u64 = 64 << 10;

/// Bytes that may be unpacked whatever their size when packed.
const LITTLE: u64 = 1 << 30;

/// Times its packed size that a larger array may have. Data seldom shrink to a twentieth.
const MOST_TIMES: u64 = 100;

/// The result of unpacking an array.
pub(super) enum Unpacked {
    /// All of it, or as much as there is.
    Whole(Bytes),
    /// The reader failed, in words.
    Broken(String),
    Refused(Fault),
}

/// Unpacks an array. `size` returns from the first bytes how many there must be, if they are such a header;
/// `packed` is how many there are now; `name` is the array's name in faults, with backticks.
pub(super) fn unpack(
    mut from: impl Read,
    packed: u64,
    name: &str,
    size: impl Fn(&[u8]) -> Option<u64>,
) -> Unpacked {
    let mut out = Vec::new();
    let broken = |e: std::io::Error| Unpacked::Broken(disk::reason(&e));
    if let Err(e) = (&mut from).take(HEAD).read_to_end(&mut out) {
        return broken(e);
    }
    // The reader of the array reports what is wrong with its header.
    let Some(size) = size(&out) else { return Unpacked::Whole(out.into()) };
    if size > LITTLE && size / MOST_TIMES > packed {
        let (size, packed) = (words::thousands(size), words::thousands(packed));
        let sentence = format!("{name} says that it unpacks from {packed} to {size} bytes");
        return Unpacked::Refused(Fault::request(sentence).hint(
            "save it unpacked (`numpy.savez`, `.npy`): then it stays in its file, and costs no memory",
        ));
    }
    let limit = (size + 1).saturating_sub(out.len() as u64);
    if let Err(e) = from.take(limit).read_to_end(&mut out) {
        return broken(e);
    }
    if out.len() as u64 > size {
        let sentence = format!(
            "{name} holds more than the {} bytes that its header tells of",
            words::thousands(size)
        );
        return Unpacked::Refused(
            Fault::request(sentence).hint("write it again: what stands there would be lost"),
        );
    }
    Unpacked::Whole(out.into())
}
