//! Why Slurm lets a job wait (squeue(1), "JOB REASON CODES"): in plain words, and what can be done.

use crate::cluster::scheduler::Wait;

/// The reasons that users meet most often.
const REASONS: [(&str, &str, &str); 49] = [
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
    ("InvalidAccount", "its account does not exist any more", "name another `account`"),
    ("AccountNotAllowed", "its account may not use the partition", "name another `account`"),
    (
        "PartitionConfig",
        "it asks for something that the partition does not allow",
        "name another `partition`; `scontrol show partition` shows what it allows",
    ),
    (
        "MaxMemPerLimit",
        "it asks for more memory on a node or for a core than the partition allows",
        "ask for less memory, or name another `partition`",
    ),
    (
        "AccountingPolicy",
        "a limit of the account or the QOS holds it",
        "`sacctmgr show assoc` and `sacctmgr show qos` show the limits",
    ),
    (
        "QOSUsageThreshold",
        "the account has used too much lately for this QOS",
        "wait, or name another `qos`",
    ),
    (
        "QOSTimeLimit",
        "its walltime is longer than the QOS allows",
        "ask for a shorter `walltime`, or name another `qos`",
    ),
    (
        "AssociationTimeLimit",
        "its walltime is longer than the account allows",
        "ask for a shorter `walltime`, or name another `account`",
    ),
    (
        "Constraints",
        "no node has what it asks for now",
        "change `constraint`, memory, cores or GPUs; `scontrol show node` shows what nodes have",
    ),
    (
        "ReservationDeleted",
        "its reservation was deleted, so it never starts",
        "cancel it, and submit it without the reservation",
    ),
    (
        "ReservationInvalid",
        "it may not use its reservation, so it never starts",
        "cancel it, and submit it without the reservation",
    ),
    (
        "DeadLine",
        "it cannot end before the deadline that it was submitted with",
        "cancel it, and submit it without the deadline",
    ),
    ("Prolog", "its nodes are being prepared", "wait"),
    ("Cleaning", "Slurm cleans up after its last run", "wait"),
    ("SchedDefer", "Slurm looks at it later", "wait"),
    ("FedJobLock", "another cluster of the federation decides about it", "wait"),
    ("FrontEndDown", "no front-end node is up", "wait, or ask the administrators"),
    (
        "JobLaunchFailure",
        "Slurm could not start it, and holds it",
        "look at its log, then `hpcsweep release`; ask the administrators if it happens again",
    ),
    ("SystemFailure", "a part of Slurm failed", "ask the administrators"),
];

/// Limits that have many names: how a name begins and what it holds.
const FAMILIES: [(&str, &str, &str, &str); 14] = [
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
        "QOSMax",
        "PerNode",
        "it asks for more on a node than the QOS allows",
        "ask for less, or name another `qos`",
    ),
    (
        "QOSMin",
        "",
        "it asks for less than the QOS wants of a job",
        "ask for more, or name another `qos`",
    ),
    (
        "Max",
        "PerAccount",
        "all jobs of the account together have as much as the QOS allows an account",
        "wait, or name another `account` or `qos`",
    ),
    (
        "BurstBuffer",
        "",
        "it waits for its burst buffer",
        "wait; `scontrol show burst` shows its state",
    ),
    ("Power", "", "it waits for nodes to have power", "wait"),
    ("QOSJobLimit", "", "as many jobs of the QOS run as it allows", "wait, or name another `qos`"),
    (
        "QOSResourceLimit",
        "",
        "it asks for more than the QOS has left",
        "wait, ask for less, or name another `qos`",
    ),
    (
        "Association",
        "",
        "your jobs have as much as the account allows",
        "wait, ask for less, or name another `account`",
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

    /// The words of Slurm 25.11 for jobs that wait, and of releases back to 21.08.
    const WORDS: &str = "Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown \
        PartitionInactive JobHeldAdmin JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit \
        AssociationTimeLimit Reservation ReqNodeNotAvail FrontEndDown SchedDefer NodeDown BadConstraints SystemFailure \
        JobLaunchFailure InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning \
        QOSNotAllowed AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpJobsLimit \
        QOSGrpMemLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit \
        QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit \
        QOSMaxSubmitJobPerUserLimit QOSMaxMemoryPerUser QOSMaxGRESPerUser QOSMaxGRESPerNode QOSMaxMemoryPerNode \
        QOSMinCpuNotSatisfied QOSMinMemory QOSMinGRES QOSMinNode AssocGrpCpuLimit AssocGrpCPUMinutesLimit \
        AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit AssocGrpGRES AssocGrpBillingMinutes AssocMaxJobsLimit \
        AssocMaxCpuPerJobLimit AssocMaxWallDurationPerJobLimit AssocMaxSubmitJobLimit AssocMaxGRESPerNode JobHoldMaxRequeue \
        JobArrayTaskLimit BurstBufferResources BurstBufferStageIn BurstBufferOperation PowerNotAvail PowerReserved DeadLine \
        MaxCpuPerAccount MaxGRESPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount PartitionConfig AccountingPolicy \
        FedJobLock MaxMemPerLimit ReservationDeleted ReservationInvalid Constraints";

    #[test]
    fn each_word_of_slurm_is_explained_and_each_explanation_belongs_to_a_word() {
        let all: Vec<Wait> = WORDS
            .split_whitespace()
            .map(|word| explain(word).unwrap_or_else(|| panic!("{word}")))
            .collect();
        let known = REASONS.iter().map(|(name, words, _)| (*name, *words));
        let families = FAMILIES.iter().map(|(begin, _, words, _)| (*begin, *words));
        for (name, words) in known.chain(families) {
            assert!(all.iter().any(|wait| wait.words == words), "{name}: {words}");
        }
    }

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
