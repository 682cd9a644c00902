//! Jobs that a scheduler suspends: the time for which a trial stood still is none of its walltime.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Runs a trial that is suspended, with what watches it, for longer than its walltime, and then ends.
fn suspended(args: &[&str]) -> World {
    let world = World::new();
    let code = "echo $PPID $$ >pids.new; mv pids.new pids; until [ -e go ]; do sleep 0.02; done";
    let hook = "[hooks]\nerror = [\"sh\", \"-c\", \": >told\"]\n";
    let rest = format!("{hook}[resources]\nwalltime = \"8s\"\n");
    world.write("plan.toml", &shell(code, &rest));
    let started = world.start(&[&["submit", "plan.toml", "--local"], args].concat());
    wait_until("it runs", || world.exists("pids"));
    let pids: Vec<i32> =
        world.read("pids").split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let all = |signal| {
        kill(Pid::from_raw(pids[0]), signal).unwrap();
        kill(Pid::from_raw(-pids[1]), signal).unwrap();
    };
    all(Signal::SIGSTOP);
    // Longer than its walltime.
    std::thread::sleep(std::time::Duration::from_secs(12));
    all(Signal::SIGCONT);
    world.write("go", "");
    started.end(&world).ok();
    world
}

#[test]
fn time_for_which_a_trial_is_suspended_is_none_of_its_walltime() {
    for args in [&[][..], &["--pull"]] {
        let world = suspended(args);
        assert_eq!(world.column("state"), ["\"done\""], "{args:?}");
        assert_eq!(world.column("attempts"), ["1"], "{args:?}");
        assert!(!world.exists("told"), "{args:?}");
        // Nor is it part of what it has used.
        if args.is_empty() {
            let used: f64 = world.column("duration_s")[0].parse().unwrap();
            assert!(used < 12.0, "{used}");
        }
    }
}
