//! The calls of PBS's commands and what their answers mean. Manual pages: qsub(1B), qstat(1B), qdel(1B), qhold(1B),
//! qrls(1B).

use super::jobs::{self, VARIABLE};
use crate::base::fault::Fault;
use crate::cluster::scheduler::calls::{Calls, refusal};
use crate::cluster::scheduler::order::pieces;

/// The call that submits a script. It waits for the end of the jobs `after`; `held` leaves it to a later
/// [`release`] to let it go. The script's path is the one value that travels with it. `-f` keeps qsub from
/// handing the work to a process in the background, which after one refusal fails the next call as well.
pub(crate) fn submit(script: &str, after: &[String], held: bool) -> Vec<String> {
    let mut argv = ["qsub", "-f", "-v"].map(str::to_owned).to_vec();
    argv.push(format!("{VARIABLE}={script}"));
    if held {
        argv.push("-h".to_owned());
    }
    if !after.is_empty() {
        argv.extend(["-W".to_owned(), format!("depend=afterany:{}", after.join(":"))]);
    }
    argv.push(script.to_owned());
    argv
}

/// The call that asks everything about one job, in text.
pub(crate) fn job(id: &str) -> Vec<String> {
    ["qstat", "-f", id].map(str::to_owned).to_vec()
}

/// The seconds of walltime that a job has, in the answer to [`job`].
pub fn read_walltime(stdout: &str) -> Option<u64> {
    let mut lines = stdout.lines().map(str::trim);
    crate::base::units::parse_walltime(
        lines.find_map(|l| l.strip_prefix("Resource_List.walltime = "))?,
    )
}

/// Whether a path can be the value of `-v` and of `-o`: commas end a value, PBS takes quotes and backslashes away,
/// `^array_index^` stands for something, and qsub refuses what is not ASCII.
pub fn can_travel(path: &str) -> bool {
    path.bytes().all(|b| (b' '..=b'~').contains(&b) && !b",'\"\\^".contains(&b))
}

/// Options of qsub that hpcsweep sets itself, and what to write instead. `PLAN` stands for the plan.
const OWN: &[(&str, &str)] = &[
    ("-A", "use `account`"),
    ("-e", "the job's output lies in the sweep's folder: `hpcsweep logs 0 PLAN`"),
    ("-f", "qsub is called with what it takes"),
    ("-h", "`hpcsweep hold PLAN` holds the sweep"),
    ("-I", "jobs of a sweep run by themselves"),
    ("-J", "the trials of the plan are the array; `--max-running` throttles it"),
    ("-j", "the job's output lies in the sweep's folder: `hpcsweep logs 0 PLAN`"),
    ("-k", "the job's output lies in the sweep's folder: `hpcsweep logs 0 PLAN`"),
    ("-N", "the name is the token by which a job is found again; `[sweep] name` begins it"),
    ("-o", "the job's output lies in the sweep's folder: `hpcsweep logs 0 PLAN`"),
    ("-q", "use `partition`"),
    ("-r", "arrays must be rerunnable"),
    ("-V", "jobs have the environment of the submission"),
    ("-v", "use `[run] env`"),
    ("-z", "hpcsweep reads the job id itself"),
];

/// What to write instead of a directive that hpcsweep sets itself, in a plan that is this word of a command; `None` if it
/// may be used. Resources besides `select` and `walltime`, and attributes besides dependencies and the umask, are free.
pub fn instead(directive: &str, plan: &str) -> Option<String> {
    own(directive).map(|hint| hint.replace("PLAN", plan))
}

fn own(directive: &str) -> Option<&'static str> {
    if directive.starts_with("--") {
        return None;
    }
    let (option, value) = directive.split_at_checked(2)?;
    let asks = |name: &str| value.split([',', ' ', ':']).any(|item| item.trim().starts_with(name));
    match option {
        "-l" if asks("select=") || asks("nodes=") => {
            Some("use `nodes`, `ranks`, `cpus_per_rank` ...")
        }
        "-l" if asks("walltime=") => Some("use `walltime`"),
        "-W" if asks("depend=") => {
            Some("chains make the dependencies: trials that share a `task_id`")
        }
        "-W" if asks("umask=") => {
            Some("files are made under umask 022; `[run] setup` may set another")
        }
        "-W" if asks("block=") => Some("`hpcsweep status PLAN` shows when it is over"),
        _ => OWN.iter().find(|(own, _)| *own == option).map(|(_, hint)| *hint),
    }
}

/// The job id in what qsub printed, banners around it ignored: the last line that is `5.server` or
/// `5[].server`.
pub fn submitted(stdout: &str) -> Option<String> {
    stdout.lines().rev().map(str::trim).find(|line| is_id(line)).map(str::to_owned)
}

fn is_id(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &text[digits..];
    let server = rest.strip_prefix("[]").unwrap_or(rest);
    let name = server.strip_prefix('.').unwrap_or_default();
    digits > 0
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
}

/// Puts ids into the order of submission. Of a job and what waits for it the former is then asked for first, so that what
/// still waits when that has ended waits in vain.
pub fn sort(ids: &mut Vec<String>) {
    let number = |id: &String| {
        let digits: String = id.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(u64::MAX)
    };
    ids.sort_by_cached_key(|id| (number(id), id.clone()));
    ids.dedup();
}

/// The call that asks for jobs by id, all elements listed; with `history` those that have ended, too. Of several
/// ids qstat writes only the first as JSON (seen in 23.06), so those are asked for as text.
pub(crate) fn status(ids: &[String], history: bool) -> Vec<String> {
    let mut argv = vec!["qstat".to_owned()];
    argv.extend(history.then(|| "-x".to_owned()));
    argv.extend(["-t", "-f"].map(str::to_owned));
    if ids.len() == 1 {
        argv.extend(["-F", "json"].map(str::to_owned));
    }
    argv.extend(ids.iter().cloned());
    argv
}

/// The call that asks for every job that the user may see.
pub(crate) fn all(history: bool) -> Vec<String> {
    let mut argv = vec!["qstat".to_owned()];
    argv.extend(history.then(|| "-x".to_owned()));
    argv.extend(["-f", "-F", "json"].map(str::to_owned));
    argv
}

/// The same question for servers whose JSON cannot be read.
pub(crate) fn as_text(argv: &[String]) -> Vec<String> {
    argv.iter().filter(|word| !matches!(word.as_str(), "-F" | "json")).cloned().collect()
}

/// Whether an exit code of qstat means that it has answered, although some job it was asked for is unknown
/// (153) or has ended (35).
fn has_answered(code: Option<i32>) -> bool {
    matches!(code, Some(0 | 35 | 153))
}

/// Whether a line of PBS's output about several jobs is about one that has ended. It has one exit code for all of
/// them.
pub(crate) fn is_of_ended(line: &str) -> bool {
    line.contains("Unknown Job Id") || line.contains("Job has finished")
}

/// The message of qstat -x if ended jobs are not kept.
const NO_HISTORY: &str = "not configured to maintain job history";

/// Asks qstat for the jobs of these ids, as [`status`] says.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_of(
    calls: &mut Calls,
    ids: &[String],
    history: bool,
) -> anyhow::Result<Vec<jobs::Job>> {
    let answers = pieces(ids).map(|some| ask(calls, &status(some, history)));
    answers.collect::<anyhow::Result<Vec<_>>>().map(|parts| parts.concat())
}

/// Asks qstat for jobs: those it does not know are left out. JSON that cannot be read is asked for again as
/// text.
///
/// # Errors
/// When qstat does not answer.
pub(crate) fn ask(calls: &mut Calls, argv: &[String]) -> anyhow::Result<Vec<jobs::Job>> {
    let output = calls.make(argv)?;
    // The history was switched off since the submission.
    if output.stdout.contains(NO_HISTORY) || output.stderr.contains(NO_HISTORY) {
        let without: Vec<String> = argv.iter().filter(|word| *word != "-x").cloned().collect();
        if without.len() < argv.len() {
            return ask(calls, &without);
        }
    }
    if !has_answered(output.code) {
        return Err(refusal(argv, &output).into());
    }
    let is_json = argv.iter().any(|word| word == "json");
    if is_json && let Ok(jobs) = jobs::jobs(&output.stdout) {
        return Ok(jobs);
    }
    let (argv, output) = if is_json {
        let argv = as_text(argv);
        let output = calls.make(&argv)?;
        (argv, output)
    } else {
        (argv.to_vec(), output)
    };
    let jobs = jobs::jobs_from_text(&output.stdout);
    let is_empty = output.stdout.trim().is_empty();
    if !has_answered(output.code) || (jobs.is_empty() && !is_empty) {
        let said = output.stdout.lines().next().unwrap_or_default().to_owned();
        return Err(Fault::scheduler(format!("`qstat` says what cannot be read: {said}"))
            .at(format!("ran: {}", argv.join(" ")))
            .into());
    }
    Ok(jobs)
}

/// The call that asks the server for its attributes.
pub(crate) fn server() -> Vec<String> {
    ["qstat", "-Bf", "-F", "json"].map(str::to_owned).to_vec()
}

/// The call that asks for the attributes of all queues.
pub(crate) fn queues() -> Vec<String> {
    ["qstat", "-Qf", "-F", "json"].map(str::to_owned).to_vec()
}

/// The call that deletes jobs, arrays or elements.
pub(crate) fn delete(ids: &[String]) -> Vec<String> {
    std::iter::once("qdel".to_owned()).chain(ids.iter().cloned()).collect()
}

/// The call that holds jobs and arrays.
pub(crate) fn hold(ids: &[String]) -> Vec<String> {
    std::iter::once("qhold".to_owned()).chain(ids.iter().cloned()).collect()
}

/// The call that lets held jobs and arrays go.
pub(crate) fn release(ids: &[String]) -> Vec<String> {
    std::iter::once("qrls".to_owned()).chain(ids.iter().cloned()).collect()
}

/// The call that gives jobs and arrays other dependencies in place of all that they have, also of those of others on
/// them.
pub(crate) fn depend(ids: &[String], depend: &str) -> Vec<String> {
    let option = format!("depend={depend}");
    let words = ["qalter".to_owned(), "-W".to_owned(), option];
    words.into_iter().chain(ids.iter().cloned()).collect()
}

/// The id of one element of an array: `5[3].server`.
pub(crate) fn element(array: &str, index: u64) -> String {
    array.replacen("[]", &format!("[{index}]"), 1)
}

/// A job name that PBS takes and that no reader makes a number of: it begins with a letter.
pub(crate) fn job_name(token: &str) -> String {
    if token.starts_with(|c: char| c.is_ascii_alphabetic()) {
        token.to_owned()
    } else {
        format!("s{token}")
    }
}

/// Whether qsub's message about a failed call is known to be a refusal: it made no job. After any other message,
/// the server may have the job: a connection may break, or a hook or a wrapper of the site may complain, after the
/// job exists. The messages are those of OpenPBS: `pbs_messages.c`, and those of qsub's own checks.
pub fn is_refusal(stderr: &str) -> bool {
    const REFUSALS: &[&str] = &[
        // What qsub finds before it asks the server.
        "cannot connect to server",
        "qsub: illegal ",
        "directive error: ",
        "usage: qsub",
        "qsub: script file::",
        "qsub: script not a file",
        "qsub: script contains cr, lf",
        "qsub: cannot send environment with the job",
        "cannot submit non-rerunable Array Job",
        // Errors that the server finds before it makes a job.
        "Access from host not allowed, or unknown host",
        "Access to queue is denied",
        "Array job exceeds server or queue size limit",
        "Bad GID for job execution",
        "Bad UID for job execution",
        "Cannot have \"place\" without \"select\"",
        "Cannot set attribute, read only or insufficient permission",
        "Duplicate entry in list",
        "Exceeded number of licensed cpus",
        "Expired credential",
        "Illegal attribute or resource value",
        "Invalid Account",
        "Invalid Job Dependency",
        "Invalid credential",
        "Job rejected by all possible destinations",
        "Job violates queue and/or server resource limits",
        "Maximum number of jobs already in queue",
        "No default queue specified",
        "Queue is not enabled",
        "Resource invalid in \"select\" specification",
        "Resource limit exceeds allowable",
        "Unauthorized Request",
        "Undefined attribute",
        "Unknown queue",
        "Unknown resource",
        "\"-lresource=\" cannot be used with",
        "duplicated resource within a section of a select specification",
        "jobscript size exceeded the jobscript_max_size",
        "name is too long",
        "would exceed ",
    ];
    const LOST: &[&str] = &[
        "timed out",
        "Connection reset",
        "Broken pipe",
        "End of File",
        "Premature end of message",
        "Communication failure",
    ];
    let says = |signs: &[&str]| signs.iter().any(|sign| stderr.contains(sign));
    says(REFUSALS) && !says(LOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_found_among_banners() {
        let check =
            |text: &str, id: Option<&str>| assert_eq!(submitted(text).as_deref(), id, "{text}");
        check("5[].pbshead\n", Some("5[].pbshead"));
        check("** Welcome **\n12.srv-1.site.org\nproject x: 3 h left\n", Some("12.srv-1.site.org"));
        check("5[3].pbshead\n", None);
        check("qsub: Unknown queue\n", None);
        check("2026.\n", None);
    }

    #[test]
    fn what_a_job_waits_for_is_an_option_of_the_call() {
        let after = ["5[].s".to_owned(), "6.s".to_owned()];
        assert_eq!(
            submit("/r/jobs/a.sh", &after, true),
            [
                "qsub",
                "-f",
                "-v",
                "HPCSWEEP_JOB=/r/jobs/a.sh",
                "-h",
                "-W",
                "depend=afterany:5[].s:6.s",
                "/r/jobs/a.sh"
            ]
        );
        assert_eq!(submit("/a", &[], false), ["qsub", "-f", "-v", "HPCSWEEP_JOB=/a", "/a"]);
        assert_eq!(element("5[].s", 7), "5[7].s");
    }

    #[test]
    fn several_jobs_are_asked_for_as_text() {
        let ask = |ids: &[&str], history| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            status(&ids, history).join(" ")
        };
        assert_eq!(ask(&["5[].s"], true), "qstat -x -t -f -F json 5[].s");
        assert_eq!(ask(&["5[].s", "6.s"], false), "qstat -t -f 5[].s 6.s");
    }

    #[test]
    fn only_plain_paths_travel() {
        assert!(can_travel("/a b/c%a/[1];&=:#$x`"));
        for path in ["/a,b", "/it's", "/a\"b", "/a\\b", "/^array_index^", "/\u{fc}n\u{ef}", "/a\nb"]
        {
            assert!(!can_travel(path), "{path}");
        }
    }

    #[test]
    fn what_hpcsweep_sets_itself_is_taken() {
        for taken in [
            "-W depend=afterok:1",
            "-Wumask=077",
            "-lwalltime=1:00:00",
            "-l select=4:ncpus=4",
            "-l place=pack,nodes=2",
            "-v FOO=1",
            "-o /dev/null",
            "-V",
        ] {
            assert!(instead(taken, "plan.toml").is_some(), "{taken}");
        }
        for free in
            ["-P project", "-l place=excl", "-W group_list=g", "-m e", "-p 10", "--exclusive"]
        {
            assert_eq!(instead(free, "plan.toml"), None, "{free}");
        }
    }

    #[test]
    fn names_begin_with_a_letter() {
        assert_eq!(job_name("demo.1a.2"), "demo.1a.2");
        assert_eq!(job_name("1e5.1a.2"), "s1e5.1a.2");
        assert_eq!(job_name("_a"), "s_a");
    }

    #[test]
    fn only_what_is_known_to_be_a_refusal_is_one() {
        for said in [
            "qsub: Unknown queue",
            "Connection refused\nqsub: cannot connect to server pbshead (errno=15010)",
            "qsub: would exceed queue generic's per-user limit",
            "qsub: illegal -W value\nusage: qsub [-a date_time]",
            "qsub: Unknown resource Resource_List.nosuch",
        ] {
            assert!(is_refusal(said), "{said}");
        }
        for said in [
            "",
            "qsub: Connection timed out",
            "qsub: End of File",
            "qsub: PBS server internal error",
            "qsub: Failed to save job/resv, refer server logs for details",
            "qsub: Error (15012) submitting job",
            "qsub: the budget of project x could not be charged",
            "qsub: Unknown queue\nqsub: Connection timed out",
        ] {
            assert!(!is_refusal(said), "{said}");
        }
    }
}
