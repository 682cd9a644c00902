//! Why Slurm lets a job wait (squeue(1), "JOB REASON CODES"): in plain words, and what can be done.

use crate::scheduler::Wait;

/// The reasons that users meet most often.
const REASONS: [(&str, &str, &str); 30] = [
    (
        "Resources",
        "it is next, and waits for enough free nodes, cores, memory or GPUs",
        "less of each starts sooner; `sinfo` shows what is free",
    ),
    (
        "Priority",
        "jobs with a higher priority come first",
        "wait; `sprio` shows why; a shorter walltime may let it start in a gap before them",
    ),
    ("Dependency", "it waits for another job, as later links of a chain do", "wait"),
    (
        "DependencyNeverSatisfied",
        "the job that it waits for did not succeed, so it never starts",
        "cancel it, and run what failed again with `hpcsweep retry`",
    ),
    (
        "JobArrayTaskLimit",
        "as many elements of its array run as its plan allows (`max_running`)",
        "raise `max_running`, or wait",
    ),
    (
        "BeginTime",
        "it may not start before its time, as after a requeue",
        "wait; Slurm lets a requeued job rest for some minutes",
    ),
    ("JobHeldUser", "it is held by its user", "`hpcsweep release`"),
    ("JobHeldAdmin", "an administrator holds it", "ask the administrators"),
    (
        "JobHoldMaxRequeue",
        "it was requeued more often than the site allows",
        "look at its log, then `hpcsweep release`",
    ),
    (
        "QOSMaxJobsPerUserLimit",
        "you have as many running jobs as the QOS allows",
        "wait, name another `qos`, or run more trials in one job (`pack`, agents)",
    ),
    (
        "QOSMaxCpuPerUserLimit",
        "your running jobs have as many cores as the QOS allows",
        "wait, ask for fewer cores, or name another `qos`",
    ),
    (
        "QOSMaxMemoryPerUser",
        "your running jobs have as much memory as the QOS allows",
        "wait, ask for less memory, or name another `qos`",
    ),
    (
        "QOSMaxGRESPerUser",
        "your running jobs have as many GPUs as the QOS allows",
        "wait, ask for fewer GPUs, or name another `qos`",
    ),
    (
        "QOSMaxWallDurationPerJobLimit",
        "its walltime is longer than the QOS allows",
        "ask for a shorter `walltime`, or name another `qos`",
    ),
    (
        "QOSGrpCpuLimit",
        "all users of the QOS together have as many cores as it allows",
        "wait, or name another `qos`",
    ),
    ("QOSNotAllowed", "its account or partition may not use the QOS", "name another `qos`"),
    (
        "AssocGrpCPUMinutesLimit",
        "what the account has left of its core-hours is less than the job may use",
        "ask for less walltime or fewer cores, name another `account`, or ask for more core-hours",
    ),
    (
        "AssocGrpCpuLimit",
        "all jobs of the account together have as many cores as it may have",
        "wait, or name another `account`",
    ),
    (
        "AssocGrpGRES",
        "all jobs of the account together have as many GPUs as it may have",
        "wait, or name another `account`",
    ),
    (
        "AssocMaxJobsLimit",
        "you have as many running jobs as the account allows",
        "wait, or run more trials in one job (`pack`, agents)",
    ),
    (
        "PartitionTimeLimit",
        "its walltime is longer than the partition allows",
        "ask for a shorter `walltime`, or name another `partition`; `sinfo -o '%P %l'` shows the limits",
    ),
    (
        "PartitionNodeLimit",
        "it asks for more nodes than the partition allows",
        "ask for fewer `nodes`, or name another `partition`",
    ),
    (
        "PartitionDown",
        "its partition is down: nothing starts there",
        "wait, or name another `partition`",
    ),
    (
        "PartitionInactive",
        "its partition is inactive: nothing starts there",
        "wait, or name another `partition`",
    ),
    (
        "ReqNodeNotAvail",
        "a node that it needs is down, drained or reserved, perhaps for maintenance",
        "a walltime that ends before the maintenance starts sooner; `scontrol show reservation` shows when",
    ),
    ("Reservation", "it waits for its reservation to begin", "wait"),
    ("NodeDown", "a node that it needs is down", "wait, or do not name nodes"),
    (
        "BadConstraints",
        "no node has what it asks for, so it never starts",
        "change `constraint`, memory, cores or GPUs; `scontrol show node` shows what nodes have",
    ),
    ("Licenses", "it waits for a license", "wait"),
    ("InvalidQOS", "its QOS does not exist any more", "name another `qos`"),
];

/// Limits that have many names: how a name begins and what it holds.
const FAMILIES: [(&str, &str, &str, &str); 6] = [
    (
        "QOSMax",
        "PerUser",
        "your jobs have as much as the QOS allows a user",
        "wait, ask for less, or name another `qos`",
    ),
    (
        "QOSMax",
        "PerJob",
        "it asks for more than the QOS allows a job",
        "ask for less, or name another `qos`",
    ),
    (
        "QOSGrp",
        "",
        "all users of the QOS together have as much as it allows",
        "wait, or name another `qos`",
    ),
    (
        "AssocGrp",
        "Minutes",
        "what the account has left of its budget is less than the job may use",
        "ask for less walltime, or name another `account`",
    ),
    (
        "AssocGrp",
        "",
        "all jobs of the account together have as much as it may have",
        "wait, or name another `account`",
    ),
    (
        "AssocMax",
        "",
        "your jobs have as much as the account allows",
        "wait, ask for less, or name another `account`",
    ),
];

/// What a reason means. Slurm may add words: `ReqNodeNotAvail, UnavailableNodes:n[1-2]`.
pub(crate) fn explain(reason: &str) -> Option<Wait> {
    let word = reason.split(|c: char| !c.is_alphanumeric()).next()?;
    let exact = REASONS.iter().find(|(name, ..)| *name == word);
    let exact = exact.map(|(_, words, remedy)| Wait { words, remedy });
    exact.or_else(|| {
        let is_it = |(begin, part, ..): &&(&str, &str, &str, &str)| {
            word.starts_with(begin) && word.contains(part)
        };
        FAMILIES.iter().find(is_it).map(|(.., words, remedy)| Wait { words, remedy })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_reasons_are_in_plain_words_with_what_can_be_done() {
        for (reason, part) in [
            ("Resources", "waits for enough free nodes"),
            ("Priority", "higher priority"),
            ("Dependency", "waits for another job"),
            ("DependencyNeverSatisfied", "never starts"),
            ("JobArrayTaskLimit", "max_running"),
            ("BeginTime", "before its time"),
            ("JobHeldUser", "held by its user"),
            ("JobHeldAdmin", "administrator"),
            ("QOSMaxJobsPerUserLimit", "running jobs as the QOS allows"),
            ("QOSMaxCpuPerUserLimit", "cores as the QOS"),
            ("QOSMaxWallDurationPerJobLimit", "longer than the QOS allows"),
            ("QOSMaxNodePerUserLimit", "the QOS allows a user"),
            ("QOSGrpNodeLimit", "all users of the QOS"),
            ("AssocGrpCPUMinutesLimit", "core-hours"),
            ("AssocGrpGRESMinutes", "budget"),
            ("AssocGrpMemLimit", "all jobs of the account"),
            ("AssocMaxJobsLimit", "running jobs as the account"),
            ("PartitionTimeLimit", "longer than the partition allows"),
            ("PartitionNodeLimit", "more nodes"),
            ("PartitionDown", "is down"),
            ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "maintenance"),
            ("ReqNodeNotAvail(Unavailable:n3)", "drained"),
            ("BadConstraints", "no node has"),
            ("Licenses", "license"),
            ("JobHoldMaxRequeue: held, as it was requeued too often", "requeued more often"),
        ] {
            let wait = explain(reason).unwrap_or_else(|| panic!("{reason}"));
            assert!(wait.words.contains(part) && !wait.remedy.is_empty(), "{reason}: {wait:?}");
        }
        for unknown in ["", "PENDING", "SomethingNew", "QOS"] {
            assert_eq!(explain(unknown), None, "{unknown}");
        }
    }
}
