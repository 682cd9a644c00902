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
#[path = "../it/sync_cases.rs"]
#[allow(dead_code, reason = "shared with the tests `it`, which use all of it")]
mod sync_cases;
mod sync_errors;
mod training;
mod trial;
mod unsynced;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "shared with the tests `it`, which use all of it")]
mod world;
