//! `hpcsweep-worker`: the heavy half of the worker, for trials that need MPI or libtorch in-process.
//!
//! `hpcsweep worker` becomes this program where a trial needs it; both must be of one version. The one
//! place that may name the crates `mpi` and `tch`; a build without these features has neither.

#[cfg(feature = "mpi")]
#[allow(dead_code, reason = "a library to the verbs of this program")]
mod mpi;
#[cfg(feature = "torch")]
#[allow(dead_code, reason = "a library to the verbs of this program")]
mod torch;

use std::process::ExitCode;

use hpcsweep::worker::launch::VERSION_VARIABLE;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own prints for itself"
)]
fn main() -> ExitCode {
    let own = env!("CARGO_PKG_VERSION");
    if let Ok(theirs) = std::env::var(VERSION_VARIABLE)
        && theirs != own
    {
        eprintln!("error: this is hpcsweep-worker {own}, but hpcsweep is {theirs}");
        eprintln!("hint: install both programs of one version together");
        return ExitCode::from(4);
    }
    match std::env::args().nth(1).as_deref() {
        Some("--version" | "-V") => {
            println!("hpcsweep-worker {own}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("error: this hpcsweep-worker was built without MPI and libtorch");
            eprintln!("hint: plans with `[run] command` need neither: start `hpcsweep worker`");
            ExitCode::from(2)
        }
    }
}
