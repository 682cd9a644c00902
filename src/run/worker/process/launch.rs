//! The heavy sibling: found beside our own executable, of exactly our version, never through PATH.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::{Vars, disk, process};
use crate::cluster::rank::is_launcher_variable;

/// The variable by which the light program tells the heavy one its version.
pub const VERSION_VARIABLE: &str = "HPCSWEEP_VERSION";

/// How long it may take to say something: the first time, half a gigabyte of libraries comes from the disk.
const PATIENCE: Duration = Duration::from_secs(90);

/// The path at which the heavy worker is expected: beside this executable, symbolic links resolved.
///
/// # Errors
/// When our own path is not known.
pub(crate) fn sibling() -> Result<PathBuf> {
    Ok(disk::own_executable()?.with_file_name("hpcsweep-worker"))
}

/// The heavy worker's version line: `hpcsweep-worker 0.1.0 (features: none)`.
///
/// # Errors
/// When it is missing, does not start, or is of another version.
pub(crate) fn shake_hands(vars: &Vars) -> Result<String> {
    let path = sibling()?;
    if !path.exists() {
        let sentence =
            format!("this installation has no MPI worker: `{}` does not exist", path.display());
        return Err(Fault::machine(sentence)
            .hint("install both programs together: `scripts/install --prefix DIR`")
            .into());
    }
    let mut env = vars.clone();
    env.insert(VERSION_VARIABLE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let argv = [path.display().to_string(), "--version".to_owned()];
    let output = process::run(&argv, &env, PATIENCE)?;
    if output.code != Some(0) {
        let why = match output.code {
            Some(_) => output.stderr.trim(),
            None => "no answer in time",
        };
        let sentence = format!("`{}` cannot run: {why}", path.display());
        return Err(Fault::machine(sentence)
            .hint("install both programs of one version together")
            .into());
    }
    Ok(output.stdout.trim().to_owned())
}

/// The heavy worker's capabilities here: lines `mpi: ...` and `libtorch: ...`. It starts MPI to find out, as
/// a process of its own.
///
/// # Errors
/// When it ends badly or gives no answer in time.
pub(crate) fn about(vars: &Vars) -> Result<Vec<String>> {
    // Within a job it must not take itself for one of the job's ranks.
    let mut env: Vars = vars
        .iter()
        .filter(|(name, _)| !is_launcher_variable(name))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    env.insert(VERSION_VARIABLE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let argv = [sibling()?.display().to_string(), "about".to_owned()];
    let output = process::run(&argv, &env, PATIENCE)?;
    if output.code != Some(0) {
        let why = output.stderr.lines().find(|line| !line.trim().is_empty());
        let why = why.map_or("no answer in time", str::trim);
        return Err(Fault::machine(format!("`hpcsweep-worker about` fails: {why}")).into());
    }
    let lines = output.stdout.lines().skip(1).map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}
