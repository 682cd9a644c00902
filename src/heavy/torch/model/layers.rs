//! Layers as PyTorch's modules of the same names: the weights they draw when they are made, in the same
//! order and from the same generator, and the functions they call.

use tch::{Device, Kind, TchError, Tensor, no_grad};

use super::{Named, Parts};

/// Where weights live and what numbers they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) kind: Kind,
}

impl Place {
    /// Moves a tensor of the CPU there and makes it one that is trained.
    fn put(self, tensor: &Tensor) -> tch::Result<Tensor> {
        tensor.f_to_device(self.device)?.f_to_kind(self.kind)?.f_set_requires_grad(true)
    }
}

/// `torch.nn.init.kaiming_uniform_(a=sqrt(5))` of a weight, as `Linear` and `Conv` call it.
fn weight(place: Place, shape: &[i64]) -> tch::Result<Tensor> {
    let a = 5f64.sqrt();
    let gain = (2.0 / (1.0 + a * a)).sqrt();
    let bound = 3f64.sqrt() * (gain / (fan_in(shape) as f64).sqrt());
    uniform(place, shape, bound)
}

/// The bias that goes with a weight of this shape.
fn bias(place: Place, shape: &[i64]) -> tch::Result<Tensor> {
    uniform(place, &shape[..1], 1.0 / (fan_in(shape) as f64).sqrt())
}

/// Numbers that each output sees.
fn fan_in(shape: &[i64]) -> i64 {
    shape[1..].iter().product()
}

fn uniform(place: Place, shape: &[i64], bound: f64) -> tch::Result<Tensor> {
    if shape.contains(&0) {
        return Err(TchError::Shape(format!("a layer of shape {shape:?} has no weights")));
    }
    let mut drawn = Tensor::f_empty(shape, (Kind::Float, Device::Cpu))?;
    let _ = drawn.f_uniform_(-bound, bound)?;
    place.put(&drawn)
}

/// `torch.nn.Linear` with a bias.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub(super) fn new(place: Place, inputs: i64, outputs: i64) -> tch::Result<Self> {
        let shape = [outputs, inputs];
        Ok(Self { weight: weight(place, &shape)?, bias: bias(place, &shape)? })
    }

    pub(super) fn forward(&self, x: &Tensor) -> tch::Result<Tensor> {
        x.f_linear(&self.weight, Some(&self.bias))
    }

    pub(super) fn collect(&self, name: &str, parts: &mut Parts) {
        parts.parameter(name, "weight", &self.weight);
        parts.parameter(name, "bias", &self.bias);
    }
}

/// `torch.nn.Conv2d` or `Conv3d` with equal numbers along all dimensions.
#[derive(Debug)]
pub(super) struct Conv {
    weight: Tensor,
    bias: Option<Tensor>,
    stride: i64,
    padding: i64,
}

impl Conv {
    /// A kernel of `size` along each of `N` dimensions.
    pub(super) fn new<const N: usize>(
        place: Place,
        [inputs, outputs]: [i64; 2],
        size: i64,
        stride: i64,
        padding: i64,
        has_bias: bool,
    ) -> tch::Result<Self> {
        let mut shape = vec![outputs, inputs];
        shape.extend([size; N]);
        let weight = weight(place, &shape)?;
        let bias = if has_bias { Some(bias(place, &shape)?) } else { None };
        Ok(Self { weight, bias, stride, padding })
    }

    /// Draws the weights again by `torch.nn.init.kaiming_normal_(mode="fan_out", nonlinearity="relu")`.
    pub(super) fn redraw_normal(&mut self) -> tch::Result<()> {
        let shape = self.weight.size();
        let fan_out = shape[0] * shape[2..].iter().product::<i64>();
        let std = 2f64.sqrt() / (fan_out as f64).sqrt();
        let mut drawn = Tensor::f_empty(&shape, (Kind::Float, Device::Cpu))?;
        let _ = drawn.f_normal_(0.0, std)?;
        no_grad(|| self.weight.f_copy_(&drawn))
    }

    pub(super) fn forward(&self, x: &Tensor) -> tch::Result<Tensor> {
        let dims = self.weight.dim() - 2;
        let (stride, padding) = (vec![self.stride; dims], vec![self.padding; dims]);
        let dilation = vec![1; dims];
        let bias = self.bias.as_ref();
        if dims == 2 {
            x.f_conv2d(&self.weight, bias, stride, padding, dilation, 1)
        } else {
            x.f_conv3d(&self.weight, bias, stride, padding, dilation, 1)
        }
    }

    pub(super) fn collect(&self, name: &str, parts: &mut Parts) {
        parts.parameter(name, "weight", &self.weight);
        if let Some(bias) = &self.bias {
            parts.parameter(name, "bias", bias);
        }
    }
}

/// `torch.nn.BatchNorm1d` or `BatchNorm2d` with its defaults.
#[derive(Debug)]
pub(super) struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    batches: Tensor,
}

impl BatchNorm {
    pub(super) fn new(place: Place, channels: i64) -> tch::Result<Self> {
        let ones = || Tensor::f_ones([channels], (place.kind, place.device));
        let zeros = || Tensor::f_zeros([channels], (place.kind, place.device));
        Ok(Self {
            weight: ones()?.f_set_requires_grad(true)?,
            bias: zeros()?.f_set_requires_grad(true)?,
            mean: zeros()?,
            var: ones()?,
            batches: Tensor::f_zeros([] as [i64; 0], (Kind::Int64, place.device))?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        if train {
            let size = x.size();
            if size[0] * size[2..].iter().product::<i64>() < 2 {
                return Err(TchError::Shape(
                    "batch normalisation cannot learn from a batch of one sample".into(),
                ));
            }
            let _ = self.batches.shallow_clone().f_add_scalar_(1)?;
        }
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        x.f_batch_norm(weight, bias, Some(&self.mean), Some(&self.var), train, 0.1, 1e-5, true)
    }

    pub(super) fn collect(&self, name: &str, parts: &mut Parts) {
        parts.parameter(name, "weight", &self.weight);
        parts.parameter(name, "bias", &self.bias);
        parts.buffer(name, "running_mean", &self.mean);
        parts.buffer(name, "running_var", &self.var);
        parts.buffer(name, "num_batches_tracked", &self.batches);
    }
}

/// The same images with their channels side by side in memory, where that is faster: in 32 bit on the CPU,
/// whose convolutions otherwise copy all they read and write into that order and back. All layers keep
/// it. A step takes a tenth to a third less; sums are rounded in another order, as PyTorch rounds them
/// with `torch.channels_last`.
pub(super) fn channels_last(x: &Tensor) -> tch::Result<Tensor> {
    if x.device() != Device::Cpu || x.kind() != Kind::Float || x.dim() != 4 {
        return Ok(x.shallow_clone());
    }
    x.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])
}

/// `torch.nn.Dropout`, which leaves the random numbers alone where it drops nothing.
pub(super) fn dropout(x: Tensor, probability: f64, train: bool) -> tch::Result<Tensor> {
    if probability > 0.0 { x.f_dropout(probability, train) } else { Ok(x) }
}

impl Parts {
    fn parameter(&mut self, module: &str, name: &str, tensor: &Tensor) {
        self.parameters.push(named(module, name, tensor));
    }

    fn buffer(&mut self, module: &str, name: &str, tensor: &Tensor) {
        self.buffers.push(named(module, name, tensor));
    }
}

fn named(module: &str, name: &str, tensor: &Tensor) -> Named {
    Named { name: format!("{module}.{name}"), tensor: tensor.shallow_clone() }
}
