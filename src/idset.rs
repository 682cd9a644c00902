//! Sets of array indices (`0-9:2,14`), with their throttle (`%3`), and the job ids that carry them.
//!
//! Pure text; knows the syntax of Slurm's `--array` and PBS's `-J`, never their commands. Nothing
//! here is bounded by a site's `MaxArraySize`: that is the site's to say.

use std::fmt;

use crate::fault::Fault;

/// The largest index: MaxArraySize of Slurm is at most 4,000,001 (slurm.conf(5)), and PBS hangs
/// near INT_MAX (seen with 23.06: `qselect -T` on `-J 2147483640-2147483647`).
pub const MAX_INDEX: u32 = 4_000_000;

/// A set of array indices. Prints in the shortest form that Slurm's `--array` reads back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet {
    /// Sorted, disjoint, never touching: first and last index of each run.
    runs: Vec<(u32, u32)>,
}

impl IdSet {
    /// Returns the set of all indices from `first` to `last`, both included.
    pub fn range(first: u32, last: u32) -> Self {
        Self { runs: if first <= last { vec![(first, last)] } else { Vec::new() } }
    }

    /// Reads `0-9:2,14`: indices, ranges and ranges with a step, in any order, repeats allowed.
    ///
    /// # Errors
    /// A fault when the text is not such a list, or an index is above [`MAX_INDEX`].
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut ids = Vec::new();
        for item in text.split(',') {
            let (first, last, step) = read_item(text, item)?;
            match step {
                1 => ids.push((first, last)),
                _ => ids.extend((first..=last).step_by(step as usize).map(|id| (id, id))),
            }
        }
        Ok(Self::of_runs(ids))
    }

    /// Returns how many indices are in the set.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Returns whether no index is in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether `id` is in the set.
    pub fn contains(&self, id: u32) -> bool {
        let after = self.runs.partition_point(|(first, _)| *first <= id);
        after > 0 && self.runs[after - 1].1 >= id
    }

    /// Returns the smallest index.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.0)
    }

    /// Returns the largest index.
    pub fn last(&self) -> Option<u32> {
        self.runs.last().map(|run| run.1)
    }

    /// Goes through the indices, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Returns the indices that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of_runs(self.runs.iter().chain(&other.runs).copied().collect())
    }

    /// Returns the indices that are in this set and not in the other one.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|id| !other.contains(*id)).collect()
    }

    /// Returns first, last and step when one `FIRST-LAST:STEP` says it all, the only form that
    /// PBS's `-J` takes. A set of one index is `7-8:2`: PBS refuses `7` and `7-7`.
    pub fn as_one_range(&self) -> Option<(u32, u32, u32)> {
        let (first, last) = (self.first()?, self.last()?);
        if first == last {
            return Some((first, first + 1, 2));
        }
        let step = self.iter().nth(1)? - first;
        let fits = self.iter().zip((first..=last).step_by(step as usize)).all(|(a, b)| a == b);
        let count = (last - first) / step + 1;
        (fits && count as usize == self.len()).then_some((first, last, step))
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
        let mut rest = self.runs.as_slice();
        while let [(first, last), others @ ..] = rest {
            write!(f, "{comma}")?;
            comma = ",";
            match stride(rest) {
                Some((n, step)) => {
                    write!(f, "{first}-{}:{step}", first + step * (n as u32 - 1))?;
                    rest = &rest[n..];
                    continue;
                }
                None if first == last => write!(f, "{first}")?,
                None => write!(f, "{first}-{last}")?,
            }
            rest = others;
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
    /// The indices.
    pub ids: IdSet,
    /// The throttle, if there is one.
    pub throttle: Option<u32>,
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
    pub job: u32,
    /// The part of it.
    pub part: Part,
    /// The step, as written: `batch`, `extern`, `0`, `0+1`.
    pub step: Option<String>,
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
fn read_item(text: &str, item: &str) -> Result<(u32, u32, u32), Fault> {
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
    if last > MAX_INDEX {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn prints(text: &str, expected: &str) {
        assert_eq!(ArraySpec::parse(text).unwrap().to_string(), expected);
    }

    #[test]
    fn a_set_prints_in_its_shortest_form() {
        prints("0-9:2,14%3", "0-8:2,14%3");
        prints("7", "7");
        prints("3,1,2", "1-3");
        prints("1,2", "1-2");
        prints("1,3", "1,3");
        prints("1,3,5", "1-5:2");
        prints("0,2,3,4,5", "0,2-5");
        prints("0,2,4,5,6,7,10,20,30", "0,2,4-7,10-30:10");
        prints("5-5", "5");
        prints("00-03", "0-3");
        prints("1-4,3-9,2", "1-9");
        prints("0-4000000", "0-4000000");
    }

    #[test]
    fn a_wrong_set_is_a_fault() {
        let refused = |text: &str, expected: &str| {
            assert_eq!(ArraySpec::parse(text).unwrap_err().sentence, expected);
        };
        let whole = |text: &str, why: &str| {
            refused(text, &format!("`{text}` is not a set of array indices: {why}"));
        };
        whole("", "`` is not an index or a range");
        whole("1,,2", "`` is not an index or a range");
        whole("-3", "`-3` is not an index or a range");
        whole("+3", "`+3` is not an index or a range");
        whole("1 ", "`1 ` is not an index or a range");
        whole("3-1", "`3-1` runs backwards");
        whole("0-9:0", "the step of `0-9:0` is 0");
        whole("7:2", "the step of `7:2` has no range");
        whole("4000001", "4000001 is too large");
        whole("99999999999", "`99999999999` is not an index or a range");
        refused("0-9%0", "`0-9%0` has a wrong throttle: `%0`");
        refused("0-9%", "`0-9%` has a wrong throttle: `%`");
    }

    #[test]
    fn pbs_takes_one_range_of_at_least_two_numbers() {
        let check = |text, expected| {
            assert_eq!(IdSet::parse(text).unwrap().as_one_range(), expected, "{text}");
        };
        check("0-9", Some((0, 9, 1)));
        check("0-9:3", Some((0, 9, 3)));
        check("5", Some((5, 6, 2)));
        check("5,9", Some((5, 9, 4)));
        check("0-3,7-9", None);
        check("0,2,5", None);
        assert_eq!(IdSet::default().as_one_range(), None);
    }

    #[test]
    fn job_ids_come_in_all_forms() {
        let check = |text: &str, job, part, step: Option<&str>| {
            let expected = JobRef { job, part, step: step.map(str::to_owned) };
            assert_eq!(JobRef::parse(text).unwrap(), expected, "{text}");
        };
        let waiting =
            |ids, throttle, cut| Part::Waiting { ids: IdSet::parse(ids).unwrap(), throttle, cut };
        check("12", 12, Part::Whole, None);
        check("12_7", 12, Part::Task(7), None);
        check("12_[0-10000]", 12, waiting("0-10000", None, false), None);
        check("12_[3-4%2]", 12, waiting("3-4", Some(2), false), None);
        check("12_[3-4%2,8]", 12, waiting("3-4,8", Some(2), false), None);
        check("12_[0-20:4%3]", 12, waiting("0-20:4", Some(3), false), None);
        check("12+1", 12, Part::Component(1), None);
        check("12.batch", 12, Part::Whole, Some("batch"));
        check("12_7.0", 12, Part::Task(7), Some("0"));
        check("12+1.extern", 12, Part::Component(1), Some("extern"));
    }

    /// `xlate_array_task_str` (slurm_protocol_defs.c) overwrites the last three characters.
    #[test]
    fn a_shortened_job_id_keeps_only_whole_indices() {
        let check = |text: &str, expected: &str, limit| {
            let ids = IdSet::parse(expected).unwrap();
            let part = Part::Waiting { ids, throttle: limit, cut: true };
            assert_eq!(JobRef::parse(text).unwrap().part, part, "{text}");
        };
        check("12_[1,3,5,1...]", "1,3,5", None);
        check("12_[1,3,5,...%4]", "1,3,5", Some(4));
        check("12_[1,3-5,7-...]", "1,3-5", None);
    }

    #[test]
    fn what_is_no_job_id_is_a_fault() {
        for text in ["", "x", "12_", "12_x", "12_[3", "12_[]", "12+", "12.", "12 ", "12_7x", "-1"] {
            let fault = JobRef::parse(text).unwrap_err();
            assert!(fault.sentence.contains(" is not a "), "{text}: {fault}");
        }
    }

    fn ids() -> impl Strategy<Value = BTreeSet<u32>> {
        prop_oneof![
            proptest::collection::btree_set(0u32..60, 0..40),
            proptest::collection::btree_set(0u32..=MAX_INDEX, 0..10),
            (0u32..50, 1u32..9, 1usize..30)
                .prop_map(|(a, step, n)| (a..).step_by(step as usize).take(n).collect()),
        ]
    }

    proptest! {
        #[test]
        fn parse_undoes_print(ids in ids(), throttle in proptest::option::of(1u32..100)) {
            prop_assume!(!ids.is_empty());
            let set: IdSet = ids.iter().copied().collect();
            prop_assert!(set.iter().eq(ids.iter().copied()));
            prop_assert_eq!(set.len(), ids.len());
            let spec = ArraySpec { ids: set, throttle };
            prop_assert_eq!(ArraySpec::parse(&spec.to_string()).unwrap(), spec.clone());
            let id = JobRef {
                job: 9,
                part: Part::Waiting { ids: spec.ids, throttle, cut: false },
                step: None,
            };
            prop_assert_eq!(JobRef::parse(&id.to_string()).unwrap(), id);
        }

        #[test]
        fn sets_behave_as_sets(a in ids(), b in ids(), id in 0u32..70) {
            let (x, y): (IdSet, IdSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(x.contains(id), a.contains(&id));
            prop_assert!(x.union(&y).iter().eq(a.union(&b).copied()));
            prop_assert!(x.difference(&y).iter().eq(a.difference(&b).copied()));
            prop_assert_eq!(x.first(), a.first().copied());
            prop_assert_eq!(x.last(), a.last().copied());
        }

        #[test]
        fn one_range_means_the_same_set(ids in ids()) {
            let set: IdSet = ids.iter().copied().collect();
            if let Some((first, last, step)) = set.as_one_range() {
                prop_assert!(last > first);
                prop_assert!((first..=last).step_by(step as usize).eq(ids));
            }
        }

        #[test]
        fn no_text_breaks_it(text in "[0-9_+%:,.\\[\\]-]{0,16}") {
            let _ = JobRef::parse(&text);
            let _ = ArraySpec::parse(&text);
        }
    }
}
