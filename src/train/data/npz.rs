//! NumPy's `.npz`: a zip archive of `.npy` files.
//!
//! Entries that `numpy.savez` stored as they are stay in the map, and are read through once for their checksum;
//! those of `numpy.savez_compressed` are unpacked into memory when they are asked for, once a rank.

use std::io::{self, Cursor};

use zip::{CompressionMethod, ZipArchive};

use super::array::{Array, Bytes};
use super::npy;
use super::packed::{Unpacked, unpack};
use crate::base::fault::Fault;
use crate::base::host::disk;

/// The names of the arrays, in the order of the archive.
pub(super) fn names(bytes: &Bytes, name: &str) -> Result<Vec<String>, Fault> {
    let archive = open(bytes, name)?;
    let names = archive.file_names_raw().map(|raw| {
        let entry = String::from_utf8_lossy(raw);
        entry.strip_suffix(".npy").unwrap_or(&entry).to_owned()
    });
    Ok(names.collect())
}

/// Array `at` of the names above; `name` is what faults call it, with backticks.
pub(super) fn read(bytes: &Bytes, at: usize, name: &str) -> Result<Array, Fault> {
    let broken = |why: String| Fault::request(format!("{name} cannot be read: {why}"));
    let mut archive = open(bytes, name)?;
    let mut entry = archive.by_index(at).map_err(|e| broken(e.to_string()))?;
    if entry.compression() != CompressionMethod::Stored {
        let packed = entry.compressed_size();
        return match unpack(&mut entry, packed, name, npy::whole_size) {
            Unpacked::Whole(bytes) => npy::read(&bytes, name),
            Unpacked::Broken(why) => Err(broken(why)),
            Unpacked::Refused(fault) => Err(fault),
        };
    }
    // The map would hand out what is damaged as well as what is not.
    io::copy(&mut entry, &mut io::sink()).map_err(|e| broken(disk::reason(&e)))?;
    let stored = || {
        let start = usize::try_from(entry.data_start()?).ok()?;
        bytes.piece(start..start.checked_add(usize::try_from(entry.size()).ok()?)?)
    };
    npy::read(&stored().ok_or_else(|| broken("it lies beyond the end of the file".into()))?, name)
}

fn open<'a>(bytes: &'a Bytes, name: &str) -> Result<ZipArchive<Cursor<&'a [u8]>>, Fault> {
    ZipArchive::new(Cursor::new(&**bytes)).map_err(|e| {
        Fault::request(format!("{name} is not a whole `.npz` file: {e}")).hint(
            "`python3 -m zipfile -t FILE` looks it through; copy it again from where it came from",
        )
    })
}
