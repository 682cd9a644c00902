//! Checksummed JSON lines: each line is a JSON object whose last member is the CRC-32 of what
//! stands before it. A torn or damaged line is recognised and left out.

use std::fs::File;
use std::io::{self, Write};

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
    // ,"crc":"xxxxxxxx"} is 18 bytes.
    let split = line.len().checked_sub(SEAL.len() + 10)?;
    let (body, seal) = line.split_at(split);
    let digits = seal.strip_prefix(SEAL.as_bytes())?.strip_suffix(b"\"}")?;
    // Compared as text, so that no other spelling of the number passes.
    if format!("{:08x}", crc32fast::hash(body)).as_bytes() != digits {
        return None;
    }
    serde_json::from_slice(line).ok()
}

/// All whole lines of a file's bytes, and how many others there were (torn, damaged).
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> (Vec<T>, usize) {
    let mut torn = 0;
    let mut all = Vec::new();
    for line in bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match unseal(line) {
            Some(value) => all.push(value),
            None => torn += 1,
        }
    }
    (all, torn)
}

/// The one writer of a file of sealed lines.
#[derive(Debug)]
pub struct Writer {
    file: File,
    torn: bool,
}

impl Writer {
    /// A writer at the end of a file opened for appending.
    pub fn new(file: File) -> Self {
        Self { file, torn: false }
    }

    /// Appends one line in one write. After a failure (disk full) the next call starts on a new
    /// line, so that the torn part spoils nothing.
    ///
    /// # Errors
    /// What the disk says.
    pub fn append<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut bytes = seal(value)?;
        if self.torn {
            bytes.insert(0, b'\n');
        }
        self.torn = true;
        self.file.write_all(&bytes)?;
        self.torn = false;
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

    #[test]
    fn any_cut_or_flipped_byte_loses_only_its_own_line() {
        let a = seal(&serde_json::json!({"event": "start", "n": 1})).unwrap();
        let b = seal(&serde_json::json!({"event": "end", "x": 0.1})).unwrap();
        let whole = [a.clone(), b.clone()].concat();
        let (all, torn) = read::<serde_json::Value>(&whole);
        assert_eq!((all.len(), torn), (2, 0));
        for cut in a.len()..whole.len() - 1 {
            let (all, torn) = read::<serde_json::Value>(&whole[..cut]);
            assert_eq!((all.len(), torn), (1, usize::from(cut > a.len())), "cut at {cut}");
        }
        for i in 0..b.len() - 1 {
            let mut bad = whole.clone();
            bad[a.len() + i] ^= 0x20;
            let (all, _) = read::<serde_json::Value>(&bad);
            assert_eq!(all.len(), 1, "flipped byte {i}");
        }
    }

    #[test]
    fn a_line_is_one_json_object_that_other_tools_can_read() {
        let line = seal(&serde_json::json!({"event": "end"})).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), "{\"event\":\"end\",\"crc\":\"565ff857\"}\n");
    }
}
