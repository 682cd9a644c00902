//! One trial of a sweep again: from its recorded plan, code and seed, in a sweep of its own beside the original, which is only
//! read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::again::{Again, Change};
use super::merge::attempts;
use super::{Source, grow};
use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::host::{copy, disk};
use crate::sweep::tree::code::{self, Beside, Submission};
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Outcome, Record};
use crate::sweep::tree::table::{self, Head, Row};
use crate::sweep::tree::{Identity, Tree};

/// A trial that runs again.
pub(crate) struct Reproduction {
    /// Its sweep, which has all trials and runs this one.
    pub(crate) tree: Tree,
    /// The recorded plan, of that sweep.
    pub(crate) source: Source,
    /// The one trial, which runs although it is done.
    pub(crate) again: Again,
    /// What was recorded of the trial.
    pub(crate) recorded: Record,
    /// What to know about it.
    pub(crate) note: Option<String>,
}

/// The folder of the sweep that reproduces a trial: `NAME.reproduced/TRIAL/SWEEP` beside the original folder `NAME`. No
/// command takes it for a sweep by itself.
fn place(original: &Tree, identity: &Identity, trial: u64) -> (PathBuf, PathBuf) {
    let dir = original.dir();
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let root = dir.with_file_name(format!("{name}.reproduced")).join(trial.to_string());
    let own = root.join(&identity.name);
    (root, own)
}

/// Prepares it, or finds it again.
///
/// # Errors
/// When there is no such trial, it has no result, its code is gone, or the disk refuses.
pub(crate) fn prepare(original: &Tree, identity: &Identity, trial: u64) -> Result<Reproduction> {
    let (head, row) = table::find(original, trial)?;
    if let Some(function) = &head.run.function {
        let sentence = format!("trial {trial} calls the function `{function}`");
        return Err(Fault::request(sentence)
            .hint("only its own program can call it: a trial of a command or of `[train]` can be reproduced")
            .into());
    }
    let (recorded, _) = records::of_trial(original, trial)?;
    let done = recorded.decisive().filter(|_| recorded.outcome() == Some(Outcome::Done));
    let Some(done) = done else {
        let path = original.record(trial, 1);
        if recorded.attempts.is_empty() && path.exists() {
            let sentence = format!("the record of trial {trial} is damaged: no result can be read");
            return Err(Fault::request(sentence)
                .at(path.display().to_string())
                .hint(format!("`hpcsweep status {}` lists what is damaged", original.named()))
                .into());
        }
        return Err(Fault::request(format!("trial {trial} has no result to compare with"))
            .hint(format!("it is not done: `hpcsweep why {trial} {}` says more", original.named()))
            .into());
    };
    let snapshot = done.start.snapshot.clone();
    if snapshot.is_none() && !head.workdir.is_dir() {
        return Err(Fault::request(format!("the code of trial {trial} is not here"))
            .at(format!("`{}` does not exist, and no snapshot was stored", head.workdir.display()))
            .hint("`[snapshot]` in a plan stores the code with the sweep")
            .into());
    }
    let (root, dir) = place(original, identity, trial);
    let source = source(original, &head, &root)?;
    let tree = Tree::at(&dir);
    if tree.identity()?.is_none() {
        let aside = disk::aside(&dir);
        let make = || -> Result<()> {
            let new = Tree::at(&aside);
            fill(original, identity, &new, &tree, (&row, snapshot.as_deref()))?;
            disk::rename_if_there(&aside, &dir)
        };
        make().map_err(|error| elsewhere(&aside, &root, error))?;
    }
    let diff = grow::diff(&tree, &source)?;
    let again = Again::these(BTreeSet::from([trial]), &Change::default(), &diff, true)?;
    let workdir = head.workdir.display();
    let note = (snapshot.is_none() && head.run.train.is_none()).then(|| {
        format!("no snapshot was stored: trial {trial} runs the code that `{workdir}` has now")
    });
    Ok(Reproduction { tree, source, again, recorded, note })
}

/// Removes what was begun; without the right to write there, the hint is to copy the sweep.
fn elsewhere(aside: &Path, root: &Path, error: anyhow::Error) -> anyhow::Error {
    disk::remove_tree(aside);
    match error.downcast::<Fault>() {
        Ok(fault) if fault.cause == Some(Cause::Permission) => {
            let root = root.display();
            let hint = format!(
                "the trial would run in `{root}`: `hpcsweep export` makes a copy of the sweep that you can unpack where you may write"
            );
            fault.hint(hint).into()
        }
        Ok(fault) => fault.into(),
        Err(error) => error,
    }
}

/// The plan that added the trial, for the sweep that reproduces it.
fn source(original: &Tree, head: &Head, root: &Path) -> Result<Source> {
    let whole =
        |text: &String| head.plan_crc.is_none_or(|crc| crc == crc32fast::hash(text.as_bytes()));
    let text = disk::read(&original.plan_of(head.first)).ok().filter(whole);
    let text = text.map_or_else(|| original.stored_plan(), Ok)?;
    let journal = Journal::readable(original, &mut Damage::default())?;
    let path = journal.plan.filter(|path| path.is_file()).unwrap_or_else(|| original.plan());
    let mut source = Source::of_text(&path, text)?;
    // The code is that of the snapshot, and the whole plan is in the tables.
    (source.plan.snapshot, source.part) = (None, None);
    source.plan.root = root.to_string_lossy().into_owned();
    source.moved = None;
    Ok(source)
}

/// Fills the folder of a sweep that will be `later`: all tables, the code of the trial, and the trial before it in its chain.
fn fill(
    original: &Tree,
    identity: &Identity,
    tree: &Tree,
    later: &Tree,
    (row, snapshot): (&Row, Option<&str>),
) -> Result<()> {
    disk::make_dir(tree.dir())?;
    tree.create(&identity.name, identity.access())?;
    table::adopt(tree, original, |head| {
        let Some((_, script)) = &mut head.setup else { return Ok(()) };
        let Some(text) = disk::read_if_there(&original.setup_script(head.first))? else {
            return Ok(());
        };
        *script = later.setup_script(head.first);
        disk::make_dir(&tree.dir().join("jobs"))?;
        disk::write_whole(&tree.setup_script(head.first), text.as_bytes())
    })?;
    if let Some(name) = snapshot {
        code(original, tree, row.id, name)?;
    }
    let Some(before) = row.after else { return Ok(()) };
    let (record, _) = records::of_trial(original, before)?;
    let all = attempts::joined(&[(0, &record)]);
    attempts::write(tree, &[original], before, &all, false)?;
    copy::folder(&original.work(before), &tree.work(before), &|_| true)?;
    Ok(())
}

/// Copies a snapshot, and says that the trial runs from it.
fn code(original: &Tree, tree: &Tree, trial: u64, name: &str) -> Result<()> {
    let manifest = format!("{name}.json");
    let wants = |path: &Path| {
        let first = path.iter().next().unwrap_or_default();
        first == name || first == manifest.as_str()
    };
    copy::folder(&code::folder(original), &code::folder(tree), &wants)?;
    let is_own = |own: &Submission| own.snapshot.as_deref() == Some(name);
    let all = code::recorded(original)?;
    let own = all.into_iter().map(|(own, ..)| own).rfind(is_own);
    let own = own.filter(|_| code::snapshot(tree, name).is_dir()).ok_or_else(|| {
        let sentence = format!("the code of trial {trial} is gone: snapshot {}", code::short(name));
        Fault::request(sentence).hint("the copy was made without it, or it was removed")
    })?;
    let own = Submission { trials: trial.to_string(), ..own };
    code::write(tree, &own, &Beside::default())
}
