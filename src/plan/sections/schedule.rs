//! `[schedule]`: how trials become jobs.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toml::de::DeValue;

use super::pull::Pull;
use crate::plan::document::form::{LINE, LINES, count, line_schema, word};
use crate::plan::document::{Entry, Form, Reader, Section, Word, find, section};

/// `[schedule]`: how trials become jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Axes along which a chain runs: points that differ only in these form one chain.
    pub(crate) chain_along: Vec<String>,
    /// At most this many elements of an array run at once (`--array=...%N`), or local trials.
    pub(crate) max_running: Option<u32>,
    /// How `gpu_ids_abs` is read inside an allocation.
    pub gpu_ids: GpuIds,
    /// Trials that use a GPU at the same time.
    pub(crate) gpu_share: u32,
    /// How chains become jobs; `None` leaves it to the scheduler.
    pub(crate) chains: Option<ChainsAs>,
    /// Who decides which trial runs where.
    pub(crate) mode: Mode,
    /// Trials in each element of an array, one after the other.
    pub(crate) pack: Option<u32>,
    /// How agents share the sweep.
    pub(crate) pull: Pull,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            chain_along: Vec::new(),
            max_running: None,
            gpu_ids: GpuIds::Exact,
            gpu_share: 1,
            chains: None,
            mode: Mode::Array,
            pack: None,
            pull: Pull::default(),
        }
    }
}

/// Who decides which trial runs where (`[schedule] mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The scheduler: each trial is an element of an array.
    Array,
    /// Agents, which take trials from the results tree.
    Pull,
}

/// How chains become jobs of a scheduler (`[schedule] chains`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainsAs {
    /// Each trial of a chain of two or more is a job of its own behind its predecessor.
    Jobs,
    /// Link `k` of a block is an array behind the whole array of link `k - 1`.
    Barrier,
    /// One element runs its chain link by link.
    Fused,
}

/// How `gpu_ids_abs` is read inside an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuIds {
    /// Exactly these physical devices; one that was not granted is refused.
    Exact,
    /// Only their number counts: the devices the scheduler granted are used.
    Count,
}

/// The keys of `[schedule]`.
pub(crate) static SCHEDULE: Section<Schedule> = section!("`[schedule]`", Schedule:
    "chain_along" => chain_along: AXES, "none",
        "an axis, or a list of axes, along which chains run";
    "max_running" => max_running: count::<1>(), "no limit",
        "most elements of the sweep (locally: chains) that run at once; also `submit --max-running N`. See [below](#max_running)";
    "chains" => chains: word::<ChainsAs>(), "the scheduler's",
        "how chains become jobs: `\"jobs\"`, `\"barrier\"` (both for [PBS](pbs.md#chains)) or `\"fused\"`, in which one element runs its chain link by link in one allocation, with the walltimes added up, on Slurm too";
    "mode" => mode: word::<Mode>(), "`\"array\"`",
        "`\"pull\"`: `submit` queues pilots whose [agents](pull.md) take trials from the results tree; also `submit --pull`. `chains` is ignored then";
    "pack" => pack: count::<1>(), "none",
        "whole chains (a trial without one is its own) that each element runs one after the other, link by link, in one allocation, with the walltimes added up: 20 trials with `pack = 5` are 4 elements. Each trial keeps to its own walltime, and a failure stops its own chain only. Chains of an element have equal requests; what is left over is an array of one element. `--local` does not mind; not together with `mode = \"pull\"`";
    "gpu_ids" => gpu_ids: word::<GpuIds>(), "`\"exact\"`",
        "how `gpu_ids_abs` is read in an allocation: `\"exact\"` or `\"count\"`";
    "gpu_share" => gpu_share: count::<1>(), "1",
        "trials that use a [GPU](#gpus) at the same time; not for arrays";
);

impl Word for GpuIds {
    const WORDS: &'static [(&'static str, Self)] =
        &[("exact", Self::Exact), ("count", Self::Count)];
}

impl Word for ChainsAs {
    const WORDS: &'static [(&'static str, Self)] =
        &[("jobs", Self::Jobs), ("barrier", Self::Barrier), ("fused", Self::Fused)];
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("array", Self::Array), ("pull", Self::Pull)];
}

/// The name of an axis, or a list of names.
const AXES: Form<Vec<String>> = Form {
    read: |reader, entry| match entry.item.get_ref() {
        DeValue::String(_) => (LINE.read)(reader, entry).map(|name| vec![name]),
        DeValue::Array(_) => (LINES.read)(reader, entry),
        _ => {
            reader.expected(entry, "the name of an axis or a list of names");
            None
        }
    },
    schema: || json!({ "anyOf": [line_schema(), (LINES.schema)()] }),
};

/// `[pull] slots_per_gpu` says how many trials share a GPU, too.
pub(crate) fn share_by_slots(reader: &mut Reader<'_>, at: usize, schedule: &mut Schedule) {
    let Some(slots) = schedule.pull.slots_per_gpu else { return };
    if schedule.gpu_share != 1 && schedule.gpu_share != slots {
        let share = schedule.gpu_share;
        let sentence =
            format!("`slots_per_gpu = {slots}` and `gpu_share = {share}` contradict each other");
        reader.wrong(at, sentence, "leave `gpu_share` out");
    }
    schedule.gpu_share = slots;
}

/// Reads `[schedule]`, and where `chain_along` stands.
pub(crate) fn read_schedule(
    reader: &mut Reader<'_>,
    entry: Option<&Entry<'_>>,
) -> (Schedule, usize) {
    let mut schedule = Schedule::default();
    let written = SCHEDULE.read(reader, entry, &mut schedule);
    if let (Some(entry), Some(_)) = (find(&written, "pack"), schedule.pack) {
        if schedule.mode == Mode::Pull {
            let hint = "leave `pack` out, or `mode`";
            reader.wrong(entry.at, "agents take trials one by one: `pack` belongs to arrays", hint);
        }
        if let Some(ChainsAs::Jobs | ChainsAs::Barrier) = schedule.chains {
            let hint = "leave `chains` out, or write `chains = \"fused\"`";
            reader.wrong(entry.at, "a packed element runs whole chains, link by link", hint);
        }
    }
    (schedule, find(&written, "chain_along").map_or(0, |entry| entry.at))
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, plan};

    #[test]
    fn slots_on_each_gpu_share_it() {
        let share = |text: &str| plan(text).schedule.gpu_share;
        assert_eq!(share("schedule.gpu_share = 2\n"), 2);
        assert_eq!(share("pull.slots_per_gpu = 4\n"), 4);
        assert_eq!(share("schedule.gpu_share = 4\npull.slots_per_gpu = 4\n"), 4);
        check_faults(
            "schedule.gpu_share = 2\npull.slots_per_gpu = 4\n",
            "`slots_per_gpu = 4` and `gpu_share = 2` contradict each other
  plan.toml:5: pull.slots_per_gpu = 4
hint: leave `gpu_share` out",
        );
        check_faults(
            "schedule.gpu_share = 0\n",
            "`gpu_share` cannot be 0
  plan.toml:4: schedule.gpu_share = 0
hint: write a number from 1 to 4294967295",
        );
    }
}
