//! The private folder of a running attempt on the node's own disk: the parameters as JSON, and the
//! files by which the program hands back metrics and a result. Removed when the attempt ends.

use std::fs::{self, DirBuilder};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value};

use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, disk, process};
use crate::base::words;
use crate::plan::Params;
use crate::run::worker::process::lines::{Lines, one_line, parse_lenient};

/// Bytes of the largest result. It is a part of one line of a record, which readers have in memory.
const LARGEST_RESULT: u64 = 16 << 20;

/// The folder and what has been read of it so far.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    /// The folder with the parameters alone in it: another folder of the same name is not ours.
    fresh: Option<Stamp>,
    /// Whether nobody has touched it since: there is nothing to read or to remove.
    is_untouched: bool,
    /// The file whose lines are taken.
    lines: Lines,
    odd_result: Option<String>,
}

impl Scratch {
    /// Makes the folder under `$TMPDIR` (or `/tmp`), readable by this user alone, and writes the
    /// parameters into it.
    ///
    /// # Errors
    /// When the node's disk refuses.
    pub(crate) fn make(vars: &Vars, sweep: &Path, trial: u64, params: &Params) -> Result<Self> {
        let dir = private_folder(vars, sweep, trial)?;
        let lines = Lines::of(dir.join("metrics.jsonl"));
        let mut scratch = Self { lines, dir, fresh: None, is_untouched: false, odd_result: None };
        scratch.write(params)?;
        scratch.fresh = Stamp::set(&scratch.dir);
        Ok(scratch)
    }

    fn write(&self, params: &Params) -> Result<()> {
        let path = self.params();
        let text = serde_json::to_vec(params)?;
        Ok(fs::write(&path, text).map_err(|e| disk::fault("write", &path, &e))?)
    }

    /// The same folder for another attempt: what the one before has left there is removed. `None`: it is gone.
    ///
    /// # Errors
    /// When the node's disk refuses.
    pub(crate) fn again(mut self, params: &Params) -> Result<Option<Self>> {
        if self.is_gone() {
            return Ok(None);
        }
        if self.is_untouched {
            // Somebody may have removed it since.
            if self.write(params).is_err() {
                return Ok(None);
            }
        } else {
            for name in disk::list(&self.dir)? {
                let path = self.dir.join(name);
                if fs::remove_file(&path).is_err() {
                    disk::remove_tree(&path);
                }
            }
            self.write(params)?;
            self.fresh = Stamp::set(&self.dir);
        }
        self.lines = Lines::of(self.metrics());
        (self.odd_result, self.is_untouched) = (None, false);
        Ok(Some(self))
    }

    /// Whether the folder was removed: the program's files in it are gone with it.
    pub(crate) fn is_gone(&self) -> bool {
        let is_ours =
            |fresh: Stamp| Stamp::of(&self.dir).is_some_and(|now| now.inode == fresh.inode);
        !self.is_untouched && self.fresh.is_some_and(|fresh| !is_ours(fresh))
    }

    /// To be called when nothing of the attempt runs any more: whether it has left something here is known from now on.
    pub(crate) fn close(&mut self) {
        self.is_untouched = self.fresh.is_some() && Stamp::of(&self.dir) == self.fresh;
    }

    /// Why the result of an attempt whose folder is gone is unknown.
    pub(crate) fn loss(&self) -> String {
        let dir = self.dir.display();
        format!(
            "its private folder `{dir}` was removed while it ran, with its metrics and its result"
        )
    }

    /// Copies the Python module of this folder to where programs in containers find it. Returns the folder around the copy.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub(crate) fn keep_module(&self, from: &Path) -> Result<PathBuf> {
        let folder = self.dir().join("python");
        let (from, to) = (from.join("hpcsweep"), folder.join("hpcsweep"));
        disk::make_dir(&to)?;
        for name in disk::list(&from)?.iter().filter(|name| name.ends_with(".py")) {
            let to = to.join(name);
            fs::copy(from.join(name), &to).map_err(|e| disk::fault("write", &to, &e))?;
        }
        Ok(folder)
    }

    /// The path of the folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The parameters, a JSON object.
    pub(crate) fn params(&self) -> PathBuf {
        self.dir.join("params.json")
    }

    /// Where the program appends JSON lines.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.jsonl")
    }

    /// Where rank 0's helper appends the lines reduced over the ranks.
    pub(crate) fn reduced(&self) -> PathBuf {
        self.dir.join("reduced.jsonl")
    }

    /// The file in which the helper reports the lines it left out.
    pub(crate) fn odd(&self) -> PathBuf {
        self.dir.join("sync-odd.txt")
    }

    /// The command that a set-up script is to become, a JSON list: there until it does.
    pub(crate) fn command(&self) -> PathBuf {
        self.dir.join("command.json")
    }

    /// A file of the worker's own in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// From now on lines are taken from those that are reduced over the ranks.
    pub(crate) fn follow_reduced(&mut self) {
        self.lines = Lines::of(self.reduced());
    }

    /// Where the program may leave its final result, one JSON value.
    pub(crate) fn result(&self) -> PathBuf {
        self.dir.join("result.json")
    }

    /// Where the program may say in one line why it failed.
    pub(crate) fn reason(&self) -> PathBuf {
        self.dir.join("reason.txt")
    }

    /// The first line of the reason, if the program gave one; at most 300 characters.
    pub(crate) fn take_reason(&self) -> Option<String> {
        (!self.is_untouched).then(|| one_line(&self.reason()))?
    }

    /// Why the helper could not carry the syncs to their end.
    pub(crate) fn why_uncarried(&self) -> String {
        let why = one_line(&self.file("sync-reason.txt"));
        format!("syncs over MPI: {}", why.unwrap_or_else(|| "the helper failed".to_owned()))
    }

    /// The metric lines that are complete and have not been taken yet; see [`Lines::take_counted`].
    pub(crate) fn take_metrics(&mut self, last: bool) -> Vec<Map<String, Value>> {
        if self.is_untouched {
            return Vec::new();
        }
        // A result that is left out is counted with the lines that are.
        let odd = u64::from(last && self.odd_result.is_some());
        self.lines.take_counted(last, odd)
    }

    /// Whether the file has more than [`Self::take_metrics`] takes at a time.
    pub(crate) fn has_more_metrics(&self) -> bool {
        !self.is_untouched && self.lines.has_more()
    }

    /// The final result, if the program left one that is JSON and no larger than a record may hold.
    pub(crate) fn take_result(&mut self) -> Option<Value> {
        if self.is_untouched {
            return None;
        }
        let mut bytes = Vec::new();
        let file = disk::open_plain(&self.result()).ok()?;
        file.take(LARGEST_RESULT + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > LARGEST_RESULT {
            let most = LARGEST_RESULT >> 20;
            self.odd_result = Some(format!("left out, more than {most} MiB"));
            return None;
        }
        let result = parse_lenient(bytes.trim_ascii());
        if result.is_none() && !bytes.trim_ascii().is_empty() {
            let text = words::short(&String::from_utf8_lossy(&bytes), 60);
            self.odd_result = Some(format!("left out, no JSON: {text}"));
        }
        result
    }

    /// The files of the program that could not be read, in words.
    pub(crate) fn complaints(&self) -> Option<String> {
        if self.is_untouched {
            return None;
        }
        let mut all = Vec::new();
        all.extend(self.lines.complaint().or_else(|| one_line(&self.odd())));
        if let Some(text) = &self.odd_result {
            all.push(format!("$HPCSWEEP_RESULT {text}"));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// What shows whether a folder is the same one, and whether an entry of it was made, renamed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    /// Its time of change, in seconds and nanoseconds; `None`: it says nothing.
    changed: Option<(i64, i64)>,
}

impl Stamp {
    fn of(dir: &Path) -> Option<Self> {
        let about = fs::symlink_metadata(dir).ok()?;
        Some(Self { inode: about.ino(), changed: Some((about.mtime(), about.mtime_nsec())) })
    }

    /// Makes its time of change one that no later change will have: the kernel's clock of files stands still for some
    /// milliseconds, in which a program can have come and gone.
    fn set(dir: &Path) -> Option<Self> {
        use nix::fcntl::AT_FDCWD;
        use nix::sys::stat::{UtimensatFlags, utimensat};
        use nix::sys::time::TimeSpec;
        let at = (Self::of(dir)?.changed?.0 - 3600, 0);
        let (access, change) = (TimeSpec::UTIME_OMIT, TimeSpec::new(at.0, at.1));
        let _ = utimensat(AT_FDCWD, dir, &access, &change, UtimensatFlags::NoFollowSymlink);
        let now = Self::of(dir)?;
        Some(Self { changed: now.changed.filter(|changed| *changed == at), ..now })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Where private folders lie: `$TMPDIR`, or `/tmp`.
fn base(vars: &Vars) -> PathBuf {
    // A TMPDIR that came along from the login node may not exist here.
    let named = vars.get("TMPDIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    named.unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Makes a folder for a trial under `$TMPDIR` (or `/tmp`) that this user alone may read. Its name shows whose
/// it is: `hpcsweep-SWEEP-TRIAL-TOKEN.PID.STARTED.MACHINE`.
///
/// # Errors
/// When the node's disk refuses.
pub(crate) fn private_folder(vars: &Vars, sweep: &Path, trial: u64) -> Result<PathBuf, Fault> {
    let hash = blake3::hash(sweep.as_os_str().as_bytes()).to_hex();
    let pid = std::process::id();
    let started = process::started(pid.cast_signed()).unwrap_or(0);
    let (hash, token, machine) = (&hash[..8], clock::short_token(), machine());
    let dir = base(vars).join(format!("hpcsweep-{hash}-{trial}-{token}.{pid}.{started}.{machine}"));
    DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|e| disk::fault("make the folder", &dir, &e))?;
    Ok(dir)
}

/// A word for the processes among which numbers of processes are unique: this boot of this machine, and this
/// container.
fn machine() -> String {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let hash = blake3::Hasher::new().update(&boot).update(space.as_os_str().as_bytes()).finalize();
    hash.to_hex()[..8].to_owned()
}

/// Removes the private folders that workers of this user have left here and that are killed.
pub(crate) fn sweep_up(vars: &Vars) {
    let (base, machine) = (base(vars), machine());
    let user = nix::unistd::getuid().as_raw();
    for name in disk::list(&base).unwrap_or_default() {
        let path = base.join(&name);
        let is_ours = || fs::symlink_metadata(&path).is_ok_and(|about| about.uid() == user);
        if is_left(&name, &machine) && is_ours() {
            disk::remove_tree(&path);
        }
    }
}

/// Whether a private folder of this name is of a process that is gone.
fn is_left(name: &str, here: &str) -> bool {
    let owner = name.strip_prefix("hpcsweep-").and_then(|name| name.split_once('.'));
    let mut parts = owner.map_or("", |(_, owner)| owner).split('.');
    let pid = parts.next().and_then(|pid| pid.parse::<i32>().ok());
    let started = parts.next().and_then(|started| started.parse::<u64>().ok());
    let is_here = parts.next() == Some(here) && parts.next().is_none();
    match (pid, started) {
        (Some(pid), Some(started)) if is_here => process::started(pid) != Some(started),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn metric_lines_are_taken_once_and_only_when_complete() {
        let tmp = tempfile::tempdir().unwrap();
        let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
        let mut scratch = Scratch::make(
            &vars,
            tmp.path(),
            3,
            &serde_json::from_value(serde_json::json!({"lr": 0.1})).unwrap(),
        )
        .unwrap();
        assert!(scratch.take_metrics(false).is_empty());
        let mut file = fs::File::create(scratch.metrics()).unwrap();
        file.write_all(b"{\"step\":1,\"loss\":0.5}\nnot json\n{\"step\":2,").unwrap();
        assert_eq!(
            serde_json::to_string(&scratch.take_metrics(false)).unwrap(),
            r#"[{"step":1,"loss":0.5},{"hpcsweep.unread_lines":1}]"#
        );
        assert_eq!(scratch.take_metrics(false).len(), 0);
        file.write_all(b"\"loss\":NaN,\"note\":\"a NaN\"}").unwrap();
        assert_eq!(scratch.take_metrics(false).len(), 0);
        let last = scratch.take_metrics(true);
        assert_eq!(
            serde_json::to_string(&last).unwrap(),
            r#"[{"step":2,"loss":"nan","note":"a NaN"}]"#
        );
        assert_eq!(
            scratch.complaints().unwrap(),
            "1 line of $HPCSWEEP_METRICS left out, no JSON object: not json"
        );
        drop(scratch);
        assert_eq!(disk::list(tmp.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn whatever_an_attempt_leaves_is_seen_and_removed_and_an_untouched_folder_is_kept_as_it_is() {
        let tmp = tempfile::tempdir().unwrap();
        let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
        let params = serde_json::from_value(serde_json::json!({"lr": 0.1})).unwrap();
        let mut scratch = Scratch::make(&vars, tmp.path(), 3, &params).unwrap();
        for (name, text) in [
            ("", ""),
            ("result.json", "7"),
            ("", ""),
            ("reason.txt", "no data"),
            ("metrics.jsonl", "{\"a\": 1}\n"),
            ("other", "x"),
            ("", ""),
        ] {
            if !name.is_empty() {
                fs::write(scratch.dir().join(name), text).unwrap();
            }
            scratch.close();
            assert_eq!(scratch.is_untouched, name.is_empty(), "{name}");
            let said = (
                scratch.take_result().map(|value| value.to_string()),
                scratch.take_reason(),
                serde_json::to_string(&scratch.take_metrics(true)).unwrap(),
            );
            let text_of = |of: &str| (name == of).then(|| text.to_owned());
            let rows = if name == "metrics.jsonl" { "[{\"a\":1}]" } else { "[]" };
            assert_eq!(said, (text_of("result.json"), text_of("reason.txt"), rows.to_owned()));
            scratch = scratch.again(&params).unwrap().unwrap();
            assert_eq!(disk::list(scratch.dir()).unwrap(), ["params.json"]);
        }
        // One that was removed is made anew.
        fs::remove_dir_all(scratch.dir()).unwrap();
        scratch.close();
        assert!(scratch.is_gone() && scratch.again(&params).unwrap().is_none());
    }
}
