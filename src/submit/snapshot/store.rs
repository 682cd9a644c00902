//! Storing a snapshot: each content once, and a folder of links from which programs run.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::walk::Found;
use crate::fault::Fault;
use crate::host::{access, clock, disk};
use crate::tree::Tree;
use crate::tree::code::{self, File};

/// What was stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Files whose content was not there.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// Stores a snapshot unless it is there. The caller holds the sweep's lock.
///
/// # Errors
/// When the disk refuses: the snapshot is not there then.
pub(super) fn store(tree: &Tree, found: &Found, name: &str) -> Result<Stored> {
    let folder = code::folder(tree);
    disk::make_dir(&folder)?;
    // Submissions that were killed have left these.
    for left in disk::list(&folder)?.iter().filter(|name| name.starts_with(".new-")) {
        disk::remove_tree(&folder.join(left));
    }
    let place = code::snapshot(tree, name);
    let mut stored = Stored::default();
    if !place.is_dir() {
        let new = folder.join(format!(".new-{}", clock::short_token()));
        let result = fill(tree, found, &new, &mut stored).and_then(|()| {
            code::write_manifest(tree, name, &found.manifest)?;
            fs::rename(&new, &place).map_err(|e| disk::fault("rename", &new, &e).into())
        });
        if result.is_err() {
            disk::remove_tree(&new);
        }
        result?;
    }
    disk::make_dir(&place.join(&found.workdir))?;
    Ok(stored)
}

fn fill(tree: &Tree, found: &Found, new: &Path, stored: &mut Stored) -> Result<()> {
    disk::make_dir(new)?;
    let mut last = PathBuf::new();
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
        let is_there = fs::metadata(&object).is_ok_and(|about| about.len() == file.bytes);
        if !is_there {
            copy_checked(&found.root.join(name), &object, file)?;
            stored.files += 1;
            stored.bytes += file.bytes;
        }
        // Some file systems have no hard links, and none to files of other users.
        if fs::hard_link(&object, &path).is_err() {
            copy(&object, &path, file).map_err(|e| disk::fault("write", &path, &e))?;
        }
    }
    Ok(())
}

/// The file with a content. A file may be executed or not, so that the mode is part of its name.
fn object(tree: &Tree, file: &File) -> PathBuf {
    let ending = if file.executable { ".x" } else { "" };
    let shard = file.hash.get(..2).unwrap_or_default();
    code::folder(tree).join(format!("objects/{shard}/{}{ending}", file.hash))
}

/// Copies a file that must still have the content of the list.
fn copy_checked(from: &Path, object: &Path, file: &File) -> Result<()> {
    if let Some(shard) = object.parent() {
        disk::make_dir(shard)?;
    }
    let aside = disk::aside(object);
    let copied = || -> Result<()> {
        copy(from, &aside, file).map_err(|e| disk::fault("store", from, &e))?;
        let (hash, _) = super::walk::hash(&aside).map_err(|e| disk::fault("read", &aside, &e))?;
        if hash != file.hash {
            let sentence = format!("`{}` changes while it is stored", from.display());
            return Err(Fault::machine(sentence)
                .hint("leave it out with `[snapshot] ignore`, or submit again")
                .into());
        }
        fs::rename(&aside, object).map_err(|e| disk::fault("rename", &aside, &e).into())
    };
    let result = copied();
    if result.is_err() {
        let _ = fs::remove_file(&aside);
    }
    result
}

/// Nobody may write to the copy: links to it are in several snapshots.
fn copy(from: &Path, to: &Path, file: &File) -> io::Result<()> {
    let mut source = disk::open_plain(from)?;
    let mut target = disk::create_new(to)?;
    io::copy(&mut source, &mut target)?;
    let read = access::file_mode() & 0o444;
    let execute = if file.executable { read >> 2 } else { 0 };
    target.set_permissions(Permissions::from_mode(read | execute))
}
