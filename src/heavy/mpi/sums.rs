//! Sums over all ranks that run while the program computes.

use std::ffi::{c_int, c_void};

use ::mpi::ffi;
use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;

use super::{World, check};

/// Sums under way. Every rank starts the same ones in the same order.
#[derive(Debug)]
pub(crate) struct Sums {
    world: World,
    requests: Vec<ffi::MPI_Request>,
}

impl Sums {
    pub(super) fn new(world: World) -> Self {
        Self { world, requests: Vec::new() }
    }

    /// Begins to add up `len` numbers of each rank, in place.
    ///
    /// # Errors
    /// When a rank is gone.
    ///
    /// # Safety
    /// The numbers lie at `numbers` and are not touched by anyone else until [`Self::wait`] has returned.
    pub(crate) unsafe fn start_f32(&mut self, numbers: *mut f32, len: usize) -> Result<(), Fault> {
        // SAFETY: passed on.
        unsafe { self.start(numbers.cast(), size_of::<f32>(), len, ffi::RSMPI_FLOAT) }
    }

    /// As [`Self::start_f32`].
    ///
    /// # Errors
    /// When a rank is gone.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn start_f64(&mut self, numbers: *mut f64, len: usize) -> Result<(), Fault> {
        // SAFETY: passed on.
        unsafe { self.start(numbers.cast(), size_of::<f64>(), len, ffi::RSMPI_DOUBLE) }
    }

    /// Lets MPI work on what is under way: most libraries do nothing outside their calls.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn progress(&mut self) -> Result<(), Fault> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let mut done = 0;
        // SAFETY: the requests are ours and still known to MPI.
        let code = unsafe {
            ffi::MPI_Testall(
                self.requests.len() as c_int,
                self.requests.as_mut_ptr(),
                &mut done,
                ffi::RSMPI_STATUSES_IGNORE,
            )
        };
        check("MPI_Testall", code)?;
        if done != 0 {
            self.requests.clear();
        }
        Ok(())
    }

    /// Waits for all that is under way.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn wait(&mut self) -> Result<(), Fault> {
        if self.requests.is_empty() {
            return Ok(());
        }
        self.world.check_alive()?;
        // SAFETY: the requests are ours and still known to MPI.
        let code = unsafe {
            ffi::MPI_Waitall(
                self.requests.len() as c_int,
                self.requests.as_mut_ptr(),
                ffi::RSMPI_STATUSES_IGNORE,
            )
        };
        self.requests.clear();
        check("MPI_Waitall", code)
    }

    unsafe fn start(
        &mut self,
        numbers: *mut c_void,
        width: usize,
        len: usize,
        kind: ffi::MPI_Datatype,
    ) -> Result<(), Fault> {
        self.world.check_alive()?;
        let max_elements = (self.world.limit / width).max(1);
        for first in (0..len).step_by(max_elements) {
            // SAFETY: a constant of the library.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: the caller vouches for `len` numbers; `first` is one of them. The request is
            // kept until it is done.
            let code = unsafe {
                ffi::MPI_Iallreduce(
                    super::hpcsweep_mpi_in_place(),
                    numbers.byte_add(first * width),
                    max_elements.min(len - first) as c_int,
                    kind,
                    ffi::RSMPI_SUM,
                    self.world.comm,
                    &mut request,
                )
            };
            check("MPI_Iallreduce", code)?;
            self.requests.push(request);
        }
        Ok(())
    }
}

impl Peers for Sums {
    fn rank(&self) -> u32 {
        self.world.rank()
    }

    fn size(&self) -> u32 {
        self.world.size()
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
        self.world.all_gather(mine, all)
    }

    fn all_gather_pieces(
        &mut self,
        mine: &[u8],
        lens: &[usize],
        all: &mut [u8],
    ) -> Result<(), Fault> {
        self.world.all_gather_pieces(mine, lens, all)
    }

    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.world.broadcast(root, bytes)
    }
}
