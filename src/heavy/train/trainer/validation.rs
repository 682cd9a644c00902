//! The validation after an epoch: each sample once, on one rank.

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::train::means::Means;
use tch::no_grad;

use super::Trainer;
use crate::torch::{OrFault, loss, mixed};
use crate::train::exchange::{self, Word};
use crate::train::feed::{Feed, Taken};

impl Trainer<'_> {
    /// The means over all validation samples of all ranks; `Some(None)` where there are none, and `None`
    /// when asked to end meanwhile. Collective.
    ///
    /// # Errors
    /// When libtorch, the data or another rank fails.
    #[expect(clippy::option_option, reason = "ended early, or nothing to validate")]
    pub(super) fn validate(&mut self) -> Result<Option<Option<Means>>> {
        let Some(part) = &self.samples.validation else { return Ok(Some(None)) };
        let cores = self.job.cores as usize;
        let batches = part.sampler.batches(0, self.config().batch_size, false);
        let own_steps = batches.steps();
        let mut feed = Feed::start(part, batches, 0, self.samples.how, self.device, cores)?;
        let mut means = Means::default();
        for step in 0..self.samples.validation_steps {
            if step < own_steps {
                let tensors = feed.take()?;
                self.look(&tensors, &mut means)?;
            }
            let word = Word { is_asked: self.asked.by_now(), ..Word::default() };
            if word.exchange(self.peers)?.is_asked {
                return Ok(None);
            }
            if self.job.smoke {
                break;
            }
        }
        Ok(Some(Some(Means::of_ranks(&exchange::means(self.peers, &means)?))))
    }

    fn look(&mut self, taken: &Taken, means: &mut Means) -> Result<(), Fault> {
        if taken.samples == 0 {
            return Ok(());
        }
        let (model, kind) = (&self.model, self.job.config.loss);
        let (value, right) = no_grad(|| {
            mixed::autocast(self.job.config.precision, self.device, || {
                let outputs = model.forward(&taken.x, false)?;
                let value = loss::loss(kind, &outputs, &taken.y)?.f_double_value(&[]).or_fault()?;
                Ok((value, loss::correct(kind, &outputs, &taken.y)?))
            })
        })?;
        means.add(value, taken.samples, right.unwrap_or(0).unsigned_abs());
        Ok(())
    }
}
