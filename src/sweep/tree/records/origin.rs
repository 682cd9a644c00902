//! Where metric lines are read from: they stay in their files until somebody wants them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::Result;

use super::Attempt;
use crate::base::host::disk;
use crate::sweep::tree::Tree;
use crate::sweep::tree::line::{LONGEST, Spot};
use crate::sweep::tree::numbers;

/// Where the lines of attempts are.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// In the files of a tree.
    Tree(&'a Tree),
    /// In memory, of runs whose records were just read; those of others are in the files of the tree.
    Runs(&'a Tree, &'a [(u32, Vec<u8>)]),
    /// In the bundle of an agent, which is open.
    Bundle(&'a Tree, &'a File),
}

impl<'a> From<&'a Tree> for Origin<'a> {
    fn from(tree: &'a Tree) -> Self {
        Self::Tree(tree)
    }
}

impl<'a> Origin<'a> {
    /// The lines of one attempt.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub(super) fn lines<'l>(self, attempt: &'l Attempt) -> Result<Lines<'l>>
    where
        'a: 'l,
    {
        let (tree, runs) = match self {
            Self::Tree(tree) => (tree, &[][..]),
            Self::Runs(tree, runs) => (tree, runs),
            Self::Bundle(tree, file) => {
                return Ok(Lines { tree, attempt, place: In::Bundle(file, Vec::new()) });
            }
        };
        let is_it = |(run, _): &&(u32, Vec<u8>)| attempt.bundle.is_none() && *run == attempt.run;
        let place = match runs.iter().find(is_it) {
            Some((_, bytes)) => In::Memory(bytes),
            None => In::File(disk::open(&attempt.file(tree))?, Vec::new()),
        };
        Ok(Lines { tree, attempt, place })
    }
}

/// The lines of an attempt.
pub(super) struct Lines<'a> {
    tree: &'a Tree,
    attempt: &'a Attempt,
    place: In<'a>,
}

enum In<'a> {
    Memory(&'a [u8]),
    /// With the line that was read last.
    File(File, Vec<u8>),
    /// As above, of a file whose place others use, too.
    Bundle(&'a File, Vec<u8>),
}

impl Lines<'_> {
    /// The file that has them.
    pub(super) fn path(&self) -> PathBuf {
        self.attempt.file(self.tree)
    }

    /// The bytes of a line.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn read(&mut self, spot: Spot) -> Result<&[u8]> {
        match &mut self.place {
            In::Memory(bytes) => {
                let range = usize::try_from(spot.at).ok().zip(usize::try_from(spot.len).ok());
                let bytes = range.and_then(|(at, len)| bytes.get(at..)?.get(..len));
                bytes.ok_or_else(|| numbers::damaged(&self.attempt.file(self.tree)).into())
            }
            In::Bundle(file, line) => {
                let damaged = || numbers::damaged(&self.attempt.file(self.tree));
                // A line that was read is not longer than the file was.
                let len = usize::try_from(spot.len).ok().filter(|_| spot.len <= LONGEST);
                line.resize(len.ok_or_else(damaged)?, 0);
                file.read_exact_at(line, spot.at).map_err(|_| damaged())?;
                Ok(line)
            }
            In::File(file, line) => {
                line.clear();
                let read = file.seek(SeekFrom::Start(spot.at));
                let read = read.and_then(|_| file.take(spot.len).read_to_end(line));
                read.map_err(|e| disk::fault("read", &self.attempt.file(self.tree), &e))?;
                Ok(line)
            }
        }
    }
}
