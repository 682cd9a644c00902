//! `hpcsweep logs --follow`: the output of trials as it comes, until they have ended for good.
//!
//! Files are opened anew for each look, so that NFS shows what other hosts have added. How the trials stand is asked for once a
//! minute, and when the record of one of them says that it has ended.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::output::{self, Output, Part};
use crate::base::host::disk::{self, Mark};
use crate::base::host::signal::Signals;
use crate::base::words::count;
use crate::cli::Context;
use crate::cli::select::Named;
use crate::plan::site::Site;
use crate::sweep::standing::{Standing, State};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::{Identity, Tree, records};

/// Between two looks at the files, unless a look takes long.
const PAUSE: Duration = Duration::from_secs(1);

/// Between two questions how the trials stand. After an end it is less: the scheduler may need a moment to notice it.
const ASK_EVERY: Duration = Duration::from_secs(60);
const ASK_SOON: Duration = Duration::from_secs(2);

/// Looks take at most this part of the time: `1 / SHARE`.
const SHARE: u32 = 20;

pub(super) fn run(
    tree: Tree,
    identity: Identity,
    named: &Named,
    lines: Option<usize>,
    context: &Context,
) -> Result<u8> {
    let mut signals = Signals::listen(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let site = context.site()?;
    let mut follow = Follow { tree, identity, site: &site, context, heading: None };
    let mut status = follow.status()?;
    let asked = named.wanted.trials_in(std::slice::from_ref(&status))?;
    let mut trials: Vec<Trial> =
        asked.into_iter().flatten().map(|trial| Trial::new(trial, lines)).collect();
    if trials.is_empty() {
        context.out.say(&format!("{}: no trial is meant", follow.identity.name));
        return Ok(0);
    }
    let several = trials.len() > 1;
    follow.say_waiting(&status, &trials);
    let (mut asked, mut wait) = (Instant::now(), ASK_EVERY);
    let mut bad = false;
    loop {
        let began = Instant::now();
        let mut has_ended = false;
        for trial in &mut trials {
            has_ended |= follow.look(trial, several)?;
        }
        if has_ended || asked.elapsed() >= wait {
            status = follow.status()?;
            wait = if has_ended { ASK_SOON } else { (wait * 2).min(ASK_EVERY) };
            asked = Instant::now();
        }
        let over: BTreeSet<u64> = status
            .trials()
            .filter(|(row, standing)| {
                standing.state.is_final() && !status.awaited.contains(&row.id)
            })
            .map(|(row, _)| row.id)
            .collect();
        let (ended, open): (Vec<Trial>, Vec<Trial>) =
            trials.into_iter().partition(|trial| over.contains(&trial.trial));
        trials = open;
        for mut trial in ended {
            // What it has printed since it was looked at.
            follow.look(&mut trial, several)?;
            let standing = status.trials().find(|(row, _)| row.id == trial.trial);
            if let Some((_, standing)) = standing {
                bad |= standing.state.is_bad();
                context.out.say(&format!("trial {} {}", trial.trial, standing.words()));
            }
        }
        if trials.is_empty() {
            return Ok(u8::from(bad));
        }
        let pause = PAUSE.max(began.elapsed() * SHARE).min(ASK_EVERY);
        if signals.next(pause).is_some() {
            return Ok(130);
        }
    }
}

/// A trial that is followed.
struct Trial {
    trial: u64,
    /// What was given out of each part, by its file and its beginning: bytes, and what the file was then.
    given: HashMap<(PathBuf, u64), (u64, Option<Mark>)>,
    /// The lengths of shared files before the record was read: what a trial that still runs then has printed.
    lengths: HashMap<PathBuf, u64>,
    /// Lines to begin with; `None` when it was begun, or all are wanted.
    lines: Option<usize>,
    /// The attempts whose end was noticed.
    ends: usize,
    /// Whether it was said that its log was left out.
    is_told: bool,
}

impl Trial {
    fn new(trial: u64, lines: Option<usize>) -> Self {
        Self {
            trial,
            given: HashMap::new(),
            lengths: HashMap::new(),
            lines,
            ends: 0,
            is_told: false,
        }
    }
}

/// A sweep of which trials are followed.
struct Follow<'a> {
    tree: Tree,
    identity: Identity,
    site: &'a Site,
    context: &'a Context,
    /// The trial whose output came last.
    heading: Option<u64>,
}

impl Follow<'_> {
    fn status(&self) -> Result<Status> {
        let whom = Some((self.site, &self.context.vars));
        status::read(self.tree.clone(), self.identity.clone(), whom)
    }

    /// Says why nothing comes of trials that do not run: they may wait for long, or for ever.
    fn say_waiting(&self, status: &Status, trials: &[Trial]) {
        let wanted: BTreeSet<u64> = trials.iter().map(|trial| trial.trial).collect();
        let waits =
            |standing: &Standing| standing.state != State::Running && !standing.state.is_final();
        let mut waiting =
            status.trials().filter(|(row, standing)| wanted.contains(&row.id) && waits(standing));
        let Some((row, standing)) = waiting.next() else { return };
        let others = waiting.count() as u64;
        let more = match others {
            0 => String::new(),
            n => format!(", and {}", count(n, "other")),
        };
        self.context.out.say(&format!("trial {} waits: {}{more}", row.id, standing.words()));
    }

    /// Gives out what a trial has printed since the last look. Whether an attempt of it has ended meanwhile.
    fn look(&mut self, trial: &mut Trial, several: bool) -> Result<bool> {
        let (record, _) = records::of_trial(&self.tree, trial.trial)?;
        let output = Output::of(&self.tree, trial.trial, &record)?;
        if output.is_left_out && !std::mem::replace(&mut trial.is_told, true) {
            self.context.out.say(&output::left_out(&trial.trial.to_string(), false));
        }
        if let Some(lines) = trial.lines.take() {
            self.print(trial.trial, several, &output.tail(lines)?);
            for part in &output.parts {
                let given = part.length()?;
                let mark = Mark::of_log(&part.path, part.from + given);
                trial.given.insert((part.path.clone(), part.from), (given, mark));
            }
        } else {
            for part in &output.parts {
                self.advance(trial, part, several)?;
            }
        }
        for part in output.parts.iter().filter(|part| part.is_shared) {
            let length = disk::stamp(&part.path)?.map_or(0, |(length, _)| length);
            trial.lengths.insert(part.path.clone(), length);
        }
        let ends = record.attempts.iter().filter(|a| a.outcome().is_some()).count();
        let ends = ends + usize::from(record.skipped.is_some());
        let has_ended = ends > trial.ends;
        trial.ends = ends;
        Ok(has_ended)
    }

    /// Gives out what a part has more than was given out.
    fn advance(&mut self, trial: &mut Trial, part: &Part, several: bool) -> Result<()> {
        let key = (part.path.clone(), part.from);
        let (mut given, mark) = trial.given.get(&key).copied().unwrap_or_default();
        // A log that is gone may come back.
        let is_there = || Ok::<_, anyhow::Error>(disk::stamp(&part.path)?.is_some());
        if given > 0 && Mark::of_log(&part.path, part.from + given) != mark && is_there()? {
            let words = "its log was written anew: what follows is its beginning";
            self.context.out.say(&format!("trial {}: {words}", trial.trial));
            given = 0;
        }
        let known = match part.len {
            // The next trial in its slot writes to the same file.
            u64::MAX if part.is_shared => {
                let length = trial.lengths.get(&part.path).copied().unwrap_or(0);
                length.saturating_sub(part.from)
            }
            len => len,
        };
        let length = disk::stamp(&part.path)?.map_or(0, |(length, _)| length);
        let there = known.min(length.saturating_sub(part.from));
        // Taken before it is read: what is written anew meanwhile is noticed the next time.
        let mark = Mark::of_log(&part.path, part.from + there);
        let (number, mut passed) = (trial.trial, 0);
        let left = there.saturating_sub(given);
        disk::each_piece(&part.path, part.from + given, left, |piece| {
            self.print(number, several, piece);
            passed += piece.len() as u64;
        })?;
        trial.given.insert(key, (given + passed, mark));
        Ok(())
    }

    /// Gives out output of a trial, below a heading if that of another trial came before.
    fn print(&mut self, trial: u64, several: bool, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if several && self.heading.replace(trial) != Some(trial) {
            self.context.out.page(&format!("==> trial {trial} <==\n"));
        }
        if self.context.out.line_now(bytes).is_err() {
            std::process::exit(0);
        }
    }
}
