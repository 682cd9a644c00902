//! The hooks of a whole sweep: `[hooks] sweep_finished` when its last trial has ended for good, `sweep_failed` when it stops
//! before that.
//!
//! The process that sees the end takes the sweep's lock, calls the hook, and writes a note into the tree. While there is a
//! note for an end, the hook is not called again for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::lost::{self, Witness};
use super::{Call, Folder, RunningHook, complain};
use crate::base::cause::group;
use crate::base::host::{Vars, clock, disk};
use crate::plan::Params;
use crate::run::worker::process::scratch::private_folder;
use crate::run::worker::process::{heavy, prepare};
use crate::sweep::standing::State;
use crate::sweep::status::{self, Status, hooks};
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::table::{self, Head};
use crate::sweep::tree::{Tree, write_document};

/// What is kept of a call.
#[derive(Serialize)]
struct Note {
    time: f64,
    hook: &'static str,
    /// What went wrong with it; null if nothing did.
    complaint: Option<String>,
    summary: Value,
}

/// How long the sweep's lock is waited for beyond the time of a call.
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls the hook for the end of a sweep: `sweep_failed` where there is a reason why it has `stopped`, otherwise
/// `sweep_finished` if all trials have ended for good. Returns what went wrong with the hook, if anything did.
///
/// # Errors
/// When the tree cannot be read or written, or the scheduler does not answer.
pub(crate) fn tell_end(
    tree: &Tree,
    witness: Witness<'_>,
    stopped: Option<&str>,
    vars: &Vars,
) -> Result<Option<String>> {
    let heads = table::heads(tree)?;
    let Some(head) = heads.last() else { return Ok(None) };
    let Some((name, argv)) = hooks::of_end(&heads, stopped) else { return Ok(None) };
    // Another agent may be calling it, or somebody submits: longer than a call nobody is waited for.
    let patience = Duration::from_secs(head.run.hooks.timeout_s) + PATIENCE;
    let lock = lost::wait_for_lock(tree, patience)?;
    let (tree, identity) = Tree::open(tree.dir())?;
    let whom = witness.whom(vars);
    let by_records = whom.is_none();
    let status = status::read(tree.clone(), identity, whom)?;
    let goes_on = |state: &State| {
        !state.is_final() || (by_records && matches!(state, State::Interrupted | State::Lost))
    };
    let is_open = status.trials().any(|(_, standing)| goes_on(&standing.state));
    if stopped.is_none() && (is_open || !(by_records || status.is_sure())) {
        return Ok(None);
    }
    let (trials, jobs) = (status.rows.len() as u64, status.jobs.len());
    let note = hooks::note(&tree, trials, jobs, status.records.values(), stopped)?;
    if disk::stamp(&note)?.is_some() {
        return Ok(None);
    }
    let summary = summary(&status, stopped);
    let complaint = call(&tree, head, (name, argv), &summary, vars, &lock);
    if let Some(words) = &complaint {
        // The note has it, too.
        let _ = complain(&log(&tree), words);
    }
    disk::make_dir(&tree.dir().join("hooks"))?;
    let said = Note { time: clock::now(), hook: name, complaint: complaint.clone(), summary };
    write_document(&note, &said)?;
    Ok(complaint)
}

/// What the hooks of a sweep print.
fn log(tree: &Tree) -> PathBuf {
    tree.dir().join("hooks/output.log")
}

/// What is said of a sweep.
fn summary(status: &Status, stopped: Option<&str>) -> Value {
    let counts: BTreeMap<String, u64> =
        status.counts().into_iter().map(|(state, n)| (state.word(), n)).collect();
    let bad = status.trials().filter(|(_, standing)| standing.state.is_bad());
    let groups = group::of(bad.map(|(row, standing)| (row.id, standing.why())));
    let failures: Vec<Value> = groups
        .iter()
        .map(|group| {
            let trials = crate::base::idset::IdSet::of_trials(group.trials.iter().copied());
            json!({ "count": group.trials.len(), "reason": group.words, "trials": trials.to_string() })
        })
        .collect();
    let attempts = || status.records.values().flat_map(|record| &record.attempts);
    let began = attempts().map(|attempt| attempt.start.time).min_by(f64::total_cmp);
    let ended = attempts().filter_map(|attempt| Some(attempt.end.as_ref()?.time));
    json!({
        "sweep": status.identity.name, "sweep_dir": status.tree.dir(), "trials": status.rows.len(),
        "counts": counts, "failures": failures, "attempts": attempts().count(),
        "began": began, "ended": ended.max_by(f64::total_cmp), "stopped": stopped,
    })
}

/// Runs the hook to its end; what went wrong with it.
fn call(
    tree: &Tree,
    head: &Head,
    (name, argv): (&'static str, &[String]),
    summary: &Value,
    vars: &Vars,
    lock: &Lock,
) -> Option<String> {
    let mut env = prepare::environment(vars, &Params::new([].into(), [].into()));
    env.extend(head.run.env.iter().cloned());
    env.retain(|name, _| !heavy::is_mpi_variable(name));
    env.insert("HPCSWEEP_SWEEP".to_owned(), head.sweep.clone());
    env.insert("HPCSWEEP_SWEEP_DIR".to_owned(), prepare::path_text(tree.dir()));
    let written =
        private_folder(vars, tree.dir(), u64::from(u32::MAX)).map(Folder).and_then(|folder| {
            let file = folder.0.join("summary.json");
            disk::append(&file, summary.to_string().as_bytes()).map(|()| (folder, file)).map_err(
                |error| crate::base::fault::Fault::machine(crate::base::fault::sentence(&error)),
            )
        });
    let (folder, wants) = match written {
        Ok((folder, file)) => {
            env.insert("HPCSWEEP_SUMMARY".to_owned(), prepare::path_text(&file));
            (Some(folder), Vec::new())
        }
        Err(fault) => (None, vec![format!("no $HPCSWEEP_SUMMARY: {}", fault.sentence)]),
    };
    let limit = Duration::from_secs(head.run.hooks.timeout_s);
    let (argv, workdir) = (argv.to_vec(), head.workdir.clone());
    let call = Call { name, argv, env, workdir, limit, wants, _folder: folder };
    RunningHook::start(call, &log(tree)).and_then(|hook| lost::wait(hook, lock)).err()
}
