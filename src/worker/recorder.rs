//! The one writer of a run's record.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};

use super::alive;
use crate::fault::Fault;
use crate::host::disk;
use crate::tree::records::{End, Event, UNREAD};
use crate::tree::{Tree, ledger, line, records};

/// How long the end of an attempt waits for a full disk.
const PATIENCE: Duration = Duration::from_secs(300);

/// Metric lines that are kept for a full disk. Those of rank 0 stay where its program has written them, so these are other
/// ranks'.
const MOST_KEPT: usize = 100_000;

/// The one writer of a run's record.
pub struct Recorder {
    lines: line::Writer,
    path: PathBuf,
    /// Metric lines that a full disk has refused so far.
    unwritten: Vec<Map<String, Value>>,
    /// How many could not even be kept.
    lost: u64,
    /// Number of the run: which worker process of the trial this is.
    pub run: u32,
    /// How many entries the ledger of agents has.
    pub seq: u64,
    /// Whether the trial before it in its chain is done.
    pub behind: bool,
    /// When it last gave a sign of life.
    beat: Instant,
}

impl Recorder {
    /// Creates the record of the next free run of a trial.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(tree: &Tree, trial: u64, from: u32) -> Result<Self> {
        let seq = ledger::length(tree)?;
        for run in from.. {
            let path = tree.record(trial, run);
            if let Some(file) = disk::create_exclusive_with_parent(&path)? {
                let earlier = records::lines_before(tree, trial, run)?;
                return Ok(Self {
                    lines: line::Writer::new(file, earlier),
                    path,
                    unwritten: Vec::new(),
                    lost: 0,
                    run,
                    seq,
                    behind: false,
                    beat: Instant::now(),
                });
            }
        }
        Err(Fault::machine(format!("no free run number for trial {trial}")).into())
    }

    /// Appends an event. A full disk is waited for: the end of a trial must not be lost to it.
    ///
    /// # Errors
    /// When the disk still refuses after five minutes.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        if let Event::End(End { trial, attempt, .. }) = event {
            self.catch_up(*trial, *attempt)?;
        }
        let patience = if matches!(event, Event::End(_)) { PATIENCE } else { Duration::ZERO };
        self.append(event, patience)
    }

    /// Whether a full disk has refused metric lines: whoever has more of them keeps them.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Appends what a full disk has refused, and waits for room.
    ///
    /// # Errors
    /// When the disk still refuses after five minutes.
    pub fn catch_up(&mut self, trial: u64, attempt: u32) -> Result<()> {
        self.append_rows(trial, attempt, PATIENCE)
    }

    /// Appends metric lines. What a full disk refuses is kept and tried again with the next ones, at
    /// the latest before the end of the attempt. No more than [`MOST_KEPT`] are kept; the others are counted with the
    /// lines that could not be read.
    pub fn metrics(&mut self, trial: u64, attempt: u32, rows: Vec<Map<String, Value>>) {
        if self.unwritten.len() < MOST_KEPT {
            self.unwritten.extend(rows);
        } else {
            self.lost += rows.len() as u64;
        }
        // They are tried again.
        let _ = self.append_rows(trial, attempt, Duration::ZERO);
    }

    fn append_rows(&mut self, trial: u64, attempt: u32, patience: Duration) -> Result<()> {
        let mut rows = std::mem::take(&mut self.unwritten);
        let kept = rows.len();
        if kept == 0 {
            return Ok(());
        }
        if self.lost > 0 {
            rows.push(Map::from_iter([(UNREAD.to_owned(), self.lost.into())]));
        }
        let event = Event::Metrics { trial, attempt, rows };
        let appended = self.append(&event, patience);
        match event {
            Event::Metrics { mut rows, .. } if appended.is_err() => {
                rows.truncate(kept);
                self.unwritten = rows;
            }
            _ => self.lost = 0,
        }
        appended
    }

    /// Shows other processes that want to run the trial that this one is alive, where it is time to: a stamp of the file
    /// system's own clock.
    pub fn beat(&mut self) {
        if self.beat.elapsed() >= alive::BEAT {
            self.beat = Instant::now();
            // A disk that does not answer now may do so the next time.
            let _ = self.lines.stamp();
        }
    }

    fn append(&mut self, event: &Event, patience: Duration) -> Result<()> {
        let since = Instant::now();
        loop {
            match self.lines.append(event) {
                Ok(()) => return Ok(()),
                Err(e) if since.elapsed() >= patience => {
                    return Err(disk::fault("write", &self.path, &e).into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }
}
