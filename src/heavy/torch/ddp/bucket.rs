//! Gradients that are reduced together: views of one piece of memory.

#![expect(unsafe_code, reason = "hands the memory of a tensor to a reduction under way")]

use hpcsweep::base::fault::Fault;
use hpcsweep::train::bucket;
use tch::{Device, Kind, Tensor, no_grad};

use super::reduce::Reduce;
use crate::torch::OrFault;
use crate::torch::model::Named;

#[derive(Debug)]
pub(super) struct Bucket {
    /// The gradients one after the other, then `marks` further numbers.
    flat: Tensor,
    /// Where they go to be added up if MPI does not read the GPU's memory.
    host: Option<Tensor>,
    /// How many of its numbers are gradients.
    len: i64,
    marks: i64,
}

impl Bucket {
    /// A bucket of parameters on one device, and the views of its slots.
    pub(super) fn new(
        plan: &bucket::Bucket<Kind>,
        parameters: &[Named],
        marks: usize,
        reads_gpus: bool,
    ) -> tch::Result<(Self, Vec<Tensor>)> {
        let device = parameters[plan.slots[0].parameter].tensor.device();
        let (len, marks) = (plan.elements as i64, marks as i64);
        let flat = Tensor::f_zeros([len + marks], (plan.kind, device))?;
        let host = if device == Device::Cpu || reads_gpus {
            None
        } else {
            // `pin_memory` with a device, as tch calls it, writes a warning: PyTorch wants none there.
            let host = Tensor::f_zeros([len + marks], (plan.kind, Device::Cpu))?;
            Some(host.f_internal_pin_memory(device)?)
        };
        let views = plan
            .slots
            .iter()
            .map(|slot| {
                flat.f_narrow(0, slot.offset as i64, slot.elements as i64)?
                    .f_view_as(&parameters[slot.parameter].tensor)
            })
            .collect::<tch::Result<_>>()?;
        Ok((Self { flat, host, len, marks }, views))
    }

    pub(super) fn zero(&mut self) -> tch::Result<()> {
        let _ = self.flat.f_zero_()?;
        Ok(())
    }

    /// Writes the numbers behind the gradients: 1 for true.
    pub(super) fn mark(&self, marks: &[bool]) -> tch::Result<()> {
        let marks: Vec<f32> = marks.iter().map(|mark| f32::from(u8::from(*mark))).collect();
        no_grad(|| {
            self.flat.f_narrow(0, self.len, self.marks)?.f_copy_(&Tensor::f_from_slice(&marks)?)
        })
    }

    /// Which of the marks are true on any rank, after the reduction.
    pub(super) fn marked(&self) -> tch::Result<Vec<bool>> {
        let marks = self.flat.f_narrow(0, self.len, self.marks)?.f_to_device(Device::Cpu)?;
        let marks: Vec<f64> = Vec::try_from(marks.f_to_kind(Kind::Double)?)?;
        Ok(marks.iter().map(|mark| *mark != 0.0).collect())
    }

    /// Starts to add up its numbers over the ranks. [`Bucket::finish`] brings the sums to the views.
    pub(super) fn start(&mut self, reduce: &mut dyn Reduce) -> Result<(), Fault> {
        let numbers = match &mut self.host {
            // Waits for the GPU.
            Some(host) => {
                no_grad(|| host.f_copy_(&self.flat)).or_fault()?;
                host
            }
            None => {
                if let Device::Cuda(n) = self.flat.device() {
                    tch::Cuda::synchronize(n as i64);
                }
                &mut self.flat
            }
        };
        // SAFETY: the tensor is contiguous and lives until `Ddp` has waited (or is leaked). The backward
        // pass does not write to it any more: all its gradients are there.
        unsafe { reduce.start(numbers.kind(), numbers.data_ptr(), numbers.numel()) }
    }

    /// Brings the sums to where the views see them.
    pub(super) fn finish(&mut self) -> tch::Result<()> {
        match &self.host {
            Some(host) => no_grad(|| self.flat.f_copy_(host)),
            None => Ok(()),
        }
    }
}
