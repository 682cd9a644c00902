//! Which sweeps a verb is about: folders, plans, globs, or the default.
//!
//! The default is the sweep of this folder: the folder itself, `results/*`, or what the plans here have been submitted as. Only a
//! verb that shows something looks elsewhere, only where neither a plan nor `results/` is here, and it says so.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Context;
use crate::base::fault::{self, Fault};
use crate::base::host::access::Shared;
use crate::base::host::{access, disk};
use crate::plan::site::Site;
use crate::submit::{self, Source};
use crate::sweep::tree::{Identity, Tree};

/// The sweeps named by folders, plan files or globs; with nothing named, those of this folder, else the one submitted last
/// (below this folder, if there is one).
///
/// # Errors
/// When a name is not a sweep, or nothing is found.
pub(super) fn find(named: &[String], context: &Context) -> Result<Vec<(Tree, Identity)>> {
    let mut tokens: HashMap<String, PathBuf> = HashMap::new();
    let mut found = all(named, context)?;
    found.retain(|(tree, identity)| {
        let Some(first) = tokens.get(&identity.token) else {
            tokens.insert(identity.token.clone(), tree.dir().to_owned());
            return true;
        };
        let (copy, first) = (tree.dir().display(), first.display());
        context.out.leave_out(&format!(
            "`{copy}` is left out: it is a copy of `{first}`; `hpcsweep merge` joins copies"
        ));
        false
    });
    Ok(found)
}

/// As [`find`], with the copies of a sweep.
///
/// # Errors
/// As [`find`].
pub(super) fn all(named: &[String], context: &Context) -> Result<Vec<(Tree, Identity)>> {
    each_readable(folders(named, context)?, context, |dir| Tree::open(&dir)).map(distinct)
}

/// What is read of each of several things; what cannot be read is named and left out, unless there is nothing else.
///
/// # Errors
/// When the only one cannot be read, or none of them.
pub(super) fn each_readable<T, R>(
    all: Vec<T>,
    context: &Context,
    read: impl Fn(T) -> Result<R>,
) -> Result<Vec<R>> {
    let several = all.len() > 1;
    let (mut found, mut errors) = (Vec::with_capacity(all.len()), Vec::new());
    for one in all {
        match read(one) {
            Ok(one) => found.push(one),
            Err(error) if several => errors.push(error),
            Err(error) => return Err(error),
        }
    }
    if found.is_empty()
        && let Some(error) = errors.pop()
    {
        return Err(error);
    }
    for error in &errors {
        context.out.leave_out(&format!("a sweep is left out: {}", fault::sentence(error)));
    }
    Ok(found)
}

/// As [`one`], for verbs that change it. A plan or a site profile that is named may say that a group shares it.
///
/// # Errors
/// As [`one`], and when another user has closed it.
pub(super) fn one_to_change(
    named: &[String],
    site: &Site,
    context: &Context,
) -> Result<(Tree, Identity)> {
    check_here(named, context)?;
    let dirs = folders(named, context)?;
    for plan in named.iter().map(Path::new).filter(|name| name.is_file()) {
        if submit::shared(&of_plan(plan)?.plan, site) == Shared::Group {
            access::share_with_group();
        }
    }
    for dir in &dirs {
        access::check_open(&Tree::at(dir).dir().join("sweep.json"))?;
    }
    single(distinct(dirs.iter().map(|dir| Tree::open(dir)).collect::<Result<_>>()?))
}

/// Refuses sweeps that are neither named nor of this folder, for verbs that change or write something.
///
/// # Errors
/// When nothing is named, and no sweep is here.
pub(super) fn check_here(named: &[String], context: &Context) -> Result<()> {
    if named.is_empty() && near(context).is_empty() {
        return Err(not_here(context).into());
    }
    Ok(())
}

/// Refuses to write within a sweep: its folder has what its jobs need, and nothing else.
///
/// # Errors
/// When the path lies within the folder of a sweep, or is one.
pub(super) fn outside(path: &Path) -> Result<()> {
    let whole = disk::absolute(path);
    let there = whole.ancestors().find(|folder| folder.exists()).unwrap_or(&whole);
    let around = disk::real(there);
    let is_one = |folder: &&Path| folder.join("sweep.json").is_file();
    let Some(sweep) = around.ancestors().find(is_one) else { return Ok(()) };
    let (path, sweep) = (path.display(), disk::named(sweep));
    let sentence = format!("`{path}` lies within the sweep `{sweep}`");
    Err(Fault::request(sentence).hint("name a folder that is not part of a sweep").into())
}

/// The plan of a sweep. A script has none before it runs.
fn of_plan(file: &Path) -> Result<Source> {
    if file.extension().is_some_and(|ending| ending == "py") {
        let sentence = format!("`{}` is a script, not a plan", file.display());
        return Err(Fault::request(sentence)
            .hint("name the folder of the sweep that it made")
            .into());
    }
    Source::read(file)
}

fn folders(named: &[String], context: &Context) -> Result<Vec<PathBuf>> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for name in named {
        let before = dirs.len();
        if Path::new(name).is_file() {
            dirs.push(of_plan(Path::new(name))?.tree().dir().to_owned());
        } else if Path::new(name).is_dir() || is_closed(Path::new(name)) {
            dirs.push(PathBuf::from(name));
        } else {
            let paths = glob::glob(name)
                .map_err(|e| Fault::request(format!("`{name}` is not a pattern: {e}")))?;
            dirs.extend(readable(paths.filter_map(Result::ok).collect(), context));
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
        dirs = near(context);
        if dirs.is_empty() {
            let last = last(context).filter(|_| !is_project()).ok_or_else(|| not_here(context))?;
            context.out.say(&format!("not here: the last one submitted, {}", disk::named(&last)));
            dirs.push(last);
        }
    }
    Ok(dirs)
}

/// That no sweep is here.
fn not_here(context: &Context) -> Fault {
    const RESULTS: &str = "results";
    if let Some(owner) = access::closed_by(Path::new(RESULTS)) {
        return Fault::request(format!("`{RESULTS}` belongs to {owner} and is closed to you"))
            .hint("ask the owner to open it, or name another sweep's folder");
    }
    let why = match (Path::new(RESULTS).exists(), plans().first()) {
        (true, _) => format!("nothing in `{RESULTS}/`"),
        (false, Some(plan)) => format!("`{}` was not submitted", plan.display()),
        (false, None) => format!("no plan and no `{RESULTS}/`"),
    };
    let hint = match last(context) {
        Some(last) => format!("name its folder; the last one submitted is {}", disk::named(&last)),
        None => "name its folder: `hpcsweep status path/to/results/NAME`".to_owned(),
    };
    Fault::request(format!("no sweep here: {why}")).hint(hint)
}

/// Whether a plan or results are here, so that no other sweep can be meant.
fn is_project() -> bool {
    std::fs::symlink_metadata("results").is_ok() || !plans().is_empty()
}

/// The plans of this folder.
fn plans() -> Vec<PathBuf> {
    let names = disk::list(Path::new(".")).unwrap_or_default();
    let is_section = |line: &str| {
        let name = line.trim_start_matches(['[', ' ']).split([']', '.', ' ']).next();
        matches!(name, Some("sweep" | "run"))
    };
    let is_plan = |text: String| text.lines().any(is_section);
    let all = names.into_iter().map(PathBuf::from);
    let all = all.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    all.filter(|path| std::fs::read_to_string(path).is_ok_and(is_plan)).collect()
}

/// By folder: a sweep may be reached by two paths, and must not be counted twice.
fn distinct(mut all: Vec<(Tree, Identity)>) -> Vec<(Tree, Identity)> {
    let mut folders = HashSet::new();
    all.retain(|(tree, _)| {
        let about = std::fs::metadata(tree.dir());
        about.map_or(true, |about| folders.insert((about.dev(), about.ino())))
    });
    all
}

/// The folders of the sweeps here, and of those that were submitted before, as words of a command.
pub(super) fn known(context: &Context) -> Vec<String> {
    let mut all: Vec<String> = near(context).iter().map(|dir| disk::named(dir)).collect();
    let text = memory(context).and_then(|path| std::fs::read_to_string(path).ok());
    for dir in text.unwrap_or_default().split_terminator('\n').map(Path::new) {
        let name = disk::named(dir);
        if is_sweep(dir) && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Exactly one sweep, for verbs that are about one.
///
/// # Errors
/// As [`find`], and when several are found.
pub(super) fn one(named: &[String], context: &Context) -> Result<(Tree, Identity)> {
    single(find(named, context)?)
}

fn single(mut all: Vec<(Tree, Identity)>) -> Result<(Tree, Identity)> {
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

fn near(context: &Context) -> Vec<PathBuf> {
    if is_sweep(Path::new(".")) {
        return vec![PathBuf::from(".")];
    }
    let names = disk::list(Path::new("results")).unwrap_or_default();
    let found = names.into_iter().map(|name| Path::new("results").join(name)).collect();
    let found = readable(found, context);
    if !found.is_empty() {
        return found;
    }
    // A plan may name another root.
    let of_plans = plans().into_iter().filter_map(|plan| Source::read(&plan).ok());
    readable(of_plans.map(|source| source.tree().dir().to_owned()).collect(), context)
}

/// Those of some paths that are sweeps. What another user has closed is left out with a warning, unless there is nothing
/// else.
fn readable(paths: Vec<PathBuf>, context: &Context) -> Vec<PathBuf> {
    let (open, other): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.into_iter().partition(|path| path.join("sweep.json").is_file());
    let closed: Vec<PathBuf> = other.into_iter().filter(|dir| is_sweep(dir)).collect();
    if open.is_empty() {
        return closed;
    }
    for dir in closed {
        let owner = access::closed_by(&dir).unwrap_or_else(|| "another user".to_owned());
        let dir = dir.display();
        context
            .out
            .warn(&format!("`{dir}` is left out: it belongs to {owner} and is closed to you"));
    }
    open
}

/// Whether a folder is a sweep, or one that is closed to this user and may be one.
fn is_sweep(dir: &Path) -> bool {
    let file = dir.join("sweep.json");
    file.is_file() || is_closed(&file)
}

/// Whether this user may not even see if there is such a path.
fn is_closed(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The small file that remembers which sweeps were submitted, the last one first.
fn memory(context: &Context) -> Option<PathBuf> {
    let get = |name: &str| context.vars.get(name).filter(|v| v.starts_with('/')).map(PathBuf::from);
    let base = get("XDG_STATE_HOME").or_else(|| Some(get("HOME")?.join(".local/state")))?;
    Some(base.join("hpcsweep/sweeps"))
}

/// How many sweeps are remembered.
const REMEMBERED: usize = 50;

/// The last sweep submitted below this folder, else the last one anywhere.
fn last(context: &Context) -> Option<PathBuf> {
    let text = std::fs::read_to_string(memory(context)?).ok()?;
    let there = |dir: &&str| Path::new(dir).join("sweep.json").is_file();
    let here = std::env::current_dir().ok();
    let below = |dir: &&str| here.as_ref().is_some_and(|here| Path::new(dir).starts_with(here));
    let mut dirs = text.split_terminator('\n').filter(there);
    dirs.clone().find(below).or_else(|| dirs.next()).map(PathBuf::from)
}

/// Remembers a sweep. A home that cannot be written is no reason to fail.
pub(super) fn remember(tree: &Tree, context: &Context) {
    let Some(path) = memory(context) else { return };
    let Some(parent) = path.parent() else { return };
    if disk::make_private_dir(parent).is_err() {
        return;
    }
    let own = tree.dir().to_string_lossy().into_owned();
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let others = before.split_terminator('\n').filter(|dir| *dir != own).take(REMEMBERED - 1);
    let text: String =
        std::iter::once(own.as_str()).chain(others).map(|dir| format!("{dir}\n")).collect();
    let _ = disk::write_private(&path, text.as_bytes());
}
