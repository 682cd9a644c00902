//! Checksummed JSON lines: each line is a JSON object whose last member is the CRC-32 of the bytes before it.
//! Torn and damaged lines are detected and left out.
//!
//! Lines of files that grow are numbered from 1, so that a missing line between others is detected. The end of a file
//! is known if another file has been begun since: its first line states how many lines the earlier ones had.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod writer;

pub(crate) use writer::Writer;

const SEAL: &str = ",\"crc\":\"";
const NUMBER: &str = ",\"n\":";
/// Bytes of the seal that ends a line: `,"crc":"xxxxxxxx"}`.
const SEAL_LENGTH: usize = SEAL.len() + 10;

/// A JSON object as a sealed line, newline included.
///
/// # Errors
/// When the value is not a JSON object (our bug).
pub fn seal<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    seal_with(value, "")
}

/// As [`seal`], of line `number` of a file, from 1; `earlier`: lines of the files before it, in the first line.
///
/// # Errors
/// As [`seal`].
pub(crate) fn seal_numbered<T: Serialize>(
    value: &T,
    number: u64,
    earlier: u64,
) -> io::Result<Vec<u8>> {
    let earlier = match (number, earlier) {
        (1, 1..) => format!(",\"earlier\":{earlier}"),
        _ => String::new(),
    };
    seal_with(value, &format!("{earlier}{NUMBER}{number}"))
}

fn seal_with<T: Serialize>(value: &T, more: &str) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    if bytes.pop() != Some(b'}') || bytes.len() < 2 {
        return Err(io::Error::other("a sealed line must be an object with members"));
    }
    bytes.extend(more.as_bytes());
    let crc = crc32fast::hash(&bytes);
    write!(bytes, "{SEAL}{crc:08x}\"}}")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The object of a sealed line (without its newline), or `None` if it is torn, damaged or foreign.
pub fn unseal<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    if !is_sealed(line) {
        return None;
    }
    serde_json::from_slice(line).ok()
}

/// Whether a line (without its newline) ends in the checksum of what stands before it.
pub(crate) fn is_sealed(line: &[u8]) -> bool {
    let Some(split) = line.len().checked_sub(SEAL_LENGTH) else { return false };
    let (body, seal) = line.split_at(split);
    let digits = seal.strip_prefix(SEAL.as_bytes()).and_then(|rest| rest.strip_suffix(b"\"}"));
    // Compared as text, so that no other spelling of the number passes.
    digits.is_some_and(|digits| super::numbers::hexadecimal(crc32fast::hash(body)) == digits)
}

/// The number of a sealed line in its file, if it has one.
fn number(line: &[u8]) -> Option<u64> {
    let body = line.get(..line.len().checked_sub(SEAL_LENGTH)?)?;
    let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (head, digits) = body.split_at(body.len() - digits);
    if !head.ends_with(NUMBER.as_bytes()) {
        return None;
    }
    // No file has so many lines; sums of them must not overflow.
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|number| *number < super::numbers::END)
}

/// The part of a file's first line that is about other files.
#[derive(Deserialize)]
struct First {
    #[serde(default)]
    earlier: u64,
}

/// Counts missing and damaged lines of a file by the numbers of its lines.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Lines so far: whole ones, and those that are damaged or missing.
    pub(crate) lines: u64,
    /// Lines that are damaged or missing so far.
    pub(crate) damaged: u64,
    /// Lines that the files before this one had when it was begun.
    pub(crate) earlier: u64,
    /// The number of the last whole line.
    last: u64,
    /// Damaged lines since then.
    since: u64,
}

impl Sequence {
    /// Its numbers, of which [`Sequence::of`] makes it again.
    pub(crate) fn numbers(&self) -> [u64; 5] {
        let Self { lines, damaged, earlier, last, since } = *self;
        [lines, damaged, earlier, last, since]
    }

    /// Of the numbers of another.
    pub(crate) fn of([lines, damaged, earlier, last, since]: [u64; 5]) -> Self {
        Self { lines, damaged, earlier, last, since }
    }

    /// Takes note of a line that was read.
    pub(crate) fn whole(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(number) = number(line) else { return };
        if number <= self.last {
            // It stands there twice, or elsewhere than it was written.
            self.damaged += 1;
        } else {
            // A line that a full disk has cut off has no number of its own.
            let missing = (number - self.last - 1).saturating_sub(self.since);
            (self.lines, self.damaged) = (self.lines + missing, self.damaged + missing);
            self.last = number;
        }
        self.since = 0;
        if number == 1 {
            let earlier = unseal::<First>(line).map_or(0, |first| first.earlier);
            self.earlier = earlier.min(super::numbers::END);
        }
    }

    /// Takes note of a line that could not be read.
    pub(crate) fn damaged(&mut self) {
        self.lines += 1;
        self.damaged += 1;
        self.since += 1;
    }
}

/// Where a line is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Byte offset of its beginning in the file.
    pub(crate) at: u64,
    /// Its bytes, without the newline.
    pub(crate) len: u64,
}

impl Spot {
    /// The length of the file up to the end of the line, newline included.
    pub(crate) fn end(self) -> u64 {
        self.at + self.len + 1
    }
}

/// Bytes of the longest line that is read. Whatever is longer was not written by this program.
pub(crate) const LONGEST: u64 = 1 << 30;

/// Bytes of the longest line that does not begin as this program begins lines, such as a hole of a file.
const LONGEST_OF_OTHERS: u64 = 8 << 20;

/// Bytes of the longest line that begins so.
pub(crate) fn most(begin: &[u8]) -> u64 {
    if begin.first() == Some(&b'{') { LONGEST } else { LONGEST_OF_OTHERS }
}

/// Calls `with` for every line that ends in a newline, one in memory at a time; a line that is too long comes
/// empty, and is the last, as it may have no end. Returns whether bytes without a newline follow.
///
/// # Errors
/// Errors of the disk.
pub(crate) fn each(file: impl Read, with: impl FnMut(Spot, &[u8])) -> io::Result<bool> {
    each_in(BufReader::with_capacity(1 << 16, file), with)
}

/// As [`each`], of what is buffered or in memory.
///
/// # Errors
/// As [`each`].
pub(crate) fn each_in(
    mut reader: impl BufRead,
    mut with: impl FnMut(Spot, &[u8]),
) -> io::Result<bool> {
    let (mut at, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let most = most(reader.fill_buf()?);
        let len = (&mut reader).take(most).read_until(b'\n', &mut line)? as u64;
        if line.pop_if(|last| *last == b'\n').is_none() {
            if len == most {
                with(Spot { at, len }, &[]);
            }
            return Ok(len > 0);
        }
        with(Spot { at, len: len - 1 }, &line);
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole lines of a file's bytes, and how many others there are.
    fn read(bytes: &[u8]) -> (Vec<serde_json::Value>, usize) {
        let (mut all, mut bad) = (Vec::new(), 0);
        let unended = each(bytes, |spot, line| {
            assert_eq!(&bytes[spot.at as usize..spot.end() as usize - 1], line);
            unseal(line).map_or_else(|| bad += 1, |value| all.push(value));
        });
        (all, bad + usize::from(unended.unwrap()))
    }

    #[test]
    fn any_cut_or_flipped_byte_loses_only_its_own_line() {
        let a = seal(&serde_json::json!({"event": "start", "n": 1})).unwrap();
        let b = seal(&serde_json::json!({"event": "end", "x": 0.1})).unwrap();
        let whole = [a.clone(), b.clone()].concat();
        let (all, torn) = read(&whole);
        assert_eq!((all.len(), torn), (2, 0));
        for cut in a.len()..whole.len() {
            let (all, torn) = read(&whole[..cut]);
            assert_eq!((all.len(), torn), (1, usize::from(cut > a.len())), "cut at {cut}");
        }
        for i in 0..b.len() - 1 {
            let mut bad = whole.clone();
            bad[a.len() + i] ^= 0x20;
            let (all, torn) = read(&bad);
            assert_eq!((all.len(), torn > 0), (1, true), "flipped byte {i}");
        }
    }

    #[test]
    fn lines_that_are_missing_doubled_or_elsewhere_are_counted() {
        let lines: Vec<Vec<u8>> = (1..=5)
            .map(|n| seal_numbered(&serde_json::json!({"event": "x"}), n, 7).unwrap())
            .collect();
        let seen = |order: &[usize]| {
            let mut sequence = Sequence::default();
            for &i in order {
                match i {
                    0 => sequence.damaged(),
                    i => sequence.whole(lines[i - 1].strip_suffix(b"\n").unwrap()),
                }
            }
            (sequence.lines, sequence.damaged, sequence.earlier)
        };
        assert_eq!(seen(&[1, 2, 3, 4, 5]), (5, 0, 7));
        assert_eq!(seen(&[1, 2, 5]), (5, 2, 7));
        assert_eq!(seen(&[2, 3]), (3, 1, 0));
        // One damaged line counts as one, and so do two lines of which one is gone.
        assert_eq!(seen(&[1, 0, 3]), (3, 1, 7));
        assert_eq!(seen(&[1, 0, 4]), (4, 2, 7));
        assert_eq!(seen(&[1, 2, 2, 3]), (4, 1, 7));
        assert_eq!(seen(&[1, 3, 2]).1, 2);
        // A part of a line that a full disk had not given back.
        assert_eq!(seen(&[1, 0, 2]), (3, 1, 7));
    }

    #[test]
    fn a_line_is_one_json_object_that_other_tools_can_read() {
        let line = seal(&serde_json::json!({"event": "end"})).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), "{\"event\":\"end\",\"crc\":\"565ff857\"}\n");
    }
}
