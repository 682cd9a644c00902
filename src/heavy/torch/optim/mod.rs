//! Optimizers: PyTorch's arithmetic, operation by operation, so that the same gradients lead to the same
//! bits (`_single_tensor_*` of torch.optim 2.11; PyTorch's default on the CPU).
//!
//! A parameter without a gradient is left as it is and its state does not age. The learning rate is
//! given to each step: schedules are the caller's.

mod adam;
mod rmsprop;
mod sgd;

use std::collections::HashMap;

use hpcsweep::base::fault::Fault;
use hpcsweep::train::config;
use tch::{Device, Kind, Tensor, no_grad};

use super::model::Named;
use super::{OrFault, fault};

/// What one parameter's rule remembers: a count of steps and some tensors by PyTorch's names.
#[derive(Debug, Default)]
struct Memory {
    steps: i64,
    tensors: Vec<(&'static str, Option<Tensor>)>,
}

impl Memory {
    fn with_names(names: &[&'static str]) -> Self {
        Self { steps: 0, tensors: names.iter().map(|name| (*name, None)).collect() }
    }

    /// The tensor of this place, zeros like `param` at first.
    fn zeros(&mut self, place: usize, param: &Tensor) -> tch::Result<Tensor> {
        let slot = &mut self.tensors[place].1;
        if slot.is_none() {
            *slot = Some(param.f_zeros_like()?);
        }
        Ok(slot.as_ref().map_or_else(Tensor::new, Tensor::shallow_clone))
    }
}

/// How one parameter follows its gradient.
trait Rule {
    /// Names of what it remembers.
    fn names(&self) -> Vec<&'static str>;

    /// One step; `memory.steps` counts this one already.
    fn step(&self, param: &Tensor, grad: &Tensor, memory: &mut Memory, lr: f64) -> tch::Result<()>;
}

/// An optimizer with its state.
pub(crate) struct Optimizer {
    rule: Box<dyn Rule>,
    parameters: Vec<Named>,
    memory: Vec<Memory>,
}

impl Optimizer {
    /// An optimizer of these parameters, which it shares.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub(crate) fn new(config: &config::Optimizer, parameters: &[Named]) -> Result<Self, Fault> {
        let rule = rule(config)?;
        let names = rule.names();
        let memory = parameters.iter().map(|_| Memory::with_names(&names)).collect();
        let parameters = parameters
            .iter()
            .map(|p| Named { name: p.name.clone(), tensor: p.tensor.shallow_clone() })
            .collect();
        Ok(Self { rule, parameters, memory })
    }

    /// One step with this learning rate.
    ///
    /// # Errors
    /// When libtorch fails.
    pub(crate) fn step(&mut self, lr: f64) -> Result<(), Fault> {
        no_grad(|| {
            for (param, memory) in self.parameters.iter().zip(&mut self.memory) {
                let grad = param.tensor.f_grad()?;
                if !grad.defined() {
                    continue;
                }
                memory.steps += 1;
                self.rule.step(&param.tensor, &grad, memory, lr)?;
            }
            Ok(())
        })
        .map_err(|error| fault(&error))
    }

    /// The state for a resumed run: `exp_avg.layers.0.weight` and so on, and `step.layers.0.weight`, in the
    /// order of the parameters. The tensors are shared, not copied.
    pub(crate) fn state(&self) -> Vec<(String, Tensor)> {
        let mut named_state = Vec::new();
        for (param, memory) in self.parameters.iter().zip(&self.memory) {
            named_state.push((format!("step.{}", param.name), Tensor::from(memory.steps)));
            for (name, tensor) in &memory.tensors {
                if let Some(tensor) = tensor {
                    named_state.push((format!("{name}.{}", param.name), tensor.shallow_clone()));
                }
            }
        }
        named_state
    }

    /// Takes up the state of [`Self::state`], in any order.
    ///
    /// # Errors
    /// When it belongs to another optimizer or model.
    pub(crate) fn load_state(&mut self, state: Vec<(String, Tensor)>) -> Result<(), Fault> {
        let mut state: HashMap<String, Tensor> = state.into_iter().collect();
        for (param, memory) in self.parameters.iter().zip(&mut self.memory) {
            let name = format!("step.{}", param.name);
            let steps = state.remove(&name).ok_or_else(|| lacks(&name))?;
            memory.steps = steps.f_int64_value(&[]).or_fault()?;
            for (name, slot) in &mut memory.tensors {
                let name = format!("{name}.{}", param.name);
                *slot = match state.remove(&name) {
                    Some(saved) => Some(alike(&name, &saved, &param.tensor)?),
                    None if memory.steps == 0 => None,
                    None => return Err(lacks(&name)),
                };
            }
        }
        match state.keys().min() {
            Some(name) => Err(Fault::request(format!(
                "the saved state of the optimizer has `{name}`, which this one has not"
            ))),
            None => Ok(()),
        }
    }
}

fn lacks(name: &str) -> Fault {
    Fault::request(format!("the saved state of the optimizer lacks `{name}`"))
}

/// A copy on the parameter's device.
fn alike(name: &str, saved: &Tensor, param: &Tensor) -> Result<Tensor, Fault> {
    if saved.size() != param.size() {
        return Err(Fault::request(format!(
            "the saved `{name}` is {:?} instead of {:?}",
            saved.size(),
            param.size()
        )));
    }
    let mut copy = no_grad(|| param.f_zeros_like()).or_fault()?;
    copy.f_copy_(saved).or_fault()?;
    Ok(copy)
}

fn rule(config: &config::Optimizer) -> Result<Box<dyn Rule>, Fault> {
    check("lr", config.lr(), 0.0, f64::INFINITY)?;
    match *config {
        config::Optimizer::Sgd { momentum, dampening, nesterov, weight_decay, .. } => {
            check("momentum", momentum, 0.0, f64::INFINITY)?;
            check("weight_decay", weight_decay, 0.0, f64::INFINITY)?;
            if nesterov && (momentum <= 0.0 || dampening != 0.0) {
                return Err(Fault::request("`nesterov` needs a momentum above 0 and no dampening"));
            }
            Ok(Box::new(sgd::Sgd { momentum, dampening, nesterov, weight_decay }))
        }
        config::Optimizer::Adam { betas, eps, weight_decay, .. } => {
            adam(betas, eps, weight_decay, false)
        }
        config::Optimizer::AdamW { betas, eps, weight_decay, .. } => {
            adam(betas, eps, weight_decay, true)
        }
        config::Optimizer::RmsProp { alpha, eps, momentum, centered, weight_decay, .. } => {
            check("alpha", alpha, 0.0, f64::INFINITY)?;
            check("eps", eps, 0.0, f64::INFINITY)?;
            check("momentum", momentum, 0.0, f64::INFINITY)?;
            check("weight_decay", weight_decay, 0.0, f64::INFINITY)?;
            Ok(Box::new(rmsprop::RmsProp { alpha, eps, momentum, centered, weight_decay }))
        }
    }
}

fn adam(
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    is_decoupled: bool,
) -> Result<Box<dyn Rule>, Fault> {
    for beta in betas {
        check("betas", beta, 0.0, 1.0 - f64::EPSILON / 2.0)?;
    }
    check("eps", eps, 0.0, f64::INFINITY)?;
    check("weight_decay", weight_decay, 0.0, f64::INFINITY)?;
    Ok(Box::new(adam::Adam { betas, eps, weight_decay, is_decoupled }))
}

fn check(name: &str, value: f64, least: f64, most: f64) -> Result<(), Fault> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Fault::request(format!("`{name}` of the optimizer cannot be {value}")))
}

/// Scales all gradients so that their norm together is at most `most`, as
/// `torch.nn.utils.clip_grad_norm_`, and returns what it was. Of gradients that are the mean over ranks
/// it gives the same on every rank.
///
/// # Errors
/// When libtorch fails.
pub(crate) fn clip_grad_norm(parameters: &[Named], most: f64) -> Result<f64, Fault> {
    no_grad(|| {
        let mut grads = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let grad = parameter.tensor.f_grad()?;
            if grad.defined() {
                grads.push(grad);
            }
        }
        let total = norm(&grads)?;
        let factor =
            total.f_add_scalar(1e-6)?.f_reciprocal()?.f_mul_scalar(most)?.f_clamp_max(1.0)?;
        // Multiplication by 1 changes nothing, so it is left out if the number is on the CPU.
        if factor.device() != Device::Cpu || factor.f_double_value(&[])? != 1.0 {
            for grad in &mut grads {
                let _ = grad.f_mul_(&factor)?;
            }
        }
        total.f_double_value(&[])
    })
    .or_fault()
}

fn norm(tensors: &[Tensor]) -> tch::Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Tensor::f_zeros([] as [i64; 0], (Kind::Float, Device::Cpu));
    };
    let norms = tensors
        .iter()
        .map(|tensor| tensor.f_norm()?.f_to_kind(first.kind())?.f_to_device(first.device()));
    Tensor::f_stack(&norms.collect::<tch::Result<Vec<_>>>()?, 0)?.f_norm()
}

#[cfg(test)]
mod tests;
