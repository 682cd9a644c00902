//! What files contain, told by hashes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::disk;

/// Bytes that are read at once.
const PIECE: usize = 1 << 18;

/// Bytes of the largest file whose content is compared: a program is smaller, and data would take minutes.
const LARGEST: u64 = 256 << 20;

/// The hash and the length of what can be read, each piece of which goes to `with`.
///
/// # Errors
/// Errors of the disk, and those of `with`.
pub(crate) fn hash_of(
    file: &mut File,
    mut with: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((hasher.finalize().to_hex()[..32].to_owned(), bytes));
        }
        hasher.update(&piece[..read]);
        with(&piece[..read])?;
        bytes += read as u64;
    }
}

/// Whether there is a file of so many bytes with this hash; of a very large one only the length is compared.
///
/// # Errors
/// Errors of the disk.
pub(crate) fn is_file(path: &Path, hash: &str, bytes: u64) -> io::Result<bool> {
    let mut file = match disk::open_unlinked(path) {
        // It is gone, or something else is in its place.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::Other) => {
            return Ok(false);
        }
        opened => opened?,
    };
    if file.metadata()?.len() != bytes {
        return Ok(false);
    }
    Ok(bytes > LARGEST || hash_of(&mut file, |_| Ok(()))?.0 == hash)
}

/// Whether there is a symbolic link with this target.
pub(crate) fn is_link(path: &Path, target: &str) -> bool {
    fs::read_link(path).is_ok_and(|leads| leads == Path::new(target))
}
