//! The hooks of trials that are due. A note is made before the end of a trial is recorded, and removed when its hook has been
//! called: if the caller is killed in between, others find the note.

use std::path::PathBuf;

use anyhow::Result;

use super::Tree;
use super::records::{Attempt, End, Outcome, Record};
use super::table::Head;
use crate::base::host::{clock, disk};

/// What stands before the name of the process that has taken a call over.
const TAKEN: char = '~';

/// The call of a hook for the end of an attempt, which has not been made, or not to its end.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) trial: u64,
    /// The run of the trial that has recorded the end; of an agent, its name and the attempt.
    of: String,
    path: PathBuf,
}

/// The key in `[hooks]` for an end.
pub(crate) fn name(end: &End) -> &'static str {
    if end.state == Outcome::Done { "finish" } else { "error" }
}

/// The plan's hook for an end: its key and its argument vector. `None` if the plan has no such hook, and for every interrupted
/// trial.
pub(crate) fn hook<'a>(head: &'a Head, end: &End) -> Option<(&'static str, &'a [String])> {
    let (name, hooks) = (name(end), &head.run.hooks);
    let argv = if name == "finish" { &hooks.finish } else { &hooks.error };
    (!argv.is_empty() && end.state != Outcome::Interrupted).then_some((name, argv.as_slice()))
}

fn folder(tree: &Tree) -> PathBuf {
    tree.dir().join("hooks/due")
}

impl Due {
    /// That for the end of this run of the trial.
    pub(crate) fn of_run(tree: &Tree, trial: u64, run: u32) -> Self {
        Self::new(tree, trial, run.to_string())
    }

    /// That for the end of an attempt of an agent.
    pub(crate) fn of_agent(tree: &Tree, trial: u64, agent: &str, attempt: u32) -> Self {
        Self::new(tree, trial, format!("{agent}.{attempt}"))
    }

    fn of_attempt(tree: &Tree, trial: u64, own: &Attempt) -> Self {
        match &own.bundle {
            Some(place) => Self::of_agent(tree, trial, &place.agent, own.start.attempt),
            None => Self::of_run(tree, trial, own.run),
        }
    }

    fn new(tree: &Tree, trial: u64, of: String) -> Self {
        Self { trial, path: folder(tree).join(format!("{trial}.{of}")), of }
    }

    /// Makes the note for an end that is about to be recorded, if the plan has a hook for it. A full disk may have no place for
    /// it: then nobody but the process that records the end makes the call.
    pub(crate) fn note(&self, head: &Head, end: &End) {
        if hook(head, end).is_some() {
            let made = self.path.parent().map_or(Ok(()), disk::make_dir);
            let _ = made.and_then(|()| disk::append(&self.path, b""));
        }
    }

    /// Removes the note. One that stays costs another call, which is said to be possible.
    pub(crate) fn settle(&self) {
        let _ = disk::remove_if_there(&self.path);
    }

    /// Takes the call over from a process that is gone; `false` if another one has done so.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn take(&mut self) -> Result<bool> {
        let name = format!("{}.{}{TAKEN}{}", self.trial, self.of, clock::short_token());
        let path = self.path.with_file_name(name);
        disk::rename_if_there(&self.path, &path)?;
        self.path = path;
        Ok(disk::stamp(&self.path)?.is_some())
    }

    /// The attempt for the end of which it is, if that is the end that counts in the record of its trial.
    pub(crate) fn attempt<'a>(&self, tree: &Tree, record: &'a Record) -> Option<&'a Attempt> {
        let decisive = record.decisive().filter(|attempt| attempt.end.is_some());
        decisive.filter(|own| Self::of_attempt(tree, self.trial, own).of == self.of)
    }
}

/// All of a sweep, in the order of their trials.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn read(tree: &Tree) -> Result<Vec<Due>> {
    let folder = folder(tree);
    let own = |name: String| {
        let (trial, of) = name.split_once('.')?;
        let (trial, of) = (trial.parse().ok()?, of.split(TAKEN).next()?.to_owned());
        Some(Due { trial, of, path: folder.join(&name) })
    };
    let mut all: Vec<Due> = disk::list(&folder)?.into_iter().filter_map(own).collect();
    all.sort_by_key(|due| due.trial);
    Ok(all)
}
