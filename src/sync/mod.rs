//! Ranks that agree on values: gathers and reductions with equal results and equal errors everywhere.
//!
//! Knows neither libtorch nor MPI: [`peers::Peers`] is what ranks can do together, in one process, among
//! threads, or (in `hpcsweep-worker`) over MPI.

pub mod peers;
pub mod value;
