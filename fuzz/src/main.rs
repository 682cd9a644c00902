//! One program that fuzzes any reader: libFuzzer's `main`, and the table of targets.
//!
//! `scripts/fuzz` builds it with coverage and runs it. It takes the options of libFuzzer; what it does with them says
//! `HPCSWEEP_FUZZ`: `list` prints the names of the targets, `seeds FOLDER` writes a corpus to begin with for each, and the
//! name of a target fuzzes it.

#![no_main]

mod data;
mod schedulers;
mod seeds;
mod targets;
mod text;
mod tree;
mod wire;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use targets::{TARGETS, Target};

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(
    init: choose(),
    |bytes: &[u8]| {
        if let Some(target) = CHOSEN.get() {
            (target.run)(bytes);
        }
    }
);

/// Does what the environment asks for; returns where a target is to be fuzzed.
fn choose() {
    let wish = std::env::var("HPCSWEEP_FUZZ").unwrap_or_default();
    if let Some(target) = TARGETS.iter().find(|target| target.name == wish) {
        CHOSEN.get_or_init(|| target);
        // Readers that use several threads use this one: an input is over before another thread would have begun.
        let here = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        here.build_global().expect("the first pool");
        return;
    }
    match wish.split_once(' ') {
        None if wish == "list" => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        Some(("seeds", folder)) => seeds::write(folder.as_ref()),
        _ => {
            eprintln!("HPCSWEEP_FUZZ names no target: `{wish}`; `list` prints all");
            std::process::exit(2);
        }
    }
    std::process::exit(0);
}
