//! Going on from a checkpoint, and writing one.

use std::time::Duration;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::disk;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::config::Model as ModelConfig;
use hpcsweep::train::job::Job;

use super::Trainer;
use crate::torch::model::Model;
use crate::torch::optim::Optimizer;
use crate::train::checkpoint::file::{self, Pieces};
use crate::train::checkpoint::folder::{self, BEST_SCRIPT, Work};
use crate::train::checkpoint::pieces;
use crate::train::state::State;
use crate::train::{AllKnow, exchange, lines, tell};

/// In front of the model's tensors, and of the optimizer's.
const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";

/// Resumes from the checkpoint of this run, if there is one. Rank 0 reads it and sends it to the others: all
/// resume from the same one, and the file is read once. Collective.
///
/// # Errors
/// [`AllKnow`] when it is of another run or cannot be used.
pub(super) fn resume(
    job: &Job,
    peers: &mut dyn Peers,
    model: &Model,
    optimizer: &mut Optimizer,
    state: &mut State,
) -> Result<()> {
    let own_checkpoint = (peers.rank() == 0).then(|| folder::read(&job.checkpoints));
    let checkpoint = exchange::from_first(peers, own_checkpoint.map(told))?.map_err(AllKnow)?;
    let Some(bytes) = checkpoint else { return Ok(()) };
    let (text, all) = file::decode(&bytes).map_err(Fault::machine)?;
    let shown = job.checkpoints.display().to_string();
    state.progress = State::read(&text, state, &shown).map_err(AllKnow)?;
    let hint =
        |fault: Fault| AllKnow(fault.hint(format!("to start the trial over, remove `{shown}`")));
    for named in model.parameters().iter().chain(model.buffers()) {
        pieces::restore(&all, &format!("{MODEL}{}", named.name), &named.tensor).map_err(hint)?;
    }
    let mut memory = Vec::new();
    for (name, piece) in &all {
        if let Some(name) = name.strip_prefix(OPTIMIZER) {
            memory.push((name.to_owned(), pieces::tensor(piece)?));
        }
    }
    optimizer.load_state(memory).map_err(hint)?;
    if peers.rank() == 0 {
        let progress = &state.progress;
        tell(&format!("going on after epoch {}, step {}", progress.epoch, progress.step));
        for line in &progress.lines {
            lines::append(job, line)?;
        }
    }
    Ok(())
}

/// Says in the log what reading has found out.
fn told(read: Result<(Option<Vec<u8>>, Vec<String>)>) -> Result<Option<Vec<u8>>, Fault> {
    let (found, notes) = read.map_err(|error| match error.downcast::<Fault>() {
        Ok(fault) => fault,
        Err(error) => Fault::machine(format!("{error:#}")),
    })?;
    notes.iter().for_each(|note| tell(&format!("warning: {note}")));
    Ok(found)
}

impl Trainer<'_> {
    /// Saves everything that is needed to resume from here; `spent` is how long the steps of this epoch took.
    /// Collective: rank 0 writes.
    ///
    /// # Errors
    /// When an earlier checkpoint could not be written, or a rank is gone.
    pub(super) fn save(&mut self, spent: Duration) -> Result<()> {
        if self.job.smoke {
            return Ok(());
        }
        let progress = &mut self.state.progress;
        progress.means = exchange::means(self.peers, &self.means)?;
        progress.seconds = spent.as_secs_f64();
        if let Some(scaler) = self.scaler {
            (progress.scale, progress.good_steps) = (scaler.scale, scaler.good_steps);
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut pieces = Pieces::new();
        for named in self.model.parameters().iter().chain(self.model.buffers()) {
            pieces.insert(format!("{MODEL}{}", named.name), pieces::piece(&named.tensor)?);
        }
        for (name, tensor) in self.optimizer.state() {
            pieces.insert(format!("{OPTIMIZER}{name}"), pieces::piece(&tensor)?);
        }
        writer.ask(Work::Last(self.state.write()?, pieces))
    }

    /// Keeps the weights as the best so far.
    ///
    /// # Errors
    /// When something could not be written.
    pub(super) fn keep_best(&mut self) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if matches!(self.job.config.model, ModelConfig::Script { .. }) {
            let aside = disk::aside(&self.job.checkpoints.join(BEST_SCRIPT));
            self.model.save_script(&aside)?;
            writer.ask(Work::Module(BEST_SCRIPT, aside))?;
        }
        writer.ask(Work::Best(self.model.weights()?))
    }
}
