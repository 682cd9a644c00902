//! Batches as tensors, made ahead of their use by threads of the data set's.

use std::sync::Arc;

use anyhow::Result;
use hpcsweep::base::fault::{Fault, Kind};
use hpcsweep::train::data::batch::{Batch, How, Reals, Targets};
use hpcsweep::train::data::loader::Loader;
use hpcsweep::train::sampler::Batches;
use tch::{Device, Tensor};

use super::samples::Part;
use crate::torch::OrFault;

/// Batches ahead of the one in use, for each thread.
const AHEAD: usize = 2;

/// The inputs of a step.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The inputs, on the device; the first dimension counts the samples.
    pub(crate) x: Tensor,
    /// The targets, on the device; the first dimension counts the samples.
    pub(crate) y: Tensor,
    /// How many samples there are; 0 for an empty batch.
    pub(crate) samples: u64,
}

/// The batches of one rank, one after the other, on its device.
pub(crate) struct Feed {
    loader: Loader,
    device: Device,
}

impl Feed {
    /// The batches from `first` on. `cores` is what this rank may use altogether.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        part: &Part,
        batches: Batches,
        first: u64,
        how: How,
        device: Device,
        cores: usize,
    ) -> Result<Self> {
        let lists = (first..batches.steps()).map(move |step| batches.batch(step).to_vec());
        let threads = (cores / 4).clamp(1, 4);
        let loader = Loader::start(Arc::clone(&part.data), lists, how, threads, threads * AHEAD)?;
        Ok(Self { loader, device })
    }

    /// The next batch, which may be empty.
    ///
    /// # Errors
    /// When the data cannot be read, or the batches are at their end (our bug).
    pub(crate) fn take(&mut self) -> Result<Taken> {
        let Some(batch) = self.loader.next() else {
            return Err(Fault::new(Kind::Bug, "there are fewer batches than steps").into());
        };
        let batch = batch?;
        let tensors = Taken {
            x: self.put(&reals(&batch.inputs), &batch.input_shape)?,
            y: self.put(&targets(&batch), &batch.target_shape)?,
            samples: batch.len(),
        };
        self.loader.give_back(batch);
        Ok(tensors)
    }

    /// Copies numbers to the device, in their shape.
    fn put(&self, numbers: &tch::Result<Tensor>, shape: &[i64]) -> Result<Tensor, Fault> {
        let numbers = match numbers {
            Ok(numbers) => numbers,
            Err(error) => return Err(crate::torch::fault(error)),
        };
        numbers.f_view(shape).and_then(|tensor| tensor.f_to_device(self.device)).or_fault()
    }
}

fn reals(numbers: &Reals) -> tch::Result<Tensor> {
    match numbers {
        Reals::F32(numbers) => Tensor::f_from_slice(numbers),
        Reals::F64(numbers) => Tensor::f_from_slice(numbers),
    }
}

fn targets(batch: &Batch) -> tch::Result<Tensor> {
    match &batch.targets {
        Targets::Classes(classes) => Tensor::f_from_slice(classes),
        Targets::Values(values) => reals(values),
    }
}
