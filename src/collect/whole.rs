//! What is recorded of each trial as one JSON object: for programs, which want parameters and results whole
//! rather than in columns.

use std::io::Write;

use anyhow::Result;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value};

use super::read::read;
use crate::host::disk;
use crate::standing::Standing;
use crate::tree::records::{Attempt, Record};
use crate::tree::table::Row;
use crate::tree::{Tree, bundle};

/// Bytes of the end of a log that are shown of a trial without success.
const TAIL: u64 = 8 << 10;

/// A trial.
#[derive(Serialize)]
struct Whole<'a> {
    trial: u64,
    state: String,
    task_id: &'a Option<Value>,
    link: u64,
    params: &'a Value,
    /// Which attempt counts, and how many there were.
    attempt: Option<u32>,
    attempts: usize,
    host: Option<&'a str>,
    /// When it began, unix seconds.
    start: Option<f64>,
    duration_s: Option<f64>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Why it did not end well, in words.
    reason: Option<&'a str>,
    result: Option<&'a Value>,
    /// As in the columns of the table.
    metrics: Map<String, Value>,
    /// The end of what it printed, if it did not end well.
    output: Option<String>,
}

/// The trials of a sweep as JSON lines: all of them, or those of `order`, in that order; a trial that the sweep
/// does not have is `null`.
///
/// # Errors
/// When the tree cannot be read.
pub fn lines(tree: &Tree, order: Option<&[Option<u64>]>) -> Result<Vec<u8>> {
    let all = read(tree)?;
    let every: Vec<Option<u64>>;
    let order = match order {
        Some(order) => order,
        None => {
            every = all.rows.iter().map(|row| Some(row.id)).collect();
            &every
        }
    };
    let parts: Vec<Result<Vec<u8>>> = order
        .par_chunks(1024)
        .map(|part| {
            let mut out = Vec::with_capacity(part.len() * 256);
            for trial in part {
                // Trials are numbered from 0 without gaps.
                let at = trial.and_then(|trial| usize::try_from(trial).ok());
                match at.and_then(|at| Some((all.rows.get(at)?, all.standings.get(at)?))) {
                    Some((row, standing)) => {
                        let record = all.records.get(&row.id);
                        serde_json::to_writer(&mut out, &whole(tree, row, standing, record))?;
                    }
                    None => out.extend(b"null"),
                }
                out.write_all(b"\n")?;
            }
            Ok(out)
        })
        .collect();
    let mut out = Vec::new();
    for part in parts {
        out.append(&mut part?);
    }
    Ok(out)
}

fn whole<'a>(
    tree: &Tree,
    row: &'a Row,
    standing: &Standing,
    record: Option<&'a Record>,
) -> Whole<'a> {
    let attempt = record.and_then(Record::decisive);
    let end = attempt.and_then(|a| a.end.as_ref());
    let bad = attempt.filter(|_| standing.state.is_bad());
    let stopped = attempt.and_then(|a| a.stopped.as_ref()).map(|(_, reason)| reason.as_str());
    let skipped = record.and_then(|record| record.skipped.as_deref());
    Whole {
        trial: row.id,
        state: standing.state.word(),
        task_id: &row.task_id,
        link: row.link,
        params: &row.params,
        attempt: attempt.map(|a| a.start.attempt),
        attempts: record.map_or(0, Record::begun),
        host: attempt.map(|a| a.start.host.as_str()),
        start: attempt.map(|a| a.start.time),
        duration_s: end.map(|end| end.duration_s),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal),
        reason: end.and_then(|end| end.reason.as_deref()).or(stopped).or(skipped),
        result: end.and_then(|end| end.result.as_ref()),
        metrics: attempt.map(super::metrics).unwrap_or_default().into_iter().collect(),
        output: bad.and_then(|attempt| output(tree, row.id, attempt)),
    }
}

/// The end of what an attempt has printed.
fn output(tree: &Tree, trial: u64, attempt: &Attempt) -> Option<String> {
    let bytes = match &attempt.bundle {
        Some(place) => {
            let (from, len) = place.log?;
            let path = bundle::path(tree, &place.agent, &format!("{}.log", place.slot));
            let tail = len.min(TAIL);
            disk::read_at(&path, from + len - tail, tail).ok()?
        }
        None => disk::read_end(&tree.log(trial, attempt.run), TAIL).ok()?,
    };
    // A character that was cut in two is left out.
    let cut = bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
    Some(String::from_utf8_lossy(&bytes[cut..]).into_owned())
}
