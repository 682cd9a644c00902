//! Storing a snapshot: each content once, and a folder of links from which programs run.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::walk::Found;
use crate::base::host::{clock, content, disk, rename};
use crate::sweep::tree::Tree;
use crate::sweep::tree::code::{self, File};

/// How much is stored that was not there before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Files whose content was not there.
    pub(super) files: u64,
    /// Bytes of their contents.
    pub(super) bytes: u64,
}

/// What became of an attempt to store a snapshot.
pub(super) enum Outcome {
    Stored(Stored),
    /// This file is no longer what it was.
    Changed(PathBuf),
}

/// Stores a snapshot unless it is there. The caller holds the sweep's lock.
///
/// # Errors
/// When the disk refuses: the snapshot is not there then.
pub(super) fn store(tree: &Tree, found: &Found, name: &str) -> Result<Outcome> {
    let folder = code::folder(tree);
    disk::make_dir(&folder)?;
    let place = code::snapshot(tree, name);
    let mut stored = Stored::default();
    let is_there = place.is_dir();
    let lost = if is_there { code::changed(tree, name, &found.manifest)? } else { Vec::new() };
    if !is_there || !lost.is_empty() {
        let new = folder.join(format!("{NEW}{}", clock::short_token()));
        let result = fill(tree, found, &new, &mut stored).and_then(|changed| {
            if changed.is_some() {
                return Ok(changed);
            }
            code::write_manifest(tree, name, &found.manifest)?;
            if !is_there {
                rename(&new, &place)?;
            }
            // Programs may run there: the others stay as they are.
            for file in &lost {
                disk::make_dir(place.join(file).parent().unwrap_or(&place))?;
                rename(&new.join(file), &place.join(file))?;
            }
            disk::remove_tree(&new);
            Ok(None)
        });
        if !matches!(result, Ok(None)) {
            disk::remove_tree(&new);
        }
        if let Some(path) = result? {
            return Ok(Outcome::Changed(path));
        }
    }
    disk::make_dir(&place.join(&found.workdir))?;
    Ok(Outcome::Stored(stored))
}

/// How the names of snapshots begin that are being made.
const NEW: &str = ".new-";

/// What would be stored.
pub(super) fn missing(tree: &Tree, found: &Found, name: &str) -> Stored {
    let mut stored = Stored::default();
    if code::snapshot(tree, name).is_dir() {
        return stored;
    }
    let mut seen = HashSet::new();
    for file in found.manifest.files.values().filter(|file| file.link.is_none()) {
        let object = object(tree, file);
        if !is_there(&object, file) && seen.insert(object) {
            stored.files += 1;
            stored.bytes += file.bytes;
        }
    }
    stored
}

/// Whether submissions that were killed have left something. The caller holds the lock.
///
/// # Errors
/// When a folder cannot be listed, or a record is damaged.
pub(super) fn is_left(tree: &Tree) -> Result<bool> {
    let names = disk::list(&code::folder(tree))?;
    if names.is_empty() {
        return Ok(false);
    }
    let named = code::named(tree)?;
    Ok(names.iter().any(|name| is_stray(name, &named)))
}

/// Whether an entry of the folder belongs to no snapshot that a submission has given to trials.
fn is_stray(name: &str, named: &BTreeSet<String>) -> bool {
    let snapshot = name.strip_suffix(".json").unwrap_or(name);
    let is_snapshot = snapshot.len() == 32 && snapshot.bytes().all(|b| b.is_ascii_hexdigit());
    name.starts_with('.') || is_snapshot && !named.contains(snapshot)
}

/// Removes what no submission has given to trials: snapshots, lists of files and contents. What cannot be removed stays.
/// The caller holds the lock.
///
/// # Errors
/// When a list or a folder cannot be read: nothing is removed then.
pub(super) fn clear(tree: &Tree) -> Result<()> {
    let folder = code::folder(tree);
    let named = code::named(tree)?;
    let mut used = HashSet::new();
    for name in &named {
        let manifest = code::manifest(tree, name)?;
        used.extend(manifest.files.values().map(|file| object(tree, file)));
    }
    for name in disk::list(&folder)?.iter().filter(|name| is_stray(name, &named)) {
        let path = folder.join(name);
        disk::remove_tree(&path);
        let _ = fs::remove_file(&path);
    }
    let objects = folder.join("objects");
    for shard in disk::list(&objects)? {
        let shard = objects.join(shard);
        for name in disk::list(&shard)? {
            let path = shard.join(name);
            if !used.contains(&path) {
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(())
}

/// Makes the folder of links. Returns a file that is no longer what it was.
fn fill(tree: &Tree, found: &Found, new: &Path, stored: &mut Stored) -> Result<Option<PathBuf>> {
    disk::make_dir(new)?;
    let mut last = PathBuf::new();
    let (mut shards, token) = (HashSet::new(), clock::short_token());
    for (name, file) in &found.manifest.files {
        let path = new.join(name);
        let around = path.parent().unwrap_or(new);
        if around != last {
            disk::make_dir(around)?;
            last = around.to_owned();
        }
        if let Some(target) = &file.link {
            symlink(target, &path).map_err(|e| disk::fault("link", &path, &e))?;
            continue;
        }
        let object = object(tree, file);
        if !is_there(&object, file) {
            let from = found.root.join(name);
            let shard = object.parent().unwrap_or(new);
            if !shards.contains(shard) {
                disk::make_dir(shard)?;
                shards.insert(shard.to_owned());
            }
            let aside = shard.join(format!(".{token}-{}.tmp", stored.files));
            if !copy_checked(&from, &aside, &object, file)? {
                return Ok(Some(from));
            }
            stored.files += 1;
            stored.bytes += file.bytes;
        }
        // Some file systems have no hard links, and none to files of other users.
        if fs::hard_link(&object, &path).is_err() {
            copy(&object, &path, file).map_err(|e| disk::fault("write", &path, &e))?;
        }
    }
    Ok(None)
}

fn is_there(object: &Path, file: &File) -> bool {
    content::is_file(object, &file.hash, file.bytes).unwrap_or(false)
}

/// The file with a content. A file may be executed or not, so that the mode is part of its name.
fn object(tree: &Tree, file: &File) -> PathBuf {
    let ending = if file.executable { ".x" } else { "" };
    let shard = file.hash.get(..2).unwrap_or_default();
    code::folder(tree).join(format!("objects/{shard}/{}{ending}", file.hash))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    let moved = fs::File::open(from);
    let renamed = moved.and_then(|moved| rename::rename(&moved, from, to));
    Ok(renamed.map_err(|e| disk::fault("rename", from, &e))?)
}

/// Copies a file that must still have the content of the list, by way of the file `aside`; `false` if it does not.
fn copy_checked(from: &Path, aside: &Path, object: &Path, file: &File) -> Result<bool> {
    let copied = || -> Result<bool> {
        let hash = match copy(from, aside, file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            hash => hash.map_err(|e| disk::fault("store", from, &e))?,
        };
        let is_same = hash == file.hash;
        if is_same {
            rename(aside, object)?;
        }
        Ok(is_same)
    };
    let result = copied();
    if !matches!(result, Ok(true)) {
        let _ = fs::remove_file(aside);
    }
    result
}

/// Copies a file and returns the hash of what was written. Nobody may write to the copy: links to it are in several
/// snapshots.
fn copy(from: &Path, to: &Path, file: &File) -> io::Result<String> {
    let mut source = disk::open_plain(from)?;
    let mut target = disk::create_new(to)?;
    let (hash, _) = content::hash_of(&mut source, |piece| target.write_all(piece))?;
    // The umask has decided who may read it.
    let read = target.metadata()?.permissions().mode() & 0o444;
    let execute = if file.executable { read >> 2 } else { 0 };
    target.set_permissions(Permissions::from_mode(read | execute))?;
    Ok(hash)
}
