//! An exchange that leaves the cores alone while it waits: MPI libraries spin, and the program whose
//! values are exchanged needs the core.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::time::Duration;

use ::mpi::ffi;
use hpcsweep::base::fault::Fault;

use super::{World, check};

impl World {
    /// As [`all_gather`](hpcsweep::run::sync::peers::Peers::all_gather), but between polls of its progress `nap` decides
    /// what this thread does; its argument is the number of polls so far. Returns the bytes of all ranks, one after the
    /// other.
    ///
    /// # Errors
    /// When a rank is gone, or an error of `nap`. The exchange then stays unfinished, and this World can only
    /// be aborted.
    pub(crate) fn all_gather_quietly(
        &mut self,
        mine: &[u8],
        mut nap: impl FnMut(u32) -> Result<Duration, Fault>,
    ) -> Result<Vec<u8>, Fault> {
        self.check_alive()?;
        let len = c_int::try_from(mine.len())
            .map_err(|_| Fault::machine("an exchange of more bytes than MPI counts"))?;
        // MPI reads and writes these buffers until the request is complete. An exchange that is left under way, by an error
        // or a panic, must keep them: they are freed below, after completion, and nowhere else.
        let mine = ManuallyDrop::new(mine.to_vec());
        let mut received = ManuallyDrop::new(vec![0_u8; mine.len() * self.size as usize]);
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `mine` has `len` bytes and `received` has `size` times as many; both live until the request is complete.
        let code = unsafe {
            ffi::MPI_Iallgather(
                mine.as_ptr().cast(),
                len,
                ffi::RSMPI_UINT8_T,
                received.as_mut_ptr().cast(),
                len,
                ffi::RSMPI_UINT8_T,
                self.comm,
                &mut request,
            )
        };
        check("MPI_Iallgather", code)?;
        let mut looks = 0;
        loop {
            let mut done = 0;
            // SAFETY: the request of above; the status is not needed.
            let code = unsafe { ffi::MPI_Test(&mut request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
            check("MPI_Test", code)?;
            if done != 0 {
                drop(ManuallyDrop::into_inner(mine));
                return Ok(ManuallyDrop::into_inner(received));
            }
            let pause = nap(looks)?;
            looks = looks.saturating_add(1);
            if pause.is_zero() {
                std::thread::yield_now();
            } else {
                std::thread::sleep(pause);
            }
        }
    }
}
