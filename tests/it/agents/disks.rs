//! Agents whose results tree takes no more, because its disk is full or a quota used up, or is away for a while:
//! they wait, lose nothing, and hold it against no trial.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::support::agents::{SAYS, SHORT, agent, begun, counts, plan, start, world};
use crate::support::faults::in_own_mounts;
use crate::support::world::{PROGRAM, ROOT, Started, World, wait_until};

/// Lays a plan down on a disk of one megabyte, starts an agent there, and does the rest of a script, in which `outcome`
/// waits for the agent and says what became of it and of the trials.
fn on_a_small_disk(world: &World, rest: &str) -> String {
    fs::create_dir(world.path("results")).unwrap();
    let script = format!(
        "set -u; mount -t tmpfs -o size=1m none results || exit 90
        counts() {{ '{PROGRAM}' status --json results/p | grep -o '\"counts\":[^}}]*}}'; }}
        outcome() {{ wait $first; echo first: $?; counts; }}
        '{PROGRAM}' worker --pull plan.toml --slots 1 2>first & first=$!
        {rest}"
    );
    let Some(ran) = in_own_mounts(world, &script) else { panic!("no mounts") };
    assert_eq!(ran.code, 0, "{}\n{}", ran.whole(), world.read("first"));
    ran.out
}

#[test]
fn agents_wait_for_space_on_a_full_disk_and_lose_nothing() {
    // The first trial fills the disk; its metrics and end have to wait until there is room again. Of what is written then, the disk
    // takes a part.
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
        [ $HPCSWEEP_TRIAL != 0 ] || dd if=/dev/zero of=results/filler bs=1k count=5000 2>/dev/null
        for i in $(seq 5000); do echo '{\"loss\": 1}'; done >>$HPCSWEEP_METRICS; : >>filled";
    let world = world(&plan(code, 4, SHORT));
    let rest = format!(
        "until [ -e filled ]; do sleep 0.01; done
        until grep -q 'no space' first; do sleep 0.01; done
        # For longer than the lease: a full disk takes no records, but signs of life.
        from=$(date +%s); until [ $(stat -c %Y results/p/agents/*/*.jsonl) -ge $((from + 2)) ]; do sleep 0.01; done
        '{PROGRAM}' worker --pull results/p --slots 1 2>late; echo late: $?
        cat events; rm results/filler; outcome
        sed -n 's/.*\\(no space left\\|the results tree is back\\).*/\\1/p' first | uniq
        cat results/p/claims/*/*.json | grep -c expire
        '{PROGRAM}' collect --steps --format csv results/p | tail -n +2 | sort | uniq -c | tr -s ' '
        '{PROGRAM}' collect --format jsonl results/p | grep -c '\"attempts\":1,'"
    );
    let expected = "late: 4\n0\nfirst: 0\n\"counts\":{\"done\":4}\nno space left\nthe results tree is back\n0\n \
        5000 0,,1\n 5000 1,,1\n 5000 2,,1\n 5000 3,,1\n4\n";
    assert_eq!(on_a_small_disk(&world, &rest), expected, "{}", world.read("first"));
    let begun: Vec<u32> = begun(&world).into_values().collect();
    assert_eq!(begun, [1; 4]);
}

/// A library that refuses to write records while there is a file, as a quota does that is used up.
const QUOTA: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int fd, const void *bytes, size_t length) {
    char name[64], path[4096] = "";
    const char *over = getenv("QUOTA_IS_USED_UP");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (over && access(over, F_OK) == 0 && readlink(name, path, sizeof path - 1) > 0
        && strstr(path, "/agents/") && strstr(path, ".jsonl")) {
        errno = EDQUOT;
        return -1;
    }
    return syscall(SYS_write, fd, bytes, length);
}
"#;

#[test]
fn agents_wait_for_a_quota_as_for_a_full_disk() {
    let world = world(&plan(SAYS, 4, SHORT));
    world.write("quota.c", QUOTA);
    world.call("cc", &["-shared", "-fPIC", "-O1", "-o", "quota.so", "quota.c"]).ok();
    world.write("events.wait", "");
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", "1"]);
    command.env("LD_PRELOAD", world.path("quota.so"));
    command.env("QUOTA_IS_USED_UP", world.path("over"));
    command.stderr(fs::File::create(world.path("said")).unwrap());
    let mut agent = Started { child: command.spawn().unwrap() };
    wait_until("it has begun", || begun(&world).len() == 1);
    world.write("over", "");
    fs::remove_file(world.path("events.wait")).unwrap();
    wait_until("it says so", || world.read("said").contains("quota exceeded"));
    assert_eq!(
        (begun(&world).len(), counts(&world)),
        (1, r#"{"queued":3,"running":1}"#.to_owned())
    );
    fs::remove_file(world.path("over")).unwrap();
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
    assert!(world.read("said").contains("the results tree is back"), "{}", world.read("said"));
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 4]);
    assert_eq!(counts(&world), r#"{"done":4}"#);
    assert_eq!(
        (world.entries("results/p", "\"expire\""), world.column("attempts")),
        (0, vec!["1".to_owned(); 4])
    );
}

#[test]
fn a_trial_whose_terms_cannot_be_read_for_a_moment_runs_when_they_can() {
    let plan = |trials: usize| {
        let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; until [ -e go ]; do sleep 0.01; done";
        let trials: String =
            (0..trials).map(|x| format!("[[trials]]\ntask_id = 1\nx = {x}\n")).collect();
        let run = format!("[run]\ncommand = [\"sh\", \"-c\", \"{code}\"]\n");
        format!("version = 1\n[sweep]\nname = \"p\"\n{run}{SHORT}{trials}")
    };
    let world = world(&plan(1));
    let first = start(&world, "1");
    wait_until("the first has begun", || begun(&world).len() == 1);
    // The agent that brings the second trial holds it, and waits for the first.
    world.write("plan.toml", &plan(2));
    let mut second = world.command(PROGRAM);
    second.args(["worker", "--pull", "plan.toml", "--slots", "1"]);
    second.stderr(fs::File::create(world.path("said")).unwrap());
    let mut second = Started { child: second.spawn().unwrap() };
    wait_until("the second is held", || world.entries("results/p", "\"take\"") == 2);
    world.write("results/p/terms.json", "{");
    wait_until("it says so", || world.read("said").contains("terms.json"));
    fs::remove_file(world.path("results/p/terms.json")).unwrap();
    wait_until("it is back", || world.read("said").contains("the results tree is back"));
    world.write("go", "");
    assert_eq!(second.child.wait().unwrap().code(), Some(0));
    assert_eq!(first.end(&world).code, 0);
    let ran = (counts(&world), world.read("events"));
    assert_eq!(ran, (r#"{"done":2}"#.to_owned(), "0\n1\n".to_owned()));
}

#[test]
fn a_trial_that_cannot_write_to_a_full_disk_has_not_failed() {
    // While the disk is full, trial 1 prints and fails of it.
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
        [ $HPCSWEEP_TRIAL != 1 ] || until [ -e filled ]; do sleep 0.01; done
        head -c 9000 /dev/zero && echo out || { : >failed; exit 1; }";
    let world = world(&plan(code, 4, SHORT));
    let rest = format!(
        "until grep -q '^1' events; do sleep 0.01; done
        dd if=/dev/zero of=results/filler bs=1k count=5000 2>/dev/null; : >filled
        until [ -e failed ]; do sleep 0.01; done; until grep -q 'no space' first; do sleep 0.01; done
        rm results/filler; outcome
        '{PROGRAM}' logs 1 results/p | grep -ac out"
    );
    let expected = "first: 0\n\"counts\":{\"done\":4}\n1\n";
    assert_eq!(on_a_small_disk(&world, &rest), expected, "{}", world.read("first"));
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1, 2, 1, 1]);
}

#[test]
fn a_hook_of_an_agent_is_called_on_a_full_disk() {
    // No block, or no name: the log of hooks cannot be written, or not even be made.
    let used = "$(($(df --output=iused results | tail -n 1)))";
    for (fill, free) in [
        ("dd if=/dev/zero of=results/filler bs=1k count=5000 2>/dev/null", "rm results/filler"),
        (
            &*format!("mount -o remount,nr_inodes={used} results"),
            "mount -o remount,nr_inodes=0 results",
        ),
    ] {
        // It ends when the log can be written again.
        let hook = "head -c 9000 /dev/zero && echo $HPCSWEEP_TRIAL >>called; until [ -e freed ]; do sleep 0.01; done";
        let hooks = format!("[hooks]\nfinish = [\"sh\", \"-c\", \"{hook}\"]\n{SHORT}");
        let world = world(&plan(&format!("{fill}; :"), 1, &hooks));
        let rest = format!(
            "for _ in $(seq 3000); do [ -e called ] && break; sleep 0.01; done
            {free}; : >freed; outcome; cat called results/p/agents/*/*.hooks.log"
        );
        let lost = "hpcsweep: trial 0: hook finish: what it printed is lost: its disk is full";
        let expected = format!("first: 0\n\"counts\":{{\"done\":1}}\n0\n{lost}\n");
        assert_eq!(on_a_small_disk(&world, &rest), expected, "{}", world.read("first"));
    }
}

#[test]
fn a_trial_that_fills_the_disk_with_what_it_prints_takes_nothing_with_it() {
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
        [ $HPCSWEEP_TRIAL != 1 ] || { : >filled; yes; }";
    let world = world(&plan(code, 4, SHORT));
    let rest = "until grep -q 'no space' first; do sleep 0.01; done
        for log in results/p/agents/*/*.log; do : >$log; done; outcome";
    let expected = "first: 1\n\"counts\":{\"done\":3,\"failed\":1}\n";
    assert_eq!(on_a_small_disk(&world, rest), expected, "{}", world.read("first"));
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 4]);
}

#[test]
fn a_tree_that_is_away_for_a_while_is_waited_for_and_not_made_anew() {
    // Also where each trial has a folder of its own in it.
    for folders in ["false", "true"] {
        let more = format!("{SHORT}folders = {folders}\n");
        let world = world(&plan(SAYS, 30, &more));
        world.write("events.wait", "");
        let agents = [start(&world, "1"), start(&world, "1")];
        wait_until("both have begun", || begun(&world).len() == 2);
        // For a moment, for about the lease, for long; trials end meanwhile.
        for (round, millis) in [30, 600, 2000].into_iter().enumerate() {
            fs::rename(world.path("results/p"), world.path("results/away")).unwrap();
            fs::remove_file(world.path("events.wait")).unwrap();
            let since = Instant::now();
            let before = begun(&world).len();
            while since.elapsed() < Duration::from_millis(millis) {
                std::thread::sleep(Duration::from_millis(5));
                // Enough has ended to see what becomes of it.
                if begun(&world).len() >= before + 4 {
                    world.write("events.wait", "");
                }
            }
            world.write("events.wait", "");
            assert!(!world.exists("results/p"), "made anew in round {round}");
            fs::rename(world.path("results/away"), world.path("results/p")).unwrap();
        }
        fs::remove_file(world.path("events.wait")).unwrap();
        for agent in agents {
            let ran = agent.end(&world);
            assert_eq!(ran.code, 0, "{}", ran.whole());
            let last = ran.err.lines().rfind(|line| line.contains("tree"));
            assert_eq!(last, Some("the results tree is back"), "{}", ran.whole());
        }
        assert_eq!(counts(&world), r#"{"done":30}"#);
        assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 30]);
        assert_eq!(world.entries("results/p", "\"expire\""), 0);
        assert_eq!(world.column("attempts"), ["1"; 30]);
    }
}

#[test]
fn a_tree_that_is_away_when_a_trial_begins_is_not_made_anew_by_its_folder() {
    // The agent holds trials, and does not renew its lease for ten seconds.
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
        if [ $HPCSWEEP_TRIAL = 40 ]; then while [ -e $EVENTS.wait ]; do sleep 0.01; done; fi";
    let world = world(&plan(code, 200, "[pull]\nfolders = true\n"));
    world.write("events.wait", "");
    let agent = start(&world, "1");
    wait_until("it has begun", || begun(&world).contains_key(&40));
    fs::rename(world.path("results/p"), world.path("results/away")).unwrap();
    fs::remove_file(world.path("events.wait")).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(world.files("results/p"), [""; 0]);
    assert!(!world.exists("results/p"));
    fs::rename(world.path("results/away"), world.path("results/p")).unwrap();
    let ran = agent.end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(counts(&world), r#"{"done":200}"#);
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 200]);
    assert_eq!(world.column("attempts"), ["1"; 200]);
}

#[test]
fn functions_of_python_lose_nothing_to_a_full_disk() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    // Results of ten megabytes on a disk of five, which grows when an agent has reported that it is full.
    world.write(
        "fit.py",
        "import sys
from hpcsweep import Sweep
def fit(i):
    open('calls', 'a').write('%d\\n' % i)
    return '%d' % i * 1000000
if __name__ == '__main__':
    rows = Sweep('results/fit').grid(i=list(range(10))).run(fit, processes=int(sys.argv[1]))
    print([r.state for r in rows].count('done'), [r.attempt for r in rows].count(1), {len(r.value) for r in rows})
",
    );
    for processes in [1, 2] {
        let script = format!(
            "set -u; mount -t tmpfs -o size=5m none results || exit 90; rm -f calls said
            export HPCSWEEP_BIN='{PROGRAM}' PYTHONPATH='{ROOT}/site/python' PYTHONDONTWRITEBYTECODE=1
            python3 fit.py {processes} 2>said & fit=$!
            until grep -q 'no space' said; do sleep 0.01; done
            mount -o remount,size=60m results
            wait $fit; echo $?; sort -n calls | uniq -c | wc -l"
        );
        let Some(ran) = in_own_mounts(&world, &script) else { panic!("no mounts") };
        assert_eq!(ran.out, "10 10 {1000000}\n0\n10\n", "{}\n{}", ran.whole(), world.read("said"));
    }
}

/// An agent cannot read what it needs to begin its next trials, until that is mended.
fn is_one_trouble(says: &str, spoil: impl Fn(&Path), mend: impl Fn(&Path)) {
    let world = world(&plan(SAYS, 70, SHORT));
    world.write("events.wait", "");
    let mut first = agent(&world, "first");
    wait_until("it has begun", || begun(&world).len() == 1);
    let map = world.path("results/p/pull/0001.map");
    spoil(&map);
    fs::remove_file(world.path("events.wait")).unwrap();
    wait_until("it says so", || world.read("first").contains(says));
    // It gives signs of life, which need nothing of what cannot be read.
    let agents = world.path("results/p/agents");
    let bundle = world.files("results/p/agents").into_iter().find(|f| f.ends_with(".jsonl"));
    let bundle = agents.join(bundle.unwrap());
    let sign = || fs::metadata(&bundle).unwrap().modified().unwrap();
    for _ in 0..4 {
        let last = sign();
        wait_until("another sign of life", || sign() != last);
    }
    mend(&map);
    let code = first.child.wait().unwrap().code();
    let said = world.read("first");
    assert_eq!((code, counts(&world)), (Some(0), r#"{"done":70}"#.to_owned()), "{said}");
    let lines = |text: &str| said.lines().filter(|line| line.contains(text)).count();
    assert_eq!((lines(says), lines("the results tree is back")), (1, 1), "{said}");
}

#[test]
fn what_cannot_be_read_to_begin_a_trial_is_one_trouble_until_it_can() {
    let away = |map: &Path| map.with_extension("away");
    // At once: a file that is missing for a moment is another trouble.
    let exchange = |map: &Path| {
        renameat2(AT_FDCWD, map, AT_FDCWD, &away(map), RenameFlags::RENAME_EXCHANGE).unwrap();
    };
    let spoil = |map: &Path| {
        fs::create_dir(away(map)).unwrap();
        exchange(map);
    };
    let mend = |map: &Path| {
        exchange(map);
        fs::remove_dir(away(map)).unwrap();
    };
    is_one_trouble("0001.map", spoil, mend);
}

#[test]
fn a_file_that_everybody_may_write_to_by_mistake_ends_no_agent() {
    let set = |map: &Path, mode: u32| {
        fs::set_permissions(map, fs::Permissions::from_mode(mode)).unwrap();
    };
    let says = "can be written by every user";
    is_one_trouble(says, |map| set(map, 0o666), |map| set(map, 0o644));
}
