//! Where a run stands: everything but tensors that a checkpoint holds.
//!
//! Random values need no state: orders, splits and dropout are functions of seed, epoch, step and rank.

use hpcsweep::base::fault::{Fault, Kind};
use hpcsweep::train::config::{Checkpoint, Config, Device, Schedule};
use hpcsweep::train::means::Means;
use hpcsweep::train::schedule::Plateau;
use hpcsweep::train::stopping::{Reason, Stopping};
use serde::{Deserialize, Serialize};

use crate::torch::mixed::GradScaler;

/// The progress of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Epochs that are over, their validation included.
    pub(crate) epoch: u64,
    /// Steps of the optimizer in the epoch after them. All of them: its validation is to come.
    pub(crate) step: u64,
    /// The mean losses of these steps, one for each rank.
    pub(crate) means: Vec<Means>,
    /// How long these steps took.
    pub(crate) seconds: f64,
    /// The best epoch, and patience.
    pub(crate) stopping: Stopping,
    /// The rate of a schedule that follows the metric.
    pub(crate) plateau: Plateau,
    /// The factor of losses, where small gradients would vanish.
    pub(crate) scale: f64,
    /// Steps in a row in which it was not too large.
    pub(crate) good_steps: u64,
    /// Why training has ended early, when it has.
    pub(crate) stopped: Option<Reason>,
    /// The metric lines of the epochs that are over: an attempt that resumes writes them again, so that each
    /// attempt's record holds the whole curve.
    #[serde(default)]
    pub(crate) lines: Vec<serde_json::Value>,
}

/// The result of a whole training.
#[derive(Debug, Clone)]
pub(crate) struct Trained {
    /// How far it came: all epochs, or those before it stopped early.
    pub(crate) progress: Progress,
    /// Numbers that are trained.
    pub(crate) parameters: u64,
}

impl Progress {
    /// Nothing has been done.
    pub(crate) fn new(config: &Config, world: u32) -> Self {
        Self {
            epoch: 0,
            step: 0,
            means: vec![Means::default(); world as usize],
            seconds: 0.0,
            stopping: Stopping::default(),
            plateau: Plateau::new(config.optimizer.lr()),
            scale: GradScaler::default().scale,
            good_steps: 0,
            stopped: None,
            lines: Vec::new(),
        }
    }

    /// Whether there is nothing left to learn.
    pub(crate) fn is_over(&self, config: &Config) -> bool {
        self.stopped.is_some() || self.epoch >= config.epochs
    }
}

/// The state of a checkpoint, as it stands in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The hpcsweep that wrote it.
    pub(crate) version: String,
    /// Of which run it is: [`run_hash`].
    pub(crate) run: String,
    /// How many ranks that run has.
    pub(crate) world: u32,
    /// How many samples it learns from.
    pub(crate) samples: u64,
    /// Hashes of the files that it learns from, and of those that decide; empty if an older hpcsweep wrote it.
    #[serde(default)]
    pub(crate) data: String,
    /// How far the run was when this was saved.
    pub(crate) progress: Progress,
}

impl State {
    /// As text.
    ///
    /// # Errors
    /// Never in practice: there is nothing that JSON cannot hold.
    pub(crate) fn write(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map_err(|e| Fault::new(Kind::Bug, e.to_string()))
    }

    /// From text, if it is of this very run.
    ///
    /// # Errors
    /// When it is of another run, with what differs.
    pub(crate) fn read(text: &str, own: &Self, folder: &str) -> Result<Progress, Fault> {
        let hint = format!("to start the trial over, remove `{folder}`");
        let is_of_other = |what: String| {
            Fault::request(format!("the checkpoint in `{folder}` is of {what}")).hint(hint.clone())
        };
        let state: Self = serde_json::from_str(text).map_err(|e| {
            is_of_other(format!("another hpcsweep: its state cannot be read ({e})"))
        })?;
        if state.world != own.world {
            return Err(is_of_other(format!(
                "{} ranks, and now there are {}",
                state.world, own.world
            )));
        }
        if state.samples != own.samples {
            return Err(is_of_other(format!(
                "{} samples, and now there are {}",
                state.samples, own.samples
            )));
        }
        if !state.data.is_empty() && state.data != own.data {
            return Err(is_of_other(
                "other data: files of `[train.data]` have changed since".into(),
            ));
        }
        if state.run != own.run {
            return Err(is_of_other("another configuration".into()));
        }
        Ok(state.progress)
    }
}

/// The settings that must be equal for a run to resume from a checkpoint. Settings that the weights do not
/// depend on are left out, so that a run may be made longer or stopped in another way: epochs (unless the
/// learning rate depends on their number), early stopping, checkpoints, threads and device, test data and
/// evaluation. Threads and device may change the last bits, though.
pub(crate) fn run_hash(config: &Config) -> Result<String, Fault> {
    let mut same = config.clone();
    if !matches!(same.schedule, Schedule::Cosine { .. } | Schedule::OneCycle { .. }) {
        same.epochs = 0;
    }
    same.stop = None;
    same.checkpoint = Checkpoint::default();
    same.threads = None;
    same.device = Device::default();
    same.share_gpu = false;
    same.data.test = None;
    same.evaluate = true;
    let text = serde_json::to_vec(&same).map_err(|e| Fault::new(Kind::Bug, e.to_string()))?;
    Ok(blake3::hash(&text).to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let all = format!(
            r#"{{"model": {{"kind": "mlp", "hidden": [4], "outputs": 2}}, "data": {{"train": "a.npz"}}, {text}}}"#
        );
        serde_json::from_str(&all).unwrap()
    }

    #[test]
    fn a_run_may_be_made_longer_but_not_another_one() {
        let hash = |text: &str| run_hash(&config(text)).unwrap();
        let own = hash(r#""epochs": 3"#);
        assert_eq!(hash(r#""epochs": 9, "threads": 2, "stop": {}, "evaluate": false"#), own);
        assert_ne!(hash(r#""epochs": 3, "seed": 1"#), own);
        assert_ne!(hash(r#""epochs": 3, "batch_size": 8"#), own);
        let cosine =
            |epochs: u32| hash(&format!(r#""epochs": {epochs}, "schedule": {{"kind": "cosine"}}"#));
        assert_ne!(cosine(3), cosine(9), "the rate falls to the last epoch");
    }

    #[test]
    fn a_state_comes_back_to_the_bit_and_only_to_its_own_run() {
        let config = config(r#""epochs": 3"#);
        let mut progress = Progress::new(&config, 2);
        progress.means[1] = Means { loss_sum: 0.1 + 0.2, samples: 3, right: 1 };
        progress.stopping.best = Some(f64::MIN_POSITIVE);
        progress.stopped = Some(Reason::Patience);
        let own = State {
            version: "1".into(),
            run: run_hash(&config).unwrap(),
            world: 2,
            samples: 10,
            data: "d".into(),
            progress: progress.clone(),
        };
        let text = own.write().unwrap();
        assert_eq!(State::read(&text, &own, "c"), Ok(progress));
        let refused = |change: fn(&mut State)| {
            let mut other = own.clone();
            change(&mut other);
            State::read(&text, &other, "c").unwrap_err().sentence
        };
        assert_eq!(
            refused(|s| s.world = 4),
            "the checkpoint in `c` is of 2 ranks, and now there are 4"
        );
        assert_eq!(
            refused(|s| s.samples = 11),
            "the checkpoint in `c` is of 10 samples, and now there are 11"
        );
        assert_eq!(
            refused(|s| s.data = "e".into()),
            "the checkpoint in `c` is of other data: files of `[train.data]` have changed since"
        );
        assert_eq!(refused(|s| s.run.clear()), "the checkpoint in `c` is of another configuration");
    }
}
