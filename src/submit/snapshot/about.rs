//! What is recorded beside a snapshot: the git repository, the modules, the interpreter and its packages.

use std::path::Path;
use std::time::Duration;

use crate::base::fault;
use crate::base::host::process::{self, Output};
use crate::base::host::{Vars, disk};
use crate::plan::Snapshot;
use crate::submit::Source;
use crate::sweep::tree::code::Git;

/// How long git may take for an answer, and the command that lists packages.
const LIMITS: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(60));

/// The repository around a folder with the difference between its files and its commit; `None` if there is none, or no
/// git.
pub(super) fn git(root: &Path, vars: &Vars) -> Option<(Git, Option<String>)> {
    root.ancestors().find(|at| at.join(".git").exists())?;
    let mut env = vars.clone();
    // Another process of this repository is not held up.
    env.insert("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned());
    let ask = |words: &[&str]| {
        let folder = root.to_string_lossy();
        let argv: Vec<String> =
            ["git", "-C", &folder].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let Output { code, stdout, .. } = process::run(&argv, &env, LIMITS.0).ok()?;
        (code == Some(0)).then_some(stdout)
    };
    let line = |words: &[&str]| ask(words).map(|text| text.trim().to_owned());
    let status = ask(&["status", "--porcelain", "--", "."])?;
    let commit = line(&["rev-parse", "--verify", "-q", "HEAD"]);
    let branch = line(&["symbolic-ref", "--short", "-q", "HEAD"]);
    let dirty = !status.is_empty();
    // Of the whole repository, so that `git apply` takes it; new files are in the snapshot.
    let base = if commit.is_some() { "HEAD" } else { "--cached" };
    let diff = dirty.then(|| ask(&["diff", "--binary", base])).flatten();
    Some((Git { commit, branch, dirty }, diff.filter(|text| !text.is_empty())))
}

/// The modules that are loaded here.
pub(super) fn modules(vars: &Vars) -> Vec<String> {
    let loaded = vars.get("LOADEDMODULES").map(String::as_str).unwrap_or_default();
    loaded.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The interpreter of a plan's command, and its packages.
#[derive(Debug, Default)]
pub(super) struct Versions {
    pub(super) interpreter: Option<String>,
    /// The command that was asked; empty for none.
    pub(super) command: Vec<String>,
    pub(super) packages: Option<String>,
    /// Why there is no list.
    pub(super) why_not: Option<String>,
}

/// Starts the interpreter and the command for packages. What does not answer stays `None`.
pub(super) fn versions(source: &Source, own: &Snapshot, vars: &Vars) -> Versions {
    let program = source.plan.run.command.first();
    let python = program.filter(|program| {
        let name = Path::new(program).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("python")) && !program.contains("{{")
    });
    let path = |program: &str| match program.contains('/') {
        false => program.to_owned(),
        true => disk::absolute(&source.beside(&source.plan.run.workdir).join(program))
            .to_string_lossy()
            .into_owned(),
    };
    let python = python.map(|program| path(program));
    let version = |program: &String| {
        let argv = [program.clone(), "--version".to_owned()];
        let Output { code, stdout, stderr } = process::run(&argv, vars, LIMITS.0).ok()?;
        let said = if stdout.trim().is_empty() { stderr } else { stdout };
        (code == Some(0)).then(|| said.trim().to_owned())
    };
    let interpreter = python.as_ref().and_then(version);
    let usual = |python: &String| {
        let words = ["-m", "pip", "freeze"].map(str::to_owned);
        std::iter::once(python.clone()).chain(words).collect()
    };
    let command: Vec<String> =
        own.packages.clone().or_else(|| python.as_ref().map(usual)).unwrap_or_default();
    let mut found = Versions { interpreter, ..Versions::default() };
    let Some(first) = command.first() else { return found };
    let mut argv = command.clone();
    argv[0] = path(first);
    match process::run(&argv, vars, LIMITS.1) {
        Ok(Output { code: Some(0), stdout, .. }) => found.packages = Some(stdout),
        Ok(Output { code: None, .. }) => {
            found.why_not = Some(format!("it took more than {} s", LIMITS.1.as_secs()));
        }
        Ok(Output { code: Some(code), stderr, .. }) => {
            let last = stderr.trim().lines().last().unwrap_or_default();
            found.why_not = Some(format!("exit code {code}: {last}"));
        }
        Err(error) => found.why_not = Some(fault::sentence(&error)),
    }
    found.command = command;
    found
}
