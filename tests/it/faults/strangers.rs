//! Every process that would run another user's sweep refuses it in the same way: elements of arrays on Slurm and on
//! PBS, with chains, packed, throttled, over ranks, training, on GPUs, and agents in jobs, with copies and for
//! functions.
//!
//! Only root can give a sweep to another user. For other users there is nothing to test.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::support::agents;
use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::slurm::{element, slurm};
use crate::support::world::{Started, World, wait_until};

const NOBODY: u32 = 65534;

/// What may be in a plan, by name, and whether agents run it.
const PLANS: [(&str, bool, &str); 11] = [
    ("arrays", false, "[grid]\na = [1, 2]\n"),
    ("chains", false, "[defaults]\ntask_id = \"{{ c }}\"\n[grid]\nc = [0, 1]\na = [0, 1]\n"),
    (
        "fused chains",
        false,
        "[defaults]\ntask_id = \"{{ c }}\"\n[grid]\nc = [0, 1]\na = [0, 1]\n[schedule]\nchains = \"fused\"\n",
    ),
    ("pack", false, "[grid]\na = [1, 2, 3, 4]\n[schedule]\npack = 2\n"),
    ("max_running", false, "[grid]\na = [1, 2, 3]\n[schedule]\nmax_running = 1\n"),
    ("ranks", false, "[resources]\nranks = 2\n"),
    ("GPUs", false, "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2]\n"),
    (
        "hooks",
        false,
        "[hooks]\nfinish = [\"sh\", \"-c\", \": >ran\"]\nerror = [\"sh\", \"-c\", \": >ran\"]\n",
    ),
    ("agents", true, "[grid]\na = [1, 2]\n"),
    ("copies", true, "[pull]\nrepeatable = true\n[grid]\na = [1, 2]\n"),
    ("functions", true, ""),
];

/// The plan of a name: all that it runs leaves the file `ran`.
fn plan(name: &str, rest: &str) -> String {
    let plan = shell(": >ran", rest);
    if name != "functions" {
        return plan;
    }
    let command = "command = [\"sh\", \"-c\", \": >ran\"]";
    let own = "function = \"f\"\nprogram = [\"sh\", \"-c\", \": >ran\"]";
    plan.replace(command, own)
}

/// Gives the sweep to another user.
fn give_away(world: &World) {
    for name in ["results/s", "results/s/sweep.json"] {
        chown(world.path(name), Some(NOBODY), None).unwrap();
    }
}

const REFUSAL: &str = "error: `$WORLD/results/s` belongs to the user `nobody`\n";

#[test]
fn no_job_of_slurm_runs_a_sweep_of_somebody_else() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    for (name, agents, rest) in PLANS {
        let mut world = slurm();
        world.set("CUDA_VISIBLE_DEVICES", "0");
        // A launcher of two ranks, each of which is refused.
        world.program(
            "srun",
            "#!/bin/bash\nuntil [[ $1 != -* ]]; do shift; done\n\
             SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 \"$@\" 2>>other; SLURM_NTASKS=2 exec \"$@\"\n",
        );
        world.write("plan.toml", &plan(name, rest));
        let pull: &[&str] = if agents { &["--pull", "--workers", "1"] } else { &[] };
        world.run(&[&["submit", "plan.toml", "--slurm"], pull].concat()).ok();
        give_away(&world);
        let scripts = world.files("results/s/jobs");
        let scripts: Vec<_> = scripts.iter().filter(|f| f.starts_with("00")).collect();
        assert!(!scripts.is_empty(), "{name}");
        for script in scripts {
            let ran = element(&world, &format!("results/s/jobs/{script}"), 0, 2);
            assert!(ran.code == 4 && ran.err.contains(REFUSAL), "{name}: {}", ran.whole());
        }
        if name == "ranks" {
            assert!(world.read("other").contains("belongs to the user `nobody`"));
        }
        assert!(!world.exists("ran") && !world.exists("results/s/records"), "{name}");
        assert!(world.files("results/s/agents").is_empty(), "{name}");
    }
}

#[test]
fn no_job_of_pbs_runs_a_sweep_of_somebody_else() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    for (name, agents, rest) in PLANS {
        // A rank of PBS is started by the launcher of an MPI.
        if name == "ranks" {
            continue;
        }
        let mut pbs = pbs();
        pbs.set("scheduling", false);
        let pull: &[&str] = if agents { &["--pull", "--workers", "1"] } else { &[] };
        pbs.submit(&plan(name, rest), pull).ok();
        give_away(&pbs.world);
        pbs.set("scheduling", true);
        pbs.wait_idle();
        let world = &pbs.world;
        let said = world.files("results/s/logs/jobs");
        assert!(!said.is_empty(), "{name}");
        for log in said {
            let said = world.read(&format!("results/s/logs/jobs/{log}"));
            let said = world.shown(said.as_bytes());
            assert!(said.contains(REFUSAL), "{name}: {said}");
        }
        assert!(!world.exists("ran") && !world.exists("results/s/records"), "{name}");
        assert!(world.files("results/s/agents").is_empty(), "{name}");
    }
}

const TRAIN: &str = "version = 1\n[sweep]\nname = \"s\"\n[train]\n\
    model = { kind = \"mlp\", hidden = [4], outputs = 10 }\ndata = { train = \"d.npz\" }\nepochs = 2\nbatch_size = 8\n\
    optimizer = { kind = \"sgd\", lr = 0.1 }\n";

/// A checkpoint may hold a module, which is code. That of a member of the group is that of the sweep.
#[test]
fn a_checkpoint_that_somebody_else_has_made_or_may_change_is_not_read() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let world = slurm();
    world.write("plan.toml", TRAIN);
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let run = || element(&world, "results/s/jobs/0001.sh", 0, 1);
    let check = |name: &str, change: &dyn Fn(&std::path::Path), what: &str| {
        let folder = "results/s/work/000/0/checkpoint";
        world.write(&format!("{folder}/last.safetensors"), "of a stranger");
        change(&world.path(name));
        let ran = run();
        let reason = world.status()["trials"][0]["reason"].to_string();
        let reason = world.shown(reason.as_bytes());
        assert!(ran.code == 4 && reason.contains(&format!("`$WORLD/{name}` {what}")), "{reason}");
        fs::remove_dir_all(world.path("results/s/work")).unwrap();
    };
    let to_nobody = |path: &std::path::Path| chown(path, Some(NOBODY), None).unwrap();
    let to_all = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    for name in
        ["work", "work/000", "work/000/0/checkpoint", "work/000/0/checkpoint/last.safetensors"]
    {
        let name = format!("results/s/{name}");
        check(&name, &to_nobody, "belongs to the user `nobody`");
        check(&name, &to_all, "can be written by every user");
    }
    // The group is root's.
    let shared = TRAIN.replace("[train]", "shared = \"group\"\n[train]");
    world.write("plan.toml", &shared);
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    world.write("results/s/work/000/0/checkpoint/last.safetensors", "of a member");
    chown(world.path("results/s/work/000/0/checkpoint/last.safetensors"), Some(NOBODY), Some(0))
        .unwrap();
    run();
    let reason = world.status()["trials"][0]["reason"].to_string();
    assert!(reason.contains("there is no file"), "{reason}");
}

/// Another user can make the folder of holds first. This user then still gets devices.
#[test]
fn the_folder_of_somebody_else_holds_no_device() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "0");
    let name = format!("tmp/hpcsweep-gpus-0-{}", hpcsweep::base::host::vars::hostname());
    fs::create_dir(world.path(&name)).unwrap();
    chown(world.path(&name), Some(NOBODY), None).unwrap();
    world.local(&shell("true", "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2]\n"), &[]).ok();
    assert_eq!(world.files(&name), [""; 0]);
    assert!(world.exists(&format!("{name}.1")), "{:?}", world.files("tmp"));
}

/// Gives everything in a folder to another user.
fn give_whole(folder: &std::path::Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        std::os::unix::fs::lchown(entry.path(), Some(NOBODY), None).unwrap();
        if entry.file_type().unwrap().is_dir() {
            give_whole(&entry.path());
        }
    }
    chown(folder, Some(NOBODY), None).unwrap();
}

#[test]
fn an_agent_runs_nothing_of_a_copy_that_somebody_else_puts_in_the_place_of_its_sweep() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; while [ -e $EVENTS.wait ]; do sleep 0.01; done";
    let lay = |world: &World, trials: usize| {
        let more = "[schedule]\nmax_running = 1\n[pull]\nlease = 0.6\n";
        world.write("plan.toml", &agents::plan(code, trials, more));
    };
    let world = agents::world("");
    world.write("events.wait", "");
    // Enough to do for an agent to look for news meanwhile.
    lay(&world, 70);
    let first = agents::agent(&world, "first");
    wait_until("it has begun", || agents::begun(&world).len() == 1);
    lay(&world, 71);
    let second = agents::agent(&world, "second");
    wait_until("it waits", || world.read("second").contains("leaves no slot"));
    second.signal(nix::sys::signal::Signal::SIGTERM);
    let code = |mut agent: Started| agent.child.wait().unwrap().code();
    assert_eq!(code(second), Some(143));
    // In a folder that others may write to without the sticky bit, they can rename what is in it and put a copy there.
    give_whole(&world.path("results/p"));
    fs::remove_file(world.path("events.wait")).unwrap();
    assert_eq!(code(first), Some(4), "{}", world.read("first"));
    assert!(
        world.read("first").contains("belongs to the user `nobody`"),
        "{}",
        world.read("first")
    );
    assert!(!agents::begun(&world).contains_key(&70));
}
