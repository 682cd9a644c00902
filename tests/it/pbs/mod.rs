//! Sweeps on PBS: the scheduler of `tests/pbs`, which behaves as OpenPBS does.

mod arrays;
mod auto;
mod causes;
mod chains;
mod control;
mod ends;
mod functions;
mod killed;
mod learn;
mod limits;
mod once;
mod pack;
mod pilots;
mod ranks;
mod readers;
mod resources;
mod scripts;
mod server;
mod stalled;
mod storm;
mod truth;
