//! Mixed precision: forward passes in 16 bit where libtorch deems it safe, and the scaling of losses that
//! keeps small gradients of float16 from vanishing.

use hpcsweep::base::fault::Fault;
use hpcsweep::train::config::Precision;
use tch::{Device, Kind, Tensor, no_grad};

use super::model::Named;
use super::{OrFault, shim};

/// The kind of parameters, and of inputs and losses, in a run of this precision.
pub(crate) fn kind(precision: Precision) -> Kind {
    match precision {
        Precision::F64 => Kind::Double,
        Precision::F32 | Precision::Bf16 | Precision::F16 => Kind::Float,
    }
}

/// Whether a device computes in this precision.
///
/// # Errors
/// When it does not.
pub(crate) fn check(precision: Precision, device: Device) -> Result<(), Fault> {
    if precision == Precision::F16 && device == Device::Cpu {
        return Err(Fault::request("`precision = \"f16\"` needs a GPU")
            .hint("use \"bf16\" or \"f32\" on the CPU"));
    }
    Ok(())
}

/// Computes a forward pass, and its loss, in this precision. The backward pass belongs outside.
///
/// # Errors
/// Those of `work`.
pub(crate) fn autocast<R>(
    precision: Precision,
    device: Device,
    work: impl FnOnce() -> Result<R, Fault>,
) -> Result<R, Fault> {
    let kind = match precision {
        Precision::F32 | Precision::F64 => return work(),
        Precision::Bf16 => Kind::BFloat16,
        Precision::F16 => Kind::Half,
    };
    let _guard = shim::Autocast::enter(device, kind).or_fault()?;
    work()
}

/// Scales losses up before the backward pass and gradients down after it, as `torch.amp.GradScaler` with
/// its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GradScaler {
    /// The factor of losses.
    pub(crate) scale: f64,
    /// Steps in a row without an overflow.
    pub(crate) good_steps: u64,
}

impl Default for GradScaler {
    fn default() -> Self {
        Self { scale: 65536.0, good_steps: 0 }
    }
}

impl GradScaler {
    const GROWTH: f64 = 2.0;
    const BACKOFF: f64 = 0.5;
    const INTERVAL: u64 = 2000;

    /// Scales the gradients down and returns whether one of them is not finite; the step must be left out
    /// then. After the reduction every rank has the same gradients, so all ranks get the same result.
    ///
    /// # Errors
    /// When libtorch fails.
    pub(crate) fn unscale(&self, parameters: &[Named]) -> Result<bool, Fault> {
        let Some(first) = parameters.first() else { return Ok(false) };
        no_grad(|| {
            let options = (Kind::Float, first.tensor.device());
            let mut found_infinite = Tensor::f_zeros([1], options)?;
            let inverse = Tensor::f_full([1], 1.0 / self.scale, options)?;
            for parameter in parameters {
                let mut grad = parameter.tensor.f_grad()?;
                if grad.defined() {
                    grad.f_internal_amp_non_finite_check_and_unscale(
                        &mut found_infinite,
                        &inverse,
                    )?;
                }
            }
            Ok(found_infinite.f_double_value(&[0])? != 0.0)
        })
        .or_fault()
    }

    /// Follows what was found in this step.
    pub(crate) fn update(&mut self, found_inf: bool) {
        if found_inf {
            self.scale *= Self::BACKOFF;
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps == Self::INTERVAL {
            self.good_steps = 0;
            // As PyTorch: not beyond what a float32 holds.
            if self.scale * Self::GROWTH <= f64::from(f32::MAX) {
                self.scale *= Self::GROWTH;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(numbers: &[f32]) -> Named {
        let tensor = Tensor::from_slice(&vec![0f32; numbers.len()]).set_requires_grad(true);
        shim::set_grad(&tensor, Some(&Tensor::from_slice(numbers))).unwrap();
        Named { name: "p".into(), tensor }
    }

    #[test]
    fn the_scale_falls_after_an_overflow_and_rises_after_2000_good_steps() {
        let mut scaler = GradScaler::default();
        scaler.update(true);
        assert_eq!(scaler, GradScaler { scale: 32768.0, good_steps: 0 });
        for _ in 0..1999 {
            scaler.update(false);
        }
        assert_eq!(scaler, GradScaler { scale: 32768.0, good_steps: 1999 });
        scaler.update(false);
        assert_eq!(scaler, GradScaler { scale: 65536.0, good_steps: 0 });
        scaler.scale = 2f64.powi(127);
        scaler.good_steps = 1999;
        scaler.update(false);
        assert_eq!(scaler, GradScaler { scale: 2f64.powi(127), good_steps: 0 });
    }

    #[test]
    fn gradients_are_scaled_down_and_an_overflow_is_seen() {
        let scaler = GradScaler { scale: 4.0, good_steps: 0 };
        let good = [named(&[4.0, -8.0]), named(&[1.0])];
        assert!(!scaler.unscale(&good).unwrap());
        assert_eq!(Vec::<f32>::try_from(good[0].tensor.grad()).unwrap(), [1.0, -2.0]);
        assert_eq!(Vec::<f32>::try_from(good[1].tensor.grad()).unwrap(), [0.25]);
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(scaler.unscale(&[named(&[1.0]), named(&[0.0, bad])]).unwrap());
        }
        let without = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        let without = [Named { name: "p".into(), tensor: without }];
        assert!(!scaler.unscale(&without).unwrap());
    }

    #[test]
    fn bfloat16_is_for_products_alone_and_ends_with_the_pass() {
        let cpu = Device::Cpu;
        let x = Tensor::ones([2, 2], (Kind::Float, cpu));
        let product = || x.f_matmul(&x).or_fault();
        let cast = autocast(Precision::Bf16, cpu, product).unwrap();
        assert_eq!((cast.kind(), product().unwrap().kind()), (Kind::BFloat16, Kind::Float));
        let plain = autocast(Precision::F32, cpu, product).unwrap();
        assert_eq!(plain.kind(), Kind::Float);
        assert_eq!(
            check(Precision::F16, cpu).unwrap_err().to_string(),
            "`precision = \"f16\"` needs a GPU\nhint: use \"bf16\" or \"f32\" on the CPU"
        );
    }
}
