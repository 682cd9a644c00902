//! `submit --dry-run`: what would be done now, and then is.

use serde_json::json;

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::slurm_sweep::answer;
use crate::support::world::World;

const CODE: &str = "[ {{ n }} != 2 ] || [ -e now ]";

fn plan(values: &str) -> String {
    shell(CODE, &format!("[grid]\nn = [{values}]\n"))
}

/// Its lines about this machine.
fn here() -> String {
    match std::thread::available_parallelism().unwrap().get() {
        1 => "on this machine: one at a time, 1 core\n".to_owned(),
        n => format!("on this machine: {n} at a time, {n} cores\n"),
    }
}

/// The output of a dry run, which writes nothing.
fn dry(world: &World, args: &[&str]) -> String {
    let before = world.files("results");
    let ran = world.run(&[&["submit", "plan.toml", "--dry-run"], args].concat());
    assert_eq!(world.files("results"), before);
    ran.whole()
}

#[test]
fn a_dry_run_here_says_which_trials_would_run() {
    let world = World::new();
    world.local(&plan("1, 2"), &[]);
    let head = "sweep s is in $WORLD/results/s\n";
    let same = format!(
        "{head}nothing would be done\nleft alone: 1 trial (done)\nleft alone: 1 trial (failed)\nexit code 0\n"
    );
    assert_eq!(dry(&world, &["--local"]), same);
    world.write("plan.toml", &plan("2, 3"));
    let here = here();
    let grown = format!(
        "{head}would run: 1 trial (new)\nleft alone: 1 trial (failed)\n\
         1 trial of earlier plans is not in this one: left alone\n\n\
         trial  state  parameters\n    2  new    n=3\n\n{here}exit code 0\n"
    );
    assert_eq!(dry(&world, &["--local"]), grown);
    let retried = format!(
        "{head}would run: 1 trial (new)\nwould run: 1 trial (failed)\n\
         1 trial of earlier plans is not in this one: left alone\n\n\
         trial  state   parameters\n    1  failed  n=2\n    2  new     n=3\n\n{here}exit code 0\n"
    );
    assert_eq!(dry(&world, &["--local", "--retry"]), retried);
    let said: serde_json::Value =
        serde_json::from_str(dry(&world, &["--local", "--json"]).lines().next().unwrap()).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let expected = json!({
        "sweep": "s", "root": "results", "dir": world.path("results/s"), "exists": true,
        "scheduler": null,
        "trials": [{"trial": 2, "state": "new", "task_id": null, "chain": 2, "link": 0,
            "gpu_ids_abs": null, "params": {"n": 3}}],
        "chains": [null], "left": {"failed": 1}, "dropped": 1, "shard": null,
        "arrays": [], "chains_as": null, "chains_why": "", "max_array_size": null,
        "submit_calls": 0, "scheduler_calls": 0, "units": null, "pilots": null, "slots": null,
        "at_once": cores, "cores": cores, "gpus": "", "core_hours": null, "gb_hours": null, "gpu_hours": 0.0,
        "submissions": null, "refused": null, "expected_start": null, "code": null,
        "notes": ["1 trial of earlier plans is not in this one: left alone"],
    });
    let shown = said.to_string().replace("$WORLD", world.text_path("").trim_end_matches('/'));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), expected);
    // It is what is done then.
    world.write("now", "");
    world.run(&["submit", "plan.toml", "--local", "--retry"]).ok();
    assert_eq!(
        world.files("results/s/records"),
        ["000/0.1.jsonl", "000/1.1.jsonl", "000/1.2.jsonl", "000/2.1.jsonl"]
    );
}

#[test]
fn a_dry_run_for_a_scheduler_says_which_arrays_would_be_submitted() {
    let world = slurm();
    world.write("plan.toml", &plan("1, 2"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "squeue", "101_0|RUNNING|None|x\n101_1|FAILED|NonZeroExitCode|x\n");
    world.write("plan.toml", &plan("1, 2, 3, 4"));
    let head = "sweep s is in $WORLD/results/s\nwould be submitted: 2 trials (new)\n";
    let array = |elements| {
        format!(
            "\narray  link  elements  after  request\n    2     0         {elements}  -      \
             nodes=1 ranks=1 cpus_per_rank=1\nexpected start: 2026-01-02 03:04:05\nexit code 0\n"
        )
    };
    let grown = format!(
        "{head}left alone: 1 trial (failed)\nleft alone: 1 trial (running)\n\n\
         trial  state  parameters\n    2  new    n=3\n    3  new    n=4\n{}",
        array(2)
    );
    assert_eq!(dry(&world, &["--slurm"]), grown);
    let retried = format!(
        "{head}would be submitted: 1 trial (failed)\nleft alone: 1 trial (running)\n\n\
         trial  state   parameters\n    1  failed  n=2\n    2  new     n=3\n    3  new     n=4\n{}",
        array(3)
    );
    assert_eq!(dry(&world, &["--slurm", "--retry"]), retried);
    let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    assert!(
        ran.code == 0 && ran.err.starts_with("array 2: 3 trials as job 101\n"),
        "{}",
        ran.whole()
    );
    // It is not run here meanwhile, and a dry run says so.
    let refused = dry(&world, &["--local"]);
    assert!(refused.contains("queued or running"), "{refused}");
}

/// The limits of the cluster and of the queue shape the arrays, as in the submission.
#[test]
fn a_dry_run_shows_arrays_of_the_sizes_that_slurm_takes() {
    let world = slurm();
    let scontrol = world.read("bin/scontrol").replace("= 1001", "= 4");
    world.program("scontrol", &scontrol);
    world.write("plan.toml", &shell("true", "[grid]\nn = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"));
    let sizes = |world: &World| -> Vec<u64> {
        let said = dry(world, &["--slurm", "--json"]);
        let said: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        let arrays = said["arrays"].as_array().unwrap().iter();
        arrays.map(|array| array["count"].as_u64().unwrap()).collect()
    };
    assert_eq!(sizes(&world), [4, 4, 1]);
    // A new sweep is shown with its directives.
    let page = dry(&world, &["--slurm"]);
    let known = "#SBATCH --array=0-3\n";
    assert!(page.contains(known) && page.contains("arrays of at most 4 elements"), "{page}");
    world.write("home/config/hpcsweep/site.toml", "version = 1\n[limits]\nmax_submit_jobs = 6\n");
    assert_eq!(sizes(&world), [3, 2]);
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let wave: serde_json::Value =
        serde_json::from_str(&world.read("results/s/waves/0001.json")).unwrap();
    let submitted: Vec<&serde_json::Value> =
        wave["arrays"].as_array().unwrap().iter().map(|array| &array["count"]).collect();
    // And the feeder.
    assert_eq!(submitted, [3, 2, 1]);
    // Without an answer, the site profile decides.
    let world = slurm();
    world.program("scontrol", "#!/bin/sh\nexit 1\n");
    world.write("plan.toml", &plan("1, 2"));
    assert_eq!(sizes(&world), [2]);
}

#[test]
fn a_dry_run_says_what_the_scheduler_would_refuse() {
    let world = slurm();
    world.write("plan.toml", &plan("1, 2"));
    let words = "Memory specification can not be satisfied";
    let text = format!("#!/bin/sh\necho 'allocation failure: {words}' >&2\nexit 1\n");
    world.program("sbatch", &text);
    let said = dry(&world, &["--slurm"]);
    let line = format!("would not be taken: `sbatch` says: allocation failure: {words}\n");
    assert!(said.ends_with(&format!("{line}exit code 0\n")), "{said}");
}

#[test]
fn a_dry_run_for_agents_says_what_they_would_be_dealt() {
    let world = World::new();
    world.local(&plan("1, 2"), &["--pull"]);
    world.write("plan.toml", &plan("1, 2, 3"));
    let head = "sweep s is in $WORLD/results/s\n";
    let grown = format!(
        "{head}would run: 1 trial (new)\nleft alone: 1 trial (done)\nleft alone: 1 trial (failed)\n\n\
         trial  state  parameters\n    2  new    n=3\n\nfor agents: 1 unit\n{}exit code 0\n",
        here()
    );
    assert_eq!(dry(&world, &["--local", "--pull"]), grown);
    world.program("scontrol", "#!/bin/sh\necho no Slurm >&2\nexit 1\n");
    let said = "would be submitted: 1 pilot\n\
        places in the queue and expected start: unknown (`scontrol` says: no Slurm)\n";
    let pilots = grown.replace(&here(), said);
    let pilots = pilots.replace("would run", "would be submitted");
    assert_eq!(dry(&world, &["--slurm", "--pull"]), pilots);
    world.write("now", "");
    let again = dry(&world, &["--local", "--pull", "--retry"]);
    assert!(
        again.contains("\n    1  failed  n=2\n    2  new     n=3\n\nfor agents: 2 units\n"),
        "{again}"
    );
    let ran = world.run(&["submit", "plan.toml", "--local", "--pull", "--retry"]);
    assert!(
        ran.code == 0 && ran.err.contains("s: 2 trials in 2 units for agents"),
        "{}",
        ran.whole()
    );
    assert!(
        dry(&world, &["--local", "--pull"])
            .contains("nothing would be done\nleft alone: 3 trials (done)\n")
    );
}

/// A dry run of a new sweep prints what its submission then does, and submits nothing.
#[test]
fn a_dry_run_of_a_new_sweep_here_says_what_this_machine_would_do() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "0,1,2");
    let rest = "[resources]\ngpus_per_rank = 1\n[schedule]\ngpu_share = 2\n[grid]\nn = [1, 3]\n";
    world.write("plan.toml", &shell(CODE, rest));
    let expected = |more: &str, at_once: &str| {
        let cores = here();
        let cores = cores.trim_end().split_once(", ").unwrap().1;
        format!(
            "sweep s would be made in $WORLD/results/s\nwould run: 2 trials (new)\n\n\
             trial  state  parameters\n    0  new    n=1\n    1  new    n=3\n\n\
             {more}on this machine: {at_once} at a time, {cores}\n\
             3 GPUs to hand out, each to 2 trials at a time\nexit code 0\n"
        )
    };
    assert_eq!(dry(&world, &["-j", "5"]), expected("", "5"));
    assert_eq!(dry(&world, &["--local", "-j", "1"]), expected("", "one"));
    // So many slots have a place on a GPU.
    let agents = dry(&world, &["--local", "--pull", "--slots", "8"]);
    assert_eq!(agents, expected("for agents: 2 units\n", "6"));
}

/// One form, whatever is submitted where, and whether or not the sweep is there.
#[test]
fn every_dry_run_has_the_same_members() {
    let world = slurm();
    world.write("plan.toml", &plan("1, 2"));
    let hows: [&[&str]; 4] =
        [&["--local"], &["--slurm"], &["--local", "--pull"], &["--slurm", "--pull"]];
    let members = |how: &[&str], count: usize| {
        let said = dry(&world, &[how, &["--json"]].concat());
        let said: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(said["trials"].as_array().unwrap().len(), count, "{said}");
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let arrays = said["arrays"].as_array().unwrap();
        assert_eq!(arrays.len(), usize::from(how.contains(&"--slurm")), "{said}");
        let of_array = arrays.iter().map(names).next();
        (names(&said), names(&said["trials"][0]), of_array)
    };
    let new: Vec<_> = hows.iter().map(|how| members(how, 2)).collect();
    assert!(new.iter().all(|(all, trial, _)| (all, trial) == (&new[0].0, &new[0].1)));
    assert!(new[1].2.is_some() && new[1].2 == new[3].2);
    world.run(&["submit", "plan.toml", "--local"]);
    world.write("plan.toml", &plan("1, 2, 3"));
    assert_eq!(hows.iter().map(|how| members(how, 1)).collect::<Vec<_>>(), new);
}

/// A rehearsal refuses what the run refuses, in the same words.
#[test]
fn a_dry_run_refuses_what_the_run_refuses() {
    let world = slurm();
    let check = |text: &str, args: &[&str]| {
        world.write("plan.toml", text);
        let run = world.run(&[&["submit", "plan.toml"], args].concat());
        assert!(run.code == 2 || run.code == 4, "{}", run.whole());
        assert_eq!(dry(&world, args), run.whole());
        assert!(!world.exists("results"), "{}", run.whole());
    };
    let gpus = "[resources]\ngpus_per_rank = 1\n";
    check(&shell("true", &format!("{gpus}[schedule]\ngpu_share = 2\n")), &["--slurm"]);
    check(&shell("true", gpus), &["--local"]);
    check(&shell("true", "[[trials]]\ngpu_ids_abs = [0]\n"), &["--local", "--pull"]);
    check(&shell("true", "[resources]\nranks = 2\n"), &["--local", "--pull"]);
    check(&shell("true", ""), &["--slurm", "-j", "2"]);
    let short = "[resources]\nwalltime = \"2h\"\n[pull]\nwalltime = \"1h\"\n";
    check(&shell("true", short), &["--slurm", "--pull"]);
    world.write("results.file", "");
    let blocked =
        shell("true", "").replace("name = \"s\"", "name = \"s\"\nroot = \"results.file\"");
    check(&blocked, &["--local"]);
}
