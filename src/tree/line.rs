//! Checksummed JSON lines: each line is a JSON object whose last member is the CRC-32 of what
//! stands before it. A torn or damaged line is recognised and left out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

const SEAL: &str = ",\"crc\":\"";

/// A JSON object as a sealed line, newline included.
///
/// # Errors
/// When the value is not a JSON object (our bug).
pub fn seal<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    if bytes.pop() != Some(b'}') || bytes.len() < 2 {
        return Err(io::Error::other("a sealed line must be an object with members"));
    }
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
pub fn is_sealed(line: &[u8]) -> bool {
    // ,"crc":"xxxxxxxx"} is 18 bytes.
    let Some(split) = line.len().checked_sub(SEAL.len() + 10) else { return false };
    let (body, seal) = line.split_at(split);
    let digits = seal.strip_prefix(SEAL.as_bytes()).and_then(|rest| rest.strip_suffix(b"\"}"));
    // Compared as text, so that no other spelling of the number passes.
    digits.is_some_and(|digits| format!("{:08x}", crc32fast::hash(body)).as_bytes() == digits)
}

/// Where a line is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its first byte.
    pub at: u64,
    /// Its bytes, without the newline.
    pub len: u64,
}

impl Spot {
    /// The length of the file up to the end of the line, newline included.
    pub fn end(self) -> u64 {
        self.at + self.len + 1
    }
}

/// Bytes of the longest line that is read. Whatever is longer was not written by this program.
const LONGEST: u64 = 1 << 30;

/// Calls `with` for every line that ends in a newline, one in memory at a time; a line that is too long comes
/// empty. Returns whether bytes without a newline follow.
///
/// # Errors
/// What the disk says.
pub fn each(file: impl Read, mut with: impl FnMut(Spot, &[u8])) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut at, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let mut len = (&mut reader).take(LONGEST).read_until(b'\n', &mut line)? as u64;
        if len == LONGEST && line.last() != Some(&b'\n') {
            line = Vec::new();
            len += skip_line(&mut reader)?;
        } else if line.pop_if(|last| *last == b'\n').is_none() {
            return Ok(len > 0);
        }
        with(Spot { at, len: len - 1 }, &line);
        at += len;
    }
}

/// Passes over the rest of a line, and returns its bytes.
fn skip_line(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut passed = 0;
    loop {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|&b| b == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        passed += used as u64;
        reader.consume(used);
        if end.is_some() || used == 0 {
            return Ok(passed);
        }
    }
}

/// The one writer of a file of sealed lines.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Bytes of the whole lines that were written.
    length: u64,
    torn: bool,
}

impl Writer {
    /// The writer of a new file, opened for appending.
    pub fn new(file: File) -> Self {
        Self { file, length: 0, torn: false }
    }

    /// Appends one line in one write. After a failure (disk full) what was written of it is cut off again; where
    /// that fails too, the next call starts on a new line, so that the torn part spoils nothing.
    ///
    /// # Errors
    /// What the disk says.
    pub fn append<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut bytes = seal(value)?;
        if self.torn {
            bytes.insert(0, b'\n');
        }
        if let Err(error) = self.file.write_all(&bytes) {
            self.torn |= self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += bytes.len() as u64;
        if self.torn {
            // Nobody knows how much of the torn line there is.
            (self.torn, self.length) = (false, self.file.metadata()?.len());
        }
        Ok(())
    }

    /// Stamps the file with the time of the file system that keeps it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn stamp(&self) -> io::Result<()> {
        use nix::sys::stat::futimens;
        use nix::sys::time::TimeSpec;
        Ok(futimens(&self.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?)
    }

    /// Asks for what was appended to be on disk before going on.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
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
    fn a_line_is_one_json_object_that_other_tools_can_read() {
        let line = seal(&serde_json::json!({"event": "end"})).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), "{\"event\":\"end\",\"crc\":\"565ff857\"}\n");
    }
}
