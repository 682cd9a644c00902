//! The events of attempts, a line each in the records of workers and in the bundles of agents.

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{Outcome, UNREAD, Usage};
use crate::base::cause::Cause;
use crate::base::host::process;
use crate::plan::Resources;
use crate::sweep::tree::key::Key;
use crate::sweep::tree::line;

/// The beginning of an attempt, with its place and environment. What all attempts of an agent share stands in the first
/// line of its bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Number of the trial in the sweep, from 0.
    pub trial: u64,
    /// Attempt, from 1, counted over all runs.
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// Slot of the agent, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// How many entries of the ledger of agents the worker or the agent had read. Every earlier run of the trial by
    /// agents began with fewer, because units are taken by an entry. So this is the order of attempts, whatever the
    /// clocks say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u64,
    /// The argument vector that runs; empty where the caller's own function does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// The snapshot of the code that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// CUDA_VISIBLE_DEVICES of rank 0, where the worker or the agent set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<String>,
    /// Host of rank 0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Process id of the worker of rank 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub pid: u32,
    /// When that process was started, in clock ticks since boot: distinguishes it from a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// The scheduler's job id (with its array index), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How many ranks the attempt has; 0 in a bundle, whose trials have one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub ranks: u32,
    /// Version of the worker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What the attempt was given, where that is not what the table has for its trial: a request of a later submission, or
    /// one that `[retry]` has raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<Resources>>,
    /// Memory that it would have been given if it had not been learnt from other trials, MiB; 0 where it was not learnt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlearnt_mib: u64,
    /// Whether the trial before it in its chain was done then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// The key of the trial, by which a line in the record of another trial is noticed; absent in those of version 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The run of the trial whose record it is; 0 in a bundle, and in records of version 0.1.
    #[serde(default, skip_serializing_if = "is_none")]
    pub run: u32,
}

impl Start {
    /// Whether the worker of rank 0 is alive, if this is its host.
    pub(crate) fn is_process(&self) -> bool {
        self.started.is_some() && process::started(self.pid.cast_signed()) == self.started
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_none(n: &u32) -> bool {
    *n == 0
}

/// The agent that writes a bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Who {
    /// The agent's name in the ledger.
    pub agent: String,
    /// Unix seconds.
    pub time: f64,
    /// The host on which it runs.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// When that process was started, in clock ticks since boot.
    pub started: Option<u64>,
    /// The scheduler's id of its job.
    pub job: Option<String>,
    /// Trials it runs at once.
    pub slots: u32,
    /// Version of the hpcsweep that it is.
    pub version: String,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Number of the trial in the sweep, from 0.
    pub trial: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// How the attempt ended, as its worker or agent judged.
    pub state: Outcome,
    /// The command's exit code, 128 + signal when a signal killed it; absent if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it ended without success, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Why, in words, where the code does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds the command ran.
    pub duration_s: f64,
    /// Peak memory of all processes of all ranks, bytes; 0 if it is not known.
    #[serde(default)]
    pub peak_memory: u64,
    /// What else they used, and where the peak comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// The optional final result the command left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where its output stands in the agent's `.log`: offset and length, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<(u64, u64)>,
    /// Whether the trial runs again only on request, as an agent says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// As that of a start, where an agent gave the trial up without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

impl End {
    /// Why it ended without success, as recorded; by its outcome, if an older worker has recorded it.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.or(match (self.state, self.signal, self.exit_code) {
            (Outcome::Done, ..) => None,
            (Outcome::Timeout, ..) => Some(Cause::Walltime),
            (Outcome::Interrupted, ..) => Some(Cause::Stopped),
            (Outcome::Failed, Some(_), _) => Some(Cause::Signal),
            (Outcome::Failed, None, Some(1..)) => Some(Cause::ExitCode),
            (Outcome::Failed, None, _) => Some(Cause::Unknown),
        })
    }

    /// Peak memory of the node that used most, bytes; `None` if it is not known.
    pub(crate) fn node_memory(&self) -> Option<u64> {
        let of_node = self.usage.as_deref().and_then(|usage| usage.node_memory);
        Some(of_node.unwrap_or(self.peak_memory)).filter(|bytes| *bytes > 0)
    }

    /// Why it ended as it did: signal or exit code of a failure, and what more there is to say; empty
    /// after success.
    pub(crate) fn why(&self) -> String {
        why(Some(self), self.reason.clone())
    }
}

pub(super) fn why(end: Option<&End>, words: Option<String>) -> String {
    let code = end.and_then(|end| code_of(end.state, end.signal, end.exit_code));
    let says_more = end.and_then(|end| end.cause).is_some_and(Cause::says_more);
    // A rank that reports only how it ended: the exit code of the trial adds nothing.
    let is_of_rank = |words: &String| {
        let how = words.rsplit_once(": ").map_or("", |(_, how)| how);
        words.starts_with("rank ") && (how.starts_with("exit code ") || how.starts_with("signal "))
    };
    let is_said = |_: &String| words.as_ref().is_some_and(|w| says_more || is_of_rank(w));
    code.filter(|code| !is_said(code)).into_iter().chain(words).collect::<Vec<_>>().join(": ")
}

/// Signal or exit code of a program that ended by itself, and not well.
fn code_of(state: Outcome, signal: Option<i32>, exit_code: Option<i32>) -> Option<String> {
    if matches!(state, Outcome::Interrupted | Outcome::Timeout) {
        return None;
    }
    match (signal, exit_code) {
        (Some(signal), _) => Some(signal_text(signal)),
        (None, Some(code)) if code != 0 => Some(format!("exit code {code}")),
        _ => None,
    }
}

/// A signal by its number and name: `signal 11 (SIGSEGV)`.
pub fn signal_text(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({signal})"),
        // One of the nameless real-time signals.
        Err(_) => format!("signal {number}"),
    }
}

/// A decision about a trial that ended without success.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Number of the trial in the sweep, from 0.
    pub trial: u64,
    /// The attempt that ends, from 1; 0 if it was lost with its agent.
    #[serde(default, skip_serializing_if = "is_none")]
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// As that of the attempt's start; if that was lost, what the agent that writes this had read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u64,
    /// Whether the trial runs again.
    pub again: bool,
    /// Whether that counts towards `[retry] max`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
    /// Whether it runs with more walltime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grown: bool,
    /// Whether nothing else may run beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The reason, in words.
    pub why: String,
}

/// One line of a file of events: the record of a worker's run, or the bundle of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The first of a bundle: who writes.
    Agent(Who),
    /// An attempt begins, with its place and environment.
    Start(Start),
    /// Lines the command appended to its metrics file since the last such event.
    Metrics {
        /// Number of the trial in the sweep, from 0.
        trial: u64,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// One object a line; `rank` is added when there are several.
        rows: Vec<Map<String, Value>>,
    },
    /// The worker or agent was asked to stop the attempt, or its time was over: written before the command is
    /// asked to end, so that the reason is known even if the writer is killed next.
    Stop {
        /// Number of the trial in the sweep, from 0.
        trial: u64,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Unix seconds.
        time: f64,
        /// The state of the attempt if no further event follows.
        state: Outcome,
        /// Who asked, in words.
        reason: String,
    },
    /// An attempt has ended.
    End(End),
    /// `[retry]`: what becomes of a trial whose attempt ends without success, or was lost. An agent writes it before the
    /// end of the attempt.
    Decided(Decided),
    /// The worker of the trial, or an agent, found that its chain had stopped before it.
    Skip {
        /// Number of the trial in the sweep, from 0.
        trial: u64,
        /// Unix seconds.
        time: f64,
        /// The scheduler's job id of the worker, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
        /// What became of the trial before it, in words.
        reason: String,
        /// As that of a start.
        #[serde(default, skip_serializing_if = "is_zero")]
        seq: u64,
    },
}

impl Event {
    /// The number of the trial that it is about; `None` of the first line of a bundle.
    pub(super) fn trial(&self) -> Option<u64> {
        match self {
            Self::Agent(_) => None,
            Self::Start(Start { trial, .. })
            | Self::End(End { trial, .. })
            | Self::Decided(Decided { trial, .. })
            | Self::Metrics { trial, .. }
            | Self::Stop { trial, .. }
            | Self::Skip { trial, .. } => Some(*trial),
        }
    }
}

/// The event of a sealed line. Its kind stands first in what this program writes: serde would keep all members in memory
/// while it looks for it.
pub(super) fn unseal(line: &[u8]) -> Option<Event> {
    if !line::is_sealed(line) {
        return None;
    }
    if line.starts_with(b"{\"event\":\"start\",") {
        return serde_json::from_slice(line).ok().map(Event::Start);
    }
    if line.starts_with(b"{\"event\":\"end\",") {
        return serde_json::from_slice(line).ok().map(Event::End);
    }
    serde_json::from_slice(line).ok()
}

/// The part of an event with metric lines that is read until a caller wants the lines.
#[derive(Debug, Deserialize)]
pub(super) struct Lines {
    pub(super) trial: u64,
    pub(super) attempt: u32,
}

/// The lines of an event with metric lines.
#[derive(Deserialize)]
pub(super) struct Rows {
    pub(super) rows: Vec<Map<String, Value>>,
}

/// Whether a sealed line has metric lines, which alone may be many.
pub(in crate::sweep::tree) fn has_metrics(line: &[u8]) -> bool {
    line.starts_with(b"{\"event\":\"metrics\",")
}

/// How many lines of its program could not be read, from a line with metrics.
pub(super) fn unread_in(line: &[u8]) -> u64 {
    let name = UNREAD.as_bytes();
    if !line.windows(name.len()).any(|part| part == name) {
        return 0;
    }
    let rows = serde_json::from_slice::<Rows>(line).map(|event| event.rows).unwrap_or_default();
    rows.iter().filter_map(|row| row.get(UNREAD)?.as_u64()).sum()
}

/// An event as workers write it: members without a value are there, too. Agents, which write many more of them into one
/// file, leave these out.
#[derive(Debug)]
pub struct Whole<'a>(pub &'a Event);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let members: &[&str] = match self.0 {
            Event::Start(_) => &[
                "event", "trial", "attempt", "time", "host", "pid", "started", "job", "ranks",
                "argv", "devices", "version",
            ],
            Event::End(_) => &[
                "event",
                "trial",
                "attempt",
                "time",
                "state",
                "exit_code",
                "signal",
                "reason",
                "duration_s",
                "peak_memory",
                "usage",
                "result",
            ],
            Event::Skip { .. } => &["event", "trial", "time", "job", "reason"],
            Event::Agent(_) | Event::Metrics { .. } | Event::Stop { .. } | Event::Decided(_) => &[],
        };
        if members.is_empty() {
            return self.0.serialize(to);
        }
        let brief = serde_json::to_value(self.0).map_err(S::Error::custom)?;
        let empty = |name: &str| match name {
            "argv" => json!([]),
            "host" | "version" => json!(""),
            "pid" | "ranks" => json!(0),
            _ => Value::Null,
        };
        let given = |name: &str| brief.get(name).cloned().unwrap_or_else(|| empty(name));
        let mut whole: Map<String, Value> =
            members.iter().map(|name| ((*name).to_owned(), given(name))).collect();
        let others = brief.as_object().into_iter().flatten();
        let others: Vec<_> = others.filter(|(name, _)| !whole.contains_key(*name)).collect();
        whole.extend(others.into_iter().map(|(name, value)| (name.clone(), value.clone())));
        whole.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both forms of an event are read as the event.
    fn check(event: &str, brief: &str, whole: &str) {
        let event: Event = serde_json::from_str(event).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), brief);
        assert_eq!(serde_json::to_string(&Whole(&event)).unwrap(), whole);
        for text in [brief, whole] {
            assert_eq!(serde_json::from_str::<Event>(text).unwrap(), event);
        }
    }

    #[test]
    fn workers_write_what_has_no_value_and_agents_do_not() {
        let start = r#"{"event":"start","trial":3,"attempt":1,"time":1.5,"slot":0,"seq":7,"argv":["true"],"devices":"0"}"#;
        let event: Event = serde_json::from_str(start).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), start);
        let whole = r#"{"event":"start","trial":3,"attempt":1,"time":1.5,"host":"n1","pid":9,"started":null,"job":null,"ranks":2,"argv":[],"devices":null,"version":"1","seq":7,"behind":true}"#;
        let brief = r#"{"event":"start","trial":3,"attempt":1,"time":1.5,"seq":7,"host":"n1","pid":9,"ranks":2,"version":"1","behind":true}"#;
        check(whole, brief, whole);
        let whole = r#"{"event":"end","trial":3,"attempt":1,"time":2.0,"state":"failed","exit_code":null,"signal":null,"reason":"no","duration_s":0.0,"peak_memory":0,"usage":null,"result":null}"#;
        let brief = r#"{"event":"end","trial":3,"attempt":1,"time":2.0,"state":"failed","reason":"no","duration_s":0.0,"peak_memory":0}"#;
        check(brief, brief, whole);
        let whole = r#"{"event":"skip","trial":3,"time":2.0,"job":null,"reason":"no","seq":4}"#;
        let brief = r#"{"event":"skip","trial":3,"time":2.0,"reason":"no","seq":4}"#;
        check(whole, brief, whole);
    }
}
