//! The output of a run while it runs and at its end: metric lines and the result, as JSON.

use anyhow::Result;
use hpcsweep::base::host::disk;
use hpcsweep::train::job::Job;
use hpcsweep::train::means::Means;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::state::Trained;

/// One epoch, as a metric line has it. A mean that is not a number is `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EpochLine {
    /// Number of the epoch, from 1.
    pub(crate) epoch: u64,
    /// Steps of the optimizer so far.
    pub(crate) step: u64,
    /// Mean loss of the samples of the epoch, while the weights changed.
    pub(crate) train_loss: f64,
    /// The share of them that was classified correctly, for a loss of classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) train_accuracy: Option<f64>,
    /// Mean loss of the validation data after the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) val_loss: Option<f64>,
    /// The share of them that was classified correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) val_accuracy: Option<f64>,
    /// Learning rate of the epoch's last step.
    pub(crate) lr: f64,
    /// How long the epoch took, validation included.
    pub(crate) seconds: f64,
    /// Training samples of all ranks in a second of training.
    pub(crate) samples_per_second: f64,
}

impl EpochLine {
    /// The value of a metric by its name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        match name {
            "train_loss" => Some(self.train_loss),
            "train_accuracy" => self.train_accuracy,
            "val_loss" => self.val_loss,
            "val_accuracy" => self.val_accuracy,
            _ => None,
        }
    }
}

/// The evaluation at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EvaluationLine {
    /// Always `evaluate`; lines of epochs have no stage.
    pub(crate) stage: String,
    /// Mean loss of the test data.
    pub(crate) test_loss: Option<f64>,
    /// The share of them that was classified correctly.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) test_accuracy: Option<f64>,
}

impl EvaluationLine {
    /// The line for these means.
    pub(crate) fn from_means(means: &Means, counts_right: bool) -> Self {
        Self {
            stage: "evaluate".into(),
            test_loss: Some(means.loss()).filter(|loss| loss.is_finite()),
            test_accuracy: counts_right.then(|| means.accuracy()),
        }
    }
}

/// The final model, in the trial's folder; and its program, where it is a TorchScript.
pub(crate) const MODEL: &str = "model.safetensors";
/// The program of a final model that is a TorchScript, in the trial's folder.
pub(crate) const SCRIPT: &str = "model.pt";

/// The result of the trial.
pub(crate) fn result(
    job: &Job,
    trained: &Trained,
    evaluated: Option<&EvaluationLine>,
) -> Map<String, Value> {
    let progress = &trained.progress;
    let mut result = Map::new();
    let mut add = |name: &str, value: Value| result.insert(name.to_owned(), value);
    add("epochs", progress.epoch.into());
    add("stopped_early", progress.stopped.is_some().into());
    // From 1, as in the lines.
    add("best_epoch", progress.stopping.best_epoch.map(|epoch| epoch + 1).into());
    add(&format!("best_{}", job.config.metric().name), progress.stopping.best.into());
    if let Some(line) = evaluated {
        add("test_loss", line.test_loss.into());
        add("test_accuracy", line.test_accuracy.into());
    }
    add("parameters", trained.parameters.into());
    add("weights", job.work.join(MODEL).display().to_string().into());
    result
}

/// Appends one line to the metrics of the trial.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn append<T: Serialize>(job: &Job, line: &T) -> Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    disk::append(&job.metrics, &text)
}
