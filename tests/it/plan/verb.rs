//! `hpcsweep plan`: what a plan would do, whole; all that is wrong with one; nothing written.

use crate::support::plans::JDIT;
use crate::support::slurm::add_slurm;
use crate::support::world::{PROGRAM, World};

/// The documented MultiRunner example: 3 x 2 x 3 points.
const MULTIRUNNER: &str = r#"version = 1
[sweep]
name = "multirunner"
[run]
command = ["python3", "train.py"]
[grid]
batch_size = [16, 64, 256]
hidden_layer_number = [1, 2]
learning_rate = [0.001, 0.01, 0.1]
"#;

#[test]
fn the_jdit_example_is_two_chains_with_its_table_of_times() {
    let world = World::new();
    world.write("plan.toml", JDIT);
    let expected = "\
sweep jdit: 3 trials in 2 chains, the longest of 2 links

trial  task_id  link      lr  gpu_ids_abs
    0        1     0   0.001  [0]
    1        1     1  0.0001  [0]
    2        2     0    1e-5  [2,3]

time  task_id 1          task_id 2
t     lr=0.001 gpu=[0]   lr=1e-5 gpu=[2,3]
t+1   lr=0.0001 gpu=[0]

array  block  link  elements  after                        request
    1      0     0         1  -                            nodes=1 ranks=1 cpus_per_rank=1 gpus=1 walltime=01:00:00
    2      0     1         1  array 1, element by element  nodes=1 ranks=1 cpus_per_rank=1 gpus=1 walltime=01:00:00
    3      1     0         1  -                            nodes=1 ranks=1 cpus_per_rank=1 gpus=2 walltime=01:00:00

directives of array 1:
  #SBATCH --job-name='jdit.<token>.1'
  #SBATCH --array=0-0
  #SBATCH --output=$WORLD/results/jdit/logs/jobs/0001/%a.log
  #SBATCH --open-mode=append
  #SBATCH --nodes=1
  #SBATCH --ntasks=1
  #SBATCH --cpus-per-task=1
  #SBATCH --gres=gpu:1
  #SBATCH --time=01:00:00

directives of array 3:
  #SBATCH --job-name='jdit.<token>.3'
  #SBATCH --array=0-0
  #SBATCH --output=$WORLD/results/jdit/logs/jobs/0003/%a.log
  #SBATCH --open-mode=append
  #SBATCH --nodes=1
  #SBATCH --ntasks=1
  #SBATCH --cpus-per-task=1
  #SBATCH --gres=gpu:2
  #SBATCH --time=01:00:00

scheduler calls to submit: 5 (3 of sbatch, arrays of at most 1,001 elements)
core-hours asked for: 3.00
GB-hours asked for: unknown (no memory)
GPU-hours asked for: 4.00
exit code 0
";
    assert_eq!(world.run(&["plan", "plan.toml"]).whole(), expected);
    // A dry run asks the scheduler, too.
    add_slurm(&world);
    let expected = expected.replace(
        "exit code 0",
        "expected start: 2026-01-02 03:04:05; what starts then ends within 02:00:00\nexit code 0",
    );
    assert_eq!(world.run(&["submit", "plan.toml", "--slurm", "--dry-run"]).whole(), expected);
    let asked = world.read("calls").lines().last().unwrap_or_default().to_owned();
    assert_eq!(
        asked,
        "sbatch --test-only --nodes=1 --ntasks=1 --cpus-per-task=1 --gres=gpu:1 --time=01:00:00 --wrap=true"
    );
}

#[test]
fn the_multirunner_example_is_eighteen_trials_last_axis_fastest() {
    let world = World::new();
    world.write("plan.toml", MULTIRUNNER);
    let expected = "\
sweep multirunner: 18 trials in 18 chains, the longest of 1 link

trial  task_id  link  batch_size  hidden_layer_number  learning_rate
    0  -           0          16                    1          0.001
    1  -           0          16                    1           0.01
    2  -           0          16                    1            0.1
    3  -           0          16                    2          0.001
    4  -           0          16                    2           0.01
    5  -           0          16                    2            0.1
    6  -           0          64                    1          0.001
    7  -           0          64                    1           0.01
    8  -           0          64                    1            0.1
    9  -           0          64                    2          0.001
   10  -           0          64                    2           0.01
   11  -           0          64                    2            0.1
   12  -           0         256                    1          0.001
   13  -           0         256                    1           0.01
   14  -           0         256                    1            0.1
   15  -           0         256                    2          0.001
   16  -           0         256                    2           0.01
   17  -           0         256                    2            0.1

array  block  link  elements  after  request
    1      0     0        18  -      nodes=1 ranks=1 cpus_per_rank=1

directives of array 1:
  #SBATCH --job-name='multirunner.<token>.1'
  #SBATCH --array=0-17
  #SBATCH --output=$WORLD/results/multirunner/logs/jobs/0001/%a.log
  #SBATCH --open-mode=append
  #SBATCH --nodes=1
  #SBATCH --ntasks=1
  #SBATCH --cpus-per-task=1

scheduler calls to submit: 3 (1 of sbatch, arrays of at most 1,001 elements)
core-hours asked for: unknown (no walltime)
GB-hours asked for: unknown (no walltime)
GPU-hours asked for: 0.00
exit code 0
";
    assert_eq!(world.run(&["plan", "plan.toml"]).whole(), expected);
}

#[test]
fn json_says_the_same_to_programs() {
    let world = World::new();
    world.write("plan.toml", JDIT);
    let ran = world.run(&["plan", "plan.toml", "--json"]);
    let expected = serde_json::json!({
        "sweep": "jdit",
        "root": "results",
        "trials": [
            {"trial": 0, "task_id": "1", "chain": 0, "link": 0, "gpu_ids_abs": [0], "params": {"lr": 0.001}},
            {"trial": 1, "task_id": "1", "chain": 0, "link": 1, "gpu_ids_abs": [0], "params": {"lr": 0.0001}},
            {"trial": 2, "task_id": "2", "chain": 1, "link": 0, "gpu_ids_abs": [2, 3], "params": {"lr": 1e-5}},
        ],
        "chains": ["1", "2"],
        "arrays": [
            array(1, 0, 0, None, 1), array(2, 0, 1, Some(1), 1), array(3, 1, 0, None, 2),
        ],
        "scheduler_calls": 5,
        "scheduler": "slurm",
        "submit_calls": 3,
        "chains_as": "elementwise",
        "chains_why": "",
        "pilots": null,
        "max_array_size": 1001,
        "core_hours": 3.0,
        "gb_hours": null,
        "gpu_hours": 4.0,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(ran.ok()).unwrap(), expected);
    // A dry run says the same of them, and more.
    let dry = world.run(&["submit", "plan.toml", "--slurm", "--dry-run", "--json"]);
    let dry: serde_json::Value = serde_json::from_str(dry.ok()).unwrap();
    let said = |name: &str| (name.to_owned(), dry[name].clone());
    let both: serde_json::Map<_, _> =
        expected.as_object().unwrap().keys().map(|k| said(k)).collect();
    let mut both = serde_json::Value::Object(both);
    for trial in both["trials"].as_array_mut().unwrap() {
        assert_eq!(trial.as_object_mut().unwrap().remove("state"), Some("new".into()));
    }
    assert_eq!(both, expected);
}

fn array(number: u32, block: u32, link: u32, after: Option<u32>, gpus: u32) -> serde_json::Value {
    serde_json::json!({
        "array": number, "block": block, "link": link, "count": 1, "links": 1, "after": after,
        "wait": [],
        "directives": [
            format!("--job-name='jdit.<token>.{number}'"),
            "--array=0-0",
            format!("--output=$WORLD/results/jdit/logs/jobs/000{number}/%a.log"),
            "--open-mode=append",
            "--nodes=1",
            "--ntasks=1",
            "--cpus-per-task=1",
            format!("--gres=gpu:{gpus}"),
            "--time=01:00:00",
        ],
    })
}

#[test]
fn every_fault_of_a_plan_is_reported_at_once() {
    let world = World::new();
    world.write(
        "plan.toml",
        r#"version = 1
[sweep]
nam = "x"
[run]
command = "train.py"
workdir = 3
on_failure = "halt"
attempts = 0
[resources]
nodes = 0
waltime = "1"
memory = "lots"
[grid]
lr = []
width = 3
[[trials]]
gpu_ids_abs = [-1]
[gird]
"#,
    );
    let expected = "\
error: the sweep has no name
  plan.toml
hint: write `name = \"demo\"` under `[sweep]`
error: `[sweep]` has no key `nam`
  plan.toml:3: nam = \"x\"
hint: did you mean `name`?
error: `command` must be a list of strings, not a string
  plan.toml:5: command = \"train.py\"
hint: write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; for shell code, `[\"sh\", \"-c\", \"...\"]`
error: `workdir` must be a string, not an integer
  plan.toml:6: workdir = 3
error: `on_failure` has no setting `halt`
  plan.toml:7: on_failure = \"halt\"
hint: write one of `stop` and `continue`
error: `attempts` cannot be 0
  plan.toml:8: attempts = 0
hint: write a number from 1 to 4294967295
error: `nodes` cannot be 0
  plan.toml:10: nodes = 0
hint: write a number from 1 to 10000000
error: `[resources]` has no key `waltime`
  plan.toml:11: waltime = \"1\"
hint: did you mean `walltime`?
error: `memory` cannot be `lots`
  plan.toml:12: memory = \"lots\"
hint: write a number with its unit: `500M`, `2G`, `1T`
error: axis `lr` has no values
  plan.toml:14: lr = []
hint: give at least one value, or remove the axis
error: axis `width` is an integer, not a list of values
  plan.toml:15: width = 3
hint: write `width = [...]`, or move a fixed value to `[defaults]`
error: `gpu_ids_abs` must be a list of devices
  plan.toml:17: gpu_ids_abs = [-1]
hint: write numbers from 0 or UUIDs: `[0, 1]`, `[\"GPU-8932f937\"]`, `[\"MIG-...\"]`
error: the plan has no key `gird`
  plan.toml:18: [gird]
hint: did you mean `grid`?
exit code 2
";
    assert_eq!(world.run(&["plan", "plan.toml"]).whole(), expected);
    // No other command accepts the plan, and no sweep is created.
    assert_eq!(world.run(&["submit", "plan.toml", "--local"]).whole(), expected);
    assert_eq!(world.run(&["submit", "plan.toml", "--slurm"]).whole(), expected);
    assert!(!world.exists("results"));
}

#[test]
fn a_name_that_the_command_does_not_know_is_refused_with_the_nearest() {
    let world = World::new();
    let plan = MULTIRUNNER.replace("\"train.py\"", "\"train.py\",\n  \"{{ batchsize }}\"");
    world.write("plan.toml", &plan);
    assert_eq!(
        world.run(&["plan", "plan.toml"]).whole(),
        "\
error: `command[2]`: `batchsize` is not a name of this plan
  plan.toml:6: \"{{ batchsize }}\"]
hint: did you mean `batch_size`?
exit code 2
"
    );
}

#[test]
fn a_plan_that_is_not_there_or_no_toml_is_the_requests_fault() {
    let world = World::new();
    assert_eq!(
        world.run(&["plan", "nowhere.toml"]).whole(),
        "\
error: cannot read the plan `nowhere.toml`: no such file or directory
hint: `hpcsweep init NAME` makes a project with a plan to begin with
exit code 2
"
    );
    world.write("plan.toml", "version = 1\n[sweep\n");
    let ran = world.run(&["plan", "plan.toml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("plan.toml:2: [sweep"), "{}", ran.err);
}

#[test]
fn a_plan_in_another_form_is_one_error() {
    let world = World::new();
    let as_toml = "write `key = value` below the name of its table, `[table]`";
    let as_script = "give a plan, or a Python script that calls `hpcsweep.Sweep`";
    for (text, form, hint) in [
        ("version: 1\nsweep:\n  name: a\n", "YAML", as_toml),
        ("# a plan\n---\nsweep:\n  - a\n", "YAML", as_toml),
        ("sweep: {name: a}\ngrid:\n  lr: [1, 2]\n", "YAML", as_toml),
        ("{\n \"version\": 1\n}\n", "JSON", as_toml),
        ("{\n \"cells\": [],\n \"nbformat\": 4\n}\n", "a notebook", as_script),
    ] {
        world.write("plan.toml", text);
        let first = text.lines().next().unwrap_or_default();
        let expected = format!(
            "error: this is {form}, not TOML\n  plan.toml:1: {first}\nhint: {hint}\nexit code 2\n"
        );
        assert_eq!(world.run(&["plan", "plan.toml"]).whole(), expected);
    }
}

#[test]
fn a_string_that_is_not_closed_is_one_error_of_a_plan_and_of_a_profile() {
    let world = World::new();
    let check = |args: &[&str], place: &str| {
        let expected = format!(
            "error: this is not TOML: invalid basic string, expected `\"`\n  {place}\n\
             hint: a string ends in the line in which it begins: is its `\"` missing?\nexit code 2\n"
        );
        assert_eq!(world.run(args).whole(), expected);
    };
    world.write("plan.toml", &MULTIRUNNER.replace("\"train.py\"", "\"train.py"));
    check(&["plan", "plan.toml"], "plan.toml:5: command = [\"python3\", \"train.py]");
    world.write("plan.toml", &MULTIRUNNER.replace("\"multirunner\"", "\"multirunner"));
    check(&["plan", "plan.toml"], "plan.toml:3: name = \"multirunner");
    world.write("plan.toml", MULTIRUNNER);
    let profile =
        "version = 1\n[scheduler]\nlauncher = [\"srun]\nkind = \"slurm\"\n[limits]\nsettle_s = 3\n";
    world.write("home/config/hpcsweep/site.toml", profile);
    let place = "$WORLD/home/config/hpcsweep/site.toml:3: launcher = [\"srun]";
    check(&["plan", "plan.toml"], place);
}

#[test]
fn equal_trials_are_named() {
    let world = World::new();
    let plan = |axes: &str| {
        format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[grid]\n{axes}")
    };
    let check = |axes: &str, expected: &str| {
        world.write("plan.toml", &plan(axes));
        let ran = world.run(&["plan", "plan.toml"]);
        assert_eq!((ran.code, &*ran.err), (0, expected), "{axes}");
        let ran = world.run(&["submit", "plan.toml", "--dry-run"]);
        assert_eq!((ran.code, &*ran.err), (0, expected), "{axes}");
        let ran = world.local(&plan(axes), &[]);
        assert!(ran.code == 0 && ran.err.starts_with(expected), "{}", ran.whole());
    };
    check("lr = [0.1, 0.2]\n", "");
    let equal = "warning: the plan has equal trials, and each of them runs:";
    check("lr = [0.1, 0.1]\n", &format!("{equal} 0-1 (lr=0.1)\n"));
    check(
        "lr = [0.1, 0.2, 0.1]\nn = [1, 1]\n",
        &format!("{equal} 0-1,4-5 (lr=0.1 n=1); 2-3 (lr=0.2 n=1)\n"),
    );
    check(
        "lr = [1, 2, 3, 4, 5, 6, 7]\nn = [1, 1]\n",
        &format!(
            "{equal} 0-1 (lr=1 n=1); 2-3 (lr=2 n=1); 4-5 (lr=3 n=1); 6-7 (lr=4 n=1); 8-9 (lr=5 n=1); and 2 groups \
             more\n"
        ),
    );
}

#[test]
fn planning_writes_nothing() {
    let world = World::new();
    world.write("plan.toml", JDIT);
    let before = world.files(".");
    for args in [
        &["plan", "plan.toml"][..],
        &["plan", "plan.toml", "--json"],
        &["plan", "plan.toml", "--all"],
        &["submit", "plan.toml", "--dry-run"],
        &["submit", "plan.toml", "--local", "--dry-run", "--json"],
    ] {
        world.run(args).ok();
    }
    assert_eq!(world.files("."), before);
    assert!(!world.exists("results"));
}

#[test]
fn a_grid_makes_chains_by_a_templated_task_id() {
    let world = World::new();
    world.write(
        "plan.toml",
        r#"version = 1
[sweep]
name = "folds"
[run]
command = ["true"]
[defaults]
task_id = "fold{{ fold }}"
[grid]
fold = [1, 2]
lr = [0.1, 0.2]
"#,
    );
    let ran = world.run(&["plan", "plan.toml"]);
    let table = "\
time  task_id fold1  task_id fold2
t     fold=1 lr=0.1  fold=2 lr=0.1
t+1   fold=1 lr=0.2  fold=2 lr=0.2
";
    assert!(ran.ok().contains(table), "{}", ran.out);
    let arrays = "\
array  block  link  elements  after                        request
    1      0     0         2  -                            nodes=1 ranks=1 cpus_per_rank=1
    2      0     1         2  array 1, element by element  nodes=1 ranks=1 cpus_per_rank=1
";
    assert!(ran.out.contains(arrays), "{}", ran.out);
}

#[test]
fn excluded_and_replicated_points_are_counted_right() {
    let world = World::new();
    world.write(
        "plan.toml",
        r#"version = 1
[sweep]
name = "more"
[run]
command = ["true"]
[grid]
a = [1, 2, 3]
b = [1, 2]
[zip]
c = ["x", "y"]
d = [10, 20]
[[exclude]]
a = 2
b = 1
"#,
    );
    let ran = world.run(&["plan", "plan.toml", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(ran.ok()).unwrap();
    let points: Vec<String> = plan["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let p = &t["params"];
            format!("{}{}{}{}", p["a"], p["b"], p["c"].as_str().unwrap(), p["d"])
        })
        .collect();
    assert_eq!(
        points,
        ["11x10", "11y20", "12x10", "12y20", "22x10", "22y20", "31x10", "31y20", "32x10", "32y20"]
    );
}

#[test]
fn arrays_stay_below_the_sites_largest_index() {
    let world = World::new();
    world.write("home/config/hpcsweep/site.toml", "version = 1\n[limits]\nmax_array_size = 4\n");
    world.write("plan.toml", MULTIRUNNER);
    let ran = world.run(&["plan", "plan.toml"]);
    let arrays = "\
array  block  link  elements  after  request
    1      0     0         4  -      nodes=1 ranks=1 cpus_per_rank=1
    2      1     0         4  -      nodes=1 ranks=1 cpus_per_rank=1
    3      2     0         4  -      nodes=1 ranks=1 cpus_per_rank=1
    4      3     0         4  -      nodes=1 ranks=1 cpus_per_rank=1
    5      4     0         2  -      nodes=1 ranks=1 cpus_per_rank=1
";
    assert!(ran.ok().contains(arrays), "{}", ran.out);
    assert!(
        ran.out
            .contains("scheduler calls to submit: 7 (5 of sbatch, arrays of at most 4 elements)\n")
    );
    // A cap makes arrays smaller, never larger than the scheduler's own limit.
    for (cap, most) in [("3", "3"), ("5000", "1,001")] {
        let profile = format!("version = 1\n[caps]\nmax_array_size = {cap}\n");
        world.write("home/config/hpcsweep/site.toml", &profile);
        let said = world.run(&["plan", "plan.toml"]).ok().to_owned();
        assert!(said.contains(&format!("arrays of at most {most} elements)\n")), "{said}");
    }
}

#[test]
fn a_million_trials_are_planned_within_a_gibibyte() {
    let world = World::new();
    let axis = (0..1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    world.write(
        "plan.toml",
        &format!(
            "version = 1\n[sweep]\nname = \"million\"\n[run]\ncommand = [\"true\", \"{{{{ a }}}}\"]\n\
             [grid]\na = [{axis}]\nb = [{axis}]\n"
        ),
    );
    let ran = world.run(&["plan", "plan.toml"]);
    let out = ran.ok();
    // The most that any program took which these tests have waited for, this one among them.
    use nix::sys::resource::{UsageWho, getrusage};
    let kib = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(kib < 1 << 20, "{kib} KiB");
    let head = "sweep million: 1,000,000 trials in 1,000,000 chains, the longest of 1 link\n";
    assert!(out.starts_with(head), "{}", &out[..200]);
    assert!(out.contains("... and 999,980 more (--all shows them)\n"), "{out}");
    assert!(out.contains("scheduler calls to submit: 1,002 (1,000 of sbatch,"), "{out}");
}

#[test]
fn a_folder_whose_name_is_not_utf8_is_refused_and_nothing_is_made() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let folder = world.path("").join(std::ffi::OsStr::from_bytes(b"p\xff"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("plan.toml"), crate::support::plans::shell("true", "")).unwrap();
    for args in [&["plan", "plan.toml"][..], &["submit", "plan.toml", "--local"]] {
        let output = world.command(PROGRAM).args(args).current_dir(&folder).output().unwrap();
        let said = world.shown(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("has a name that is not UTF-8\nhint: plans and results lie"),
            "{said}"
        );
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_list_of_trials_that_is_not_there_is_named_with_its_place() {
    let world = World::new();
    world.write(
        "plan.toml",
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[trials]\nfile = \"gone.json\"\n",
    );
    assert_eq!(
        world.run(&["plan", "plan.toml"]).whole(),
        "error: cannot read `gone.json`: no such file or directory\n  plan.toml:7: file = \"gone.json\"\n\
         hint: a relative path starts from the folder of the plan\nexit code 2\n"
    );
}

#[test]
fn rules_without_effect_are_named() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[grid]\na = [1, 2]\n[[exclude]]\na = 3\n";
    world.write("plan.toml", plan);
    let said = "warning: an `[[exclude]]` leaves out no combination that the others do not\n  \
                plan.toml:8: [[exclude]]\n";
    let ran = world.run(&["plan", "plan.toml"]);
    assert_eq!((ran.err.as_str(), ran.code), (said, 0));
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert!(ran.err.starts_with(said) && ran.code == 0, "{}", ran.whole());
    world.write("plan.toml", &plan.replace("a = 3", "a = 2"));
    assert_eq!(world.run(&["plan", "plan.toml"]).err, "");
}
