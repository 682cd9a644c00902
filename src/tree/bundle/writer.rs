//! The one writer of an agent's bundle.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Line, Who, path};
use crate::host::disk;
use crate::tree::{Tree, line};

/// The one writer of an agent's bundle.
#[derive(Debug)]
pub struct Writer {
    pub(super) file: File,
    path: PathBuf,
    /// Lines that the disk has refused so far, sealed.
    waiting: Vec<u8>,
    /// Bytes of the whole lines in the file.
    length: u64,
    pub(super) torn: bool,
    dirty: bool,
}

impl Writer {
    /// Makes the bundle of a new agent, with its first line.
    ///
    /// # Errors
    /// When the disk refuses, or there is such a file.
    pub fn create(tree: &Tree, who: &Who) -> Result<Self> {
        let path = path(tree, &who.agent, "jsonl");
        if let Some(shard) = path.parent() {
            disk::make_folder(shard)?;
        }
        let file = disk::create_exclusive(&path)?.ok_or_else(|| {
            let taken = io::Error::from(io::ErrorKind::AlreadyExists);
            disk::fault("create", &path, &taken)
        })?;
        let (waiting, length) = (Vec::new(), 0);
        let mut writer = Self { file, path, waiting, length, torn: false, dirty: false };
        writer.push(&Line::Agent(who.clone()))?;
        writer.flush().map_err(|e| disk::fault("write", &writer.path, &e))?;
        Ok(writer)
    }

    /// Adds a line; it is on its way to the disk with the next [`Writer::flush`].
    ///
    /// # Errors
    /// When the line is no object (our bug).
    pub fn push(&mut self, line: &Line) -> Result<()> {
        self.waiting.extend(line::seal(line).map_err(|e| disk::fault("write", &self.path, &e))?);
        Ok(())
    }

    /// Takes back the line that was pushed last, so many bytes, where the disk has refused it.
    pub fn take_back(&mut self, length: usize) {
        self.waiting.truncate(self.waiting.len().saturating_sub(length));
    }

    /// Bytes of the whole lines in the file.
    pub fn size(&self) -> u64 {
        self.length
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Writes what waits. What a full disk refuses waits on.
    ///
    /// # Errors
    /// What the disk says.
    pub fn flush(&mut self) -> io::Result<()> {
        use std::io::Write;
        while !self.waiting.is_empty() {
            if self.torn && self.file.set_len(self.length).is_err() {
                // What was cut off stays a line of its own.
                self.file.write_all(b"\n")?;
                self.length = self.file.metadata()?.len();
            }
            self.torn = false;
            let written = self.file.write(&self.waiting)?;
            self.dirty = true;
            // Whole lines are gone; of the one that was cut everything is written again.
            let whole =
                self.waiting[..written].iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
            self.torn = whole < written;
            self.length += whole as u64;
            self.waiting.drain(..whole);
        }
        Ok(())
    }

    /// Makes sure that what was written is on disk, and that others see that we live: the file's time of
    /// change, by the file system's own clock.
    ///
    /// # Errors
    /// What the disk says.
    pub fn beat(&mut self) -> io::Result<()> {
        self.sync()?;
        disk::touch(&self.path)
    }

    /// Makes sure that what was written is on disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
