//! Ranks that agree on values: gathers and reductions with equal results and equal errors everywhere.
//!
//! Knows neither libtorch nor MPI: [`peers::Peers`] is what ranks can do together, in one process, among
//! threads, or (in `hpcsweep-worker`) over MPI.
//!
//! Every call begins with a meeting: each rank announces what it is about to do and which values it has. All
//! errors are found there, from the same facts on every rank. So an error is the same sentence everywhere, no
//! rank waits for one that has given up, and the next call finds all ranks together.

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
