//! One submission at a time: `submit.lock`, an exclusively created file that names its owner.
//!
//! The lock does not use `flock`. Another process takes over a lock whose owner is gone: on the same host at
//! once, from another host when it has not been touched for a while by the file system's own clock, or when the
//! scheduler says that the job has ended in which it was taken.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Tree;
use crate::base::fault::Fault;
use crate::base::host::{access, age, clock, disk, process, vars};

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
    /// The scheduler's id of the job in which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

impl Owner {
    /// This process, in this job.
    fn this(job: Option<&str>) -> Self {
        let pid = std::process::id().cast_signed();
        Self {
            host: vars::hostname(),
            pid,
            started: process::started(pid),
            since: clock::now(),
            job: job.map(str::to_owned),
        }
    }

    /// The process, in words.
    pub(crate) fn words(&self) -> String {
        let job = self.job.as_ref().map(|job| format!(", job {job}")).unwrap_or_default();
        format!("process {} on {}{job}", self.pid, self.host)
    }

    /// The job in which it runs, if it runs on another host: here, the process itself is looked for.
    pub(crate) fn job_elsewhere(&self) -> Option<&str> {
        self.job.as_deref().filter(|_| self.host != vars::hostname())
    }

    /// That it holds a lock which this process wants.
    fn refusal(&self, path: &Path) -> Fault {
        let fault = Fault::machine(self.is_at_work());
        let place = path.display();
        if self.host == vars::hostname() {
            let hint = "wait until it has finished, or stop it, and run the same command again";
            return fault.at(place.to_string()).hint(hint);
        }
        let since = clock::local(self.since);
        fault.at(format!("{place}\nheld since {since}")).hint(format!(
            "wait until it has finished, and run the same command again; if that process is gone, the lock is free within two \
             minutes, or at once with `rm {}`",
            disk::named(path)
        ))
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
        Self::take_in(tree, None, &mut |_| false)
    }

    /// As [`Lock::take`], for a process in a job; `has_ended`: whether the owner of the lock is known to be gone, with the job
    /// in which it ran.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub(crate) fn take_in(
        tree: &Tree,
        job: Option<&str>,
        has_ended: &mut dyn FnMut(&Owner) -> bool,
    ) -> Result<Self> {
        let path = path(tree);
        let me = Owner::this(job);
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
                tree.forget();
                return Ok(Self { path });
            }
            if let Err(error) = linked
                && error.kind() != std::io::ErrorKind::AlreadyExists
            {
                return Err(no_link(&path, &error).into());
            }
            let owner = living_owner(&path, tree.dir())?;
            if let Some(owner) = owner.filter(|owner| !has_ended(owner)) {
                return Err(owner.refusal(&path).into());
            }
            // Left behind: the first process that renames it away may try again; the others see a new lock.
            let gone = disk::aside(&path);
            if std::fs::rename(&path, &gone).is_ok() {
                // Another may have done so between our look and this, and hold it now: it gets it back.
                if living_owner(&gone, tree.dir())?.is_some_and(|owner| !has_ended(&owner)) {
                    let _ = std::fs::hard_link(&gone, &path);
                }
                let _ = std::fs::remove_file(&gone);
            }
        }
        Err(Fault::machine(format!("cannot get the lock `{}`", path.display()))
            .hint("remove it if no hpcsweep runs")
            .into())
    }

    /// As [`Lock::take_in`]; waits up to a minute for another process, with a word about it.
    ///
    /// # Errors
    /// As [`Lock::take`], when that process holds it for longer.
    pub(crate) fn wait(
        tree: &Tree,
        job: Option<&str>,
        has_ended: &mut dyn FnMut(&Owner) -> bool,
        tell: &mut impl FnMut(&str),
    ) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        let mut has_told = false;
        loop {
            match Self::take_in(tree, job, has_ended) {
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
        let dead = Owner { pid: 1, started: Some(0), ..Owner::this(None) };
        std::fs::write(dir.path().join("submit.lock"), super::super::to_json_line(&dead).unwrap())
            .unwrap();
        let lock = Lock::take(&tree).unwrap();
        drop(lock);
        assert_eq!(disk::list(dir.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_lock_of_a_job_elsewhere_is_taken_over_when_that_job_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        let there = Owner { host: "n3".to_owned(), pid: 7, ..Owner::this(Some("103")) };
        let text = super::super::to_json_line(&there).unwrap();
        std::fs::write(dir.path().join("submit.lock"), text).unwrap();
        let refused = Lock::take(&tree).unwrap_err();
        let words = "another hpcsweep is changing this sweep: process 7 on n3, job 103";
        assert!(refused.to_string().starts_with(words), "{refused}");
        let fault = refused.downcast_ref::<Fault>().unwrap();
        assert!(fault.hint.as_ref().is_some_and(|hint| hint.contains("`rm ")), "{fault:?}");
        let mut asked = Vec::new();
        let lock = Lock::take_in(&tree, None, &mut |owner: &Owner| {
            asked.extend(owner.job_elsewhere().map(str::to_owned));
            true
        });
        drop(lock.unwrap());
        assert!(!asked.is_empty() && asked.iter().all(|job| job == "103"), "{asked:?}");
        // Of a process on this host, its job says nothing that the process itself does not.
        assert_eq!(Owner::this(Some("104")).job_elsewhere(), None);
    }
}
