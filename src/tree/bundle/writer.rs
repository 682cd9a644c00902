//! The one writer of an agent's bundle.

use std::fs::File;
use std::io::{self, Write};
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
    /// Lines that were pushed.
    lines: u64,
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
        let (waiting, length, lines) = (Vec::new(), 0, 0);
        let mut writer = Self { file, path, waiting, length, lines, torn: false, dirty: false };
        writer.push(&Line::Agent(who.clone()))?;
        writer.flush().map_err(|e| disk::fault("write", &writer.path, &e))?;
        Ok(writer)
    }

    /// Adds a line; it is on its way to the disk with the next [`Writer::flush`].
    ///
    /// # Errors
    /// When the line is no object (our bug).
    pub fn push(&mut self, line: &Line) -> Result<()> {
        let sealed = line::seal_numbered(line, self.lines + 1, 0);
        self.waiting.extend(sealed.map_err(|e| disk::fault("write", &self.path, &e))?);
        self.lines += 1;
        Ok(())
    }

    /// Takes back the line that was pushed last, so many bytes, where the disk has refused it.
    pub fn take_back(&mut self, length: usize) {
        self.waiting.truncate(self.waiting.len().saturating_sub(length));
        self.lines -= 1;
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
            self.length = self.file.metadata()?.len();
        }
        self.torn = false;
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
