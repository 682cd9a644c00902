//! The results tree: all state and all results of a sweep, as files that `jq` and `less` can read.
//!
//! One writer a file, append-only or written aside and renamed; what must be exclusive is one
//! exclusive creation. `docs/results-tree.md` describes every file. This module knows where things
//! lie; the modules below it know what is in them.

pub mod bundle;
pub(crate) mod code;
pub mod damage;
pub mod deck;
pub(crate) mod due;
pub(crate) mod export;
pub mod journal;
pub mod key;
pub(crate) mod keys;
pub mod ledger;
pub mod line;
pub mod lock;
pub(crate) mod memo;
pub(crate) mod numbers;
mod opening;
mod plan;
pub mod records;
pub(crate) mod requests;
pub(crate) mod rulings;
pub(crate) mod shard;
pub mod table;
pub(crate) mod terms;
pub mod waves;
pub(crate) mod whole;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;
use crate::base::host::access::{self, Access, Found, Part, Readers, Shared};
use crate::base::host::{clock, disk};
use crate::plan::author::Author;
use memo::Memo;

/// The format of what this program writes. It reads this one and format 1, in which documents, rows and numbers
/// have no checksums.
pub const FORMAT: u32 = 2;

/// The format of a document that does not say it.
pub(crate) fn first_format() -> u32 {
    1
}

/// A sweep's folder, by its absolute path. The folder need not exist.
#[derive(Debug, Clone)]
pub struct Tree {
    dir: PathBuf,
    /// What was read of its tables, where that is remembered.
    memo: Option<Memo>,
}

/// `sweep.json`: the identity of a sweep's folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// Format of the tree.
    pub(crate) format: u32,
    /// The sweep's name, `[sweep] name` of its plan.
    pub(crate) name: String,
    /// Eight characters that distinguish this sweep from any other; part of every job name.
    pub token: String,
    /// When it was made, unix seconds.
    pub(crate) created: f64,
    /// The program's version that made it.
    pub(crate) version: String,
    /// Which users may write to it besides the one who made it.
    #[serde(default)]
    pub(crate) shared: Shared,
    /// Which users may read it besides that one; the umask decides if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) readable_by: Option<Readers>,
}

impl Identity {
    /// That of a new sweep.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            format: FORMAT,
            name: name.to_owned(),
            token: clock::short_token(),
            created: clock::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            shared: Shared::No,
            readable_by: None,
        }
    }

    /// The users who share it with the one who made it.
    pub(crate) fn access(&self) -> Access {
        Access { shared: self.shared, readers: self.readable_by }
    }
}

/// The contents of a sweep's folder that decide what jobs run.
const TRUSTED: [Part; 12] = [
    Part::File("sweep.json"),
    Part::File("plan.toml"),
    Part::FolderOfFiles("plans"),
    Part::FolderOfFiles("trials"),
    Part::FolderOfFiles("waves"),
    Part::FolderOfFiles("journal"),
    Part::FolderOfFiles("jobs"),
    Part::FolderOfFiles("code"),
    Part::FolderOfFiles("pull"),
    Part::Folder("claims"),
    Part::Folder("agents"),
    Part::Folder("records"),
];

impl Tree {
    /// The tree in a folder, whether it exists or not. The path is made absolute.
    pub fn at(dir: &Path) -> Self {
        Self { dir: disk::absolute(dir), memo: None }
    }

    /// The same for a submission that remembers what it has read of the tables.
    #[must_use]
    pub(crate) fn with(self, memo: &Memo) -> Self {
        Self { memo: Some(memo.clone()), ..self }
    }

    /// The same for a process that outlives a submission.
    pub(crate) fn anew(&self) -> Self {
        Self { dir: self.dir.clone(), memo: None }
    }

    /// Forgets what was read of the tables: others may have changed the sweep until now.
    pub(in crate::sweep::tree) fn forget(&self) {
        self.memo.iter().for_each(Memo::clear);
    }

    /// An existing sweep.
    ///
    /// # Errors
    /// When the folder is not a sweep, or one of a format this program does not read.
    pub fn open(dir: &Path) -> Result<(Self, Identity)> {
        let tree = Self::at(dir);
        match tree.identity()? {
            Some(identity) => Ok((tree, identity)),
            None if !dir.exists() => {
                Err(Fault::request(format!("no sweep was submitted to `{}`", dir.display()))
                    .hint("`hpcsweep submit` makes the folder <root>/<sweep name>")
                    .into())
            }
            None => Err(Fault::request(format!(
                "`{}` is not a sweep: it has no `sweep.json`",
                dir.display()
            ))
            .hint("name the folder that `hpcsweep submit` made: <root>/<sweep name>")
            .into()),
        }
    }

    /// `sweep.json`, or `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read or is of another format.
    pub(crate) fn identity(&self) -> Result<Option<Identity>> {
        Ok(self.found_identity()?.map(|(identity, _)| identity))
    }

    /// As [`Self::identity`], with what the system says of the file.
    fn found_identity(&self) -> Result<Option<(Identity, Found)>> {
        let path = self.dir.join("sweep.json");
        let Some((bytes, found)) = disk::read_found(&path)? else { return Ok(None) };
        // Before its seal: another version may seal it in another way.
        if let Ok(Formed { format }) = serde_json::from_slice(&bytes)
            && !(1..=FORMAT).contains(&format)
        {
            let sentence = format!(
                "`{}` has results of format {format}; this hpcsweep reads formats 1 to {FORMAT}",
                self.dir.display(),
            );
            return Err(Fault::request(sentence).hint("use the version that made it").into());
        }
        let identity: Identity = document(&bytes, &path)?;
        // It becomes a folder, beside that of the sweep.
        if !crate::plan::is_name(&identity.name) {
            let sentence = format!("`{}` names no sweep", path.display());
            return Err(Fault::request(sentence).hint("no hpcsweep has written this name").into());
        }
        Ok(Some((identity, found)))
    }

    /// Refuses another sweep than that with this token, which may have come into the folder since a job was submitted. A folder
    /// without a sweep is none of these.
    ///
    /// # Errors
    /// When it is another sweep.
    pub(crate) fn is_of(&self, token: &str) -> Result<()> {
        match self.identity() {
            Ok(Some(own)) if own.token != token => {
                let dir = self.dir.display();
                let sentence = format!(
                    "this job was submitted for another sweep than the one that is in `{dir}` now"
                );
                let hint = "the sweep of the job was moved or removed; what it has still to run: submit it where it is";
                Err(Fault::request(sentence).hint(hint).into())
            }
            _ => Ok(()),
        }
    }

    /// Makes the sweep's folder if it is missing, and ensures that only users who share the sweep can have written its
    /// contents. Called before anything of a sweep is run or changed.
    ///
    /// # Errors
    /// When the disk refuses, or another user has made or may change what is there.
    pub(crate) fn secure(&self, access: Access) -> Result<()> {
        access::make_for(access);
        disk::make_dir(&self.dir)?;
        self.check_access(access.shared)?;
        match access::top_mode(access) {
            Some(mode) if access::is_own(&self.dir) => disk::set_mode(&self.dir, mode),
            _ => Ok(()),
        }
    }

    /// Before anything of a sweep that is there is run: refuses what others may have written, unless they share it. What
    /// this process makes from now on is for those who have the sweep.
    ///
    /// # Errors
    /// As [`Self::check_access`].
    pub(crate) fn trust(&self) -> Result<()> {
        let (access, found) = self.access();
        self.check_parts(access.shared, found.as_ref())?;
        access::make_for(access);
        Ok(())
    }

    /// As [`Self::trust`], for who holds, releases or cancels it.
    ///
    /// # Errors
    /// As [`Self::check_change`].
    pub(crate) fn trust_to_change(&self) -> Result<()> {
        let (access, _) = self.access();
        self.check_change(access.shared)?;
        access::make_for(access);
        Ok(())
    }

    /// The users who have this sweep, with what the system says of `sweep.json`. Those who share it are taken from a source that
    /// can be trusted: a stranger's folder says what the stranger wants, but the plan or an option of this user may have set it.
    fn access(&self) -> (Access, Option<Found>) {
        let (identity, found) = self.found_identity().ok().flatten().unzip();
        let readers = identity.as_ref().and_then(|own: &Identity| own.readable_by);
        let is_own = found.as_ref().is_some_and(access::is_trusted);
        let by_identity = identity.filter(|_| is_own).map_or(Shared::No, |own| own.shared);
        let shared = if access::is_shared() { Shared::Group } else { by_identity };
        (Access { shared, readers }, found)
    }

    /// Refuses a sweep that this user may not change.
    ///
    /// # Errors
    /// As [`Self::check_access`], and when its folder cannot be written.
    pub(crate) fn check_change(&self, shared: Shared) -> Result<()> {
        self.check_access(shared)?;
        lock::Lock::check(self)
    }

    /// Refuses a sweep that another user has made or may change, or has closed for this one to write to; from now on also what is
    /// used of its contents ([`access::guard`]).
    ///
    /// # Errors
    /// When there is such a file or folder, with its path.
    pub(crate) fn check_access(&self, shared: Shared) -> Result<()> {
        self.check_parts(shared, None)
    }

    /// As [`Self::check_access`]; `identity`: what the system says of `sweep.json`, if that was read.
    fn check_parts(&self, shared: Shared, identity: Option<&Found>) -> Result<()> {
        access::check_top(&self.dir, shared)?;
        let path = self.dir.join("sweep.json");
        match identity {
            Some(found) => access::judge(&path, found, shared)?,
            None => access::check(&path, shared)?,
        }
        access::guard(&self.dir, shared, &TRUSTED);
        Ok(())
    }

    /// Whether `sweep.json` names these users; true if there is none that this user can trust.
    ///
    /// # Errors
    /// As [`Self::identity`].
    pub(crate) fn is_for(&self, access: Access) -> Result<bool> {
        let identity = self.identity()?.filter(|_| access::is_own(&self.dir.join("sweep.json")));
        Ok(identity.is_none_or(|identity| identity.access() == access))
    }

    /// Makes `sweep.json` unless it exists. The caller holds the lock: of two that came at once, each would believe in
    /// a token of its own. Existing files are opened to new readers.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn create(&self, name: &str, access: Access) -> Result<Identity> {
        let Access { shared, readers: readable_by } = access;
        let path = self.dir.join("sweep.json");
        if let Some(identity) = self.identity()? {
            // From now on, files are written in a format that older programs cannot read.
            let is_new = identity.access() != access || identity.format != FORMAT;
            let had = identity.readable_by;
            let changed = Identity { shared, readable_by, format: FORMAT, ..identity };
            if is_new && access::is_own(&path) {
                if let Some(readers) = readable_by.filter(|_| had != readable_by) {
                    opening::open(self, readers)?;
                }
                // Last: a submission that is killed before it is followed by one that opens everything.
                write_document(&path, &changed)?;
            }
            return Ok(changed);
        }
        whole::check(self)?;
        let identity = Identity { shared, readable_by, ..Identity::new(name) };
        write_document(&path, &identity)?;
        Ok(identity)
    }

    /// The author of the plan that was submitted last.
    pub(crate) fn author(&self) -> Author {
        let text = disk::read_if_there(&self.plan()).ok().flatten();
        text.as_deref().map_or_else(Author::default, Author::from_text)
    }

    /// The sweep's folder as a word of a command to copy.
    pub(crate) fn named(&self) -> String {
        disk::named(&self.dir)
    }

    /// The sweep's folder, absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The plan as last submitted.
    pub(crate) fn plan(&self) -> PathBuf {
        self.dir.join("plan.toml")
    }

    /// Keeps the plan that is submitted.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn write_plan(&self, text: &str) -> Result<()> {
        disk::write_whole(&self.plan(), as_kept(text).as_bytes())
    }

    /// Whether the plan that was submitted last is this one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn is_plan(&self, text: &str) -> Result<bool> {
        let kept = disk::read_small_if_there(&self.plan())?;
        Ok(kept.is_some_and(|kept| kept == as_kept(text).as_bytes()))
    }

    /// Whether the plan that was submitted last is as it was; a tree of format 1 does not know.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn check_plan(&self, format: u32, damage: &mut damage::Damage) -> Result<()> {
        let Some(bytes) = disk::read_small_if_there(&self.plan())? else { return Ok(()) };
        let text = String::from_utf8_lossy(&bytes);
        let is_whole = plan::unsealed(&text).map_or(format == 1, |(_, is_whole)| is_whole);
        damage.add("plan.toml", u64::from(!is_whole));
        Ok(())
    }

    /// The text of the plan that was submitted last.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or is damaged.
    pub(crate) fn stored_plan(&self) -> Result<String> {
        let path = self.plan();
        let text = disk::read(&path)?;
        match plan::unsealed(&text) {
            Some((lines, true)) => Ok(lines.to_owned()),
            _ => Err(numbers::damaged(&path).into()),
        }
    }

    /// The plan that added the trials of the table that begins at `first`.
    pub(crate) fn plan_of(&self, first: u64) -> PathBuf {
        self.dir.join(format!("plans/{first:012}.toml"))
    }

    /// A job script of this name.
    pub(crate) fn script(&self, name: &str) -> PathBuf {
        self.dir.join("jobs").join(name)
    }

    /// The script that prepares a trial's environment, of the table that begins at `first`.
    pub(crate) fn setup_script(&self, first: u64) -> PathBuf {
        self.dir.join(format!("jobs/setup-{first:012}.sh"))
    }

    /// The record file of a trial's run.
    pub fn record(&self, trial: u64, run: u32) -> PathBuf {
        self.dir.join(format!("records/{}/{trial}.{run}.jsonl", shard(trial)))
    }

    /// The log of a trial's run.
    pub(crate) fn log(&self, trial: u64, run: u32) -> PathBuf {
        self.dir.join(format!("logs/{}/{trial}.{run}.log", shard(trial)))
    }

    /// The output of the scheduler and the launcher for an element, if there is any.
    pub(crate) fn job_log(&self, array: u32, index: u64) -> PathBuf {
        self.dir.join(format!("logs/jobs/{array:04}/{index}.log"))
    }

    /// A file of an agent.
    pub(crate) fn agent_file(&self, agent: &str, ending: &str) -> PathBuf {
        let shard = agent.chars().last().unwrap_or('_');
        self.dir().join(format!("agents/{shard}/{agent}.{ending}"))
    }

    /// The trial's own folder.
    pub(crate) fn work(&self, trial: u64) -> PathBuf {
        self.dir.join(format!("work/{}/{trial}", shard(trial)))
    }

    /// The trial's folder for checkpoints, the same for every attempt.
    pub(crate) fn checkpoints(&self, trial: u64) -> PathBuf {
        self.work(trial).join("checkpoint")
    }
}

/// A plan as the tree keeps it, with its seal.
fn as_kept(text: &str) -> String {
    plan::sealed(as_written(text))
}

/// A plan without the seal of a tree, if it has one.
pub(crate) fn as_written(text: &str) -> &str {
    plan::unsealed(text).map_or(text, |(text, _)| text)
}

/// The sub-folder of a trial, so that no folder holds more than about a thousand entries.
pub(crate) fn shard(trial: u64) -> String {
    let thousands = trial / 1000;
    if thousands < 1000 {
        format!("{thousands:03}")
    } else {
        format!("m{}/{:03}", thousands / 1000, thousands % 1000)
    }
}

/// One JSON document and a newline.
///
/// # Errors
/// When the value cannot be JSON (our bug).
pub(crate) fn to_json_line<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The format of a document, from its head.
#[derive(Deserialize)]
struct Formed {
    #[serde(default = "first_format")]
    format: u32,
}

/// Writes a document of the tree: one sealed line. It has its `format` as a member.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write_document<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let bytes = line::seal(value).map_err(|e| disk::fault("write", path, &e))?;
    disk::write_whole(path, &bytes)
}

/// Reads a document of the tree.
///
/// # Errors
/// When it is not what this program has written, with the path.
pub(crate) fn document<T: serde::de::DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T> {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let damaged = |why: &str| {
        Fault::machine(format!("`{}` is damaged: {why}", path.display()))
            .hint("restore the file from a backup; the plan and the other files of the sweep are not touched")
    };
    if !line::is_sealed(whole) {
        let unsealed: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(whole).map_err(|e| damaged(&e.to_string()))?;
        let format = unsealed.get("format").map_or(Some(1), serde_json::Value::as_u64);
        if format != Some(1) || unsealed.contains_key("crc") {
            return Err(damaged("its checksum does not match").into());
        }
    }
    serde_json::from_slice(whole).map_err(|e| damaged(&e.to_string()).into())
}

/// Reads a document of the tree from its file.
///
/// # Errors
/// As [`document`], and when it cannot be read.
pub(crate) fn read_document<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    document(&disk::read_small(path)?, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hold_a_thousand_trials_each() {
        let check = |trial, expected: &str| assert_eq!(shard(trial), expected);
        check(0, "000");
        check(999, "000");
        check(1000, "001");
        check(999_999, "999");
        check(1_000_000, "m1/000");
        check(12_345_678, "m12/345");
    }
}
