//! `hpcsweep-worker train FILE`: one rank of a training trial, from its start to its end.
//!
//! | file | |
//! |---|---|
//! | `opening` | ranks prove who they are and that they mean the same run |
//! | `device`, `samples`, `feed` | where it computes, on what, and how batches come |
//! | `trainer` | the loop over epochs and steps, what it keeps, and the validation |
//! | `exchange`, `asked` | what ranks tell each other in each step; who wants them to end |
//! | `state`, `checkpoint` | what a killed run goes on from |
//! | `lines`, `evaluation` | what it tells, and the stage after the training |

mod asked;
mod checkpoint;
pub(crate) mod device;
mod evaluation;
pub(crate) mod exchange;
pub(crate) mod feed;
mod lines;
mod opening;
pub(crate) mod samples;
mod state;
mod trainer;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::{access, disk, vars};
use hpcsweep::run::sync::peers::{Alone, Peers};
use hpcsweep::train::job::Job;

use crate::end;
use crate::torch::ddp::Reduce;
use asked::Asked;
use state::Trained;
use trainer::Trainer;

/// The exit code of a run that was asked to end and can be resumed: that of SIGTERM.
const STOPPED: u8 = 143;

/// How a run has ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// There is nothing left to do.
    Done,
    /// It was asked to end, and resumes from its checkpoint.
    Stopped,
}

/// A fault that every rank knows, in the same words: they may end together.
#[derive(Debug)]
pub(crate) struct AllKnow(pub(crate) Fault);

impl fmt::Display for AllKnow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for AllKnow {}

/// The verb `train`: the rank whose job is in `file`.
pub(crate) fn main(file: &Path) -> ExitCode {
    // Before anything starts a thread, which would take the signals.
    let stop_request = Asked::listen();
    let job = match read(file) {
        Ok(job) => job,
        Err(error) => end::fail(Path::new(""), &format!("{error:#}")),
    };
    end::arm(&job.reason);
    match stop_request.and_then(|asked| run(&job, file, asked)) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Stopped) => ExitCode::from(STOPPED),
        // Said by all ranks, MPI is over.
        Err(error) if error.is::<AllKnow>() => ExitCode::from(1),
        Err(error) => end::fail(&job.reason, &format!("{error:#}")),
    }
}

/// The verb `evaluate`: the weights of the job in `file`; the line goes to `answer`.
pub(crate) fn evaluate(file: &Path, answer: &Path) -> ExitCode {
    match read(file).and_then(|job| evaluation::run(&job, answer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("error: the evaluation failed: {error:#}"));
            ExitCode::from(1)
        }
    }
}

fn read(file: &Path) -> Result<Job> {
    let job: Job = serde_json::from_slice(&disk::read_bytes(file)?)?;
    if let Some(readers) = job.readers {
        access::open_to(readers);
    }
    Ok(job)
}

/// Says something in the trial's log.
pub(crate) fn tell(text: &str) {
    use std::io::Write;
    // A log that cannot be written is no reason to end.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Trains, alone or as a rank.
///
/// # Errors
/// [`AllKnow`] when all ranks have reported it and MPI is over. Any other error is this rank's own: MPI is
/// alive, and must not be ended in the ordinary way.
pub(crate) fn run(job: &Job, file: &Path, mut asked: Asked) -> Result<Ending> {
    job.config.check()?;
    let vars = vars::snapshot();
    device::threads(&job.config, job);
    let trained = if job.world > 1 {
        let mut world = crate::launch::start(job.rank, job.world, &job.host, &job.reason)?;
        let sums = Box::new(world.sums()?);
        let trained = train(job, &vars, &mut world, sums, &mut asked);
        match trained {
            Err(error) if !error.is::<AllKnow>() => return Err(error),
            Err(error) => {
                end::say(&job.reason, &error.to_string());
                world.finish()?;
                return Err(error);
            }
            Ok(trained) => {
                world.finish()?;
                trained
            }
        }
    } else {
        train(job, &vars, &mut Alone, Box::new(Alone), &mut asked).inspect_err(|error| {
            if error.is::<AllKnow>() {
                end::say(&job.reason, &error.to_string());
            }
        })?
    };
    let Some(trained) = trained else { return Ok(Ending::Stopped) };
    if job.rank > 0 {
        return Ok(Ending::Done);
    }
    let evaluated = match evaluation::is_wanted(job) {
        true => match evaluation::start(job, file, &vars, &mut asked)? {
            None => return Ok(Ending::Stopped),
            evaluated => evaluated,
        },
        false => None,
    };
    if !job.smoke {
        let result = lines::result(job, &trained, evaluated.as_ref());
        disk::write_whole(&job.result, &serde_json::to_vec(&result)?)?;
    }
    Ok(Ending::Done)
}

/// The part in which ranks work together. `None` when they were asked to end.
fn train(
    job: &Job,
    vars: &hpcsweep::base::host::Vars,
    peers: &mut dyn Peers,
    sums: Box<dyn Reduce>,
    asked: &mut Asked,
) -> Result<Option<Trained>> {
    let chosen = device::choose(job, vars)?;
    let card = opening::Card::for_job(job, chosen.gpu)?;
    let cards = opening::gather(peers, &card)?;
    opening::agree(&cards, job.config.share_gpu).map_err(AllKnow)?;
    Trainer::new(job, peers, sums, asked, chosen.device)?.train()
}
