//! `[train]` of a plan, with a trial's parameters filled in: what one training run is.
//!
//! Every key has a default but `model`, `data` and `epochs`. Unknown keys are refused, so that a slip
//! is found when the plan is read and not after a night in the queue.
//!
//! Long because one form holds all settings of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shard::Item;

/// `[train]` with a trial's parameters filled in: model, data, and how the model learns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model that is trained.
    pub model: Model,
    /// The samples: files, or data made up when needed.
    pub data: Data,
    /// Passes over the training data.
    pub epochs: u64,
    /// Samples a rank takes in one step.
    #[serde(default = "one_batch")]
    pub batch_size: u64,
    /// Batches whose gradients are added up before one step of the optimizer.
    #[serde(default = "one")]
    pub accumulate: u64,
    /// The loss that the optimizer minimises.
    #[serde(default)]
    pub loss: Loss,
    /// The optimizer, with its learning rate; Adam by default.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Largest norm of the gradient of all parameters together, after the reduction over ranks.
    #[serde(default)]
    pub clip_norm: Option<f64>,
    /// How the learning rate changes.
    #[serde(default)]
    pub schedule: Schedule,
    /// The metric that decides: best weights, early stopping, plateaus.
    #[serde(default)]
    pub(crate) metric: Metric,
    /// When to end before the last epoch.
    #[serde(default)]
    pub stop: Option<Stop>,
    /// Floating-point numbers of the computation.
    #[serde(default)]
    pub precision: Precision,
    /// Where to train: on a GPU or on the CPU.
    #[serde(default)]
    pub device: Device,
    /// Seed of initialisation, order and dropout; the sweep's by default.
    #[serde(default)]
    pub seed: i64,
    /// Threads of a rank on the CPU; by default the cores the scheduler gave it.
    #[serde(default)]
    pub threads: Option<u64>,
    /// When checkpoints are written, besides at the end and when the trial is asked to stop.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// The effect of a loss that is not a number.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// Whether two ranks may use one GPU.
    #[serde(default)]
    pub share_gpu: bool,
    /// Whether the best weights are evaluated at the end, on the CPU.
    #[serde(default = "yes")]
    pub evaluate: bool,
}

/// A model: built in, or a TorchScript file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Model {
    /// Linear layers with ReLU between them; inputs are flattened.
    Mlp {
        /// Widths of the hidden layers.
        hidden: Vec<u64>,
        /// Numbers it returns: classes, or values.
        outputs: u64,
        /// Probability of dropout behind each hidden layer.
        #[serde(default)]
        dropout: f64,
        /// Batch normalisation behind each hidden layer.
        #[serde(default)]
        batch_norm: bool,
    },
    /// A small convolutional network for images `[C, H, W]`: 3x3 convolutions, each followed by ReLU
    /// and 2x2 max-pooling, then one linear layer.
    Cnn {
        /// Channels of each convolution, in order.
        channels: Vec<u64>,
        /// How many numbers the model returns for a sample.
        outputs: u64,
        /// Probability of dropout in front of the linear layer.
        #[serde(default)]
        dropout: f64,
    },
    /// ResNet-18 for small images `[C, H, W]` (first convolution 3x3 with stride 1, no pooling), after
    /// He et al. 2015, section 4.2.
    Resnet18 {
        /// How many numbers the model returns for a sample.
        outputs: u64,
        /// Channels of the first stage; the published network has 64.
        #[serde(default = "resnet_width")]
        width: u64,
    },
    /// Sapsan's CNN3d for cubes `[C, D, H, W]`; with 3 channels of 16^3 and 12,288 outputs it has
    /// 308,544 parameters.
    Cnn3d {
        /// Numbers it returns; by default as many as a sample has.
        #[serde(default)]
        outputs: Option<u64>,
    },
    /// Any module saved by `torch.jit.script(...).save(...)`.
    Script {
        /// The file; relative to the plan.
        file: String,
    },
}

/// Where the samples to learn from and to validate with come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Samples to learn from.
    pub train: Source,
    /// Samples that decide: files of their own, or a part of `train`.
    #[serde(default)]
    pub validation: Option<Validation>,
    /// Samples of the evaluation at the end; those of `validation` by default.
    #[serde(default)]
    pub test: Option<Source>,
    /// Name of the inputs in files that name their arrays.
    #[serde(default = "inputs")]
    pub inputs: String,
    /// Name of the targets there.
    #[serde(default = "targets")]
    pub targets: String,
    /// Shape of one sample; by default that of the file without its first dimension.
    #[serde(default)]
    pub shape: Option<Vec<u64>>,
    /// Inputs are multiplied by this,
    #[serde(default = "one_f64")]
    pub scale: f64,
    /// and then this is added.
    #[serde(default)]
    pub offset: f64,
    /// A new order each epoch.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// Leave out what does not fill a whole batch on every rank.
    #[serde(default)]
    pub drop_last: bool,
    /// How samples are divided among ranks.
    #[serde(default)]
    pub sharding: Sharding,
}

/// Files with samples, or samples that are computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a file name, a list of them, `{ inputs = ..., targets = ... }` or `{ synthetic = \"turbulence\" }`"
)]
pub enum Source {
    /// One `.npz` or `.safetensors` file, or a glob pattern of several.
    File(String),
    /// Several files, read one after the other in this order.
    Files(Vec<String>),
    /// Two `.npy` or IDX files that belong together.
    Pair {
        /// The file of the inputs: one array, whose first dimension counts the samples.
        inputs: String,
        /// The file of the targets, with as many samples as the inputs.
        targets: String,
    },
    /// No file: each sample is computed when it is needed.
    Synthetic(Synthetic),
}

/// Data that are computed instead of read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// Which kind of field is computed.
    pub(crate) synthetic: Field,
    /// How many samples the data set has.
    pub(crate) samples: u64,
    /// Points along an edge of the cube.
    #[serde(default = "cube")]
    pub(crate) size: u64,
    /// The seed from which all samples follow.
    #[serde(default)]
    pub(crate) seed: u64,
}

/// A kind of field that can be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Field {
    /// A velocity field of three components with a Kolmogorov-like spectrum; the target is the field
    /// itself, flattened.
    Turbulence,
}

/// With which samples the model is validated: a part of the data, one of several folds, or data of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a source of data, `{ fraction = 0.2 }` or `{ folds = 5, fold = 0 }`"
)]
pub enum Validation {
    /// A part of the training data, drawn with the seed of the run.
    Fraction {
        /// Share of the training data, between 0 and 1.
        fraction: f64,
    },
    /// One fold of a cross-validation.
    Fold {
        /// Into how many equal folds the samples are divided.
        folds: u64,
        /// Number of this fold, from 0.
        fold: u64,
    },
    /// Samples that are not among those to learn from.
    Source(Source),
}

/// How samples are divided among ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sharding {
    /// Every rank may read every file; the sampler divides the samples, as torch's `DistributedSampler` does.
    #[default]
    Samples,
    /// File k belongs to rank k modulo the number of ranks, which reads no other.
    Files,
    /// What each rank reads, in rank order: files, or ranges of samples counted through all files.
    #[serde(untagged)]
    Given(Vec<Vec<Item>>),
}

/// The loss that the optimizer minimises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Of classes; targets are their numbers.
    #[default]
    CrossEntropy,
    /// Mean squared error.
    Mse,
    /// Mean absolute error.
    L1,
    /// Huber's, with beta 1.
    SmoothL1,
    /// Binary cross entropy of logits.
    BceWithLogits,
}

/// How parameters follow their gradients. Names and defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        lr: f64,
        /// Momentum.
        #[serde(default)]
        momentum: f64,
        /// Dampening of the momentum.
        #[serde(default)]
        dampening: f64,
        /// Whether the momentum is Nesterov's.
        #[serde(default)]
        nesterov: bool,
        /// Weight decay (added to the gradient).
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam.
    Adam {
        /// Learning rate.
        #[serde(default = "adam_lr")]
        lr: f64,
        /// Decay of the two moments.
        #[serde(default = "betas")]
        betas: [f64; 2],
        /// Added to the denominator, so that nothing is divided by zero.
        #[serde(default = "eps")]
        eps: f64,
        /// Weight decay (added to the gradient).
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Learning rate.
        #[serde(default = "adam_lr")]
        lr: f64,
        /// Decay of the two moments.
        #[serde(default = "betas")]
        betas: [f64; 2],
        /// Added to the denominator, so that nothing is divided by zero.
        #[serde(default = "eps")]
        eps: f64,
        /// Weight decay (of the parameter itself).
        #[serde(default = "adamw_decay")]
        weight_decay: f64,
    },
    /// RMSprop.
    RmsProp {
        /// Learning rate.
        #[serde(default = "rms_lr")]
        lr: f64,
        /// Decay of the squared average.
        #[serde(default = "rms_alpha")]
        alpha: f64,
        /// Added to the denominator, so that nothing is divided by zero.
        #[serde(default = "eps")]
        eps: f64,
        /// Momentum.
        #[serde(default)]
        momentum: f64,
        /// Whether the gradient is normalized by its variance instead of its square.
        #[serde(default)]
        centered: bool,
        /// Weight decay (added to the gradient).
        #[serde(default)]
        weight_decay: f64,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Adam { lr: adam_lr(), betas: betas(), eps: eps(), weight_decay: 0.0 }
    }
}

impl Optimizer {
    /// The learning rate it begins with.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd { lr, .. }
            | Self::Adam { lr, .. }
            | Self::AdamW { lr, .. }
            | Self::RmsProp { lr, .. } => *lr,
        }
    }
}

/// How the learning rate changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// It does not change: the optimizer's rate holds for all epochs.
    #[default]
    Constant,
    /// Times `gamma` every `every` epochs.
    Step {
        /// Epochs between two steps of the schedule.
        every: u64,
        /// The rate is multiplied by this at each step.
        #[serde(default = "gamma")]
        gamma: f64,
    },
    /// Rises linearly for `warmup` epochs, then falls along half a cosine to `min` at the last.
    Cosine {
        /// How many epochs the rate rises before it falls; parts of an epoch count.
        #[serde(default)]
        warmup: f64,
        /// The rate never falls below this.
        #[serde(default)]
        min: f64,
    },
    /// One cycle (Smith and Topin 2017), as PyTorch's `OneCycleLR`: the optimizer's rate is the peak.
    OneCycle {
        /// Part of the steps in which the rate rises.
        #[serde(default = "rise")]
        rise: f64,
        /// The first rate is the peak divided by this.
        #[serde(default = "first_factor")]
        first_factor: f64,
        /// The last rate is the first divided by this.
        #[serde(default = "last_factor")]
        last_factor: f64,
    },
    /// Times `factor` when the metric has not become better for more than `patience` epochs, as
    /// PyTorch's `ReduceLROnPlateau`.
    Plateau {
        /// The rate is multiplied by this at each reduction.
        #[serde(default = "gamma")]
        factor: f64,
        /// Epochs without an improvement before a reduction.
        #[serde(default = "ten")]
        patience: u64,
        /// Smallest change that counts, relative.
        #[serde(default = "threshold")]
        threshold: f64,
        /// The rate never falls below this.
        #[serde(default)]
        min: f64,
    },
}

/// The metric that decides which epoch is the best one, and when to end early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name: `val_loss`, `val_accuracy`, `train_loss`, `train_accuracy`.
    #[serde(default = "val_loss")]
    pub name: String,
    /// Whether smaller or larger values are better.
    #[serde(default)]
    pub direction: Direction,
}

impl Default for Metric {
    fn default() -> Self {
        Self { name: val_loss(), direction: Direction::Min }
    }
}

/// Whether smaller or larger values of a metric are better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller values are better.
    #[default]
    Min,
    /// Larger values are better.
    Max,
}

/// When to end early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Epochs in a row without an improvement.
    #[serde(default = "ten")]
    pub(crate) patience: u64,
    /// The least change that is an improvement.
    #[serde(default)]
    pub(crate) min_delta: f64,
    /// Whether `min_delta` is a part of the best value so far.
    #[serde(default)]
    pub(crate) relative: bool,
}

/// Floating-point numbers of the computation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bit.
    #[default]
    F32,
    /// 64 bit.
    F64,
    /// Mixed: bfloat16 where it is safe, parameters in 32 bit.
    Bf16,
    /// Mixed: float16 where it is safe, with loss scaling; GPUs only.
    F16,
}

/// On which device a rank trains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The GPU if the trial asks for one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, or fail.
    Gpu,
}

/// When checkpoints are written, besides at the end and when the trial is asked to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Every so many epochs; 0: never.
    #[serde(default = "one")]
    pub every_epochs: u64,
    /// Every so many steps of the optimizer within an epoch; 0: never.
    #[serde(default)]
    pub every_steps: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every_epochs: 1, every_steps: 0 }
    }
}

/// The effect of a loss that is not a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NonFinite {
    /// The trial fails, and names the cause.
    #[default]
    Fail,
    /// The step is left out, on all ranks.
    Skip,
}

fn yes() -> bool {
    true
}
fn one() -> u64 {
    1
}
fn ten() -> u64 {
    10
}
fn one_batch() -> u64 {
    32
}
fn resnet_width() -> u64 {
    64
}
fn cube() -> u64 {
    16
}
fn inputs() -> String {
    "x".into()
}
fn targets() -> String {
    "y".into()
}
fn val_loss() -> String {
    "val_loss".into()
}
fn one_f64() -> f64 {
    1.0
}
fn adam_lr() -> f64 {
    1e-3
}
fn betas() -> [f64; 2] {
    [0.9, 0.999]
}
fn eps() -> f64 {
    1e-8
}
fn adamw_decay() -> f64 {
    1e-2
}
fn rms_lr() -> f64 {
    1e-2
}
fn rms_alpha() -> f64 {
    0.99
}
fn gamma() -> f64 {
    0.1
}
fn rise() -> f64 {
    0.3
}
fn first_factor() -> f64 {
    25.0
}
fn last_factor() -> f64 {
    1e4
}
fn threshold() -> f64 {
    1e-4
}
