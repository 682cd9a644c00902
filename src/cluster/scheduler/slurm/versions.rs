//! What differs between versions of Slurm: options that came or went, words of states and of errors.
//!
//! From 22.05 to 26.05, by their release notes, manual pages and sources. Everything that can be detected is
//! detected: a refused option by the message of the program that refused it, all else by `scontrol show config` and
//! `srun --mpi=list`.

use super::super::{Element, End, State};

/// Options that a call can do without, and what reads the answer all the same.
const SPARED: &[(&str, &str)] = &[
    // Elements that wait come as one line then, which `lines` reads too.
    ("squeue", "--array"),
    // The results tree has the ended trials.
    ("squeue", "--states=all"),
    // A head is not a job id and is skipped.
    ("squeue", "--noheader"),
    ("sacct", "--noheader"),
    // Steps are skipped.
    ("sacct", "--allocations"),
    // Most versions print one line for each partition; a line that wraps is skipped.
    ("scontrol", "--oneliner"),
];

/// The same call without the option that it was refused for, if it can do without that one.
///
/// Slurm's programs read options by getopt_long(3): `squeue: unrecognized option '--array'`.
pub fn without_refused(argv: &[String], stderr: &str) -> Option<Vec<String>> {
    let refused = stderr.lines().find_map(|line| {
        let (_, rest) = ["unrecognized option", "invalid option", "unknown option"]
            .iter()
            .find_map(|words| line.split_once(words))?;
        let name = rest
            .trim_start_matches([' ', ':', '-'])
            .trim_matches(['\'', '`', '"', ' ', '\u{2018}']);
        let name = name.trim_start_matches('-').trim_end_matches(['\'', '\u{2019}']);
        Some(name.split('=').next().unwrap_or(name).to_owned())
    })?;
    let program = argv.first()?;
    let is_refused = |word: &String| {
        SPARED.iter().any(|(of, option)| of == program && option == word)
            && word.trim_start_matches('-').split('=').next() == Some(refused.as_str())
    };
    let rest: Vec<String> = argv.iter().filter(|word| !is_refused(word)).cloned().collect();
    (rest.len() < argv.len()).then_some(rest)
}

/// An element by its state word and its reason. Slurm holds a job for its user, for an administrator, and after too many
/// requeues.
pub(crate) fn element(word: &str, why: &str) -> Element {
    let state = match state(word) {
        State::Queued(word)
            if ["JobHeld", "JobHoldMaxRequeue"].iter().any(|held| why.starts_with(held))
                || ["REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"].contains(&word.as_str()) =>
        {
            State::Held(word)
        }
        state => state,
    };
    // sacct says who: "CANCELLED by 1001".
    let by = word.split_once(" by ").map(|(_, uid)| uid).filter(|_| reason(why).is_empty());
    Element { state, reason: by.map_or_else(|| reason(why), |uid| format!("by user id {uid}")) }
}

/// Slurm's state words (squeue(1), "JOB STATE CODES").
pub fn state(word: &str) -> State {
    // "CANCELLED by 1001" (sacct) and "CANCELLED+" (cut columns).
    let base = word.split_whitespace().next().unwrap_or("").trim_end_matches('+');
    match base {
        // EXPEDITING is of 25.11: a job of `--requeue=expedite` that is about to be begun again.
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED"
        | "SPECIAL_EXIT" | "RESV_DEL_HOLD" | "EXPEDITING" | "POWER_UP_NODE" => {
            State::Queued(base.to_owned())
        }
        "SUSPENDED" | "STOPPED" => State::Running(crate::cluster::scheduler::SUSPENDED.to_owned()),
        "RUNNING" | "COMPLETING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" => {
            State::Running(base.to_owned())
        }
        "COMPLETED" => State::Completed,
        "TIMEOUT" => State::Ended(End::Timeout, base.to_owned()),
        "OUT_OF_MEMORY" => State::Ended(End::Memory, base.to_owned()),
        "CANCELLED" => State::Ended(End::Cancelled, base.to_owned()),
        "PREEMPTED" => State::Ended(End::Preempted, base.to_owned()),
        "NODE_FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" => State::Ended(End::Node, base.to_owned()),
        "FAILED" | "DEADLINE" | "REVOKED" | "RECONFIG_FAIL" => {
            State::Ended(End::Failed, base.to_owned())
        }
        _ => State::Other(word.trim().to_owned()),
    }
}

/// Why an element waits or has ended, in words where Slurm's own need some; empty without a reason.
pub fn reason(word: &str) -> String {
    match word {
        "None" => String::new(),
        // MaxBatchRequeue: five by default, a setting since 23.02.
        "JobHoldMaxRequeue" => {
            "JobHoldMaxRequeue: held, as it was requeued more often than the site allows".to_owned()
        }
        other => other.to_owned(),
    }
}

/// Whether scontrol reports an error for an element: it prints `71_0-3: Job has already finished`, and
/// `71_4-11: No error` for those it has done.
pub fn is_no_complaint(line: &str) -> bool {
    line.ends_with(": No error") || line.contains("already finished")
}

/// Whether sbatch's message about a failed call is known to be a refusal: it made no job. After any other
/// message, the controller may have the job. The messages are those of slurm_errno.c, 22.05 to 26.05, and those
/// of sbatch's own checks.
pub fn is_refusal(stderr: &str) -> bool {
    const REFUSALS: &[&str] = &[
        // What sbatch finds before it asks the controller.
        "unrecognized option",
        "invalid option",
        "Unable to open file",
        // Errors that the controller finds before it makes a job.
        "Access denied to requested reservation",
        "Access/permission denied",
        "CPU count specification invalid",
        "Duplicate job id",
        "Error generating job credential",
        "Immediate execution impossible",
        "Incompatible versions of client and server code",
        "Invalid account or account/partition combination specified",
        "Invalid feature specification",
        "Invalid generic resource (gres) specification",
        "Invalid job array specification",
        "Invalid license specification",
        "Invalid node name specified",
        "Invalid partition name specified",
        "Invalid qos specification",
        "Invalid user id",
        "Invalid wckey specification",
        "Job dependency problem",
        "Job script not specified",
        "Job size specification needs to be provided",
        "Job violates accounting/QOS policy",
        "MaxJobCount limit reached",
        "Memory required by task is not available",
        "More processors requested than permitted",
        "No partition specified or system default partition",
        "Node count specification invalid",
        "Pathname of a file, directory or other parameter too long",
        "Protocol authentication error",
        "Rate limit exceeded",
        "Requested node configuration is not available",
        "Requested nodes not in this partition",
        "Requested operation is presently disabled",
        "Requested operation not supported on this system",
        "Requested partition configuration not available now",
        "Requested reservation is invalid",
        "Requested time limit is invalid",
        "Required partition not available",
        "Task count specification invalid",
        "Task distribution specification invalid",
        "User's group not permitted to use this partition",
        "invalid partition specified",
    ];
    const LOST: &[&str] =
        &["timed out", "Unable to contact slurm controller", "Connection re", "receive failure"];
    let says = |signs: &[&str]| signs.iter().any(|sign| stderr.contains(sign));
    says(REFUSALS) && !says(LOST)
}

/// Whether sbatch's message about a refused call says that there is no place now: limits on submitted jobs of the
/// association or the QOS (`AssocMaxSubmitJobLimit`, `QOSMaxSubmitJobPerUserLimit` and others), and MaxJobCount.
pub(crate) fn is_full(stderr: &str) -> bool {
    const FULL: &[&str] = &[
        "SubmitJobLimit",
        "SubmitJobPerUserLimit",
        "SubmitJobPerAccountLimit",
        "SubmitJobsLimit",
        "MaxJobCount limit reached",
        "Slurm temporarily unable to accept job",
    ];
    FULL.iter().any(|sign| stderr.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_refused_option_is_left_out_where_the_answer_can_be_read_without_it() {
        let argv = words("squeue --noheader --array --user me --states=all --format=%i|%T");
        let without = |said: &str| without_refused(&argv, said).map(|argv| argv.join(" "));
        // Slurm 24.11 with glibc, another C library, and one that speaks of the value too.
        for said in [
            "squeue: unrecognized option '--array'\nTry \"squeue --help\" for more information\n",
            "squeue: unrecognized option: array\n",
            "squeue: unrecognized option `--array'\n",
            "squeue: unrecognized option \u{2018}--array\u{2019}\n",
        ] {
            let rest = "squeue --noheader --user me --states=all --format=%i|%T";
            assert_eq!(without(said).as_deref(), Some(rest), "{said}");
        }
        let rest = "squeue --noheader --array --user me --format=%i|%T";
        assert_eq!(without("squeue: unrecognized option '--states=all'\n").as_deref(), Some(rest));
        // An option that the call needs, an option that it did not have, and an error that is not about an
        // option.
        assert_eq!(without("squeue: unrecognized option '--format=%i|%T'\n"), None);
        assert_eq!(without("squeue: unrecognized option '--array-unique'\n"), None);
        assert_eq!(without("slurm_load_jobs error: Unable to contact slurm controller\n"), None);
        assert_eq!(without_refused(&[], "x: unrecognized option '--array'"), None);
    }

    #[test]
    fn every_state_of_every_version_is_known() {
        // job_state_string() of 22.05, 24.11 and 26.05, and flags that `--json` has as well.
        let queued = "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD \
                      SPECIAL_EXIT EXPEDITING POWER_UP_NODE";
        let running = "RUNNING COMPLETING RESIZING SIGNALING STAGE_OUT";
        let ended = "TIMEOUT CANCELLED PREEMPTED FAILED NODE_FAIL OUT_OF_MEMORY BOOT_FAIL \
                     DEADLINE REVOKED LAUNCH_FAILED RECONFIG_FAIL";
        for word in queued.split_whitespace() {
            assert_eq!(state(word), State::Queued(word.into()));
        }
        for word in running.split_whitespace() {
            assert_eq!(state(word), State::Running(word.into()));
        }
        for word in ["SUSPENDED", "STOPPED"] {
            let State::Running(words) = state(word) else { panic!("{word}") };
            assert_eq!(words, "suspended by the scheduler; it continues later");
        }
        for word in ended.split_whitespace() {
            assert!(matches!(state(word), State::Ended(_, said) if said == word), "{word}");
        }
        assert_eq!(state("CANCELLED by 1001"), State::Ended(End::Cancelled, "CANCELLED".into()));
        assert_eq!(state("HIBERNATING x"), State::Other("HIBERNATING x".into()));
    }

    #[test]
    fn what_somebody_must_let_go_is_held() {
        let is_held = |word, why| matches!(element(word, why).state, State::Held(_));
        for (word, why) in [
            ("PENDING", "JobHeldUser"),
            ("PENDING", "JobHeldAdmin"),
            ("PENDING", "JobHoldMaxRequeue"),
            ("REQUEUE_HOLD", "None"),
            ("SPECIAL_EXIT", "None"),
        ] {
            assert!(is_held(word, why), "{word} {why}");
        }
        assert!(!is_held("PENDING", "Dependency") && !is_held("RUNNING", "JobHeldUser"));
    }

    #[test]
    fn a_hold_after_too_many_requeues_says_what_lets_go() {
        assert_eq!([reason("None"), reason("Resources")], ["", "Resources"]);
        assert!(reason("JobHoldMaxRequeue").contains("more often than the site allows"));
    }

    #[test]
    fn only_what_is_known_to_be_a_refusal_is_one_in_any_version() {
        for said in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            "sbatch: error: Batch job submission failed: Message receive failure",
            "sbatch: error: Batch job submission failed: Connection timed out reading",
            "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
            "sbatch: error: Batch job submission failed: Controller is in standby mode, try a different controller",
            "sbatch: error: Batch job submission failed: Unspecified error",
            "sbatch: error: the budget of project x could not be charged",
            "",
        ] {
            assert!(!is_refusal(said), "{said}");
        }
        for said in [
            "sbatch: error: Batch job submission failed: Job dependency problem",
            "sbatch: error: Batch job submission failed: Rate limit exceeded, please retry later",
            "sbatch: error: invalid partition specified: shrt",
        ] {
            assert!(is_refusal(said), "{said}");
        }
    }
}
