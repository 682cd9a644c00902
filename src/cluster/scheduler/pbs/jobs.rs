//! qstat's output about jobs, and which of it is reliable.
//!
//! An element's end is never read here: for a deleted array PBS forgets how its elements ended, for an
//! element whose array still lives it does not report whether it ran, and an element that was deleted while
//! it waited has exit status 0. So these attributes only show whether a job waits, runs, or has ended, and
//! why, if no record does.

use std::collections::{HashMap, HashSet};

use super::json;
use crate::cluster::scheduler::job::array_of;
use crate::cluster::scheduler::{Element, Elements, End, State};

/// A job, an array, or one of its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Its id: `5.server`, `5[].server`, `5[3].server`.
    pub id: String,
    /// The name under which it was submitted, `Job_Name`.
    pub name: String,
    /// Who submitted it, without the host.
    pub owner: String,
    /// The queue that it is in now.
    pub queue: String,
    /// How many elements of an array are in each state: `Queued:1 Running:2 Exiting:0 Expired:5`.
    pub counts: String,
    /// Letter of its state.
    pub state: String,
    /// A finer state: 92 ended, 93 failed, 91 deleted.
    pub substate: Option<i64>,
    /// Exit status, for what it is worth.
    pub exit: Option<i64>,
    /// Whether it was put on a host.
    pub has_run: bool,
    /// Letters of its holds: `u` its user's, `s` the server's.
    pub holds: String,
    /// The jobs that it waits for or has waited for, and the jobs that wait for it, in the form of
    /// `-W depend`.
    pub depend: String,
    /// The server's remark about it, such as why it waits; empty without one.
    pub comment: String,
    /// The one value that came with it through `-v`.
    pub token: Option<String>,
}

/// The variable that carries the path of a job's script.
pub(crate) const VARIABLE: &str = "HPCSWEEP_JOB";

/// Reads `qstat -f -F json`, with or without `-x` and `-t`.
///
/// # Errors
/// When it is not JSON.
pub fn jobs(stdout: &str) -> Result<Vec<Job>, String> {
    let answer = json::parse(stdout)?;
    let job = |(id, node): (&String, &serde_json::Value)| {
        let text = |name: &str| json::text(node, name).unwrap_or_default();
        let has = |name: &str| node.get(name).is_some();
        Job {
            id: id.clone(),
            name: text("Job_Name"),
            owner: without_host(&text("Job_Owner")),
            queue: text("queue"),
            counts: text("array_state_count"),
            state: text("job_state"),
            substate: json::number(node, "substate"),
            exit: json::number(node, "Exit_status"),
            has_run: has("exec_host") || has("run_count"),
            holds: text("Hold_Types"),
            depend: text("depend"),
            comment: text("comment"),
            token: node.get("Variable_List").and_then(|v| json::text(v, VARIABLE)),
        }
    };
    Ok(json::members(&answer, "Jobs").map(job).collect())
}

/// Reads the same from `qstat -f`, whose lines are `    key = value`, continued by a tab: for servers
/// whose JSON cannot be read.
pub fn jobs_from_text(stdout: &str) -> Vec<Job> {
    let whole = stdout.replace("\n\t", "");
    let mut jobs: Vec<Job> = Vec::new();
    for line in whole.lines() {
        if let Some(id) = line.strip_prefix("Job Id: ") {
            jobs.push(Job { id: id.trim().to_owned(), ..Job::default() });
            continue;
        }
        let (Some(job), Some((key, value))) = (jobs.last_mut(), line.trim().split_once(" = "))
        else {
            continue;
        };
        match key {
            "Job_Name" => value.clone_into(&mut job.name),
            "Job_Owner" => job.owner = without_host(value),
            "queue" => value.clone_into(&mut job.queue),
            "array_state_count" => value.clone_into(&mut job.counts),
            "job_state" => value.clone_into(&mut job.state),
            "substate" => job.substate = value.parse().ok(),
            "Exit_status" => job.exit = value.parse().ok(),
            "exec_host" | "run_count" => job.has_run = true,
            "Hold_Types" => value.clone_into(&mut job.holds),
            "depend" => value.clone_into(&mut job.depend),
            "comment" => value.clone_into(&mut job.comment),
            "Variable_List" => {
                let own =
                    |item: &str| item.strip_prefix(&format!("{VARIABLE}=")).map(str::to_owned);
                job.token = value.split(',').find_map(own);
            }
            _ => {}
        }
    }
    jobs
}

/// The user name in `user@host`.
fn without_host(owner: &str) -> String {
    owner.split('@').next().unwrap_or_default().to_owned()
}

impl Job {
    /// How many places of a queue it takes: one, or as an array one for each element that has not ended.
    pub fn places(&self) -> u64 {
        if matches!(self.state.as_str(), "F" | "M") {
            return 0;
        }
        if self.counts.is_empty() {
            return 1;
        }
        let states = self.counts.split_whitespace().filter_map(|one| one.split_once(':'));
        let open = states.filter(|(state, _)| *state != "Expired");
        open.filter_map(|(_, n)| n.parse::<u64>().ok()).sum()
    }

    /// Whether it is an array rather than a plain job or an element.
    fn is_array(&self) -> bool {
        self.id.contains("[]")
    }

    /// The index of an element.
    fn index(&self) -> Option<u64> {
        self.id.split_once('[')?.1.split_once(']')?.0.parse().ok()
    }

    /// Its dependencies on others, each a kind and ids; `beforeany` is how it shows that another waits for it.
    fn after(&self) -> impl Iterator<Item = &str> {
        self.depend.split(',').filter(|one| !one.is_empty() && !one.starts_with("before"))
    }

    /// The jobs that it waits for, or has waited for.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = &str> {
        self.after().flat_map(|one| one.split(':').skip(1)).map(bare)
    }

    /// Whether the server holds it because of jobs of which one has ended: PBS releases waiting jobs when a job ends,
    /// and never those that are registered after that.
    pub(crate) fn is_stalled(&self, has_ended: impl Fn(&str) -> bool) -> bool {
        self.state == "H" && self.holds.contains('s') && self.waits_for().any(has_ended)
    }

    /// Its dependencies without the jobs that have ended, as `-W depend` takes them.
    pub fn depend_without(&self, has_ended: impl Fn(&str) -> bool) -> String {
        let one = |one: &str| {
            let mut parts = one.split(':');
            let kind = parts.next().unwrap_or_default();
            let ids = parts.map(bare).filter(|id| kind.starts_with("before") || !has_ended(id));
            let ids: Vec<&str> = ids.collect();
            (!ids.is_empty()).then(|| format!("{kind}:{}", ids.join(":")))
        };
        self.depend.split(',').filter_map(one).collect::<Vec<_>>().join(",")
    }

    /// The state of the element that it is about.
    pub fn element(&self) -> Element {
        let comment = || self.comment.clone();
        let element = |state, reason| Element { state, reason };
        match self.state.as_str() {
            "Q" | "W" | "T" | "M" => {
                element(State::Queued(self.state.clone()), said(&self.comment))
            }
            "H" => {
                if self.holds.contains('u') {
                    return element(State::Held("H".to_owned()), "held".to_owned());
                }
                let waits = self.after().next().map(|_| "waits for another job".to_owned());
                element(State::Queued("H".to_owned()), waits.unwrap_or_else(comment))
            }
            // PBS reports that at once, and reports the job as running until it has ended.
            "R" | "B" if self.comment.contains(" and terminated") => {
                element(State::Running(State::STOPPING.to_owned()), String::new())
            }
            "R" | "B" => element(State::Running("RUNNING".to_owned()), String::new()),
            "E" => element(State::Running("exiting".to_owned()), String::new()),
            "S" | "U" => element(
                State::Running(crate::cluster::scheduler::SUSPENDED.to_owned()),
                String::new(),
            ),
            "X" | "F" => element(self.ended(), String::new()),
            other => element(State::Other(other.to_owned()), comment()),
        }
    }

    /// Why it may have ended. Exit statuses: PBS Guide, "Job Exit Status Codes".
    fn ended(&self) -> State {
        let say = |end, words: String| State::Ended(end, words);
        let never = |why: &str| say(End::Unrun, why.to_owned());
        if !self.has_run {
            return match (self.state.as_str(), self.exit) {
                // As a person deletes it; a job removed with the one before it has 92.
                (_, None) if self.substate == Some(91) => never("deleted before it began"),
                ("F", None) if self.after().next().is_some() => {
                    never("deleted with the job it waited for")
                }
                // An element whose array still lives is `X`, without the host where it ran.
                _ => never("it ended before it began"),
            };
        }
        match self.exit {
            Some(0) => State::Completed,
            Some(-29) => say(End::Timeout, "exit status -29: the walltime was reached".to_owned()),
            Some(271) => say(End::Cancelled, "exit status 271: deleted".to_owned()),
            Some(code) if self.substate == Some(91) => {
                say(End::Cancelled, format!("exit status {code}: deleted"))
            }
            Some(code @ 257..) => {
                let signal = i32::try_from(code - 256).ok();
                let name = signal.and_then(|n| nix::sys::signal::Signal::try_from(n).ok());
                let name = name.map_or_else(|| format!("signal {}", code - 256), |s| s.to_string());
                say(End::Failed, format!("exit status {code}: {name}"))
            }
            Some(code) if code < 0 => {
                let end = if matches!(code, -26 | -27) { End::Memory } else { End::Failed };
                say(end, format!("exit status {code}: {}", own_words(code)))
            }
            Some(code) => say(End::Failed, format!("exit status {code}")),
            None => State::Completed,
        }
    }
}

/// The remark of a job that waits, without the state it repeats.
fn said(comment: &str) -> String {
    let comment = comment.trim_end_matches('.');
    if comment.starts_with("Job Array Began") { String::new() } else { comment.to_owned() }
}

/// What PBS means by a negative exit status (`pbs_error.h`, `job.h`).
fn own_words(code: i64) -> &'static str {
    match code {
        -1 | -2 => "it could not be started",
        -3 => "it is to be started again",
        -24 | -25 => "it used more cores than it asked for",
        -26 => "it used more virtual memory than it asked for",
        -27 => "it used more memory than it asked for",
        -28 => "its processor time was used up",
        -30 => "its processes could not be gathered",
        _ => "PBS ended it",
    }
}

/// An id of a dependency, without the server that it names once more: `5[].s@s`.
fn bare(id: &str) -> &str {
    id.split('@').next().unwrap_or_default()
}

/// The jobs that have ended, of those that were asked for; these are known.
pub(crate) fn ended<'a>(asked: &'a [String], jobs: &[Job]) -> HashSet<&'a str> {
    let lives = |id: &&String| jobs.iter().any(|job| job.id == **id && job.state != "F");
    asked.iter().filter(|id| !lives(id)).map(String::as_str).collect()
}

/// The elements of arrays, by array id, in the answer to a question for jobs. A plain job is its only element, 0.
pub fn elements(asked: &[String], jobs: &[Job]) -> HashMap<String, Elements> {
    let mut all: HashMap<String, Elements> = HashMap::new();
    let ended = ended(asked, jobs);
    let element_of = |job: &Job| {
        let mut element = job.element();
        if !job.holds.contains('u') && job.is_stalled(|id| ended.contains(id)) {
            "waits for a job that has ended: submit again".clone_into(&mut element.reason);
        }
        element
    };
    for job in jobs {
        let elements = all.entry(array_of(&job.id)).or_default();
        let element = element_of(job);
        match job.index() {
            Some(index) => elements.say_of(index, &element),
            // An array's own state holds for elements that are not listed only while it waits.
            None if job.is_array() && !element.state.waits() => {}
            None => elements.say_of_the_rest(element),
        }
    }
    // Elements of an array that is held are listed as waiting, and it may be held when some have begun.
    for array in jobs.iter().filter(|job| job.is_array()) {
        let is_held = array.state == "B" && array.holds.contains('u');
        if let (true, Some(elements)) =
            (is_held || array.state == "H", all.get_mut(&array_of(&array.id)))
        {
            let held = Job { state: "H".to_owned(), ..array.clone() };
            elements.hold(&element_of(&held));
        }
    }
    all
}

/// The id of the job of this token, if it is among them: by its name, or by the path it was given.
pub fn find(jobs: &[Job], name: &str, path: &str) -> Option<String> {
    let is_it = |job: &&Job| job.name == name || job.token.as_deref() == Some(path);
    // One that PBS has deleted with the job it waited for is submitted again.
    let is_swept_away = |job: &Job| {
        let was_deleted = job.substate == Some(91);
        job.state == "F"
            && !job.has_run
            && job.exit.is_none()
            && !was_deleted
            && job.after().next().is_some()
    };
    jobs.iter().filter(|job| !is_swept_away(job)).find(is_it).map(|job| array_of(&job.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, exit: Option<i64>, has_run: bool) -> Job {
        Job { id: "5[3].s".into(), state: state.into(), exit, has_run, ..Job::default() }
    }

    #[test]
    fn an_end_is_believed_only_as_far_as_it_is_true() {
        let check =
            |job: Job, expected: State| assert_eq!(job.element().state, expected, "{job:?}");
        let cancelled = |why: &str| State::Ended(End::Cancelled, why.into());
        let unrun = |why: &str| State::Ended(End::Unrun, why.into());
        let failed = |why: &str| State::Ended(End::Failed, why.into());
        check(job("F", Some(0), true), State::Completed);
        check(job("F", Some(0), false), unrun("it ended before it began"));
        check(job("X", Some(1), false), unrun("it ended before it began"));
        let behind = Job { depend: "afterany:1.s@s".into(), ..job("F", None, false) };
        check(behind.clone(), unrun("deleted with the job it waited for"));
        let deleted = Job { substate: Some(91), ..behind };
        check(deleted, unrun("deleted before it began"));
        check(job("F", Some(7), true), failed("exit status 7"));
        check(job("F", Some(265), true), failed("exit status 265: SIGKILL"));
        let memory = "exit status -27: it used more memory than it asked for";
        check(job("F", Some(-27), true), State::Ended(End::Memory, memory.into()));
        check(job("F", Some(271), true), cancelled("exit status 271: deleted"));
        let timeout = "exit status -29: the walltime was reached";
        check(job("F", Some(-29), true), State::Ended(End::Timeout, timeout.into()));
        check(job("Z", None, false), State::Other("Z".into()));
        check(job("B", None, false), State::Running("RUNNING".into()));
        let deleted =
            "Job run at Mon Nov 23 at 00:12 on (pbsn1:ncpus=1) and terminated by ada@pbshead";
        let deleted = Job { comment: deleted.into(), ..job("R", None, true) };
        check(deleted, State::Running("stopping".into()));
    }

    #[test]
    fn names_that_look_like_numbers_are_still_found_by_their_path() {
        let text = r#"{"Jobs": {"9[].s": {"Job_Name": 1e5, "job_state": "Q",
            "Variable_List": {"HPCSWEEP_JOB": "/r/jobs/x.1.sh", "EMPTY": ",A=b"}}}}"#;
        let jobs = jobs(text).unwrap();
        assert_eq!(find(&jobs, "x.1", "/r/jobs/x.1.sh").as_deref(), Some("9[].s"));
        assert_eq!(find(&jobs, "x.1", "/r/jobs/x.2.sh"), None);
        assert_eq!(find(&jobs, "100000.0", "").as_deref(), Some("9[].s"));
    }

    #[test]
    fn a_job_that_is_waited_for_does_not_wait() {
        let waiting = |depend: &str| Job {
            state: "H".into(),
            holds: "s".into(),
            depend: depend.into(),
            ..Job::default()
        };
        let waits_for = |depend| waiting(depend).waits_for().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(waits_for(""), [""; 0]);
        assert_eq!(waits_for("beforeany:2.s@s:3[].s@s"), [""; 0]);
        assert_eq!(waits_for("beforeany:3.s@s,afterany:1[].s@s:2.s@s"), ["1[].s", "2.s"]);
        let stalled = waiting("afterany:1.s@s:2.s@s,beforeany:4.s@s");
        assert!(stalled.is_stalled(|id| id == "1.s") && !stalled.is_stalled(|id| id == "4.s"));
        // What waits for the job stays, and it for what has not ended.
        assert_eq!(stalled.depend_without(|id| id == "1.s"), "afterany:2.s,beforeany:4.s");
        assert_eq!(stalled.depend_without(|_| true), "beforeany:4.s");
        assert_eq!(waiting("afterany:1.s@s").depend_without(|_| true), "");
    }

    #[test]
    fn a_job_that_waits_for_one_that_has_ended_says_so() {
        let behind = |id: &str, on: &str| Job {
            id: id.into(),
            state: "H".into(),
            holds: "s".into(),
            depend: format!("afterany:{on}@s"),
            ..Job::default()
        };
        let of =
            |id: &str, state: &str| Job { id: id.into(), state: state.into(), ..Job::default() };
        let asked = ["1.s", "2.s", "3.s", "4.s", "5[].s", "6.s", "7.s"].map(str::to_owned);
        let jobs = [
            of("1.s", "F"),
            of("3.s", "R"),
            behind("4.s", "1.s"),
            behind("5[].s", "2.s"),
            of("5[0].s", "Q"),
            behind("6.s", "3.s"),
            behind("7.s", "0.s"),
        ];
        let all = elements(&asked, &jobs);
        let reason = |id: &str| all[id].get(0).unwrap().reason.clone();
        let stalled = "waits for a job that has ended: submit again";
        assert_eq!([reason("4.s"), reason("5[].s")], [stalled, stalled]);
        // Jobs that were not asked for are unknown.
        let waits = "waits for another job";
        assert_eq!([reason("6.s"), reason("7.s")], [waits, waits]);
    }

    #[test]
    fn a_job_that_was_deleted_with_the_one_before_it_is_not_found() {
        let own = |state: &str, substate| Job {
            id: "5.s".into(),
            name: "x".into(),
            state: state.into(),
            substate: Some(substate),
            depend: "afterany:1.s@s".into(),
            ..Job::default()
        };
        let found = |job| find(&[job], "x", "");
        assert_eq!(found(own("F", 92)), None);
        assert_eq!(found(own("F", 91)).as_deref(), Some("5.s"));
        assert_eq!(found(own("H", 22)).as_deref(), Some("5.s"));
    }

    #[test]
    fn an_answer_without_jobs_is_none() {
        assert_eq!(jobs("{\"timestamp\": 1, \"pbs_server\": \"s\"}"), Ok(Vec::new()));
        assert!(jobs("PBS is not configured to maintain job history\n").is_err());
    }

    #[test]
    fn text_and_json_say_the_same() {
        let text = "Job Id: 5[3].s\n    Job_Name = a\n    Job_Owner = ada@n\n    job_state = F\n    queue = q\n    exec_host = n/0\n    \
                    Hold_Types = u\n    substate = 93\n    Variable_List = PBS_O_HOME=/h,\n\t\
                    HPCSWEEP_JOB=/r/jobs/\n\tx.sh\n    comment = Job run at F\n\tri and finished\n    \
                    Exit_status = 7\n\n";
        let expected = Job {
            id: "5[3].s".into(),
            name: "a".into(),
            owner: "ada".into(),
            queue: "q".into(),
            state: "F".into(),
            substate: Some(93),
            exit: Some(7),
            has_run: true,
            holds: "u".into(),
            depend: String::new(),
            comment: "Job run at Fri and finished".into(),
            token: Some("/r/jobs/x.sh".into()),
            ..Job::default()
        };
        assert_eq!(jobs_from_text(text), std::slice::from_ref(&expected));
        let json = r#"{"Jobs": {"5[3].s": {"Job_Name": "a", "Job_Owner": "ada@n", "job_state": "F", "queue": "q", "exec_host": "n/0",
            "Hold_Types": "u", "substate": 93, "Exit_status": 7, "comment": "Job run at Fri and finished",
            "Variable_List": {"HPCSWEEP_JOB": "/r/jobs/x.sh"}}}}"#;
        assert_eq!(jobs(json).unwrap(), [expected]);
    }

    #[test]
    fn an_array_takes_a_place_for_each_element_that_has_not_ended() {
        let text = "Job Id: 5[].s\n    job_state = B\n    array_state_count = Queued:3 Running:2 Exiting:1 Expired:9 \n\n\
                    Job Id: 6.s\n    job_state = H\n\nJob Id: 7.s\n    job_state = F\n\nJob Id: 8[].s\n    \
                    job_state = F\n    array_state_count = Queued:4 Running:0 Exiting:0 Expired:0 \n\n";
        let places: Vec<u64> = jobs_from_text(text).iter().map(Job::places).collect();
        assert_eq!(places, [6, 1, 0, 0]);
    }

    #[test]
    fn elements_of_an_array_are_found_by_index_and_a_plain_job_is_its_own() {
        let of = |id: &str, state: &str| Job { id: id.into(), ..job(state, None, true) };
        let held = Job { holds: "u".into(), ..of("7[].s", "H") };
        let begun = Job { holds: "u".into(), ..of("8[].s", "B") };
        let jobs = [
            of("5[].s", "B"),
            of("5[0].s", "R"),
            of("5[1].s", "Q"),
            of("6.s", "Q"),
            held,
            of("7[0].s", "Q"),
            begun,
            of("8[0].s", "R"),
            of("8[1].s", "Q"),
        ];
        let all = elements(&[], &jobs);
        let state = |id: &str, i| all.get(id).and_then(|e| e.get(i)).cloned();
        assert_eq!(state("5[].s", 0).unwrap().state, State::Running("RUNNING".into()));
        assert_eq!(state("5[].s", 1).unwrap().state, State::Queued("Q".into()));
        assert_eq!(state("5[].s", 2), None);
        assert_eq!(state("6.s", 0).unwrap().state, State::Queued("Q".into()));
        let held = Element { state: State::Held("H".into()), reason: "held".into() };
        assert_eq!(state("7[].s", 0), Some(held.clone()));
        assert_eq!(state("8[].s", 0).unwrap().state, State::Running("RUNNING".into()));
        assert_eq!(state("8[].s", 1), Some(held));
    }
}
