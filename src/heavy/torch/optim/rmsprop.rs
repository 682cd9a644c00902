//! `torch.optim.RMSprop`.

use tch::Tensor;

use super::{Memory, Rule};
use crate::torch::shim;

/// The arguments of PyTorch's constructor, but for the learning rate, which each step is given.
#[derive(Debug)]
pub(super) struct RmsProp {
    pub(super) alpha: f64,
    pub(super) eps: f64,
    pub(super) momentum: f64,
    pub(super) centered: bool,
    pub(super) weight_decay: f64,
}

impl Rule for RmsProp {
    fn names(&self) -> Vec<&'static str> {
        let mut names = vec!["square_avg"];
        if self.centered {
            names.push("grad_avg");
        }
        if self.momentum > 0.0 {
            names.push("momentum_buffer");
        }
        names
    }

    fn step(&self, param: &Tensor, grad: &Tensor, memory: &mut Memory, lr: f64) -> tch::Result<()> {
        let mut grad = grad.shallow_clone();
        if self.weight_decay != 0.0 {
            grad = shim::plus(&grad, param, self.weight_decay)?;
        }
        let mut square = memory.zeros(0, param)?;
        let _ = square.f_mul_scalar_(self.alpha)?;
        shim::addcmul(&square, &grad, &grad, 1.0 - self.alpha)?;
        let mut divisor = if self.centered {
            let mut gradient_mean = memory.zeros(1, param)?;
            let _ = gradient_mean.f_lerp_(&grad, 1.0 - self.alpha)?;
            let mut variance = square.f_detach_copy()?;
            shim::addcmul(&variance, &gradient_mean, &gradient_mean, -1.0)?;
            variance.f_sqrt_()?
        } else {
            square.f_sqrt()?
        };
        let _ = divisor.f_add_scalar_(self.eps)?;
        if self.momentum > 0.0 {
            let mut buffer = memory.zeros(memory.tensors.len() - 1, param)?;
            let _ = buffer.f_mul_scalar_(self.momentum)?;
            shim::addcdiv(&buffer, &grad, &divisor, 1.0)?;
            shim::add(param, &buffer, -lr)
        } else {
            shim::addcdiv(param, &grad, &divisor, -lr)
        }
    }
}
