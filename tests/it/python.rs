//! The Python module, by its own tests: `tests/python` with the standard library's `unittest`.
//!
//! They need a Python 3.8 or newer. What is about torch and numpy runs where that Python has them, as Debian's has
//! after `scripts/setup --for test`; what was left out is printed.

use std::path::Path;
use std::process::{Command, Output};

use crate::world::ROOT;

/// Pythons to be tried: the person's, and the one that Debian's packages are for.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

fn python(program: &str, args: &[&str]) -> Option<Output> {
    // No `.pyc` in the sources, and no threads beside those of the other tests.
    Command::new(program)
        .args(args)
        .current_dir(Path::new(ROOT).join("tests/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .output()
        .ok()
}

/// The Python that can do most: one with torch and numpy, or else any.
fn chosen() -> &'static str {
    let can = |program: &str, code: &str| {
        python(program, &["-c", code]).is_some_and(|ran| ran.status.success())
    };
    let with = |code| PYTHONS.into_iter().find(|program| can(program, code));
    with("import sys, numpy, torch; assert sys.version_info >= (3, 8)")
        .or_else(|| with("import sys; assert sys.version_info >= (3, 8)"))
        .unwrap_or_else(|| {
            panic!(
                "there is no Python of at least 3.8 in {PYTHONS:?}: run `scripts/setup --for test`"
            )
        })
}

#[test]
fn the_module_passes_its_tests() {
    let program = chosen();
    let ran = python(program, &["-m", "unittest", "discover", "--verbose"]).unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} -m unittest discover\n{said}");
    let count = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(count >= 20, "only {count} tests ran\n{said}");
    for line in said.lines().filter(|line| line.contains("skipped")) {
        println!("{line}");
    }
}
