//! The numerics of training on libtorch: models, losses, optimizers, mixed precision and gradients
//! averaged over ranks. What PyTorch has too gives PyTorch's numbers.
//!
//! Inside, functions return tch's own errors; what other rooms call returns [`Fault`].

pub(crate) mod bytes;
pub(crate) mod cuda;
pub(crate) mod ddp;
pub(crate) mod loss;
pub(crate) mod mixed;
pub(crate) mod model;
pub(crate) mod optim;
mod shim;
#[cfg(test)]
mod testing;

use hpcsweep::base::fault::Fault;
use tch::TchError;

/// A result of libtorch as a fault.
pub(crate) trait OrFault<T> {
    /// # Errors
    /// The same, as a [`Fault`].
    fn or_fault(self) -> Result<T, Fault>;
}

impl<T> OrFault<T> for Result<T, TchError> {
    fn or_fault(self) -> Result<T, Fault> {
        self.map_err(|error| fault(&error))
    }
}

/// An error of libtorch in one sentence: its first line, or of a TorchScript program the last line of
/// the traceback.
pub(crate) fn fault(error: &TchError) -> Fault {
    let text = match error {
        TchError::Torch(text) | TchError::Shape(text) => text.clone(),
        other => other.to_string(),
    };
    let line = said_last(&text).unwrap_or_else(|| text.lines().next().unwrap_or_default());
    let line = line.trim().trim_end_matches('.');
    let is_machine = ["out of memory", "CUDA error", "can't allocate memory", "No space left"]
        .iter()
        .any(|words| text.contains(words));
    let sentence = match error {
        TchError::Shape(_) => line.to_owned(),
        _ => format!("libtorch: {line}"),
    };
    if is_machine { Fault::machine(sentence) } else { Fault::request(sentence) }
}

/// The error of a TorchScript program: the last line of its traceback, without the name that every error has.
fn said_last(text: &str) -> Option<&str> {
    let (_, program) = text.split_once("Traceback of TorchScript")?;
    // Lines of the program itself are indented, or marks below them.
    let is_error = |line: &&str| line.starts_with(|c: char| c.is_ascii_alphabetic());
    let line = program.lines().rfind(is_error)?;
    let line = line.strip_prefix("builtins.").unwrap_or(line);
    Some(line.strip_prefix("RuntimeError: ").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_libtorch_is_one_sentence() {
        let error =
            tch::Tensor::f_zeros([2, 3], (tch::Kind::Float, tch::Device::Cpu)).and_then(|a| {
                a.f_matmul(&tch::Tensor::f_zeros([2, 3], (tch::Kind::Float, tch::Device::Cpu))?)
            });
        assert_eq!(
            error.or_fault().unwrap_err().to_string(),
            "libtorch: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
        );
        let script = TchError::Torch(
            "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript \
             (most recent call last):\n  File ...\nRuntimeError: sizes do not match\n"
                .into(),
        );
        assert_eq!(fault(&script), Fault::request("libtorch: sizes do not match"));
        let raised = TchError::Torch(
            "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript, \
             serialized code (most recent call last):\n  File \"code/a.py\", line 9, in forward\n    \
             ops.prim.RaiseException(\"three channels\", \"builtins.ValueError\")\n    ~~~~~ <--- HERE\n\
             builtins.ValueError: three channels\n"
                .into(),
        );
        assert_eq!(fault(&raised), Fault::request("libtorch: ValueError: three channels"));
        let memory = TchError::Torch("CUDA out of memory. Tried to allocate 2 GiB".into());
        assert_eq!(fault(&memory).kind, hpcsweep::base::fault::Kind::Machine);
    }
}
