//! `torch.optim.SGD`.

use tch::Tensor;

use super::{Memory, Rule};
use crate::torch::shim;

/// The arguments of PyTorch's constructor, but for the learning rate, which each step is given.
#[derive(Debug)]
pub(super) struct Sgd {
    pub(super) momentum: f64,
    pub(super) dampening: f64,
    pub(super) nesterov: bool,
    pub(super) weight_decay: f64,
}

impl Rule for Sgd {
    fn names(&self) -> Vec<&'static str> {
        if self.momentum == 0.0 { Vec::new() } else { vec!["momentum_buffer"] }
    }

    fn step(&self, param: &Tensor, grad: &Tensor, memory: &mut Memory, lr: f64) -> tch::Result<()> {
        let mut grad = grad.shallow_clone();
        if self.weight_decay != 0.0 {
            grad = shim::plus(&grad, param, self.weight_decay)?;
        }
        if self.momentum != 0.0 {
            let slot = &mut memory.tensors[0].1;
            let buffer = match slot.as_ref() {
                // The first gradient is not dampened.
                None => slot.insert(grad.f_detach_copy()?).shallow_clone(),
                Some(buffer) => {
                    let mut buffer = buffer.shallow_clone();
                    let _ = buffer.f_mul_scalar_(self.momentum)?;
                    shim::add(&buffer, &grad, 1.0 - self.dampening)?;
                    buffer
                }
            };
            grad = if self.nesterov { shim::plus(&grad, &buffer, self.momentum)? } else { buffer };
        }
        shim::add(param, &grad, -lr)
    }
}
