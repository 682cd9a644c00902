//! Models: built in, or TorchScript; their parameters and buffers by PyTorch's names.
//!
//! A built-in model is the PyTorch module written in its file's head, down to the bits of its first
//! weights: `torch.manual_seed(s); Net()` there and [`Model::build`] with seed `s` here are the same.
//! Weights are drawn in 32 bit on the CPU whatever the run computes in, as `Net().double().to(device)`.

mod cnn;
mod cnn3d;
mod layers;
mod mlp;

use std::path::Path;

use hpcsweep::fault::Fault;
use hpcsweep::train::config;
use tch::{Device, Kind, Tensor};

use super::OrFault;

/// A tensor and its name in PyTorch's `state_dict`.
#[derive(Debug)]
pub(crate) struct Named {
    /// `layer1.0.bn1.weight`.
    pub(crate) name: String,
    /// Shares its storage with the model's own.
    pub(crate) tensor: Tensor,
}

/// What a model is made of, in the order in which its module defines them.
#[derive(Debug, Default)]
struct Parts {
    parameters: Vec<Named>,
    buffers: Vec<Named>,
}

/// A network built in.
trait Net {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor>;
    fn parts(&self) -> Parts;
}

/// A model in the memory of one device.
pub(crate) struct Model {
    net: Box<dyn Net>,
    kind: Kind,
    parts: Parts,
}

impl Model {
    /// Makes a model for samples of this shape (without the batch's dimension), with weights drawn from
    /// `seed`. Files are relative to `base`. Leaves libtorch's random numbers where PyTorch would.
    ///
    /// # Errors
    /// When the model does not fit the samples, or its file cannot be used.
    pub(crate) fn build(
        config: &config::Model,
        sample: &[i64],
        device: Device,
        kind: Kind,
        seed: i64,
        _base: &Path,
    ) -> Result<Self, Fault> {
        tch::manual_seed(seed);
        let place = layers::Place { device, kind };
        let net: Box<dyn Net> = match config {
            config::Model::Mlp { hidden, outputs, dropout, batch_norm } => {
                let inputs = sample.iter().product();
                let widths: Vec<i64> = hidden.iter().map(|w| *w as i64).collect();
                Box::new(
                    mlp::Mlp::new(
                        place,
                        inputs,
                        &widths,
                        *outputs as i64,
                        check_dropout(*dropout)?,
                        *batch_norm,
                    )
                    .or_fault()?,
                )
            }
            config::Model::Cnn { channels, outputs, dropout } => {
                let channels: Vec<i64> = channels.iter().map(|c| *c as i64).collect();
                Box::new(
                    cnn::Cnn::new(
                        place,
                        dimensions("cnn", "[C, H, W]", sample)?,
                        &channels,
                        *outputs as i64,
                        check_dropout(*dropout)?,
                    )
                    .or_fault()?,
                )
            }
            config::Model::Cnn3d { outputs } => {
                let all: i64 = sample.iter().product();
                Box::new(
                    cnn3d::Cnn3d::new(
                        place,
                        dimensions("cnn3d", "[C, D, H, W]", sample)?,
                        outputs.map_or(all, |o| o as i64),
                    )
                    .or_fault()?,
                )
            }
            config::Model::Resnet18 { .. } | config::Model::Script { .. } => {
                return Err(Fault::request("not yet"));
            }
        };
        let parts = net.parts();
        Ok(Self { net, kind, parts })
    }

    /// What the model makes of a batch; in training, dropout drops and batch normalisation follows the
    /// batch.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    pub(crate) fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor, Fault> {
        if x.kind() == self.kind {
            return self.net.forward(x, train).or_fault();
        }
        self.net.forward(&x.f_to_kind(self.kind).or_fault()?, train).or_fault()
    }

    /// What is trained, in the order of PyTorch's `named_parameters()`.
    pub(crate) fn parameters(&self) -> &[Named] {
        &self.parts.parameters
    }

    /// What is kept without being trained, in the order of PyTorch's `named_buffers()`.
    pub(crate) fn buffers(&self) -> &[Named] {
        &self.parts.buffers
    }
}

/// The lengths of a sample's dimensions, when there are as many as the model wants.
fn dimensions<const N: usize>(model: &str, wants: &str, sample: &[i64]) -> Result<[i64; N], Fault> {
    sample.try_into().map_err(|_| {
        Fault::request(format!("model `{model}` needs samples {wants}, but these are {sample:?}"))
            .hint("set `shape` in [train.data]")
    })
}

fn check_dropout(probability: f64) -> Result<f64, Fault> {
    if (0.0..1.0).contains(&probability) {
        return Ok(probability);
    }
    Err(Fault::request(format!("`dropout = {probability}` is no probability below 1")))
}
