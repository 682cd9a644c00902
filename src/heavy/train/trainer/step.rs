//! One step of the optimizer: the gradients of the mean over all samples that all ranks take in it.

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::train::config::{Model as ModelConfig, NonFinite};
use hpcsweep::train::means::Means;
use hpcsweep::train::sampler::Batches;
use hpcsweep::train::seed;
use tch::{Tensor, no_grad};

use super::{Activity, Trainer};
use crate::torch::ddp::weight;
use crate::torch::optim::clip_grad_norm;
use crate::torch::{OrFault, loss, mixed};
use crate::train::exchange::{Odd, Update, Word};
use crate::train::feed::{Feed, Taken};
use crate::train::{AllKnow, tell};

impl Trainer<'_> {
    /// Takes one step. Collective.
    ///
    /// # Errors
    /// [`AllKnow`] when a loss is not a number and the configuration does not skip such steps; others when
    /// libtorch, the data or another rank fails.
    pub(super) fn step(&mut self, feed: &mut Feed, batches: &Batches) -> Result<Activity> {
        let config = self.config();
        let first_batch = self.state.progress.step * config.accumulate;
        let last_batch = (first_batch + config.accumulate).min(batches.steps()) - 1;
        let samples = (first_batch..=last_batch).map(|k| batches.batch(k).len() as u64).sum();
        let mut word = Word { samples, ..Word::default() };
        // Gradients of the first of several batches have their weight before the last one is seen.
        let mut total = match first_batch == last_batch {
            true => 0,
            false => word.exchange(self.peers)?.samples,
        };
        self.ddp.zero_grad()?;
        let unspoilt = self.buffers_to_keep()?;
        let mut means = Means::default();
        for batch in first_batch..=last_batch {
            let tensors = feed.take()?;
            let mean_loss = self.forward(&tensors, batch, &mut means, &mut word)?;
            if batch == last_batch {
                word.is_asked = self.asked.by_now();
                let heard = word.exchange(self.peers)?;
                total = heard.samples;
                if let Some((rank, odd)) = heard.odd {
                    self.left_out(rank, odd)?;
                    restore(&unspoilt)?;
                    return Ok(turn(heard));
                }
                self.backward(mean_loss.as_ref(), tensors.samples, total, true)?;
                self.ddp.finish()?;
                self.follow()?;
                self.means.merge(&means);
                return Ok(turn(heard));
            }
            self.backward(mean_loss.as_ref(), tensors.samples, total, false)?;
        }
        Ok(Activity::On)
    }

    /// The loss of one batch, with its graph; `None` where this rank has no samples in it.
    fn forward(
        &mut self,
        taken: &Taken,
        batch: u64,
        means: &mut Means,
        word: &mut Word,
    ) -> Result<Option<Tensor>, Fault> {
        let config = self.config();
        if taken.samples == 0 {
            return Ok(None);
        }
        if self.draws() {
            let epoch = self.state.progress.epoch as u32;
            let seed = seed::of_step(config.seed, epoch, batch, self.peers.rank());
            tch::manual_seed(seed.cast_signed());
        }
        if self.model.reads_buffers() {
            self.ddp.sync_buffers()?;
        }
        let (model, kind) = (&self.model, config.loss);
        let (outputs, mean) = mixed::autocast(config.precision, self.device, || {
            let outputs = model.forward(&taken.x, true)?;
            let mean_loss = loss::loss(kind, &outputs, &taken.y)?;
            Ok((outputs, mean_loss))
        })?;
        let value = mean.f_double_value(&[]).or_fault()?;
        word.odd = word.odd.or(Odd::classify(value));
        let right = no_grad(|| loss::correct(kind, &outputs.detach(), &taken.y))?;
        means.add(value, taken.samples, right.unwrap_or(0).unsigned_abs());
        Ok(Some(mean))
    }

    fn backward(
        &self,
        mean: Option<&Tensor>,
        samples: u64,
        total: u64,
        is_last: bool,
    ) -> Result<(), Fault> {
        let Some(mean) = mean else { return Ok(()) };
        let scale = self.scaler.map_or(1.0, |scaler| scaler.scale);
        self.ddp.backward(mean, weight(samples, total) * scale, is_last)
    }

    /// Makes the weights follow the gradients.
    fn follow(&mut self) -> Result<(), Fault> {
        let parameters = self.model.parameters();
        if let Some(scaler) = &mut self.scaler {
            let has_overflown = scaler.unscale(parameters)?;
            scaler.update(has_overflown);
            if has_overflown {
                return Ok(());
            }
        }
        if let Some(most) = self.job.config.clip_norm {
            clip_grad_norm(parameters, most)?;
        }
        let rate = self.rate(self.state.progress.step);
        self.optimizer.step(rate)
    }

    /// A loss is not a number: training ends, or all ranks leave the step out.
    fn left_out(&self, rank: usize, odd: Odd) -> Result<()> {
        let (epoch, step) = (self.state.progress.epoch + 1, self.state.progress.step + 1);
        match self.config().non_finite {
            NonFinite::Fail => {
                let sentence =
                    format!("the loss of rank {rank} is {odd} in epoch {epoch}, step {step}");
                let fault = Fault::request(sentence).hint(
                    "try a smaller learning rate or `clip_norm`; `non_finite = \"skip\"` leaves such \
                     steps out",
                );
                Err(AllKnow(fault).into())
            }
            NonFinite::Skip => {
                if self.peers.rank() == 0 {
                    tell(&format!(
                        "warning: epoch {epoch}, step {step}: the loss of rank {rank} is {odd}; the \
                         step is left out"
                    ));
                }
                Ok(())
            }
        }
    }

    /// Copies of the running statistics, which a batch that is to be left out would spoil.
    fn buffers_to_keep(&self) -> Result<Vec<(Tensor, Tensor)>, Fault> {
        if self.config().non_finite == NonFinite::Fail {
            return Ok(Vec::new());
        }
        let buffers = self.model.buffers().iter();
        Ok(buffers.map(|named| (named.tensor.shallow_clone(), named.tensor.copy())).collect())
    }

    /// Whether the forward pass of training draws random numbers.
    fn draws(&self) -> bool {
        match &self.config().model {
            ModelConfig::Mlp { dropout, .. } | ModelConfig::Cnn { dropout, .. } => *dropout > 0.0,
            ModelConfig::Resnet18 { .. } | ModelConfig::Cnn3d { .. } => false,
            ModelConfig::Script { .. } => true,
        }
    }
}

fn turn(heard: Update) -> Activity {
    if heard.is_asked { Activity::End } else { Activity::On }
}

fn restore(buffers: &[(Tensor, Tensor)]) -> Result<(), Fault> {
    no_grad(|| buffers.iter().try_for_each(|(to, from)| to.shallow_clone().f_copy_(from)))
        .or_fault()
}
