//! Results of one plan from several sweeps, as one sweep: `hpcsweep merge`.
//!
//! Trials are the same if they have the same key. Each attempt is kept once, so what several sweeps have in common, or have in
//! parts, becomes what one run would have recorded. The new sweep has no jobs, agents or submissions: what it needs of
//! them is in its records.

pub(super) mod attempts;
mod plans;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::grow;
use crate::base::fault::Fault;
use crate::base::host::{copy, disk, named};
use crate::base::idset::IdSet;
use crate::sweep::standing::{self, Standing};
use crate::sweep::status::Status;
use crate::sweep::tree::Tree;
use crate::sweep::tree::code::{self, Beside, Submission};
use crate::sweep::tree::export::Without;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::table::{self, Head};
use attempts::Own;
use plans::Places;

/// What was merged, as counts for a message.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Trials of the plan.
    pub(crate) trials: u64,
    /// Those of them of which any attempt is recorded.
    pub(crate) begun: u64,
    /// Attempts that more than one sweep had.
    pub(crate) common: u64,
    /// Trials of the sweeps that the plan does not have: they are left out.
    pub(crate) foreign: u64,
}

/// Makes a new sweep of the results of others, which are only read. It appears whole or not at all.
///
/// # Errors
/// When the folder exists, the sweeps are of different plans, a file cannot be read, or the disk refuses.
pub(crate) fn merge(
    sweeps: &[Status],
    named: Option<&Path>,
    without: &[Without],
    to: &Path,
) -> Result<Report> {
    let to = disk::absolute(to);
    if to.symlink_metadata().is_ok() {
        return Err(Fault::request(format!("`{}` is there already", to.display()))
            .hint("name a new folder; nothing was changed")
            .into());
    }
    let base = plans::common(sweeps, named)?;
    let aside = disk::aside(&to);
    let make = || -> Result<Report> {
        let report = fill(sweeps, &base, without, &Tree::at(&aside), &Tree::at(&to))?;
        disk::rename_if_there(&aside, &to)?;
        Ok(report)
    };
    make().inspect_err(|_| disk::remove_tree(&aside))
}

/// Fills the folder of a sweep that will be `later`.
fn fill(
    sweeps: &[Status],
    base: &plans::Own,
    without: &[Without],
    tree: &Tree,
    later: &Tree,
) -> Result<Report> {
    let plan = &base.source.plan;
    named::make_dir(tree.dir(), later.dir())?;
    tree.create(&plan.name, sweeps[base.of].identity.access())?;
    let head =
        Head { setup: set_up(base, &sweeps[base.of].tree, tree, later)?, ..base.head.clone() };
    grow::lay(tree, &base.source, &grow::diff(tree, &base.source)?, head)?;

    let places = Places::of(plan);
    let numbers: Vec<BTreeMap<u64, u64>> = sweeps.iter().map(|own| places.find(own)).collect();
    let mut report = Report { trials: plan.trials.len() as u64, ..Report::default() };
    let mut records: BTreeMap<u64, Vec<(usize, u64, &Record)>> = BTreeMap::new();
    for (sweep, (status, numbers)) in sweeps.iter().zip(&numbers).enumerate() {
        report.foreign += (status.rows.len() - numbers.len()) as u64;
        for (old, new) in numbers {
            if let Some(record) = status.records.get(old) {
                records.entry(*new).or_default().push((sweep, *old, record));
            }
        }
    }
    let trees: Vec<&Tree> = sweeps.iter().map(|status| &status.tree).collect();
    let mut open = Vec::new();
    for (trial, own) in &records {
        let of: Vec<(usize, &Record)> =
            own.iter().map(|(sweep, _, record)| (*sweep, *record)).collect();
        let all = attempts::joined(&of);
        let had: usize = of.iter().map(|(_, record)| record.attempts.len()).sum();
        report.common += (had - all.len()) as u64;
        report.begun += u64::from(!all.is_empty());
        attempts::write(tree, &trees, *trial, &all, !without.contains(&Without::Logs))?;
        if let Some(standing) = running(sweeps, own, attempts::decisive(&all)) {
            open.push((*trial, standing));
        }
        if !without.contains(&Without::Work) {
            let is_without = without.contains(&Without::Checkpoints);
            work(tree, sweeps, *trial, own, attempts::decisive(&all), is_without)?;
        }
    }
    code(tree, sweeps, &numbers)?;
    let mut left_out = without.to_vec();
    for from in trees {
        left_out.extend(from.left_out()?);
    }
    left_out.sort_unstable();
    left_out.dedup();
    tree.set_merged(left_out, standing::groups(open))?;
    Ok(report)
}

/// The standing of a trial whose attempt that counts had not ended; `None` if it had, or no process was at work at it.
fn running<'a>(
    sweeps: &'a [Status],
    own: &[(usize, u64, &Record)],
    decisive: Option<Own<'_>>,
) -> Option<&'a Standing> {
    let decisive = decisive.filter(|own| own.attempt.outcome().is_none())?;
    let (sweep, old, _) = own.iter().find(|(sweep, ..)| *sweep == decisive.sweep)?;
    let status = &sweeps[*sweep];
    let standing = &status.standings[table::place_of(&status.rows, *old)?];
    (!standing.state.is_final()).then_some(standing)
}

/// The shell and the set-up script of the trials, as the new sweep has them.
fn set_up(
    base: &plans::Own,
    from: &Tree,
    tree: &Tree,
    later: &Tree,
) -> Result<Option<(std::path::PathBuf, std::path::PathBuf)>> {
    let Some((shell, _)) = &base.head.setup else { return Ok(None) };
    let script = disk::read_if_there(&from.setup_script(base.head.first))?;
    if let Some(script) = script {
        disk::make_dir(&tree.dir().join("jobs"))?;
        disk::write_whole(&tree.setup_script(0), script.as_bytes())?;
    }
    Ok(Some((shell.clone(), later.setup_script(0))))
}

/// Copies the folder of a trial: that of the sweep whose attempt counts, if it has one. What other attempts have saved does not
/// belong to the result of one that is done.
fn work(
    tree: &Tree,
    sweeps: &[Status],
    trial: u64,
    own: &[(usize, u64, &Record)],
    decisive: Option<Own<'_>>,
    without_checkpoint: bool,
) -> Result<()> {
    let first = decisive.map(|own| own.sweep);
    let mut order: Vec<_> = own.iter().collect();
    order.sort_by_key(|(sweep, ..)| Some(*sweep) != first);
    let done = decisive.map(|own| own.attempt).filter(|attempt| attempt.is_done());
    order.retain(|(_, _, record)| done.is_none_or(|done| attempts::has(record, done)));
    for (sweep, old, _) in order {
        let from = &sweeps[*sweep].tree;
        if disk::stamp(&from.work(*old))?.is_some() {
            let wants = |name: &Path| !(without_checkpoint && name == Path::new("checkpoint"));
            copy::folder(&from.work(*old), &tree.work(trial), &wants)?;
            return Ok(());
        }
    }
    Ok(())
}

/// Copies the snapshots of all sweeps, and says which trials run from which.
fn code(tree: &Tree, sweeps: &[Status], numbers: &[BTreeMap<u64, u64>]) -> Result<()> {
    let mut all: Vec<(Submission, Beside)> = Vec::new();
    for (status, numbers) in sweeps.iter().zip(numbers) {
        for (own, ids, beside) in code::recorded(&status.tree)? {
            let trials: BTreeSet<u64> =
                ids.iter().filter_map(|id| numbers.get(&u64::from(id)).copied()).collect();
            let trials = IdSet::of_trials(trials).to_string();
            let own = Submission { trials, ..own };
            if !own.trials.is_empty() && !all.iter().any(|(known, _)| *known == own) {
                all.push((own, beside));
            }
        }
        // Names say what is there, so what several sweeps have is the same.
        let wants = |name: &Path| {
            let first = name.iter().next().unwrap_or_default().as_encoded_bytes();
            first != b"submissions" && !first.starts_with(b".")
        };
        copy::folder(&code::folder(&status.tree), &code::folder(tree), &wants)?;
    }
    all.sort_by(|a, b| a.0.created.total_cmp(&b.0.created));
    all.iter().try_for_each(|(own, beside)| code::write(tree, own, beside))
}
