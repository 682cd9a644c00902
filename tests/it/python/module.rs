//! The Python module, by its own tests with the standard library's `unittest`: `tests/python` about syncs and
//! loaders, `tests/python/sweeps` about sweeps of functions.
//!
//! They need a Python 3.8 or newer. Tests of torch and numpy run if that Python has them, as Debian's has after
//! `scripts/setup --for test`. The runner prints which tests it left out.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::world::{PROGRAM, ROOT};

/// Pythons to be tried: the person's, and the one that Debian's packages are for.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// The oldest that are known to be installed side by side, from the one that the module promises on.
const OLDEST: [&str; 4] = ["python3.8", "python3.9", "python3.10", "python3"];

fn python(program: &str, folder: &str, args: &[&str]) -> Option<Output> {
    // No `.pyc` in the sources, and no threads beside those of the other tests.
    Command::new(program)
        .args(args)
        .current_dir(Path::new(ROOT).join(folder))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .env("HPCSWEEP_BIN", PROGRAM)
        .output()
        .ok()
}

/// The first of these that can run this code.
fn first_with(programs: &[&'static str], code: &str) -> Option<&'static str> {
    let can = |program: &&&str| {
        python(program, ".", &["-c", code]).is_some_and(|ran| ran.status.success())
    };
    programs.iter().find(can).copied()
}

const IS_NEW: &str = "import sys; assert sys.version_info >= (3, 8)";

fn missing(programs: &[&str]) -> ! {
    panic!("there is no Python of at least 3.8 in {programs:?}: run `scripts/setup --for test`")
}

/// Runs the tests of a folder with a Python, and expects at least so many of them to pass: what was left out.
#[track_caller]
fn passes(program: &str, folder: &str, pattern: &str, least: usize) -> String {
    let ran = python(program, folder, &["-m", "unittest", "discover", "--verbose", "-p", pattern]);
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} -m unittest discover -p {pattern}\n{said}");
    let count = said.lines().filter(|line| line.ends_with("ok")).count();
    assert!(count >= least, "only {count} tests ran\n{said}");
    said.lines()
        .filter(|line| line.contains("skipped"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The one that can do most: with torch and numpy, or else any.
fn ablest() -> &'static str {
    first_with(&PYTHONS, &format!("{IS_NEW}; import numpy, torch"))
        .or_else(|| first_with(&PYTHONS, IS_NEW))
        .unwrap_or_else(|| missing(&PYTHONS))
}

fn oldest() -> &'static str {
    first_with(&OLDEST, IS_NEW).unwrap_or_else(|| missing(&OLDEST))
}

/// A test for each file, since the machine runs them side by side; the number is how many tests it has to run at least.
macro_rules! files {
    ($($name:ident: $program:ident, $folder:literal, $file:literal, $least:literal;)*) => {
        $(#[test]
        fn $name() {
            print!("{}", passes($program(), $folder, $file, $least));
        })*

        #[test]
        fn every_file_of_tests_is_run() {
            let mut named = vec![$(concat!($folder, "/", $file)),*];
            named.push("tests/python/sweeps/test_notebook.py");
            for folder in ["tests/python", "tests/python/sweeps"] {
                for entry in Path::new(ROOT).join(folder).read_dir().unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    let is_named = named.contains(&format!("{folder}/{name}").as_str());
                    assert!(is_named || !name.starts_with("test_"), "{name}");
                }
            }
        }
    };
}

files! {
    the_cases_of_syncs_pass: ablest, "tests/python", "test_cases.py", 0;
    the_tests_of_groups_pass: ablest, "tests/python", "test_groups.py", 1;
    the_tests_of_loaders_pass: ablest, "tests/python", "test_loaders.py", 10;
    the_tests_of_syncs_pass: ablest, "tests/python", "test_sync.py", 10;
    the_tests_of_values_pass: ablest, "tests/python", "test_values.py", 5;
    functions_are_swept: ablest, "tests/python/sweeps", "test_sweep.py", 15;
    functions_that_spawn_are_swept: ablest, "tests/python/sweeps", "test_spawn.py", 5;
    answers_of_the_oldest_python_hold: oldest, "tests/python/sweeps", "test_answers.py", 3;
    calls_of_the_oldest_python_cost_little: oldest, "tests/python/sweeps", "test_cost.py", 1;
    damage_is_told_by_the_oldest_python: oldest, "tests/python/sweeps", "test_damage.py", 1;
    drawn_points_of_the_oldest_python_are_swept: oldest, "tests/python/sweeps", "test_drawn.py", 3;
    ends_are_those_of_the_oldest_python: oldest, "tests/python/sweeps", "test_ends.py", 2;
    jobs_run_with_the_oldest_python: oldest, "tests/python/sweeps", "test_jobs.py", 5;
    killed_processes_of_the_oldest_python_cost_nothing: oldest, "tests/python/sweeps", "test_killed.py", 1;
    lazy_functions_are_refused_by_the_oldest_python: oldest, "tests/python/sweeps", "test_lazy.py", 2;
    points_are_swept_by_the_oldest_python: oldest, "tests/python/sweeps", "test_points.py", 8;
    pools_work_with_the_oldest_python: oldest, "tests/python/sweeps", "test_pool.py", 8;
    trials_are_as_the_oldest_python_sees_them: oldest, "tests/python/sweeps", "test_trial.py", 4;
    usage_is_measured_of_the_oldest_python: oldest, "tests/python/sweeps", "test_usage.py", 1;
}

#[test]
fn functions_are_swept_from_a_notebook() {
    let code = format!("{IS_NEW}; import nbclient, ipykernel");
    let program = first_with(&["/usr/bin/python3", "python3"], &code)
        .expect("there is no nbclient and ipykernel: run `scripts/setup --for test`");
    passes(program, "tests/python/sweeps", "test_notebook.py", 3);
}

/// Syntax and library calls that are newer, whichever Pythons this machine has.
#[test]
fn the_module_uses_nothing_newer_than_python_3_8() {
    let tools = Path::new(ROOT).join("target/tools/python");
    let ran = Command::new(tools.join("bin/vermin"))
        .args(["--target=3.8-", "--eval-annotations", "--violations", "--no-tips"])
        .arg("site/python/hpcsweep")
        .current_dir(ROOT)
        .env("PYTHONPATH", tools)
        .output()
        .expect("vermin is not in target/tools/python: run `scripts/setup --for test`");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_checker_of_types_sees_what_a_program_does_with_the_module() {
    let tools = Path::new(ROOT).join("target/tools/python");
    let python =
        if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
    let cache = tempfile::tempdir().unwrap();
    // One call for both programs: most of its time goes into the types of Python's own library.
    let ran = Command::new(python)
        .args([
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--no-error-summary",
            "--cache-dir",
        ])
        .arg(cache.path())
        .args(["types_right.py", "types_wrong.py"])
        .current_dir(Path::new(ROOT).join("tests/python"))
        .env("PYTHONPATH", &tools)
        .env("MYPYPATH", Path::new(ROOT).join("site/python"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.is_empty(), "{said}");
    let faults = String::from_utf8(ran.stdout).unwrap();
    let lines = faults.lines().filter(|line| line.contains(": error: "));
    let places: Vec<String> =
        lines.map(|line| line.split(':').take(2).collect::<Vec<_>>().join(":")).collect();
    let expected = [6, 7, 8, 9, 10].map(|line| format!("types_wrong.py:{line}"));
    assert_eq!(places, expected, "{faults}");
}

#[test]
fn the_version_of_the_module_is_that_of_the_program() {
    let module = std::fs::read_to_string(Path::new(ROOT).join("site/python/hpcsweep/__init__.py"));
    let line = format!("__version__ = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(module.unwrap().contains(&line), "{line}");
}
