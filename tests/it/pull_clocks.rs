//! Agents whose host's clock is wrong or jumps: no living agent is considered dead because of it, and dead agents
//! are detected.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::pull_faults::{SAYS, SHORT, begun, counts, plan, start, world};
use crate::pull_running::agent;
use crate::world::{PROGRAM, Started, World, wait_until};

/// A library that moves the wall clock by as many seconds as a file says, also where a file's times are set.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) {
    char text[32] = "";
    const char *name = getenv("CLOCK_SHIFT");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    close(fd);
    return atol(text);
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int got = syscall(SYS_clock_gettime, id, t);
    if (got == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += shift();
    return got;
}
int gettimeofday(struct timeval *t, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
int utimensat(int dir, const char *path, const struct timespec times[2], int flags) {
    struct timespec own[2];
    if (times && times[0].tv_nsec == UTIME_NOW && times[1].tv_nsec == UTIME_NOW) {
        clock_gettime(CLOCK_REALTIME, &own[0]);
        own[1] = own[0];
        times = own;
    }
    return syscall(SYS_utimensat, dir, path, times, flags);
}
"#;

/// Makes `shim.so`, which moves clocks by the seconds in `shift`, a day at first.
pub(crate) fn make_shim(world: &World) {
    world.write("shim.c", SHIM);
    world.call("cc", &["-shared", "-fPIC", "-O1", "-o", "shim.so", "shim.c"]).ok();
    world.write("shift", "86400");
}

/// An agent whose clock is off by the seconds in `shift`; it has begun a trial, which waits.
fn shifted(world: &World) -> Started {
    make_shim(world);
    world.write("events.wait", "");
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", "1"]);
    command.env("LD_PRELOAD", world.path("shim.so")).env("CLOCK_SHIFT", world.path("shift"));
    let agent = Started { child: command.spawn().unwrap() };
    wait_until("it has begun", || begun(world).len() == 1);
    agent
}

#[test]
fn clocks_that_jump_expire_nobody_and_lose_nothing() {
    let world = world(&plan(SAYS, 24, SHORT));
    let shifted = shifted(&world);
    let straight = start(&world, "1");
    wait_until("both have begun", || begun(&world).len() == 2);
    for shift in ["-86400", "0", "86400", "-3600", "86400"] {
        // Aside: a reader must not find half a number.
        world.write("shift.new", shift);
        fs::rename(world.path("shift.new"), world.path("shift")).unwrap();
        std::thread::sleep(Duration::from_millis(350));
    }
    fs::remove_file(world.path("events.wait")).unwrap();
    for agent in [shifted, straight] {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(counts(&world), r#"{"done":24}"#);
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 24]);
    assert_eq!(
        (world.entries("results/p", "\"join\""), world.entries("results/p", "\"expire\"")),
        (2, 0)
    );
    // The library did move the clock of one of them.
    let mut days: Vec<f64> = Vec::new();
    for file in world.files("results/p/agents").iter().filter(|f| f.ends_with("jsonl")) {
        let text = world.read(&format!("results/p/agents/{file}"));
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        days.push((first["time"].as_f64().unwrap() / 86400.0).round());
    }
    assert_eq!((days[0] - days[1]).abs(), 1.0, "{days:?}");
}

#[test]
fn a_killed_agent_with_a_clock_of_its_own_is_found_out() {
    let world = world(&plan(SAYS, 6, SHORT));
    let shifted = shifted(&world);
    shifted.signal(Signal::SIGKILL);
    shifted.end(&world);
    fs::remove_file(world.path("events.wait")).unwrap();
    let ran = start(&world, "1").end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(counts(&world), r#"{"done":6}"#);
    assert_eq!(begun(&world).into_values().sum::<u32>(), 7);
}

#[test]
fn of_agents_that_sleep_in_turns_each_is_named_once() {
    let world = world(&plan(SAYS, 2, "[pull]\nlease = 2\n"));
    world.write("events.wait", "");
    let sleepers = ["first", "second"].map(|name| {
        let sleeper = agent(&world, name);
        wait_until("it has begun", || world.read(name).contains("1 slot"));
        sleeper
    });
    wait_until("both have begun", || begun(&world).len() == 2);
    let idle = agent(&world, "idle");
    wait_until("it has come", || world.read("idle").contains("1 slot"));
    let named = |sleeper: &Started| {
        world.read("idle").matches(&format!("agent {} on", sleeper.pid())).count()
    };
    for sleeper in &sleepers {
        sleeper.signal(Signal::SIGSTOP);
        wait_until("it is named", || named(sleeper) == 1);
        sleeper.signal(Signal::SIGCONT);
    }
    sleepers[0].signal(Signal::SIGSTOP);
    wait_until("it is taken for dead", || world.entries("results/p", "\"expire\"") == 1);
    assert_eq!(sleepers.each_ref().map(named), [1, 1], "{}", world.read("idle"));
    sleepers[0].signal(Signal::SIGCONT);
    fs::remove_file(world.path("events.wait")).unwrap();
    for mut agent in sleepers.into_iter().chain([idle]) {
        assert_eq!(agent.child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(counts(&world), r#"{"done":2}"#);
}
