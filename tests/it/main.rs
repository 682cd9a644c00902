//! The program seen from outside: its real binaries, run in folders of their own.
//!
//! One test binary. Whole outputs are compared wherever they are stable; what differs from run to run
//! (paths, times, tokens) is replaced first. A tool that a test needs and does not find fails the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod answers;
mod arrays;
mod faults;
mod local;
mod pbs;
mod plan;
mod program;
mod python;
mod sharing;
mod snapshots;
mod support;
