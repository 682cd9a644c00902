//! Learning curves, parameters and final metrics as event files of TensorBoard: TFRecords of the protocol buffers `Event`, and
//! those of its plugin HParams. The few messages are written by hand: a schema compiler would be larger than they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{curve, leaves};
use crate::base::fault::Fault;
use crate::base::host::{disk, named};
use crate::plan::value::json_float;
use crate::sweep::standing::{Standing, State};
use crate::sweep::status::Status;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::table::Row;

/// The name of each event file. TensorBoard reads every file that has `tfevents` in its name.
const EVENTS: &str = "events.out.tfevents.0.hpcsweep";

/// The list of what an earlier call has written into a folder.
const LIST: &str = "hpcsweep-runs.json";

/// Values of a parameter that are listed; a range stands for more numbers.
const MOST_VALUES: usize = 50;

/// Writes a run for each trial that has begun into a folder, in place of those of an earlier call. Returns how many.
///
/// # Errors
/// When a record cannot be read, or the folder cannot be written.
pub(crate) fn write(sweeps: &[Status], dir: &Path) -> Result<usize> {
    if dir.exists() && !dir.is_dir() {
        let sentence = format!("`{}` is a file", dir.display());
        return Err(Fault::request(sentence).hint("name a folder: `--tensorboard runs`").into());
    }
    let before = List::read(dir)?;
    let runs = runs(sweeps);
    let now = List { runs: runs.iter().map(|run| run.name.clone()).collect() };
    named::make_dir(dir, dir)?;
    // Whatever may be there after a kill is in the list.
    List { runs: before.runs.union(&now.runs).cloned().collect() }.write(dir)?;
    let parameters = Parameters::of(&runs);
    let mut tags = Vec::new();
    for run in &runs {
        let scalars = Scalars::of(run)?;
        for tag in scalars.finals() {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        let folder = dir.join(&run.name);
        disk::make_dir(&folder)?;
        disk::write_whole(&folder.join(EVENTS), &events(run, &parameters, &scalars))?;
    }
    let created = sweeps.iter().map(|status| status.identity.created).fold(f64::INFINITY, f64::min);
    let mut file = header(created);
    let experiment = parameters.experiment(created, &tags);
    record(&mut file, &hparams_event(created, "_hparams_/experiment", 2, &experiment));
    if runs.is_empty() {
        disk::remove_if_there(&dir.join(EVENTS))?;
    } else {
        disk::write_whole(&dir.join(EVENTS), &file)?;
    }
    for name in before.runs.difference(&now.runs) {
        disk::remove_if_there(&dir.join(name).join(EVENTS))?;
        let mut folder = PathBuf::from(name);
        // What somebody else has put there stays.
        while !folder.as_os_str().is_empty() && disk::remove_empty(&dir.join(&folder)) {
            folder.pop();
        }
    }
    now.write(dir)?;
    Ok(runs.len())
}

/// The runs in a folder, by their names.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    runs: BTreeSet<String>,
}

impl List {
    fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(LIST);
        let Some(text) = disk::read_if_there(&path)? else { return Ok(Self::default()) };
        let list: Option<Self> = serde_json::from_str(&text).ok();
        // A name that leads elsewhere is none of ours.
        let is_ours = |name: &String| {
            name.split('/').all(|part| !part.is_empty() && part != ".." && part != ".")
        };
        list.filter(|list| list.runs.iter().all(is_ours)).ok_or_else(|| {
            Fault::request("the list of runs that were written before cannot be read")
                .at(path.display().to_string())
                .hint("remove the file and the runs, or name another folder")
                .into()
        })
    }

    fn write(&self, dir: &Path) -> Result<()> {
        disk::write_whole(&dir.join(LIST), &serde_json::to_vec(self)?)
    }
}

/// A trial that has begun.
struct Run<'a> {
    name: String,
    status: &'a Status,
    row: &'a Row,
    standing: &'a Standing,
    record: &'a Record,
}

impl Run<'_> {
    fn began(&self) -> f64 {
        self.record.attempts.first().map_or(0.0, |first| first.start.time)
    }

    /// When it ended; when its last attempt began, if that is not known.
    fn ended(&self) -> f64 {
        let last = self.record.decisive();
        last.map_or(0.0, |last| last.end.as_ref().map_or(last.start.time, |end| end.time))
    }
}

/// The runs of all sweeps. Names have as many digits as the largest number, so that they sort as the numbers do.
fn runs(sweeps: &[Status]) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut names: HashMap<&str, u32> = HashMap::new();
    for status in sweeps {
        let name = status.identity.name.as_str();
        let uses = names.entry(name).and_modify(|n| *n += 1).or_insert(1);
        let folder = match (sweeps.len(), *uses) {
            (1, _) => String::new(),
            (_, 1) => format!("{name}/"),
            (_, n) => format!("{name}-{n}/"),
        };
        let digits = status.rows.iter().map(|row| row.id).max().unwrap_or(0).to_string().len();
        for (row, standing) in status.trials() {
            let Some(record) = status.records.get(&row.id).filter(|r| !r.attempts.is_empty())
            else {
                continue;
            };
            let name = format!("{folder}trial-{:0digits$}", row.id);
            runs.push(Run { name, status, row, standing, record });
        }
    }
    runs
}

/// A point of a curve: its step, when it was logged, its value.
type Point = (i64, f64, f64);

/// The curves of a trial by tag, in the order in which they were first logged.
struct Scalars(Vec<(String, Vec<Point>)>);

/// A number that a program has logged.
struct Logged {
    step: Option<f64>,
    epoch: Option<f64>,
    time: f64,
    value: f64,
}

impl Scalars {
    fn of(run: &Run<'_>) -> Result<Self> {
        let mut tags: Vec<String> = Vec::new();
        let mut all: HashMap<String, Vec<Logged>> = HashMap::new();
        let began = run.began();
        curve::each(&run.status.tree, run.record, |line| {
            let of = |name: &str| {
                let found = line.iter().find(|(own, _)| own == name);
                found.and_then(|(_, value)| value.as_f64())
            };
            let (step, epoch, rank) = (of("step"), of("epoch"), of("rank").filter(|n| *n > 0.0));
            // Lines have no time of their own, unless the program has logged one, in unix seconds.
            let time = of("wall_time").or(of("timestamp")).filter(|time| *time > 1e9);
            for (name, value) in &line {
                if ["step", "epoch", "rank", "wall_time", "timestamp"].contains(&name.as_str()) {
                    continue;
                }
                let Some(value) = json_float(value) else { continue };
                let tag = match rank {
                    Some(rank) => format!("{name}/rank {rank}"),
                    None => name.clone(),
                };
                if !all.contains_key(&tag) {
                    tags.push(tag.clone());
                }
                let own = Logged { step, epoch, time: time.unwrap_or(began), value };
                all.entry(tag).or_default().push(own);
            }
        })?;
        let mut curves: Vec<(String, Vec<Point>)> = tags
            .into_iter()
            .map(|tag| (all.remove(&tag), tag))
            .map(|(own, tag)| (tag, points(&own.unwrap_or_default())))
            .collect();
        let end = run.record.decisive().and_then(|attempt| attempt.end.as_ref());
        if let Some(result) = end.and_then(|end| end.result.as_ref()) {
            let mut last = Vec::new();
            leaves(if result.is_object() { "" } else { "result" }, result, &mut last);
            for (name, value) in last {
                let Some(value) = json_float(&value) else { continue };
                let curve = curves.iter().find(|(tag, _)| *tag == name);
                let last = curve.and_then(|(_, points)| points.last());
                let (step, tag) = match last {
                    Some((_, _, same)) if *same == value => continue,
                    // The curve stays what was logged.
                    Some((step, ..)) => (*step, format!("{name} (result)")),
                    None => (0, name),
                };
                curves.push((tag, vec![(step, run.ended(), value)]));
            }
        }
        Ok(Self(curves))
    }

    /// Tags that are metrics of the trial, and not of one of its ranks.
    fn finals(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(tag, _)| tag).filter(|tag| !tag.contains("/rank "))
    }
}

/// Where the numbers of one name stand: at their steps, or at their epochs, whichever grow; else one after the other.
fn points(logged: &[Logged]) -> Vec<Point> {
    let grow = |of: fn(&Logged) -> Option<f64>| -> Option<Vec<i64>> {
        let all: Option<Vec<i64>> = logged.iter().map(|own| of(own).map(|n| n as i64)).collect();
        all.filter(|all| all.windows(2).all(|two| two[0] < two[1]))
    };
    let steps = grow(|own| own.step).or_else(|| grow(|own| own.epoch));
    let steps = steps.unwrap_or_else(|| (0..logged.len() as i64).collect());
    steps.into_iter().zip(logged).map(|(step, own)| (step, own.time, own.value)).collect()
}

/// What the parameters of all runs have in common.
struct Parameters(Vec<(String, Kind, BTreeMap<String, Value>)>);

/// The types of HParams, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text = 1,
    Bool = 2,
    Number = 3,
}

impl Kind {
    fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Self::Bool,
            value if json_float(value).is_some() => Self::Number,
            _ => Self::Text,
        }
    }

    /// A value as a `google.protobuf.Value` of this type.
    fn value(self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        match (self, value, json_float(value)) {
            (Self::Number, _, Some(number)) => double(&mut out, 2, number),
            (Self::Bool, Value::Bool(own), _) => number(&mut out, 4, u64::from(*own)),
            _ => bytes(&mut out, 3, super::text(value).as_bytes()),
        }
        out
    }
}

impl Parameters {
    fn of(runs: &[Run<'_>]) -> Self {
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut all: Vec<(String, Kind, BTreeMap<String, Value>)> = Vec::new();
        for (name, value) in runs.iter().flat_map(|run| parameters(run.row)) {
            let kind = Kind::of(&value);
            let place = *names.entry(name.clone()).or_insert(all.len());
            if place == all.len() {
                all.push((name, kind, BTreeMap::new()));
            }
            let (_, own, values) = &mut all[place];
            if *own != kind {
                *own = Kind::Text;
            }
            values.insert(super::text(&value), value);
        }
        Self(all)
    }

    fn kind(&self, name: &str) -> Kind {
        self.0.iter().find(|(own, ..)| own == name).map_or(Kind::Text, |(_, kind, _)| *kind)
    }

    /// An `Experiment`: which parameters there are, with their values, and which metrics.
    fn experiment(&self, created: f64, tags: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        double(&mut out, 3, created);
        for (name, kind, values) in &self.0 {
            let mut info = Vec::new();
            bytes(&mut info, 1, name.as_bytes());
            number(&mut info, 4, *kind as u64);
            let numbers = || values.values().filter_map(json_float);
            if values.len() <= MOST_VALUES {
                let mut list = Vec::new();
                let mut values: Vec<&Value> = values.values().collect();
                values.sort_by(|a, b| {
                    let of = |v: &Value| json_float(v).unwrap_or(0.0);
                    of(a).total_cmp(&of(b))
                });
                values.iter().for_each(|value| bytes(&mut list, 1, &kind.value(value)));
                bytes(&mut info, 5, &list);
            } else if *kind == Kind::Number {
                let mut ends = Vec::new();
                double(&mut ends, 1, numbers().fold(f64::INFINITY, f64::min));
                double(&mut ends, 2, numbers().fold(f64::NEG_INFINITY, f64::max));
                bytes(&mut info, 6, &ends);
            }
            // TensorBoard shows the parameters first that tell trials apart.
            number(&mut info, 7, u64::from(values.len() > 1));
            bytes(&mut out, 4, &info);
        }
        for tag in tags {
            let (mut name, mut info) = (Vec::new(), Vec::new());
            bytes(&mut name, 2, tag.as_bytes());
            bytes(&mut info, 1, &name);
            bytes(&mut out, 5, &info);
        }
        out
    }
}

/// The parameters of a trial.
fn parameters(row: &Row) -> impl Iterator<Item = (String, Value)> {
    row.params.iter().map(|(name, value)| (name.to_owned(), value.to_json()))
}

/// The event file of a run.
fn events(run: &Run<'_>, known: &Parameters, scalars: &Scalars) -> Vec<u8> {
    let (began, ended) = (run.began(), run.ended());
    let mut file = header(began);
    let mut start = Vec::new();
    for (name, value) in parameters(run.row) {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, name.as_bytes());
        bytes(&mut entry, 2, &known.kind(&name).value(&value));
        bytes(&mut start, 1, &entry);
    }
    double(&mut start, 5, began);
    record(&mut file, &hparams_event(began, "_hparams_/session_start_info", 3, &start));
    for (tag, points) in &scalars.0 {
        for (step, time, value) in points {
            let (mut own, mut summary, mut event) = (Vec::new(), Vec::new(), Vec::new());
            bytes(&mut own, 1, tag.as_bytes());
            key(&mut own, 2, 5);
            own.extend((*value as f32).to_le_bytes());
            bytes(&mut summary, 1, &own);
            double(&mut event, 1, *time);
            number(&mut event, 2, step.cast_unsigned());
            bytes(&mut event, 5, &summary);
            record(&mut file, &event);
        }
    }
    let status = match &run.standing.state {
        State::Done => 1,
        State::Running => 3,
        state if state.is_bad() => 2,
        _ => 0,
    };
    let mut end = Vec::new();
    number(&mut end, 1, status);
    if run.standing.state.is_final() {
        double(&mut end, 2, ended);
    }
    record(&mut file, &hparams_event(ended, "_hparams_/session_end_info", 4, &end));
    file
}

/// The first record of each file.
fn header(time: f64) -> Vec<u8> {
    let mut event = Vec::new();
    double(&mut event, 1, time);
    bytes(&mut event, 3, b"brain.Event:2");
    let mut file = Vec::new();
    record(&mut file, &event);
    file
}

/// An event whose one value is data of the plugin HParams, as its member `field`.
fn hparams_event(time: f64, tag: &str, field: u32, data: &[u8]) -> Vec<u8> {
    let (mut content, mut plugin, mut metadata) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut content, field, data);
    bytes(&mut plugin, 1, b"hparams");
    bytes(&mut plugin, 2, &content);
    bytes(&mut metadata, 1, &plugin);
    // A tensor of one zero: TensorBoard keeps no summary without a value.
    let tensor = [8, 1, 18, 4, 18, 2, 8, 1, 42, 4, 0, 0, 0, 0];
    let (mut value, mut summary, mut event) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut value, 1, tag.as_bytes());
    bytes(&mut value, 8, &tensor);
    bytes(&mut value, 9, &metadata);
    bytes(&mut summary, 1, &value);
    double(&mut event, 1, time);
    bytes(&mut event, 5, &summary);
    event
}

// ---- protocol buffers

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn key(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, u64::from(field << 3 | wire));
}

fn number(out: &mut Vec<u8>, field: u32, n: u64) {
    key(out, field, 0);
    varint(out, n);
}

fn double(out: &mut Vec<u8>, field: u32, n: f64) {
    key(out, field, 1);
    out.extend(n.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u32, data: &[u8]) {
    key(out, field, 2);
    varint(out, data.len() as u64);
    out.extend(data);
}

// ---- TFRecords

/// Appends a record: its length and its data, each with a masked CRC-32C.
fn record(file: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked_crc(&length).to_le_bytes());
    file.extend(data);
    file.extend(masked_crc(data).to_le_bytes());
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli); that of gzip, which `crc32fast` computes, is another one.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !data.iter().fold(!0, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_checksums_of_their_format() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        let mut file = Vec::new();
        record(&mut file, b"");
        // As TensorFlow writes an empty record.
        assert_eq!(file, [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 3, 0x98, 7, 0xd8, 0xea, 0x82, 0xa2]);
    }

    #[test]
    fn numbers_stand_at_their_steps_if_these_grow() {
        let check = |places: &[(Option<f64>, Option<f64>)], expected: &[i64]| {
            let of = |(step, epoch): &(Option<f64>, Option<f64>)| Logged {
                step: *step,
                epoch: *epoch,
                time: 1.0,
                value: 2.0,
            };
            let logged: Vec<Logged> = places.iter().map(of).collect();
            let found: Vec<i64> = points(&logged).iter().map(|(step, ..)| *step).collect();
            assert_eq!(found, expected);
        };
        check(&[], &[]);
        check(&[(Some(10.0), Some(1.0)), (Some(20.0), Some(1.0))], &[10, 20]);
        // Steps that begin anew with each epoch.
        check(&[(Some(5.0), Some(1.0)), (Some(5.0), Some(2.0))], &[1, 2]);
        check(&[(None, Some(1.0)), (None, Some(1.0)), (None, None)], &[0, 1, 2]);
    }
}
