//! What a person has set for their own calls of the scheduler changes no call of ours.

use crate::support::plans::shell;
use crate::support::slurm::slurm;

#[test]
fn a_persons_defaults_for_the_schedulers_commands_reach_none_of_our_calls() {
    let mut world = slurm();
    for program in ["squeue", "scancel", "scontrol", "sbatch"] {
        let text = world.read(&format!("bin/{program}"));
        let log = world.text_path("environment");
        world.program(
            program,
            &text.replacen("#!/bin/sh\n", &format!("#!/bin/sh\nenv >>'{log}'\n"), 1),
        );
        if program == "squeue" {
            world.program("scancel", &world.read("bin/squeue"));
        }
    }
    let names = [
        "SQUEUE_PARTITION",
        "SQUEUE_FORMAT",
        "SQUEUE_STATES",
        "SCANCEL_INTERACTIVE",
        "SACCT_FORMAT",
        "SINFO_FORMAT",
        "SCONTROL_FUTURE",
        "SLURM_TIME_FORMAT",
        "SBATCH_PARTITION",
    ];
    names.iter().for_each(|name| world.set(name, "other"));
    world.set("SQUEUEZE", "kept");
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2]\n"));
    for args in [&["submit", "plan.toml", "--slurm"][..], &["status"], &["why"], &["cancel"]] {
        let ran = world.run(args);
        assert!(ran.code < 3, "{args:?}: {}", ran.whole());
    }
    let seen = world.read("environment");
    assert!(seen.contains("SQUEUEZE=kept"), "{seen}");
    for name in names {
        assert!(!seen.contains(&format!("{name}=")), "{name}");
    }
}

#[test]
fn options_of_sbatch_in_the_environment_are_named_and_words_of_the_site_are_shown_once() {
    let mut world = slurm();
    world.set("SBATCH_PARTITION", "debug");
    world.set("SBATCH_QOS", "high");
    world.set("SBATCH_ACCOUNT", "physics");
    let text = world.read("bin/sbatch");
    let words = "echo 'sbatch: lua: your project has 3 core-hours left' >&2\n";
    world.program("sbatch", &text.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{words}"), 1));
    let body = "[[trials]]\na = 1\n[[trials]]\na = 2\nresources = { memory = \"2G\" }\n";
    world.write("plan.toml", &shell("true", body));
    let ran = world.run(&["submit", "plan.toml", "--slurm"]);
    let all = ran.whole();
    let times = |words: &str| all.matches(words).count();
    assert_eq!(times("`SBATCH_PARTITION`, `SBATCH_QOS` of the environment not used"), 1, "{all}");
    assert_eq!(times("`sbatch` says: lua: your project has 3 core-hours left"), 1, "{all}");
    assert_eq!(times("as job"), 2, "{all}");
}
