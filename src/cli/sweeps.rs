//! Which sweeps a verb is about: folders, plans, globs, or nothing said.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Context;
use crate::fault::Fault;
use crate::host::disk;
use crate::submit::Source;
use crate::tree::{Identity, Tree};

/// The sweeps named by folders, plan files or globs; with nothing named, those of this folder
/// (`results/*`), else the one submitted last.
///
/// # Errors
/// When a name is no sweep, or nothing is found.
pub(super) fn find(named: &[String], context: &Context) -> Result<Vec<(Tree, Identity)>> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for name in named {
        let before = dirs.len();
        if Path::new(name).is_file() {
            dirs.push(Source::read(Path::new(name))?.tree().dir().to_owned());
        } else if Path::new(name).is_dir() {
            dirs.push(PathBuf::from(name));
        } else {
            let paths = glob::glob(name)
                .map_err(|e| Fault::request(format!("`{name}` is no pattern: {e}")))?;
            dirs.extend(paths.filter_map(Result::ok).filter(|p| p.join("sweep.json").is_file()));
        }
        if dirs.len() == before {
            return Err(Fault::request(format!("no sweep is called `{name}`"))
                .hint(
                    "name a sweep's folder, its plan, or a pattern: `hpcsweep collect 'results/*'`",
                )
                .into());
        }
    }
    if named.is_empty() {
        dirs = near();
        if dirs.is_empty() {
            dirs.extend(last(context));
        }
        if dirs.is_empty() {
            return Err(Fault::request(
                "no sweep found: nothing in `results/`, and none was submitted before",
            )
            .hint("name its folder: `hpcsweep status path/to/results/NAME`")
            .into());
        }
    }
    let mut sweeps: Vec<(Tree, Identity)> = Vec::new();
    for dir in dirs {
        let (tree, identity) = Tree::open(&dir)?;
        if !sweeps.iter().any(|(other, _)| other.dir() == tree.dir()) {
            sweeps.push((tree, identity));
        }
    }
    Ok(sweeps)
}

/// Exactly one sweep, for verbs that are about one.
///
/// # Errors
/// As [`find`], and when several are found.
pub(super) fn one(named: &[String], context: &Context) -> Result<(Tree, Identity)> {
    let mut all = find(named, context)?;
    if all.len() > 1 {
        let names: Vec<String> =
            all.iter().map(|(tree, _)| tree.dir().display().to_string()).collect();
        return Err(Fault::request("which sweep? there are several here")
            .at(names.join("\n"))
            .hint("name one of these folders")
            .into());
    }
    all.pop().ok_or_else(|| Fault::request("no sweep found").into())
}

fn near() -> Vec<PathBuf> {
    if Path::new("sweep.json").is_file() {
        return vec![PathBuf::from(".")];
    }
    let names = disk::list(Path::new("results")).unwrap_or_default();
    names
        .into_iter()
        .map(|name| Path::new("results").join(name))
        .filter(|dir| dir.join("sweep.json").is_file())
        .collect()
}

/// The small file that remembers which sweep was submitted last.
fn memory(context: &Context) -> Option<PathBuf> {
    let get = |name: &str| context.vars.get(name).filter(|v| v.starts_with('/')).map(PathBuf::from);
    let base = get("XDG_STATE_HOME").or_else(|| Some(get("HOME")?.join(".local/state")))?;
    Some(base.join("hpcsweep/last-sweep"))
}

fn last(context: &Context) -> Option<PathBuf> {
    let text = std::fs::read_to_string(memory(context)?).ok()?;
    let dir = PathBuf::from(text.trim_end_matches('\n'));
    dir.join("sweep.json").is_file().then_some(dir)
}

/// Remembers a sweep. A home that cannot be written is no reason to fail.
pub(super) fn remember(tree: &Tree, context: &Context) {
    if let Some(path) = memory(context)
        && let Some(parent) = path.parent()
        && std::fs::create_dir_all(parent).is_ok()
    {
        let _ = disk::write_whole(&path, format!("{}\n", tree.dir().display()).as_bytes());
    }
}
