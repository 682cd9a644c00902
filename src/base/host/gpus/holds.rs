//! Holds: which process has taken which device. One small file for each device, in a folder of this user on
//! this host.
//!
//! `<device>.<n>` with the largest `n` lists the holders. Each lasts while its process lives or its time is not over.
//! Taking a device is making the next `n` with one holder more, by a link, which only one process can do. The
//! last files of a device are never removed, so that numbers never start again; those below them are.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, disk, process, vars};

/// For whom a device is held, and how long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Holder {
    /// While this process lives,
    pub(crate) pid: Option<i32>,
    /// which started then (clock ticks since boot): distinguishes it from a later one of the same number.
    pub(crate) started: Option<u64>,
    /// Or until then, Unix seconds.
    pub(crate) until: Option<f64>,
    /// How many like it may hold a device together; 0 is 1: the device is not shared.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) share: u32,
    /// Tells a hold from all others.
    #[serde(skip_serializing_if = "String::is_empty")]
    token: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(share: &u32) -> bool {
    *share == 0
}

/// The parts of a device: a holder takes as many as `share` allows each of its kind.
const WHOLE: u64 = 1 << 40;

impl Holder {
    /// Holds while a process lives, also when it becomes another program.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn process(pid: i32) -> Result<Self> {
        let started = process::started(pid);
        if started.is_none() {
            return Err(Fault::request(format!("there is no process {pid}")).into());
        }
        Ok(Self { pid: Some(pid), started, ..Self::default() })
    }

    /// Holds for this process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn own() -> Result<Self> {
        Self::process(std::process::id().cast_signed())
    }

    /// Holds for some seconds.
    pub(crate) fn seconds(seconds: f64) -> Self {
        Self { until: Some(clock::now() + seconds), ..Self::default() }
    }

    /// As this one, but so many may hold a device together.
    #[must_use]
    pub(crate) fn sharing(self, share: u32) -> Self {
        Self { share: if share > 1 { share } else { 0 }, ..self }
    }

    fn parts(&self) -> u64 {
        (WHOLE / u64::from(self.share.max(1))).max(1)
    }

    fn holds(&self) -> bool {
        let lives = |pid| self.started.is_some() && process::started(pid) == self.started;
        self.pid.is_some_and(lives) || self.until.is_some_and(|until| clock::now() < until)
    }

    /// Who it is, in words.
    pub(crate) fn words(&self) -> String {
        match (self.pid, self.until) {
            (Some(pid), _) => format!("process {pid}"),
            (None, Some(until)) => format!("until {}", clock::local(until)),
            (None, None) => "nobody".to_owned(),
        }
    }
}

/// The folder of holds.
#[derive(Debug, Clone)]
pub(crate) struct Holds {
    dir: PathBuf,
}

impl Holds {
    /// Opens `$TMPDIR/hpcsweep-gpus-UID-HOST` (or `/tmp/...`), making it where it is missing; in a job of PBS, whose
    /// `TMPDIR` no other sees, beside that. Where another user has taken the name, `...-HOST.1` and so on: all
    /// processes of this user choose the same.
    ///
    /// # Errors
    /// When no folder can be made, or every name is taken.
    pub(crate) fn open(vars: &Vars) -> Result<Self> {
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
        // The last one that exists, not the first: when the stranger's folder goes, the processes that hold devices
        // stay together.
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
        let sentence = format!("every `{name}` in `{}` belongs to another user", base.display());
        Err(Fault::machine(sentence).hint("name another temporary folder by TMPDIR").into())
    }

    /// Who holds a device now, the first one first.
    pub(crate) fn holders(&self, uuid: &str) -> Vec<Holder> {
        self.last(uuid).1.into_iter().filter(Holder::holds).collect()
    }

    /// Whether a device that these hold has room for one more.
    pub(crate) fn has_room(holders: &[Holder], more: &Holder) -> bool {
        holders.iter().map(Holder::parts).sum::<u64>() + more.parts() <= WHOLE
    }

    /// Takes a device, or a place on it: the hold. `None` if others have it, perhaps since a moment ago.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn take(&self, uuid: &str, holder: &Holder) -> Result<Option<Holder>> {
        let (n, holders) = self.last(uuid);
        let mut holders: Vec<Holder> = holders.into_iter().filter(Holder::holds).collect();
        if !Self::has_room(&holders, holder) {
            return Ok(None);
        }
        let hold = Holder { token: clock::short_token(), ..holder.clone() };
        holders.push(hold.clone());
        let is_in = self.next(uuid, n, &holders, |now| now.contains(&hold))?;
        Ok(is_in.then_some(hold))
    }

    /// Gives a device back: the hold that [`Self::take`] has made.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn give_back(&self, uuid: &str, hold: &Holder) -> Result<()> {
        for _ in 0..TRIES {
            let (n, mut holders) = self.last(uuid);
            let Some(at) = holders.iter().position(|other| other == hold) else { return Ok(()) };
            holders.remove(at);
            if self.next(uuid, n, &holders, |now| !now.contains(hold))? {
                return Ok(());
            }
        }
        let sentence = format!("`{uuid}` cannot be given back: others always came first");
        Err(Fault::machine(sentence).into())
    }

    /// The holders of a device, and the number of the file that names them.
    fn last(&self, uuid: &str) -> (u64, Vec<Holder>) {
        let mut last = None;
        let (n, text) = loop {
            let Some(n) = self.numbers(uuid).into_iter().max() else { return (0, Vec::new()) };
            match fs::read_to_string(self.path(uuid, n)) {
                Ok(text) => break (n, text),
                // The file was removed since: there is a later one now. A file that stays and cannot be read
                // names no holder.
                Err(_) if last != Some(n) => last = Some(n),
                Err(_) => break (n, String::new()),
            }
        };
        let several: Vec<Holder> = match serde_json::from_str(&text) {
            Ok(several) => several,
            // One alone is written without a list, as by earlier versions.
            Err(_) => serde_json::from_str(&text).into_iter().collect(),
        };
        (n, several)
    }

    fn numbers(&self, uuid: &str) -> Vec<u64> {
        let prefix = format!("{}.", safe(uuid));
        let names = disk::list(&self.dir).unwrap_or_default();
        names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect()
    }

    fn path(&self, uuid: &str, n: u64) -> PathBuf {
        self.dir.join(format!("{}.{n}", safe(uuid)))
    }

    /// Makes the file after `n`, whole from the first moment; false if another process was faster. `counts`
    /// decides from the holders at that time whether the file was made in time: all files after it name the same
    /// other holders.
    fn next(
        &self,
        uuid: &str,
        n: u64,
        holders: &[Holder],
        counts: impl FnOnce(&[Holder]) -> bool,
    ) -> Result<bool> {
        let path = self.path(uuid, n + 1);
        let aside = disk::aside(&path);
        let text = match holders {
            [] => serde_json::to_vec(&Holder::default())?,
            [one] => serde_json::to_vec(one)?,
            several => serde_json::to_vec(several)?,
        };
        fs::write(&aside, text).map_err(|e| fault("write", &aside, &e))?;
        let linked = fs::hard_link(&aside, &path);
        let _ = fs::remove_file(&aside);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(fault("create", &path, &error).into()),
        }
        // A number that was free because a later one has swept it away counts for nothing.
        if !counts(&self.last(uuid).1) {
            let _ = fs::remove_file(&path);
            return Ok(false);
        }
        for older in self.numbers(uuid).into_iter().filter(|other| *other + KEPT <= n + 1) {
            let _ = fs::remove_file(self.path(uuid, older));
        }
        Ok(true)
    }
}

/// The last files of a device that stay. A list of a folder may lack what comes and goes while it is read; it has what
/// counts as long as fewer than so many come meanwhile.
const KEPT: u64 = 8;

/// How often others may come first before something must be wrong with the folder.
const TRIES: u32 = 1000;

/// How many names are tried for the folder of holds.
const NAMES: u32 = 32;

/// Whether this is a folder, not a link to one, that this user alone may use: another user who can write to it could
/// change the holds.
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
        let hold = holds.take("GPU-a", &other).unwrap().unwrap();
        assert!(holds.take("GPU-a", &me).unwrap().is_none());
        assert!(holds.take("GPU-b", &me).unwrap().is_some());
        assert_eq!(holds.holders("GPU-a"), [hold]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(holds.holders("GPU-a"), []);
        assert!(holds.take("GPU-a", &me).unwrap().is_some());
        assert_eq!(disk::list(&holds.dir).unwrap(), ["GPU-a.1", "GPU-a.2", "GPU-b.1"]);
        // The number of a process alone is not the process.
        let reborn = Holder { started: me.started.map(|t| t + 1), ..me.clone() };
        assert!(!reborn.holds() && me.holds());
    }

    #[test]
    fn a_time_that_is_over_and_a_device_given_back_hold_nothing() {
        let (_tmp, holds) = holds();
        assert!(holds.take("MIG-GPU-a/1/0", &Holder::seconds(-1.0)).unwrap().is_some());
        let hour = holds.take("MIG-GPU-a/1/0", &Holder::seconds(3600.0)).unwrap().unwrap();
        assert!(holds.take("MIG-GPU-a/1/0", &Holder::seconds(1.0)).unwrap().is_none());
        holds.give_back("MIG-GPU-a/1/0", &Holder::seconds(9.0)).unwrap();
        assert_eq!(holds.holders("MIG-GPU-a/1/0"), std::slice::from_ref(&hour));
        holds.give_back("MIG-GPU-a/1/0", &hour).unwrap();
        assert_eq!(holds.holders("MIG-GPU-a/1/0"), []);
        assert!(holds.take("MIG-GPU-a/1/0", &Holder::own().unwrap()).unwrap().is_some());
        let names = |from: u64| (from..from + KEPT).map(|n| format!("MIG-GPU-a_1_0.{n}"));
        assert_eq!(disk::list(&holds.dir).unwrap(), names(1).take(4).collect::<Vec<_>>());
        for _ in 0..KEPT {
            let own = Holder::own().unwrap();
            let hold = holds.holders("MIG-GPU-a/1/0").remove(0);
            holds.give_back("MIG-GPU-a/1/0", &hold).unwrap();
            assert!(holds.take("MIG-GPU-a/1/0", &own).unwrap().is_some());
        }
        let mut left: Vec<String> = names(13).collect();
        left.sort();
        assert_eq!(disk::list(&holds.dir).unwrap(), left);
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
                        scope.spawn(move || {
                            usize::from(holds.take("GPU-a", &holder).unwrap().is_some())
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            assert_eq!(winners, 1);
            let holders = holds.holders("GPU-a");
            holds.give_back("GPU-a", &holders[0]).unwrap();
        }
    }

    #[test]
    fn a_shared_device_has_as_many_holders_as_each_of_them_allows() {
        let (_tmp, holds) = holds();
        let of = |share| Holder::own().unwrap().sharing(share);
        let take = |share| holds.take("GPU-a", &of(share)).unwrap().is_some();
        let give_back = |share| {
            let all = holds.holders("GPU-a");
            let hold = all.iter().find(|hold| hold.share.max(1) == share).unwrap();
            holds.give_back("GPU-a", hold).unwrap();
        };
        assert!(take(2) && take(2) && !take(2) && !take(64) && !take(1));
        give_back(2);
        // A half is left: for two quarters, and not for a process that wants the device alone.
        assert!(!take(1) && take(4) && take(4) && !take(1000));
        for share in [2, 4, 4] {
            give_back(share);
        }
        assert!(holds.holders("GPU-a").is_empty() && take(1) && !take(2));
        give_back(1);
        assert!((0..7).all(|_| take(7)) && !take(7));
    }

    #[test]
    fn a_number_swept_away_by_a_later_hold_is_no_hold() {
        let (_tmp, holds) = holds();
        fs::write(holds.path("GPU-a", 7), "{}").unwrap();
        // As one who saw hold 5 before 6 and 7 came.
        let own = Holder { token: "x".into(), ..Holder::own().unwrap() };
        let counts = |now: &[Holder]| now.iter().any(|other| other.token == "x");
        assert!(!holds.next("GPU-a", 5, &[own], counts).unwrap());
        assert_eq!(disk::list(&holds.dir).unwrap(), ["GPU-a.7"]);
    }

    #[test]
    fn a_name_that_somebody_else_has_taken_stops_nobody() {
        use std::os::unix::fs::PermissionsExt;
        let (tmp, first) = holds();
        let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
        let me = Holder::own().unwrap();
        assert!(first.take("GPU-a", &me).unwrap().is_some());
        // Others can write to it, as to a folder that another user has made.
        fs::set_permissions(&first.dir, fs::Permissions::from_mode(0o770)).unwrap();
        let second = Holds::open(&vars).unwrap();
        assert_eq!(second.dir.display().to_string(), format!("{}.1", first.dir.display()));
        assert!(second.take("GPU-a", &me).unwrap().is_some());
        // A link to another place is not followed, and a name that is free again does not separate processes that hold
        // devices.
        fs::remove_dir_all(&first.dir).unwrap();
        std::os::unix::fs::symlink(&second.dir, &first.dir).unwrap();
        assert_eq!(Holds::open(&vars).unwrap().dir, second.dir);
        fs::remove_file(&first.dir).unwrap();
        assert!(
            Holds::open(&vars).unwrap().take("GPU-a", &Holder::seconds(9.0)).unwrap().is_none()
        );
    }
}
