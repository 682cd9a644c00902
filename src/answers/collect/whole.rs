//! The record of each trial as one JSON object: for programs, which want parameters and results whole rather
//! than in columns.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::Result;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::cause::Cause;
use crate::base::host::{disk, threads};
use crate::plan::Params;
use crate::sweep::standing::Standing;
use crate::sweep::status::Status;
use crate::sweep::tree::Tree;
use crate::sweep::tree::code::Code;
use crate::sweep::tree::records::{Attempt, Record, Usage};
use crate::sweep::tree::table::Row;

/// Trials of which the lines are made at once: a result may be large.
const ABREAST: usize = 64;

/// Bytes of the end of a log that are shown of a trial without success.
const TAIL: u64 = 8 << 10;

/// A trial as one line of JSON, with its members in this order.
#[derive(Serialize)]
struct Whole<'a> {
    /// The sweep, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<&'a str>,
    trial: u64,
    state: String,
    task_id: &'a Option<Value>,
    link: u64,
    /// The function that it calls, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    params: &'a Params,
    /// The code that the attempt that counts ran, if it was a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    /// Which attempt counts, and how many there were.
    attempt: Option<u32>,
    attempts: usize,
    host: Option<&'a str>,
    /// When it began, unix seconds.
    start: Option<f64>,
    /// Seconds of all attempts, and of the one that counts.
    duration_s: Option<f64>,
    last_duration_s: Option<f64>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Why it did not end well, in one word and in words.
    cause: Option<Cause>,
    reason: Option<&'a str>,
    result: Option<&'a Value>,
    /// Bytes that all of its processes had at most, and what else they have used.
    peak_memory: Option<u64>,
    usage: Option<&'a Usage>,
    /// As in the columns of the table.
    metrics: Map<String, Value>,
    /// Metric lines and results that could not be read.
    unread_lines: u64,
    /// The end of what it printed, if it did not end well.
    output: Option<String>,
}

/// Gives out the trials of a sweep as JSON lines, some at a time: all of them, or those of `order`, in that order; a
/// trial that the sweep does not have is `null`. Returns how many.
///
/// # Errors
/// When a record cannot be read, and what `out` returns.
pub fn lines(
    status: &Status,
    order: Option<&[Option<u64>]>,
    out: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<usize> {
    lines_of(status, None, order, out)
}

/// As [`lines`], with the name of the sweep.
///
/// # Errors
/// As [`lines`].
pub(crate) fn lines_of(
    status: &Status,
    sweep: Option<&str>,
    order: Option<&[Option<u64>]>,
    mut out: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<usize> {
    let all: HashMap<u64, usize> =
        status.rows.iter().enumerate().map(|(at, row)| (row.id, at)).collect();
    let every: Vec<Option<u64>>;
    let order = match order {
        Some(order) => order,
        None => {
            every = status.rows.iter().map(|row| Some(row.id)).collect();
            &every
        }
    };
    let line = |trial: &Option<u64>| -> Result<Vec<u8>> {
        let at = trial.and_then(|trial| all.get(&trial));
        let mut line = Vec::with_capacity(256);
        match at.map(|at| (&status.rows[*at], &status.standings[*at])) {
            Some((row, standing)) => {
                let record = status.records.get(&row.id);
                serde_json::to_writer(&mut line, &whole(status, sweep, row, standing, record)?)?;
            }
            None => line.extend(b"null"),
        }
        line.write_all(b"\n")?;
        Ok(line)
    };
    for part in order.chunks(ABREAST) {
        let lines: Result<Vec<Vec<u8>>> =
            threads::in_parallel(|| part.par_iter().map(line).collect());
        lines?.iter().try_for_each(|line| out(line))?;
    }
    Ok(order.len())
}

fn whole<'a>(
    status: &'a Status,
    sweep: Option<&'a str>,
    row: &'a Row,
    standing: &'a Standing,
    record: Option<&'a Record>,
) -> Result<Whole<'a>> {
    let tree = &status.tree;
    let attempt = record.and_then(Record::decisive);
    let end = attempt.and_then(|a| a.end.as_ref());
    let bad = attempt.filter(|_| standing.state.is_bad());
    let stopped = attempt.and_then(|a| a.stopped.as_ref()).map(|(_, reason)| reason.as_str());
    let skipped = record.and_then(|record| record.skipped.as_deref());
    // The scheduler may know trials without a record.
    let told = (standing.state.is_bad() && end.is_none()).then_some(standing.reason.as_str());
    let metrics = record.map(|record| super::metrics(tree, record, 1, &[])).transpose()?;
    Ok(Whole {
        sweep,
        trial: row.id,
        state: standing.state.word(),
        task_id: &row.task_id,
        link: row.link,
        function: status.function(row.id),
        params: &row.params,
        code: attempt
            .and_then(|a| a.start.snapshot.as_ref())
            .map(|name| status.code.code_of(row.id, name)),
        attempt: attempt.map(|a| a.start.attempt),
        attempts: record.map_or(0, Record::begun),
        host: attempt.map(|a| a.start.host.as_str()),
        start: attempt.map(|a| a.start.time),
        duration_s: record.and_then(super::duration_s),
        last_duration_s: attempt.and_then(Attempt::duration_s),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal),
        cause: standing.cause,
        reason: end.and_then(|end| end.reason.as_deref()).or(stopped).or(skipped).or(told),
        result: end.and_then(|end| end.result.as_ref()),
        peak_memory: end.map(|end| end.peak_memory).filter(|bytes| *bytes > 0),
        usage: end.and_then(|end| end.usage.as_deref()),
        metrics: metrics.unwrap_or_default().0.into_iter().collect(),
        unread_lines: record.map_or(0, Record::unread),
        output: bad.and_then(|attempt| output(tree, row.id, attempt)),
    })
}

/// The end of what an attempt has printed.
fn output(tree: &Tree, trial: u64, attempt: &Attempt) -> Option<String> {
    let bytes = match &attempt.bundle {
        Some(place) => {
            let (from, len) = place.log?;
            let path = tree.agent_file(&place.agent, &format!("{}.log", place.slot));
            let tail = len.min(TAIL);
            disk::read_log_at(&path, from + len - tail, tail).ok()?
        }
        None => disk::read_end(&tree.log(trial, attempt.run), TAIL).ok()?,
    };
    // A character that was cut in two is left out.
    let cut = bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
    Some(String::from_utf8_lossy(&bytes[cut..]).into_owned())
}
