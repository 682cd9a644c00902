//! The plan and the list that `run` writes: beside what a person may have there, and only when the submission goes on.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::super::out::Out;
use super::text::{self, List, Wanted};
use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::submit::Source;
use crate::sweep::tree::as_written;

/// The files of a plan that `run` writes.
pub(super) struct Own {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// The name of the sweep.
    name: String,
    list: Option<List>,
}

impl Own {
    pub(super) fn new(wanted: Wanted) -> Self {
        let path = PathBuf::from(format!("{}.toml", wanted.name));
        Self { path, text: wanted.text(), name: wanted.name, list: wanted.list }
    }

    /// The names of the files.
    pub(super) fn named(&self) -> String {
        let list = self.list.as_ref().map(|list| format!(" and {}", list.file));
        format!("{}{}", self.path.display(), list.unwrap_or_default())
    }

    /// Whether both files are as this command would write them.
    pub(super) fn is_there(&self) -> Result<bool> {
        let has_list = match &self.list {
            Some(list) => disk::read_if_there(Path::new(&list.file))?.as_ref() == Some(&list.text),
            None => true,
        };
        Ok(has_list && disk::read_if_there(&self.path)?.as_ref() == Some(&self.text))
    }

    /// Refuses to overwrite what `run` has not written, or a person has edited.
    pub(super) fn check(&self) -> Result<()> {
        let shown = self.path.display();
        let target = self.target()?;
        if let Some(list) = &self.list {
            refuse_edited(&list.file)?;
        }
        let Some(plan) = disk::read_if_there(&target)? else { return self.check_alone() };
        // A copy of the plan that a sweep keeps has a seal.
        let plan = as_written(&plan);
        if plan == self.text {
            return Ok(());
        }
        if !text::is_own(plan) {
            let sentence = match text::is_of_run(plan) {
                true => format!("`{shown}` was edited, and this command would write it anew"),
                false => format!("`{shown}` is there, and `hpcsweep run` did not write it"),
            };
            let hint = format!(
                "`hpcsweep submit {shown}` runs it as it is, `--name OTHER` writes another plan"
            );
            return Err(Fault::request(sentence).hint(hint).into());
        }
        if let Some(list) = text::list_of(plan, &self.name) {
            refuse_edited(list)?;
        }
        if target.metadata().is_ok_and(|about| about.permissions().readonly()) {
            let sentence =
                format!("`{shown}` is write-protected, and this command would write it anew");
            let hint = format!("`chmod u+w {shown}` allows it, `--name OTHER` writes another plan");
            return Err(Fault::request(sentence).hint(hint).into());
        }
        Ok(())
    }

    /// Refuses a sweep that is there without its plan, unless this is its plan.
    fn check_alone(&self) -> Result<()> {
        let sweep = Path::new("results").join(&self.name);
        let kept = sweep.join("plan.toml");
        // A sweep that was refused at its beginning keeps no plan.
        let Some(kept_text) = disk::read_if_there(&kept)? else { return Ok(()) };
        if as_written(&kept_text) == self.text {
            return Ok(());
        }
        let shown = self.path.display();
        let sentence =
            format!("`{}` has a sweep, and its plan `{shown}` is not here", sweep.display());
        let hint = format!(
            "`cp {} {shown}` puts the plan back that the sweep keeps, `--name OTHER` begins another sweep",
            kept.display()
        );
        Err(Fault::request(sentence).hint(hint).into())
    }

    /// The file to which the plan is written: a link stays, and what it points to is replaced.
    fn target(&self) -> Result<PathBuf> {
        if !self.path.is_symlink() {
            return Ok(self.path.clone());
        }
        let target = self.path.canonicalize().map_err(|e| {
            let shown = self.path.display();
            Fault::request(format!("`{shown}` is a link to a file that is not there"))
                .at(disk::reason(&e))
                .hint(format!("`rm {shown}` removes the link, `--name OTHER` writes another plan"))
        })?;
        Ok(target)
    }

    /// The checked plan, from its text alone.
    pub(super) fn source(&self) -> Result<Source> {
        let list = self.list.as_ref().map(|list| list.text.clone()).unwrap_or_default();
        Source::of_new(&self.path, self.text.clone(), &move |_: &str| Ok(list.clone()))
    }

    /// Writes what is not there yet, and says so.
    pub(super) fn write(&self, quiet: bool) -> Result<()> {
        if self.is_there()? {
            return Ok(());
        }
        // Another process may have written since.
        self.check()?;
        let target = self.target()?;
        let before = disk::read_if_there(&target)?;
        if let Some(list) = &self.list {
            disk::write_whole(Path::new(&list.file), list.text.as_bytes())?;
        }
        disk::write_whole(&target, self.text.as_bytes())?;
        let own_list = self.list.as_ref().map(|list| &*list.file);
        let old_list = before.as_ref().and_then(|plan| text::list_of(plan, &self.name));
        if let Some(old) = old_list.filter(|old| Some(*old) != own_list) {
            disk::remove_if_there(Path::new(old))?;
        }
        let shown = self.path.display();
        let words = format!("wrote {}: edit it, then `hpcsweep submit {shown}`", self.named());
        Out::new(quiet).say(&words);
        Ok(())
    }
}

/// Refuses a list that is no longer what its name says.
fn refuse_edited(file: &str) -> Result<()> {
    let Some(list) = disk::read_if_there(Path::new(file))? else { return Ok(()) };
    if text::is_list(file, &list) {
        return Ok(());
    }
    let sentence = format!("the list `{file}` was edited or cut since `hpcsweep run` wrote it");
    let hint = format!(
        "`mv {file} OTHER.json` keeps it and lets this command go on, `--name OTHER` writes another plan"
    );
    Err(Fault::request(sentence).hint(hint).into())
}
