//! Copies of trials that take too long, for slots that have nothing left to do.

use std::collections::HashMap;

use anyhow::Result;

use crate::base::host::clock;
use crate::run::pull::lifecycle::pace::Pace;
use crate::sweep::tree::ledger::{self, Ledger};
use crate::sweep::tree::records::{Event, Outcome, Start};
use crate::sweep::tree::{Tree, bundle};

/// The parts of other agents' bundles that were read.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    agents: HashMap<String, Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    /// Bytes read as whole lines.
    size: u64,
    /// Trials that run there: attempt, start (unix seconds), and the entries that their agent had read.
    open: HashMap<u64, (u32, f64, u64)>,
    /// Seconds by which its host's clock was ahead of the file system's when it joined.
    ahead: f64,
}

/// A trial that has taken too long.
#[derive(Debug, PartialEq)]
pub(crate) struct Straggler {
    /// The agent that runs it.
    pub(crate) of: String,
    pub(crate) trial: u64,
    pub(crate) attempt: u32,
    /// Bytes of that agent's bundle that were read.
    pub(crate) size: u64,
    /// How many entries that agent had read when it began the trial.
    pub(crate) since: u64,
}

impl Copies {
    /// The trial that has run longest, if that is more than `factor` times the median and it has no copy; `own`
    /// is the agent that looks. Durations read on the way are added to `pace`.
    ///
    /// # Errors
    /// When a bundle cannot be read.
    pub(crate) fn find(
        &mut self,
        tree: &Tree,
        ledger: &Ledger,
        pace: &mut Pace,
        factor: f64,
        own: &str,
    ) -> Result<Option<Straggler>> {
        let holders = ledger.living().filter(|(_, agent)| !agent.held.is_empty());
        let holders: Vec<&String> = holders.map(|(name, _)| name).collect();
        // Forgets agents whose bundles are not read again: an agent that holds nothing runs nothing.
        self.agents.retain(|name, _| name == own || holders.contains(&name));
        for name in &holders {
            let durations = self.follow(tree, ledger, name)?;
            if *name != own {
                durations.into_iter().for_each(|seconds| pace.add(seconds));
            }
        }
        self.follow(tree, ledger, own)?;
        // Hosts' clocks differ: each is compared with the file system's, by which entries are stamped.
        let now = clock::now() - self.agents.get(own).map_or(0.0, |own| own.ahead);
        let Some(median) = pace.quantile(0.5, 3) else { return Ok(None) };
        let mut worst: Option<(f64, Straggler)> = None;
        for (name, followed) in self.agents.iter().filter(|(name, _)| holders.contains(name)) {
            for (&trial, &(attempt, began, since)) in &followed.open {
                let age = now - (began - followed.ahead);
                let is_worst = worst.as_ref().is_none_or(|(other, _)| age > *other);
                if age > median * factor && is_worst && ledger.may_be_copied(trial, since) {
                    let (of, size) = (name.clone(), followed.size);
                    worst = Some((age, Straggler { of, trial, attempt, size, since }));
                }
            }
        }
        Ok(worst.map(|(_, straggler)| straggler))
    }

    /// Whether the run that was found still runs there, as far as its agent has written by now.
    ///
    /// # Errors
    /// When the bundle cannot be read.
    pub(crate) fn still_runs(
        &mut self,
        tree: &Tree,
        ledger: &Ledger,
        found: &Straggler,
    ) -> Result<bool> {
        self.follow(tree, ledger, &found.of)?;
        let open = self.agents.get(&found.of).map(|followed| &followed.open);
        let attempt = open.and_then(|open| open.get(&found.trial)).map(|(attempt, ..)| *attempt);
        Ok(attempt == Some(found.attempt))
    }

    /// Reads what is new in an agent's bundle, and returns the durations of the trials that are done.
    fn follow(&mut self, tree: &Tree, ledger: &Ledger, name: &str) -> Result<Vec<f64>> {
        let followed = self.agents.entry(name.to_owned()).or_default();
        let (lines, size) = bundle::deeds(tree, name, followed.size)?;
        followed.size = size;
        let mut durations = Vec::new();
        for (_, line) in lines {
            match line {
                Event::Agent(who) => {
                    let joined = ledger.agents.get(name).map(|agent| agent.joined);
                    let joined = joined.and_then(|seq| ledger::written(tree, seq));
                    followed.ahead = joined.map_or(0.0, |joined| who.time - joined);
                }
                Event::Start(Start { trial, attempt, time, seq, .. }) => {
                    followed.open.insert(trial, (attempt, time, seq));
                }
                Event::End(end) => {
                    followed.open.remove(&end.trial);
                    if end.state == Outcome::Done {
                        durations.push(end.duration_s);
                    }
                }
                _ => {}
            }
        }
        Ok(durations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tree::ledger::{Entry, Piece};
    use crate::sweep::tree::line::Writer;
    use crate::sweep::tree::records::{End, Who};

    /// A tree, its ledger, and agents that have taken something.
    fn world(names: &[&str]) -> (tempfile::TempDir, Tree, Ledger) {
        let dir = tempfile::tempdir().unwrap();
        let (tree, mut ledger) = (Tree::at(dir.path()), Ledger::default());
        ledger::prepare(&tree).unwrap();
        for (i, name) in names.iter().enumerate() {
            let (agent, nonce) = (String::from(*name), String::from("n"));
            let (host, nonces) = (agent.clone(), nonce.clone());
            let join = Entry::Join { agent, nonce, host, slots: 1, cores: vec![], job: None };
            say(&tree, &mut ledger, join);
            let (agent, units) = (String::from(*name), vec![Piece::untouched(10 * i as u64, 9)]);
            let take = Entry::Take { agent, nonce: nonces, units, done: 0, busy_s: 0.0 };
            say(&tree, &mut ledger, take);
        }
        (dir, tree, ledger)
    }

    fn say(tree: &Tree, ledger: &mut Ledger, entry: Entry) {
        assert!(ledger::append(tree, ledger, &entry, ledger::link).unwrap());
    }

    /// A bundle of an agent whose clock is so many seconds ahead.
    fn writer(tree: &Tree, name: &str, ahead: f64) -> Writer {
        let time = clock::now() + ahead;
        bundle::create(tree, &Who { agent: name.into(), time, ..Who::default() }).unwrap()
    }

    fn start(trial: u64, time: f64) -> Event {
        Event::Start(Start {
            trial,
            attempt: 1,
            time,
            seq: 0,
            slot: Some(0),
            argv: vec![],
            ..Start::default()
        })
    }

    fn end(trial: u64, time: f64, duration_s: f64) -> Event {
        Event::End(End {
            trial,
            attempt: 1,
            time,
            seq: None,
            state: Outcome::Done,
            exit_code: Some(0),
            signal: None,
            cause: None,
            reason: None,
            duration_s,
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: true,
        })
    }

    fn write(writer: &mut Writer, lines: &[Event]) {
        lines.iter().for_each(|line| writer.push(line).unwrap());
        writer.flush().unwrap();
    }

    fn pace() -> Pace {
        let mut pace = Pace::default();
        (0..3).for_each(|_| pace.add(1.0));
        pace
    }

    #[test]
    fn what_ended_after_the_last_look_is_no_straggler() {
        let (_dir, tree, mut ledger) = world(&["own", "other"]);
        let (mut copies, mut pace) = (Copies::default(), pace());
        let mut other = writer(&tree, "other", 0.0);
        write(&mut other, &[start(7, clock::now() - 1.5)]);
        assert_eq!(copies.find(&tree, &ledger, &mut pace, 2.0, "own").unwrap(), None);
        write(&mut other, &[end(7, clock::now(), 1.5)]);
        let (agent, nonce) = (String::from("other"), String::from("i"));
        say(&tree, &mut ledger, Entry::Idle { agent, nonce });
        // By now it would have taken long enough.
        assert_eq!(copies.find(&tree, &ledger, &mut pace, 0.1, "own").unwrap(), None);
    }

    #[test]
    fn what_failed_and_began_again_is_not_the_run_that_was_found() {
        let (_dir, tree, ledger) = world(&["own", "other"]);
        let mut copies = Copies::default();
        let mut other = writer(&tree, "other", 0.0);
        write(&mut other, &[start(7, clock::now() - 60.0)]);
        let found = copies.find(&tree, &ledger, &mut pace(), 2.0, "own").unwrap().unwrap();
        assert!(copies.still_runs(&tree, &ledger, &found).unwrap());
        let (Event::End(ended), Event::Start(Start { argv, devices, .. })) =
            (end(7, 1.0, 60.0), start(7, 0.0))
        else {
            unreachable!("made above")
        };
        let failed = Event::End(End { state: Outcome::Failed, last: false, ..ended });
        let time = clock::now();
        let again = Event::Start(Start {
            trial: 7,
            attempt: 2,
            time,
            seq: 0,
            slot: Some(0),
            argv,
            devices,
            ..Start::default()
        });
        write(&mut other, &[failed, again]);
        assert!(!copies.still_runs(&tree, &ledger, &found).unwrap());
    }

    #[test]
    fn a_trial_is_as_old_as_by_the_file_system_s_clock() {
        for (own, other) in [(0, 0.0), (0, 86400.0), (0, -86400.0), (86400, 0.0)] {
            let (_dir, tree, ledger) = world(&["own", "other"]);
            // Our own clock cannot be set: the file system's is off instead.
            let _own = writer(&tree, "own", 0.0);
            for entry in std::fs::read_dir(tree.dir().join("claims/000")).unwrap() {
                let file = std::fs::File::open(entry.unwrap().path()).unwrap();
                let time = std::time::SystemTime::now() - std::time::Duration::from_secs(own);
                file.set_modified(time).unwrap();
            }
            let own = own as f64;
            let mut lines = writer(&tree, "other", other - own);
            let find = |trial: u64, age: f64, lines: &mut Writer| {
                write(lines, &[start(trial, clock::now() + other - own - age)]);
                let mut copies = Copies::default();
                let found = copies.find(&tree, &ledger, &mut pace(), 2.0, "own").unwrap();
                found.map(|straggler| straggler.trial)
            };
            assert_eq!(find(1, 1.0, &mut lines), None, "{own} {other}");
            assert_eq!(find(2, 60.0, &mut lines), Some(2), "{own} {other}");
        }
    }
}
