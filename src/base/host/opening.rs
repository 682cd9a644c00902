//! Opens what is in a folder to readers.
//!
//! Others may write to the folder, too, and put a link in the place of what is opened. So each file and folder is opened
//! from the folder around it, without following a link, and its mode is changed by its descriptor.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::libc;
use nix::unistd::Uid;

use super::access::Readers;
use super::disk::fault;

/// Opens what this user has in a folder, and below it. `wants` is asked for each path, relative to the folder, and told
/// whether it is a folder; one that is not wanted is closed with all in it.
///
/// # Errors
/// When a folder cannot be listed, or a mode not be changed.
pub(crate) fn open_below(
    folder: &Path,
    readers: Readers,
    wants: impl Fn(&Path, bool) -> bool,
) -> Result<()> {
    let fail = |path: &Path, error: &io::Error| fault("change the mode of", path, error);
    let top = unlinked(folder).map_err(|e| fail(folder, &e))?;
    let group = top.metadata().map_err(|e| fail(folder, &e))?.gid();
    let group = (readers == Readers::Group).then_some(group);
    let mut folders: Vec<(PathBuf, File)> = vec![(PathBuf::new(), top)];
    while let Some((at, opened)) = folders.pop() {
        let below = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let shown = folder.join(&at);
        for entry in fs::read_dir(&below).map_err(|e| fault("list", &shown, &e))? {
            let name = entry.map_err(|e| fault("list", &shown, &e))?.file_name();
            let path = at.join(&name);
            let open = || open_one(&below.join(&name), readers, group, |dir| wants(&path, dir));
            match open() {
                Ok(Some(folder)) => folders.push((path, folder)),
                Ok(None) => {}
                // Removed, renamed, or made a link by now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {}
                Err(e) => return Err(fail(&folder.join(&path), &e).into()),
            }
        }
    }
    Ok(())
}

fn unlinked(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Opens a file or a folder; a folder to look into.
fn open_one(
    path: &Path,
    readers: Readers,
    group: Option<u32>,
    wants: impl Fn(bool) -> bool,
) -> io::Result<Option<File>> {
    let is_mine = |about: &fs::Metadata| about.uid() == Uid::effective().as_raw();
    // The check comes before the opening: a pipe, and a file that this user may not read, are not results.
    let found = fs::symlink_metadata(path)?;
    if !(found.is_file() || found.is_dir()) || !is_mine(&found) || !wants(found.is_dir()) {
        return Ok(None);
    }
    let file = unlinked(path)?;
    let about = file.metadata()?;
    if !is_mine(&about) || about.is_dir() != found.is_dir() {
        return Ok(None);
    }
    if let Some(group) = group.filter(|group| *group != about.gid()) {
        fchown(&file, None, Some(group))?;
    }
    let now = about.mode() & 0o7777;
    let mut wanted = now | readers.rights() & 0o044;
    if about.is_dir() {
        // As new folders in one whose group is that of its readers.
        let setgid = if group.is_some() { 0o2000 } else { 0 };
        wanted |= readers.rights() | setgid;
    }
    if wanted != now {
        file.set_permissions(Permissions::from_mode(wanted))?;
    }
    Ok(about.is_dir().then_some(file))
}
