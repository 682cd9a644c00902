//! A limit on processes, which counts threads too (`ulimit -u`): readers do with one thread, and what cannot be done ends
//! with one sentence.

use crate::support::plans::shell;
use crate::support::world::World;

/// A user who has no other process, so that each counts.
const USER: u32 = 54_321;

fn limited(
    world: &World,
    processes: u32,
    folder: &str,
    args: &[&str],
) -> Option<crate::support::world::Ran> {
    world.run_as_after(USER, &format!("ulimit -u {processes}"), folder, args)
}

#[test]
fn readers_say_the_same_with_one_thread() {
    let world = World::new();
    let code = "echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_A}\" >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "[grid]\na = [1, 2, 3, 4]\n"), &[]).ok();
    let verbs: [&[&str]; 6] = [
        &["status", "results/s"],
        &["collect", "results/s", "--format", "jsonl"],
        &["collect", "results/s", "--steps"],
        &["collect", "results/s", "--format", "records"],
        &["best", "results/s", "--metric", "loss", "--min"],
        &["watch", "results/s"],
    ];
    for verb in verbs {
        let free = world.run_as(USER, verb);
        for processes in 1..4 {
            let Some(ran) = limited(&world, processes, ".", verb) else { return };
            let free =
                free.as_ref().map(|ran| (ran.code, crate::support::world::timeless(&ran.out)));
            let same = (ran.code, crate::support::world::timeless(&ran.out));
            assert_eq!(Some(same), free, "{verb:?} {}", ran.whole());
        }
    }
}

#[test]
fn a_run_without_processes_ends_with_one_sentence() {
    let world = World::new();
    if !world.give(USER, "theirs", &shell("true", "")) {
        return;
    }
    for processes in 1..7 {
        let args = ["submit", "plan.toml", "--local", "-q"];
        let ran = limited(&world, processes, "theirs", &args).unwrap();
        let errors = ran.err.lines().filter(|line| line.starts_with("error: ")).count();
        let is_clean = match ran.code {
            0 => errors == 0,
            1 => true,
            4 => errors == 1 && ran.err.contains("resource temporarily unavailable"),
            _ => false,
        };
        assert!(is_clean && !ran.err.contains("panicked"), "{processes}: {}", ran.whole());
        if processes == 1 {
            assert_eq!(ran.code, 4, "{}", ran.whole());
        }
    }
}
