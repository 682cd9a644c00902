//! The failure of a rank: it is reported once, in the file that its worker reads, and no other rank waits for
//! it.
//!
//! A rank that fails must not return from `main`: MPI's end waits for the other ranks, which wait for this
//! one in a collective. So it reports why and exits; the worker that started it ends the trial on all ranks
//! within moments. MPI_Abort would be too much: under srun it kills every process of the step at once,
//! including the worker that writes the record (seen with Slurm 22.05 and PMIx). Without a worker, MPI_Abort
//! is right.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use hpcsweep::base::host::disk;
use hpcsweep::run::worker::process::launch::VERSION_VARIABLE;
use hpcsweep::run::worker::process::program::LOST_PEERS;
use nix::libc;

static REASON: OnceLock<PathBuf> = OnceLock::new();
static FAILING: AtomicBool = AtomicBool::new(false);

/// Makes a panic on any thread an end like any other, with `reason` as the file for its line.
pub(super) fn arm(reason: &Path) {
    if REASON.set(reason.to_owned()).is_err() {
        return;
    }
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        previous_hook(panic);
        let message = panic.payload_as_str().unwrap_or("no message");
        let location = panic.location().map(|at| format!(" ({at})")).unwrap_or_default();
        fail(
            REASON.get().map_or(Path::new(""), |path| path),
            &format!("panic: {message}{location}"),
        );
    }));
}

/// The one line of an error that has several: sentence, place and hint.
pub(crate) fn line(text: &str) -> String {
    let parts: Vec<&str> = text.lines().map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// Says why this rank ends, where its worker and a person look. The file appears whole.
pub(crate) fn say(reason: &Path, text: &str) {
    use std::io::Write;
    let mut log = std::io::stderr();
    let _ = writeln!(log, "error: {text}");
    if let Err(error) = disk::write_whole(reason, format!("{}\n", line(text)).as_bytes()) {
        let _ = writeln!(log, "error: {error}");
    }
}

/// Ends a rank that the others do not know to have failed. Calls nothing that waits for them: reports why,
/// and exits; without a worker that supervises it, ends all ranks through MPI. If MPI itself has failed,
/// another rank is gone, and that rank's failure comes first.
pub(crate) fn fail(reason: &Path, text: &str) -> ! {
    if FAILING.swap(true, Ordering::SeqCst) {
        // Another thread is at it already.
        loop {
            std::thread::park();
        }
    }
    say(reason, text);
    let code = if text.starts_with("MPI_") { LOST_PEERS } else { 1 };
    if std::env::var(VERSION_VARIABLE).is_err() {
        crate::mpi::abort_all(code);
    }
    leave(code)
}

/// Ends this process without the exit handlers of MPI and CUDA, which may wait for what will not come.
#[expect(unsafe_code, reason = "_exit(2)")]
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing of it runs afterwards.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_several_lines_becomes_one() {
        assert_eq!(
            line("no data\n  plan.toml:3\nhint: add some\n"),
            "no data; plan.toml:3; hint: add some"
        );
    }
}
