//! The heavy worker with its features, under a real `mpirun`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ends;
mod selftest;
mod training;
mod trial;
