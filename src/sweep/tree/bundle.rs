//! Bundles: what an agent records of all its trials, in one file, and what they print, in another:
//! `agents/<c>/<agent>.jsonl` and `.log`, where `<c>` is the last character of the agent's name.
//!
//! Lines are those of [`super::records`], shorter: what all attempts of an agent share stands in its first
//! line. How long the file had been when a line ended decides whether the line counts (see
//! [`super::ledger`]).

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom};

use anyhow::Result;

use super::Tree;
use super::damage::Damage;
use super::keys::Keys;
use super::ledger::Ledger;
use super::line;
use super::records::{self, Event, Record, Start, Who};
use crate::base::host::disk;

/// A line with the length of the file at its end.
pub(crate) type Placed = (u64, Event);

/// Makes the bundle of a new agent, with its first line.
///
/// # Errors
/// When the disk refuses, or there is such a file.
pub fn create(tree: &Tree, who: &Who) -> Result<line::Writer> {
    let path = tree.agent_file(&who.agent, "jsonl");
    if let Some(shard) = path.parent() {
        disk::make_folder(shard)?;
    }
    let file = disk::create_exclusive(&path)?.ok_or_else(|| {
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        disk::fault("create", &path, &taken)
    })?;
    let mut writer = line::Writer::new(file, path, 0);
    let first = writer.append(&Event::Agent(who.clone()));
    first.map_err(|e| disk::fault("write", writer.path(), &e))?;
    Ok(writer)
}

/// All whole lines of a bundle's bytes from `from` on, the length of what has been read as whole lines, and how
/// many were torn.
pub fn lines(bytes: &[u8], from: u64) -> (Vec<Placed>, u64, usize) {
    let (mut all, mut at, mut torn) = (Vec::new(), from, 0);
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|&b| b == b'\n') {
        at += end as u64 + 1;
        match line::unseal(&rest[..end]) {
            Some(line) => all.push((at, line)),
            None if end == 0 => {}
            None => torn += 1,
        }
        rest = &rest[end + 1..];
    }
    (all, at, torn)
}

/// The whole lines of an agent's bundle from `from` on, and the length that has been read of it; nothing if there is no
/// such file. Lines of metrics, which alone may be many, are skipped.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn deeds(tree: &Tree, agent: &str, from: u64) -> Result<(Vec<Placed>, u64)> {
    let path = tree.agent_file(agent, "jsonl");
    let (mut all, mut size) = (Vec::new(), from);
    let mut read = || -> io::Result<()> {
        let mut file = disk::open_plain(&path)?;
        file.seek(SeekFrom::Start(from))?;
        line::each(file, |spot, line| {
            size = from + spot.end();
            if !records::has_metrics(line) {
                all.extend(line::unseal(line).map(|line| (size, line)));
            }
        })?;
        Ok(())
    };
    match read() {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(disk::fault("read", &path, &e).into()),
        _ => Ok((all, size)),
    }
}

/// Where the output of an attempt that runs begins in the log of its slot: behind that of the attempt before
/// it there.
pub fn log_begins(lines: &[Placed], trial: u64, attempt: u32, slot: u32) -> u64 {
    let mut in_slot: HashMap<(u64, u32), u32> = HashMap::new();
    let mut from = 0;
    for (_, line) in lines {
        match line {
            Event::Start(Start { trial: t, attempt: a, slot: s, .. }) => {
                let s = s.unwrap_or(0);
                in_slot.insert((*t, *a), s);
                if (*t, *a, s) == (trial, attempt, slot) {
                    return from;
                }
            }
            Event::End(end) if in_slot.get(&(end.trial, end.attempt)) == Some(&slot) => {
                from = end.log.map_or(from, |(at, len)| at.saturating_add(len));
            }
            _ => {}
        }
    }
    from
}

/// The names of all agents that have a bundle.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn agents(tree: &Tree) -> Result<Vec<String>> {
    let root = tree.dir().join("agents");
    let mut all = Vec::new();
    for shard in disk::list(&root)? {
        let names = disk::list(&root.join(shard))?;
        all.extend(names.iter().filter_map(|n| n.strip_suffix(".jsonl")).map(str::to_owned));
    }
    Ok(all)
}

/// Adds what all bundles say, as far as it counts, to the records of trials, and to `damage` which lines were left out.
///
/// # Errors
/// When a bundle cannot be read.
pub fn readable(
    tree: &Tree,
    ledger: &Ledger,
    records: &mut HashMap<u64, Record>,
    damage: &mut Damage,
) -> Result<()> {
    records::of_bundles(tree, (ledger, &Keys::all(tree)?), records, damage)
}

/// The bundle of an agent as messages name it.
pub fn name(agent: &str) -> String {
    format!("agents/{}/{agent}.jsonl", agent.chars().last().unwrap_or('_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tree::ledger::Entry;
    use crate::sweep::tree::records::{End, Outcome, Source};

    fn end(trial: u64, state: Outcome) -> Event {
        Event::End(End {
            trial,
            attempt: 1,
            time: 2.0,
            state,
            exit_code: Some(0),
            signal: None,
            cause: None,
            reason: None,
            duration_s: 1.0,
            peak_memory: 0,
            usage: None,
            result: Some(serde_json::json!(trial)),
            log: Some((3, 4)),
            last: true,
            seq: None,
        })
    }

    /// A ledger that knows these agents.
    fn of_agents(names: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        for agent in names.iter().map(|name| (*name).to_owned()) {
            let (nonce, host, slots) = (String::new(), "n".to_owned(), 1);
            let cores = Vec::new();
            ledger.take(Some(Entry::Join { agent, nonce, host, slots, cores, job: None }));
        }
        ledger
    }

    fn start(trial: u64) -> Event {
        let argv = vec!["true".to_owned()];
        Event::Start(Start {
            trial,
            attempt: 1,
            time: 1.0,
            slot: Some(0),
            seq: 0,
            argv,
            ..Start::default()
        })
    }

    #[test]
    fn what_a_fenced_agent_wrote_too_late_is_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        crate::sweep::tree::ledger::prepare(&tree).unwrap();
        let who = Who { agent: "n1-a".into(), host: "n1".into(), ..Who::default() };
        let mut writer = create(&tree, &who).unwrap();
        for line in [start(0), end(0, Outcome::Done), start(1)] {
            writer.push(&line).unwrap();
        }
        writer.flush().unwrap();
        let size = std::fs::metadata(writer.path()).unwrap().len();
        writer.push(&end(1, Outcome::Done)).unwrap();
        writer.flush().unwrap();
        let mut ledger = of_agents(&["n1-a"]);
        let outcomes = |ledger: &Ledger| {
            let mut records = HashMap::new();
            readable(&tree, ledger, &mut records, &mut Damage::default()).unwrap();
            [0, 1].map(|trial| records[&trial].outcome())
        };
        assert_eq!(outcomes(&ledger), [Some(Outcome::Done), Some(Outcome::Done)]);
        ledger.take(Some(Entry::Expire {
            agent: "n1-a".into(),
            nonce: String::new(),
            by: "n2".into(),
            size,
            units: vec![],
            unbegun: vec![],
        }));
        assert_eq!(outcomes(&ledger), [Some(Outcome::Done), Some(Outcome::Interrupted)]);
    }

    /// The bundle of an agent that ran trial 0 when it had read `seq` entries, by its own clock at `time`.
    fn ran(tree: &Tree, agent: &str, seq: u64, time: f64, attempt: u32, state: Outcome) {
        let who = Who { agent: agent.to_owned(), ..Who::default() };
        let mut writer = create(tree, &who).unwrap();
        let argv = Vec::new();
        let start = Event::Start(Start {
            trial: 0,
            attempt,
            time,
            slot: Some(0),
            seq,
            argv,
            ..Start::default()
        });
        let Event::End(end) = end(0, state) else { unreachable!("made above") };
        for line in [start, Event::End(End { attempt, ..end })] {
            writer.push(&line).unwrap();
        }
        writer.flush().unwrap();
    }

    #[test]
    fn attempts_are_in_the_order_of_the_ledger_whatever_clocks_and_numbers_say() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        crate::sweep::tree::ledger::prepare(&tree).unwrap();
        ran(&tree, "n1-c", 3, 900.0, 2, Outcome::Failed);
        ran(&tree, "n2-b", 7, 500.0, 1, Outcome::Timeout);
        ran(&tree, "n3-a", 5, 100.0, 3, Outcome::Interrupted);
        let mut records = HashMap::new();
        let ledger = of_agents(&["n1-c", "n2-b", "n3-a"]);
        readable(&tree, &ledger, &mut records, &mut Damage::default()).unwrap();
        let agents = |record: &Record| -> Vec<String> {
            let places = record.attempts.iter().filter_map(|a| a.bundle.as_ref());
            places.map(|place| place.agent.clone()).collect()
        };
        assert_eq!(agents(&records[&0]), ["n1-c", "n3-a", "n2-b"]);
        assert_eq!(records[&0].outcome(), Some(Outcome::Timeout));
    }

    /// The record of trial 4 by one line of a bundle.
    fn taken(event: Event) -> Record {
        let (ledger, mut records) = (Ledger::default(), HashMap::new());
        Source::agent("n1-a", &ledger).take(&mut records, 10, event);
        records.remove(&4).unwrap()
    }

    #[test]
    fn a_trial_that_was_passed_over_and_began_later_was_not_passed_over() {
        let skip = |seq| Record {
            skipped: Some("its chain stopped".to_owned()),
            skipped_at: seq,
            ..Record::default()
        };
        let ran = || {
            let start = Start { trial: 4, attempt: 1, slot: Some(0), seq: 6, ..Start::default() };
            taken(Event::Start(start))
        };
        let both = |first: Record, then: Record| {
            let mut record = first;
            record.add(then);
            record.skipped.is_some()
        };
        assert_eq!([both(skip(5), ran()), both(ran(), skip(5))], [false; 2]);
        assert_eq!([both(skip(7), ran()), both(ran(), skip(7))], [true; 2]);
    }

    #[test]
    fn the_end_of_a_trial_that_never_began_is_an_end() {
        assert_eq!(taken(end(4, Outcome::Failed)).outcome(), Some(Outcome::Failed));
    }
}
