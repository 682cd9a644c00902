//! What `scripts/release` has built: an archive and a Python wheel, each installed as a user would.
//!
//! `scripts/test` builds them; $HPCSWEEP_TEST_RELEASE names their folder.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use goblin::elf::Elf;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Pythons of which each gets the wheel, where it is installed; the first is there on every release of Debian.
const PYTHONS: [&str; 6] =
    ["/usr/bin/python3", "python3.8", "python3.9", "python3.10", "python3.12", "python3.13"];

/// The file of the release whose name ends so.
fn file(end: &str) -> PathBuf {
    let folder = std::env::var("HPCSWEEP_TEST_RELEASE").unwrap_or_else(|_| {
        panic!("HPCSWEEP_TEST_RELEASE names no folder: run `scripts/test`, or `scripts/release` and set it to where that wrote")
    });
    let mut found = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(end));
    found.next().unwrap_or_else(|| panic!("{folder} has no file *{end}"))
}

/// The output of a command, run in a folder with no variables of hpcsweep in its environment. A failure of
/// the command fails the test.
#[track_caller]
fn run<A: AsRef<OsStr>>(folder: &Path, program: impl AsRef<OsStr>, args: &[A]) -> String {
    let ran = Command::new(program.as_ref())
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ran.status.success(),
        "{:?}\n{said}{}",
        program.as_ref(),
        String::from_utf8_lossy(&ran.stderr)
    );
    said
}

/// All files below a folder, by their paths from there, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                all.push(path.strip_prefix(folder).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    all.sort();
    all
}

/// A plan of two trials, whose program is a shell.
const PLAN: &str = r#"version = 1
[sweep]
name = "two"
[run]
command = ["sh", "-c", "echo '{\"loss\": {{ x }}}' > $HPCSWEEP_METRICS"]
[grid]
x = [2, 1]
"#;

const BEST: &str = "trial 1: loss = 1  (x=1)\n";

#[track_caller]
fn sweeps(program: &Path, folder: &Path) {
    fs::write(folder.join("plan.toml"), PLAN).unwrap();
    run(folder, program, &["submit", "plan.toml", "--local"]);
    let best = run(folder, program, &["best", "--metric", "loss", "--min"]);
    assert!(best.starts_with(BEST), "{best}");
}

#[test]
fn the_archive_installs_without_rust_and_goes_without_a_trace() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let archive = file(".tar.gz");
    run(folder, "tar", &[OsStr::new("-xzf"), archive.as_os_str()]);
    let unpacked = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let name = unpacked.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with(&format!("hpcsweep-{VERSION}-")), "{name}");

    let install = unpacked.join("scripts/install");
    run(folder, &install, &["--prefix", "apps"]);
    let program = folder.join("apps/hpcsweep/default/bin/hpcsweep");
    assert_eq!(run(folder, &program, &["--version"]), format!("hpcsweep {VERSION}\n"));
    sweeps(&program, folder);

    run(folder, &install, &["--prefix", "apps", "--uninstall"]);
    assert_eq!(files(&folder.join("apps")), Vec::<String>::new());
}

#[test]
fn sources_are_asked_for_where_a_release_cannot_build() {
    let temp = tempfile::tempdir().unwrap();
    let archive = file(".tar.gz");
    run(temp.path(), "tar", &[OsStr::new("-xzf"), archive.as_os_str()]);
    let unpacked = fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap().path();
    let ran = Command::new(unpacked.join("scripts/install"))
        .args(["--prefix", "apps", "--train"])
        .current_dir(temp.path())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "install: --train builds from source: take a clone of the repository\n"
    );
}

#[test]
fn sums_are_those_of_the_files() {
    let folder = file("SHA256SUMS").parent().unwrap().to_owned();
    let said = run(&folder, "sha256sum", &["--check", "SHA256SUMS"]);
    assert_eq!(said.lines().filter(|line| line.ends_with(": OK")).count(), 2, "{said}");
}

#[test]
fn the_programs_need_a_glibc_of_2018_and_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let archive = file(".tar.gz");
    run(temp.path(), "tar", &[OsStr::new("-xzf"), archive.as_os_str()]);
    let unpacked = fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap().path();
    for program in ["hpcsweep", "hpcsweep-worker"] {
        let bytes = fs::read(unpacked.join("bin").join(program)).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        for library in &elf.libraries {
            // All of glibc: since 2.34 the last four are empty files beside the first.
            let glibc = [
                "libc.so.6",
                "libm.so.6",
                "libpthread.so.0",
                "libdl.so.2",
                "librt.so.1",
                "libutil.so.1",
            ];
            let loader = library.starts_with("ld-linux");
            assert!(loader || glibc.contains(library), "{program} needs {library}");
        }
        let needed = elf.verneed.as_ref().unwrap();
        for version in needed.iter().flat_map(|file| file.iter().collect::<Vec<_>>()) {
            let name = elf.dynstrtab.get_at(version.vna_name).unwrap();
            let number = name.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{program}: {name}"));
            let parts: Vec<u32> = number.split('.').map(|part| part.parse().unwrap()).collect();
            assert!(parts <= vec![2, 28], "{program} needs {name}");
        }
    }
}

/// A sweep of a function, and one of a program that asks the module, which no PYTHONPATH names.
const SCRIPT: &str = r#"
import hpcsweep

def fit(lr, n):
    return {"loss": lr * n}

sweep = hpcsweep.Sweep("results/fit")
sweep.grid(lr=[0.5, 0.25], n=[1, 2])
sweep.run(fit)
print(sweep.best("loss", mode="min").params)
"#;

#[test]
fn the_wheel_gives_every_python_the_module_and_the_program() {
    let wheel = file(".whl");
    let mut tried = 0;
    for python in PYTHONS {
        let code = "import ensurepip, sys; print(sys.executable)";
        let found = Command::new(python).args(["-c", code]).output().ok();
        let Some(found) = found.filter(|ran| ran.status.success()) else {
            assert_ne!(python, PYTHONS[0], "it lacks ensurepip: run `scripts/setup --for test`");
            continue;
        };
        let python = String::from_utf8(found.stdout).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        run(folder, python.trim(), &["-m", "venv", "env"]);
        let before = files(&folder.join("env"));
        let own = folder.join("env/bin/python");
        let pip = |args: &[&OsStr]| {
            let all: Vec<&OsStr> = ["-m", "pip", "--disable-pip-version-check"]
                .iter()
                .map(OsStr::new)
                .chain(args.iter().copied())
                .collect();
            run(folder, &own, &all)
        };
        pip(&["install".as_ref(), "--no-index".as_ref(), wheel.as_os_str()]);

        let program = folder.join("env/bin/hpcsweep");
        assert_eq!(run(folder, &program, &["--version"]), format!("hpcsweep {VERSION}\n"));
        sweeps(&program, folder);
        fs::write(folder.join("script.py"), SCRIPT).unwrap();
        let said = run(folder, &own, &["script.py"]);
        assert!(said.ends_with("{'lr': 0.25, 'n': 1}\n"), "{python}: {said}");
        for file in [
            "share/man/man1/hpcsweep.1",
            "share/bash-completion/completions/hpcsweep",
            "share/zsh/site-functions/_hpcsweep",
            "share/fish/vendor_completions.d/hpcsweep.fish",
            "share/hpcsweep/site/site.toml.example",
        ] {
            assert!(folder.join("env").join(file).is_file(), "{file}");
        }

        pip(&["uninstall".as_ref(), "--yes".as_ref(), "hpcsweep".as_ref()]);
        let left = |file: &String| !file.contains("__pycache__");
        let after: Vec<String> = files(&folder.join("env")).into_iter().filter(left).collect();
        assert_eq!(after, before.into_iter().filter(left).collect::<Vec<_>>());
        tried += 1;
    }
    println!("the wheel was installed with {tried} Pythons");
}
