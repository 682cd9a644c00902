//! The plan file, table by table: what is written becomes a [`Plan`], or all faults at once.
//!
//! Never touches the disk, and never stops at the first fault.

use std::sync::Arc;

use crate::base::host::access::{Readers, Shared};
use crate::base::words;
use crate::plan::author::Author;
use crate::plan::check;
use crate::plan::document::{Entry, Reader, entries};
use crate::plan::expansion::axes::{self, Group, Special};
use crate::plan::expansion::exclude::{self, Rule};
use crate::plan::expansion::expand::{self, Sheet};
use crate::plan::expansion::listed::{self, Files};
use crate::plan::expansion::sample;
use crate::plan::expansion::trials::{self, Given, MAX_TRIALS, Tasks};
use crate::plan::run::Run;
use crate::plan::sections::request::{RESOURCES, Wish};
use crate::plan::sections::resources::Resources;
use crate::plan::sections::retry::{self, Retry};
use crate::plan::sections::schedule::{self, Schedule};
use crate::plan::sections::snapshot::{self, Snapshot};
use crate::plan::sections::sweep::{self, Sweep};
use crate::plan::sections::{container, feeder, hooks, metrics, pull, run, train};
use crate::plan::templates::places::Places;
use crate::plan::trial::Trial;

/// A plan that has passed all checks, with the defaults of the keys that it leaves out.
#[derive(Debug, Clone)]
pub struct Plan {
    /// `[sweep] name`: also the folder under the root.
    pub name: String,
    /// `[sweep] root` as written; relative to the plan's folder.
    pub(crate) root: String,
    /// `[sweep] seed`; 1 by default.
    pub seed: i64,
    /// `[sweep] shared`: who may write to the sweep besides its owner.
    pub(crate) shared: Shared,
    /// `[sweep] readable_by`: who may read it; `None`: as the umask says.
    pub(crate) readers: Option<Readers>,
    /// `[run]`, with the tables that belong to it: `[train]`, `[metrics]`, `[hooks]`, `[container]`.
    pub run: Run,
    /// `[resources]` before any trial's own.
    pub(crate) resources: Arc<Resources>,
    /// `[schedule]`, with `[pull]`; the defaults where the plan has neither.
    pub schedule: Schedule,
    /// `[feeder]` as written; empty where the plan does not have it.
    pub(crate) feeder: Wish,
    /// `[retry]`; the defaults, which repeat nothing without a person, where the plan does not have it.
    pub(crate) retry: Retry,
    /// `[snapshot]`, where the plan has it.
    pub(crate) snapshot: Option<Snapshot>,
    /// All trials, in plan order.
    pub trials: Vec<Trial>,
    /// The text of the file that lists them, where the plan names one.
    pub(crate) listed: Option<String>,
    /// The places of `[[exclude]]` tables that leave out nothing that the others do not.
    pub(crate) unused_rules: Vec<String>,
}

impl Plan {
    /// Whether a feeder looks at each wave when it has ended.
    pub(crate) fn is_looked_after(&self) -> bool {
        self.retry.auto || self.run.hooks.has_end()
    }

    /// Whether any trial's request is learnt from trials that have ended.
    pub(crate) fn learns(&self) -> bool {
        self.trials.iter().any(|trial| trial.learns.is_some())
    }

    /// The request of the job that submits the rest of the sweep.
    pub(crate) fn feeder(&self) -> Resources {
        let longest_s = self.trials.iter().filter_map(|trial| trial.resources.walltime_s).max();
        feeder::request(&self.feeder, &self.resources, longest_s)
    }
}

/// The tables of a plan, each with what it is.
pub(super) const TABLES: &[(&str, &str)] = &[
    ("version", "the version of the format"),
    ("sweep", "the sweep's name and where its results lie"),
    ("run", "the command of every trial"),
    ("train", "instead of a command: a model that hpcsweep trains itself"),
    (
        "metrics",
        "metrics in what programs print and leave, and what becomes of those of several ranks",
    ),
    ("hooks", "programs that are called when trials end"),
    ("resources", "what a trial asks of a scheduler"),
    ("schedule", "how trials become jobs"),
    ("pull", "how agents share the sweep"),
    (
        "feeder",
        "what the job asks for that submits the rest where not all trials have a place in the queue",
    ),
    ("retry", "which trials run again by themselves, and with which requests"),
    ("snapshot", "files that are stored at submission, from which trials run"),
    ("container", "the image in which the command of every trial runs"),
    ("defaults", "parameters that all trials share"),
    ("trials", "parameters, listed"),
    ("grid", "axes that multiply, each a list of values"),
    ("zip", "lists of one length that advance together: one axis"),
    ("exclude", "combinations to leave out"),
    ("replicates", "repetitions, each with its own seed"),
    ("sample", "random points"),
];

/// Everything of a plan that [`expand`] needs, as written.
#[derive(Default)]
struct Written {
    wish: Wish,
    defaults: Given,
    given: Vec<Given>,
    groups: Vec<Group>,
    rules: Vec<Rule>,
    tasks: Tasks,
    /// The text of the file that lists the trials.
    listed: Option<String>,
    feeder: Wish,
    retry: Retry,
    snapshot: Option<Snapshot>,
}

/// Reads a plan; `name` is the name of its file in messages.
///
/// # Errors
/// Returns [`crate::base::fault::Faults`] with everything that is wrong with it.
pub fn parse(text: &str, name: &str) -> anyhow::Result<Plan> {
    parse_with(text, name, &listed::no_files)
}

/// As [`parse`], of a plan that may name files, whose texts `files` gives.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(text: &str, name: &str, files: Files<'_>) -> anyhow::Result<Plan> {
    // A line that a text of several lines holds ends like those of the shell that reads it, whatever editor wrote the plan.
    let text = text.replace("\r\n", "\n");
    let mut reader = Reader::new(name, &text);
    let document = reader.document();
    let tables = entries(&document);
    let find = |key: &str| tables.iter().find(|entry| entry.key == key);
    for entry in &tables {
        let table_names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
        if !table_names.contains(&entry.key) {
            reader.unknown(entry, "the plan", &table_names);
        }
    }
    sweep::read_version(&mut reader, find("version"));
    let sweep = sweep::read_sweep(&mut reader, find("sweep"));
    if sweep.null.is_some() && Author::from_text(&text) == Author::Python {
        let hint = "remove it: `None` is a value of `grid` and `points`";
        let sentence = "`null` cannot be set for a sweep of Python";
        reader.wrong(find("sweep").map_or(0, |entry| entry.at), sentence, hint);
    }
    reader.set_null(sweep.null.clone());
    let mut places = Places::default();
    let mut run = run::read(&mut reader, find("run"), find("train"), &mut places);
    let has_command = run.as_ref().is_none_or(|run| !run.command.is_empty());
    let metrics =
        find("metrics").map(|entry| metrics::read(&mut reader, entry, has_command, &mut places));
    if let (Some(run), Some(metrics)) = (&mut run, metrics) {
        run.metrics = metrics;
    }
    let hooks = find("hooks").map(|entry| hooks::read(&mut reader, entry, &mut places));
    if let (Some(run), Some(hooks)) = (&mut run, hooks) {
        run.hooks = hooks;
    }
    if let (Some(run), Some(entry)) = (&mut run, find("container")) {
        let runs_command = run.train.is_none() && run.function.is_none();
        run.container = container::read(&mut reader, entry, runs_command);
        check::check_sync(&mut reader, run, entry.at);
    }
    if let Some(run) = &run {
        check::check_syntax(&mut reader, run, &places);
    }
    let (mut schedule, along_at) = schedule::read_schedule(&mut reader, find("schedule"));
    if let Some(entry) = find("pull") {
        let trains = run.as_ref().is_some_and(|run| run.train.is_some());
        schedule.pull = pull::read(&mut reader, entry, trains);
        schedule::share_by_slots(&mut reader, entry.at, &mut schedule);
    }
    let n_before = reader.n_faults();
    let mut written = read_written(&mut reader, &tables, sweep.seed, files);
    written.snapshot =
        find("snapshot").map(|entry| snapshot::read(&mut reader, entry, run.as_ref()));
    let is_sound = reader.n_faults() == n_before && !reader.is_broken();
    // A rule that cannot be read leaves the other trials as they are: they are checked all the same.
    if let Some(entry) = find("exclude") {
        written.rules = exclude::read(&mut reader, entry).unwrap_or_default();
    }
    let plan = if is_sound {
        let axes_entry = find("grid").or(find("zip")).or(find("sample")).or(find("replicates"));
        let sweep_entry = axes_entry.or(find("trials")).or(find("resources")).or(tables.first());
        finish(
            &mut reader,
            sweep,
            run,
            &places,
            schedule,
            along_at,
            written,
            sweep_entry.map_or(0, |e| e.at),
        )
    } else {
        None
    };
    let faults = reader.into_faults();
    match plan {
        Some(plan) if faults.0.is_empty() => Ok(plan),
        _ => Err(faults.into()),
    }
}

fn read_written(
    reader: &mut Reader<'_>,
    tables: &[Entry<'_>],
    seed: i64,
    files: Files<'_>,
) -> Written {
    let mut written = Written::default();
    let tasks = &mut written.tasks;
    for entry in tables {
        match entry.key {
            "resources" => {
                RESOURCES.read(reader, Some(entry), &mut written.wish);
            }
            "feeder" => written.feeder = feeder::read(reader, entry),
            "retry" => written.retry = retry::read(reader, entry),
            "defaults" => {
                written.defaults = trials::read_defaults(reader, tasks, entry).unwrap_or_default();
            }
            "trials" => {
                (written.given, written.listed) = listed::trials(reader, tasks, entry, files);
            }
            "grid" => {
                if let Some(table) = reader.table(entry) {
                    written.groups.extend(axes::read_grid(reader, tasks, table));
                }
            }
            "zip" => {
                if let Some(table) = reader.table(entry) {
                    written.groups.extend(axes::read_zip(reader, tasks, table));
                }
            }
            "sample" => written.groups.extend(sample::read(reader, entry, seed)),
            "replicates" => {
                written.groups.extend(axes::read_replicates(reader, entry, seed));
            }
            _ => {}
        }
    }
    axes::check_overlaps(reader, &written.groups);
    check_given_against_axes(reader, &written);
    written
}

/// Refuses an axis that sets what an entry of `[[trials]]` sets itself: one of the two is a slip.
fn check_given_against_axes(reader: &mut Reader<'_>, written: &Written) {
    for axis in written.groups.iter().flat_map(|group| &group.axes) {
        let sets = |given: &&Given| match &axis.special {
            None => given.tree.touches(&axis.name),
            Some(Special::Tasks(_)) => given.task.is_some(),
            Some(Special::Gpus(_)) => given.gpus.is_some(),
            Some(Special::Wishes(wishes)) => {
                wishes.first().is_some_and(|wish| wish.meets(&given.wish))
            }
        };
        // One entry is enough: the same edit fixes the others.
        if let Some(given) = written.given.iter().find(sets) {
            let line = reader.line(axis.at);
            let sentence = format!("this trial sets `{}`, and so does the axis", axis.name);
            reader.wrong(given.at, sentence, format!("remove it here, or the axis in line {line}"));
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of a plan, each read on its own")]
fn finish(
    reader: &mut Reader<'_>,
    sweep: Sweep,
    run: Option<Run>,
    places: &Places,
    schedule: Schedule,
    along_at: usize,
    written: Written,
    at: usize,
) -> Option<Plan> {
    // A fault there is reported; the rest of the plan is looked at all the same.
    let along = chain_groups(reader, &schedule, along_at, &written).unwrap_or_default();
    let sheet = Sheet {
        merge: sweep.merge,
        wish: &written.wish,
        defaults: &written.defaults,
        given: &written.given,
        groups: &written.groups,
        rules: &written.rules,
        tasks: &written.tasks,
        along: &along,
        at,
    };
    let expanded = expand::expand(reader, &sheet)?;
    let specials: Vec<Arc<str>> = written
        .groups
        .iter()
        .flat_map(|group| &group.axes)
        .filter(|axis| axis.special.is_some())
        .map(|axis| axis.name.clone())
        .collect();
    check::check_rules(reader, &written.rules, &expanded.forms, &specials);
    check::check_tasks(reader, &written.tasks, &expanded);
    check::check_chains(reader, at, &expanded.trials);
    check::check_variables(reader, at, &expanded.forms);
    if expanded.trials.is_empty() {
        let rule_at = written.rules.first().map_or(at, |rule| rule.at);
        reader.wrong(rule_at, "no trial is left: every point is excluded", "loosen the exclusions");
        return None;
    }
    let unused = written.rules.iter().filter(|rule| !rule.is_used.get());
    let unused_rules = unused.map(|rule| reader.place(rule.at)).collect();
    let run = run?;
    check::check_learnt(reader, &expanded.trials);
    check::check_command(reader, &run, places, &expanded);
    train::check(reader, &run, sweep.seed, places, &expanded);
    check::check_signal(reader, &run, places, &expanded.trials);
    let base = written.wish.settle(None, &Wish::default());
    let resources = Arc::new(base.unwrap_or_else(|_| written.wish.unsettled()));
    Some(Plan {
        name: sweep.name?,
        root: sweep.root,
        seed: sweep.seed,
        shared: sweep.shared,
        readers: sweep.readers,
        run,
        resources,
        schedule,
        feeder: written.feeder,
        retry: written.retry,
        snapshot: written.snapshot,
        trials: expanded.trials,
        listed: written.listed,
        unused_rules,
    })
}

/// For each axis group whether chains run along it; empty without `chain_along`.
fn chain_groups(
    reader: &mut Reader<'_>,
    schedule: &Schedule,
    at: usize,
    written: &Written,
) -> Option<Vec<bool>> {
    if schedule.chain_along.is_empty() {
        return Some(Vec::new());
    }
    let n_before = reader.n_faults();
    let names = || written.groups.iter().flat_map(|group| &group.axes).map(|axis| &*axis.name);
    for name in &schedule.chain_along {
        if !names().any(|known| known == name) {
            let axis_names: Vec<&str> = names().collect();
            let hint = match axis_names.as_slice() {
                [] => "chains along an axis need a `[grid]`".to_owned(),
                axis_names => words::suggestion(name, axis_names, "the axes are"),
            };
            reader.wrong(at, format!("`chain_along` names no axis `{name}`"), hint);
        }
    }
    let has_task = written.defaults.task.is_some()
        || written.given.iter().any(|given| given.task.is_some())
        || names().any(|name| name == "task_id");
    if has_task {
        let hint = "both make chains: keep `chain_along`, or every `task_id`";
        reader.wrong(at, "`chain_along` and `task_id` are given together", hint);
    }
    (reader.n_faults() == n_before).then(|| {
        written
            .groups
            .iter()
            .map(|group| {
                group
                    .axes
                    .iter()
                    .any(|axis| schedule.chain_along.iter().any(|name| **name == *axis.name))
            })
            .collect()
    })
}

const _: () = assert!(MAX_TRIALS < u32::MAX as u64);

#[cfg(test)]
mod tests {
    use crate::base::host::gpus::DeviceId;
    use crate::plan::testing::{check_faults, check_plan_faults, params, tasks};
    use crate::plan::{OnFailure, Resources};

    use super::*;

    #[test]
    fn the_documented_jdit_example_is_three_trials_in_two_chains() {
        // Rows J1 and J9: task 1 runs lr 1e-3, then 1e-4, on device 0; task 2 beside it on 2 and 3.
        let plan = parse(
            "version = 1
sweep.name = \"jdit\"
run.command = [\"train\", \"{{ lr }}\"]
[[trials]]
task_id = 1
lr = 1e-3
gpu_ids_abs = [0]
[[trials]]
task_id = 1
lr = 1e-4
gpu_ids_abs = [0]
[[trials]]
task_id = 2
lr = 1e-5
gpu_ids_abs = [2, 3]
",
            "plan.toml",
        )
        .unwrap();
        assert_eq!(tasks(&plan), ["1", "1", "2"]);
        let lr: Vec<String> =
            plan.trials.iter().map(|t| t.params.get("lr").unwrap().to_string()).collect();
        assert_eq!(lr, ["0.001", "0.0001", "1e-5"]);
        let gpus: Vec<_> = plan.trials.iter().map(|t| t.gpu_ids_abs.clone().unwrap()).collect();
        let named = |ids: &[u32]| ids.iter().copied().map(DeviceId::Index).collect::<Arc<[_]>>();
        assert_eq!(gpus, [named(&[0]), named(&[0]), named(&[2, 3])]);
        let lines: Vec<u32> = plan.trials.iter().map(|t| t.line).collect();
        assert_eq!(lines, [4, 8, 12]);
    }

    #[test]
    fn the_plan_of_the_contract_is_read() {
        let text = r#"version = 1

[sweep]
name = "demo"                 # also the folder under root
root = "results"
seed = 1

[run]
command = ["python3", "train.py", "--lr", "{{ lr }}"]
workdir = "."
setup = ["source venv/bin/activate"]
modules = ["cuda/12.4"]
env = { OMP_NUM_THREADS = "4" }
on_failure = "stop"
attempts = 1

[resources]
nodes = 1
ranks = 1
cpus_per_rank = 1
gpus_per_rank = 0
memory = "2G"
walltime = "00:10:00"
partition = "main"

[defaults]
epochs = 3

[[trials]]
task_id = 1
lr = 1e-3
gpu_ids_abs = [0]

[grid]
width = [16, 32]
dropout = [0.0, 0.5]
"#;
        let plan = parse(text, "plan.toml").unwrap();
        assert_eq!(
            params(&plan),
            [
                r#"{"epochs":3,"lr":0.001,"width":16,"dropout":0.0}"#,
                r#"{"epochs":3,"lr":0.001,"width":16,"dropout":0.5}"#,
                r#"{"epochs":3,"lr":0.001,"width":32,"dropout":0.0}"#,
                r#"{"epochs":3,"lr":0.001,"width":32,"dropout":0.5}"#,
            ]
        );
        assert_eq!(tasks(&plan), ["1"; 4]);
        let base = Resources {
            memory_mib: Some(2048),
            walltime_s: Some(600),
            partition: Some("main".into()),
            ..Resources::default()
        };
        assert_eq!(*plan.resources, base);
        assert_eq!(*plan.trials[3].resources, Resources { gpus: Some(1), ..base });
        assert_eq!(plan.run.on_failure, OnFailure::Stop);
    }

    #[test]
    fn unknown_tables_are_refused_with_the_nearest() {
        check_faults(
            "[trails]\nx = 1\n[[grid]]\na = [1]",
            "the plan has no key `trails`
  plan.toml:4: [trails]
hint: did you mean `trials`?
error: `grid` must be a table, not a list
  plan.toml:6: [[grid]]",
        );
    }

    #[test]
    fn faults_of_different_tables_are_told_at_once() {
        check_faults(
            "run.env.B = \"{{ lrr }}\"\nsweep.rot = 1\n[grid]\nlr = [1]\n[[exclude]]\nlrx = 1\n",
            "`env.B`: `lrr` is not a name of this plan
  plan.toml:4: run.env.B = \"{{ lrr }}\"
hint: did you mean `lr`?
error: `[sweep]` has no key `rot`
  plan.toml:5: sweep.rot = 1
hint: did you mean `root`?
error: `[[exclude]]`: `lrx` is not a name of this plan
  plan.toml:9: lrx = 1
hint: did you mean `lr`?",
        );
    }

    #[test]
    fn wrong_toml_is_told_with_its_lines_and_without_consequences() {
        check_plan_faults(
            "version = 1\n[sweep\nname = \"x\"\n[run]\ncommand = [\"a\", \"b]\n",
            "this is not TOML: unclosed table, expected `]`
  plan.toml:2: [sweep
error: this is not TOML: unclosed array, expected `]`
  plan.toml:5: command = [\"a\", \"b]
hint: the list that begins in line 5 is not closed: is its `]` missing?",
        );
        check_faults(
            "[defaults]\nlr = 1\nlr = 2",
            "the same key or table is written twice
  plan.toml:6: lr = 2
hint: keep one of the two; a table's keys stand under one heading",
        );
    }

    #[test]
    fn values_that_no_program_could_take_are_refused() {
        check_faults(
            "[defaults]\na = 99999999999999999999\nb = 1e999\nc = \"x\\u0000\"",
            "`99999999999999999999` does not fit into 64 bits
  plan.toml:5: a = 99999999999999999999
hint: write it as a float or as a string
error: `1e999` is beyond the largest float
  plan.toml:6: b = 1e999
hint: write `inf`, or a string
error: `c` holds a NUL character
  plan.toml:7: c = \"x\\u0000\"
hint: no program can be given one: remove it",
        );
    }

    #[test]
    fn many_faults_are_counted() {
        let lines: Vec<String> = (0..60).map(|i| format!("x{i} = 1")).collect();
        let error = crate::plan::parse(&lines.join("\n"), "plan.toml").unwrap_err().to_string();
        assert_eq!(error.matches("error: ").count(), 50);
        assert!(
            error.ends_with("error: 13 further faults in `plan.toml`\nhint: fix these first"),
            "{error}"
        );
    }

    #[test]
    fn long_lines_are_cut() {
        let long = "x".repeat(200);
        let head: String = format!("bad = \"{long}").chars().take(120).collect();
        check_faults(
            &format!("bad = \"{long}\""),
            &format!(
                "the plan has no key `bad`
  plan.toml:4: {head}...
hint: known here: `version`, `sweep`, `run`, `train`, `metrics`, `hooks`, `resources`, `schedule`, `pull`, `feeder`, `retry`, `snapshot`, `container`, `defaults`, `trials`, `grid`, `zip`, `exclude`, `replicates` and `sample`"
            ),
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[a-z\\[\\]={}\"., \n0-9]{0,80}") {
            let _ = parse(&text, "plan.toml");
            let _ = parse(&format!("version = 1\n[grid]\n{text}"), "plan.toml");
        }
    }
}
