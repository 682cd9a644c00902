//! `torch.optim.Adam` and `AdamW`.

use std::hint::black_box;

use tch::Tensor;

use super::{Memory, Rule};
use crate::torch::shim;

/// The arguments of PyTorch's constructor, but for the learning rate, which each step is given.
#[derive(Debug)]
pub(super) struct Adam {
    pub(super) betas: [f64; 2],
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
    /// AdamW: the weight decays by itself, not through its gradient.
    pub(super) is_decoupled: bool,
}

impl Rule for Adam {
    fn names(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    fn step(&self, param: &Tensor, grad: &Tensor, memory: &mut Memory, lr: f64) -> tch::Result<()> {
        let mut gradient_mean = memory.zeros(0, param)?;
        let mut square = memory.zeros(1, param)?;
        let mut grad = grad.shallow_clone();
        if self.weight_decay != 0.0 {
            if self.is_decoupled {
                let _ = param.shallow_clone().f_mul_scalar_(1.0 - lr * self.weight_decay)?;
            } else {
                grad = shim::plus(&grad, param, self.weight_decay)?;
            }
        }
        let [beta1, beta2] = self.betas;
        let _ = gradient_mean.f_lerp_(&grad, 1.0 - beta1)?;
        let _ = square.f_mul_scalar_(beta2)?;
        shim::addcmul(&square, &grad, &grad, 1.0 - beta2)?;
        // Python's `**` is the C library's `pow`, also for a root: the optimizer must not see through.
        let steps = memory.steps as f64;
        let step_size = lr / (1.0 - beta1.powf(steps));
        let correction = (1.0 - beta2.powf(steps)).powf(black_box(0.5));
        let mut divisor = square.f_sqrt()?;
        let _ = divisor.f_div_scalar_(correction)?;
        let _ = divisor.f_add_scalar_(self.eps)?;
        shim::addcdiv(param, &gradient_mean, &divisor, -step_size)
    }
}
