//! Schedulers as text: how a question is asked and what an answer means.
//!
//! Pure: argument vectors out, text in. Who runs the commands is not known here. A word that is not
//! in a table is kept as it is ([`State::Other`]), never turned into a failure.

pub mod calls;
pub mod launch;
pub mod slurm;

/// A scheduler's state of one array element, as far as we need to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waiting, held, configuring.
    Queued(String),
    /// Running or ending.
    Running(String),
    /// Ended with exit code 0, says the scheduler.
    Completed,
    /// Ended otherwise, with the scheduler's word: `FAILED`, `TIMEOUT`, `CANCELLED` ...
    Ended(String),
    /// A word not in our table.
    Other(String),
}

/// What the scheduler says of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its state.
    pub state: State,
    /// Why it waits or ended, in the scheduler's words; empty without one.
    pub reason: String,
}

/// What a site told of itself, as far as it matters for planning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// MaxArraySize: one more than the largest index.
    pub max_array_size: Option<u64>,
    /// max_array_tasks of SchedulerParameters.
    pub max_array_tasks: Option<u64>,
    /// MaxJobCount.
    pub max_job_count: Option<u64>,
    /// The least of the MaxSubmitJobs that bind this user.
    pub max_submit_jobs: Option<u64>,
    /// Whether finished jobs can be asked for.
    pub accounting: bool,
    /// Version text.
    pub version: Option<String>,
    /// MPI plugin used when none is named.
    pub mpi_default: Option<String>,
}
