//! Damage: the parts of a sweep's files that cannot be trusted. Readers continue without them and report
//! them. No reader accepts changed or cut-off data as what was written.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::Tree;
use crate::base::host::{clock, disk};
use crate::base::words::count;

/// Lines of one file that are torn, changed or missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Damaged {
    /// The file, relative to the sweep's folder.
    pub(crate) file: String,
    /// How many of its lines are damaged.
    pub(crate) lines: u64,
    /// Where they are whole, but not of this file: of what the first is, such as `trial 3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<String>,
}

impl Damaged {
    pub(crate) fn new(file: &str, lines: u64) -> Self {
        Self { file: file.to_owned(), lines, of: None }
    }
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(of) = &self.of else {
            return write!(f, "{} in {}", count(self.lines, "damaged line"), self.file);
        };
        let lines = count(self.lines, "line");
        write!(f, "{lines} of {of} in {} (restore the file from a backup, or remove it)", self.file)
    }
}

/// Damaged files that are there, and what to say of those that are gone: a folder that was removed, or was left out of a copy,
/// has lost all of them at once.
pub(crate) fn without_missing<'a>(
    all: &'a [Damaged],
    dir: &Path,
) -> (Vec<&'a Damaged>, Option<String>) {
    let (there, gone): (Vec<&Damaged>, Vec<&Damaged>) =
        all.iter().partition(|damaged| dir.join(&damaged.file).exists());
    match gone.as_slice() {
        [] => (there, None),
        [one] => {
            (there, Some(format!("{} does not exist, although other files refer to it", one.file)))
        }
        [first, ..] => {
            let files = count(gone.len() as u64, "file");
            let words = format!(
                "{files} of which other files tell do not exist, the first is {}",
                first.file
            );
            (there, Some(words))
        }
    }
}

/// The writer that may be in the middle of the last line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The worker of a trial.
    Trial(u64),
    Agent(String),
    /// The process that holds the lock of the sweep.
    Submission,
}

/// A last line without an end counts as damaged if it has not changed for this time, in seconds, even if its
/// writer seems to be at work.
const STALE_S: f64 = 60.0;

/// All damage of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    found: Vec<(Damaged, Option<Writer>)>,
    /// Files that must have lost a line, by what others say.
    short: BTreeSet<String>,
}

impl Damage {
    /// Adds damaged lines of a file; 0 adds nothing.
    pub(crate) fn add(&mut self, file: &str, lines: u64) {
        if lines > 0 {
            self.found.push((Damaged::new(file, lines), None));
        }
    }

    /// Adds lines that are not of the file in which they stand; 0 adds nothing.
    pub(crate) fn add_of(&mut self, file: &str, lines: u64, of: Option<String>) {
        if lines > 0 {
            self.found.push((Damaged { of, ..Damaged::new(file, lines) }, None));
        }
    }

    /// Adds a file that must have lost a line: one, if nothing else of it is damaged.
    pub(crate) fn add_short(&mut self, file: String) {
        self.short.insert(file);
    }

    /// Adds a last line that has no end, or the lines of a file that has not begun: no damage while its writer is
    /// at work, and has changed the file not long ago.
    pub(crate) fn add_unended(&mut self, tree: &Tree, file: &str, writer: Writer) {
        let changed = disk::stamp(&tree.dir().join(file)).ok().flatten();
        let is_fresh = changed.is_some_and(|(_, time)| clock::now() - time < STALE_S);
        self.found.push((Damaged::new(file, 1), is_fresh.then_some(writer)));
    }

    /// Adds what was found elsewhere.
    pub(crate) fn extend(&mut self, other: Self) {
        self.found.extend(other.found);
        self.short.extend(other.short);
    }

    /// The damage, given which writers are at work: one entry for each file, in the order of names.
    pub(crate) fn settle(self, is_at_work: impl Fn(&Writer) -> bool) -> Vec<Damaged> {
        let mut all: Vec<Damaged> = Vec::new();
        let is_real = |writer: &Option<Writer>| writer.as_ref().is_none_or(|w| !is_at_work(w));
        let mut found: Vec<Damaged> =
            self.found.into_iter().filter(|(_, writer)| is_real(writer)).map(|(d, _)| d).collect();
        let is_new = |file: &&String| !found.iter().any(|damaged| damaged.file == **file);
        let short = self.short.iter().filter(is_new);
        let short: Vec<Damaged> = short.map(|file| Damaged::new(file, 1)).collect();
        found.extend(short);
        found.sort();
        for damaged in found {
            match all.last_mut().filter(|last| last.file == damaged.file) {
                Some(last) => {
                    last.lines += damaged.lines;
                    last.of = last.of.take().or(damaged.of);
                }
                None => all.push(damaged),
            }
        }
        all
    }
}
