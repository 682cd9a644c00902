//! How old files are, by the clock of the file system that keeps them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::disk::{aside, fault, list};

/// Age of a file by the file system's own clock: a file made now in `beside` is compared with it.
/// Hosts' clocks may differ; the server's stamps do not.
///
/// # Errors
/// When the probe cannot be written.
pub(crate) fn by_server(path: &Path, beside: &Path) -> Result<Duration> {
    let probe = aside(&beside.join("clock"));
    let measure = || -> io::Result<Duration> {
        File::create(&probe)?.write_all(b"?")?;
        let now = fs::metadata(&probe)?.modified()?;
        let then = fs::metadata(path)?.modified()?;
        Ok(now.duration_since(then).unwrap_or_default())
    };
    let age = measure();
    let _ = fs::remove_file(&probe);
    age.map_err(|e| fault("look at the age of", path, &e).into())
}

/// Whether a file in a folder, or in one below, was written no longer ago than `ago`, by the file system's own
/// clock: as [`by_server`].
///
/// # Errors
/// When a folder cannot be read or the probe not be written.
pub(crate) fn is_within(dir: &Path, ago: Duration, beside: &Path) -> Result<bool> {
    let mut dirs = vec![dir.to_owned()];
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    while let Some(dir) = dirs.pop() {
        for name in list(&dir)? {
            let path = dir.join(name);
            // It may be renamed or removed meanwhile.
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            let time = about.modified().unwrap_or(UNIX_EPOCH);
            if about.is_dir() {
                dirs.push(path);
            } else if newest.as_ref().is_none_or(|(newest, _)| *newest < time) {
                newest = Some((time, path));
            }
        }
    }
    let Some((_, path)) = newest else { return Ok(false) };
    Ok(by_server(&path, beside)? <= ago)
}
