//! The heavy worker with its features, under a real `mpirun`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases_mp_sync;
mod ends;
mod exported;
mod plans;
mod projects;
mod ranks;
mod reduced_lines;
mod selftest;
mod sync_errors;
mod training;
mod trial;
mod unsynced;

#[path = "../it/support"]
#[allow(dead_code, reason = "shared with the tests `it`, which use all of it")]
mod support {
    pub(crate) mod sync_cases;
    pub(crate) mod world;
}
