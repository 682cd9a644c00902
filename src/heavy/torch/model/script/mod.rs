//! TorchScript: any module that `torch.jit.script(module).save(file)` has written.
//!
//! The graph is run as it is written, without the profiling optimizer of libtorch: that one changes the
//! program after its first runs, and with it perhaps the last bits of a run that was interrupted.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;

use hpcsweep::base::fault::Fault;
use tch::Tensor;

use super::layers::Place;
use super::{Named, Net, Parts};
use crate::torch::{OrFault, shim};

/// A scripted module, loaded onto one device. Its floating-point tensors have the kind of the run.
#[derive(Debug)]
pub(super) struct Script {
    module: shim::Module,
    /// The mode it was last set to.
    is_training: Cell<Option<bool>>,
}

impl Script {
    pub(super) fn load(place: Place, path: &Path) -> Result<Self, Fault> {
        let shown = path.display().to_string();
        if !path.is_file() {
            return Err(Fault::request("the model's file does not exist").at(shown));
        }
        tch::jit::f_set_graph_executor_optimize(false).or_fault()?;
        let read = |error: tch::TchError| {
            let mut fault = crate::torch::fault(&error).at(shown.clone());
            fault.sentence = format!("the model cannot be loaded: {}", fault.sentence);
            fault.hint("save it by `torch.jit.script(model).save(file)`")
        };
        let module = shim::Module::load(path, place.device).map_err(read)?;
        if module.is_traced().map_err(read)? {
            return Err(Fault::request(
                "the model was traced: its dropout or batch normalisation cannot tell training from \
                 evaluation",
            )
            .at(shown)
            .hint("save it by `torch.jit.script(model).save(file)` instead of `torch.jit.trace`"));
        }
        let parameters = module.parameters().map_err(read)?;
        if parameters.iter().all(|(_, tensor)| !tensor.requires_grad()) {
            return Err(Fault::request("the model has no parameters to train")
                .at(shown)
                .hint("save it without `torch.jit.freeze`, with `requires_grad`"));
        }
        for (_, mut tensor) in parameters.into_iter().chain(module.buffers().map_err(read)?) {
            if tensor.is_floating_point() && tensor.kind() != place.kind {
                let cast = tensor.detach().f_to_kind(place.kind).map_err(read)?;
                tensor.f_set_data(&cast).map_err(read)?;
            }
        }
        Ok(Self { module, is_training: Cell::new(None) })
    }

    fn mode(&self, train: bool) -> tch::Result<()> {
        if self.is_training.replace(Some(train)) != Some(train) {
            self.module.train(train)?;
        }
        Ok(())
    }
}

impl Net for Script {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        self.mode(train)?;
        self.module.forward(x)
    }

    /// The parameters; a tensor with two names has the first.
    fn parts(&self) -> tch::Result<Parts> {
        let mut seen_tensors = HashSet::new();
        let mut once = |list: Vec<(String, Tensor)>| -> Vec<Named> {
            list.into_iter()
                .filter(|(_, tensor)| seen_tensors.insert(shim::identity(tensor)))
                .map(|(name, tensor)| Named { name, tensor })
                .collect()
        };
        let (trained, fixed): (Vec<_>, Vec<_>) =
            self.module.parameters()?.into_iter().partition(|(_, tensor)| tensor.requires_grad());
        let mut buffers = once(fixed);
        buffers.extend(once(self.module.buffers()?));
        Ok(Parts { parameters: once(trained), buffers })
    }

    fn save(&self, path: &Path) -> tch::Result<bool> {
        self.mode(false)?;
        self.module.save(path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
