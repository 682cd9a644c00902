//! Who has taken which device: one small file a device, in a folder of this user on this host.
//!
//! A hold is `<uuid>.<n>`: the one with the largest `n` counts, and lasts while its process lives or its
//! time is not over. Taking a device is making the next `n`, by a link, which only one can do. The
//! last file of a device is never removed, so that numbers never start again; those below it are.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::host::{Vars, clock, disk, process, vars};

/// For whom a device is held, and how long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// While this process lives,
    pub pid: Option<i32>,
    /// which started then (clock ticks since boot): tells it from a later one of the same number.
    pub started: Option<u64>,
    /// Or until then, Unix seconds.
    pub until: Option<f64>,
}

impl Holder {
    /// Holds while a process lives, also when it becomes another program.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn process(pid: i32) -> Result<Self> {
        let started = process::started(pid);
        if started.is_none() {
            return Err(Fault::request(format!("there is no process {pid}")).into());
        }
        Ok(Self { pid: Some(pid), started, until: None })
    }

    /// Holds for this process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn own() -> Result<Self> {
        Self::process(std::process::id().cast_signed())
    }

    /// Holds for some seconds.
    pub fn seconds(seconds: f64) -> Self {
        Self { until: Some(clock::now() + seconds), ..Self::default() }
    }

    fn holds(&self) -> bool {
        let lives = |pid| self.started.is_some() && process::started(pid) == self.started;
        self.pid.is_some_and(lives) || self.until.is_some_and(|until| clock::now() < until)
    }

    /// Who it is, in words.
    pub fn words(&self) -> String {
        match (self.pid, self.until) {
            (Some(pid), _) => format!("process {pid}"),
            (None, Some(until)) => format!("{:.0} s more", (until - clock::now()).max(0.0)),
            (None, None) => "nobody".to_owned(),
        }
    }
}

/// The folder of holds.
#[derive(Debug, Clone)]
pub struct Holds {
    dir: PathBuf,
}

impl Holds {
    /// Opens `$TMPDIR/hpcsweep-gpus-UID-HOST` (or `/tmp/...`), making it where it is missing; in a job of PBS, whose
    /// `TMPDIR` no other sees, beside that. Where another user has taken the name, `...-HOST.1` and so on: all
    /// processes of this user choose the same.
    ///
    /// # Errors
    /// When no folder can be made, or every name is taken.
    pub fn open(vars: &Vars) -> Result<Self> {
        // As a trial's private folder: `XDG_RUNTIME_DIR` is set in a login and not in a job or by cron,
        // and then the two would not see each other.
        let named = shared(vars).filter(|dir| dir.is_dir());
        let user = nix::unistd::getuid();
        // A temporary folder may be shared by hosts, and a GPU is of one.
        let name = format!("hpcsweep-gpus-{user}-{}", vars::hostname());
        let base = named.unwrap_or(Path::new("/tmp"));
        let candidates: Vec<PathBuf> = std::iter::once(name.clone())
            .chain((1..NAMES).map(|n| format!("{name}.{n}")))
            .map(|name| base.join(name))
            .collect();
        // The last one that is there, not the first: when the stranger's folder goes, those who hold devices stay together.
        if let Some(dir) = candidates.iter().rfind(|dir| is_private(dir)) {
            return Ok(Self { dir: dir.clone() });
        }
        for dir in candidates {
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self { dir }),
                // Another process of this user may have been faster.
                Err(_) if is_private(&dir) => return Ok(Self { dir }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(fault("make the folder", &dir, &error).into()),
            }
        }
        let sentence = format!("every `{name}` in `{}` belongs to somebody else", base.display());
        Err(Fault::machine(sentence).hint("name another temporary folder by TMPDIR").into())
    }

    /// Who holds a device now.
    pub fn holder(&self, uuid: &str) -> Option<Holder> {
        let (_, holder) = self.last(uuid)?;
        holder.holds().then_some(holder)
    }

    /// Takes a device; false if somebody else has it, perhaps since a moment ago.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn take(&self, uuid: &str, holder: &Holder) -> Result<bool> {
        match self.last(uuid) {
            Some((_, other)) if other.holds() => Ok(false),
            last => self.next(uuid, last.map_or(0, |(n, _)| n), holder),
        }
    }

    /// Gives a device back that [`Self::take`] has just taken for `holder`.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn give_back(&self, uuid: &str, holder: &Holder) -> Result<()> {
        if let Some((n, last)) = self.last(uuid)
            && last == *holder
        {
            self.next(uuid, n, &Holder::default())?;
        }
        Ok(())
    }

    /// The hold that counts, and its number.
    fn last(&self, uuid: &str) -> Option<(u64, Holder)> {
        let n = self.numbers(uuid).into_iter().max()?;
        // Gone since: there is a later one now, and whoever tries to follow this one will see it.
        let text = fs::read_to_string(self.path(uuid, n)).unwrap_or_default();
        Some((n, serde_json::from_str(&text).unwrap_or_default()))
    }

    fn numbers(&self, uuid: &str) -> Vec<u64> {
        let prefix = format!("{}.", safe(uuid));
        let names = disk::list(&self.dir).unwrap_or_default();
        names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect()
    }

    fn path(&self, uuid: &str, n: u64) -> PathBuf {
        self.dir.join(format!("{}.{n}", safe(uuid)))
    }

    /// Makes the hold after `n`, whole from the first moment; false if somebody was faster.
    fn next(&self, uuid: &str, n: u64, holder: &Holder) -> Result<bool> {
        let path = self.path(uuid, n + 1);
        let aside = disk::aside(&path);
        fs::write(&aside, serde_json::to_vec(holder)?).map_err(|e| fault("write", &aside, &e))?;
        let linked = fs::hard_link(&aside, &path);
        let _ = fs::remove_file(&aside);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(fault("create", &path, &error).into()),
        }
        // A number that was free because a later one has swept it away is no hold.
        let numbers = self.numbers(uuid);
        if numbers.iter().any(|other| *other > n + 1) {
            let _ = fs::remove_file(&path);
            return Ok(false);
        }
        for older in numbers.into_iter().filter(|other| *other <= n) {
            let _ = fs::remove_file(self.path(uuid, older));
        }
        Ok(true)
    }
}

/// How many names are tried for the folder of holds.
const NAMES: u32 = 32;

/// Whether this is a folder, no link to one, that this user alone may use: anybody else who can write to it could say
/// who holds what.
fn is_private(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|found| {
        found.is_dir() && found.uid() == nix::unistd::getuid().as_raw() && found.mode() & 0o077 == 0
    })
}

/// The temporary folder that the jobs of a host share, where the variables name it.
fn shared(vars: &Vars) -> Option<&Path> {
    let named = Path::new(vars.get("TMPDIR")?.as_str());
    let job = vars.get("PBS_JOBID").filter(|job| !job.is_empty());
    let is_of_job = |name: &std::ffi::OsStr| {
        job.is_some_and(|job| name.to_string_lossy().contains(job.as_str()))
    };
    if !named.file_name().is_some_and(is_of_job) {
        return Some(named);
    }
    // A site may keep these folders where only root may make any.
    named.parent().filter(|dir| nix::unistd::access(*dir, nix::unistd::AccessFlags::W_OK).is_ok())
}

fn fault(doing: &str, path: &Path, error: &std::io::Error) -> Fault {
    let sentence = format!("cannot {doing} `{}`: {}", path.display(), disk::reason(error));
    Fault::machine(sentence).hint("name another temporary folder of this host by TMPDIR")
}

/// A UUID as a file's name; older drivers write `MIG-GPU-.../1/0`.
fn safe(uuid: &str) -> String {
    uuid.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn holds() -> (tempfile::TempDir, Holds) {
        let tmp = tempfile::tempdir().unwrap();
        let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
        let holds = Holds::open(&vars).unwrap();
        (tmp, holds)
    }

    #[test]
    fn a_device_is_held_while_the_process_lives_and_stale_holds_are_swept() {
        let (_tmp, holds) = holds();
        let me = Holder::own().unwrap();
        // It ends with its input, at the latest with this test.
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let other = Holder::process(child.id().cast_signed()).unwrap();
        assert!(holds.take("GPU-a", &other).unwrap());
        assert!(!holds.take("GPU-a", &me).unwrap());
        assert!(holds.take("GPU-b", &me).unwrap());
        assert_eq!(holds.holder("GPU-a"), Some(other));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(holds.holder("GPU-a"), None);
        assert!(holds.take("GPU-a", &me).unwrap());
        assert_eq!(disk::list(&holds.dir).unwrap(), ["GPU-a.2", "GPU-b.1"]);
        // The number of a process alone is not the process.
        let reborn = Holder { started: me.started.map(|t| t + 1), ..me.clone() };
        assert!(!reborn.holds() && me.holds());
    }

    #[test]
    fn a_time_that_is_over_and_a_device_given_back_hold_nothing() {
        let (_tmp, holds) = holds();
        assert!(holds.take("MIG-GPU-a/1/0", &Holder::seconds(-1.0)).unwrap());
        let hour = Holder::seconds(3600.0);
        assert!(holds.take("MIG-GPU-a/1/0", &hour).unwrap());
        assert!(!holds.take("MIG-GPU-a/1/0", &Holder::seconds(1.0)).unwrap());
        holds.give_back("MIG-GPU-a/1/0", &Holder::seconds(9.0)).unwrap();
        assert_eq!(holds.holder("MIG-GPU-a/1/0"), Some(hour.clone()));
        holds.give_back("MIG-GPU-a/1/0", &hour).unwrap();
        assert_eq!(holds.holder("MIG-GPU-a/1/0"), None);
        assert!(holds.take("MIG-GPU-a/1/0", &Holder::own().unwrap()).unwrap());
        assert_eq!(disk::list(&holds.dir).unwrap(), ["MIG-GPU-a_1_0.4"]);
    }

    #[test]
    fn one_of_many_gets_a_device_whose_holder_is_gone() {
        let (_tmp, holds) = holds();
        for _ in 0..20 {
            let _ = holds.take("GPU-a", &Holder::seconds(-1.0)).unwrap();
            let winners: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|n| {
                        let holder = Holder::seconds(3600.0 + f64::from(n));
                        let holds = &holds;
                        scope.spawn(move || usize::from(holds.take("GPU-a", &holder).unwrap()))
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            assert_eq!(winners, 1);
            let holder = holds.holder("GPU-a").unwrap();
            holds.give_back("GPU-a", &holder).unwrap();
        }
    }

    #[test]
    fn a_number_swept_away_by_a_later_hold_is_no_hold() {
        let (_tmp, holds) = holds();
        fs::write(holds.path("GPU-a", 7), "{}").unwrap();
        // As one who saw hold 5 before 6 and 7 came.
        assert!(!holds.next("GPU-a", 5, &Holder::own().unwrap()).unwrap());
        assert_eq!(disk::list(&holds.dir).unwrap(), ["GPU-a.7"]);
    }

    #[test]
    fn a_name_that_somebody_else_has_taken_stops_nobody() {
        use std::os::unix::fs::PermissionsExt;
        let (tmp, first) = holds();
        let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
        let me = Holder::own().unwrap();
        assert!(first.take("GPU-a", &me).unwrap());
        // Others can write to it, as to a folder that somebody else has made.
        fs::set_permissions(&first.dir, fs::Permissions::from_mode(0o770)).unwrap();
        let second = Holds::open(&vars).unwrap();
        assert_eq!(second.dir.display().to_string(), format!("{}.1", first.dir.display()));
        assert!(second.take("GPU-a", &me).unwrap());
        // Neither is a link to somewhere else followed, nor does a name that is free again part those who hold devices.
        fs::remove_dir_all(&first.dir).unwrap();
        std::os::unix::fs::symlink(&second.dir, &first.dir).unwrap();
        assert_eq!(Holds::open(&vars).unwrap().dir, second.dir);
        fs::remove_file(&first.dir).unwrap();
        assert!(!Holds::open(&vars).unwrap().take("GPU-a", &Holder::seconds(9.0)).unwrap());
    }
}
