//! Files of numbers, one a line of equal width, so that one is found with a seek: twelve digits, a space and the
//! CRC-32 of these digits at this place, eight hexadecimal digits. A tree of format 1 has the digits alone.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use crate::base::fault::Fault;
use crate::base::host::{disk, threads};

/// Bytes of a line.
const WIDTH: u64 = 22;
/// Bytes of a line of format 1.
const WIDTH_1: u64 = 13;

/// Bytes of so many lines that threads read them sooner than one does.
const MANY: usize = 1 << 17;

/// Beyond the numbers of trials, units and their counts, which have twelve digits. Sums of them never overflow.
pub(crate) const END: u64 = 1_000_000_000_000;

/// The placeholder of a damaged number: there is no such trial.
pub(crate) const DAMAGED: u64 = u64::MAX;

/// Writes such a file whole.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write(path: &Path, numbers: impl Iterator<Item = u64>) -> Result<()> {
    disk::write_whole_with(path, |out| {
        (0..).zip(numbers).try_for_each(|(at, number)| out.write_all(line(at, number).as_bytes()))
    })
}

/// The line of a number at its place.
pub(crate) fn line(at: u64, number: u64) -> String {
    let digits = format!("{number:012}");
    let crc = seal(at, digits.as_bytes());
    format!("{digits} {crc:08x}\n")
}

fn seal(at: u64, digits: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&at.to_le_bytes());
    hasher.update(digits);
    hasher.finalize()
}

/// A checksum as its eight digits.
pub(crate) fn hexadecimal(crc: u32) -> [u8; 8] {
    std::array::from_fn(|at| b"0123456789abcdef"[(crc >> (28 - 4 * at)) as usize & 15])
}

/// The numbers of a file that should have `count`, as [`some`] reads them, and how many lines it has beyond them: a file that
/// has grown takes no more memory.
///
/// # Errors
/// When the file exists and cannot be read.
pub(crate) fn all(path: &Path, count: u64) -> Result<(Vec<u64>, u64)> {
    let Some((size, _)) = disk::stamp(path)? else { return Ok((Vec::new(), 0)) };
    let (all, width) = read(path, 0, count)?;
    Ok((all, size.div_ceil(width).saturating_sub(count)))
}

/// Numbers of such a file that are missing or damaged, or too many.
pub(crate) fn faulty((all, beyond): &(Vec<u64>, u64), count: u64) -> u64 {
    let good = all.iter().filter(|number| **number != DAMAGED).count() as u64;
    count.saturating_sub(good).saturating_add(*beyond)
}

/// `count` numbers from the one at `from` on, fewer if the file ends before; [`DAMAGED`] for each that cannot be
/// believed.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn some(path: &Path, from: u64, count: u64) -> Result<Vec<u64>> {
    read(path, from, count).map(|(all, _)| all)
}

/// As [`some`], with the bytes of a line.
fn read(path: &Path, from: u64, count: u64) -> Result<(Vec<u64>, u64)> {
    let read = || -> std::io::Result<(Vec<u8>, u64)> {
        let mut file = disk::open_plain(path)?;
        // The bytes after the digits show the format.
        let mut head = Vec::with_capacity(WIDTH_1 as usize);
        file.by_ref().take(WIDTH_1).read_to_end(&mut head)?;
        let width = if head.get(12) == Some(&b'\n') { WIDTH_1 } else { WIDTH };
        file.seek(SeekFrom::Start(from.saturating_mul(width)))?;
        let mut bytes = Vec::new();
        file.take(count.saturating_mul(width)).read_to_end(&mut bytes)?;
        Ok((bytes, width))
    };
    let (bytes, width) = read().map_err(|e| disk::fault("read", path, &e))?;
    let one = |(i, line): (usize, &[u8])| {
        number(from.saturating_add(i as u64), line, width).unwrap_or(DAMAGED)
    };
    // A worker reads one or two, and starts no threads for them.
    if bytes.len() < MANY {
        return Ok((bytes.chunks(width as usize).enumerate().map(one).collect(), width));
    }
    let lines = bytes.par_chunks(width as usize).with_min_len(MANY / WIDTH as usize);
    Ok((threads::in_parallel(|| lines.enumerate().map(one).collect()), width))
}

fn number(at: u64, line: &[u8], width: u64) -> Option<u64> {
    let line = line.strip_suffix(b"\n").filter(|line| line.len() as u64 + 1 == width)?;
    let digits = &line[..12];
    let is_sealed =
        |rest: &[u8]| rest.split_first() == Some((&b' ', &hexadecimal(seal(at, digits))[..]));
    if width == WIDTH && !is_sealed(&line[12..]) {
        return None;
    }
    let text =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

/// As [`some`], where all of them must be there.
///
/// # Errors
/// When one is missing or damaged, or the file cannot be read.
pub(crate) fn exactly(path: &Path, from: u64, count: u64) -> Result<Vec<u64>> {
    let all = some(path, from, count)?;
    if all.len() as u64 != count || all.contains(&DAMAGED) {
        return Err(damaged(path).into());
    }
    Ok(all)
}

/// The files of those that are numbered from 1 that are missing before others, and the one after the last, if that `is_short`.
pub(super) fn gaps(numbers: &[u32], is_short: bool) -> Vec<u32> {
    let last = numbers.iter().copied().max().unwrap_or(0);
    let missing = (1..last).filter(|number| !numbers.contains(number));
    missing.chain(is_short.then_some(last + 1)).collect()
}

/// The fault of a file that cannot be believed.
pub(crate) fn damaged(path: &Path) -> Fault {
    Fault::machine(format!("`{}` is damaged", path.display()))
        .hint("restore the file from a backup; the other files of the sweep are not touched")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_believed_at_its_place_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0001.map");
        write(&path, [7, 7, 123_456].into_iter()).unwrap();
        assert_eq!(some(&path, 0, 9).unwrap(), [7, 7, 123_456]);
        assert_eq!(exactly(&path, 1, 2).unwrap(), [7, 123_456]);
        assert!(exactly(&path, 1, 3).is_err());
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at] ^= 1 << bit;
                std::fs::write(&path, bad).unwrap();
                let read = some(&path, 0, 3).unwrap();
                assert_eq!(
                    read.iter().filter(|n| **n == DAMAGED).count(),
                    1,
                    "byte {at} bit {bit}"
                );
                assert!(read.iter().all(|n| [7, 123_456, DAMAGED].contains(n)));
            }
        }
        // The same line elsewhere is another number's.
        std::fs::write(&path, [&whole[22..44], &whole[..22]].concat()).unwrap();
        assert_eq!(some(&path, 0, 2).unwrap(), [DAMAGED; 2]);
    }

    #[test]
    fn the_digits_alone_are_read_as_format_1_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0001.map");
        std::fs::write(&path, "000000000003\n000000000001\n").unwrap();
        assert_eq!(exactly(&path, 0, 2).unwrap(), [3, 1]);
        assert_eq!(some(&path, 1, 4).unwrap(), [1]);
        std::fs::write(&path, "000000000003\n00000000 001\n0000").unwrap();
        assert_eq!(some(&path, 0, 9).unwrap(), [3, DAMAGED, DAMAGED]);
    }
}
