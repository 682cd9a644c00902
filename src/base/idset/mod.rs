//! Sets of array indices (`0-9:2,14`), with their throttle (`%3`), and the job ids that carry them.
//!
//! Pure text; knows the syntax of Slurm's `--array` and PBS's `-J`, never their commands. Nothing
//! here is bounded by a site's `MaxArraySize`: that is the site's to say.

use std::fmt;

use crate::base::fault::Fault;

#[cfg(test)]
mod tests;

/// The largest index: MaxArraySize of Slurm is at most 4,000,001 (slurm.conf(5)), and PBS hangs
/// near INT_MAX (seen with 23.06: `qselect -T` on `-J 2147483640-2147483647`).
pub(crate) const MAX_INDEX: u32 = 4_000_000;

/// The largest number that is read where numbers are no indices: no sweep has so many trials.
const MAX_NUMBER: u32 = 100_000_000;

/// A text of a few bytes stands for so many runs at most.
const MOST_RUNS: usize = 2 * MAX_INDEX as usize;

/// A set of array indices. Prints in the shortest form that Slurm's `--array` reads back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet {
    /// Sorted, disjoint, never touching: first and last index of each run.
    runs: Vec<(u32, u32)>,
}

impl IdSet {
    /// Reads `0-9:2,14`: indices, ranges and ranges with a step, in any order, repeats allowed.
    ///
    /// # Errors
    /// A fault when the text is not such a list, or an index is above [`MAX_INDEX`].
    pub fn parse(text: &str) -> Result<Self, Fault> {
        Self::up_to(text, MAX_INDEX)
    }

    /// As [`IdSet::parse`], of numbers that are no indices: those of trials, of which there may be more.
    ///
    /// # Errors
    /// A fault when the text is no such list.
    pub(crate) fn of_numbers(text: &str) -> Result<Self, Fault> {
        Self::up_to(text, MAX_NUMBER)
    }

    fn up_to(text: &str, largest: u32) -> Result<Self, Fault> {
        let mut ids = Vec::new();
        for item in text.split(',') {
            let (first, last, step) = read_item(text, item, largest)?;
            let runs = if step == 1 { 0 } else { (last - first) / step };
            // A short text can name all indices again and again.
            if ids.len() + runs as usize >= MOST_RUNS {
                let reason = format!(
                    "`{text}` is not a set of array indices: it names them again and again"
                );
                return Err(Fault::request(reason).hint("name each index once"));
            }
            match step {
                1 => ids.push((first, last)),
                _ => ids.extend((first..=last).step_by(step as usize).map(|id| (id, id))),
            }
        }
        Ok(Self::of_runs(ids))
    }

    /// The set of these trials.
    pub(crate) fn of_trials(trials: impl IntoIterator<Item = u64>) -> Self {
        trials.into_iter().filter_map(|trial| u32::try_from(trial).ok()).collect()
    }

    /// Returns how many indices are in the set.
    pub(crate) fn len(&self) -> usize {
        self.runs.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Returns whether no index is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether `id` is in the set.
    pub(crate) fn contains(&self, id: u32) -> bool {
        let n_runs_before = self.runs.partition_point(|(first, _)| *first <= id);
        n_runs_before > 0 && self.runs[n_runs_before - 1].1 >= id
    }

    /// Returns whether a trial is in the set.
    pub(crate) fn has(&self, trial: u64) -> bool {
        u32::try_from(trial).is_ok_and(|id| self.contains(id))
    }

    /// Returns the first and the last index of each run, smallest first.
    pub(crate) fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// Goes through the indices, smallest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Returns the indices that are in either set.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self::of_runs(self.runs.iter().chain(&other.runs).copied().collect())
    }

    /// Sorts the runs and joins those that meet.
    fn of_runs(mut given: Vec<(u32, u32)>) -> Self {
        given.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (first, last) in given {
            match runs.last_mut() {
                Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
                _ => runs.push((first, last)),
            }
        }
        Self { runs }
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self::of_runs(ids.into_iter().map(|id| (id, id)).collect())
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut unwritten = self.runs.as_slice();
        while let [(first, last), others @ ..] = unwritten {
            write!(f, "{comma}")?;
            comma = ",";
            match stride(unwritten) {
                Some((n, step)) => {
                    write!(f, "{first}-{}:{step}", first + step * (n as u32 - 1))?;
                    unwritten = &unwritten[n..];
                    continue;
                }
                None if first == last => write!(f, "{first}")?,
                None => write!(f, "{first}-{last}")?,
            }
            unwritten = others;
        }
        Ok(())
    }
}

/// How many of the next runs are single indices at equal distances, when three or more are.
fn stride(runs: &[(u32, u32)]) -> Option<(usize, u32)> {
    let [(a, _), (b, _), ..] = runs else { return None };
    let step = b - a;
    let fits = |(i, run): (usize, &(u32, u32))| {
        run.0 == run.1 && u64::from(run.0) == u64::from(*a) + i as u64 * u64::from(step)
    };
    let n = runs.iter().enumerate().take_while(|run| fits(*run)).count();
    (n >= 3).then_some((n, step))
}

/// An index set and how many of its tasks may run at once: `0-9:2,14%3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArraySpec {
    /// The indices, each once.
    pub(crate) ids: IdSet,
    /// The throttle, if there is one.
    pub(crate) throttle: Option<u32>,
}

impl ArraySpec {
    /// Reads `0-9:2,14%3` as `sbatch --array` does.
    ///
    /// # Errors
    /// A fault when the indices are wrong, or the throttle is not a number of at least 1: `%0` is
    /// taken by PBS and never runs.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let (ids, throttle) = match text.rsplit_once('%') {
            Some((ids, throttle)) => (ids, Some(read_throttle(text, throttle)?)),
            None => (text, None),
        };
        Ok(Self { ids: IdSet::parse(ids)?, throttle })
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ids)?;
        self.throttle.map_or(Ok(()), |n| write!(f, "%{n}"))
    }
}

/// Which part of a job an id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// `12`: a plain job, or an array as a whole.
    Whole,
    /// `12_7`: one task of an array.
    Task(u32),
    /// `12_[3-4%2,8]`: the tasks that have not started, as squeue and sacct show them.
    Waiting {
        /// The indices. When `cut` is true these are only the ones that were shown whole.
        ids: IdSet,
        /// The throttle, if one was shown.
        throttle: Option<u32>,
        /// squeue shortens a long list to `SLURM_BITSTR_LEN` (64) characters and `...`.
        cut: bool,
    },
    /// `12+1`: one component of a heterogeneous job.
    Component(u32),
}

/// A job id as Slurm's commands print it: `12`, `12_7`, `12_[0-10000]`, `12+1`, each perhaps with a
/// step (`12_7.batch`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef {
    /// The number of the job, or of the array's first job.
    pub(crate) job: u32,
    /// The part of it.
    pub part: Part,
    /// The step, as written: `batch`, `extern`, `0`, `0+1`.
    pub(crate) step: Option<String>,
}

impl JobRef {
    /// Reads a job id.
    ///
    /// # Errors
    /// A fault when the text has none of the forms above; the caller shows what printed it.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::scheduler(format!("`{text}` is not a job id"))
                .hint("a Slurm job id looks like `12`, `12_7`, `12_[3-8%2]` or `12+1`")
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (job, rest) = text.split_at(digits);
        let job = number(job).ok_or_else(wrong)?;
        let (part, rest) = match rest.as_bytes().first() {
            Some(b'_') if rest.starts_with("_[") => {
                let (inside, rest) = rest[2..].split_once(']').ok_or_else(wrong)?;
                (waiting(text, inside)?, rest)
            }
            Some(b'_' | b'+') => {
                let end = rest[1..].find('.').map_or(rest.len(), |dot| dot + 1);
                let id = number(&rest[1..end]).ok_or_else(wrong)?;
                let task = rest.starts_with('_');
                (if task { Part::Task(id) } else { Part::Component(id) }, &rest[end..])
            }
            _ => (Part::Whole, rest),
        };
        let step = match rest.strip_prefix('.') {
            Some("") => return Err(wrong()),
            Some(step) => Some(step.to_owned()),
            None if rest.is_empty() => None,
            None => return Err(wrong()),
        };
        Ok(Self { job, part, step })
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        match &self.part {
            Part::Whole => {}
            Part::Task(id) => write!(f, "_{id}")?,
            Part::Component(id) => write!(f, "+{id}")?,
            Part::Waiting { ids, throttle, cut } => {
                let dots = if *cut { "..." } else { "" };
                let spec = ArraySpec { ids: ids.clone(), throttle: None };
                let throttle = throttle.map_or(String::new(), |n| format!("%{n}"));
                write!(f, "_[{spec}{dots}{throttle}]")?;
            }
        }
        self.step.as_ref().map_or(Ok(()), |step| write!(f, ".{step}"))
    }
}

/// Reads the bracket of a waiting array. The throttle may stand behind any item.
fn waiting(text: &str, inside: &str) -> Result<Part, Fault> {
    let (mut items, mut throttle, mut cut) = (Vec::new(), None, false);
    for item in inside.split(',') {
        let (item, limit) = item.split_once('%').unwrap_or((item, ""));
        if !limit.is_empty() {
            throttle = Some(read_throttle(text, limit)?);
        }
        // The dots are written over the last characters, so the number before them is not whole.
        match item.find("..") {
            Some(_) => cut = true,
            None if item.is_empty() && cut => {}
            None => items.push(item),
        }
    }
    let ids =
        if items.is_empty() && cut { IdSet::default() } else { IdSet::parse(&items.join(","))? };
    Ok(Part::Waiting { ids, throttle, cut })
}

/// One item: `7`, `0-9` or `0-9:2`.
fn read_item(text: &str, item: &str, largest: u32) -> Result<(u32, u32, u32), Fault> {
    let hint = "write indices as in `0-9:2,14`";
    let wrong =
        |why: String| Fault::request(format!("`{text}` is not a set of array indices: {why}"));
    let (range, step) = match item.split_once(':') {
        Some((range, step)) if range.contains('-') => (range, step),
        Some(_) => return Err(wrong(format!("the step of `{item}` has no range")).hint(hint)),
        None => (item, "1"),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (Some(first), Some(last), Some(step)) = (number(first), number(last), number(step)) else {
        return Err(wrong(format!("`{item}` is not an index or a range")).hint(hint));
    };
    if step == 0 {
        return Err(wrong(format!("the step of `{item}` is 0")).hint(hint));
    }
    if first > last {
        return Err(wrong(format!("`{item}` runs backwards")).hint(hint));
    }
    if last > largest {
        return Err(wrong(format!("{last} is too large"))
            .hint(format!("no scheduler takes indices above {MAX_INDEX}")));
    }
    Ok((first, last, step))
}

fn read_throttle(text: &str, limit: &str) -> Result<u32, Fault> {
    number(limit).filter(|n| *n > 0).ok_or_else(|| {
        Fault::request(format!("`{text}` has a wrong throttle: `%{limit}`"))
            .hint("`%3` lets three tasks run at a time; leave it away for no limit")
    })
}

/// Digits only; `str::parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
