//! Models: built in, or TorchScript; their parameters and buffers by PyTorch's names.
//!
//! A built-in model is the PyTorch module written in its file's head, down to the bits of its first
//! weights: `torch.manual_seed(s); Net()` there and [`Model::build`] with seed `s` here are the same.
//! Weights are drawn in 32 bit on the CPU whatever the run computes in, as `Net().double().to(device)`.

mod cnn;
mod cnn3d;
mod layers;
mod mlp;
mod resnet;
mod script;

use std::collections::HashMap;
use std::path::Path;

use hpcsweep::base::fault::Fault;
use hpcsweep::train::config;
use tch::{Device, Kind, Tensor, no_grad};

use super::{OrFault, bytes};

/// A tensor and its name in PyTorch's `state_dict`.
#[derive(Debug)]
pub(crate) struct Named {
    /// The key in the dictionary: `layer1.0.bn1.weight`.
    pub(crate) name: String,
    /// Shares its storage with the model's own.
    pub(crate) tensor: Tensor,
}

/// The parts of a model, in the order in which its module defines them.
#[derive(Debug, Default)]
struct Parts {
    parameters: Vec<Named>,
    buffers: Vec<Named>,
}

/// The computation of a model: its outputs for a batch, and the tensors that it has.
trait Net {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor>;
    fn parts(&self) -> tch::Result<Parts>;

    /// Writes a module that PyTorch loads with its program; `false`: there is none.
    fn save(&self, _: &Path) -> tch::Result<bool> {
        Ok(false)
    }
}

/// A model in the memory of one device.
pub(crate) struct Model {
    net: Box<dyn Net>,
    kind: Kind,
    is_script: bool,
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
        base: &Path,
    ) -> Result<Self, Fault> {
        tch::manual_seed(seed);
        let layer_place = layers::Place { device, kind };
        let net: Box<dyn Net> = match config {
            config::Model::Mlp { hidden, outputs, dropout, batch_norm } => {
                let inputs = sample.iter().product();
                let widths: Vec<i64> = hidden.iter().map(|w| *w as i64).collect();
                Box::new(
                    mlp::Mlp::new(
                        layer_place,
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
                        layer_place,
                        dimensions("cnn", "[C, H, W]", sample)?,
                        &channels,
                        *outputs as i64,
                        check_dropout(*dropout)?,
                    )
                    .or_fault()?,
                )
            }
            config::Model::Cnn3d { outputs } => {
                let n_values: i64 = sample.iter().product();
                Box::new(
                    cnn3d::Cnn3d::new(
                        layer_place,
                        dimensions("cnn3d", "[C, D, H, W]", sample)?,
                        outputs.map_or(n_values, |o| o as i64),
                    )
                    .or_fault()?,
                )
            }
            config::Model::Resnet18 { outputs, width } => {
                let sample = dimensions("resnet18", "[C, H, W]", sample)?;
                Box::new(
                    resnet::Resnet::new(layer_place, sample, *width as i64, *outputs as i64)
                        .or_fault()?,
                )
            }
            config::Model::Script { file } => {
                Box::new(script::Script::load(layer_place, &base.join(file))?)
            }
        };
        let is_script = matches!(config, config::Model::Script { .. });
        let parts = net.parts().or_fault()?;
        Ok(Self { net, kind, is_script, parts })
    }

    /// The output of the model for a batch; in training, dropout drops and batch normalisation follows the
    /// batch.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    pub(crate) fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor, Fault> {
        // Whole numbers mean something to a script: words, places.
        if x.kind() == self.kind || (self.is_script && !x.is_floating_point()) {
            return self.net.forward(x, train).or_fault();
        }
        self.net.forward(&x.f_to_kind(self.kind).or_fault()?, train).or_fault()
    }

    /// The parameters, in the order of PyTorch's `named_parameters()`.
    pub(crate) fn parameters(&self) -> &[Named] {
        &self.parts.parameters
    }

    /// The buffers, which are not trained, in the order of PyTorch's `named_buffers()`.
    pub(crate) fn buffers(&self) -> &[Named] {
        &self.parts.buffers
    }

    /// Whether the forward pass of training may read the buffers. It does not in the built-in models; for a
    /// script this is unknown.
    pub(crate) fn reads_buffers(&self) -> bool {
        self.is_script && !self.parts.buffers.is_empty()
    }

    /// All parameters and buffers.
    fn tensors(&self) -> impl Iterator<Item = &Named> {
        self.parts.parameters.iter().chain(&self.parts.buffers)
    }

    /// Parameters and buffers as the bytes of a `.safetensors` file with PyTorch's names:
    /// `model.load_state_dict(safetensors.torch.load_file(...))`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub(crate) fn weights(&self) -> Result<Vec<u8>, Fault> {
        bytes::encode(self.tensors().map(|named| (named.name.as_str(), &named.tensor)))
    }

    /// Takes up weights that [`Self::weights`], or PyTorch, has written. Numbers of another kind are
    /// converted.
    ///
    /// # Errors
    /// When they are those of another model; nothing is changed then.
    pub(crate) fn load_weights(&self, weights: &[u8]) -> Result<(), Fault> {
        let mut weights_by_name: HashMap<String, Tensor> =
            bytes::decode(weights)?.into_iter().collect();
        let mut pairs = Vec::new();
        for Named { name, tensor } in self.tensors() {
            let weight = weights_by_name
                .remove(name)
                .ok_or_else(|| Fault::request(format!("the weights lack `{name}`")))?;
            let (has, needs) = (weight.size(), tensor.size());
            if has != needs {
                return Err(Fault::request(format!(
                    "`{name}` of the weights is {has:?}, but {needs:?} in the model"
                )));
            }
            pairs.push((tensor.shallow_clone(), weight));
        }
        if let Some(name) = weights_by_name.keys().min() {
            return Err(Fault::request(format!("the weights have `{name}`, the model has not")));
        }
        no_grad(|| pairs.iter_mut().try_for_each(|(to, from)| to.f_copy_(from))).or_fault()
    }

    /// Writes a TorchScript module with its program to `path`, for `torch.jit.load`, in evaluation mode;
    /// `false` where the model is built in and has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn save_script(&self, path: &Path) -> Result<bool, Fault> {
        self.net.save(path).or_fault().map_err(|fault| fault.at(path.display().to_string()))
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
    Err(Fault::request(format!("`dropout = {probability}` is not a probability below 1")))
}

#[cfg(test)]
mod tests;
