//! How a sweep was submitted last: by which scheduler, to agents or as arrays, and with which plan. What is repeated without
//! a plan being named is repeated in the same way.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::plan::site::SchedulerKind;
use crate::submit::Source;
use crate::sweep::tree::Tree;
use crate::sweep::tree::deck;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::waves;

/// Who got the trials of a sweep last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Processes of this machine.
    Here,
    /// A scheduler, as arrays.
    Arrays(SchedulerKind),
    /// Agents, as pilots of a scheduler if there were any.
    Agents(Option<SchedulerKind>),
}

impl Way {
    /// Reads it off the tree.
    ///
    /// # Errors
    /// When the tree cannot be read, or the sweep was never submitted.
    pub(crate) fn of(tree: &Tree) -> Result<Self> {
        let journal = Journal::read(tree)?;
        let kind = |word: &str| SchedulerKind::ALL.iter().find(|(own, _)| *own == word);
        let (mut arrays, mut pilots) = (None, None);
        for wave in waves::read(tree)? {
            let Some((_, kind)) = kind(&wave.target) else { continue };
            match wave.arrays.iter().any(|array| array.pilot.is_some()) {
                true => pilots = Some(*kind),
                false => arrays = Some((wave.created, Self::Arrays(*kind))),
            }
        }
        let dealt = deck::read(tree)?.last().map(|deck| (deck.created, Self::Agents(pilots)));
        // An executor that was killed has only begun. Agents were enqueued at that time, if there is a queue.
        let began = if dealt.is_none() { journal.began_here } else { 0.0 };
        let here = Some(journal.ran_here.max(began)).filter(|time| *time > 0.0);
        let here = here.map(|time| (time, Self::Here));
        let ways = [arrays, dealt, here].into_iter().flatten();
        let last = ways.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, way)| way);
        match (last, journal.site.map(|site| site.scheduler)) {
            (Some(way), _) => Ok(way),
            (None, Some(SchedulerKind::Local)) => Ok(Self::Here),
            (None, Some(kind)) => Ok(Self::Arrays(kind)),
            (None, None) => Err(Fault::request("this sweep was never submitted")
                .at(tree.dir().display().to_string())
                .hint("`hpcsweep submit PLAN` submits it")
                .into()),
        }
    }
}

/// The plan with which a sweep was submitted last, and a note if it is not the file any more that was submitted.
///
/// # Errors
/// When it is lost or damaged.
pub(crate) fn source(tree: &Tree) -> Result<(Source, Option<String>)> {
    let text = tree.stored_plan()?;
    let file = Journal::read(tree)?.plan;
    let is_same = |file: &Path| disk::read_named(file).is_ok_and(|now| is_equal(&now, &text));
    let note = match &file {
        Some(file) if is_same(file) => None,
        Some(file) if file.is_file() => Some(format!("`{}` has changed since", disk::named(file))),
        Some(file) => Some(format!("`{}` is gone", disk::named(file))),
        None => Some("its file is not known".to_owned()),
    };
    // What a plan names beside itself is found where the plan was.
    let path = file.unwrap_or_else(|| parent(tree).join("plan.toml"));
    let mut source = match &note {
        None => Source::read(&path)?,
        Some(_) => Source::of_text(&path, text)?,
    };
    if !disk::is_same(source.tree().dir(), tree.dir()) {
        // The results were moved, with or without the plan.
        source.plan.root = parent(tree).to_string_lossy().into_owned();
        source.moved = Some(tree.dir().to_owned());
        source.narrow()?;
    }
    let note = note.map(|why| {
        let kept = disk::named(&tree.plan());
        format!("the plan is that of the last submission (`{kept}`): {why}")
    });
    Ok((source, note))
}

fn is_equal(a: &str, b: &str) -> bool {
    a.trim_end_matches('\n') == b.trim_end_matches('\n')
}

fn parent(tree: &Tree) -> PathBuf {
    disk::absolute(tree.dir()).parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::graph::Mapping;
    use crate::sweep::tree::FORMAT;
    use crate::sweep::tree::journal::{Entry, Site, Writer};
    use crate::sweep::tree::waves::Wave;

    #[test]
    fn the_last_submission_is_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::at(folder.path());
        assert_eq!(
            Way::of(&tree).unwrap_err().to_string().lines().next(),
            Some("this sweep was never submitted")
        );
        let wave = |wave, target: &str, created| Wave {
            format: FORMAT,
            wave,
            target: target.to_owned(),
            created,
            chains: Mapping::Elementwise,
            arrays: Vec::new(),
            learnt: Vec::new(),
            ended: Vec::new(),
        };
        waves::write(&tree, &wave(1, "slurm", 1.0), &[]).unwrap();
        assert_eq!(Way::of(&tree).unwrap(), Way::Arrays(SchedulerKind::Slurm));
        // One that runs here, or was killed.
        let mut journal = Writer::open(&tree).unwrap();
        journal.site(Site::LOCAL, Path::new("plan.toml")).unwrap();
        assert_eq!(Way::of(&tree).unwrap(), Way::Here);
        waves::write(&tree, &wave(2, "pbs", 1e12), &[]).unwrap();
        assert_eq!(Way::of(&tree).unwrap(), Way::Arrays(SchedulerKind::Pbs));
        journal.write(&Entry::Ended { time: 2e12, trials: "0".to_owned() }).unwrap();
        assert_eq!(Way::of(&tree).unwrap(), Way::Here);
    }
}
