//! Attempts as a table: where and when each ran, how it ended, what it asked for and what it used.

use anyhow::Result;
use serde_json::Value;

use super::columns::{self, Column, Entry, Kind, RECORD};
use super::{Cells, Source};
use crate::plan::Resources;
use crate::sweep::standing::Standing;
use crate::sweep::status::Status;
use crate::sweep::tree::code;
use crate::sweep::tree::records::{Attempt, End, Record, Usage};
use crate::sweep::tree::requests::{Asker, Requests};

const ASKED: &str = "submission";

/// All columns. `sweep` is left out of one sweep.
const COLUMNS: [Entry; 36] = [
    ("sweep", Kind::Word, None, "plan", "name of the sweep"),
    ("trial", Kind::Int, None, "plan", "number of the trial in its sweep, from 0"),
    ("attempt", Kind::Int, None, RECORD, "number of the attempt, from 1"),
    (
        "state",
        Kind::Word,
        None,
        RECORD,
        "how it ended: done, failed, timeout, interrupted, lost; if it has not ended, how the trial stands",
    ),
    ("counts", Kind::Bool, None, RECORD, "whether this attempt decides how the trial stands"),
    (
        "cause",
        Kind::Word,
        None,
        RECORD,
        "why it ended without success: docs/causes.md lists the causes",
    ),
    ("reason", Kind::Text, None, RECORD, "the same in words"),
    ("exit_code", Kind::Int, None, RECORD, "exit code; 128 + signal if a signal ended it"),
    ("signal", Kind::Int, None, RECORD, "signal that ended it"),
    ("host", Kind::Text, None, RECORD, "host of rank 0"),
    ("job", Kind::Text, None, RECORD, "the scheduler's job, with its array index"),
    ("agent", Kind::Text, None, RECORD, "agent that ran it"),
    ("slot", Kind::Int, None, RECORD, "slot of the agent, from 0"),
    ("ranks", Kind::Int, None, RECORD, "ranks"),
    (
        "devices",
        Kind::Text,
        None,
        RECORD,
        "CUDA_VISIBLE_DEVICES of rank 0, if it was set for the trial",
    ),
    ("snapshot", Kind::Text, None, RECORD, "code snapshot from which it ran"),
    ("version", Kind::Text, None, RECORD, "version of hpcsweep"),
    ("start", Kind::Time, None, RECORD, "when it began"),
    ("end", Kind::Time, None, RECORD, "when it ended"),
    ("duration_s", Kind::Seconds, None, RECORD, "how long its program ran"),
    ("asked_nodes", Kind::Int, None, ASKED, "nodes that were requested"),
    ("asked_cores", Kind::Int, None, ASKED, "cores that were requested, on all nodes"),
    ("asked_gpus", Kind::Int, None, ASKED, "GPUs that were requested, on all nodes"),
    ("asked_memory", Kind::Bytes, None, ASKED, "memory of a node that was requested"),
    ("asked_walltime_s", Kind::Seconds, None, ASKED, "walltime that was requested"),
    ("peak_memory", Kind::Bytes, None, RECORD, "peak memory of all processes, on all nodes"),
    ("node_memory", Kind::Bytes, None, RECORD, "peak memory of the node that used most"),
    (
        "memory_source",
        Kind::Word,
        None,
        RECORD,
        "how memory was measured: docs/results-tree.md lists the sources",
    ),
    ("cpu_user_s", Kind::Seconds, None, RECORD, "processor time in the programs"),
    ("cpu_system_s", Kind::Seconds, None, RECORD, "processor time in the kernel"),
    ("read_bytes", Kind::Bytes, None, RECORD, "bytes read from storage"),
    ("written_bytes", Kind::Bytes, None, RECORD, "bytes written to storage"),
    ("gpu_utilization", Kind::Float, Some("%"), RECORD, "mean utilization of its GPUs"),
    ("gpu_energy_j", Kind::Float, Some("J"), RECORD, "energy of its GPUs"),
    ("node_energy_j", Kind::Float, Some("J"), RECORD, "energy of its nodes, if it had them alone"),
    ("unread_lines", Kind::Int, None, RECORD, "metric lines, and results, that could not be read"),
];

/// The columns of attempts of one sweep or of several.
pub(super) fn columns(are_of_several: bool) -> Vec<Column> {
    let names = COLUMNS.iter().map(|entry| entry.0);
    columns::of_entries(&COLUMNS, names.skip(usize::from(!are_of_several)))
}

/// The attempts of sweeps.
pub(crate) struct Attempts {
    sweeps: Vec<Status>,
}

impl Attempts {
    /// Those of the trials of sweeps.
    pub(crate) fn new(sweeps: Vec<Status>) -> Self {
        Self { sweeps }
    }

    pub(super) fn are_of_several(&self) -> bool {
        self.sweeps.len() > 1
    }

    pub(super) fn sources(&self) -> Vec<Source> {
        self.sweeps.iter().map(Source::of).collect()
    }

    /// Calls `with` for each attempt, in the order of trials and then in that in which they began.
    ///
    /// # Errors
    /// When a tree cannot be read, and what `with` returns.
    pub(super) fn each(&self, with: &mut dyn FnMut(Cells) -> Result<()>) -> Result<()> {
        for status in &self.sweeps {
            let requests = Requests::of(&status.tree)?;
            for (row, standing) in status.trials() {
                let Some(record) = status.records.get(&row.id) else { continue };
                for (place, attempt) in record.attempts.iter().enumerate() {
                    let asked = requests.of_attempt(Asker::from(row), attempt);
                    let asked = asked.map(|request| request.resources);
                    let mut cells = Cells::default();
                    let mut first = 0;
                    if self.are_of_several() {
                        cells.push(0, status.identity.name.clone().into());
                        first = 1;
                    }
                    let values = values(record, place, standing, asked).into_iter().enumerate();
                    values.for_each(|(c, value)| cells.push(first + c, value));
                    with(cells)?;
                }
            }
        }
        Ok(())
    }
}

/// The values of an attempt, in the order of [`COLUMNS`] without the first.
fn values(
    record: &Record,
    place: usize,
    standing: &Standing,
    asked: Option<&Resources>,
) -> [Value; COLUMNS.len() - 1] {
    let attempt = &record.attempts[place];
    let (start, end) = (&attempt.start, attempt.end.as_ref());
    let usage = end.and_then(|end| end.usage.as_deref());
    let is_last = place + 1 == record.attempts.len();
    let cause = match record.cause_of(place) {
        // The scheduler and the job's log may know more than its end.
        cause if is_last && standing.state.is_bad() => standing.cause.or(cause),
        cause => cause,
    };
    let state = record.state_of(place).unwrap_or_else(|| standing.state.word());
    let counts = record.decisive().is_some_and(|decisive| std::ptr::eq(decisive, attempt));
    let reason = attempt.why();
    let bundle = attempt.bundle.as_ref();
    let of_gpus = |of: &dyn Fn(&Usage) -> Vec<f64>| usage.map(of).filter(|all| !all.is_empty());
    let utilizations =
        of_gpus(&|usage| usage.gpus.iter().filter_map(|gpu| gpu.utilization).collect());
    let energies = of_gpus(&|usage| usage.gpus.iter().filter_map(|gpu| gpu.energy_j).collect());
    [
        start.trial.into(),
        start.attempt.into(),
        state.into(),
        counts.into(),
        cause.map(|cause| cause.word()).into(),
        Some(reason).filter(|reason| !reason.is_empty()).into(),
        end.and_then(|end| end.exit_code).into(),
        end.and_then(|end| end.signal).into(),
        Some(start.host.clone()).filter(|host| !host.is_empty()).into(),
        start.job.clone().into(),
        bundle.map(|place| place.agent.clone()).into(),
        bundle.map(|place| place.slot).into(),
        Some(start.ranks).filter(|ranks| *ranks > 0).into(),
        start.devices.clone().into(),
        start.snapshot.as_deref().map(code::short).into(),
        Some(start.version.clone()).filter(|version| !version.is_empty()).into(),
        Some(start.time).filter(|time| *time > 0.0).into(),
        ended(attempt).into(),
        attempt.duration_s().into(),
        asked.map(|asked| asked.nodes).into(),
        asked.map(Resources::cores).into(),
        asked.map(Resources::total_gpus).into(),
        asked.and_then(|asked| asked.memory_mib).map(|mib| mib << 20).into(),
        asked.and_then(|asked| asked.walltime_s).into(),
        end.map(|end| end.peak_memory).filter(|bytes| *bytes > 0).into(),
        end.and_then(End::node_memory).into(),
        usage.map_or(Value::Null, |usage| serde_json::json!(usage.memory_source)),
        usage.map(|usage| usage.cpu_user_s).into(),
        usage.map(|usage| usage.cpu_system_s).into(),
        usage.map(|usage| usage.read_bytes).into(),
        usage.map(|usage| usage.written_bytes).into(),
        utilizations.map(|all| all.iter().sum::<f64>() / all.len() as f64).into(),
        energies.map(|all| all.iter().sum::<f64>()).into(),
        usage.and_then(|usage| usage.energy_j).into(),
        attempt.unread.into(),
    ]
}

/// When it ended, or was asked to.
fn ended(attempt: &Attempt) -> Option<f64> {
    attempt.end.as_ref().map(|end| end.time).or(attempt.stopped_at)
}
