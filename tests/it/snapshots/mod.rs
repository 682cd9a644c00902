//! `[snapshot]`: the code that was submitted is the code that runs.

mod faults;
mod runs;
mod ways;
