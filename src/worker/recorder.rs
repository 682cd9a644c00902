//! The one writer of a run's record.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};

use super::alive;
use crate::fault::Fault;
use crate::host::disk;
use crate::tree::records::{End, Event};
use crate::tree::{Tree, ledger, line, records};

/// How long the end of an attempt waits for a full disk.
const PATIENCE: Duration = Duration::from_secs(300);

/// The one writer of a run's record.
pub struct Recorder {
    lines: line::Writer,
    path: PathBuf,
    /// Metric lines that a full disk has refused so far.
    unwritten: Vec<Map<String, Value>>,
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
        if let Event::End(End { trial, attempt, .. }) = event
            && !self.unwritten.is_empty()
        {
            let rows = std::mem::take(&mut self.unwritten);
            self.append(&Event::Metrics { trial: *trial, attempt: *attempt, rows }, PATIENCE)?;
        }
        let patience = if matches!(event, Event::End(_)) { PATIENCE } else { Duration::ZERO };
        self.append(event, patience)
    }

    /// Appends metric lines. What a full disk refuses is kept and tried again with the next ones, at
    /// the latest before the end of the attempt.
    pub fn metrics(&mut self, trial: u64, attempt: u32, rows: Vec<Map<String, Value>>) {
        self.unwritten.extend(rows);
        if self.unwritten.is_empty() {
            return;
        }
        let rows = std::mem::take(&mut self.unwritten);
        let event = Event::Metrics { trial, attempt, rows };
        if self.append(&event, Duration::ZERO).is_err()
            && let Event::Metrics { rows, .. } = event
        {
            self.unwritten = rows;
        }
    }

    /// Gives a sign of life to whoever wants to run the trial too, where it is time to: a stamp of the file
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
