//! The attempts of one trial in several sweeps, and the record that has all of them.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::sweep::tree::Tree;
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::line::Writer;
use crate::sweep::tree::records::{Attempt, End, Event, Record, Start, Whole};

/// An attempt in one of the sweeps.
#[derive(Clone, Copy)]
pub(in crate::submit) struct Own<'a> {
    pub(in crate::submit) sweep: usize,
    pub(in crate::submit) attempt: &'a Attempt,
    /// The process that made it, as far as several attempts are of one: the sweep and its run there.
    run: Option<(usize, u32)>,
}

/// What makes an attempt the same in two copies of a sweep.
fn identity(attempt: &Attempt) -> (u64, &str, u32, Option<u64>, Option<&str>) {
    let Start { time, host, pid, started, job, .. } = &attempt.start;
    (time.to_bits(), host, *pid, *started, job.as_deref())
}

/// Whether a record has an attempt of another one.
pub(in crate::submit) fn has(record: &Record, attempt: &Attempt) -> bool {
    record.attempts.iter().any(|own| identity(own) == identity(attempt))
}

/// How much of an attempt is there.
fn whole(attempt: &Attempt) -> (bool, bool, usize) {
    (attempt.end.is_some(), attempt.stopped.is_some(), attempt.metrics.len())
}

/// The attempts of a trial, each once. The order of the record with most attempts stays; the others are placed by the
/// time at which they began.
pub(in crate::submit) fn joined<'a>(records: &[(usize, &'a Record)]) -> Vec<Own<'a>> {
    let most = records.iter().map(|(_, record)| record.attempts.len()).max().unwrap_or(0);
    let first = records.iter().position(|(_, record)| record.attempts.len() == most).unwrap_or(0);
    let order = records
        .get(first)
        .into_iter()
        .chain(records.iter().enumerate().filter(|(i, _)| *i != first).map(|(_, record)| record));
    let mut all: Vec<Own<'a>> = Vec::new();
    for (place, (sweep, record)) in order.enumerate() {
        for attempt in &record.attempts {
            let run = (attempt.run > 0).then_some((*sweep, attempt.run));
            let own = Own { sweep: *sweep, attempt, run };
            let same = all.iter_mut().find(|known| identity(known.attempt) == identity(attempt));
            if let Some(known) = same {
                if whole(attempt) > whole(known.attempt) {
                    (known.sweep, known.attempt) = (own.sweep, attempt);
                }
                continue;
            }
            let time = attempt.start.time;
            let later = all.iter().position(|known| known.attempt.start.time > time);
            let at = later.filter(|_| place > 0).unwrap_or(all.len());
            all.insert(at, own);
        }
    }
    // A copy that has lost to another run of the trial at the same time never counts: it comes after the one that is done,
    // and, if none is, is not the last one.
    let is_done = all.iter().any(|own| own.attempt.is_done());
    let has_lost = |own: &Own<'_>| own.attempt.bundle.as_ref().is_some_and(|place| place.lost);
    all.sort_by_key(|own| has_lost(own) == is_done);
    all
}

/// The attempt that counts.
pub(in crate::submit) fn decisive<'a>(all: &[Own<'a>]) -> Option<Own<'a>> {
    all.iter().find(|own| own.attempt.is_done()).or(all.last()).copied()
}

/// Writes the record of a trial, and its logs if they are wanted.
///
/// # Errors
/// When a file cannot be read, or the disk refuses.
pub(in crate::submit) fn write(
    tree: &Tree,
    sweeps: &[&Tree],
    trial: u64,
    all: &[Own<'_>],
    with_logs: bool,
) -> Result<()> {
    let (mut lines, mut number) = (0, 0);
    let key = Keys::one(tree, trial).of(trial);
    let runs = all.chunk_by(|a, b| a.run.is_some() && a.run == b.run);
    for (attempts, run) in runs.zip(1..) {
        let path = tree.record(trial, run);
        let file = disk::create_exclusive_with_parent(&path)?;
        let file = file.ok_or_else(|| Fault::machine(format!("`{}` is there", path.display())))?;
        let mut writer = Writer::new(file, path.clone(), lines);
        let mut push = |event: &Event| -> Result<()> {
            lines += 1;
            Ok(writer.push(&Whole(event))?)
        };
        for own in attempts {
            number += 1;
            let place = Start { trial, attempt: number, key, run, ..Start::default() };
            events(sweeps[own.sweep], own.attempt, place, &mut push)?;
        }
        writer.flush().map_err(|e| disk::fault("write", &path, &e))?;
        if with_logs {
            log(tree, sweeps, trial, run, attempts)?;
        }
    }
    Ok(())
}

/// The events of an attempt, as a worker would have written them at this place.
fn events(
    from: &Tree,
    attempt: &Attempt,
    place: Start,
    push: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let Start { trial, attempt: number, key, run, .. } = place;
    let start = Start {
        trial,
        attempt: number,
        key,
        run,
        // They are about other files of that sweep.
        slot: None,
        seq: 0,
        behind: false,
        ..attempt.start.clone()
    };
    push(&Event::Start(start))?;
    // As events: how many there are says which of two copies has more.
    attempt.each_event(from, |rows| push(&Event::Metrics { trial, attempt: number, rows }))?;
    if let Some((state, reason)) = attempt.stopped.as_ref().filter(|_| !attempt.is_orphan) {
        let time = attempt.stopped_at.unwrap_or(attempt.start.time);
        push(&Event::Stop { trial, attempt: number, time, state: *state, reason: reason.clone() })?;
    }
    match &attempt.end {
        Some(end) => {
            let end =
                End { trial, attempt: number, log: None, last: false, seq: None, ..end.clone() };
            push(&Event::End(end))
        }
        None => Ok(()),
    }
}

/// Copies what the attempts of one run printed.
fn log(tree: &Tree, sweeps: &[&Tree], trial: u64, run: u32, attempts: &[Own<'_>]) -> Result<()> {
    let Some(first) = attempts.first() else { return Ok(()) };
    let from = sweeps[first.sweep];
    let (path, offset, len) = match &first.attempt.bundle {
        None => (from.log(first.attempt.start.trial, first.attempt.run), 0, u64::MAX),
        Some(place) => {
            let Some((offset, len)) = place.log else { return Ok(()) };
            (from.agent_file(&place.agent, &format!("{}.log", place.slot)), offset, len)
        }
    };
    if disk::stamp(&path)?.is_none() {
        return Ok(());
    }
    let to = tree.log(trial, run);
    to.parent().map_or(Ok(()), disk::make_dir)?;
    disk::write_whole_with(&to, |out| {
        let mut written = Ok(());
        let read = disk::each_piece(&path, offset, len, |piece| {
            if written.is_ok() {
                written = out.write_all(piece);
            }
        });
        written.and(read.map(drop).map_err(std::io::Error::other))
    })
}
