//! Whether a trial that ended without success runs again by itself: the rules of `[retry]`. The feeder of job arrays, agents
//! and the executor on this machine ask here.

use crate::base::cause::Cause;
use crate::base::units;
use crate::base::words;
use crate::plan::{Resources, Retry};

/// What is known of a trial that ended without success.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) cause: Cause,
    pub(crate) exit_code: Option<i32>,
    /// Its request, the last time.
    pub(crate) asked: &'a Resources,
    /// The host of the last attempt; empty if none is known. A rule that excludes nodes excludes this one.
    pub(crate) host: &'a str,
    /// How often it has run again by itself, as far as that counts.
    pub(crate) repeats: u32,
    /// How far it came, and how far the attempt before that, in words.
    pub(crate) came_to: [Option<String>; 2],
    /// Whether the last attempt wrote metrics that advanced, or a checkpoint.
    pub(crate) has_advanced: bool,
    pub(crate) ground: Ground<'a>,
}

impl<'a> Case<'a> {
    /// A trial that was lost with the agent that ran it.
    pub(crate) fn lost(asked: &'a Resources, host: &'a str, repeats: u32) -> Self {
        Self {
            cause: Cause::WorkerLost,
            exit_code: None,
            asked,
            host,
            repeats,
            came_to: [None, None],
            has_advanced: false,
            ground: Ground::Slots { has_others: true, is_of_many: true },
        }
    }
}

/// Where a trial runs again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ground<'a> {
    /// In a job of its own, which a scheduler keeps away from nodes by this option, if it can.
    Jobs { excludes: Option<&'a str> },
    /// In a process that runs several trials and gives none of them its own share of memory.
    Slots {
        /// Whether other trials may have run beside this one.
        has_others: bool,
        /// Whether there may be such processes on other hosts.
        is_of_many: bool,
    },
}

/// What becomes of such a trial.
#[derive(Debug, PartialEq)]
pub(crate) enum Ruling {
    /// It runs again with this request; `counts`: towards the limit; `alone`: nothing else may run beside it.
    Again { request: Resources, counts: bool, alone: bool, why: String },
    /// It does not run again; why, in words.
    Left(String),
}

/// Decides about one trial.
pub(crate) fn decide(case: &Case<'_>, retry: &Retry) -> Ruling {
    use Cause::*;
    let mut request = case.asked.clone();
    let mut alone = false;
    let counts = !(matches!(case.cause, Preempted | Requeued) && retry.preempted.unlimited);
    let is_named = case.exit_code.is_some_and(|code| retry.exit_codes.contains(&code));
    let (what, how) = match case.cause {
        Preempted | Requeued => (case.cause.word().to_owned(), "again".to_owned()),
        NodeFailure | WorkerLost | RankLost | Rendezvous | TreeUnreachable => {
            let what = match case.host {
                "" => case.cause.word().to_owned(),
                host => format!("{} on {host}", case.cause.word()),
            };
            let can_exclude = match case.ground {
                Ground::Jobs { excludes } => excludes.is_some(),
                Ground::Slots { is_of_many, .. } => is_of_many,
            };
            if let Ground::Jobs { excludes: Some(option) } = case.ground
                && retry.node.exclude
                && !case.host.is_empty()
            {
                exclude(&mut request.directives, option, case.host);
            }
            match can_exclude && retry.node.exclude && !case.host.is_empty() {
                true => (what, format!("again, not on {}", case.host)),
                false => (what, "again".to_owned()),
            }
        }
        OutOfMemory if retry.oom.is_none() => {
            return Ruling::Left("out-of-memory: `[retry]` has no `oom`".to_owned());
        }
        OutOfMemory if matches!(case.ground, Ground::Slots { has_others: false, .. }) => {
            let why = "out-of-memory: no other trial ran beside it, and there is no more memory";
            return Ruling::Left(why.to_owned());
        }
        OutOfMemory if matches!(case.ground, Ground::Slots { .. }) => {
            alone = true;
            (case.cause.word().to_owned(), "again, with no other trial beside it".to_owned())
        }
        OutOfMemory => {
            let growth = retry.oom.unwrap_or_default();
            let Some(asked) = case.asked.memory_mib else {
                let why = "out-of-memory: it requests no memory that could grow";
                return Ruling::Left(why.to_owned());
            };
            let had = units::memory_text(asked);
            let Some(now) = growth.raise(asked) else {
                return Ruling::Left(format!("out-of-memory with {had}: that is all of `up_to`"));
            };
            request.memory_mib = Some(now);
            let how = format!("again with {}", units::memory_text(now));
            (format!("out-of-memory with {had}"), how)
        }
        Walltime => {
            let Some(growth) = retry.timeout else {
                return Ruling::Left("walltime: `[retry]` has no `timeout`".to_owned());
            };
            if !case.has_advanced {
                let why = "walltime: it wrote no checkpoint, and its metrics did not advance";
                return Ruling::Left(why.to_owned());
            }
            let Some(asked) = case.asked.walltime_s else {
                let why = "walltime: it requests none that could grow";
                return Ruling::Left(why.to_owned());
            };
            let had = units::walltime_text(asked);
            match growth.raise(asked) {
                Some(now) => {
                    request.walltime_s = Some(now);
                    let how = format!("again with {}", units::walltime_text(now));
                    (format!("walltime of {had}"), how)
                }
                // It continues from its checkpoint.
                None => (format!("walltime of {had}"), "again".to_owned()),
            }
        }
        _ if is_named => {
            (format!("exit code {}", case.exit_code.unwrap_or_default()), "again".to_owned())
        }
        other => {
            return Ruling::Left(format!("{}: nothing in `[retry]` repeats it", other.word()));
        }
    };
    if !counts {
        let why = format!("{what}: {how}");
        return Ruling::Again { request, counts, alone, why };
    }
    if case.repeats >= retry.max {
        return Ruling::Left(format!("{what}: it has run again {}", words::times(case.repeats)));
    }
    if let [Some(last), Some(before)] = &case.came_to
        && last == before
        && case.cause != OutOfMemory
    {
        return Ruling::Left(format!("{what}: two attempts in a row ended at {last}"));
    }
    let why = format!("{what}: {how} ({} of {})", case.repeats + 1, retry.max);
    Ruling::Again { request, counts, alone, why }
}

/// Adds a node to those that a request stays away from.
fn exclude(directives: &mut Vec<String>, option: &str, host: &str) {
    match directives.iter_mut().find(|directive| directive.starts_with(option)) {
        Some(own) if own[option.len()..].split(',').any(|name| name == host) => {}
        Some(own) => own.push_str(&format!(",{host}")),
        None => directives.push(format!("{option}{host}")),
    }
}

/// How the reason begins that the budget gives.
const BUDGET: &str = "the budget of ";

/// The decision about every trial once the budget is used up.
pub(crate) fn spent(retry: &Retry) -> Ruling {
    let budget = retry.budget.unwrap_or_default();
    Ruling::Left(format!("{BUDGET}{budget} core-hours is used up"))
}

/// Whether this reason is the budget.
pub(crate) fn is_of_budget(why: &str) -> bool {
    why.starts_with(BUDGET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::plan;

    const ALL: &str = "[retry]\nauto = true\noom = { memory = \"x2\", up_to = \"6G\" }\n\
        timeout = { walltime = \"x1.5\", up_to = \"2h\" }\nnode = { exclude = true }\n\
        preempted = { unlimited = true }\nexit_codes = { 75 = \"again\" }\n";

    fn asked() -> Resources {
        Resources { memory_mib: Some(2048), walltime_s: Some(3600), ..Resources::default() }
    }

    fn case(cause: Cause, asked: &Resources) -> Case<'_> {
        let came_to = [None, None];
        let ground = Ground::Jobs { excludes: Some("--exclude=") };
        let (repeats, has_advanced) = (0, true);
        Case { cause, exit_code: None, asked, host: "n2", repeats, came_to, has_advanced, ground }
    }

    /// The verdict about a case in words, and the request where it changes.
    fn said(case: &Case<'_>, text: &str) -> String {
        match decide(case, &plan(text).retry) {
            Ruling::Left(why) => format!("left: {why}"),
            Ruling::Again { request, counts, alone, why } => {
                let mut words = format!("again: {why}");
                if alone {
                    words.push_str(" [alone]");
                }
                if !counts {
                    words.push_str(" [free]");
                }
                if request != *case.asked {
                    let (memory, time) = (request.memory_mib, request.walltime_s);
                    words.push_str(&format!(" {memory:?} {time:?} {:?}", request.directives));
                }
                words
            }
        }
    }

    #[test]
    fn without_keys_only_what_was_not_the_programs_fault_runs_again() {
        let auto = "[retry]\nauto = true\n";
        let asked = asked();
        let of = |cause| said(&case(cause, &asked), auto);
        assert_eq!(of(Cause::Preempted), "again: preempted: again (1 of 3)");
        assert_eq!(of(Cause::NodeFailure), "again: node-failure on n2: again (1 of 3)");
        assert_eq!(of(Cause::WorkerLost), "again: worker-lost on n2: again (1 of 3)");
        assert_eq!(of(Cause::OutOfMemory), "left: out-of-memory: `[retry]` has no `oom`");
        assert_eq!(of(Cause::Walltime), "left: walltime: `[retry]` has no `timeout`");
        for cause in [Cause::ExitCode, Cause::Signal, Cause::Exception, Cause::Stopped] {
            let left = format!("left: {}: nothing in `[retry]` repeats it", cause.word());
            assert_eq!(of(cause), left);
        }
    }

    #[test]
    fn requests_grow_until_their_limit() {
        let asked = asked();
        let grown = Resources { memory_mib: Some(6144), walltime_s: Some(7200), ..asked.clone() };
        assert_eq!(
            said(&case(Cause::OutOfMemory, &asked), ALL),
            "again: out-of-memory with 2G: again with 4G (1 of 3) Some(4096) Some(3600) []"
        );
        assert_eq!(
            said(&case(Cause::OutOfMemory, &grown), ALL),
            "left: out-of-memory with 6G: that is all of `up_to`"
        );
        assert_eq!(
            said(&case(Cause::Walltime, &asked), ALL),
            "again: walltime of 01:00:00: again with 01:30:00 (1 of 3) Some(2048) Some(5400) []"
        );
        // It continues with the longest walltime.
        assert_eq!(
            said(&case(Cause::Walltime, &grown), ALL),
            "again: walltime of 02:00:00: again (1 of 3)"
        );
        let without = Resources::default();
        assert_eq!(
            said(&case(Cause::OutOfMemory, &without), ALL),
            "left: out-of-memory: it requests no memory that could grow"
        );
    }

    #[test]
    fn what_makes_no_progress_stops() {
        let asked = asked();
        let still = Case { has_advanced: false, ..case(Cause::Walltime, &asked) };
        assert_eq!(
            said(&still, ALL),
            "left: walltime: it wrote no checkpoint, and its metrics did not advance"
        );
        let came_to = || [Some("epoch 7".to_owned()), Some("epoch 7".to_owned())];
        let same = |cause| Case { came_to: came_to(), ..case(cause, &asked) };
        assert_eq!(
            said(&same(Cause::NodeFailure), ALL),
            "left: node-failure on n2: two attempts in a row ended at epoch 7"
        );
        // With more memory it may come further, and what is preempted is not at fault.
        assert!(said(&same(Cause::OutOfMemory), ALL).starts_with("again"));
        assert!(said(&same(Cause::Preempted), ALL).starts_with("again"));
        let often = |cause| Case { repeats: 3, ..case(cause, &asked) };
        assert_eq!(
            said(&often(Cause::OutOfMemory), ALL),
            "left: out-of-memory with 2G: it has run again 3 times"
        );
        assert_eq!(said(&often(Cause::Preempted), ALL), "again: preempted: again [free]");
    }

    #[test]
    fn exit_codes_are_repeated_by_name() {
        let asked = asked();
        let code = |code| Case { exit_code: Some(code), ..case(Cause::ExitCode, &asked) };
        assert_eq!(said(&code(75), ALL), "again: exit code 75: again (1 of 3)");
        assert_eq!(said(&code(1), ALL), "left: exit-code: nothing in `[retry]` repeats it");
        let raised = Case { exit_code: Some(75), ..case(Cause::Exception, &asked) };
        assert_eq!(said(&raised, ALL), "again: exit code 75: again (1 of 3)");
    }

    #[test]
    fn nodes_that_failed_are_excluded_one_after_the_other() {
        let first = asked();
        let words = "again: node-failure on n2: again, not on n2 (1 of 3) Some(2048) Some(3600) ";
        assert_eq!(
            said(&case(Cause::NodeFailure, &first), ALL),
            format!("{words}[\"--exclude=n2\"]")
        );
        let second = Resources { directives: vec!["--exclude=n1".to_owned()], ..asked() };
        assert_eq!(
            said(&case(Cause::NodeFailure, &second), ALL),
            format!("{words}[\"--exclude=n1,n2\"]")
        );
        let mut own = vec!["--exclude=n12,n2".to_owned()];
        exclude(&mut own, "--exclude=", "n2");
        exclude(&mut own, "--exclude=", "n1");
        assert_eq!(own, ["--exclude=n12,n2,n1"]);
    }

    #[test]
    fn where_trials_share_memory_one_that_had_too_little_runs_alone() {
        let asked = asked();
        let slots = |has_others, is_of_many| Ground::Slots { has_others, is_of_many };
        let of = |cause, ground| said(&Case { ground, ..case(cause, &asked) }, ALL);
        assert_eq!(
            of(Cause::OutOfMemory, slots(true, true)),
            "again: out-of-memory: again, with no other trial beside it (1 of 3) [alone]"
        );
        assert_eq!(
            of(Cause::OutOfMemory, slots(false, true)),
            "left: out-of-memory: no other trial ran beside it, and there is no more memory"
        );
        assert_eq!(
            of(Cause::WorkerLost, slots(true, true)),
            "again: worker-lost on n2: again, not on n2 (1 of 3)"
        );
        assert_eq!(
            of(Cause::WorkerLost, slots(true, false)),
            "again: worker-lost on n2: again (1 of 3)"
        );
        assert_eq!(
            of(Cause::Walltime, slots(true, true)),
            "again: walltime of 01:00:00: again with 01:30:00 (1 of 3) Some(2048) Some(5400) []"
        );
    }
}
