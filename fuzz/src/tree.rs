//! Files of the results tree: those of the stored sweeps in `tests/cases/tree-2`, of which one or several are replaced.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hpcsweep::answers::collect::steps::Steps;
use hpcsweep::answers::collect::{self, whole};
use hpcsweep::answers::watch::follow::Watcher;
use hpcsweep::answers::watch::whole::Asking;
use hpcsweep::plan::site;
use hpcsweep::sweep::status;
use hpcsweep::sweep::tree::damage::Damage;
use hpcsweep::sweep::tree::journal::{self, Journal};
use hpcsweep::sweep::tree::ledger::{self, Ledger};
use hpcsweep::sweep::tree::{Tree, bundle, deck, line, records, table, waves};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::seeds::ROOT;

/// A copy of a stored sweep.
struct Stored {
    folder: tempfile::TempDir,
    files: BTreeMap<String, Vec<u8>>,
    /// The files that are not as they were.
    changed: RefCell<Vec<String>>,
    /// What readers make of it as it is.
    good: OnceCell<BTreeMap<u64, Value>>,
}

/// The two stored sweeps.
#[derive(Clone, Copy)]
enum Sweep {
    /// Given to Slurm.
    Given,
    /// Run by an agent.
    Pulled,
}

impl Stored {
    fn copy(name: &str) -> Self {
        fn walk(folder: &Path, root: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(folder).expect("a stored sweep") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    walk(&path, root, files);
                } else {
                    let name =
                        path.strip_prefix(root).expect("it is below").to_str().expect("UTF-8");
                    files.insert(name.to_owned(), fs::read(&path).expect("a file"));
                }
            }
        }
        let mut files = BTreeMap::new();
        let root = Path::new(ROOT).join("tests/cases/tree-2").join(name);
        walk(&root, &root, &mut files);
        let folder = tempfile::tempdir().expect("a folder");
        let stored = Self { folder, files, changed: RefCell::default(), good: OnceCell::new() };
        for (name, bytes) in &stored.files {
            let path = stored.folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            stored.put(name, bytes);
        }
        stored
    }

    /// Puts bytes in the place of a file. Its writer has long gone.
    fn put(&self, name: &str, bytes: &[u8]) {
        let mut file = fs::File::create(self.folder.path().join(name)).expect("a file");
        file.write_all(bytes).expect("room for a file");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        file.set_modified(long_ago).expect("its time");
    }

    /// Whether the file ends at the end of a line, as if its writer had been killed then.
    fn may_have_been_killed(&self, name: &str, bytes: &[u8]) -> bool {
        let grows =
            ["records/", "journal/", "agents/"].iter().any(|folder| name.starts_with(folder));
        grows && self.files[name].starts_with(bytes) && (bytes.is_empty() || bytes.ends_with(b"\n"))
    }

    /// With other bytes in the place of some files; those that were changed before are as they were.
    fn with<T>(&self, others: &BTreeMap<&str, Vec<u8>>, look: impl FnOnce(&Tree) -> T) -> T {
        let mut changed = self.changed.borrow_mut();
        for name in changed.iter().filter(|name| !others.contains_key(name.as_str())) {
            self.put(name, &self.files[name]);
        }
        others.iter().for_each(|(name, bytes)| self.put(name, bytes));
        *changed = others.keys().map(|name| (*name).to_owned()).collect();
        look(&Tree::at(self.folder.path()))
    }
}

/// Calls `with` with a copy of a stored sweep.
fn stored<T>(sweep: Sweep, with: impl FnOnce(&Stored) -> T) -> T {
    thread_local! {
        static COPIES: [RefCell<Option<Stored>>; 2] = const { [const { RefCell::new(None) }; 2] };
    }
    let (place, name) = match sweep {
        Sweep::Given => (0, "given"),
        Sweep::Pulled => (1, "pulled"),
    };
    COPIES.with(|copies| {
        let mut copy = copies[place].borrow_mut();
        with(copy.get_or_insert_with(|| Stored::copy(name)))
    })
}

/// The lines of the bytes, each sealed anew where it is an object: so that readers believe it.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let body = match text.len().checked_sub(18) {
            Some(at) if text[at..].starts_with(b",\"crc\":\"") => &text[..at],
            _ => match text.strip_suffix(b"}") {
                Some(body) if body.len() > 1 => body,
                _ => {
                    out.extend_from_slice(line);
                    continue;
                }
            },
        };
        out.extend_from_slice(body);
        out.extend(format!(",\"crc\":\"{:08x}\"}}\n", crc32fast::hash(body)).bytes());
    }
    out
}

/// Puts the bytes in the place of a file as they are, and with their lines sealed.
fn replaced(sweep: Sweep, file: &str, bytes: &[u8], look: impl Fn(&Tree)) {
    stored(sweep, |stored| {
        let sealed = sealed(bytes);
        if sealed != bytes {
            stored.with(&BTreeMap::from([(file, bytes.to_vec())]), &look);
        }
        stored.with(&BTreeMap::from([(file, sealed)]), &look);
    });
}

/// Of several files the one that the first byte names.
fn one_of(sweep: Sweep, files: &[&'static str], bytes: &[u8], look: impl Fn(&Tree)) {
    if let [which, rest @ ..] = bytes {
        replaced(sweep, files[usize::from(*which) % files.len()], rest, look);
    }
}

/// A value that was read from sealed lines, sealed and read again is the same value.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    for text in sealed(bytes).split(|byte| *byte == b'\n') {
        if let Some(value) = line::unseal::<T>(text) {
            let mut written = line::seal(&value).expect("an object");
            written.pop();
            assert_eq!(line::unseal::<T>(&written), Some(value));
        }
    }
}

pub(crate) fn records(bytes: &[u8]) {
    again::<records::Event>(bytes);
    replaced(Sweep::Given, "records/000/0.1.jsonl", bytes, |tree| {
        let _ = records::all(tree);
        let Ok((record, _)) = records::of_trial(tree, 0) else { return };
        let _ = (record.outcome(), record.begun(), record.unread(), record.is_over(1));
        for attempt in &record.attempts {
            let _ = attempt.each_row(tree, |_| ());
            let _ = (attempt.why(), attempt.duration_s(), attempt.is_of_job("101"));
        }
    });
}

/// What an index has of a trial is read as it was written.
pub(crate) fn indexes(bytes: &[u8]) {
    let Some((record, packed)) = records::unpacked(bytes) else { return };
    let again = records::unpacked(&packed).map(|(record, _)| record);
    assert_eq!(format!("{again:?}"), format!("{:?}", Some(record)));
}

pub(crate) fn bundles(bytes: &[u8]) {
    again::<records::Event>(bytes);
    let (lines, length, _) = bundle::lines(bytes, 0);
    assert!(length <= bytes.len() as u64 && lines.len() <= bytes.len());
    let _ = bundle::log_begins(&lines, 0, 1, 0);
    replaced(Sweep::Pulled, "agents/4/n1-8134-ijiixz74.jsonl", bytes, |tree| {
        let _ = records::all(tree);
    });
}

/// The ledger of agents: each line is an entry.
pub(crate) fn ledgers(bytes: &[u8]) {
    again::<ledger::Entry>(bytes);
    let mut ledger = Ledger::default();
    for text in sealed(bytes).split(|byte| *byte == b'\n') {
        ledger.take(line::unseal(text).filter(ledger::Entry::is_sound));
        let _ = (ledger.stopped(), ledger.open(9), ledger.is_over(9), ledger.choose(9, 4));
        let _ = (ledger.is_undecided(0, 1), ledger.may_be_copied(0, 1));
    }
    let _: Vec<String> = ledger.agents.keys().map(|name| ledger.describe(name)).collect();
    replaced(Sweep::Pulled, "claims/000/000003.json", bytes, |tree| {
        if let Ok(mut ledger) = Ledger::read(tree) {
            let _ = ledger.damage(tree, &mut Damage::default());
        }
    });
}

pub(crate) fn journals(bytes: &[u8]) {
    again::<journal::Entry>(bytes);
    replaced(Sweep::Given, "journal/0001.jsonl", bytes, |tree| {
        let Ok(journal) = Journal::read(tree) else { return };
        let _ = (journal.held().count(), journal.is_cancelled(1, 0), journal.job(1));
    });
}

pub(crate) fn tables(bytes: &[u8]) {
    let files = [
        "trials/000000000000.jsonl",
        "trials/000000000000.json",
        "trials/000000000000.idx",
        "trials/000000000000.keys",
    ];
    one_of(Sweep::Given, &files, bytes, |tree| {
        let _ = table::readable(tree, &mut Damage::default());
        let _ = (table::rows(tree), table::keys(tree), table::count(tree));
        for id in [0, 3, 4] {
            if let Ok((_, row)) = table::find(tree, id) {
                let _ = (row.task_text(), row.params.clone());
            }
        }
        if let Ok(heads) = table::heads(tree) {
            let _ = table::some(tree, &heads, &[3, 0, 2]);
        }
    });
}

pub(crate) fn waves_of(bytes: &[u8]) {
    again::<waves::Wave>(bytes);
    one_of(Sweep::Given, &["waves/0001.json", "waves/0001.map"], bytes, |tree| {
        for (wave, map) in waves::readable(tree, &mut Damage::default()).unwrap_or_default() {
            for array in &wave.arrays {
                let _ = (array.trials(&map).len(), array.requests());
                let _ = array.places(&map).take(99).count();
            }
        }
        let _ = waves::read(tree);
        let _ = (waves::element(tree, 1, 0), waves::element(tree, 1, 9));
    });
}

pub(crate) fn decks(bytes: &[u8]) {
    let files = ["pull/0001.json", "pull/0001.map", "pull/0001.units"];
    one_of(Sweep::Pulled, &files, bytes, |tree| {
        let _ = deck::damage(tree, &mut Damage::default());
        if let Ok(decks) = deck::read(tree) {
            let _ = deck::total(&decks);
            let _ = (deck::units(tree, &decks, 0, 2), deck::units(tree, &decks, 1, 9));
        }
    });
}

/// What all readers make of a sweep: trials with what is recorded of them, and how many files are damaged.
fn seen(tree: &Tree) -> Result<(BTreeMap<u64, Value>, usize), String> {
    let say = |error: anyhow::Error| error.to_string();
    let open = || Tree::open(tree.dir()).map_err(say);
    let (tree, identity) = open()?;
    let mut watcher = Watcher::new(
        tree.clone(),
        identity.clone(),
        Asking { site: site::Site::default(), vars: BTreeMap::new(), may_ask: false },
    );
    let _ = watcher.look(Duration::from_secs(1)).map(|_| watcher.frame(2e9));
    let status = status::read(tree, identity, None).map_err(say)?;
    let damaged = status.damage.len();
    let mut lines = Vec::new();
    whole::lines(&status, None, |line| {
        lines.extend(serde_json::from_slice::<Value>(line));
        Ok(())
    })
    .map_err(say)?;
    let (tree, identity) = open()?;
    let steps = Steps::new(vec![status::read(tree, identity, None).map_err(say)?]).map_err(say)?;
    steps.each(|_| Ok(())).map_err(say)?;
    let table = collect::collect(vec![status]).map_err(say)?;
    let rows = table.rows.iter().zip(lines).map(|(row, line)| {
        let cells = table.cells(row).into_iter();
        let cells = cells.map(|(c, cell)| (table.columns[c].clone(), cell.value()));
        (row.trial, json!([cells.collect::<BTreeMap<String, Value>>(), line]))
    });
    Ok((rows.collect(), damaged))
}

/// The whole tree: any file replaced, as it is or sealed. Groups of `file, length, bytes`.
pub(crate) fn trees(bytes: &[u8]) {
    let [sweep, rest @ ..] = bytes else { return };
    stored(if sweep % 2 == 0 { Sweep::Given } else { Sweep::Pulled }, |stored| {
        let names: Vec<&str> = stored.files.keys().map(String::as_str).collect();
        let mut others = BTreeMap::new();
        let mut rest = rest;
        while let [file, high, low, more @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
            let (text, behind) = more.split_at(length);
            let text = if file & 0x80 == 0 { sealed(text) } else { text.to_vec() };
            others.insert(names[usize::from(file & 0x7f) % names.len()], text);
            rest = behind;
        }
        let _ = stored.with(&others, seen);
    });
}

/// States of trials that have not ended, and of those whose end is not known.
const OPEN: [&str; 5] = ["interrupted", "running", "queued", "pending", "lost"];

/// Flipped bits and cuts: readers return the same as before, or report damage. Four bytes an edit: a file, where in it
/// (two), and the bit; with 64 added to the file it is cut there instead.
pub(crate) fn damage(bytes: &[u8]) {
    let [sweep, edits @ ..] = bytes else { return };
    stored(if sweep % 2 == 0 { Sweep::Given } else { Sweep::Pulled }, |stored| {
        let is_checked = |name: &&str| !name.starts_with("logs/") && !name.ends_with(".log");
        let names: Vec<&str> = stored.files.keys().map(String::as_str).filter(is_checked).collect();
        let mut others: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for edit in edits.chunks_exact(4).take(4) {
            let name = names[usize::from(edit[0] & 0x3f) % names.len()];
            let bytes = others.entry(name).or_insert_with(|| stored.files[name].clone());
            let at = usize::from(u16::from_be_bytes([edit[1], edit[2]]));
            match bytes.len() {
                0 => {}
                length if edit[0] & 0x40 == 0 => bytes[at % length] ^= 1 << (edit[3] % 8),
                length => bytes.truncate(at % length),
            }
        }
        others.retain(|name, bytes| stored.files[*name] != *bytes);
        let good = stored.good.get_or_init(|| {
            let seen = stored.with(&BTreeMap::new(), seen).expect("the stored sweep is whole");
            assert_eq!(seen.1, 0, "the stored sweep is whole");
            seen.0
        });
        let Ok((rows, 0)) = stored.with(&others, seen) else { return };
        if others.iter().any(|(name, bytes)| stored.may_have_been_killed(name, bytes)) {
            for (trial, row) in
                rows.iter().filter(|(trial, row)| lasting(row) != lasting(&good[*trial]))
            {
                let state = row[0]["state"].as_str().unwrap_or_default();
                assert!(OPEN.contains(&state), "{:?}: trial {trial} is {state}", others.keys());
            }
            return;
        }
        assert_eq!(rows, *good, "{:?} change what is read, and nobody says so", others.keys());
    });
}

/// A trial without what a lost end of an earlier run changes.
fn lasting(row: &Value) -> Value {
    let mut row = row.clone();
    for part in row.as_array_mut().into_iter().flatten() {
        part.as_object_mut().and_then(|part| part.remove("duration_s"));
    }
    row
}
