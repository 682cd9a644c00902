//! Ranks that agree on values: gathers and reductions with equal results and equal errors everywhere.
//!
//! Knows neither libtorch nor MPI: [`peers::Peers`] is what ranks can do together, in one process, among
//! threads, or (in `hpcsweep-worker`) over MPI.
//!
//! Every call begins with a meeting: each rank says what it is about to do and what it brings. All that
//! can be wrong is found there, from the same facts on every rank, so that an error is the same sentence
//! everywhere, nobody waits for a rank that has turned away, and the next call finds all ranks together.

mod convert;
pub mod frame;
pub mod gather;
mod header;
mod items;
mod meeting;
mod options;
pub mod peers;
pub mod reduce;
mod say;
pub mod serve;
pub mod slice;
pub mod threads;
pub mod value;

pub use meeting::absent;
