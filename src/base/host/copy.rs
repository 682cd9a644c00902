//! Folders that are copied.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{archive, disk};

/// Copies a folder as it is, as far as `wants` it by names within: links stay links, several names of a file stay that. What is there already is left as it is,
/// and pipes, sockets and devices are left out. A folder that does not exist is nothing. Returns whether there was one.
///
/// # Errors
/// When a file cannot be read, or the disk refuses.
pub(crate) fn folder(from: &Path, to: &Path, wants: &dyn Fn(&Path) -> bool) -> Result<bool> {
    let mut found = Vec::new();
    archive::walk(from, Path::new(""), wants, &mut found)?;
    let mut linked: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for found in &found {
        let (source, target) = (from.join(&found.name), to.join(&found.name));
        if found.about.is_dir() {
            disk::make_dir(&target)?;
            continue;
        }
        if found.is_special() || fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        let inode = (found.about.dev(), found.about.ino());
        let earlier = linked.get(&inode).filter(|_| found.about.nlink() > 1);
        let copied = match earlier {
            Some(earlier) => fs::hard_link(earlier, &target).or_else(|_| copy(&source, &target)),
            None if found.about.is_symlink() => {
                fs::read_link(&source).and_then(|leads_to| symlink(leads_to, &target))
            }
            None => copy(&source, &target),
        };
        copied.map_err(|e| disk::fault("copy", &source, &e))?;
        linked.insert(inode, target);
    }
    Ok(!found.is_empty())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}
