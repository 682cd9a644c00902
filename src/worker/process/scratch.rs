//! The private folder of a running attempt on the node's own disk: the parameters as JSON, and the
//! files by which the program hands back metrics and a result. Removed when the attempt ends.

use std::fs::{self, DirBuilder};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::host::{Vars, clock, disk, process};
use crate::plan::Params;
use crate::words;
use crate::worker::process::lines::{Lines, one_line, parse_lenient};

/// Bytes of the largest result. It is a part of one line of a record, which readers have in memory.
const LARGEST_RESULT: u64 = 16 << 20;

/// The folder and what has been read of it so far.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    /// The folder's inode: another folder of the same name is not ours.
    inode: Option<u64>,
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
        let (lines, inode) = (Lines::of(dir.join("metrics.jsonl")), inode(&dir));
        let scratch = Self { lines, dir, inode, odd_result: None };
        let path = scratch.params();
        fs::write(&path, serde_json::to_vec(params)?)
            .map_err(|e| disk::fault("write", &path, &e))?;
        Ok(scratch)
    }

    /// The same folder for another attempt: what the one before has left there is removed.
    ///
    /// # Errors
    /// When the node's disk refuses.
    pub(crate) fn again(mut self, params: &Params) -> Result<Self> {
        for name in disk::list(&self.dir)? {
            let path = self.dir.join(name);
            if fs::remove_file(&path).is_err() {
                disk::remove_tree(&path);
            }
        }
        let path = self.params();
        fs::write(&path, serde_json::to_vec(params)?)
            .map_err(|e| disk::fault("write", &path, &e))?;
        self.lines = Lines::of(self.metrics());
        self.odd_result = None;
        Ok(self)
    }

    /// Whether the folder was removed: the program's files in it are gone with it.
    pub(crate) fn is_gone(&self) -> bool {
        self.inode.is_some() && inode(&self.dir) != self.inode
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
        one_line(&self.reason())
    }

    /// Why the helper could not carry the syncs to their end.
    pub(crate) fn why_uncarried(&self) -> String {
        let why = one_line(&self.file("sync-reason.txt"));
        format!("syncs over MPI: {}", why.unwrap_or_else(|| "the helper failed".to_owned()))
    }

    /// The metric lines that are complete and have not been taken yet; see [`Lines::take_counted`].
    pub(crate) fn take_metrics(&mut self, last: bool) -> Vec<Map<String, Value>> {
        self.lines.take_counted(last)
    }

    /// Whether the file has more than [`Self::take_metrics`] takes at a time.
    pub(crate) fn has_more_metrics(&self) -> bool {
        self.lines.has_more()
    }

    /// The final result, if the program left one that is JSON and no larger than a record may hold.
    pub(crate) fn take_result(&mut self) -> Option<Value> {
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
        let mut all = Vec::new();
        all.extend(self.lines.complaint().or_else(|| one_line(&self.odd())));
        if let Some(text) = &self.odd_result {
            all.push(format!("$HPCSWEEP_RESULT {text}"));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

fn inode(dir: &Path) -> Option<u64> {
    fs::symlink_metadata(dir).ok().map(|about| about.ino())
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
}
