//! Who may read a sweep: readers can read everything that belongs to it, whatever the umask of the users who
//! submit and run it is.
//!
//! Only root can read as another user. For other users the tests check the modes alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::slurm::add_slurm;
use crate::support::world::{PROGRAM, Ran, World, wait_until};

const NOBODY: u32 = 65534;

/// Runs hpcsweep with a umask that closes all files.
fn closed(world: &World, args: &[&str]) -> Ran {
    let line = "umask 077; exec \"$0\" \"$@\"";
    world.call("bash", &[&["-c", line, PROGRAM], args].concat())
}

fn mode(world: &World, name: &str) -> u32 {
    fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o7777
}

/// A plan of two trials whose programs and hooks print their umask and leave a file of their own.
fn plan(word: &str, rest: &str) -> String {
    let hook = "umask >>hooks";
    let rest = format!(
        "[hooks]\nfinish = [\"sh\", \"-c\", \"{hook}\"]\n[pull]\nfolders = true\n[grid]\nn = [1, 2]\n{rest}"
    );
    let code = "umask; umask >$HPCSWEEP_WORK_DIR/own; echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS";
    readable_by(word, &shell(code, &rest))
}

fn readable_by(word: &str, plan: &str) -> String {
    plan.replace("name = \"s\"", &format!("name = \"s\"\nreadable_by = \"{word}\""))
}

/// A folder of results: of the group of the other user, where the group is to read.
fn make_results(world: &World, word: &str) {
    if word == "group" && nix::unistd::getuid().is_root() {
        fs::create_dir(world.path("results")).unwrap();
        chown(world.path("results"), None, Some(NOBODY)).unwrap();
        fs::set_permissions(world.path("results"), fs::Permissions::from_mode(0o2750)).unwrap();
    }
}

/// The files in the results that the readers cannot read.
fn unreadable(world: &World, word: &str) -> Vec<String> {
    let root = world.path("results");
    let group = fs::metadata(&root).unwrap().gid();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let wanted = match (word, about.is_dir()) {
                ("group", true) => 0o050,
                ("group", false) => 0o040,
                (_, true) => 0o005,
                (_, false) => 0o004,
            };
            if about.mode() & wanted != wanted || (word == "group" && about.gid() != group) {
                found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
            if about.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every verb that reads says the same to the other user as to the owner.
#[track_caller]
fn read_by_nobody(world: &World) {
    let verbs: [&[&str]; 6] = [
        &["status", "results/s", "--trials"],
        &["collect", "results/s"],
        &["best", "results/s", "--metric", "loss", "--min"],
        &["logs", "0", "results/s"],
        &["logs", "1", "results/s"],
        &["watch", "results/s", "--once"],
    ];
    for verb in verbs {
        let Some(ran) = world.run_as(NOBODY, verb) else { return };
        ran.ok();
        if verb[0] != "watch" {
            assert_eq!(ran.out, world.run(verb).out, "{verb:?}");
        }
    }
}

/// The files of the programs belong to their user.
const OWN: [&str; 2] = ["s/work/000/0/own", "s/work/000/1/own"];

#[test]
fn all_of_a_sweep_is_for_its_readers_whatever_the_umask_is() {
    for word in ["all", "group"] {
        for agents in [false, true] {
            let world = World::new();
            make_results(&world, word);
            world.write("plan.toml", &plan(word, ""));
            let pull: &[&str] = if agents { &["--pull"] } else { &[] };
            closed(&world, &[&["submit", "plan.toml", "--local"], pull].concat()).ok();
            assert_eq!(unreadable(&world, word), OWN, "{word} {agents}");
            read_by_nobody(&world);
            for trial in ["0", "1"] {
                assert_eq!(world.run(&["logs", trial]).ok(), "0077\n", "{word} {agents}");
            }
            assert_eq!(world.read("hooks"), "0077\n0077\n");
            // Readers may not read files that are not part of the sweep.
            assert_eq!(mode(&world, "home/state/hpcsweep/sweeps"), 0o600);
            assert_eq!(mode(&world, "home/state/hpcsweep"), 0o700);
        }
    }
}

/// With a umask that removes no rights, still only the owner may change the sweep.
#[test]
fn nothing_of_a_sweep_can_be_written_by_others_whatever_the_umask_is() {
    for how in [&["--local"][..], &["--local", "--pull"]] {
        let world = World::new();
        world.write("plan.toml", &shell("true", "[grid]\nn = [1, 2]\n"));
        let line = "umask 0; exec \"$0\" submit plan.toml \"$@\"";
        world.call("bash", &[&["-c", line, PROGRAM], how].concat()).ok();
        let find = ["results", "(", "-type", "f", "-o", "-type", "d", ")", "-perm", "/022"];
        assert_eq!(world.call("find", &find).ok(), "", "{how:?}");
    }
}

#[test]
fn elements_and_pilots_of_schedulers_make_their_files_for_the_readers() {
    let world = World::new();
    add_slurm(&world);
    world.write("plan.toml", &plan("all", ""));
    closed(&world, &["submit", "plan.toml", "--slurm"]).ok();
    for index in ["0", "1"] {
        // As Slurm, which makes the output of a job under the umask of its submission.
        let line = format!(
            "umask 077; export SLURM_ARRAY_JOB_ID=101 SLURM_JOB_ID=102 SLURM_ARRAY_TASK_ID={index} \
             SLURM_ARRAY_TASK_COUNT=2 SLURM_PROCID=0 SLURM_NTASKS=1
             echo said >results/s/logs/jobs/0001/{index}.log
             bash results/s/jobs/0001.sh >>results/s/logs/jobs/0001/{index}.log 2>&1"
        );
        world.call("bash", &["-c", &line]).ok();
    }
    assert_eq!(unreadable(&world, "all"), OWN);
    read_by_nobody(&world);
    assert_eq!(world.run(&["logs", "0"]).ok(), "0077\nsaid\n");

    let pbs = Pbs::start();
    for pull in [&[][..], &["--pull"]] {
        let name = if pull.is_empty() { "s" } else { "pilots" };
        let plan = plan("all", "").replace("name = \"s\"", &format!("name = \"{name}\""));
        pbs.world.write("plan.toml", &plan);
        closed(&pbs.world, &[&["submit", "plan.toml", "--pbs"], pull].concat()).ok();
        pbs.wait_idle();
    }
    // The environment of the submission stays with its owner. PBS gives jobs a umask of their own.
    let closed = unreadable(&pbs.world, "all");
    let is_environment = |path: &String| path.contains("/jobs/env-");
    assert!(closed.len() == 2 && closed.iter().all(is_environment), "{closed:?}");
    read_by_nobody(&pbs.world);
}

/// Another user who could read the messages of ranks could be one of them.
#[test]
fn where_ranks_meet_is_for_nobody() {
    let world = World::new();
    world.write("plan.toml", &readable_by("all", &shell("true", "[resources]\nranks = 2\n")));
    add_slurm(&world);
    closed(&world, &["submit", "plan.toml", "--slurm"]).ok();
    let worker = |rank: &str| {
        let mut command = world.command("bash");
        let line = "umask 077; exec \"$0\" worker --sweep results/s --trial 0";
        command.args(["-c", line, PROGRAM]).env("HPCSWEEP_MEET", "here");
        let (size, node) = (
            [("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")],
            [("NODE_RANK", "0"), ("NNODES", "1")],
        );
        for (name, value) in [[("RANK", rank), ("LOCAL_RANK", rank)], size, node].concat() {
            command.env(format!("HPCSWEEP_{name}"), value);
        }
        command.spawn().unwrap()
    };
    let mut first = worker("0");
    let meeting = || world.files("results/s/meet").into_iter().find(|f| f.ends_with(".json"));
    wait_until("the first rank is there", || meeting().is_some_and(|f| !f.starts_with('.')));
    let file = format!("results/s/meet/{}", meeting().unwrap());
    assert_eq!(mode(&world, &file), 0o600);
    let mut second = worker("1");
    assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
    assert_eq!(unreadable(&world, "all"), [""; 0]);
}

/// A sweep that was closed is opened by the next submission, and closed again.
#[test]
fn a_submission_opens_what_is_there_to_new_readers() {
    for (agents, word) in [(false, "all"), (true, "all"), (false, "group"), (true, "group")] {
        let world = World::new();
        fs::create_dir(world.path("results")).unwrap();
        let shut = plan("all", "").replace("readable_by = \"all\"\n", "");
        let pull: &[&str] = if agents { &["--pull"] } else { &[] };
        let submit = [&["submit", "plan.toml", "--local"], pull].concat();
        world.write("plan.toml", &shut);
        closed(&world, &submit).ok();
        for (name, text) in [("jobs/env-0123456789ab.sh", ""), ("meet/1.json", "{}")] {
            world.write(&format!("results/s/{name}"), text);
        }
        fs::set_permissions(world.path("results/s/meet"), fs::Permissions::from_mode(0o700))
            .unwrap();
        fs::set_permissions(
            world.path("results/s/jobs/env-0123456789ab.sh"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        world.write("precious", "");
        fs::set_permissions(world.path("precious"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(world.path("precious"), world.path("results/s/link")).unwrap();
        if word == "group" && nix::unistd::getuid().is_root() {
            for folder in ["results", "results/s"] {
                chown(world.path(folder), None, Some(NOBODY)).unwrap();
            }
        }
        assert!(unreadable(&world, word).len() > 10);
        world.write("plan.toml", &readable_by(word, &shut));
        closed(&world, &submit).ok();
        let mut expected = vec!["s/jobs/env-0123456789ab.sh", "s/meet"];
        if word == "group" && nix::unistd::getuid().is_root() {
            expected.push("s/meet/1.json");
            // A link has the group of who made it.
            expected.push("s/link");
        }
        expected.extend(OWN);
        expected.sort_unstable();
        assert_eq!(unreadable(&world, word), expected, "{word} {agents}");
        assert_eq!(mode(&world, "precious"), 0o600);
        read_by_nobody(&world);
        // Nothing is opened to earlier readers.
        fs::set_permissions(world.path("results/s/plans"), fs::Permissions::from_mode(0o700))
            .unwrap();
        closed(&world, &submit).ok();
        assert_eq!(mode(&world, "results/s/plans"), 0o700);
        world.write("plan.toml", &readable_by("owner", &shut));
        closed(&world, &submit).ok();
        assert_eq!(mode(&world, "results/s") & 0o777, 0o700);
    }
}
