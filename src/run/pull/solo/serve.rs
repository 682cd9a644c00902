//! An agent that hands its trials to another process: JSON lines, one trial at a time. `docs/serve.md` says
//! which there are.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::ops::Not;
use std::os::fd::AsFd;
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::agent::{FunctionAgent, Step};
use super::call::Settled;
use super::{Failure, News, Options, Report, Trial, measure};
use crate::base::host::Vars;
use crate::base::host::signal::{Signals, Woken};
use crate::plan::Params;
use crate::run::worker::process::child;
use crate::run::worker::process::lines::parse_lenient;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::Outcome;

/// Bytes read at once.
const CHUNK: usize = 1 << 16;

const WANTS_STOP: &str = "the process that runs its trials wants to stop";

/// How long after the client's end a signal is waited for that may have ended it.
const MOMENT: Duration = Duration::from_millis(200);

/// Runs an agent for the process that reads `send` and writes `input`.
///
/// # Errors
/// As [`super::run`].
pub(crate) fn serve<T: FnMut(News<'_>)>(
    tree: &Tree,
    options: Options,
    vars: &Vars,
    signals: &mut Signals,
    input: impl AsFd,
    send: impl FnMut(&[u8]) -> io::Result<()>,
    tell: T,
) -> Result<Report> {
    let mut client = Client {
        input,
        send,
        parent: parent_id(),
        chunk: vec![0; CHUNK],
        buffer: Vec::new(),
        searched: 0,
        is_gone: false,
        told_to_stop: false,
        told_to_end: false,
        current: String::new(),
    };
    let mut early = Report::default();
    let joined =
        FunctionAgent::join(tree, options, vars, tell, |wait| match client.wait(signals, wait) {
            Woken::Signal(signal) => {
                early.signal = Some(signal as i32);
                false
            }
            Woken::Readable => {
                let goes_on = client.receive() && client.message().is_none();
                if !goes_on {
                    // Before the first trial there is no other message.
                    WANTS_STOP.clone_into(&mut early.reason);
                }
                goes_on
            }
            Woken::Nothing => true,
        })?;
    let report = match joined {
        Some(mut agent) => {
            let devices = agent.call().devices.clone();
            client.say(&json!({ "agent": agent.name(), "devices": devices }));
            let outcome = talk(&mut agent, &mut client, signals);
            outcome.map(|()| agent.report())?
        }
        None => early,
    };
    client.say(&farewell(&report));
    Ok(report)
}

/// The last line to the caller: why the agent left, and whether a trial ended without success.
pub(crate) fn farewell(report: &Report) -> Value {
    let bad = report.ended.keys().any(|state| *state != Outcome::Done);
    json!({ "end": true, "reason": report.reason, "signal": report.signal, "failed": bad })
}

fn talk<I: AsFd, S: FnMut(&[u8]) -> io::Result<()>, T: FnMut(News<'_>)>(
    agent: &mut FunctionAgent<T>,
    client: &mut Client<I, S>,
    signals: &mut Signals,
) -> Result<()> {
    loop {
        if client.is_gone {
            // A scheduler signals us and the client at once: then the trial is not at fault.
            if let Some(signal) = child::pending(signals, MOMENT, None) {
                agent.told(signal);
            }
            agent.lost("the process that ran its trials is gone")?;
        }
        let step = agent.next_step()?;
        let saved = agent.take_saved();
        match step {
            Step::Gone => {
                client.confirm(saved);
                return Ok(());
            }
            Step::Wait(nap) => {
                client.confirm(saved);
                match client.wait(signals, nap) {
                    Woken::Signal(signal) => agent.told(signal),
                    Woken::Readable => {
                        client.receive();
                        while let Some(message) = client.message() {
                            take(agent, client, signals, message)?;
                        }
                    }
                    Woken::Nothing => client.look_for_parent(),
                }
            }
            Step::Run(trial) => {
                (client.told_to_stop, client.told_to_end) = (false, false);
                client.hand_over(&trial, saved);
                drop(trial);
                attend(agent, client, signals)?;
            }
        }
    }
}

/// Waits for the answer to a trial, or for the agent's leave.
fn attend<I: AsFd, S: FnMut(&[u8]) -> io::Result<()>, T: FnMut(News<'_>)>(
    agent: &mut FunctionAgent<T>,
    client: &mut Client<I, S>,
    signals: &mut Signals,
) -> Result<()> {
    let mut due = Instant::now() + agent.until_due();
    while agent.running().is_some() && !client.is_gone {
        match client.wait(signals, due.saturating_duration_since(Instant::now())) {
            Woken::Signal(signal) => {
                agent.told(signal);
                due = Instant::now();
            }
            Woken::Readable => {
                client.receive();
                while let Some(message) = client.message() {
                    take(agent, client, signals, message)?;
                }
            }
            Woken::Nothing => client.look_for_parent(),
        }
        if Instant::now() >= due && agent.running().is_some() {
            let has_left = agent.watch()?;
            client.confirm(agent.take_saved());
            if agent.call().wants_stop() && !client.told_to_stop {
                client.told_to_stop = true;
                client.say(&json!({ "stop": true }));
            }
            if agent.call().is_void() && !client.told_to_end {
                client.told_to_end = true;
                client.say(&json!({ "stop": true, "now": true }));
            }
            if has_left {
                return Ok(());
            }
            due = Instant::now() + agent.until_due();
        }
    }
    Ok(())
}

/// Acts on a message of the client.
fn take<I: AsFd, S: FnMut(&[u8]) -> io::Result<()>, T: FnMut(News<'_>)>(
    agent: &mut FunctionAgent<T>,
    client: &mut Client<I, S>,
    signals: &mut Signals,
    message: Result<Value, String>,
) -> Result<()> {
    let mut message = match message {
        Ok(Value::Object(message)) => message,
        Ok(other) => return refuse(agent, &other.to_string()),
        Err(text) => return refuse(agent, &text),
    };
    if message.get("stop") == Some(&Value::Bool(true)) {
        agent.leave(WANTS_STOP);
        return Ok(());
    }
    if message.get("again") == Some(&Value::Bool(true)) {
        let is_at_hand = agent.call().is_taken_over();
        let current = if is_at_hand { client.current.trim_end() } else { "null" };
        let text = format!("{{\"again\":{current}}}\n");
        client.send_all(&text);
        return Ok(());
    }
    if let Some(pid) = message.get("worker").and_then(Value::as_u64) {
        if let Ok(pid) = u32::try_from(pid) {
            agent.call().runs_in(pid);
        }
        return Ok(());
    }
    let number = |name: &str| message.get(name).and_then(Value::as_u64);
    let named = number("trial").zip(number("attempt"));
    // The answer to something that was given up meanwhile.
    if named.map(|(trial, attempt)| (trial, attempt as u32)) != agent.running() {
        return Ok(());
    }
    if let Some(Value::Array(rows)) = message.remove("metrics") {
        let rows = rows.into_iter().filter_map(|row| match row {
            Value::Object(row) => Some(row),
            _ => None,
        });
        agent.call().add_metrics(rows.collect());
        return Ok(());
    }
    let seconds = message.get("duration_s").and_then(Value::as_f64);
    let used = message.get("usage").and_then(measure::said);
    if let Some(value) = message.remove("value") {
        agent.answer(Ok(value), seconds, used);
        return Ok(());
    }
    let failure = failure(message);
    // A scheduler signals us and the function's process at once: then it has not failed.
    if let Some(ran) = agent.call().ran()
        && let Some(signal) =
            child::pending(signals, failure.exit(ran.as_secs_f64()).moment(false), None)
    {
        agent.told(signal);
        agent.watch()?;
    }
    agent.answer(Err(failure), seconds, used);
    Ok(())
}

fn failure(mut message: Map<String, Value>) -> Failure {
    let is_interrupted = message.get("interrupted") == Some(&Value::Bool(true));
    let integer = |message: &Map<String, Value>, name: &str| {
        message.get(name).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok())
    };
    let (exit_code, signal) = (integer(&message, "exit_code"), integer(&message, "signal"));
    let mut text = |name: &str| match message.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    Failure { reason: text("error"), details: text("details"), exit_code, signal, is_interrupted }
}

/// Refuses a message that is not a JSON object.
fn refuse<T: FnMut(News<'_>)>(agent: &mut FunctionAgent<T>, text: &str) -> Result<()> {
    let reason = format!("the answer is no JSON object: {}", crate::base::words::short(text, 60));
    agent.answer(Err(Failure { reason, ..Failure::default() }), None, None);
    Ok(())
}

/// A trial as it is handed over.
#[derive(Serialize)]
struct TrialLine<'a> {
    trial: u64,
    attempt: u32,
    params: &'a Params,
    task_id: &'a Option<Value>,
    chain: u64,
    link: u64,
    work_dir: Cow<'a, str>,
    checkpoint_dir: Cow<'a, str>,
    #[serde(skip_serializing_if = "Not::not")]
    may_end: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<&'a Option<String>>,
}

impl<'a> TrialLine<'a> {
    fn of(trial: &'a Trial) -> Self {
        let row = &trial.row;
        Self {
            trial: row.id,
            attempt: trial.attempt,
            params: &row.params,
            task_id: &row.task_id,
            chain: row.chain,
            link: row.link,
            work_dir: trial.work_dir.to_string_lossy(),
            checkpoint_dir: trial.checkpoint_dir.to_string_lossy(),
            may_end: trial.may_end,
            deadline: trial.deadline,
            devices: trial.devices.as_ref(),
        }
    }
}

/// What says that an attempt was recorded.
#[derive(Serialize)]
struct EndLine {
    ended: u64,
    attempt: u32,
    state: Outcome,
    last: bool,
}

/// The process at the other end.
struct Client<I, S> {
    input: I,
    send: S,
    /// The process that started this one. Once it is gone no process reads, even if another one has inherited
    /// the pipe.
    parent: u32,
    /// What is read at once: kept, as making it anew for each answer costs more than to read it.
    chunk: Vec<u8>,
    buffer: Vec<u8>,
    /// Bytes of the buffer in which there is no end of a line.
    searched: usize,
    is_gone: bool,
    told_to_stop: bool,
    told_to_end: bool,
    /// The line of the trial that was handed out last.
    current: String,
}

impl<I: AsFd, S: FnMut(&[u8]) -> io::Result<()>> Client<I, S> {
    fn say(&mut self, message: &Value) {
        self.send_all(&format!("{message}\n"));
    }

    /// Hands a trial over, and says before it what was recorded: one write.
    fn hand_over(&mut self, trial: &Trial, saved: Vec<Settled>) {
        self.current = line(&TrialLine::of(trial));
        let text = lines_of(saved) + &self.current;
        self.send_all(&text);
    }

    fn confirm(&mut self, saved: Vec<Settled>) {
        if !saved.is_empty() {
            self.send_all(&lines_of(saved));
        }
    }

    fn send_all(&mut self, text: &str) {
        self.is_gone |= (self.send)(text.as_bytes()).is_err();
    }

    fn wait(&self, signals: &mut Signals, time: Duration) -> Woken {
        signals.wait(self.input.as_fd(), time)
    }

    fn look_for_parent(&mut self) {
        self.is_gone |= parent_id() != self.parent;
    }

    /// Reads the available bytes; `false` at the end.
    fn receive(&mut self) -> bool {
        let read = nix::unistd::read(&self.input, &mut self.chunk);
        match read.map_err(io::Error::from) {
            Ok(n) => {
                self.is_gone |= n == 0;
                self.buffer.extend_from_slice(&self.chunk[..n]);
            }
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.is_gone = true,
        }
        !self.is_gone
    }

    /// The next whole line: JSON, or text that is not JSON.
    fn message(&mut self) -> Option<Result<Value, String>> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|&b| b == b'\n');
            let Some(end) = end.map(|end| end + self.searched) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.searched = 0;
            let line = line.trim_ascii();
            if !line.is_empty() {
                let text = || String::from_utf8_lossy(line).into_owned();
                return Some(parse_lenient(line).ok_or_else(text));
            }
        }
    }
}

/// What says that attempts were recorded.
fn lines_of(saved: Vec<Settled>) -> String {
    let line = |Settled { trial, attempt, state, is_last }| {
        line(&EndLine { ended: trial, attempt, state, last: is_last })
    };
    saved.into_iter().map(line).collect()
}

/// Text of a line; nothing here can fail to be JSON.
fn line(of: &impl Serialize) -> String {
    let mut text = serde_json::to_string(of).unwrap_or_default();
    text.push('\n');
    text
}
