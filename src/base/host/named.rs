//! Files that a person has named, such as archives and tables: written beside their place, and renamed into it.
//!
//! A process that is killed while it writes leaves its unfinished file. The file's name says who writes it, so the next
//! process that writes a file of that name removes what dead ones have left.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::disk::{fault, list};
use super::{access, age, disk, process, vars};
use crate::base::cause::Cause;
use crate::base::fault::Fault;

/// An unfinished file of a process that cannot be seen from here counts as left behind after this time without a change.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Writes a file that a person has named, through a buffer. A new or a regular file appears whole or not at all; a link
/// stays, and what it points to is written. A device or a pipe is written to as it is. What killed processes have left of
/// earlier files of this name is removed.
///
/// # Errors
/// As [`disk::write_whole`], and what `write` returns.
pub(crate) fn write(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    through(path, write).map_err(|error| match error.downcast::<Fault>() {
        Ok(fault) => advised(fault, path).into(),
        Err(error) => error,
    })
}

/// Makes a folder that a person has named: `path`, which will be called `later`.
///
/// # Errors
/// When one of its parents or the folder itself cannot be made.
pub(crate) fn make_dir(path: &Path, later: &Path) -> Result<()> {
    disk::make_dir_for(path, later).map_err(|error| match error.downcast::<Fault>() {
        Ok(fault) if helps_another_name(&fault) => {
            fault.hint("name a folder in one that you may write to").into()
        }
        Ok(fault) => fault.into(),
        Err(error) => error,
    })
}

fn helps_another_name(fault: &Fault) -> bool {
    fault.hint.is_some() && !fault.cause.is_some_and(Cause::passes)
}

/// A fault about a file that a person has named: what helps is another name.
fn advised(fault: Fault, path: &Path) -> Fault {
    let absolute = disk::absolute(path);
    match absolute.parent() {
        Some(folder) if !folder.exists() => {
            fault.hint(format!("there is no folder `{}`: make it first", folder.display()))
        }
        _ if helps_another_name(&fault) => {
            fault.hint("name a file in a folder that you may write to")
        }
        _ => fault,
    }
}

fn through(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let Ok(known) = fs::metadata(path) else { return whole(path, write) };
    if known.is_file() {
        let target = fs::canonicalize(path).map_err(|e| fault("write", path, &e))?;
        return whole(&target, write);
    }
    let attempt = || -> io::Result<()> {
        let mut out =
            io::BufWriter::with_capacity(1 << 16, File::options().write(true).open(path)?);
        write(&mut out)?;
        out.flush()
    };
    attempt().map_err(|e| fault("write", path, &e).into())
}

/// As [`write()`], for a function whose errors may be about something else than this file. Returns what it returns.
///
/// # Errors
/// As [`write()`].
pub(crate) fn fill<T>(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let mut filled = None;
    let written = self::write(path, |out| match fill(out) {
        Ok(value) => {
            filled = Some(Ok(value));
            Ok(())
        }
        Err(error) => {
            filled = Some(Err(error));
            Err(io::Error::other("nothing was written"))
        }
    });
    match filled {
        // That error says more than a missing file; one of the disk comes through it.
        Some(Err(error)) => {
            let of_disk = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
            Err(of_disk.map(|cause| fault("write", path, cause).into()).unwrap_or(error))
        }
        Some(Ok(value)) => written.map(|()| value),
        None => Err(written.err().unwrap_or_else(|| Fault::machine("nothing was written").into())),
    }
}

/// Writes a regular file.
fn whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    clear(path);
    disk::write_beside(path, &aside(path), write, access::file_mode())
}

/// What shows which process writes a file: its number, its start, and where it can be seen.
fn mark(pid: i32) -> Option<String> {
    let seen_by = fs::read_link("/proc/self/ns/pid").ok()?;
    let digits: String = seen_by.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{pid}-{}-{digits}@{}", process::started(pid)?, vars::hostname()))
}

/// What the unfinished files of a name begin with, and what they end in.
fn ends(path: &Path) -> Option<(String, &'static str)> {
    Some((format!(".{}.", path.file_name()?.to_str()?), ".tmp"))
}

/// The name of an unfinished file of this process.
fn aside(path: &Path) -> PathBuf {
    let own = || {
        let (start, end) = ends(path)?;
        let name = format!("{start}{}{end}", mark(std::process::id().cast_signed())?);
        (name.len() <= 255).then(|| path.with_file_name(name))
    };
    own().unwrap_or_else(|| disk::aside(path))
}

/// Removes what dead processes have left of files of this name.
fn clear(path: &Path) {
    let Some((start, end)) = ends(path) else { return };
    let absolute = disk::absolute(path);
    let Some(folder) = absolute.parent() else { return };
    for name in list(folder).unwrap_or_default() {
        let mark = name.strip_prefix(&start).and_then(|name| name.strip_suffix(end));
        let left = folder.join(&name);
        if mark.is_some_and(|mark| is_dead(mark, &left, folder)) {
            let _ = fs::remove_file(&left);
        }
    }
}

/// Whether the process with this mark, which wrote the file `left`, is dead; of one that cannot be seen from here, whether it
/// has not written for long.
fn is_dead(of: &str, left: &Path, folder: &Path) -> bool {
    let Some((process, _)) = of.split_once('@') else { return false };
    let mut numbers = process.split('-').map(str::parse::<u64>);
    let [Some(Ok(pid)), Some(Ok(_)), Some(Ok(_)), None] = [(); 4].map(|()| numbers.next()) else {
        return false;
    };
    // Its place is the same if only its number and its start differ from those of this process.
    let place = |mark: &str| {
        mark.split_once('-')
            .and_then(|(_, rest)| rest.split_once('-'))
            .map(|(_, place)| place.to_owned())
    };
    let here = mark(std::process::id().cast_signed());
    if here.as_deref().and_then(place).is_some_and(|here| place(of) == Some(here)) {
        return i32::try_from(pid).ok().and_then(mark).as_deref() != Some(of);
    }
    age::by_server(left, folder).is_ok_and(|age| age > LEFT_BEHIND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_processes_have_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let own = mark(std::process::id().cast_signed()).unwrap();
        let (numbers, host) = own.split_once('@').unwrap();
        let space = numbers.rsplit_once('-').unwrap().1;
        let make = |mark: &str| {
            let file = dir.path().join(format!(".a.tar.{mark}.tmp"));
            fs::write(&file, "x").unwrap();
            file
        };
        let long_ago = std::time::SystemTime::now() - 2 * LEFT_BEHIND;
        let old = |file: &Path| {
            File::options().append(true).open(file).unwrap().set_modified(long_ago).unwrap();
        };
        let is_kept = [
            // Of processes that live, however long they write nothing.
            (make(&mark(1).unwrap_or_else(|| own.clone())), true),
            (make(&own), true),
            // Of one that has ended, and whose number another has now.
            (make(&format!("1-99999999999-{space}@{host}")), false),
            // Of one that cannot be seen from here.
            (make(&format!("1-2-{space}@elsewhere")), true),
            (make(&format!("1-2-3@{host}")), true),
            (make(&format!("7-2-{space}@elsewhere")), false),
            (make(&format!("7-2-3@{host}")), false),
            // Other files.
            (make("abcdefgh"), true),
            (make(&format!("1-2@{host}")), true),
            (dir.path().join(".b.tar.1-2-3@elsewhere.tmp"), true),
        ];
        fs::write(&is_kept[9].0, "x").unwrap();
        for (file, _) in [0, 1, 5, 6, 7, 8, 9].map(|i| &is_kept[i]) {
            old(file);
        }
        clear(&path);
        for (file, kept) in is_kept {
            assert_eq!(file.exists(), kept, "{}", file.display());
        }
        // Its own is renamed.
        write(&path, |out| out.write_all(b"whole")).unwrap();
        assert!(!aside(&path).exists() && path.exists());
    }
}
