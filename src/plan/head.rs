//! The short tables of a plan: `version`, `[sweep]` and `[schedule]`.
//!
//! Each key is read and checked by itself; what `[schedule]` says of axes is checked elsewhere.

use serde_json::json;
use toml::de::DeValue;

use super::{ChainsAs, GpuIds, Merge, Mode, Schedule};
use crate::document::form::{INTEGER, LINE, LINES, count, line_schema, word};
use crate::document::{Entry, Form, Reader, Section, Word, find, section};
use crate::host::access::{Readers, Shared};

/// The version of plans this program reads.
pub(super) const VERSION: i64 = 1;

/// The longest name of a sweep: it becomes a folder and part of the names of jobs.
const MAX_NAME: usize = 64;

/// `[sweep]` as written.
pub(super) struct Sweep {
    pub(super) name: Option<String>,
    pub(super) root: String,
    pub(super) seed: i64,
    pub(super) merge: Merge,
    pub(super) shared: Shared,
    pub(super) readers: Option<Readers>,
}

/// The keys of `[sweep]`.
pub(super) static SWEEP: Section<Sweep> = section!("`[sweep]`", Sweep:
    "name" => name: NAME, "required",
        "up to 64 letters, digits, `.`, `_`, `-`; the folder under `root`, and part of job names";
    "root" => root: LINE, "`\"results\"`",
        "the folder of all results; must be visible on every node";
    "shared" => shared: word::<Shared>(), "`\"no\"`",
        "`\"group\"`: members of the folder's group may write to the sweep and run it together ([security](security.md))";
    "readable_by" => readers: word::<Readers>(), "as the umask says",
        "`\"owner\"`, `\"group\"` or `\"all\"`: who may read the sweep, whatever the umask of its jobs is ([security](security.md#who-may-read-a-sweep))";
    "seed" => seed: INTEGER, "`1`",
        "an integer: the seed of `[sample]`, the first seed of `[replicates]`, and `{{ sweep.seed }}`";
    "merge" => merge: word::<Merge>(), "`\"deep\"`",
        "how a trial's tables are laid over those of `[defaults]`: `\"deep\"` leaf by leaf, `\"shallow\"` whole tables";
);

impl Word for Merge {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deep", Self::Deep), ("shallow", Self::Shallow)];
}

const NAME: Form<String> = Form {
    read: read_name,
    schema: || json!({ "type": "string", "pattern": format!("^[A-Za-z0-9_][A-Za-z0-9._-]{{0,{}}}$", MAX_NAME - 1) }),
};

/// Reads `version`.
pub(super) fn read_version(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) {
    let Some(entry) = entry else {
        let hint = format!("write `version = {VERSION}` at the top of the plan");
        return reader.missing("the plan has no `version`", hint);
    };
    if let Some(version) = reader.integer(entry)
        && version != VERSION
    {
        let sentence = format!("this program does not read plans of version {version}");
        reader.wrong(entry.at, sentence, format!("it reads `version = {VERSION}`"));
    }
}

/// Reads `[sweep]`.
pub(super) fn read_sweep(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) -> Sweep {
    let mut sweep = Sweep {
        name: None,
        root: "results".into(),
        seed: 1,
        merge: Merge::Deep,
        shared: Shared::No,
        readers: None,
    };
    let written = SWEEP.read(reader, entry, &mut sweep);
    if find(&written, "name").is_none() {
        reader.missing("the sweep has no name", "write `name = \"demo\"` under `[sweep]`");
    }
    sweep
}

fn read_name(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<String> {
    let name = reader.line_of_text(entry)?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.chars().all(is_letter) || name.starts_with(['.', '-']) || name.len() > MAX_NAME {
        let sentence = format!("the sweep cannot be called `{name}`");
        let hint = format!(
            "it becomes a folder: use up to {MAX_NAME} letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`"
        );
        reader.wrong(entry.at, sentence, hint);
        return None;
    }
    Some(name.to_owned())
}

/// The keys of `[schedule]`.
pub(super) static SCHEDULE: Section<Schedule> = section!("`[schedule]`", Schedule:
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
pub(super) fn share_by_slots(reader: &mut Reader<'_>, at: usize, schedule: &mut Schedule) {
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
pub(super) fn read_schedule(
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
    use crate::plan::testing::{check_faults, check_plan_faults, plan};
    use crate::plan::{GpuIds, Mode, Pull, Schedule};

    #[test]
    fn an_empty_plan_is_told_what_it_needs() {
        check_plan_faults(
            "",
            "the plan has no `version`
  plan.toml
hint: write `version = 1` at the top of the plan
error: the sweep has no name
  plan.toml
hint: write `name = \"demo\"` under `[sweep]`
error: the plan has no command
  plan.toml
hint: write `command = [\"python3\", \"train.py\"]` under `[run]`",
        );
    }

    #[test]
    fn all_faults_of_the_head_are_told_at_once() {
        check_plan_faults(
            "version = 2
[sweep]
name = \"-x\"
nmae = 1
seed = \"1\"
merge = \"depe\"
root = \"\"
[run]
command = [\"a\"]
[schedule]
chain_along = 1
max_running = 0
gpu_ids = true
chains = \"array\"
",
            "this program does not read plans of version 2
  plan.toml:1: version = 2
hint: it reads `version = 1`
error: the sweep cannot be called `-x`
  plan.toml:3: name = \"-x\"
hint: it becomes a folder: use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`
error: `[sweep]` has no key `nmae`
  plan.toml:4: nmae = 1
hint: did you mean `name`?
error: `seed` must be an integer, not a string
  plan.toml:5: seed = \"1\"
error: `merge` has no setting `depe`
  plan.toml:6: merge = \"depe\"
hint: did you mean `deep`?
error: `root` is empty
  plan.toml:7: root = \"\"
hint: give it a value, or remove the key
error: `chain_along` must be the name of an axis or a list of names, not an integer
  plan.toml:11: chain_along = 1
error: `max_running` cannot be 0
  plan.toml:12: max_running = 0
hint: write a number from 1 to 4294967295
error: `gpu_ids` must be a string, not a boolean
  plan.toml:13: gpu_ids = true
error: `chains` has no setting `array`
  plan.toml:14: chains = \"array\"
hint: write one of `jobs`, `barrier` and `fused`",
        );
    }

    #[test]
    fn what_is_not_written_has_a_default() {
        let plan = plan("");
        let schedule = Schedule {
            chain_along: Vec::new(),
            max_running: None,
            gpu_ids: GpuIds::Exact,
            gpu_share: 1,
            chains: None,
            mode: Mode::Array,
            pack: None,
            pull: Pull::default(),
        };
        assert_eq!((&*plan.name, &*plan.root, plan.seed), ("s", "results", 1));
        assert_eq!(plan.schedule, schedule);
    }

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

    #[test]
    fn a_sweep_needs_the_name_of_a_folder() {
        for name in ["a/b", "..", ".a", "a b", "ä", ""] {
            let text = format!("version = 1\nsweep.name = \"{name}\"\nrun.command = [\"a\"]");
            assert!(crate::plan::parse(&text, "plan.toml").is_err(), "{name}");
        }
        check_faults(
            "sweep.x = 1",
            "`[sweep]` has no key `x`
  plan.toml:4: sweep.x = 1
hint: known here: `name`, `root`, `shared`, `readable_by`, `seed` and `merge`",
        );
    }
}
