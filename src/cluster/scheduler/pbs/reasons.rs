//! Why PBS lets a job wait, by the comment of its scheduler (`schd_err` of OpenPBS): in plain words, and what can be done.

use crate::cluster::scheduler::Wait;

/// Parts of comments, in lower case, in the order in which they are looked for.
const COMMENTS: [(&str, &str, &str); 29] = [
    (
        "can never run",
        "nothing in this cluster has what it asks for, so it never starts",
        "change what it asks for: `pbsnodes -a` shows what nodes have",
    ),
    (
        "insufficient amount of resource: ngpus",
        "it waits for free GPUs",
        "fewer start sooner; `pbsnodes -aSj` shows what is free",
    ),
    (
        "insufficient amount of resource: mem",
        "it waits for free memory",
        "less starts sooner; `pbsnodes -aSj` shows what is free",
    ),
    (
        "insufficient amount of resource: host",
        "it waits for a host that it names, or for as many different hosts as it asks for",
        "leave the host out, or ask for fewer `nodes`",
    ),
    (
        "insufficient amount of resource",
        "it waits for enough free cores, memory or GPUs",
        "less of each starts sooner; `pbsnodes -aSj` shows what is free",
    ),
    (
        "insufficient amount of queue resource",
        "its queue has given out as much as it may",
        "wait, or name another queue (`partition`)",
    ),
    (
        "insufficient amount of server resource",
        "the server has given out as much as it may, perhaps licenses",
        "wait",
    ),
    ("not enough total nodes", "it asks for more nodes than there are", "ask for fewer `nodes`"),
    ("not enough free nodes", "it waits for enough free nodes", "fewer start sooner"),
    (
        "no available resources on nodes",
        "it waits for free nodes",
        "wait; `pbsnodes -aSj` shows what is free",
    ),
    (
        "conflict with reservation or top job",
        "it would delay a reservation, or the job that is next",
        "a shorter `walltime` may let it start in a gap",
    ),
    (
        "cross dedicated time",
        "it would still run when the dedicated time or maintenance begins",
        "a shorter `walltime` starts before it",
    ),
    (
        "cross prime",
        "it would still run when prime time begins or ends",
        "a shorter `walltime` starts before it",
    ),
    (
        "user has reached queue",
        "you have as many running jobs as the queue allows",
        "wait, name another queue (`partition`), or run more trials in one job (`pack`, agents)",
    ),
    (
        "user has reached server",
        "you have as many running jobs as the server allows",
        "wait, or run more trials in one job (`pack`, agents)",
    ),
    (
        "per-user limit reached",
        "your jobs have as much of a resource as a user may have",
        "wait, or ask for less",
    ),
    (
        "would exceed",
        "with it, you or your group would have more than the limit",
        "wait, or ask for less",
    ),
    ("group has reached", "your group has as many running jobs as it may have", "wait"),
    ("per-group limit reached", "your group has as much of a resource as it may have", "wait"),
    (
        "project has reached",
        "your project has as many running jobs as it may have",
        "wait, or name another `account`",
    ),
    (
        "job limit has been reached",
        "the queue or the server has as many running jobs as it may have",
        "wait, or name another queue (`partition`)",
    ),
    (
        "queue not started",
        "its queue is stopped: nothing starts there",
        "wait, or name another queue (`partition`)",
    ),
    ("fairshare", "users who have used less come first", "wait"),
    ("exclusive node", "it asks for whole nodes, and none is free", "wait"),
    (
        "placement set",
        "no group of nodes that are near each other has enough room",
        "ask for fewer `nodes`, or wait",
    ),
    (
        "waits for a job that has ended",
        "the job that it waits for has ended, and PBS did not notice",
        "submit again: this releases it",
    ),
    (
        "held until its submission is complete",
        "its submission has not submitted all jobs that wait for it yet, or was stopped",
        "if no `submit` is at work, submit again: this releases it",
    ),
    ("job array held", "it is held, by its user or an operator", "`hpcsweep release`"),
    ("waits for another job", "it waits for another job, as later links of a chain do", "wait"),
];

/// What a comment means.
pub(crate) fn explain(comment: &str) -> Option<Wait> {
    if comment == "held" {
        return Some(Wait { words: "it is held by its user", remedy: "`hpcsweep release`" });
    }
    let lower = comment.to_lowercase();
    let known = COMMENTS.iter().find(|(part, ..)| lower.contains(part));
    known.map(|(_, words, remedy)| Wait { words, remedy })
}

/// When the server expects a job to start, by `qstat -f`: as it says it.
pub(crate) fn read_start(stdout: &str) -> Option<&str> {
    let line = stdout.lines().find_map(|line| line.trim().strip_prefix("estimated.start_time = "));
    line.map(str::trim).filter(|text| !text.is_empty() && *text != "UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_comments_are_in_plain_words_with_what_can_be_done() {
        for (comment, part) in [
            ("Not Running: Insufficient amount of resource: ncpus (R: 64 A: 0 T: 64)", "cores"),
            ("Not Running: Insufficient amount of resource: ngpus (R: 4 A: 0 T: 4)", "GPUs"),
            ("Not Running: Insufficient amount of resource: mem", "memory"),
            ("Not Running: Insufficient amount of resource: host", "different hosts"),
            ("Job Array Held", "is held"),
            ("Not Running: Insufficient amount of queue resource: ncpus", "queue has given"),
            ("Not Running: Insufficient amount of server resource: lic", "licenses"),
            (
                "Can Never Run: Insufficient amount of resource: ncpus (R: 9 A: 8 T: 8)",
                "never starts",
            ),
            ("Not Running: Not enough total nodes available", "than there are"),
            ("Not Running: Not enough free nodes available", "free nodes"),
            ("Not Running: No available resources on nodes", "free nodes"),
            ("Not Running: Job would conflict with reservation or top job", "reservation"),
            ("Not Running: Job would cross dedicated time boundary", "maintenance"),
            ("Not Running: Job would cross primetime boundary", "prime time"),
            ("Not Running: User has reached queue workq running job limit.", "queue allows"),
            ("Not Running: User has reached server running job limit.", "server allows"),
            ("Not Running: Server per-user limit reached on resource ncpus", "a user may"),
            ("Not Running: would exceed queue workq's per-user limit", "than the limit"),
            ("Not Running: Group has reached queue workq running limit", "group"),
            ("Not Running: Queue workq per-group limit reached on resource ncpus", "group"),
            ("Not Running: Project has reached server running limit", "project"),
            ("Not Running: Queue workq job limit has been reached.", "as it may have"),
            ("Not Running: Queue not started.", "stopped"),
            ("Job is requesting an exclusive node and node is in use", "whole nodes"),
            ("Not Running: Can't fit in the largest placement set", "near each other"),
            ("waits for another job", "links of a chain"),
            ("held until its submission is complete: submit again", "was stopped"),
            ("held", "held by its user"),
        ] {
            let wait = explain(comment).unwrap_or_else(|| panic!("{comment}"));
            assert!(wait.words.contains(part) && !wait.remedy.is_empty(), "{comment}: {wait:?}");
        }
        for (part, words, _) in COMMENTS {
            assert_eq!(explain(part).map(|wait| wait.words), Some(words), "{part}");
        }
        assert_eq!(explain("Q"), None);
        assert_eq!(explain(""), None);
    }

    #[test]
    fn the_expected_start_is_read_as_it_is() {
        let text =
            "Job Id: 5.s\n    job_state = Q\n    estimated.start_time = Tue Nov 24 01:00:00 2026\n";
        assert_eq!(read_start(text), Some("Tue Nov 24 01:00:00 2026"));
        assert_eq!(read_start("    estimated.start_time = UNKNOWN\n"), None);
        assert_eq!(read_start("Job Id: 5.s\n"), None);
    }
}
