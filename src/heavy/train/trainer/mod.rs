//! The loop over epochs: train, validate, decide, report, save.

mod keep;
mod step;
mod validation;

use std::time::{Duration, Instant};

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::disk;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::config::{
    Config, Loss, Metric, Model as ModelConfig, NonFinite, Precision, Schedule, Source, Validation,
};
use hpcsweep::train::data::fingerprint::fingerprint;
use hpcsweep::train::job::Job;
use hpcsweep::train::means::Means;
use hpcsweep::train::schedule::{Span, rate};
use tch::Device;

use super::asked::Asked;
use super::checkpoint::folder::{BEST, BEST_SCRIPT, Writer};
use super::feed::Feed;
use super::lines::{self, EpochLine};
use super::samples::Samples;
use super::state::{Progress, State, Trained, run_hash};
use super::{AllKnow, exchange, tell};
use crate::torch::ddp::{Ddp, DdpOptions, Reduce};
use crate::torch::mixed::{self, GradScaler};
use crate::torch::model::Model;
use crate::torch::optim::Optimizer;

/// One rank of a training run.
pub(crate) struct Trainer<'a> {
    job: &'a Job,
    peers: &'a mut dyn Peers,
    asked: &'a mut Asked,
    device: Device,
    samples: Samples,
    model: Model,
    optimizer: Optimizer,
    ddp: Ddp,
    scaler: Option<GradScaler>,
    state: State,
    /// Of this rank, in the current epoch.
    means: Means,
    /// Steps of the optimizer in an epoch.
    steps: u64,
    /// On rank 0, unless nothing is to be kept.
    writer: Option<Writer>,
    /// Whether answers of the model can be right or wrong.
    counts_right: bool,
}

/// Whether a loop was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// No rank was asked to end: the loop continues.
    On,
    /// All ranks end, here.
    End,
}

/// Hashes of the files of a run, on rank 0, which alone reads them for that.
fn own_data(job: &Job, rank: u32) -> Option<Result<Option<Vec<u8>>, Fault>> {
    let data = &job.config.data;
    let fingerprint_of = |source: &Source| fingerprint(source, &job.base);
    (rank == 0).then(|| {
        let validation = match &data.validation {
            Some(Validation::Source(source)) => fingerprint_of(source)?,
            _ => String::new(),
        };
        Ok(Some((fingerprint_of(&data.train)? + &validation).into_bytes()))
    })
}

impl<'a> Trainer<'a> {
    /// Makes everything ready for the first step, or that after the checkpoint. Collective.
    ///
    /// # Errors
    /// When data, model or checkpoint cannot be used, or a rank is gone.
    pub(crate) fn new(
        job: &'a Job,
        peers: &'a mut dyn Peers,
        sums: Box<dyn Reduce>,
        asked: &'a mut Asked,
        device: Device,
    ) -> Result<Self> {
        let config = &job.config;
        mixed::check(config.precision, device)?;
        let samples = Samples::open(config, &job.base, peers)?;
        let shape: Vec<i64> =
            samples.train.data.sample_shape().iter().map(|length| *length as i64).collect();
        let kind = mixed::kind(config.precision);
        let model = Model::build(&config.model, &shape, device, kind, config.seed, &job.base)?;
        let mut optimizer = Optimizer::new(&config.optimizer, model.parameters())?;
        let own_data = own_data(job, peers.rank());
        let data = exchange::from_first(peers, own_data)?.map_err(AllKnow)?;
        let mut state = State {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: run_hash(config)?,
            world: peers.size(),
            samples: samples.len,
            data: String::from_utf8_lossy(&data.unwrap_or_default()).into_owned(),
            progress: Progress::new(config, peers.size()),
        };
        if !job.smoke {
            keep::resume(job, peers, &model, &mut optimizer, &mut state)?;
        }
        let writer = match peers.rank() == 0 && !job.smoke {
            true => Some(Writer::new(&job.checkpoints)?),
            false => None,
        };
        let ddp = Ddp::new(model.parameters(), model.buffers(), sums, DdpOptions::default())?;
        let batches = samples.train.sampler.steps(config.batch_size, config.data.drop_last);
        let progress = &state.progress;
        Ok(Self {
            means: progress.means[peers.rank() as usize],
            scaler: (config.precision == Precision::F16)
                .then_some(GradScaler { scale: progress.scale, good_steps: progress.good_steps }),
            steps: if job.smoke { 1 } else { batches.div_ceil(config.accumulate) },
            counts_right: matches!(config.loss, Loss::CrossEntropy | Loss::BceWithLogits),
            job,
            peers,
            asked,
            device,
            samples,
            model,
            optimizer,
            ddp,
            state,
            writer,
        })
    }

    fn config(&self) -> &'a Config {
        &self.job.config
    }

    /// Trains to the end. `None` if asked to end before: then everything needed to resume is on disk.
    ///
    /// # Errors
    /// When libtorch, the disk or another rank fails, or a loss is not a number.
    pub(crate) fn train(mut self) -> Result<Option<Trained>> {
        let config = self.config();
        let mut turn = Activity::On;
        while turn == Activity::On && !self.state.progress.is_over(config) {
            turn = self.epoch()?;
            if self.job.smoke {
                break;
            }
        }
        if turn == Activity::On && !self.job.smoke {
            self.keep_last_weights()?;
        }
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
            if turn == Activity::On {
                self.hand_over()?;
            }
        }
        // No rank leaves before rank 0 has everything on disk: the first rank to leave ends the others.
        exchange::counts(self.peers, 0)?;
        if turn == Activity::End {
            return Ok(None);
        }
        let parameters = self.model.parameters().iter().map(|p| p.tensor.numel() as u64).sum();
        Ok(Some(Trained { progress: self.state.progress, parameters }))
    }

    /// One epoch, or what is left of it.
    fn epoch(&mut self) -> Result<Activity> {
        let config = self.config();
        let begun = Instant::now();
        let seconds_before = self.state.progress.seconds;
        if self.learn(begun, seconds_before)? == Activity::End {
            return Ok(Activity::End);
        }
        let learnt = seconds_before + begun.elapsed().as_secs_f64();
        self.ddp.sync_buffers()?;
        let Some(validated) = self.validate()? else {
            self.save(Duration::from_secs_f64(learnt))?;
            return Ok(Activity::End);
        };
        let train = Means::of_ranks(&exchange::means(self.peers, &self.means)?);
        let accuracy = |means: &Means| self.counts_right.then(|| means.accuracy());
        let epoch = self.state.progress.epoch;
        let line = EpochLine {
            epoch: epoch + 1,
            step: (epoch + 1) * self.steps,
            train_loss: train.loss(),
            train_accuracy: accuracy(&train),
            val_loss: validated.as_ref().map(Means::loss),
            val_accuracy: validated.as_ref().and_then(accuracy),
            lr: self.rate(self.steps - 1),
            seconds: seconds_before + begun.elapsed().as_secs_f64(),
            samples_per_second: train.samples as f64 / learnt,
        };
        let is_best = self.decide(&line)?;
        if self.peers.rank() == 0 {
            lines::append(self.job, &line)?;
            self.state.progress.lines.push(serde_json::to_value(&line)?);
        }
        if is_best {
            self.keep_best()?;
        }
        let progress = &mut self.state.progress;
        (progress.epoch, progress.step, progress.seconds) = (epoch + 1, 0, 0.0);
        self.means = Means::default();
        let every = config.checkpoint.every_epochs;
        let is_due = every > 0 && (epoch + 1).is_multiple_of(every);
        if is_due || self.state.progress.is_over(config) {
            self.save(Duration::ZERO)?;
        }
        Ok(Activity::On)
    }

    /// The steps of an epoch.
    fn learn(&mut self, begun: Instant, before: f64) -> Result<Activity> {
        let config = self.config();
        let progress = &self.state.progress;
        if progress.step >= self.steps {
            return Ok(Activity::On);
        }
        let train_part = &self.samples.train;
        let batches =
            train_part.sampler.batches(progress.epoch, config.batch_size, config.data.drop_last);
        let first_batch = progress.step * config.accumulate;
        let cores = self.job.cores as usize;
        let mut feed = Feed::start(
            train_part,
            batches.clone(),
            first_batch,
            self.samples.how,
            self.device,
            cores,
        )?;
        while self.state.progress.step < self.steps {
            let turn = self.step(&mut feed, &batches)?;
            self.state.progress.step += 1;
            let step = self.state.progress.step;
            let spent = || Duration::from_secs_f64(before + begun.elapsed().as_secs_f64());
            if turn == Activity::End {
                self.save(spent())?;
                return Ok(Activity::End);
            }
            let every = config.checkpoint.every_steps;
            if every > 0 && step < self.steps && step.is_multiple_of(every) {
                self.save(spent())?;
            }
        }
        Ok(Activity::On)
    }

    /// The learning rate of a step of this epoch.
    fn rate(&self, step: u64) -> f64 {
        let config = self.config();
        let progress = &self.state.progress;
        if matches!(config.schedule, Schedule::Plateau { .. }) {
            return progress.plateau.rate;
        }
        let span = Span {
            base: config.optimizer.lr(),
            steps_per_epoch: self.steps,
            epochs: config.epochs,
        };
        rate(&config.schedule, span, progress.epoch * self.steps + step)
    }

    /// Whether these are the best weights; whether to stop, and the next rate. The same on every rank: all
    /// have the same line.
    fn decide(&mut self, line: &EpochLine) -> Result<bool> {
        let config = self.config();
        let Metric { name, direction } = config.metric();
        let Some(metric) = line.value(&name) else {
            return Err(Fault::request(format!("this run has no metric `{name}`"))
                .hint("set `metric` in [train]")
                .into());
        };
        let odd = line.val_loss.filter(|loss| !loss.is_finite()).map(|loss| ("val_loss", loss));
        let odd = odd.or_else(|| (!metric.is_finite()).then_some((name.as_str(), metric)));
        if let (Some((name, value)), NonFinite::Fail) = (odd, config.non_finite) {
            // Every rank has the same line.
            let sentence = format!("`{name}` is {value} after epoch {}", line.epoch);
            return Err(AllKnow(Fault::request(sentence).hint(
                "try a smaller learning rate or `clip_norm`; `non_finite = \"skip\"` goes on",
            ))
            .into());
        }
        let progress = &mut self.state.progress;
        let verdict = progress.stopping.observe(config.stop.as_ref(), direction, metric);
        progress.stopped = verdict.stop;
        progress.plateau.observe(&config.schedule, direction, metric);
        Ok(verdict.is_best)
    }

    /// Where no epoch was the best, because no metric was a number, the last weights are.
    fn keep_last_weights(&mut self) -> Result<()> {
        if self.state.progress.stopping.best.is_some() {
            return Ok(());
        }
        if self.peers.rank() == 0 {
            tell("warning: no epoch had a finite metric: the last weights are kept");
        }
        self.keep_best()
    }

    /// Puts the final model where people look for it.
    fn hand_over(&self) -> Result<()> {
        let (kept, work) = (&self.job.checkpoints, &self.job.work);
        disk::make_dir(work)?;
        disk::write_whole(&work.join(lines::MODEL), &disk::read_bytes(&kept.join(BEST))?)?;
        if matches!(self.config().model, ModelConfig::Script { .. }) {
            let script = disk::read_bytes(&kept.join(BEST_SCRIPT))?;
            disk::write_whole(&work.join(lines::SCRIPT), &script)?;
        }
        Ok(())
    }
}
