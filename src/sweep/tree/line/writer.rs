//! The one writer of a file of sealed lines.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::seal_numbered;
use crate::base::fault::Fault;
use crate::base::host::disk;

/// The one writer of a file of sealed lines. After a failure (disk full) what was written of a line is cut off again, so
/// that the torn part spoils nothing.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    /// Lines that are not in the file yet, sealed.
    waiting: Vec<u8>,
    /// Bytes of the whole lines in the file.
    length: u64,
    /// Lines that were pushed.
    lines: u64,
    /// Lines of the files before this one.
    earlier: u64,
    /// Whether the file ends in a part of a line.
    torn: bool,
    /// Whether something was written since the last [`Writer::sync`].
    dirty: bool,
}

impl Writer {
    /// The writer of a new file, opened for appending, before which there are files with `earlier` lines.
    pub(crate) fn new(file: File, path: PathBuf, earlier: u64) -> Self {
        let (waiting, length, lines) = (Vec::new(), 0, 0);
        Self { file, path, waiting, length, lines, earlier, torn: false, dirty: false }
    }

    /// Adds a line; it is on its way to the disk with the next [`Writer::flush`].
    ///
    /// # Errors
    /// When the value is not a JSON object (our bug).
    pub fn push<T: Serialize>(&mut self, value: &T) -> Result<(), Fault> {
        self.add(value).map_err(|e| disk::fault("write", &self.path, &e))?;
        Ok(())
    }

    /// Appends one line in one write; of a line that the disk refuses nothing stays.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn append<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let length = self.add(value)?;
        self.flush().inspect_err(|_| self.take_back(length))
    }

    /// Adds a line; returns its bytes.
    fn add<T: Serialize>(&mut self, value: &T) -> io::Result<usize> {
        let sealed = seal_numbered(value, self.lines + 1, self.earlier)?;
        self.waiting.extend_from_slice(&sealed);
        self.lines += 1;
        Ok(sealed.len())
    }

    /// Takes back the line that was pushed last, so many bytes, where the disk has refused it.
    pub(crate) fn take_back(&mut self, length: usize) {
        self.waiting.truncate(self.waiting.len().saturating_sub(length));
        self.lines -= 1;
    }

    /// Bytes of the whole lines in the file.
    pub(crate) fn size(&self) -> u64 {
        self.length
    }

    /// Bytes of the lines that are not in the file yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Writes the waiting lines. Lines that a full disk refuses keep waiting.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.mend()?;
        self.dirty = true;
        let mut written = 0;
        // A full disk takes a part of a line first and refuses the rest: only the refusal says that it is full.
        let said = loop {
            match self.file.write(&self.waiting[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
            if written == self.waiting.len() {
                break Ok(());
            }
        };
        // Whole lines are gone; of the one that was cut everything is written again.
        let whole = self.waiting[..written].iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        self.torn = whole < written;
        self.length += whole as u64;
        self.waiting.drain(..whole);
        if self.torn {
            self.torn = self.file.set_len(self.length).is_err();
        }
        said
    }

    /// Takes back the part of a line that could not be taken back at once, or makes it a line of its own.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn && self.file.set_len(self.length).is_err() {
            self.file.write_all(b"\n")?;
            // The length of the torn line is unknown.
            self.length = self.file.metadata()?.len();
        }
        self.torn = false;
        Ok(())
    }

    /// Stamps the file with the time of the file system that keeps it.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn stamp(&self) -> io::Result<()> {
        use nix::sys::stat::futimens;
        use nix::sys::time::TimeSpec;
        Ok(futimens(&self.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?)
    }

    /// Makes sure that what was written is on disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// The path under which the file was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values of a file's whole lines, and how many other lines it has.
    fn read(writer: &Writer) -> (Vec<u64>, usize) {
        let bytes = std::fs::read(writer.path()).unwrap();
        let (mut all, mut torn) = (Vec::new(), 0);
        super::super::each(&bytes[..], |_, line| {
            let value: Option<serde_json::Value> = super::super::unseal(line);
            value.map_or_else(|| torn += 1, |value| all.push(value["i"].as_u64().unwrap()));
        })
        .unwrap();
        assert_eq!(writer.size(), bytes.len() as u64);
        (all, torn)
    }

    #[test]
    fn what_the_disk_took_of_a_line_is_cut_off_and_the_line_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let file = File::options().append(true).create_new(true).open(&path).unwrap();
        let mut writer = Writer::new(file, path, 0);
        writer.append(&json!({"i": 1})).unwrap();
        writer.file.write_all(b"{\"event\":\"st").unwrap();
        writer.torn = true;
        writer.push(&json!({"i": 2})).unwrap();
        writer.append(&json!({"i": 3})).unwrap();
        assert_eq!(read(&writer), (vec![1, 2, 3], 0));
    }

    #[test]
    fn a_line_that_was_refused_has_no_number_and_what_waits_keeps_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let file = File::options().append(true).create_new(true).open(&path).unwrap();
        let full = File::options().append(true).open("/dev/full").unwrap();
        let mut writer = Writer::new(full, path, 0);
        assert!(writer.append(&json!({"i": 0})).is_err());
        writer.push(&json!({"i": 1})).unwrap();
        assert!(writer.flush().is_err());
        assert!(writer.append(&json!({"i": 0})).is_err());
        writer.file = file;
        writer.append(&json!({"i": 2})).unwrap();
        assert_eq!(read(&writer), (vec![1, 2], 0));
        let text = std::fs::read_to_string(writer.path()).unwrap();
        let numbers = text.lines().map(|line| line.split("\"n\":").nth(1).unwrap());
        assert_eq!(numbers.map(|rest| &rest[..1]).collect::<String>(), "12");
    }
}
