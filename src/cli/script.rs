//! A Python script in place of a plan: it runs up to its sweep, whose plan it writes.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::Context;
use crate::base::fault::Fault;
use crate::base::host::{clock, disk, process, vars};
use crate::run::worker::process::prepare;
use crate::submit::Source;

/// How a script learns that its plan is wanted; see `hpcsweep.jobs` of the Python module.
const SCRIPT: &str = "HPCSWEEP_SCRIPT";

/// The plan of a file, or of a script, which writes it beside its results.
///
/// # Errors
/// When there is none, or it has faults.
pub(super) fn source(path: &Path, arguments: &[String], context: &Context) -> Result<Source> {
    if !is_script(path, arguments)? {
        return Source::read(path);
    }
    let said = ask(path, arguments, true, context)?;
    Source::read(Path::new(said.trim_end_matches('\n')))
}

/// As [`source`], and nothing is written.
///
/// # Errors
/// As [`source`].
pub(super) fn preview(path: &Path, arguments: &[String], context: &Context) -> Result<Source> {
    if !is_script(path, arguments)? {
        return Source::read(path);
    }
    let text = ask(path, arguments, false, context)?;
    let plan = crate::plan::parse(&text, &path.display().to_string())?;
    // As if it lay beside the results, which its root names whole.
    let own: PathBuf = vars::at_home(&plan.root).join(format!("{}.toml", plan.name));
    Source::new(own, text, plan)
}

fn is_script(path: &Path, arguments: &[String]) -> Result<bool> {
    let is = path.extension().is_some_and(|ending| ending == "py");
    if !is && !arguments.is_empty() {
        return Err(Fault::request("arguments after `--` are those of a Python script")
            .hint("a plan has its own: write them under `[run] command`")
            .into());
    }
    Ok(is)
}

/// The output of the script: its plan, or, with `write`, the path of the file that has it.
fn ask(path: &Path, arguments: &[String], write: bool, context: &Context) -> Result<String> {
    let base = context.vars.get("TMPDIR").map_or("/tmp", String::as_str);
    let dir = Path::new(base).join(format!("hpcsweep-script-{}", clock::short_token()));
    disk::make_dir(&dir)?;
    let file = dir.join("plan.toml");
    let mut env = context.vars.clone();
    env.insert(SCRIPT.to_owned(), json!({ "file": file, "write": write }).to_string());
    let own = disk::own_executable()?;
    env.insert("HPCSWEEP_BIN".to_owned(), own.to_string_lossy().into_owned());
    let ran = prepare::find_module(&mut env).and_then(|()| {
        let mut argv = vec!["python3".to_owned(), path.to_string_lossy().into_owned()];
        argv.extend_from_slice(arguments);
        Ok(process::run_aside(&argv, &env, context.out.talk()?)?)
    });
    let text = disk::read_if_there(&file);
    disk::remove_tree(&dir);
    let (code, name) = (ran?, path.display());
    match text? {
        Some(text) if code == 0 => Ok(text),
        _ if code != 0 => {
            let sentence = format!("`{name}` ended with exit code {code} before it came to a sweep");
            Err(Fault::request(sentence).into())
        }
        _ => Err(Fault::request(format!("`{name}` has no sweep"))
            .hint("it has to come to `Sweep.run` or `Sweep.submit`, under `if __name__ == \"__main__\"` too")
            .into()),
    }
}
