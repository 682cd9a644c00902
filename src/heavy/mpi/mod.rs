//! The ranks of a trial over MPI: start, end, and exchanges of bytes.
//!
//! One thread owns MPI, the one that called [`World::init`]: what is here cannot be sent to another.
//! Nothing here ends MPI behind the caller's back. MPI_Finalize waits for the other ranks, so a rank
//! that fails must not call it: [`World::finish`] is for a good end, and a panic aborts all ranks by itself.

#![expect(unsafe_code, reason = "MPI is a C library; the crate `mpi` has no in-place collectives")]

mod quiet;
#[cfg(feature = "torch")]
mod sums;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::rc::Rc;

use ::mpi::ffi;
use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;

#[cfg(feature = "torch")]
pub(crate) use sums::Sums;

/// Exit code of all ranks after a panic: our bug.
const PANIC: c_int = 70;

unsafe extern "C" {
    #[cfg(feature = "torch")]
    fn hpcsweep_mpi_in_place() -> *mut std::ffi::c_void;
    fn hpcsweep_mpi_cuda_aware() -> c_int;
}

/// This process among the ranks of its trial.
#[derive(Debug)]
pub(crate) struct World {
    comm: ffi::MPI_Comm,
    rank: u32,
    size: u32,
    level: c_int,
    /// The most bytes of one call; MPI counts in `int`.
    limit: usize,
    alive: Rc<Cell<bool>>,
}

impl World {
    /// Starts MPI for calls by this thread and makes a panic anywhere end all ranks.
    ///
    /// # Errors
    /// When MPI was started before in this process, or cannot be called from a program with threads.
    pub(crate) fn init() -> Result<Self, Fault> {
        let mut started = 0;
        // SAFETY: may be called at any time.
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&mut started) })?;
        if started != 0 {
            return Err(Fault::new(hpcsweep::base::fault::Kind::Bug, "MPI was started twice"));
        }
        let mut level = 0;
        // SAFETY: the first call of MPI; null stands for a program without arguments.
        let code = unsafe {
            ffi::MPI_Init_thread(
                ptr::null_mut(),
                ptr::null_mut(),
                ffi::RSMPI_THREAD_FUNNELED,
                &mut level,
            )
        };
        check("MPI_Init_thread", code)?;
        abort_on_panic();
        // SAFETY: a constant of the library.
        if level < unsafe { ffi::RSMPI_THREAD_FUNNELED } {
            return Err(Fault::machine(format!(
                "{} was built for programs without threads",
                library_line()
            ))
            .hint("build MPI with thread support (level `funneled` or higher)"));
        }
        let comm = duplicate()?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: `comm` is a communicator, both pointers are to `int`.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(comm, &mut rank) })?;
        // SAFETY: as above.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(comm, &mut size) })?;
        Ok(Self {
            comm,
            rank: rank.unsigned_abs(),
            size: size.unsigned_abs(),
            level,
            limit: c_int::MAX as usize,
            alive: Rc::new(Cell::new(true)),
        })
    }

    /// What may call MPI here: `funneled`, `serialized` or `multiple`.
    pub(crate) fn thread_level(&self) -> &'static str {
        // SAFETY: constants of the library.
        let (serialized, multiple) =
            unsafe { (ffi::RSMPI_THREAD_SERIALIZED, ffi::RSMPI_THREAD_MULTIPLE) };
        match self.level {
            level if level == multiple => "multiple",
            level if level == serialized => "serialized",
            _ => "funneled",
        }
    }

    /// Sums over all ranks, on a communicator of their own: they may be under way while values are
    /// exchanged here. Collective.
    ///
    /// # Errors
    /// When a rank is gone.
    #[cfg(feature = "torch")]
    pub(crate) fn sums(&self) -> Result<Sums, Fault> {
        self.check_alive()?;
        let world = Self { comm: duplicate()?, alive: Rc::clone(&self.alive), ..*self };
        Ok(Sums::new(world))
    }

    /// Lets one call carry no more than so many bytes, so that a test sees what happens beyond.
    #[cfg(feature = "torch")]
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = bytes.clamp(1, c_int::MAX as usize);
    }

    /// Ends MPI. Waits for all other ranks to do so.
    ///
    /// # Errors
    /// When MPI says so.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        self.alive.set(false);
        // SAFETY: MPI runs, this is its thread, and `alive` keeps later calls away.
        check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }

    fn check_alive(&self) -> Result<(), Fault> {
        if self.alive.get() {
            return Ok(());
        }
        Err(Fault::new(hpcsweep::base::fault::Kind::Bug, "MPI was called after its end"))
    }

    /// Pieces one after the other, each from its owner: for more bytes than MPI counts.
    fn pass_around(&mut self, mine: &[u8], lens: &[usize], all: &mut [u8]) -> Result<(), Fault> {
        let mut unfilled = all;
        for (root, len) in lens.iter().enumerate() {
            let (piece, after) = unfilled.split_at_mut(*len);
            if root == self.rank as usize {
                piece.copy_from_slice(mine);
            }
            self.broadcast(root as u32, piece)?;
            unfilled = after;
        }
        Ok(())
    }
}

impl Peers for World {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
        self.check_alive()?;
        check_len(all.len(), mine.len() * self.size as usize)?;
        if all.len() > self.limit {
            let lens = vec![mine.len(); self.size as usize];
            return self.pass_around(mine, &lens, all);
        }
        let len = mine.len() as c_int;
        // SAFETY: `mine` has `len` bytes and `all` has `size` times as many; both outlive the call.
        let code = unsafe {
            ffi::MPI_Allgather(
                mine.as_ptr().cast(),
                len,
                ffi::RSMPI_UINT8_T,
                all.as_mut_ptr().cast(),
                len,
                ffi::RSMPI_UINT8_T,
                self.comm,
            )
        };
        check("MPI_Allgather", code)
    }

    fn all_gather_pieces(
        &mut self,
        mine: &[u8],
        lens: &[usize],
        all: &mut [u8],
    ) -> Result<(), Fault> {
        self.check_alive()?;
        check_len(lens.len(), self.size as usize)?;
        check_len(all.len(), lens.iter().sum())?;
        check_len(mine.len(), lens[self.rank as usize])?;
        if all.len() > self.limit {
            return self.pass_around(mine, lens, all);
        }
        let counts: Vec<c_int> = lens.iter().map(|len| *len as c_int).collect();
        let starts: Vec<c_int> = counts
            .iter()
            .scan(0, |next, count| {
                let start = *next;
                *next += count;
                Some(start)
            })
            .collect();
        // SAFETY: counts and starts lie within `all`, `mine` has this rank's count of bytes; all
        // outlive the call.
        let code = unsafe {
            ffi::MPI_Allgatherv(
                mine.as_ptr().cast(),
                counts[self.rank as usize],
                ffi::RSMPI_UINT8_T,
                all.as_mut_ptr().cast(),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                self.comm,
            )
        };
        check("MPI_Allgatherv", code)
    }

    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.check_alive()?;
        for chunk in bytes.chunks_mut(self.limit) {
            // SAFETY: `chunk` has so many bytes, no more than an `int` counts, and outlives the call.
            let code = unsafe {
                ffi::MPI_Bcast(
                    chunk.as_mut_ptr().cast(),
                    chunk.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    root as c_int,
                    self.comm,
                )
            };
            check("MPI_Bcast", code)?;
        }
        Ok(())
    }
}

/// Name and version of the MPI library, as it says; may be called before [`World::init`].
pub(crate) fn library() -> String {
    // SAFETY: a constant of the library.
    let room = unsafe { ffi::RSMPI_MAX_LIBRARY_VERSION_STRING };
    let mut text: Vec<c_char> = vec![0; room.unsigned_abs() as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the room that the library wants, and one zero more.
    let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr(), &mut len) };
    if code != 0 { "an unknown MPI".into() } else { string(&text) }
}

/// Whether the MPI library says that it reads and writes the memory of NVIDIA's GPUs; `None` where it
/// has no way to say so.
pub(crate) fn cuda_aware() -> Option<bool> {
    // SAFETY: asks for a property of the library.
    match unsafe { hpcsweep_mpi_cuda_aware() } {
        -1 => None,
        answer => Some(answer == 1),
    }
}

/// The library's name in short: the first line, up to the first comma.
fn library_line() -> String {
    let library_text = library();
    let line = library_text.lines().next().unwrap_or_default();
    line.split(',').next().unwrap_or_default().trim().to_owned()
}

/// A communicator of all ranks that returns errors instead of ending the program. Collective.
fn duplicate() -> Result<ffi::MPI_Comm, Fault> {
    // SAFETY: MPI runs; a constant of the library.
    let (world, handler) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN) };
    // SAFETY: both are handles of this library. The duplicate inherits the handler.
    check("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(world, handler) })?;
    // SAFETY: a constant of the library.
    let mut comm = unsafe { ffi::RSMPI_COMM_NULL };
    // SAFETY: `world` is a communicator, `comm` takes its copy.
    check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(world, &mut comm) })?;
    Ok(comm)
}

/// The fault of a call that returned `code`, in MPI's words.
fn check(call: &str, code: c_int) -> Result<(), Fault> {
    if code == 0 {
        return Ok(());
    }
    // More than any library's MPI_MAX_ERROR_STRING.
    let mut text: Vec<c_char> = vec![0; 4096];
    let mut len = 0;
    // SAFETY: the buffer has more room than the library uses.
    let has_text = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut len) } == 0;
    let text = if has_text { string(&text) } else { format!("error {code}") };
    Err(Fault::machine(format!("{call} failed: {text}")))
}

fn check_len(is: usize, must: usize) -> Result<(), Fault> {
    if is == must {
        return Ok(());
    }
    let sentence = format!("a buffer of {is} instead of {must} bytes was given to MPI");
    Err(Fault::new(hpcsweep::base::fault::Kind::Bug, sentence))
}

/// The text up to the first zero; the last byte is one.
fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|c| c.cast_unsigned()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

/// A panic would unwind into the end of this process while the other ranks wait for it.
fn abort_on_panic() {
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        previous_hook(panic);
        abort_all(PANIC);
    }));
}

/// Ends all ranks if MPI runs. Does not return then.
pub(crate) fn abort_all(code: c_int) {
    let (mut started, mut ended) = (0, 0);
    // SAFETY: both may be called at any time; MPI_Abort only between start and end.
    unsafe {
        ffi::MPI_Initialized(&mut started);
        ffi::MPI_Finalized(&mut ended);
        if started != 0 && ended == 0 {
            ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code);
        }
    }
}
