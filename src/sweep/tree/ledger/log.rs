//! The files of the ledger: an entry has its number by one `link(2)`, or not at all.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Entry, Ledger};
use crate::base::host::disk;
use crate::sweep::tree::{Tree, line};

fn folder(tree: &Tree, seq: u64) -> PathBuf {
    tree.dir().join(format!("claims/{:03}", seq / 1000))
}

/// The file of an entry, relative to the sweep's folder.
pub fn name(seq: u64) -> String {
    format!("claims/{:03}/{seq:06}.json", seq / 1000)
}

fn path(tree: &Tree, seq: u64) -> PathBuf {
    tree.dir().join(name(seq))
}

/// NFS remembers for a while that a name was not there; opening the folder makes it look again.
pub(super) fn look_again(tree: &Tree, seq: u64) {
    drop(std::fs::File::open(folder(tree, seq)));
}

/// An entry; `Some(None)` for a damaged one, which all agents ignore.
pub(super) fn read(tree: &Tree, seq: u64) -> Result<Option<Option<Entry>>> {
    let path = &path(tree, seq);
    match disk::read_entry(path) {
        Ok(bytes) => {
            let entry = line::unseal(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
            Ok(Some(entry.filter(Entry::is_sound)))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(disk::fault("read", path, &e).into()),
    }
}

/// Calls `with` for each entry that can be read, with its number, in order.
///
/// # Errors
/// When an entry exists but cannot be read.
pub(crate) fn each(tree: &Tree, mut with: impl FnMut(u64, Entry)) -> Result<()> {
    let mut seq = 1;
    while let Some(entry) = read(tree, seq)? {
        entry.into_iter().for_each(|entry| with(seq, entry));
        seq += 1;
    }
    Ok(())
}

/// When an entry was written, by the clock of the host that keeps the file: unix seconds. `None` if there is no such
/// entry.
pub fn written(tree: &Tree, seq: u64) -> Option<f64> {
    let modified = std::fs::metadata(path(tree, seq)).and_then(|about| about.modified()).ok()?;
    Some(modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs_f64())
}

/// How a file gets a second name: `link(2)`, but for tests.
pub type Link = fn(&Path, &Path) -> io::Result<()>;

/// `link(2)`.
///
/// # Errors
/// Errors of the system.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)
}

/// Appends an entry behind the last one that `ledger` has read; `false` if another agent was faster, whose
/// entry has not been read yet.
///
/// # Errors
/// When the disk refuses. Whether the entry is there is then to be seen by following the ledger.
pub fn append(tree: &Tree, ledger: &mut Ledger, entry: &Entry, link: Link) -> Result<bool> {
    let place = path(tree, ledger.seq + 1);
    let fail = |e: io::Error| disk::fault("write", &place, &e);
    let bytes = line::seal(entry).map_err(fail)?;
    let aside = disk::aside(&place);
    if let Err(e) = write(&aside, &bytes) {
        if e.kind() != io::ErrorKind::NotFound {
            let _ = std::fs::remove_file(&aside);
            return Err(fail(e).into());
        }
        // This folder alone: a file system that is away for a moment must not be made anew in its place.
        disk::make_folder(&folder(tree, ledger.seq + 1))?;
        write(&aside, &bytes).map_err(fail)?;
    }
    let linked = link(&aside, &place);
    let _ = std::fs::remove_file(&aside);
    if let Err(error) = linked {
        // A server may have linked although its answer was lost: the entry under the number shows it.
        match disk::read_entry(&place) {
            Ok(there) if there == bytes => {}
            Ok(_) => return Ok(false),
            Err(_) => return Err(fail(error).into()),
        }
    }
    ledger.take(Some(entry.clone()));
    Ok(true)
}

/// How many entries there are, without reading them.
///
/// # Errors
/// When a folder cannot be listed.
pub fn length(tree: &Tree) -> Result<u64> {
    let root = tree.dir().join("claims");
    let Some(last) = disk::list(&root)?.into_iter().filter(|n| !n.starts_with('.')).max() else {
        return Ok(0);
    };
    let names = disk::list(&root.join(last))?;
    Ok(names.iter().filter_map(|n| n.strip_suffix(".json")?.parse().ok()).max().unwrap_or(0))
}

/// Makes the folders that entries and bundles are in.
///
/// # Errors
/// When the disk refuses.
pub fn prepare(tree: &Tree) -> Result<()> {
    disk::make_dir(&tree.dir().join("claims"))?;
    disk::make_dir(&tree.dir().join("agents"))
}

/// On disk before it has a number: a machine that loses power must not leave an empty entry.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = disk::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}
