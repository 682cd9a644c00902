//! The sources keep the shape that ARCHITECTURE.md describes, and what is listed twice is listed alike.
//!
//! Nothing of the program is run, so that these tests are as quick as the lints.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dependencies;
mod pairs;
mod programs;
mod tidy;

/// The folder of the sources.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Fails if there are any, a line each.
#[track_caller]
fn say(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
