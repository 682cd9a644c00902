//! The files of a snapshot: which they are, and what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use ignore::WalkBuilder;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rayon::prelude::*;

use crate::base::fault::Fault;
use crate::base::host::{content, disk, threads};
use crate::plan::Snapshot;
use crate::submit::Source;
use crate::sweep::tree::code::{File, Manifest};
use crate::sweep::tree::{FORMAT, Tree};

/// What a plan's `[snapshot]` names, as it is now.
pub(super) struct Found {
    /// The folder around all of it, absolute.
    pub(super) root: PathBuf,
    /// The plan's working folder within it.
    pub(super) workdir: String,
    pub(super) manifest: Manifest,
    /// Pipes, sockets and devices, which are left out.
    pub(super) special: Vec<String>,
}

impl Found {
    /// The name of a file in the snapshot.
    pub(super) fn name_of(&self, path: &Path) -> Option<String> {
        let path = disk::absolute(path);
        path.strip_prefix(&self.root).ok()?.to_str().map(str::to_owned)
    }
}

/// Reads all files that a plan's `[snapshot]` names.
///
/// # Errors
/// When a name does not exist, or a file cannot be read or changes all the time.
pub(super) fn find(tree: &Tree, source: &Source, own: &Snapshot) -> Result<Found> {
    let folder = source.folder();
    let workdir = disk::absolute(&source.beside(&source.plan.run.workdir));
    let paths: Vec<PathBuf> =
        own.paths.iter().map(|path| disk::absolute(&folder.join(path))).collect();
    let root = common(paths.iter().map(PathBuf::as_path).chain([&*folder]));
    let Ok(inside) = workdir.strip_prefix(&root) else {
        let sentence = format!("the working folder `{}` is not in the snapshot", workdir.display());
        return Err(Fault::request(sentence)
            .at(disk::named(&source.path))
            .hint("set `workdir` to a folder below those of `[snapshot] paths`")
            .into());
    };
    let mut names = BTreeSet::new();
    let mut special = Vec::new();
    for path in &paths {
        names_below(path, &folder, tree, own, &mut |path, kind| match kind {
            Kind::Plain => drop(names.insert(path)),
            Kind::Special => special.push(path.display().to_string()),
        })?;
    }
    let names: Vec<(String, PathBuf)> = names
        .into_iter()
        .map(|path| {
            let below = path.strip_prefix(&root).unwrap_or(&path).to_str().map(str::to_owned);
            let Some(below) = below else {
                let sentence = format!("the name of `{}` is not UTF-8", path.display());
                return Err(Fault::request(sentence).hint("leave it out with `[snapshot] ignore`"));
            };
            Ok((below, path))
        })
        .collect::<Result<_, Fault>>()?;
    let read = |(name, path): &(String, PathBuf)| {
        read(path).transpose().map(|file| file.map(|file| (name.clone(), file)))
    };
    let files: Vec<Result<(String, File), Fault>> =
        threads::in_parallel(|| names.par_iter().filter_map(read).collect());
    let mut files: BTreeMap<String, File> = files.into_iter().collect::<Result<_, Fault>>()?;
    lead_out(&root, &mut files);
    let workdir = inside.to_string_lossy().into_owned();
    Ok(Found { root, workdir, manifest: Manifest { format: FORMAT, files }, special })
}

/// The folder around all paths.
fn common<'a>(paths: impl Iterator<Item = &'a Path>) -> PathBuf {
    let mut paths = paths.map(|path| path.components());
    let first: Vec<Component<'_>> = paths.next().into_iter().flatten().collect();
    let shared = paths.fold(first, |shared, path| {
        shared.into_iter().zip(path).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    shared.into_iter().collect()
}

enum Kind {
    /// A file or a link.
    Plain,
    Special,
}

/// Hands over the files below a path that are not ignored.
fn names_below(
    path: &Path,
    folder: &Path,
    tree: &Tree,
    own: &Snapshot,
    with: &mut impl FnMut(PathBuf, Kind),
) -> Result<()> {
    let about = fs::symlink_metadata(path).map_err(|e| {
        let why = disk::reason(&e);
        Fault::request(format!("cannot store `{}`: {why}", path.display()))
            .hint("correct `[snapshot] paths`")
    })?;
    if !about.is_dir() {
        let is_plain = about.is_file() || about.is_symlink();
        with(path.to_owned(), if is_plain { Kind::Plain } else { Kind::Special });
        return Ok(());
    }
    let patterns = patterns(folder, own)?;
    let sweep = tree.dir().to_owned();
    let in_repository = path.ancestors().any(|at| at.join(".git").exists());
    let walk = WalkBuilder::new(path)
        .standard_filters(false)
        .git_ignore(true)
        // Without a repository nothing says which of the folders around belong to the project.
        .parents(in_repository)
        .require_git(in_repository)
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            let is_own = entry.depth() == 0
                || !patterns.matched(entry.path(), is_folder).is_ignore()
                    && entry.file_name() != ".git";
            // Results of sweeps are never part of one.
            let is_sweep =
                is_folder && (entry.path() == sweep || entry.path().join("sweep.json").is_file());
            is_own && !is_sweep
        })
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| unlisted(path, &error))?;
        match entry.file_type() {
            Some(kind) if kind.is_dir() => {}
            Some(kind) if kind.is_file() || kind.is_symlink() => {
                with(entry.into_path(), Kind::Plain);
            }
            _ => with(entry.into_path(), Kind::Special),
        }
    }
    Ok(())
}

/// The fault of a folder that cannot be listed.
fn unlisted(around: &Path, error: &ignore::Error) -> Fault {
    fn place(error: &ignore::Error) -> Option<&Path> {
        match error {
            ignore::Error::WithPath { path, .. } => Some(path),
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                place(err)
            }
            _ => None,
        }
    }
    let path = place(error).unwrap_or(around);
    // The error itself repeats the path.
    let own = error.io_error().map(|e| io::Error::from(e.kind()));
    let fault = match own {
        Some(e) => disk::fault("list", path, &e),
        None => Fault::machine(format!("cannot list `{}`: {error}", path.display())),
    };
    fault.hint("leave it out with `[snapshot] ignore`, or open it")
}

fn patterns(folder: &Path, own: &Snapshot) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in &own.ignore {
        builder.add_line(None, line)?;
    }
    Ok(builder.build()?)
}

/// A file as it is now; `None` if it is gone.
fn read(path: &Path) -> Result<Option<File>, Fault> {
    let fault = |e: &io::Error| {
        disk::fault("read", path, e).hint("leave it out with `[snapshot] ignore`, or open it")
    };
    // A file that changes while it is read is read again.
    for _ in 0..TRIES {
        let about = match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            about => about.map_err(|e| fault(&e))?,
        };
        if about.is_symlink() {
            let target = fs::read_link(path).map_err(|e| fault(&e))?;
            let link = Some(target.to_string_lossy().into_owned());
            return Ok(Some(File { hash: String::new(), bytes: 0, executable: false, link }));
        }
        let (hash, bytes) = match hash(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| fault(&e))?,
        };
        let after = fs::symlink_metadata(path).map_err(|e| fault(&e))?;
        let stamp = |about: &fs::Metadata| {
            (about.ino(), about.len(), about.mtime(), about.mtime_nsec(), about.mode())
        };
        if stamp(&about) == stamp(&after) && bytes == after.len() {
            let executable = after.permissions().mode() & 0o100 != 0;
            return Ok(Some(File { hash, bytes, executable, link: None }));
        }
    }
    Err(changes(path))
}

/// How often a file is read that changes meanwhile.
pub(super) const TRIES: u32 = 10;

/// The fault of a file that changes all the time.
pub(super) fn changes(path: &Path) -> Fault {
    let sentence = format!("`{}` changes while it is stored", path.display());
    Fault::machine(sentence).hint("leave it out with `[snapshot] ignore`, or submit again")
}

fn hash(path: &Path) -> io::Result<(String, u64)> {
    content::hash_of(&mut disk::open_plain(path)?, |_| Ok(()))
}

/// A link to something that is not stored leads to where that is.
fn lead_out(root: &Path, files: &mut BTreeMap<String, File>) {
    let target = |name: &str, file: &File| {
        let link = file.link.as_deref()?;
        let from = root.join(name);
        let to = disk::absolute(&from.parent().unwrap_or(root).join(link));
        let is_stored = !link.starts_with('/')
            && to.strip_prefix(root).ok().and_then(Path::to_str).is_some_and(|to| {
                let below = format!("{to}/");
                let next = files.range(below.clone()..).next();
                files.contains_key(to) || next.is_some_and(|(name, _)| name.starts_with(&below))
            });
        (!is_stored).then(|| to.to_string_lossy().into_owned())
    };
    let out: Vec<(String, String)> =
        files.iter().filter_map(|(name, file)| Some((name.clone(), target(name, file)?))).collect();
    for (name, to) in out {
        if let Some(file) = files.get_mut(&name) {
            file.link = Some(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_folder_around_all() {
        let root = |paths: &[&str]| common(paths.iter().map(Path::new));
        assert_eq!(root(&["/p/exp", "/p/src/a.py", "/p/exp"]), Path::new("/p"));
        assert_eq!(root(&["/p/exp", "/p/exp/x"]), Path::new("/p/exp"));
        assert_eq!(root(&["/p", "/q"]), Path::new("/"));
    }
}
