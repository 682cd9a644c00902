//! The private folder of a running attempt on the node's own disk: the parameters as JSON, and the
//! files by which the program hands back metrics and a result. Removed when the attempt ends.

use std::fs::{self, DirBuilder};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value};

use super::lines::{Lines, one_line, open_plain, parse_lenient};
use crate::fault::Fault;
use crate::host::{Vars, clock, disk};
use crate::words;

/// The folder and what has been read of it so far.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
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
    pub fn make(vars: &Vars, sweep: &Path, trial: u64, params: &Value) -> Result<Self> {
        let dir = private_folder(vars, sweep, trial)?;
        let scratch = Self { lines: Lines::of(dir.join("metrics.jsonl")), dir, odd_result: None };
        let path = scratch.params();
        fs::write(&path, serde_json::to_vec(params)?)
            .map_err(|e| disk::fault("write", &path, &e))?;
        Ok(scratch)
    }

    /// The same folder for another attempt: what the one before has left there is removed.
    ///
    /// # Errors
    /// When the node's disk refuses.
    pub fn again(mut self, params: &Value) -> Result<Self> {
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

    /// The parameters, a JSON object.
    pub fn params(&self) -> PathBuf {
        self.dir.join("params.json")
    }

    /// Where the program appends JSON lines.
    pub fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.jsonl")
    }

    /// Where rank 0's helper appends the lines reduced over the ranks.
    pub fn reduced(&self) -> PathBuf {
        self.dir.join("reduced.jsonl")
    }

    /// Where the helper says which lines it left out.
    pub fn odd(&self) -> PathBuf {
        self.dir.join("sync-odd.txt")
    }

    /// A file of the worker's own in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// From now on lines are taken from those that are reduced over the ranks.
    pub fn follow_reduced(&mut self) {
        self.lines = Lines::of(self.reduced());
    }

    /// Where the program may leave its final result, one JSON value.
    pub fn result(&self) -> PathBuf {
        self.dir.join("result.json")
    }

    /// Where the program may say in one line why it failed.
    pub fn reason(&self) -> PathBuf {
        self.dir.join("reason.txt")
    }

    /// The first line of the reason, if the program gave one; at most 300 characters.
    pub fn take_reason(&self) -> Option<String> {
        one_line(&self.reason())
    }

    /// The same of the helper.
    pub fn take_helper_reason(&self) -> Option<String> {
        one_line(&self.file("sync-reason.txt"))
    }

    /// The metric lines that are complete and have not been taken yet; see [`Lines::take`].
    pub fn take_metrics(&mut self, last: bool) -> Vec<Map<String, Value>> {
        self.lines.take(last)
    }

    /// The final result, if the program left one that is JSON.
    pub fn take_result(&mut self) -> Option<Value> {
        let mut bytes = Vec::new();
        open_plain(&self.result())?.read_to_end(&mut bytes).ok()?;
        let result = parse_lenient(bytes.trim_ascii());
        if result.is_none() && !bytes.trim_ascii().is_empty() {
            self.odd_result = Some(words::short(&String::from_utf8_lossy(&bytes), 60));
        }
        result
    }

    /// What the program has left that could not be read, in words.
    pub fn complaints(&self) -> Option<String> {
        let mut all = Vec::new();
        all.extend(self.lines.complaint().or_else(|| one_line(&self.odd())));
        if let Some(text) = &self.odd_result {
            all.push(format!("$HPCSWEEP_RESULT left out, no JSON: {text}"));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Makes a folder for a trial under `$TMPDIR` (or `/tmp`) that this user alone may read.
///
/// # Errors
/// When the node's disk refuses.
pub(super) fn private_folder(vars: &Vars, sweep: &Path, trial: u64) -> Result<PathBuf, Fault> {
    // A TMPDIR that came along from the login node may not exist here.
    let named = vars.get("TMPDIR").map(|dir| Path::new(dir.as_str())).filter(|dir| dir.is_dir());
    let base = named.unwrap_or(Path::new("/tmp"));
    let dir = base.join(format!("{}{}", prefix(sweep, trial), clock::short_token()));
    DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|e| disk::fault("make the folder", &dir, &e))?;
    Ok(dir)
}

/// What the names of a trial's private folders begin with.
fn prefix(sweep: &Path, trial: u64) -> String {
    let hash = blake3::hash(sweep.as_os_str().as_bytes()).to_hex();
    format!("hpcsweep-{}-{trial}-", &hash[..8])
}

/// Removes what a killed worker of this trial has left on this node.
pub fn sweep_up(vars: &Vars, sweep: &Path, trial: u64) {
    let named = vars.get("TMPDIR").map(|dir| Path::new(dir.as_str())).filter(|dir| dir.is_dir());
    let base = named.unwrap_or(Path::new("/tmp"));
    let prefix = prefix(sweep, trial);
    for name in disk::list(base).unwrap_or_default() {
        if name.starts_with(&prefix) {
            disk::remove_tree(&base.join(name));
        }
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
        let mut scratch =
            Scratch::make(&vars, tmp.path(), 3, &serde_json::json!({"lr": 0.1})).unwrap();
        assert_eq!(scratch.take_metrics(false), vec![]);
        let mut file = fs::File::create(scratch.metrics()).unwrap();
        file.write_all(b"{\"step\":1,\"loss\":0.5}\nnot json\n{\"step\":2,").unwrap();
        assert_eq!(scratch.take_metrics(false).len(), 1);
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
