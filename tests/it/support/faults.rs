//! What tests do to programs, clocks and disks.

use std::fs;

use crate::support::world::{Ran, World};

/// Numbers that look random and are the same in every run of the tests.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Processes whose parent is this one.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    if let Ok(list) = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        return list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    if fs::metadata(format!("/proc/{parent}")).is_err() {
        return Vec::new();
    }
    // A kernel without CONFIG_PROC_CHILDREN.
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent_of(pid) == Some(parent))
        .collect()
}

/// Runs a script in a mount namespace of its own, as root or as a user who may have one.
pub(crate) fn in_own_mounts(world: &World, script: &str) -> Option<Ran> {
    let with = |flags: &[&str]| {
        let try_out = [flags, &["sh", "-c", "mount -t tmpfs none /mnt"]].concat();
        world.call("unshare", &try_out).code == 0
    };
    let flags: &[&str] = if with(&["-m"]) {
        &["-m"]
    } else if with(&["-rm"]) {
        &["-rm"]
    } else {
        return None;
    };
    Some(world.call("unshare", &[flags, &["bash", "-c", script]].concat()))
}

/// A trial that fills the disk below `results`, and has more metric lines than the last block of its record takes.
pub(crate) const FILLS: &str = "dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
    for i in $(seq 2000); do echo '{\"loss\": 1}'; done >>$HPCSWEEP_METRICS; echo ran >>ran; echo $PPID $$ >filled";

/// Shell code that waits until such a trial has ended and its worker has tried more than once to say so.
pub(crate) const MEETS: &str = "until [ -s filled ]; do sleep 0.01; done; read worker trial <filled
    while [ -d /proc/$trial ]; do sleep 0.01; done
    writes() { sed -n 's/^syscw: //p' /proc/$worker/io; }
    before=$(writes); until [ $(writes) -ge $((before + 2)) ] || ! [ -d /proc/$worker ]; do sleep 0.01; done
    [ -d /proc/$worker ] || echo the worker has not waited";

/// How often a test does what it does: HPCSWEEP_ROUNDS for long runs.
pub(crate) fn rounds(few: u64) -> u64 {
    std::env::var("HPCSWEEP_ROUNDS").map_or(few, |n| n.parse().unwrap())
}

/// Runs the schedules of these numbers, or of those that a variable names, some at a time.
pub(crate) fn schedules(variable: &str, numbers: &str, run: impl Fn(u64) + Sync) {
    let range = std::env::var(variable).unwrap_or_else(|_| numbers.to_owned());
    let (first, end) = range.split_once("..").unwrap();
    let next = std::sync::atomic::AtomicU64::new(first.parse().unwrap());
    let end: u64 = end.parse().unwrap();
    // Agents wait more than they work.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if number >= end {
                        return;
                    }
                    run(number);
                }
            });
        }
    });
}

/// A library that moves the wall clock by as many seconds as a file says, also where a file's times are set.
pub(crate) const SHIM: &str = r#"
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
