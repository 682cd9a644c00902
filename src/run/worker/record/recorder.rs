//! The one writer of a run's record.

use std::io::ErrorKind::FileTooLarge;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::run::worker::record::alive;
use crate::sweep::tree::records::{End, Event, UNREAD, Whole};
use crate::sweep::tree::{Tree, ledger, line, records};

/// How long the end of an attempt waits for a full disk, and the beginning of an element.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Metric lines that are kept for a full disk. Those of rank 0 stay where its program has written them, so these are other
/// ranks'.
const MOST_KEPT: usize = 100_000;

/// How often they are tried again while the attempt runs: each time all of them are.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of these lines, about: they are one line of the record, and longer ones are not read.
const MOST_BYTES: usize = 64 << 20;

/// The one writer of a run's record.
pub(crate) struct Recorder {
    lines: line::Writer,
    /// Metric lines that a full disk has refused so far.
    unwritten: Vec<Map<String, Value>>,
    /// Bytes of them, about.
    bytes: usize,
    /// How many could not even be kept.
    lost: u64,
    /// When the disk refused them last.
    refused: Option<Instant>,
    /// Number of the run: which worker process of the trial this is.
    pub(crate) run: u32,
    /// How many entries the ledger of agents has.
    pub(crate) seq: u64,
    /// Whether the trial before it in its chain is done.
    pub(crate) behind: bool,
    /// When it last stamped its record.
    beat: Instant,
}

impl Recorder {
    /// Creates the record of the next free run of a trial.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn open(tree: &Tree, trial: u64, from: u32) -> Result<Self> {
        let seq = ledger::length(tree)?;
        for run in from.. {
            let path = tree.record(trial, run);
            if let Some(file) = disk::create_exclusive_with_parent(&path)? {
                let earlier = records::lines_before(tree, trial, run)?;
                return Ok(Self {
                    lines: line::Writer::new(file, path, earlier),
                    unwritten: Vec::new(),
                    bytes: 0,
                    lost: 0,
                    refused: None,
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
    pub(crate) fn write(&mut self, event: &Event) -> Result<()> {
        if let Event::End(End { trial, attempt, .. }) = event {
            self.catch_up(*trial, *attempt)?;
        }
        let patience = if matches!(event, Event::End(_)) { PATIENCE } else { Duration::ZERO };
        self.append(event, patience)
    }

    /// Whether a full disk has refused metric lines. A caller that has more of them keeps them.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Appends what a full disk has refused, and waits for room.
    ///
    /// # Errors
    /// When the disk still refuses after five minutes.
    pub(crate) fn catch_up(&mut self, trial: u64, attempt: u32) -> Result<()> {
        self.append_rows(trial, attempt, PATIENCE)
    }

    /// Appends metric lines. It keeps lines that a full disk refuses, and tries them again with the next ones, at the
    /// latest before the end of the attempt. It keeps no more than [`MOST_KEPT`], of [`MOST_BYTES`]; the others are
    /// counted with the lines that could not be read.
    pub(crate) fn metrics(&mut self, trial: u64, attempt: u32, rows: Vec<Map<String, Value>>) {
        for row in rows {
            // While there is room nothing is kept, and nothing need be measured.
            let bytes = if self.has_unwritten() { length(&row) } else { 0 };
            if self.unwritten.len() < MOST_KEPT && self.bytes + bytes <= MOST_BYTES {
                self.bytes += bytes;
                self.unwritten.push(row);
            } else {
                self.lost += 1;
            }
        }
        if self.refused.is_none_or(|at| at.elapsed() >= PAUSE) {
            // They are tried again.
            let _ = self.append_rows(trial, attempt, Duration::ZERO);
        }
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
                (self.unwritten, self.refused) = (rows, Some(Instant::now()));
            }
            _ => (self.lost, self.bytes, self.refused) = (0, 0, None),
        }
        appended
    }

    /// Shows other processes that want to run the trial that this one is alive, where it is time to: a stamp of the file
    /// system's own clock.
    pub(crate) fn beat(&mut self) {
        if self.beat.elapsed() >= alive::BEAT {
            self.beat = Instant::now();
            // A disk that does not answer now may do so the next time.
            let _ = self.lines.stamp();
        }
    }

    fn append(&mut self, event: &Event, patience: Duration) -> Result<()> {
        let since = Instant::now();
        loop {
            match self.lines.append(&Whole(event)) {
                Ok(()) => return Ok(()),
                // A file that may not grow never will.
                Err(e) if since.elapsed() >= patience || e.kind() == FileTooLarge => {
                    return Err(disk::fault("write", self.lines.path(), &e).into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }
}

/// About how long a metric line is in the record.
fn length(row: &Map<String, Value>) -> usize {
    let of = |(name, value): (&String, &Value)| {
        name.len() + value.as_str().map_or_else(|| value.to_string().len(), str::len) + 4
    };
    row.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use serde_json::json;

    use super::*;
    use crate::sweep::tree::records::Record;

    /// A device that is always full.
    fn full() -> line::Writer {
        let file = File::options().append(true).open("/dev/full").unwrap();
        line::Writer::new(file, "/dev/full".into(), 0)
    }

    /// Gives so many rows to a recorder whose disk is full, then so many when there is room. Returns the steps of all
    /// recorded rows, and how many rows the record reports as lost.
    fn recorded(refused: &[usize], row: impl Fn(usize) -> Value, then: usize) -> (Vec<u64>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        let mut recorder = Recorder::open(&tree, 0, 1).unwrap();
        recorder.write(&start()).unwrap();
        let file = std::mem::replace(&mut recorder.lines, full());
        let mut steps = 0..;
        let mut rows = |n: usize| {
            let next = steps.by_ref().take(n).map(&row);
            next.map(|row| row.as_object().unwrap().clone()).collect::<Vec<_>>()
        };
        for n in refused {
            let rows = rows(*n);
            recorder.metrics(0, 1, rows);
            assert!(recorder.has_unwritten());
        }
        recorder.lines = file;
        recorder.metrics(0, 1, rows(then));
        recorder.catch_up(0, 1).unwrap();
        assert!(!recorder.has_unwritten());
        let record: Record = records::of_trial(&tree, 0).unwrap().0;
        let mut steps = Vec::new();
        let attempt = &record.attempts[0];
        let each =
            attempt.each_row(&tree, |row| steps.extend(row.get("s").and_then(Value::as_u64)));
        each.unwrap();
        (steps, record.unread())
    }

    fn start() -> Event {
        let start = json!({
            "trial": 0, "attempt": 1, "time": 0.0, "host": "n1", "pid": 1, "started": null, "job": null,
            "ranks": 2, "argv": [], "devices": null, "version": "", "seq": 0, "behind": false,
        });
        Event::Start(serde_json::from_value(start).unwrap())
    }

    #[test]
    fn no_row_that_a_full_disk_has_refused_is_lost_or_doubled() {
        let (steps, lost) = recorded(&[1, 0, 70, 1, 5000], |s| json!({"s": s}), 3);
        assert_eq!((steps, lost), ((0..5075).collect(), 0));
    }

    #[test]
    fn rows_beyond_the_bound_are_counted_and_the_others_kept() {
        let most = MOST_KEPT as u64;
        let (steps, lost) = recorded(&[60_000; 3], |s| json!({"s": s}), 7);
        assert_eq!((steps.len() as u64, lost), (most, 80_007));
        assert_eq!(steps, (0..most).collect::<Vec<_>>());
        let (steps, lost) = recorded(&[1, 99_998], |s| json!({"s": s}), 1);
        assert_eq!((steps.len() as u64, lost), (most, 0));
    }

    #[test]
    fn long_rows_are_kept_as_far_as_a_line_of_the_record_can_be_read() {
        let long = "x".repeat(1 << 20);
        let (steps, lost) = recorded(&[1; 70], |s| json!({"s": s, "text": long}), 0);
        assert!((60..=65).contains(&steps.len()), "{}", steps.len());
        assert_eq!(steps.len() as u64 + lost, 70);
    }
}
