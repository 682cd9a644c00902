//! The other ranks of a trial as rank 0 sees them: their messages, which failed, and which are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use crate::base::cause::{Cause, Why};
use crate::base::host::clock;
use crate::base::host::signal::Signals;
use crate::run::worker::process::child::Termination;
use crate::run::worker::process::output::write_line;
use crate::run::worker::process::program::LOST_PEERS;
use crate::run::worker::ranks::gather::Crew;
use crate::run::worker::ranks::peers::{self, Asked, Down, Up};
use crate::sweep::attempt::exit::is_by_stop;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::tree::records::{self, Outcome, Used};

/// How many messages are read at once.
const MOST_HEARD: usize = 1024;

/// How a rank's program ended.
#[derive(Debug, Clone)]
struct Finish {
    code: i32,
    signal: Option<i32>,
    /// Whether it had a handler for a signal to stop.
    handler: bool,
    stop: Option<Asked>,
    why: Option<Why>,
    /// When it did, by our clock.
    at: Instant,
    used: Option<Used>,
}

impl Finish {
    /// Whether it failed by itself, and not because it had lost the others.
    fn is_own_failure(&self) -> bool {
        self.stop.is_none() && self.code != 0 && self.code != LOST_PEERS
    }

    /// Whether a signal to rank 0 explains this end that comes at `told`, or may still come. The scheduler may have signalled
    /// the rank's program before the worker of rank 0, and not the rank's worker.
    fn may_be_asked(&self, told: Option<Instant>) -> bool {
        let is_near = told.is_none_or(|told| told <= self.at + MOMENT);
        self.why.is_none() && (is_by_stop(self.code, self.signal) || self.handler && is_near)
    }
}

/// How long after the end of a rank's program that handles signals to stop such a signal to rank 0 still explains it.
const MOMENT: Duration = Duration::from_millis(500);

/// A rank's failure by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit code of its program, or 128 + signal; 1 if it is not known.
    pub(crate) code: i32,
    /// The rank that failed, as the launcher numbers it.
    pub(crate) rank: u32,
    /// The same with its host, in words.
    pub(crate) place: String,
    /// Which rank, where, and how.
    pub(crate) why: Why,
    /// Whether it has not said why.
    pub(crate) is_bare: bool,
}

/// The other ranks, as far as their messages were read.
#[derive(Default)]
pub(crate) struct Others {
    world: u32,
    ended: BTreeMap<u32, Finish>,
    /// Those that could not be started.
    broken: BTreeSet<u32>,
    /// Ranks whose connection ended without a last message, and when it did.
    gone: BTreeMap<u32, Instant>,
    hosts: BTreeMap<u32, String>,
}

impl Others {
    pub(crate) fn new(world: u32) -> Self {
        Self { world, ..Self::default() }
    }

    /// Reads the messages that ranks have sent since the last time.
    pub(crate) fn hear(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) {
        if self.hosts.is_empty() {
            self.hosts.clone_from(&crew.hosts);
        }
        // The number is limited: ranks may send more while these are read.
        for _ in 0..MOST_HEARD {
            let Ok(peers::FromRank { rank, said, at }) = crew.inbox.try_recv() else { return };
            match said {
                Some(Up::Line { text }) => write_line(log, &format!("[rank {rank}] "), &text),
                Some(Up::Metrics { rows }) => metrics(with_rank(rows, Some(rank))),
                Some(Up::Ended { code, signal, stop, reason, cause, handler, ago_s, used }) => {
                    // Ranks wait for a signal and for their output before they say that they have ended.
                    let ago = Duration::try_from_secs_f64(ago_s).unwrap_or_default();
                    let at = at.checked_sub(ago).unwrap_or(at);
                    let why = reason.map(|words| Why::new(cause.unwrap_or(Cause::Unknown), words));
                    let used = Some(used);
                    let finish = Finish { code, signal, handler, stop, why, at, used };
                    self.ended.insert(rank, finish);
                }
                Some(Up::Broken { reason, cause }) => {
                    self.broken.insert(rank);
                    let why = Some(Why::new(cause.unwrap_or(Cause::Unknown), reason));
                    let finish = Finish {
                        code: 1,
                        signal: None,
                        handler: false,
                        stop: None,
                        why,
                        at,
                        used: None,
                    };
                    self.ended.insert(rank, finish);
                }
                Some(Up::Hello { .. }) => {}
                None => {
                    if !self.ended.contains_key(&rank) {
                        self.gone.entry(rank).or_insert(at);
                    }
                }
            }
        }
    }

    /// Whether a rank has failed, and no signal that may still come would explain it.
    pub(crate) fn are_in_trouble(&self) -> bool {
        let is_open =
            |f: &Finish| f.is_own_failure() && f.may_be_asked(None) && f.at.elapsed() < MOMENT;
        self.trouble().is_some() && !self.ended.values().any(is_open)
    }

    /// The error of a rank, if there is one: the outcome, the exit code, and why. A failure by itself comes
    /// before an end that was asked for.
    pub(crate) fn trouble(&self) -> Option<(Outcome, i32, Why)> {
        if let Some(failure) = self.own_failure(None, Duration::ZERO, false) {
            return Some((Outcome::Failed, failure.code, failure.why));
        }
        let say =
            |rank: u32, cause, how: String| Why::new(cause, format!("{}{how}", self.place(rank)));
        let robbed = ": its private folder was removed while it ran";
        for (asked, outcome, cause, how) in [
            (Asked::Signal, Outcome::Interrupted, Cause::Stopped, " got a signal"),
            (Asked::Deadline, Outcome::Timeout, Cause::Walltime, " reached the wall-clock limit"),
            (Asked::Robbed, Outcome::Interrupted, Cause::Unknown, robbed),
        ] {
            if let Some((rank, f)) = self.ended.iter().find(|(_, f)| f.stop == Some(asked)) {
                return Some((outcome, f.code, say(*rank, cause, how.to_owned())));
            }
        }
        let lost = self.ended.iter().find(|(_, f)| f.stop.is_none() && f.code == LOST_PEERS)?;
        let why = lost.1.why.clone();
        let why = why.unwrap_or_else(|| Why::new(Cause::RankLost, "lost the others"));
        Some((Outcome::Failed, 1, say(*lost.0, why.cause, format!(": {}", why.words))))
    }

    /// The first failure of a rank by itself that is not a consequence of another: the failure of its program
    /// before `before`, or the loss of its worker less than `delay` after it. If the trial was signalled (`is_told`), an
    /// end like that after a signal is none: the scheduler may have signalled the rank's program before the
    /// worker of rank 0, and not the rank's worker.
    pub(crate) fn own_failure(
        &self,
        before: Option<Instant>,
        delay: Duration,
        is_told: bool,
    ) -> Option<Failure> {
        let is_asked = |f: &Finish| is_told && f.may_be_asked(before);
        let is_first = |at: Instant| before.is_none_or(|before| at < before);
        let failed =
            self.ended.iter().filter(|(_, f)| f.is_own_failure() && is_first(f.at) && !is_asked(f));
        let failed = failed.map(|(rank, f)| (f.at, *rank, Some(f)));
        let is_lost = |at: Instant| at.checked_sub(delay).is_none_or(is_first);
        let gone = self.gone.iter().filter(|(_, at)| is_lost(**at));
        let gone = gone.map(|(rank, at)| (*at, *rank, None));
        let (_, rank, finish) = failed.chain(gone).min_by_key(|(at, rank, _)| (*at, *rank))?;
        let place = self.place(rank);
        let why = match finish {
            None => Why::new(Cause::RankLost, format!("{place} vanished")),
            Some(Finish { why: Some(why), .. }) => why.clone().of(&place),
            Some(Finish { signal: Some(signal), .. }) => {
                Why::new(Cause::Signal, records::signal_text(*signal)).of(&place)
            }
            Some(Finish { code, .. }) => {
                Why::new(Cause::ExitCode, format!("exit code {code}")).of(&place)
            }
        };
        let is_bare = finish.is_some_and(|f| f.why.is_none());
        Some(Failure { code: finish.map_or(1, |f| f.code), rank, place, why, is_bare })
    }

    /// What those have used that have ended, by rank.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u32, Used)> {
        self.ended.iter().filter_map(|(rank, finish)| Some((*rank, finish.used.clone()?)))
    }

    /// Whether all of them are here and have ended well.
    pub(crate) fn are_well(&self) -> bool {
        self.gone.is_empty() && self.broken.is_empty() && self.ended.values().all(|f| f.code == 0)
    }

    /// A rank and its host, in words.
    fn place(&self, rank: u32) -> String {
        let host = self.hosts.get(&rank).map_or_else(String::new, |host| format!(" on {host}"));
        format!("rank {rank}{host}")
    }

    /// Whether there are others at all.
    pub(crate) fn are_several(&self) -> bool {
        self.world > 1
    }

    /// Whether all ranks can still take part in another attempt.
    pub(crate) fn all_here(&self) -> bool {
        self.gone.is_empty()
    }

    fn all_in(&self) -> bool {
        self.ended.len() + self.gone.len() + 1 >= self.world as usize
    }

    /// After rank 0's own program has ended: waits for the others, stopping them if it failed, when a
    /// signal comes or when the time is over. Returns why they had to be stopped in the latter cases, and when.
    pub(crate) fn finish(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        ended: Termination,
        deadline: Option<Instant>,
        signals: &mut Signals,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) -> Option<(Stop, Instant)> {
        let mut told: Option<Instant> = None;
        let mut why = None;
        loop {
            self.hear(crew, log, &mut metrics);
            if self.all_in() {
                return why;
            }
            if let Some(signal) = signals.next(Duration::from_millis(20))
                && signal != Signal::SIGCHLD
                && why.is_none()
            {
                why = Some((Stop::Signal(signal), Instant::now()));
            }
            if why.is_none() && deadline.is_some_and(|at| clock::awake() >= at) {
                why = Some((Stop::Walltime, Instant::now()));
            }
            let over = ended.exit.code != 0 || ended.stop.is_some() || why.is_some();
            if told.is_none() && (over || self.trouble().is_some()) {
                crew.tell(&Down::Stop);
                told = Some(Instant::now());
            }
            // A rank that cannot even say goodbye counts as gone; the launcher has to end it.
            if told.is_some_and(|since| since.elapsed() > Duration::from_secs(60)) {
                let silent = (1..self.world).filter(|rank| !self.ended.contains_key(rank));
                for rank in silent {
                    self.gone.entry(rank).or_insert_with(Instant::now);
                }
                return why;
            }
        }
    }
}

/// Adds the rank to metric lines. Ranks that the program of a rank has started itself say their own: the larger number counts,
/// so that rank 0 is one process.
pub(crate) fn with_rank(
    rows: Vec<Map<String, Value>>,
    rank: Option<u32>,
) -> Vec<Map<String, Value>> {
    let Some(rank) = rank else { return rows };
    let tag = |mut row: Map<String, Value>| {
        let own = row.get("rank");
        if own.is_none_or(|own| own.as_u64().is_some_and(|own| own < u64::from(rank))) {
            row.insert("rank".to_owned(), json!(rank));
        }
        row
    };
    rows.into_iter().map(tag).collect()
}
