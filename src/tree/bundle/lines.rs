//! What the lines of a bundle are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tree::records::{self, End, Outcome};

/// One line of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// The first: who writes.
    Agent(Who),
    /// An attempt begins.
    Start {
        /// The trial.
        trial: u64,
        /// Attempt, from 1.
        attempt: u32,
        /// Unix seconds.
        time: f64,
        /// Slot of the agent, from 0.
        slot: u32,
        /// How many entries of the ledger the agent had read. Whatever others have run of the trial before was
        /// begun with fewer, as what is taken is taken by an entry: the order of attempts, whatever the clocks.
        #[serde(default)]
        seq: u64,
        /// The argument vector; empty where the caller's own function runs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        argv: Vec<String>,
        /// CUDA_VISIBLE_DEVICES, where the agent set it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        devices: Option<String>,
    },
    /// Lines the command appended to its metrics file.
    Metrics {
        /// The trial.
        trial: u64,
        /// Attempt, from 1.
        attempt: u32,
        /// One object a line.
        rows: Vec<Map<String, Value>>,
    },
    /// The attempt is asked to end.
    Stop {
        /// The trial.
        trial: u64,
        /// Attempt, from 1.
        attempt: u32,
        /// Unix seconds.
        time: f64,
        /// What the attempt counts as if nothing follows.
        state: Outcome,
        /// Who asked, in words.
        reason: String,
    },
    /// An attempt has ended.
    End(Ended),
    /// The chain stopped before the trial.
    Skip {
        /// The trial.
        trial: u64,
        /// Unix seconds.
        time: f64,
        /// As that of a start.
        #[serde(default)]
        seq: u64,
        /// What became of the trial before it, in words.
        reason: String,
    },
}

/// The agent that writes a bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Who {
    /// Its name.
    pub agent: String,
    /// Unix seconds.
    pub time: f64,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When that process was started, in clock ticks since boot.
    pub started: Option<u64>,
    /// The scheduler's id of its job.
    pub job: Option<String>,
    /// Trials it runs at once.
    pub slots: u32,
    /// Its version.
    pub version: String,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The trial.
    pub trial: u64,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// How it ended.
    pub state: Outcome,
    /// The command's exit code, 128 + signal when a signal killed it; absent if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds it ran.
    pub duration_s: f64,
    /// Largest resident set of the program, bytes.
    #[serde(default)]
    pub peak_memory: u64,
    /// The optional final result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where its output stands in the agent's `.log`: offset and length, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<(u64, u64)>,
    /// Whether the trial runs again only on request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// As that of a start, where the trial was given up without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

impl Ended {
    /// Why it ended as it did, as [`End::why`] says it.
    pub fn why(&self) -> String {
        let code = records::code_of(self.state, self.signal, self.exit_code);
        code.into_iter().chain(self.reason.clone()).collect::<Vec<_>>().join(": ")
    }
}

impl From<Ended> for End {
    fn from(end: Ended) -> Self {
        Self {
            trial: end.trial,
            attempt: end.attempt,
            time: end.time,
            state: end.state,
            exit_code: end.exit_code,
            signal: end.signal,
            reason: end.reason,
            duration_s: end.duration_s,
            peak_memory: end.peak_memory,
            result: end.result,
        }
    }
}
