//! One submission at a time: `submit.lock`, an exclusively created file that names its owner.
//!
//! The lock does not use `flock`. Another process takes over a lock whose owner is gone: on the same host at
//! once, from another host when it has not been touched for a while by the file system's own clock.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Tree;
use crate::fault::Fault;
use crate::host::{access, age, clock, disk, process, vars};

/// A lock on another host counts as left behind after this time without a touch.
const LEFT_BEHIND: Duration = Duration::from_secs(120);
/// How often a holder that waits for long should call [`Lock::touch`].
pub(crate) const TOUCH_EVERY: Duration = Duration::from_secs(20);

/// How long a submission waits for another one, and how often it looks. On a loaded controller each call may take seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Who holds a lock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    host: String,
    pid: i32,
    /// Start of the process in clock ticks since boot: detects a pid that was reused.
    started: Option<u64>,
    since: f64,
}

impl Owner {
    /// The process, in words.
    pub(crate) fn words(&self) -> String {
        format!("process {} on {}", self.pid, self.host)
    }

    /// Its activity, in words.
    pub(crate) fn is_at_work(&self) -> String {
        format!("another hpcsweep is changing this sweep: {}", self.words())
    }

    fn is_this(&self) -> bool {
        self.pid == std::process::id().cast_signed() && self.host == vars::hostname()
    }
}

/// Held while it lives; removed when dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a sweep, whose folder is there ([`Tree::secure`]).
    ///
    /// # Errors
    /// When another living process holds it, or the disk refuses.
    pub fn take(tree: &Tree) -> Result<Self> {
        let path = path(tree);
        let me = Owner {
            host: vars::hostname(),
            pid: std::process::id().cast_signed(),
            started: process::started(std::process::id().cast_signed()),
            since: clock::now(),
        };
        // The lock is written under a temporary name and linked into place, so that no process ever sees an
        // empty lock.
        for _ in 0..50 {
            let aside = disk::aside(&path);
            std::fs::write(&aside, super::to_json_line(&me)?).map_err(|e| {
                let _ = std::fs::remove_file(&aside);
                disk::fault("write", &path, &e)
            })?;
            let linked = std::fs::hard_link(&aside, &path);
            // An NFS server may have linked although its answer was lost: the link count shows it.
            use std::os::unix::fs::MetadataExt;
            let ours = linked.is_ok() || std::fs::metadata(&aside).is_ok_and(|m| m.nlink() == 2);
            let _ = std::fs::remove_file(&aside);
            if ours {
                return Ok(Self { path });
            }
            if let Err(error) = linked
                && error.kind() != std::io::ErrorKind::AlreadyExists
            {
                return Err(no_link(&path, &error).into());
            }
            if let Some(owner) = living_owner(&path, tree.dir())? {
                return Err(Fault::machine(owner.is_at_work())
                    .at(path.display().to_string())
                    .hint("wait until it has finished, or stop it, and run the same command again")
                    .into());
            }
            // Left behind: the first process that renames it away may try again; the others see a new lock.
            let gone = disk::aside(&path);
            if std::fs::rename(&path, &gone).is_ok() {
                // Another may have done so between our look and this, and hold it now: it gets it back.
                if living_owner(&gone, tree.dir())?.is_some() {
                    let _ = std::fs::hard_link(&gone, &path);
                }
                let _ = std::fs::remove_file(&gone);
            }
        }
        Err(Fault::machine(format!("cannot get the lock `{}`", path.display()))
            .hint("remove it if no hpcsweep runs")
            .into())
    }

    /// As [`Lock::take`]; waits up to a minute for another process, with a word about it.
    ///
    /// # Errors
    /// As [`Lock::take`], when that process holds it for longer.
    pub(crate) fn wait(tree: &Tree, tell: &mut impl FnMut(&str)) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        let mut has_told = false;
        loop {
            match Self::take(tree) {
                Err(_) if is_held_by_another(tree) && Instant::now() < end => {
                    if let Some(owner) = holder(tree).filter(|_| !has_told) {
                        tell(&format!("{}; waiting for it", owner.is_at_work()));
                        has_told = true;
                    }
                    std::thread::sleep(PAUSE);
                }
                taken => return taken,
            }
        }
    }

    /// Refuses a sweep in whose folder no lock can be made, and makes none.
    ///
    /// # Errors
    /// As [`Lock::take`], for an error of the disk.
    pub(crate) fn check(tree: &Tree) -> Result<()> {
        access::may_write(tree.dir()).map_err(|e| disk::fault("write", &path(tree), &e).into())
    }

    /// Shows that the holder lives.
    pub(crate) fn touch(&self) {
        if let Ok(file) = std::fs::File::options().append(true).open(&self.path) {
            let _ = file.set_modified(std::time::SystemTime::now());
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Why a file that could be written could not be linked: some file systems have no hard links, and say EPERM.
fn no_link(path: &Path, error: &std::io::Error) -> Fault {
    use nix::libc::{EMLINK, ENOSYS, EOPNOTSUPP, EPERM};
    if !error.raw_os_error().is_some_and(|code| [EPERM, EOPNOTSUPP, ENOSYS, EMLINK].contains(&code))
    {
        return disk::fault("lock", path, error);
    }
    let sentence = "the file system has no hard links, with which hpcsweep locks a sweep";
    Fault::machine(sentence)
        .at(path.display().to_string())
        .hint("put the results on another file system: `root` under `[sweep]`; `hpcsweep doctor --root DIR` examines one")
}

/// The living process that holds the lock of a sweep.
pub(crate) fn holder(tree: &Tree) -> Option<Owner> {
    living_owner(&path(tree), tree.dir()).ok().flatten()
}

/// Whether a living process holds the lock of a sweep.
pub(crate) fn is_held(tree: &Tree) -> bool {
    holder(tree).is_some()
}

/// Whether a living process other than this one holds it.
pub(crate) fn is_held_by_another(tree: &Tree) -> bool {
    holder(tree).is_some_and(|owner| !owner.is_this())
}

fn path(tree: &Tree) -> PathBuf {
    tree.dir().join("submit.lock")
}

fn living_owner(path: &Path, dir: &Path) -> Result<Option<Owner>> {
    let Some(text) = disk::read_if_there(path)? else { return Ok(None) };
    let Ok(owner) = serde_json::from_str::<Owner>(&text) else { return Ok(None) };
    if owner.host == vars::hostname() {
        let started = process::started(owner.pid);
        let alive = started.is_some() && started == owner.started;
        return Ok(alive.then_some(owner));
    }
    match age::by_server(path, dir) {
        Ok(age) if age > LEFT_BEHIND => Ok(None),
        _ => Ok(Some(owner)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_hard_links_is_named() {
        let of = |code| no_link(Path::new("/r/s/lock"), &std::io::Error::from_raw_os_error(code));
        for code in [nix::libc::EPERM, nix::libc::EOPNOTSUPP] {
            assert!(of(code).to_string().starts_with("the file system has no hard links"));
        }
        assert_eq!(
            of(nix::libc::EIO).sentence,
            disk::fault(
                "lock",
                Path::new("/r/s/lock"),
                &std::io::Error::from_raw_os_error(nix::libc::EIO)
            )
            .sentence
        );
    }

    #[test]
    fn a_second_owner_is_refused_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        let lock = Lock::take(&tree).unwrap();
        let refused = Lock::take(&tree).unwrap_err().to_string();
        assert!(
            refused.starts_with("another hpcsweep is changing this sweep: process "),
            "{refused}"
        );
        drop(lock);
        let dead = Owner { host: vars::hostname(), pid: 1, started: Some(0), since: 0.0 };
        std::fs::write(dir.path().join("submit.lock"), super::super::to_json_line(&dead).unwrap())
            .unwrap();
        let lock = Lock::take(&tree).unwrap();
        drop(lock);
        assert_eq!(disk::list(dir.path()).unwrap(), Vec::<String>::new());
    }
}
