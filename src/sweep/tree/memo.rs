//! What one submission has read of the tables of its sweep. A table does not change once its head is there, but for the folder in
//! which its trials run, which only who holds the sweep's lock changes. So a submission reads each file of a table once, and asks the file
//! system of the login node no more than it must. Processes that run longer than a submission, such as agents, hold a tree without a memory and read the files again.

use std::collections::HashMap;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::host::disk;

/// The most bytes that are kept of one file.
const MOST: usize = 1 << 20;

/// The most that are kept in all.
const MOST_IN_ALL: usize = 64 << 20;

/// Files by their paths, as far as they were read.
#[derive(Debug, Default, Clone)]
pub(crate) struct Memo(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    by_path: HashMap<PathBuf, Arc<[u8]>>,
    bytes: usize,
}

impl Memo {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a file that was read before.
    pub(super) fn get(&self, path: &Path) -> Option<Arc<[u8]>> {
        self.files().by_path.get(path).map(Arc::clone)
    }

    /// A file for a reader from its start, which is read now where it may be kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        if let Some(bytes) = self.get(path) {
            return Ok(Box::new(Cursor::new(bytes)));
        }
        let mut file = disk::open_whole(path, u64::MAX)?;
        let mut start = Vec::new();
        (&mut file).take(MOST as u64 + 1).read_to_end(&mut start)?;
        self.keep(path, &start);
        Ok(Box::new(Cursor::new(start).chain(file)))
    }

    /// Keeps the bytes of a file, where there is room.
    pub(super) fn keep(&self, path: &Path, bytes: &[u8]) {
        let mut files = self.files();
        if bytes.len() <= MOST && files.bytes + bytes.len() <= MOST_IN_ALL {
            files.bytes += bytes.len();
            files.by_path.insert(path.to_owned(), bytes.into());
        }
    }

    /// Forgets all: others may have changed the sweep.
    pub(super) fn clear(&self) {
        *self.files() = Files::default();
    }
}
