//! Sums of numbers over ranks that run during the backward pass.

#![expect(unsafe_code, reason = "numbers are added up where they lie, behind the compiler's back")]

use std::ffi::c_void;

use hpcsweep::base::fault::{Fault, Kind};
use hpcsweep::run::sync::peers::{Alone, Peers};

/// What adds up gradients.
pub(crate) trait Reduce: Peers {
    /// Begins to add up `len` numbers of kind `kind` of each rank, in place. All ranks start the same sums
    /// in the same order.
    ///
    /// # Errors
    /// When a rank is gone, or numbers of this kind cannot be added up.
    ///
    /// # Safety
    /// The numbers lie at `numbers`, and no other code touches them until [`Self::wait`] has returned.
    unsafe fn start(
        &mut self,
        kind: tch::Kind,
        numbers: *mut c_void,
        len: usize,
    ) -> Result<(), Fault>;

    /// Continues work that is under way.
    ///
    /// # Errors
    /// When a rank is gone.
    fn progress(&mut self) -> Result<(), Fault>;

    /// Waits for all sums.
    ///
    /// # Errors
    /// When a rank is gone.
    fn wait(&mut self) -> Result<(), Fault>;

    /// Whether numbers may lie in the memory of a GPU.
    fn reads_gpus(&self) -> bool;
}

/// Whether numbers of this kind can be added up.
pub(super) fn check(kind: tch::Kind, name: &str) -> Result<(), Fault> {
    if matches!(kind, tch::Kind::Float | tch::Kind::Double) {
        return Ok(());
    }
    Err(Fault::request(format!(
        "parameter `{name}` is {kind:?}; ranks add up Float and Double alone"
    ))
    .hint("keep parameters in 32 bit and use `precision = \"bf16\"`"))
}

impl Reduce for Alone {
    unsafe fn start(&mut self, _: tch::Kind, _: *mut c_void, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn reads_gpus(&self) -> bool {
        true
    }
}

#[cfg(feature = "mpi")]
impl Reduce for crate::mpi::Sums {
    unsafe fn start(
        &mut self,
        kind: tch::Kind,
        numbers: *mut c_void,
        len: usize,
    ) -> Result<(), Fault> {
        // SAFETY: passed on.
        unsafe {
            match kind {
                tch::Kind::Float => self.start_f32(numbers.cast(), len),
                tch::Kind::Double => self.start_f64(numbers.cast(), len),
                _ => Err(Fault::new(Kind::Bug, format!("MPI was to add up {kind:?}"))),
            }
        }
    }

    fn progress(&mut self) -> Result<(), Fault> {
        crate::mpi::Sums::progress(self)
    }

    fn wait(&mut self) -> Result<(), Fault> {
        crate::mpi::Sums::wait(self)
    }

    fn reads_gpus(&self) -> bool {
        crate::mpi::cuda_aware() == Some(true)
    }
}
