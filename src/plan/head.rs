//! The short tables of a plan: `version`, `[sweep]` and `[schedule]`.
//!
//! Reads and checks each key by itself; what it says of axes is checked elsewhere.

use super::reader::{Entry, Reader, entries};
use super::{ChainsAs, GpuIds, Merge, Mode, Schedule};
use crate::host::access::{Readers, Shared};

/// The version of plans this program reads.
const VERSION: i64 = 1;

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
    let mut has_name = false;
    let table = entry.and_then(|entry| reader.table(entry));
    for entry in table.map(entries).unwrap_or_default() {
        match entry.key {
            "name" => {
                has_name = true;
                sweep.name = read_name(reader, &entry);
            }
            "root" => {
                if let Some(root) = reader.line_of_text(&entry) {
                    sweep.root = root.to_owned();
                }
            }
            "seed" => sweep.seed = reader.integer(&entry).unwrap_or(1),
            "merge" => {
                let words = [("deep", Merge::Deep), ("shallow", Merge::Shallow)];
                sweep.merge = reader.word(&entry, &words).unwrap_or(Merge::Deep);
            }
            "shared" => {
                sweep.shared = reader.word(&entry, &[("group", Shared::Group)]).unwrap_or_default();
            }
            "readable_by" => {
                let words =
                    [("owner", Readers::Owner), ("group", Readers::Group), ("all", Readers::All)];
                sweep.readers = reader.word(&entry, &words);
            }
            _ => {
                let known = ["name", "root", "seed", "merge", "shared", "readable_by"];
                reader.unknown(&entry, "`[sweep]`", &known);
            }
        }
    }
    if !has_name {
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

const SCHEDULE_KEYS: [&str; 7] =
    ["chain_along", "max_running", "gpu_ids", "gpu_share", "chains", "mode", "pack"];

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
    let mut along_at = 0;
    let mut pack_at = None;
    let table = entry.and_then(|entry| reader.table(entry));
    for entry in table.map(entries).unwrap_or_default() {
        match entry.key {
            "chain_along" => {
                along_at = entry.at;
                schedule.chain_along = match entry.item.get_ref() {
                    toml::de::DeValue::String(_) => {
                        reader.line_of_text(&entry).map(|s| vec![s.to_owned()])
                    }
                    toml::de::DeValue::Array(_) => {
                        reader.texts(&entry, |reader, e| reader.line_of_text(e).map(str::to_owned))
                    }
                    _ => {
                        reader.expected(&entry, "the name of an axis or a list of names");
                        None
                    }
                }
                .unwrap_or_default();
            }
            "max_running" => schedule.max_running = reader.count(&entry, 1),
            "gpu_ids" => {
                let words = [("exact", GpuIds::Exact), ("count", GpuIds::Count)];
                schedule.gpu_ids = reader.word(&entry, &words).unwrap_or(GpuIds::Exact);
            }
            "gpu_share" => schedule.gpu_share = reader.count(&entry, 1).unwrap_or(1),
            "chains" => {
                let words = [
                    ("jobs", ChainsAs::Jobs),
                    ("barrier", ChainsAs::Barrier),
                    ("fused", ChainsAs::Fused),
                ];
                schedule.chains = reader.word(&entry, &words);
            }
            "mode" => {
                let words = [("array", Mode::Array), ("pull", Mode::Pull)];
                schedule.mode = reader.word(&entry, &words).unwrap_or(Mode::Array);
            }
            "pack" => {
                schedule.pack = reader.count(&entry, 1);
                pack_at = Some(entry.at);
            }
            _ => {
                reader.unknown(&entry, "`[schedule]`", &SCHEDULE_KEYS);
            }
        }
    }
    if let (Some(at), Some(_)) = (pack_at, schedule.pack) {
        if schedule.mode == Mode::Pull {
            let hint = "leave `pack` out, or `mode`";
            reader.wrong(at, "agents take trials one by one: `pack` belongs to arrays", hint);
        }
        if let Some(ChainsAs::Jobs | ChainsAs::Barrier) = schedule.chains {
            let hint = "leave `chains` out, or write `chains = \"fused\"`";
            reader.wrong(at, "a packed element runs whole chains, link by link", hint);
        }
    }
    (schedule, along_at)
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
hint: known here: `name`, `root`, `seed`, `merge`, `shared` and `readable_by`",
        );
    }
}
