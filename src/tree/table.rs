//! The table of trials: written once by each submission that brings new trials, read by offset.
//!
//! A table is named by its first trial: `trials/000000000000.{json,jsonl,idx,keys}`. The `.json` is
//! what all its trials share and is written last: it commits the table. The `.jsonl` has one line a
//! trial, the `.idx` the offset of each line as twelve digits, the `.keys` the key of each trial as 32
//! hexadecimal digits. Finding one trial costs one listing of a short folder and three small reads.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Tree, parse_json, to_json_line};
use crate::fault::Fault;
use crate::host::disk;
use crate::plan::{GpuIds, Params, Resources, Run};

/// Bytes of one entry of an `.idx` file: twelve digits and a newline.
const OFFSET: u64 = 13;
/// Bytes of one entry of a `.keys` file: 32 digits and a newline.
const KEY: u64 = 33;

/// What all trials of one table share: the head of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// Format of the tree.
    pub format: u32,
    /// Number of the first trial.
    pub first: u64,
    /// How many trials the table has.
    pub count: u64,
    /// Name of the sweep.
    pub sweep: String,
    /// `[sweep] seed`.
    pub seed: i64,
    /// `[run]` as written.
    pub run: Run,
    /// Where commands run, absolute.
    pub workdir: PathBuf,
    /// Modules of the site profile, loaded before those of the plan.
    pub site_modules: Vec<String>,
    /// The request of a trial whose line has no `resources` of its own.
    pub resources: Resources,
    /// How `gpu_ids_abs` is read inside an allocation.
    pub gpu_ids: GpuIds,
    /// The shell and the script that prepare the environment; absent when there is nothing to prepare.
    pub setup: Option<(PathBuf, PathBuf)>,
}

/// One trial of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Number of the trial in the sweep, from 0.
    pub id: u64,
    /// Number of its chain, from 0.
    pub chain: u64,
    /// Place in the chain, from 0.
    pub link: u64,
    /// The trial before it in its chain.
    pub after: Option<u64>,
    /// The chain's name in the plan: an integer or a string.
    pub task_id: Option<serde_json::Value>,
    /// Hash of what it runs.
    pub key: String,
    /// Physical devices, if the plan names them.
    pub gpu_ids_abs: Option<Vec<u32>>,
    /// Its parameters, nested.
    pub params: serde_json::Value,
    /// Its request, where it differs from the table's.
    pub resources: Option<Resources>,
}

impl Row {
    /// The parameters with dotted names.
    pub fn parameters(&self) -> Params {
        Params::from_json(&self.params)
    }

    /// The task id as text; empty without one.
    pub fn task_text(&self) -> String {
        match &self.task_id {
            None => String::new(),
            Some(serde_json::Value::String(s)) => s.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// A row as it is written: borrows what the plan holds.
#[derive(Debug, Serialize)]
pub struct RowOut<'a> {
    /// See [`Row::id`].
    pub id: u64,
    /// See [`Row::chain`].
    pub chain: u64,
    /// See [`Row::link`].
    pub link: u64,
    /// See [`Row::after`].
    pub after: Option<u64>,
    /// See [`Row::task_id`].
    pub task_id: Option<serde_json::Value>,
    /// See [`Row::key`].
    pub key: &'a str,
    /// See [`Row::gpu_ids_abs`].
    pub gpu_ids_abs: Option<&'a [u32]>,
    /// See [`Row::params`].
    pub params: &'a Params,
    /// See [`Row::resources`].
    pub resources: Option<&'a Resources>,
}

fn file(tree: &Tree, first: u64, ending: &str) -> PathBuf {
    tree.dir().join(format!("trials/{first:012}.{ending}"))
}

/// Writes a table; the head last, which makes it part of the sweep.
///
/// # Errors
/// When the disk refuses; what was written then is no part of the sweep and is written again.
pub fn write<'a>(tree: &Tree, head: &Head, rows: impl Iterator<Item = RowOut<'a>>) -> Result<()> {
    disk::make_dir(&tree.dir().join("trials"))?;
    let mut offsets = Vec::with_capacity((head.count * OFFSET) as usize);
    let mut keys = Vec::with_capacity((head.count * KEY) as usize);
    disk::write_whole_with(&file(tree, head.first, "jsonl"), |out| {
        let mut offset = 0u64;
        let mut line = Vec::with_capacity(512);
        for row in rows {
            writeln!(offsets, "{offset:012}")?;
            writeln!(keys, "{}", row.key)?;
            line.clear();
            serde_json::to_writer(&mut line, &row)?;
            line.push(b'\n');
            offset += line.len() as u64;
            out.write_all(&line)?;
        }
        Ok(())
    })?;
    disk::write_whole(&file(tree, head.first, "idx"), &offsets)?;
    disk::write_whole(&file(tree, head.first, "keys"), &keys)?;
    disk::write_whole(&file(tree, head.first, "json"), &to_json_line(head)?)
}

/// The first trials of all tables, in order.
///
/// # Errors
/// When the folder cannot be listed.
pub fn firsts(tree: &Tree) -> Result<Vec<u64>> {
    let names = disk::list(&tree.dir().join("trials"))?;
    Ok(names.iter().filter_map(|n| n.strip_suffix(".json")?.parse().ok()).collect())
}

/// The heads of all tables, in order.
///
/// # Errors
/// When one cannot be read.
pub fn heads(tree: &Tree) -> Result<Vec<Head>> {
    firsts(tree)?.into_iter().map(|first| head(tree, first)).collect()
}

fn head(tree: &Tree, first: u64) -> Result<Head> {
    let path = file(tree, first, "json");
    parse_json(&disk::read(&path)?, &path)
}

/// One trial with the head of its table: a constant number of small reads.
///
/// # Errors
/// When the sweep has no such trial, or a file is damaged.
pub fn find(tree: &Tree, id: u64) -> Result<(Head, Row)> {
    let missing = || {
        Fault::request(format!("sweep `{}` has no trial {id}", tree.dir().display()))
            .hint("`hpcsweep status` lists the trials")
    };
    let Some(first) = firsts(tree)?.into_iter().rfind(|&f| f <= id) else {
        Tree::open(tree.dir())?;
        return Err(missing().into());
    };
    let head = head(tree, first)?;
    if id - first >= head.count {
        return Err(missing().into());
    }
    let index = file(tree, first, "idx");
    let entries = disk::read_at(&index, (id - first) * OFFSET, 2 * OFFSET)?;
    let mut offsets = entries.chunks(OFFSET as usize).map(|entry| {
        std::str::from_utf8(entry).ok().and_then(|digits| digits.trim_end().parse::<u64>().ok())
    });
    let damaged = || Fault::machine(format!("`{}` is damaged", index.display()));
    let from = offsets.next().flatten().ok_or_else(damaged)?;
    let rows = file(tree, first, "jsonl");
    let len = match offsets.next().flatten() {
        Some(next) => next.checked_sub(from).ok_or_else(damaged)?,
        None => 1 << 30,
    };
    let line = disk::read_at(&rows, from, len)?;
    let row: Row = parse_json(&String::from_utf8_lossy(&line), &rows)?;
    if row.id != id {
        return Err(damaged().into());
    }
    Ok((head, row))
}

/// Some trials, in the order of `ids`: a few small reads for each run of neighbours.
///
/// # Errors
/// When there is no such trial, or a file is damaged.
pub fn some(tree: &Tree, heads: &[Head], ids: &[u64]) -> Result<Vec<Row>> {
    let mut all = Vec::with_capacity(ids.len());
    let mut rest = ids;
    while let Some(&from) = rest.first() {
        let missing = || Fault::machine(format!("`{}` has no trial {from}", tree.dir().display()));
        let head = heads.iter().rfind(|head| head.first <= from).ok_or_else(missing)?;
        let end = head.first + head.count;
        if from >= end {
            return Err(missing().into());
        }
        let next = |(i, id): (usize, &u64)| *id == from + i as u64 && *id < end;
        let n = rest.iter().enumerate().take_while(|&(i, id)| next((i, id))).count();
        read_run(tree, head, from, n as u64, &mut all)?;
        rest = &rest[n..];
    }
    Ok(all)
}

fn read_run(tree: &Tree, head: &Head, from: u64, n: u64, all: &mut Vec<Row>) -> Result<()> {
    let index = file(tree, head.first, "idx");
    let damaged = || Fault::machine(format!("`{}` is damaged", index.display()));
    let offset_at = |at: u64| -> Result<u64> {
        let entry = disk::read_at(&index, at * OFFSET, OFFSET)?;
        let digits = std::str::from_utf8(&entry).ok().map(str::trim_end);
        digits.and_then(|d| d.parse().ok()).ok_or_else(|| damaged().into())
    };
    let start = offset_at(from - head.first)?;
    let after = from - head.first + n;
    let len = if after < head.count {
        offset_at(after)?.checked_sub(start).ok_or_else(damaged)?
    } else {
        1 << 40
    };
    let rows = file(tree, head.first, "jsonl");
    let bytes = disk::read_at(&rows, start, len)?;
    let text = String::from_utf8_lossy(&bytes);
    let before = all.len();
    for line in text.lines().take(n as usize) {
        all.push(parse_json(line, &rows)?);
    }
    let found = &all[before..];
    let is_whole = found.len() as u64 == n && found.iter().zip(from..).all(|(r, id)| r.id == id);
    if is_whole { Ok(()) } else { Err(damaged().into()) }
}

/// All trials of a sweep, in order.
///
/// # Errors
/// When a table cannot be read or is damaged.
pub fn rows(tree: &Tree) -> Result<Vec<Row>> {
    use rayon::prelude::*;
    let mut all = Vec::new();
    for first in firsts(tree)? {
        let path = file(tree, first, "jsonl");
        let text = disk::read(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        let rows: Result<Vec<Row>> = lines.par_iter().map(|line| parse_json(line, &path)).collect();
        all.extend(rows?);
    }
    Ok(all)
}

/// The keys of all trials, in order.
///
/// # Errors
/// When a file cannot be read.
pub fn keys(tree: &Tree) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for first in firsts(tree)? {
        all.extend(disk::read(&file(tree, first, "keys"))?.lines().map(str::to_owned));
    }
    Ok(all)
}

/// How many trials the sweep has.
///
/// # Errors
/// When the last head cannot be read.
pub fn count(tree: &Tree) -> Result<u64> {
    match firsts(tree)?.last() {
        Some(&first) => head(tree, first).map(|h| h.first + h.count),
        None => Ok(0),
    }
}
