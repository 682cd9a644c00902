//! Damage: whatever bit of a sweep's files flips, and wherever one is cut off, readers say so or show the same as
//! before. Nothing that was changed passes for what was written, and nothing panics.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hpcsweep::answers::collect;
use hpcsweep::sweep::status;
use hpcsweep::sweep::tree::Tree;
use serde_json::{Value, json};

use crate::support::faults::Dice;
use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{ROOT, World};

/// Two chains of a sweep that Slurm has; three of four trials have run, one of them in two runs.
fn given_to_slurm() -> World {
    let world = slurm();
    let code = "echo '{\"step\": 1, \"loss\": 2}' >>$HPCSWEEP_METRICS
        echo '{\"step\": 2, \"loss\": nan}' >>$HPCSWEEP_METRICS
        echo '{\"acc\": 0.5}' >$HPCSWEEP_RESULT; exit $HPCSWEEP_PARAM_CODE";
    let rest = "[grid]\nname = [\"x\", \"y\"]\ncode = [0, 3]\n[schedule]\nlocal.jobs = 1\n";
    world.write("plan.toml", &shell(code, rest).replace("local.jobs = 1", "max_running = 9"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    for index in [0, 1, 2, 1] {
        let mut command = world.command("bash");
        command.arg(world.path("results/s/jobs/0001.sh"));
        command.env("SLURM_ARRAY_TASK_ID", index.to_string());
        command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
        command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
        command.output().unwrap();
    }
    world
}

/// Two chains that an agent has run.
fn run_by_an_agent() -> World {
    let world = World::new();
    let code = "echo '{\"loss\": 2}' >>$HPCSWEEP_METRICS; echo said; exit $HPCSWEEP_PARAM_CODE";
    let rest =
        "[defaults]\ntask_id = \"{{ name }}\"\n[grid]\nname = [\"x\", \"y\"]\ncode = [0, 3]\n";
    world.write("plan.toml", &shell(code, rest));
    world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    world
}

/// What readers make of a sweep: a line a trial, and the damage that they report. An error is a word of its own.
fn seen(dir: &Path) -> Result<(BTreeMap<u64, Value>, usize), String> {
    let say = |error: anyhow::Error| error.to_string();
    let (tree, identity) = Tree::open(dir).map_err(say)?;
    let status = status::read(tree, identity, None).map_err(say)?;
    let damage = status.damage.len();
    let mut records = Vec::new();
    collect::whole::lines(&status, None, |line| {
        records.extend(serde_json::from_slice::<Value>(line));
        Ok(())
    })
    .map_err(say)?;
    let table = collect::collect(vec![status]).map_err(say)?;
    let rows = table.rows.iter().zip(records).map(|(row, record)| {
        let cell = |c: usize| (table.columns[c].clone(), table.cell(row, c).value());
        let cells: BTreeMap<String, Value> =
            (0..table.columns.len()).map(cell).filter(|(_, value)| !value.is_null()).collect();
        (row.trial, json!([cells, record]))
    });
    Ok((rows.collect(), damage))
}

/// Kinds of files that only grow: cut at the end of a line, one looks as if its writer had been killed then.
fn only_grows(file: &str) -> bool {
    ["records/", "journal/", "agents/"].iter().any(|folder| file.starts_with(folder))
}

/// Files whose contents belong to a program, or that no command reads.
fn is_checked(file: &str) -> bool {
    !["logs/", "work/", "jobs/"].iter().any(|folder| file.starts_with(folder))
        && !file.ends_with(".log")
}

/// Puts `bytes` in the place of a file and looks; what was silently changed is why this fails.
fn look(dir: &Path, file: &str, bytes: &[u8], expected: &BTreeMap<u64, Value>, what: &str) {
    let path = dir.join(file);
    let good = fs::read(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    // No writer is at work: its last line has not changed for long.
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().append(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let now = seen(dir);
    fs::write(&path, &good).unwrap();
    let Ok((rows, 0)) = now else { return };
    let cut_between_lines = bytes.is_empty() || bytes.ends_with(b"\n");
    if only_grows(file) && good.starts_with(bytes) && cut_between_lines {
        // It has no value any more, and does not say that it has ended well; or an earlier run of it looks shorter.
        let differs = |(trial, row): &(&u64, &Value)| lasting(&expected[*trial]) != lasting(row);
        for (trial, row) in rows.iter().filter(differs) {
            let state = row[0]["state"].as_str().unwrap();
            let open = ["interrupted", "running", "queued", "pending", "lost"].contains(&state);
            assert!(open, "{what} of {file}: trial {trial} is {state}");
        }
        return;
    }
    assert_eq!(rows, *expected, "{what} of {file} changes what is read, and nobody says so");
}

/// A trial without what a lost end of an earlier run changes.
fn lasting(row: &Value) -> Value {
    let mut row = row.clone();
    for part in row.as_array_mut().unwrap() {
        part.as_object_mut().unwrap().remove("duration_s");
    }
    row
}

/// Sweeps that PBS gets, by name; whether agents run them, and the rest of the plan.
const ON_PBS: [(&str, bool, &str); 7] = [
    ("chains as jobs", false, "[schedule]\nchains = \"jobs\"\n"),
    ("chains behind barriers", false, "[schedule]\nchains = \"barrier\"\n"),
    ("fused chains", false, "[schedule]\nchains = \"fused\"\n"),
    ("packed chains", false, "[schedule]\npack = 2\n"),
    ("max_running", false, "[schedule]\nmax_running = 1\n"),
    (
        "GPUs and hooks",
        false,
        "[resources]\ngpus_per_rank = 1\n[hooks]\nfinish = [\"true\"]\nerror = [\"true\"]\n",
    ),
    ("agents and copies", true, "[pull]\nrepeatable = true\n"),
];

/// The law of [`no_flipped_bit_and_no_cut_changes_what_is_read_without_a_word`] does not depend on who has run a sweep. No verb
/// that acts passes over a damaged file that says which trials and jobs there are.
#[test]
fn damage_is_met_in_the_same_way_whatever_has_run_a_sweep() {
    for (name, agents, rest) in ON_PBS {
        let pbs = pbs();
        let world = &pbs.world;
        let code = "echo '{\"loss\": 2}' >>$HPCSWEEP_METRICS; exit $HPCSWEEP_PARAM_CODE";
        let axes =
            "[defaults]\ntask_id = \"{{ name }}\"\n[grid]\nname = [\"x\", \"y\"]\ncode = [0, 3]\n";
        let pull: &[&str] = if agents { &["--pull", "--workers", "1"] } else { &[] };
        pbs.submit(&shell(code, &format!("{axes}{rest}")), pull).ok();
        pbs.wait_idle();
        let dir = world.path("results/s");
        let (expected, damage) = seen(&dir).unwrap();
        assert_eq!((expected.len(), damage), (4, 0), "{name}");
        let files = checked_files(world, "s");
        let mut random = Dice(7);
        for file in &files {
            let whole = fs::read(dir.join(file)).unwrap();
            for _ in 0..(if whole.is_empty() { 0 } else { 8 }) {
                let at = random.below(whole.len() as u64) as usize;
                let mut bytes = whole.clone();
                bytes[at] ^= 1;
                look(&dir, file, &bytes, &expected, &format!("{name}: bit 0 of byte {at}"));
                look(&dir, file, &whole[..at], &expected, &format!("{name}: a cut at {at}"));
            }
        }
        for file in of_each_kind(&files) {
            let path = dir.join(file);
            let whole = fs::read(&path).unwrap();
            let Some(at) = whole.len().checked_sub(20) else { continue };
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let (status, cancel) = (world.run(&["status"]), world.run(&["cancel"]));
            fs::write(&path, &whole).unwrap();
            assert_ne!(status.code, 0, "{name}: {file}: {}", status.whole());
            assert!(status.whole().contains(file.as_str()), "{name}: {file}: {}", status.whole());
            let says_what_jobs_there_are = ["sweep.json", "journal/", "waves/", "pull/0001.json"];
            if says_what_jobs_there_are.iter().any(|kind| file.starts_with(kind)) {
                assert_ne!(cancel.code, 0, "{name}: {file}: {}", cancel.whole());
            }
        }
    }
}

/// A job whose line is lost continues, and the user who cancels the sweep must know.
#[test]
fn a_cancellation_of_a_damaged_sweep_says_what_it_may_have_left() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let axes = "[defaults]\ntask_id = \"{{ c }}\"\n[grid]\nc = [0, 1]\na = [0, 1]\n[schedule]\nchains = \"jobs\"\n";
    pbs.submit(&shell("true", axes), &[]).ok();
    let world = &pbs.world;
    let damaged = |file: &str, in_line: &str| {
        let path = world.path("results/s").join(file);
        let whole = fs::read(&path).unwrap();
        let text = String::from_utf8(whole.clone()).unwrap();
        let line = text.rfind(in_line).unwrap();
        let end = line + text[line..].find('\n').unwrap();
        let mut bytes = whole.clone();
        bytes[end - 19] ^= 1;
        fs::write(&path, &bytes).unwrap();
        whole
    };
    let head = "trials/000000000000.json";
    let whole = damaged(head, "{");
    let refusal = format!(
        "error: `$WORLD/results/s/{head}` is damaged: its checksum does not match\n\
         hint: restore the file from a backup; the plan and the other files of the sweep are not touched\nexit code 4\n"
    );
    for verb in [&["hold"][..], &["release"], &["cancel"], &["cancel", "--trial", "3"]] {
        assert_eq!(world.run(verb).whole(), refusal);
    }
    fs::write(world.path("results/s").join(head), whole).unwrap();
    // The answer to the last call: the release of what was held comes after it.
    damaged("journal/0001.jsonl", "\"answer\"");
    let token = Tree::open(&world.path("results/s")).unwrap().1.token;
    let left = |word: &str| {
        format!(
            "warning: 1 damaged line in journal/0001.jsonl: a job that is recorded only there is not {word}; the names of \
             this sweep's jobs begin with `s.{token}.` in the queue\nexit code 1\n"
        )
    };
    // `submit` finds the job whose answer is lost by its name. Other losses cannot be detected.
    let found = "array 4: an earlier call has no answer: it is job 3.pbshead\n";
    let jobs = "4 trials: 3.pbshead 2.pbshead 1.pbshead 0.pbshead\n";
    let said = world.run(&["cancel"]).whole();
    assert_eq!(said, format!("{found}s: cancelled {jobs}{}", left("cancelled")));
    let states: Vec<String> = pbs.states().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["F"; 4]);
    pbs.wait_idle();
}

/// Up to two files of each kind.
fn of_each_kind(files: &[String]) -> Vec<&String> {
    let mut kinds: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut some = Vec::new();
    for file in files {
        let key = (file.split('/').next().unwrap(), file.rsplit('.').next().unwrap());
        let seen = kinds.entry(key).or_default();
        *seen += 1;
        some.extend((*seen <= 2).then_some(file));
    }
    some
}

fn checked_files(world: &World, sweep: &str) -> Vec<String> {
    let all = world.files(&format!("results/{sweep}"));
    all.into_iter().filter(|file| is_checked(file)).collect()
}

#[test]
fn no_flipped_bit_and_no_cut_changes_what_is_read_without_a_word() {
    let worlds = [given_to_slurm(), run_by_an_agent()];
    std::thread::scope(|scope| {
        for (seed, world) in worlds.iter().enumerate() {
            scope.spawn(move || {
                let dir = world.path("results/s");
                let (expected, damage) = seen(&dir).unwrap();
                assert_eq!((expected.len(), damage), (4, 0));
                let files = checked_files(world, "s");
                let mut random = Dice(seed as u64 + 1);
                for _ in 0..5000 {
                    let file = &files[random.below(files.len() as u64) as usize];
                    let mut bytes = fs::read(dir.join(file)).unwrap();
                    let at = random.below(bytes.len() as u64) as usize;
                    let bit = random.below(8) as u32;
                    bytes[at] ^= 1 << bit;
                    look(&dir, file, &bytes, &expected, &format!("bit {bit} of byte {at}"));
                }
                for file in of_each_kind(&files) {
                    let whole = fs::read(dir.join(file)).unwrap();
                    for cut in 0..whole.len() {
                        look(&dir, file, &whole[..cut], &expected, &format!("a cut at {cut}"));
                    }
                }
            });
        }
    });
    let kinds = |world: &World| -> Vec<String> { checked_files(world, "s") };
    let all = worlds.iter().flat_map(kinds).collect::<Vec<_>>().join(" ");
    for kind in [
        "sweep.json",
        "plan.toml",
        "plans/",
        ".idx",
        ".keys",
        "trials/",
        "waves/",
        ".map",
        "journal/",
        "records/",
        "pull/",
        ".units",
        "claims/",
        "agents/",
    ] {
        assert!(all.contains(kind), "no {kind} among {all}");
    }
}

#[test]
fn a_table_that_lost_rows_or_has_others_is_reported_and_its_trials_keep_their_numbers() {
    let world = World::new();
    world.local(&shell("exit 0", "[grid]\nlr = [1, 2, 3]\n"), &["-q"]).ok();
    let path = "results/s/trials/000000000000.jsonl";
    let good = world.read(path);
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let said = |n: u64| {
        format!(
            "warning: $WORLD/results/s: {n} damaged line{} in trials/000000000000.jsonl; left out\n",
            if n == 1 { "" } else { "s" }
        )
    };
    for (text, lost, lr) in [
        // Cut off at the end of a line, edited by a user, a line twice.
        (lines[..2].concat(), 1, "[1,2,null]"),
        (good.replace("\"lr\":2", "\"lr\":7"), 1, "[1,null,3]"),
        ([lines[0], lines[0], lines[2]].concat(), 1, "[1,null,3]"),
        (String::new(), 3, "[null,null,null]"),
    ] {
        world.write(path, &text);
        let ran = world.run(&["collect", "--format", "jsonl"]);
        let rows: Vec<Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let shown: Vec<&Value> =
            rows.iter().map(|row| row.get("lr").unwrap_or(&Value::Null)).collect();
        assert_eq!((json!(shown).to_string(), ran.code), (lr.to_owned(), 1), "{text}");
        assert_eq!(ran.err, said(lost));
        assert!(rows.iter().all(|row| row["state"] == "done"), "{rows:?}");
        // Commands that would act on it refuse.
        let ran = world.run(&["submit", "plan.toml", "--local"]);
        assert!(ran.code == 4 && ran.err.contains("is damaged"), "{}", ran.whole());
    }
}

/// The files of a sweep whose lines are numbered, and which of their lines can be removed unnoticed.
fn removable(world: &World) -> Vec<String> {
    let dir = world.path("results/s");
    let (expected, damage) = seen(&dir).unwrap();
    assert_eq!(damage, 0, "{expected:?}");
    let mut silent = Vec::new();
    for file in checked_files(world, "s").into_iter().filter(|file| only_grows(file)) {
        let good = fs::read_to_string(dir.join(&file)).unwrap();
        let lines: Vec<&str> = good.split_inclusive('\n').collect();
        for gone in 0..lines.len() {
            let rest = [&lines[..gone], &lines[gone + 1..]].concat().concat();
            fs::write(dir.join(&file), rest).unwrap();
            let is_said = seen(&dir).is_err_and(|_| true) || seen(&dir).unwrap().1 > 0;
            if !is_said {
                let event: Value = serde_json::from_str(lines[gone]).unwrap();
                silent.push(format!("{file} {}", event["event"].as_str().unwrap()));
            }
        }
        fs::write(dir.join(&file), good).unwrap();
    }
    silent
}

#[test]
fn a_line_that_is_gone_is_reported_wherever_another_file_knows_of_it() {
    // A sweep on this machine: the executor has recorded the ends. Its own last line is in the newest journal,
    // whose end no other file records.
    let world = World::new();
    let code = "echo '{\"loss\": 2}' >>$HPCSWEEP_METRICS; exit 0";
    let plan = |links: &str| {
        shell(code, &format!("[defaults]\ntask_id = \"c\"\n[grid]\nlink = {links}\n"))
    };
    world.local(&plan("[0]"), &["-q"]).ok();
    world.local(&plan("[0, 1]"), &["-q"]).ok();
    assert_eq!(removable(&world), ["journal/0002.jsonl ended"]);
    // Agents recorded how much they had written when they left.
    assert_eq!(removable(&run_by_an_agent()), ["journal/0001.jsonl site"]);
    // Jobs: a later run of a trial knows of the earlier ones, and the next of a chain of the one before it.
    let world = slurm();
    world.write("plan.toml", &plan("[0, 1]"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    for (number, times) in [(1, 1), (2, 1)] {
        for _ in 0..times {
            let mut command = world.command("bash");
            command.arg(world.path(&format!("results/s/jobs/000{number}.sh")));
            command
                .env("SLURM_ARRAY_TASK_ID", "0")
                .env("SLURM_ARRAY_JOB_ID", (100 + number).to_string());
            command.env("SLURM_JOB_ID", (100 + number).to_string());
            command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1").output().unwrap();
        }
    }
    assert_eq!(removable(&world), ["journal/0001.jsonl answer", "records/000/1.1.jsonl end"]);
    let mut runs = given_to_slurm();
    runs.set("LANG", "C");
    let silent = removable(&runs);
    assert!(!silent.iter().any(|line| line.contains("/1.1.jsonl")), "{silent:?}");
}

#[test]
fn stored_sweeps_of_this_format_are_read_as_they_were_written() {
    let source = Path::new(ROOT).join("tests/cases/tree-2");
    for sweep in ["given", "pulled"] {
        let (rows, damage) = seen(&source.join(sweep)).unwrap();
        let states: Vec<&str> =
            rows.values().map(|row| row[0]["state"].as_str().unwrap()).collect();
        assert_eq!((states, damage), (vec!["done", "failed", "done", "failed"], 0), "{sweep}");
    }
}

/// Trees that version 0.1 has written: run here, by an agent, and partly under Slurm.
#[test]
fn sweeps_of_the_first_format_are_read_and_grow() {
    let world = World::new();
    let source = Path::new(ROOT).join("tests/cases/tree-1");
    world.call("cp", &["-r", source.to_str().unwrap(), &world.text_path("results")]).ok();
    // A clone has the modes that its umask gave: a sweep that a group can write to is refused.
    world.call("chmod", &["-R", "go-w", &world.text_path("results")]).ok();
    let states = |sweep: &str| {
        let (rows, damage) = seen(&world.path(&format!("results/{sweep}"))).unwrap();
        let of = |row: &Value| format!("{} {} {}", row[0]["state"], row[0]["lr"], row[0]["loss"]);
        let all: Vec<String> = rows.values().map(of).collect();
        (all.join(", ").replace('"', ""), damage)
    };
    let skipped = "skipped 0.25 null, skipped 0.25 null, skipped 0.25 null, skipped 0.25 null";
    let ran = "done 0.5 0.5, failed 0.5 0.5, done 0.5 0.5, failed 0.5 0.5";
    let run = (format!("{ran}, {skipped}"), 0);
    assert_eq!([states("old"), states("pulled")], [run.clone(), run]);
    let waits = "queued 0.25 null, queued 0.25 null, queued 0.25 null, queued 0.25 null";
    let given = "done 0.5 0.5, queued 0.5 null, done 0.5 0.5, queued 0.5 null";
    assert_eq!(states("given"), (format!("{given}, {waits}"), 0));
    // A plan that has grown adds to them what only this version and later ones read.
    for (sweep, more) in [("old", "--local"), ("pulled", "--pull")] {
        let plan = world.read(&format!("results/{sweep}/plan.toml"));
        let plan = plan.replace("[\"x\", \"y\"]", "[\"x\", \"y\", \"z\"]").replace("[0, 3]", "[0]");
        world.write("plan.toml", &plan);
        let args: &[&str] = match more {
            "--local" => &["submit", "plan.toml", "--local", "-q"],
            _ => &["worker", "--pull", "plan.toml", "--slots", "1"],
        };
        world.run(args);
        let (states, damage) = states(sweep);
        assert_eq!(damage, 0);
        assert!(states.ends_with("done 0.5 0.5, done 0.25 0.25"), "{states}");
        let identity = world.read(&format!("results/{sweep}/sweep.json"));
        assert!(identity.starts_with("{\"format\":2,"), "{identity}");
    }
}

/// An earlier reader has taken note of all records; a record that is gone afterwards has no lines to count.
#[test]
fn a_folder_or_a_pipe_in_the_place_of_a_record_costs_its_trial_alone() {
    for make in ["mkdir", "mkfifo"] {
        let world = World::new();
        world.local(&shell("echo 1 >$HPCSWEEP_RESULT", "[grid]\na = [1, 2, 3]\n"), &["-q"]).ok();
        let record = "results/s/records/000/1.1.jsonl";
        fs::remove_file(world.path(record)).unwrap();
        world.call(make, &[record]).ok();
        let row = |trial: usize| {
            world.run(&["collect", "--format", "jsonl"]).out.lines().nth(trial).map(str::to_owned)
        };
        assert!(
            row(0).unwrap().contains("\"result\":1") && row(2).unwrap().contains("\"result\":1")
        );
        let said = "1 damaged line in records/000/1.1.jsonl";
        for verb in [
            &["status"][..],
            &["collect"],
            &["why", "1"],
            &["why"],
            &["usage"],
            &["submit", "plan.toml", "--local", "--dry-run"],
        ] {
            let ran = world.run(verb);
            assert!(ran.whole().contains(said), "{verb:?}: {}", ran.whole());
            // An answer that leaves something out says so also to scripts.
            let is_answer = verb[0] != "submit";
            assert_eq!(ran.code, i32::from(is_answer), "{verb:?}: {}", ran.whole());
        }
        // Its trial runs again, under another number.
        world.run(&["submit", "plan.toml", "--local", "-q"]);
        assert_eq!(world.status()["counts"], json!({ "done": 3 }), "{make}");
    }
}

#[test]
fn a_record_that_was_removed_is_named() {
    let world = World::new();
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2, 3]\n"));
    world.run(&["submit", "plan.toml"]).ok();
    world.run(&["status"]).ok();
    let record = |trial: u64| format!("records/000/{trial}.1.jsonl");
    let remove = |trial| fs::remove_file(world.path("results/s").join(record(trial))).unwrap();
    remove(1);
    let first = "records/000/1.1.jsonl does not exist, although other files refer to it";
    assert_eq!(
        world.run(&["collect", "--columns", "trial,state", "--format", "csv"]).whole(),
        format!(
            "trial,state\n0,done\n1,pending\n2,done\nwarning: $WORLD/results/s: {first}\nexit code 1\n"
        )
    );
    remove(2);
    let both = "left out: 2 files of which other files tell do not exist, the first is records/000/1.1.jsonl";
    let status = world.run(&["status"]).out;
    assert!(status.ends_with(&format!("{both}\n")), "{status}");
}

/// Without the head of a table, its trials would look as if the sweep had none, and a new table would get their results.
#[test]
fn a_lost_head_of_a_table_is_reported_and_no_other_table_takes_its_place() {
    let world = World::new();
    world.write("plan.toml", &shell("echo {{ a }} >>ran", "[grid]\na = [1, 2]\n"));
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    fs::remove_file(world.path("results/s/trials/000000000000.json")).unwrap();
    let status = world.run(&["status"]);
    let said =
        "left out: trials/000000000000.json does not exist, although other files refer to it\n";
    assert!(status.out.contains(said) && status.code == 1, "{}", status.whole());
    world.write("plan.toml", &shell("echo {{ a }} >>ran", "[grid]\na = [3, 4]\n"));
    let submit = world.run(&["submit", "plan.toml", "--local", "-q"]);
    let refused = "error: cannot read `$WORLD/results/s/trials/000000000000.json`: no such file or directory\nexit code 4\n";
    assert_eq!(submit.whole(), refused);
    assert_eq!(world.read("ran").lines().count(), 2);
}
