//! The other ranks of a trial as rank 0 sees them: what they said, who failed, who is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use super::child::Ended;
use super::output::write_line;
use super::peers::{self, Crew, Down, Up};
use crate::host::signal::Signals;

/// The other ranks, as far as they have been heard.
pub(super) struct Others {
    pub(super) world: u32,
    ended: BTreeMap<u32, (i32, Option<i32>, bool)>,
    pub(super) broken: Option<(u32, String)>,
    pub(super) gone: BTreeSet<u32>,
    hosts: BTreeMap<u32, String>,
}

impl Others {
    pub(super) fn new(world: u32) -> Self {
        Self {
            world,
            ended: Default::default(),
            broken: None,
            gone: Default::default(),
            hosts: Default::default(),
        }
    }

    /// Takes in what the ranks have said since the last time.
    pub(super) fn hear(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) {
        if self.hosts.is_empty() {
            self.hosts.clone_from(&crew.hosts);
        }
        while let Ok(peers::FromRank { rank, said }) = crew.inbox.try_recv() {
            match said {
                Some(Up::Line { text }) => write_line(log, &format!("[rank {rank}] "), &text),
                Some(Up::Metrics { rows }) => metrics(with_rank(rows, Some(rank))),
                Some(Up::Ended { code, signal, stopped }) => {
                    self.ended.insert(rank, (code, signal, stopped));
                }
                Some(Up::Broken { reason }) => {
                    self.broken.get_or_insert((rank, reason));
                    self.ended.insert(rank, (1, None, false));
                }
                Some(Up::Hello { .. }) => {}
                None => {
                    if !self.ended.contains_key(&rank) {
                        self.gone.insert(rank);
                    }
                }
            }
        }
    }

    pub(super) fn failed(&self) -> Option<(u32, i32, Option<i32>)> {
        let bad =
            |(_, (code, _, stopped)): &(&u32, &(i32, Option<i32>, bool))| *code != 0 && !stopped;
        self.ended.iter().find(bad).map(|(rank, (code, signal, _))| (*rank, *code, *signal))
    }

    pub(super) fn trouble(&self) -> bool {
        self.failed().is_some() || !self.gone.is_empty()
    }

    fn all_in(&self) -> bool {
        self.ended.len() + self.gone.len() + 1 >= self.world as usize
    }

    /// After rank 0's own program has ended: waits for the others, stopping them if it failed.
    pub(super) fn finish(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        ended: Ended,
        signals: &mut Signals,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) {
        let mut told: Option<Instant> = None;
        loop {
            self.hear(crew, log, &mut metrics);
            if self.all_in() {
                return;
            }
            let asked =
                signals.next(Duration::from_millis(20)).is_some_and(|s| s != Signal::SIGCHLD);
            if (ended.code != 0 || ended.stop.is_some() || self.trouble() || asked)
                && told.is_none()
            {
                crew.tell(&Down::Stop);
                told = Some(Instant::now());
            }
            // A rank that cannot even say goodbye is left to the launcher.
            if told.is_some_and(|since| since.elapsed() > Duration::from_secs(60)) {
                return;
            }
        }
    }

    pub(super) fn place(&self, rank: u32) -> String {
        self.hosts.get(&rank).map_or_else(String::new, |host| format!(" on {host}"))
    }
}

/// Adds the rank to metric lines that do not say it.
pub(super) fn with_rank(
    rows: Vec<Map<String, Value>>,
    rank: Option<u32>,
) -> Vec<Map<String, Value>> {
    let Some(rank) = rank else { return rows };
    let tag = |mut row: Map<String, Value>| {
        row.entry("rank").or_insert_with(|| json!(rank));
        row
    };
    rows.into_iter().map(tag).collect()
}
