//! The evaluation at the end: a stage of its own, on the CPU, with the best weights.
//!
//! It runs as a program of its own, which rank 0 starts when MPI is over: without the launcher's variables,
//! and without visible GPUs. So the number does not depend on the devices that trained the weights, and no
//! rank waits for it in a collective.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::process::{self, Sink};
use hpcsweep::base::host::{Vars, disk};
use hpcsweep::cluster::rank::is_launcher_variable;
use hpcsweep::train::job::Job;
use hpcsweep::train::means::Means;
use nix::sys::signal::Signal;
use tch::Device;

use super::asked::Asked;
use super::checkpoint::folder;
use super::feed::Feed;
use super::lines::{self, EvaluationLine};
use super::{device, samples};
use crate::torch::model::Model;
use crate::torch::{loss, mixed};

/// How often the parent looks whether it has been asked to end.
const LOOK: Duration = Duration::from_millis(20);

/// Whether there is anything to evaluate.
pub(crate) fn is_wanted(job: &Job) -> bool {
    let data = &job.config.data;
    job.config.evaluate && (data.test.is_some() || data.validation.is_some())
}

/// Starts the evaluation of the job in `file` and waits for it. `None` when asked to end meanwhile.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn start(
    job: &Job,
    file: &Path,
    vars: &Vars,
    asked: &mut Asked,
) -> Result<Option<EvaluationLine>> {
    let answer = disk::aside(&job.work.join("evaluation.json"));
    let own_program = disk::own_executable()?;
    let argv =
        [&own_program, Path::new("evaluate"), file, &answer].map(|part| part.display().to_string());
    let mut env: Vars = vars
        .iter()
        .filter(|(name, _)| !is_launcher_variable(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.insert("CUDA_VISIBLE_DEVICES".into(), String::new());
    let mut child =
        process::start(&argv, &env, &job.work, Sink::Inherit, Signal::SIGKILL, None, &[])
            .map_err(|e| process::start_fault(&argv[0], &e))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if asked.within(LOOK) {
            process::kill_group(&child, Signal::SIGKILL);
            let _ = child.wait();
            let _ = disk::remove_if_there(&answer);
            return Ok(None);
        }
    };
    let text = disk::read_if_there(&answer)?;
    disk::remove_if_there(&answer)?;
    match (process::code_of(status), text) {
        (0, Some(text)) => Ok(Some(serde_json::from_str(&text)?)),
        (code, _) => Err(Fault::machine(format!("the evaluation ended with exit code {code}"))
            .hint("its own words are in the trial's log")
            .into()),
    }
}

/// The evaluation itself: appends its line to the metrics and writes it to `answer` for rank 0.
///
/// # Errors
/// When weights or data cannot be used.
pub(crate) fn run(job: &Job, answer: &Path) -> Result<()> {
    let config = &job.config;
    device::threads(config, job);
    let kind = mixed::kind(config.precision);
    let parts = samples::to_evaluate(config, &job.base, u64::from(job.world))?;
    let Some(first) = parts.first() else {
        return Err(Fault::request("there are no data to evaluate on").into());
    };
    let shape: Vec<i64> = first.data.sample_shape().iter().map(|n| *n as i64).collect();
    let model = Model::build(&config.model, &shape, Device::Cpu, kind, config.seed, &job.base)?;
    // A smoke test has no weights but those it begins with.
    if !job.smoke {
        let path = job.checkpoints.join(folder::BEST);
        let weights = disk::read_bytes(&path)?;
        model.load_weights(&weights).map_err(|fault| fault.at(path.display().to_string()))?;
    }
    let mut means = Means::default();
    let mut counts_right = false;
    let batch_options = samples::how(config);
    for part in &parts {
        let batches = part.sampler.batches(0, config.batch_size, false);
        let steps = if job.smoke { batches.steps().min(1) } else { batches.steps() };
        let cores = job.cores as usize;
        let mut feed = Feed::start(part, batches, 0, batch_options, Device::Cpu, cores)?;
        for _ in 0..steps {
            let batch = feed.take()?;
            let right = tch::no_grad(|| -> Result<Option<i64>, Fault> {
                let outputs = model.forward(&batch.x, false)?;
                let batch_loss = loss::loss(config.loss, &outputs, &batch.y)?.double_value(&[]);
                let right = loss::correct(config.loss, &outputs, &batch.y)?;
                means.add(batch_loss, batch.samples, right.unwrap_or(0).unsigned_abs());
                Ok(right)
            })?;
            counts_right |= right.is_some();
        }
    }
    let line = EvaluationLine::from_means(&means, counts_right);
    lines::append(job, &line)?;
    disk::write_whole(answer, &serde_json::to_vec(&line)?)
}
