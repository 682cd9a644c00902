//! Where the output of a trial stands: in the logs of its runs, in those of agents, in those of its jobs.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::host::disk;
use crate::submit::arrays::wave::Waves;
use crate::sweep::tree::Tree;
use crate::sweep::tree::bundle;
use crate::sweep::tree::export::Without;
use crate::sweep::tree::records::{Attempt, Place, Record};

/// A stretch of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Part {
    pub(super) path: PathBuf,
    pub(super) from: u64,
    /// Bytes; [`u64::MAX`] up to the end of the file, which may grow.
    pub(super) len: u64,
    /// Whether others write to the file too, behind this part.
    pub(super) is_shared: bool,
}

impl Part {
    /// Bytes of it that there are.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn length(&self) -> Result<u64> {
        let length = disk::stamp(&self.path)?.map_or(0, |(length, _)| length);
        Ok(length.saturating_sub(self.from).min(self.len))
    }
}

/// What a trial printed itself, in order.
pub(in crate::cli) struct Output {
    pub(super) parts: Vec<Part>,
    /// Whether logs of it were left out when the sweep was exported or merged.
    pub(in crate::cli) is_left_out: bool,
}

/// The last bytes of a trial's output in which its last lines are looked for.
const TAIL: u64 = 1 << 20;

impl Output {
    /// Finds the output of a trial.
    ///
    /// # Errors
    /// When the bundle of an agent cannot be read.
    pub(in crate::cli) fn of(tree: &Tree, trial: u64, record: &Record) -> Result<Self> {
        let is_without = tree.left_out()?.contains(&Without::Logs);
        let is_gone = |path: &Path| Ok::<_, anyhow::Error>(disk::stamp(path)?.is_none());
        let mut is_left_out = false;
        let runs = (1..).take_while(|run| tree.record(trial, *run).exists());
        let own =
            |run| Part { path: tree.log(trial, run), from: 0, len: u64::MAX, is_shared: false };
        let mut parts: Vec<Part> = runs.map(own).collect();
        for part in parts.iter().filter(|_| is_without) {
            is_left_out |= is_gone(&part.path)?;
        }
        for attempt in &record.attempts {
            if let Some(place) = &attempt.bundle
                && let Some((from, len)) = output_of(tree, trial, attempt, place)?
            {
                let path = tree.agent_file(&place.agent, &format!("{}.log", place.slot));
                if is_without && is_gone(&path)? {
                    is_left_out = true;
                    continue;
                }
                if place.log.is_some_and(|(_, len)| len > 0) {
                    // This reports a missing log, which is not an empty one.
                    disk::open(&path)?;
                }
                parts.push(Part { path, from, len, is_shared: true });
            }
        }
        Ok(Self { parts, is_left_out })
    }

    /// Whether nothing was printed.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn is_empty(&self) -> Result<bool> {
        for part in &self.parts {
            if part.length()? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives out all of it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn print(&self, mut with: impl FnMut(&[u8])) -> Result<()> {
        for part in &self.parts {
            disk::each_piece(&part.path, part.from, part.len, &mut with)?;
        }
        Ok(())
    }

    /// Its last lines.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(in crate::cli) fn tail(&self, lines: usize) -> Result<Vec<u8>> {
        let mut all: Vec<u8> = Vec::new();
        for part in self.parts.iter().rev() {
            let len = part.length()?;
            let most = len.min(TAIL.saturating_sub(all.len() as u64));
            if most > 0 {
                let mut own = disk::read_log_at(&part.path, part.from + len - most, most)?;
                own.append(&mut all);
                all = own;
            }
            if last_lines(&all, lines).len() < all.len() {
                break;
            }
        }
        let kept = last_lines(&all, lines).len();
        Ok(all.split_off(all.len() - kept))
    }
}

/// The last lines of a file.
///
/// # Errors
/// When it cannot be read.
pub(in crate::cli) fn tail_of(path: &Path, lines: usize) -> Result<Vec<u8>> {
    let mut all = disk::read_end(path, TAIL)?;
    let kept = last_lines(&all, lines).len();
    Ok(all.split_off(all.len() - kept))
}

/// That the logs of trials were left out; `trials`: their numbers.
pub(super) fn left_out(trials: &str, are_many: bool) -> String {
    let (trial, was) = if are_many { ("trials", "logs") } else { ("trial", "log") };
    let verb = if are_many { "were" } else { "was" };
    format!("{trial} {trials}: the {was} {verb} left out of this copy (`--without logs`)")
}

/// Gives out a file.
///
/// # Errors
/// When it cannot be read.
pub(super) fn each(path: &Path, with: impl FnMut(&[u8])) -> Result<()> {
    disk::each_piece(path, 0, u64::MAX, with).map(drop)
}

/// The last lines of a text; one without an end counts.
fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    let whole = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = whole.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1) {
        None => &[],
        Some(before) => ends.nth(before).map_or(text, |(end, _)| &text[end + 1..]),
    }
}

/// The logs of a trial's jobs that are not empty.
pub(in crate::cli) fn of_jobs(tree: &Tree, waves: &Waves, trial: u64) -> Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for (_, array, trials) in waves.arrays() {
        if let Some(index) = trials.iter().position(|one| *one == trial) {
            let path = tree.job_log(array.array, index as u64 % array.count);
            if disk::stamp(&path)?.is_some_and(|(len, _)| len > 0) {
                logs.push(path);
            }
        }
    }
    Ok(logs)
}

/// Where the output of an attempt that an agent has run stands in the log of its slot: offset and length.
fn output_of(
    tree: &Tree,
    trial: u64,
    attempt: &Attempt,
    place: &Place,
) -> Result<Option<(u64, u64)>> {
    if place.log.is_some() || attempt.outcome().is_some() {
        return Ok(place.log);
    }
    // It runs: what stands behind the end of the one before it in its slot.
    let (lines, _) = bundle::deeds(tree, &place.agent, 0)?;
    let from = bundle::log_begins(&lines, trial, attempt.start.attempt, place.slot);
    Ok(Some((from, u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        let last = |lines| last_lines(b"a\nbb\n\nc", lines);
        assert_eq!([last(0), last(1), last(2), last(3)], [&b""[..], b"c", b"\nc", b"bb\n\nc"]);
        assert_eq!([last(4), last(9)], [b"a\nbb\n\nc", b"a\nbb\n\nc"]);
        assert_eq!((last_lines(b"a\nb\n", 1), last_lines(b"", 3)), (&b"b\n"[..], &b""[..]));
    }
}
