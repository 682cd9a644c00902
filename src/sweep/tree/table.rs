//! The table of trials: written once by each submission that adds trials, read by offset.
//!
//! A table is named by its first trial: `trials/000000000000.{json,jsonl,idx,keys}`. The `.json` is
//! what all its trials share and is written last: it commits the table. The `.jsonl` has one sealed line a
//! trial, the `.idx` the offset of each line (see [`super::numbers`]), the `.keys` the key of each trial as 32
//! hexadecimal digits. Finding one trial costs one listing of a short folder and three small reads.

use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::key::Key;
use super::{Tree, document, line, numbers, write_document};
use crate::base::fault::Fault;
use crate::base::host::gpus::DeviceId;
use crate::base::host::{disk, threads};
use crate::plan::{GpuIds, MAX_TRIALS, Params, Resources, Run};

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
    /// `[sweep] seed` of the plan.
    pub seed: i64,
    /// `[run]` of the plan, expressions not filled in.
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
    /// CRC-32 of the whole `.keys` file, set when the table is written; absent in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_crc: Option<u32>,
    /// CRC-32 of the plan that added the trials, as it was stored; absent in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_crc: Option<u32>,
}

impl Head {
    /// What one of its trials asks for.
    pub(crate) fn asks<'r>(&'r self, row: &'r Row) -> &'r Resources {
        row.resources.as_deref().unwrap_or(&self.resources)
    }
}

/// One trial of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Line")]
pub struct Row {
    /// Number of the trial in the sweep, from 0.
    pub id: u64,
    /// Number of its chain, from 0.
    pub chain: u64,
    /// Place in the chain, from 0.
    pub link: u64,
    /// The trial before it in its chain.
    pub after: Option<u64>,
    what: Option<Box<What>>,
}

/// What a trial runs.
#[derive(Debug, Clone)]
pub struct What {
    /// The chain's name in the plan: an integer or a string.
    pub task_id: Option<serde_json::Value>,
    /// Hash of what it runs.
    pub key: String,
    /// Physical devices, if the plan names them.
    pub gpu_ids_abs: Option<Vec<DeviceId>>,
    /// Its parameters with their values, those of axes and defaults included.
    pub params: Params,
    /// Its request, where it differs from the table's.
    pub resources: Option<Box<Resources>>,
}

/// A row as it is read.
#[derive(Deserialize)]
struct Line {
    id: u64,
    chain: u64,
    link: u64,
    after: Option<u64>,
    task_id: Option<serde_json::Value>,
    key: String,
    gpu_ids_abs: Option<Vec<DeviceId>>,
    params: Params,
    resources: Option<Box<Resources>>,
}

/// How the trial of a row follows others.
#[derive(Deserialize)]
struct Order {
    id: u64,
    chain: u64,
    link: u64,
    after: Option<u64>,
}

/// The same with its request.
#[derive(Deserialize)]
struct Asked {
    id: u64,
    chain: u64,
    link: u64,
    after: Option<u64>,
    resources: Option<Box<Resources>>,
}

impl From<Order> for Row {
    fn from(Order { id, chain, link, after }: Order) -> Self {
        Self { id, chain, link, after, what: None }
    }
}

impl From<Line> for Row {
    fn from(line: Line) -> Self {
        let Line { id, chain, link, after, task_id, key, gpu_ids_abs, params, resources } = line;
        let what = What { task_id, key, gpu_ids_abs, params, resources };
        Self { id, chain, link, after, what: Some(Box::new(what)) }
    }
}

impl Deref for Row {
    type Target = What;

    fn deref(&self) -> &What {
        static NOTHING: LazyLock<What> = LazyLock::new(What::nothing);
        self.what.as_deref().unwrap_or_else(|| &NOTHING)
    }
}

impl DerefMut for Row {
    fn deref_mut(&mut self) -> &mut What {
        self.what.get_or_insert_with(|| Box::new(What::nothing()))
    }
}

impl What {
    fn nothing() -> Self {
        Self {
            task_id: None,
            key: String::new(),
            gpu_ids_abs: None,
            params: Params::new(Arc::default(), Box::default()),
            resources: None,
        }
    }
}

impl Row {
    /// Whether only its order was read, not what it runs.
    pub(crate) fn is_bare(&self) -> bool {
        self.what.is_none()
    }

    /// A trial of which only the number can be read.
    pub(crate) fn unknown(id: u64) -> Self {
        Self { id, chain: id, link: 0, after: None, what: None }
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

/// Where a trial is among rows in the order of trials: at its number, unless rows are missing.
pub(crate) fn place_of(rows: &[Row], trial: u64) -> Option<usize> {
    let guess =
        usize::try_from(trial).ok().filter(|at| rows.get(*at).is_some_and(|r| r.id == trial));
    guess.or_else(|| rows.binary_search_by_key(&trial, |row| row.id).ok())
}

/// The row of a trial among rows in the order of trials.
pub(crate) fn row_of(rows: &[Row], trial: u64) -> Option<&Row> {
    place_of(rows, trial).map(|at| &rows[at])
}

/// A row as it is written: borrows what the plan holds.
#[derive(Debug, Serialize)]
pub struct RowOut<'a> {
    /// Number of the trial in the sweep, from 0.
    pub id: u64,
    /// Number of its chain, from 0.
    pub chain: u64,
    /// Place in the chain, from 0.
    pub link: u64,
    /// The trial before it in its chain; `None` for the first.
    pub after: Option<u64>,
    /// The chain's name in the plan: an integer or a string; `None` without one.
    pub task_id: Option<serde_json::Value>,
    /// Hash of what it runs.
    pub key: &'a str,
    /// Physical devices, if the plan names them.
    pub gpu_ids_abs: Option<&'a [DeviceId]>,
    /// Its parameters with their values.
    pub params: &'a Params,
    /// Its request; `None` if it is that of the table's head.
    pub resources: Option<&'a Resources>,
}

fn file(tree: &Tree, first: u64, ending: &str) -> PathBuf {
    tree.dir().join(format!("trials/{first:012}.{ending}"))
}

/// Writes a table; the head last, which makes it part of the sweep.
///
/// # Errors
/// When the disk refuses. The files written so far are not part of the sweep, and are written again.
pub fn write<'a>(tree: &Tree, head: &Head, rows: impl Iterator<Item = RowOut<'a>>) -> Result<()> {
    disk::make_dir(&tree.dir().join("trials"))?;
    let mut offsets = Vec::with_capacity(head.count as usize);
    let mut keys = Vec::with_capacity((head.count * KEY) as usize);
    disk::write_whole_with(&file(tree, head.first, "jsonl"), |out| {
        let mut offset = 0u64;
        for row in rows {
            offsets.push(offset);
            writeln!(keys, "{}", row.key)?;
            let line = line::seal(&row)?;
            offset += line.len() as u64;
            out.write_all(&line)?;
        }
        Ok(())
    })?;
    numbers::write(&file(tree, head.first, "idx"), offsets.into_iter())?;
    disk::write_whole(&file(tree, head.first, "keys"), &keys)?;
    let head = Head { keys_crc: Some(crc32fast::hash(&keys)), ..head.clone() };
    tree.forget();
    write_document(&file(tree, head.first, "json"), &head)
}

/// Trials of a table run in another folder from now on.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn move_to(tree: &Tree, head: Head, workdir: PathBuf) -> Result<()> {
    tree.forget();
    write_document(&file(tree, head.first, "json"), &Head { workdir, ..head })
}

/// Copies the tables of another sweep with the plans that added them; `change` is given each head before it is written.
///
/// # Errors
/// When a file cannot be read, a head is damaged, or the disk refuses.
pub(crate) fn adopt(
    tree: &Tree,
    from: &Tree,
    mut change: impl FnMut(&mut Head) -> Result<()>,
) -> Result<()> {
    disk::make_dir(&tree.dir().join("trials"))?;
    disk::make_dir(&tree.dir().join("plans"))?;
    for mut head in heads(from)? {
        for ending in ["jsonl", "idx", "keys"] {
            let bytes = disk::read_bytes(&file(from, head.first, ending))?;
            disk::write_whole(&file(tree, head.first, ending), &bytes)?;
        }
        let plan = disk::read_bytes_if_there(&from.plan_of(head.first))?;
        disk::write_whole(&tree.plan_of(head.first), &plan)?;
        change(&mut head)?;
        write_document(&file(tree, head.first, "json"), &head)?;
    }
    Ok(())
}

/// The first trials of all tables, in order.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn firsts(tree: &Tree) -> Result<Vec<u64>> {
    let names = disk::list(&tree.dir().join("trials"))?;
    let of = |ending: &str| -> Vec<u64> {
        names.iter().filter_map(|name| name.strip_suffix(ending)?.parse().ok()).collect()
    };
    let mut all = of(".json");
    // A submission that was killed has left rows without a head. If trials of theirs have begun, the head was lost.
    for first in of(".jsonl") {
        if !all.contains(&first) && has_begun(tree, first)? {
            all.push(first);
        }
    }
    all.sort_unstable();
    Ok(all)
}

/// Whether anything is recorded of trials from this one on, as far as a few looks tell.
fn has_begun(tree: &Tree, first: u64) -> Result<bool> {
    let has_any = |name: &str| anyhow::Ok(!disk::list(&tree.dir().join(name))?.is_empty());
    if first == 0 {
        return Ok(has_any("waves")? || has_any("agents")? || has_any("records")?);
    }
    let record = tree.record(first, 1);
    let names = record.parent().map(disk::list).transpose()?.unwrap_or_default();
    let trial = |name: &String| name.split('.').next()?.parse::<u64>().ok();
    Ok(names.iter().filter_map(trial).any(|trial| trial >= first))
}

/// The first trials of tables that have been lost: each follows on the one before it, and the last one has the trial that
/// others `know`, the one with the highest number.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn missing(tree: &Tree, known: Option<u64>) -> Result<Vec<u64>> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    for first in firsts(tree)? {
        all.extend(next.filter(|next| *next < first));
        // A head that is damaged does not say where its table ends.
        next = head(tree, first).ok().map(|head| head.first + head.count);
    }
    all.extend(next.filter(|next| known.is_some_and(|known| known >= *next)));
    Ok(all)
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
    let kept = tree.memo.as_ref().and_then(|memo| memo.get(&path));
    let bytes = kept.map_or_else(|| disk::read_small(&path).map(Arc::from), Ok)?;
    let head: Head = document(&bytes, &path)?;
    let is_sound = head.first == first && first < numbers::END && head.count <= MAX_TRIALS;
    if !is_sound {
        return Err(numbers::damaged(&path).into());
    }
    tree.memo.iter().for_each(|memo| memo.keep(&path, &bytes));
    Ok(head)
}

/// The row of a line; `None` if it is damaged.
fn row(format: u32, line: &[u8]) -> Option<Row> {
    if format == 1 { serde_json::from_slice(line).ok() } else { line::unseal(line) }
}

/// As [`row`]; it knows only how trials follow each other. The seal of a line says that the rest of it is whole, too.
fn order(format: u32, line: &[u8]) -> Option<Row> {
    match format {
        1 => row(format, line).map(|row| Row { what: None, ..row }),
        _ if !line::is_sealed(line) => None,
        _ => {
            // It stands first, before what takes most of the line.
            let end = place_in(line, TASK);
            let first = end.map(|end| [&line[..end], b"}"].concat());
            let order = first.and_then(|first| serde_json::from_slice::<Order>(&first).ok());
            order.or_else(|| serde_json::from_slice(line).ok()).map(Row::from)
        }
    }
}

/// What follows the members of [`Order`] in a line.
const TASK: &[u8] = b",\"task_id\":";

/// As [`order`]; it has a request of its own, too.
fn request(format: u32, line: &[u8]) -> Option<Row> {
    match format {
        1 => row(format, line),
        _ => {
            let Asked { id, chain, link, after, resources } = line::unseal(line)?;
            let what = resources.map(|own| What { resources: Some(own), ..What::nothing() });
            Some(Row { id, chain, link, after, what: what.map(Box::new) })
        }
    }
}

/// The fault of a number that is no trial of a sweep; `end` is the one after its last trial.
pub(crate) fn no_trial(tree: &Tree, id: u64, end: u64) -> Fault {
    let lists = format!("`hpcsweep status --trials {}` lists", tree.named());
    let hint = match end {
        0 => format!("{lists} the trials"),
        1 => format!("its only trial is 0: {lists} it"),
        _ => format!("its trials are 0-{}: {lists} them", end - 1),
    };
    Fault::request(format!("sweep `{}` has no trial {id}", tree.dir().display())).hint(hint)
}

/// One trial with the head of its table: a constant number of small reads.
///
/// # Errors
/// When the sweep has no such trial, or a file is damaged.
pub fn find(tree: &Tree, id: u64) -> Result<(Head, Row)> {
    let Some(first) = firsts(tree)?.into_iter().rfind(|&f| f <= id) else {
        Tree::open(tree.dir())?;
        return Err(no_trial(tree, id, 0).into());
    };
    let head = head(tree, first)?;
    if id - first >= head.count {
        return Err(no_trial(tree, id, first + head.count).into());
    }
    let mut found = Vec::new();
    read_run(tree, &head, id, 1, &mut found)?;
    Ok((head, found.swap_remove(0)))
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
    let place = from - head.first;
    let is_last = place + n >= head.count;
    let offsets = numbers::exactly(&index, place, if is_last { n } else { n + 1 })?;
    let start = offsets.first().copied().unwrap_or(0);
    let damaged = || numbers::damaged(&index);
    let len = match offsets.last() {
        Some(end) if !is_last => end.checked_sub(start).ok_or_else(damaged)?,
        _ => 1 << 40,
    };
    let path = file(tree, head.first, "jsonl");
    let bytes = disk::read_lines_at(&path, start, len, n)?;
    let lines = bytes.split(|&b| b == b'\n').take(n as usize);
    let before = all.len();
    all.extend(lines.map_while(|line| row(head.format, line)));
    let found = &all[before..];
    let is_whole = found.len() as u64 == n && found.iter().zip(from..).all(|(r, id)| r.id == id);
    if is_whole { Ok(()) } else { Err(numbers::damaged(&path).into()) }
}

/// Hands over all trials of a sweep, in order, a few in memory at a time.
///
/// # Errors
/// When a table cannot be read or is damaged.
pub(crate) fn each(tree: &Tree, mut with: impl FnMut(Row)) -> Result<()> {
    for head in heads(tree)? {
        let (mut next, mut is_whole) = (head.first, true);
        let keys = KeysOfTable::read(tree, &head)?;
        each_line(tree, &head, keys.as_ref(), &self::row, |row| {
            match row.filter(|row| row.id == next) {
                Some(row) => {
                    next += 1;
                    with(row);
                }
                None => is_whole = false,
            }
        })?;
        if !is_whole || next != head.first + head.count {
            return Err(numbers::damaged(&file(tree, head.first, "jsonl")).into());
        }
    }
    Ok(())
}

/// All trials of a sweep, in order.
///
/// # Errors
/// As [`each`].
pub fn rows(tree: &Tree) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    each(tree, |row| all.push(row))?;
    Ok(all)
}

/// Bytes of a table that are read at once: its lines are read as many at a time as there are threads.
const PIECE: usize = 8 << 20;

/// What makes the row of a line in a table of a format; `None` if the line is damaged.
type OfLine<'a> = &'a (dyn Fn(u32, &[u8]) -> Option<Row> + Sync);

/// Hands over the lines of a table with these keys, if they can be believed; `None` for each line that is damaged. Returns how
/// many there are; none if there is no file.
fn each_line(
    tree: &Tree,
    head: &Head,
    keys: Option<&KeysOfTable>,
    row: OfLine<'_>,
    mut with: impl FnMut(Option<Row>),
) -> Result<u64> {
    use rayon::prelude::*;
    let path = file(tree, head.first, "jsonl");
    let fault = |e| disk::fault("read", &path, &e);
    let opened = match &tree.memo {
        Some(memo) => memo.open(&path),
        None => disk::open_whole(&path, u64::MAX).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut table = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened.map_err(fault)?,
    };
    let keys = keys.filter(|_| head.format > 1);
    let is_its = |row: &Row, line: &[u8]| keys.is_none_or(|keys| keys.has(row, line));
    let row = |line: &[u8]| row(head.format, line).filter(|row| is_its(row, line));
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut names: Arc<[Arc<str>]> = Arc::default();
    loop {
        let had = bytes.len();
        let read = (&mut table).take(PIECE as u64).read_to_end(&mut bytes).map_err(fault)?;
        let end = bytes[had..].iter().rposition(|&b| b == b'\n').map_or(0, |at| had + at + 1);
        let end = if read < PIECE { bytes.len() } else { end };
        let whole = bytes[..end].strip_suffix(b"\n").unwrap_or(&bytes[..end]);
        if end > 0 {
            let lines = whole.par_split(|&b| b == b'\n');
            let rows: Vec<Option<Row>> = threads::in_parallel(|| lines.map(row).collect());
            count += rows.len() as u64;
            for mut row in rows {
                // Trials of one form share its names.
                if let Some(what) = row.as_mut().and_then(|row| row.what.as_mut()) {
                    if what.params.names == names {
                        what.params.names = Arc::clone(&names);
                    }
                    names = Arc::clone(&what.params.names);
                }
                with(row);
            }
            bytes.drain(..end);
        }
        if bytes.len() as u64 > line::most(&bytes) {
            with(None);
            return Ok(count + 1);
        }
        if read < PIECE {
            return Ok(count);
        }
    }
}

/// Adds the rows of a table. A damaged or missing row has only its number. Returns how many those are, including lines
/// without a trial.
fn add_rows(
    tree: &Tree,
    Table { head, keys }: &Table,
    all: &mut Vec<Row>,
    with: &mut dyn FnMut(usize, &Row),
    (row, keeps): (OfLine<'_>, bool),
) -> Result<u64> {
    // The numbers in an unsealed head need not fit into memory.
    let bytes = |ending| disk::stamp(&file(tree, head.first, ending));
    let listed = bytes("keys")?.map_or(0, |(len, _)| len / KEY);
    let most = bytes("jsonl")?.map_or(0, |(len, _)| len).max(listed).min(head.count);
    let from = all.len();
    all.extend((head.first..head.first + most).map(Row::unknown));
    let mut known = vec![false; usize::try_from(most)?];
    let mut foreign = 0;
    let lines = each_line(tree, head, keys.as_ref(), row, |row| {
        let Some(mut row) = row else { return };
        let place = row.id.checked_sub(head.first).and_then(|at| usize::try_from(at).ok());
        match place.filter(|at| known.get(*at) == Some(&false)) {
            Some(at) => {
                known[at] = true;
                with(from + at, &row);
                if !keeps {
                    row.what = None;
                }
                all[from + at] = row;
            }
            None => foreign += 1,
        }
    })?;
    let missing = head.count - known.iter().filter(|is_known| **is_known).count() as u64;
    // A flipped newline joins two lines, or makes two of one.
    let odd = lines.saturating_sub(head.count);
    Ok(missing.max(odd).max(foreign))
}

/// Says of which trials everything is kept.
pub(crate) type Which<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// All that can be read of the tables of a sweep.
#[derive(Debug, Default)]
pub struct Readable {
    /// Heads, in order, without those that are damaged.
    pub(crate) heads: Vec<Head>,
    /// Trials, in order; of a damaged line only the number is known.
    pub(crate) rows: Vec<Row>,
    /// The keys of the tables, without those of damaged ones.
    pub(crate) keys: Vec<KeysOfTable>,
}

/// Reads the tables as far as they can be believed, with every file of theirs.
///
/// # Errors
/// When a file cannot be read.
pub fn readable(tree: &Tree, damage: &mut Damage) -> Result<Readable> {
    read(tree, damage, &mut |_, _| {}, (&row, true))
}

/// As [`readable`]. The rows know only how trials follow each other, but for those of trials that are `whole`.
///
/// # Errors
/// As [`readable`].
pub(crate) fn in_order(tree: &Tree, damage: &mut Damage, whole: Which<'_>) -> Result<Readable> {
    let own = |format: u32, line: &[u8]| {
        let bare = order(format, line)?;
        if whole(bare.id) { row(format, line) } else { Some(bare) }
    };
    read(tree, damage, &mut |_, _| {}, (&own, true))
}

/// As [`readable`]. The rows know only how trials follow each other; `with` sees each whole row that was read, with its place.
///
/// # Errors
/// As [`readable`].
pub(crate) fn gathered(
    tree: &Tree,
    damage: &mut Damage,
    with: &mut dyn FnMut(usize, &Row),
) -> Result<Readable> {
    read(tree, damage, with, (&row, false))
}

/// As [`gathered`], where `with` sees of what a trial runs only a request of its own.
///
/// # Errors
/// As [`readable`].
pub(crate) fn asked(
    tree: &Tree,
    damage: &mut Damage,
    with: &mut dyn FnMut(usize, &Row),
) -> Result<Readable> {
    read(tree, damage, with, (&request, false))
}

fn read(
    tree: &Tree,
    damage: &mut Damage,
    with: &mut dyn FnMut(usize, &Row),
    keeps: (OfLine<'_>, bool),
) -> Result<Readable> {
    let mut all = Readable::default();
    for first in firsts(tree)? {
        let Some(table) = head_and_lists(tree, first, damage)? else { continue };
        let damaged = add_rows(tree, &table, &mut all.rows, with, keeps)?;
        damage.add(&format!("trials/{first:012}.jsonl"), damaged);
        all.heads.push(table.head);
        all.keys.extend(table.keys);
    }
    Ok(all)
}

/// Damage of the tables, found without reading what their rows say.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn damage(tree: &Tree, damage: &mut Damage) -> Result<()> {
    for first in firsts(tree)? {
        let Some(Table { head, .. }) = head_and_lists(tree, first, damage)? else { continue };
        let (mut good, mut bad) = (0, 0);
        let rows = disk::open(&file(tree, first, "jsonl"))?;
        let unended = line::each(rows, |_, line| {
            if head.format == 1 || line::is_sealed(line) { good += 1 } else { bad += 1 }
        });
        good += u64::from(unended? && head.format == 1);
        damage.add(&format!("trials/{first:012}.jsonl"), bad.max(head.count.abs_diff(good)));
    }
    for first in missing(tree, None)? {
        damage.add(&format!("trials/{first:012}.json"), 1);
    }
    Ok(())
}

/// A table without its rows.
struct Table {
    head: Head,
    /// Its keys; `None` if they are damaged.
    keys: Option<KeysOfTable>,
}

/// A table, where its head can be believed, with the damage of all its files but the rows.
fn head_and_lists(tree: &Tree, first: u64, damage: &mut Damage) -> Result<Option<Table>> {
    let name = |ending: &str| format!("trials/{first:012}.{ending}");
    let Ok(head) = head(tree, first) else {
        damage.add(&name("json"), 1);
        return Ok(None);
    };
    damage.add(&name("idx"), index_damage(tree, &head)?);
    let keys = KeysOfTable::read(tree, &head)?;
    damage.add(&name("keys"), u64::from(keys.is_none()));
    if let Some(crc) = head.plan_crc {
        let path = tree.plan_of(first);
        let is_large = disk::stamp(&path)?.is_some_and(|(bytes, _)| bytes > disk::SMALL);
        let plan = if is_large { None } else { disk::read_small_if_there(&path)? };
        let differs = is_large || crc32fast::hash(&plan.unwrap_or_default()) != crc;
        damage.add(&format!("plans/{first:012}.toml"), u64::from(differs));
    }
    Ok(Some(Table { head, keys }))
}

/// Adds the indices that say of lines of their tables that they begin elsewhere, as after a swap with another table's.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn misplaced(tree: &Tree, damage: &mut Damage) -> Result<()> {
    for first in firsts(tree)? {
        let Ok(head) = head(tree, first) else { continue };
        let path = file(tree, first, "jsonl");
        if disk::stamp(&path)?.is_none() {
            continue;
        }
        let (offsets, _) = numbers::all(&file(tree, first, "idx"), head.count)?;
        let (mut known, mut wrong) =
            (offsets.iter().filter(|at| **at != numbers::DAMAGED).peekable(), 0);
        line::each(disk::open(&path)?, |spot, _| {
            while known.next_if(|at| **at < spot.at).is_some() {
                wrong += 1;
            }
            known.next_if(|at| **at == spot.at);
        })
        .map_err(|e| disk::fault("read", &path, &e))?;
        damage.add(&format!("trials/{first:012}.idx"), wrong + known.count() as u64);
    }
    Ok(())
}

/// Lines of an index that are damaged or missing.
fn index_damage(tree: &Tree, head: &Head) -> Result<u64> {
    let offsets = numbers::all(&file(tree, head.first, "idx"), head.count)?;
    Ok(numbers::faulty(&offsets, head.count))
}

/// The file of the keys of a table, no further than a byte behind them; none if there is no file.
fn keys_of(tree: &Tree, head: &Head) -> Result<Arc<[u8]>> {
    let path = file(tree, head.first, "keys");
    if let Some(kept) = tree.memo.as_ref().and_then(|memo| memo.get(&path)) {
        return Ok(kept);
    }
    let most = head.count.saturating_mul(KEY).saturating_add(1);
    let keys = disk::read_start_if_there(&path, most)?;
    if are_keys(head, &keys) {
        tree.memo.iter().for_each(|memo| memo.keep(&path, &keys));
    }
    Ok(keys.into())
}

fn are_keys(head: &Head, keys: &[u8]) -> bool {
    let is_of_it = head.keys_crc.is_none_or(|crc| crc == crc32fast::hash(keys));
    is_of_it && keys.len() as u64 == head.count.saturating_mul(KEY)
}

/// The keys of all trials, in order.
///
/// # Errors
/// When a file cannot be read or is damaged.
pub fn keys(tree: &Tree) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for head in heads(tree)? {
        let path = file(tree, head.first, "keys");
        let lines = keys_of(tree, &head)?;
        let keys = std::str::from_utf8(&lines).unwrap_or_default();
        if !are_keys(&head, keys.as_bytes()) {
            return Err(numbers::damaged(&path).into());
        }
        all.extend(keys.split_terminator('\n').map(str::to_owned));
    }
    Ok(all)
}

/// The keys of a table, as far as records name them.
#[derive(Debug, Clone)]
pub(crate) struct KeysOfTable {
    pub(in crate::sweep::tree) first: u64,
    keys: Vec<Key>,
}

impl KeysOfTable {
    /// Those of a table; `None` if they are damaged.
    fn read(tree: &Tree, head: &Head) -> Result<Option<Self>> {
        let lines = keys_of(tree, head)?;
        if !are_keys(head, &lines) {
            return Ok(None);
        }
        let keys: Option<Vec<Key>> = lines.chunks(KEY as usize).map(Key::of_digits).collect();
        Ok(keys.map(|keys| Self { first: head.first, keys }))
    }

    /// That of a trial; `None` if the table does not have it.
    pub(in crate::sweep::tree) fn of(&self, trial: u64) -> Option<Key> {
        let place = usize::try_from(trial.checked_sub(self.first)?).ok()?;
        self.keys.get(place).copied()
    }

    /// Whether a row with this line is one of the table's: rows of another table may stand in its place.
    fn has(&self, row: &Row, line: &[u8]) -> bool {
        // Quotes within texts are escaped, and no other member of a row has the name.
        let read = row.what.as_ref().map(|what| what.key.as_bytes()).filter(|key| !key.is_empty());
        let key = read.or_else(|| place_in(line, NAME).map(|place| &line[place + NAME.len()..]));
        let key = key.and_then(Key::of_digits);
        key.is_some() && key == self.of(row.id)
    }
}

/// What precedes the key in the line of a row.
const NAME: &[u8] = b",\"key\":\"";

/// Where the name of a member with the comma before it begins in a line. The first letter of the name differs from most bytes.
fn place_in(line: &[u8], name: &[u8]) -> Option<usize> {
    let letter = name.get(2)?;
    line.windows(name.len()).position(|bytes| bytes[2] == *letter && bytes == name)
}

/// The keys of all tables, in order, without those of damaged ones.
///
/// # Errors
/// When a file cannot be read.
pub(in crate::sweep::tree) fn believed_keys(tree: &Tree) -> Result<Vec<KeysOfTable>> {
    let mut all = Vec::new();
    for first in firsts(tree)? {
        let Ok(head) = head(tree, first) else { continue };
        all.extend(KeysOfTable::read(tree, &head)?);
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

#[cfg(test)]
mod tests {
    use super::{Row, order, row};

    #[test]
    fn how_trials_follow_each_other_is_read_as_in_whole_rows() {
        let places = |row: Option<Row>| row.map(|row| (row.id, row.chain, row.link, row.after));
        let rest =
            r#""key":"00","gpu_ids_abs":null,"params":{"a":",\"task_id\":1"},"resources":null"#;
        for (text, expected) in [
            (r#"{"id":7,"chain":3,"link":1,"after":6,"task_id":"x","#, Some((7, 3, 1, Some(6)))),
            (r#"{"id":7,"chain":3,"link":0,"after":null,"task_id":null,"#, Some((7, 3, 0, None))),
            // As no version has written them.
            (r#"{"task_id":null,"id":7,"chain":3,"link":0,"#, Some((7, 3, 0, None))),
            (r#"{"id":7,"task_id":null,"chain":3,"link":0,"#, Some((7, 3, 0, None))),
            (r#"{"id":-7,"chain":3,"link":0,"after":null,"task_id":null,"#, None),
            (r#"{"chain":3,"link":0,"after":null,"task_id":null,"#, None),
        ] {
            let object = format!("{text}{rest}}}");
            let body = object.strip_suffix('}').unwrap();
            let mut sealed =
                format!("{body},\"crc\":\"{:08x}\"}}", crc32fast::hash(body.as_bytes()))
                    .into_bytes();
            assert_eq!(places(order(2, &sealed)), expected, "{object}");
            assert_eq!(places(row(2, &sealed)), expected, "{object}");
            sealed[8] ^= 1;
            assert_eq!(places(order(2, &sealed)), None, "{object}");
        }
    }
}
