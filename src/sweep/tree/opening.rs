//! Opens a sweep that is there to readers who were none when it was made.

use std::path::Path;

use anyhow::Result;

use super::{Tree, table};
use crate::base::host::access::Readers;
use crate::base::host::opening;

/// Opens what this program has made in a sweep's folder, but nothing private, and nothing that the programs of trials have made.
///
/// # Errors
/// When the tables of trials cannot be read, or a mode not be changed.
pub(super) fn open(tree: &Tree, readers: Readers) -> Result<()> {
    if readers == Readers::Owner {
        return Ok(());
    }
    let heads = table::heads(tree)?;
    let is_trained = |trial: u64| {
        let head = heads.iter().rfind(|head| head.first <= trial);
        head.is_some_and(|head| head.run.train.is_some())
    };
    opening::open_below(tree.dir(), readers, |path, is_folder| {
        is_for_readers(path, is_folder, is_trained)
    })
}

/// Whether a file or folder of a sweep is for those who may read the sweep.
fn is_for_readers(path: &Path, is_folder: bool, is_trained: impl Fn(u64) -> bool) -> bool {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        ["meet", ..] => false,
        ["jobs", name] => !name.trim_start_matches('.').starts_with("env-"),
        ["work", million, below @ ..] if million.starts_with('m') => {
            is_in_work(below, is_folder, is_trained)
        }
        ["work", below @ ..] => is_in_work(below, is_folder, is_trained),
        _ => true,
    }
}

fn is_in_work(names: &[&str], is_folder: bool, is_trained: impl Fn(u64) -> bool) -> bool {
    match names {
        [] | [_] | [_, _] | [_, _, "checkpoint"] if is_folder => true,
        [_, trial, _, ..] => trial.parse().is_ok_and(is_trained),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_and_what_programs_have_made_is_not_opened() {
        let check = |path: &str, is_folder: bool, expected: bool| {
            let found = is_for_readers(Path::new(path), is_folder, |trial| trial >= 7);
            assert_eq!(found, expected, "{path}");
        };
        check("sweep.json", false, true);
        check("records/000/5.1.jsonl", false, true);
        check("jobs", true, true);
        check("jobs/0001.sh", false, true);
        check("jobs/env-0123456789ab.sh", false, false);
        check("jobs/.env-0123456789ab.sh.abcdefgh.tmp", false, false);
        check("meet", true, false);
        check("meet/12.json", false, false);
        for folder in ["work", "work/000", "work/000/5", "work/000/5/checkpoint", "work/m1/000/5"] {
            check(folder, true, true);
        }
        check("work/m1/000/1000005/checkpoint", true, true);
        check("work/000/5/model", false, false);
        check("work/000/5/checkpoint", false, false);
        check("work/000/5/own", true, false);
        check("work/000/5/checkpoint/last", false, false);
        check("work/000/7/checkpoint/last", false, true);
        check("work/m1/000/1000005/model.safetensors", false, true);
    }
}
