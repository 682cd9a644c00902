//! What every trial of a plan runs.

use std::str::FromStr;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::author::Author;
use super::sections::container::Container;
use super::sections::hooks::Hooks;
use super::sections::metrics::Metrics;
use super::templates::args::Style;
use crate::base::fault::Fault;

/// The effect of a failed trial on the rest of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnFailure {
    /// The rest of the chain is skipped.
    Stop,
    /// The next link runs all the same.
    Continue,
}

/// A signal that a program gets some time before its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Notice {
    pub(crate) signal: Signal,
    /// How long before the deadline.
    pub(crate) seconds: u16,
}

/// Seconds before the end of a job of `whole` seconds at which a trial is asked to end: the deadline.
pub(crate) fn reserve_s(whole: f64) -> f64 {
    (whole * 0.05).max((whole * 0.1).min(5.0)).clamp(2.0, 30.0)
}

impl Notice {
    /// Whether the signal would come after the start of a trial of this walltime in a job.
    pub(crate) fn comes_within(self, walltime_s: u64) -> bool {
        let walltime = walltime_s as f64;
        walltime - reserve_s(walltime) > f64::from(self.seconds)
    }
}

impl FromStr for Notice {
    type Err = &'static str;

    /// Reads `USR1@120`, `SIGUSR1@120`. The error is what is wrong, to be continued after the text itself.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "is not a signal, `@` and seconds";
        let (name, seconds) = text.split_once('@').ok_or(FORM)?;
        let name = name.to_ascii_uppercase();
        let full = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
        let signal = Signal::from_str(&full).map_err(|_| "names no signal of Linux")?;
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            return Err("names a signal that no program can handle");
        }
        match seconds.parse() {
            Ok(seconds @ 1..) if seconds_are_plain(text) => Ok(Self { signal, seconds }),
            _ => Err("does not have 1 to 65535 whole seconds after `@`"),
        }
    }
}

/// Whether the part after `@` has digits alone: Rust reads `+5` as a number.
fn seconds_are_plain(text: &str) -> bool {
    text.rsplit('@').next().is_some_and(|s| s.bytes().all(|b| b.is_ascii_digit()))
}

impl TryFrom<String> for Notice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|why| format!("`{text}` {why}"))
    }
}

impl From<Notice> for String {
    fn from(Notice { signal, seconds }: Notice) -> Self {
        format!("{}@{seconds}", signal.as_str().trim_start_matches("SIG"))
    }
}

/// `[run]`: what every trial runs, before its parameters are filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The argument vector; each element may hold Tera expressions over the parameters. Empty when
    /// `function` or `train` says what runs.
    pub(crate) command: Vec<String>,
    /// The name of a function that the program which starts an agent calls with the parameters of a trial
    /// (`crate::run::pull::solo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) function: Option<String>,
    /// The argument vector of the program that has `function`: agents without `--serve` become it, once for each
    /// agent and not for each trial. Empty where only its user can start it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) program: Vec<String>,
    /// `[train]` as written: trained by `hpcsweep-worker` instead of a command. Texts may hold Tera
    /// expressions; a text that is one expression alone keeps the type of its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) train: Option<serde_json::Value>,
    /// `[metrics]`: what becomes of the lines that the ranks write.
    #[serde(default, skip_serializing_if = "Metrics::is_default")]
    pub(crate) metrics: Metrics,
    /// `[hooks]`: what is called when a trial has ended.
    #[serde(default, skip_serializing_if = "Hooks::is_default")]
    pub(crate) hooks: Hooks,
    /// `[container]`: where the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Container>,
    /// Folder the command runs in, absolute or relative to the plan; Tera is not expanded.
    pub(crate) workdir: String,
    /// Shell lines run before the command in the job script (this is the user's own shell code).
    pub(crate) setup: Vec<String>,
    /// Environment modules loaded by the job script.
    pub(crate) modules: Vec<String>,
    /// Environment variables of the command; values may hold Tera expressions.
    pub(crate) env: Vec<(String, String)>,
    /// The effect of a failure on the rest of the chain.
    pub(crate) on_failure: OnFailure,
    /// How often a trial may be tried by its worker, at least 1.
    pub(crate) attempts: u32,
    /// What a trial must have left to be done: names of metrics, and paths; they may hold Tera expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expect: Vec<String>,
    /// What the program gets before its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<Notice>,
    /// How `{{ args }}` of the command is written.
    #[serde(default, skip_serializing_if = "Style::is_default")]
    pub(crate) args: Style,
}

impl Run {
    /// Refuses trials that call a function: only the program that has it can.
    ///
    /// # Errors
    /// When they do.
    pub(crate) fn refuse_function(&self, author: impl FnOnce() -> Author) -> Result<(), Fault> {
        let Some(function) = &self.function else { return Ok(()) };
        let sentence =
            format!("the plan calls the function `{function}`, which only its own program can");
        let hint = match author() {
            Author::Person | Author::Run => {
                "start the program that has the function, or name it: `program` under `[run]`"
            }
            Author::Python => {
                "start the script again that has the function: it runs or submits its sweep itself"
            }
        };
        Err(Fault::request(sentence).hint(hint))
    }

    /// Whether ranks of a trial with several talk over MPI through `hpcsweep-worker`.
    pub(crate) fn needs_mpi(&self) -> bool {
        self.train.is_some() || self.metrics.mpi
    }
}
