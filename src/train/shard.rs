//! The shard map: which rank reads which samples, and so which files.
//!
//! Samples are counted through all files in their order. A map is made in stretches of equal length,
//! file by file in turn, or as the user says.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;
use crate::base::words;

/// A file of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, as the user wrote it or its pattern found it.
    pub name: String,
    /// How many samples are in it.
    pub samples: u64,
}

/// The user's assignment for a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "expected a file name or a range of samples `[first, end]`")]
pub enum Item {
    /// A file, by the name it has in the data.
    File(String),
    /// The samples from the first number up to, but not with, the second.
    Range([u64; 2]),
}

/// What happens to samples that the user gave to no rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rest {
    /// They are a fault: most often something was forgotten.
    #[default]
    Refuse,
    /// No rank reads them.
    LeaveOut,
}

/// What one rank reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shard {
    /// The samples, as ranges in the order in which they are read. They do not overlap.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The numbers of the files they are in, ascending.
    pub files: Vec<usize>,
}

impl Shard {
    /// The numbers of its samples.
    pub fn indices(&self) -> Vec<u64> {
        self.ranges.iter().cloned().flatten().collect()
    }
}

/// Who reads what: one shard a rank. No sample is in two, and none is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards(Vec<Shard>);

impl Shards {
    /// As the user says: files and ranges of each rank.
    ///
    /// # Errors
    /// A fault when the map names a rank, file or sample that there is not, gives a sample to two
    /// ranks or twice, gives a rank nothing, or leaves something out that `rest` does not allow.
    pub fn given(
        files: &[File],
        map: &BTreeMap<u64, Vec<Item>>,
        world: u64,
        rest: Rest,
    ) -> Result<Self, Fault> {
        if let Some(rank) = map.keys().find(|rank| **rank >= world) {
            let ranks = words::count(world, "rank");
            return Err(Fault::request(format!("the shard map names rank {rank} of {ranks}"))
                .hint("ranks are counted from 0"));
        }
        let mut ranges_of_ranks = vec![Vec::new(); world as usize];
        let starts = places(files);
        for (rank, items) in map {
            for item in items {
                let range = match item {
                    Item::File(name) => starts[number(files, *rank, name)?].clone(),
                    Item::Range([first, end]) => whole(&starts, *rank, *first, *end)?,
                };
                ranges_of_ranks[*rank as usize].push(range);
            }
        }
        disjoint(&ranges_of_ranks)?;
        if rest == Rest::Refuse {
            complete(files, &ranges_of_ranks)?;
        }
        Self::checked(files, ranges_of_ranks)
    }

    /// What each rank reads, in rank order.
    pub fn ranks(&self) -> &[Shard] {
        &self.0
    }

    /// Finds the files of each rank and refuses ranks without samples.
    fn checked(files: &[File], all: Vec<Vec<Range<u64>>>) -> Result<Self, Fault> {
        let starts = places(files);
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start) < a.end.min(b.end);
        let mut shards = Vec::with_capacity(all.len());
        for (rank, mut ranges) in all.into_iter().enumerate() {
            ranges.retain(|range| !range.is_empty());
            if ranges.is_empty() {
                return Err(Fault::request(format!("rank {rank} would read no samples"))
                    .hint("use fewer ranks, or give this one some"));
            }
            let files = (0..starts.len())
                .filter(|k| ranges.iter().any(|range| meet(range, &starts[*k])))
                .collect();
            shards.push(Shard { ranges, files });
        }
        Ok(Self(shards))
    }
}

/// The `part`-th of `parts` stretches of `n` places; their lengths differ by one at most, the longer
/// ones first.
pub(super) fn balanced(n: u64, parts: u64, part: u64) -> Range<u64> {
    let (each, more) = (n / parts, n % parts);
    let start = part * each + part.min(more);
    start..start + each + u64::from(part < more)
}

/// The samples of each file.
fn places(files: &[File]) -> Vec<Range<u64>> {
    let mut start = 0;
    files
        .iter()
        .map(|file| {
            let range = start..start + file.samples;
            start = range.end;
            range
        })
        .collect()
}

/// The number of the file that has this name.
fn number(files: &[File], rank: u64, name: &str) -> Result<usize, Fault> {
    if let Some(k) = files.iter().position(|file| file.name == name) {
        return Ok(k);
    }
    let fault = Fault::request(format!(
        "the shard map gives rank {rank} the file `{name}`, which is not among the data"
    ));
    Err(match words::nearest(name, files.iter().map(|file| file.name.as_str())) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint("write it as it stands in `train.data.train`"),
    })
}

/// The range, if it has samples and they are there.
fn whole(starts: &[Range<u64>], rank: u64, first: u64, end: u64) -> Result<Range<u64>, Fault> {
    let n = starts.last().map_or(0, |last| last.end);
    if first < end && end <= n {
        return Ok(first..end);
    }
    let sentence =
        format!("the shard map gives rank {rank} the range [{first}, {end}] of {n} samples");
    let hint =
        format!("a range is its first sample, from 0, and the one behind its last, up to {n}");
    Err(Fault::request(sentence).hint(hint))
}

/// Refuses samples that are given twice.
fn disjoint(all: &[Vec<Range<u64>>]) -> Result<(), Fault> {
    let sorted = sorted(all);
    for pair in sorted.windows(2) {
        let [(a, one), (b, other)] = pair else { continue };
        if b.start < a.end {
            let both = spoken(&(b.start..a.end.min(b.end)));
            let (one, other) = (one.min(other), one.max(other));
            let conflict = if one == other {
                format!("rank {one} is given {both} twice")
            } else {
                format!("ranks {one} and {other} are both given {both}")
            };
            return Err(Fault::request(conflict).hint("give each sample to one rank, once"));
        }
    }
    Ok(())
}

/// Refuses samples that no rank reads.
fn complete(files: &[File], all: &[Vec<Range<u64>>]) -> Result<(), Fault> {
    let starts = places(files);
    let n = starts.last().map_or(0, |last| last.end);
    let mut upto = 0;
    for (range, _) in sorted(all).into_iter().chain([(n..n, 0)]) {
        if range.start > upto {
            let left_out = spoken(&(upto..range.start));
            let file = starts.iter().position(|file| file.contains(&upto));
            let name = file.map_or("", |k| files[k].name.as_str());
            return Err(Fault::request(format!("no rank is given {left_out} (file `{name}`)"))
                .hint("give them to a rank"));
        }
        upto = range.end;
    }
    Ok(())
}

/// All ranges by their first sample, each with its rank.
fn sorted(all: &[Vec<Range<u64>>]) -> Vec<(Range<u64>, usize)> {
    let mut sorted: Vec<(Range<u64>, usize)> = all
        .iter()
        .enumerate()
        .flat_map(|(rank, ranges)| {
            ranges.clone().into_iter().filter(|range| !range.is_empty()).map(move |r| (r, rank))
        })
        .collect();
    sorted.sort_by_key(|(range, _)| (range.start, range.end));
    sorted
}

/// A range as people say it.
fn spoken(range: &Range<u64>) -> String {
    match range.end - range.start {
        1 => format!("sample {}", range.start),
        _ => format!("samples {} to {}", range.start, range.end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<File> {
        let file = |(name, samples): (&str, u64)| File { name: name.into(), samples };
        [("a.npz", 10), ("b.npz", 5), ("c.npz", 20), ("d.npz", 1)].map(file).into()
    }

    fn map<const N: usize>(ranks: [(u64, Vec<Item>); N]) -> BTreeMap<u64, Vec<Item>> {
        ranks.into()
    }

    fn file(name: &str) -> Item {
        Item::File(name.into())
    }

    #[test]
    fn stretches_are_balanced_and_cover_everything() {
        for (n, parts) in (0..40).flat_map(|n| (1..9).map(move |parts| (n, parts))) {
            let all: Vec<Range<u64>> = (0..parts).map(|k| balanced(n, parts, k)).collect();
            assert_eq!(
                all.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..n).collect::<Vec<_>>()
            );
            let lengths = all.iter().map(|range| range.end - range.start);
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
        }
    }

    #[test]
    fn a_given_map_is_kept() {
        let given = map([
            (0, vec![file("d.npz"), file("a.npz")]),
            (1, vec![Item::Range([15, 35]), file("b.npz")]),
        ]);
        let shards = Shards::given(&files(), &given, 2, Rest::Refuse).unwrap();
        assert_eq!(shards.ranks()[0], Shard { ranges: vec![35..36, 0..10], files: vec![0, 3] });
        assert_eq!(shards.ranks()[1], Shard { ranges: vec![15..35, 10..15], files: vec![1, 2] });
        let part = map([(0, vec![file("b.npz")]), (1, vec![Item::Range([0, 1])])]);
        let shards = Shards::given(&files(), &part, 2, Rest::LeaveOut).unwrap();
        assert_eq!(
            shards.ranks().iter().map(|rank| rank.indices().len()).collect::<Vec<_>>(),
            [5, 1]
        );
    }

    #[test]
    fn maps_that_cannot_be_are_refused() {
        let check = |given: BTreeMap<u64, Vec<Item>>, expected: &str| {
            let fault = Shards::given(&files(), &given, 2, Rest::Refuse).unwrap_err();
            assert_eq!(fault.to_string(), expected);
        };
        check(
            map([(2, vec![file("a.npz")])]),
            "the shard map names rank 2 of 2 ranks\nhint: ranks are counted from 0",
        );
        check(
            map([(0, vec![file("a.npy")])]),
            "the shard map gives rank 0 the file `a.npy`, which is not among the data\n\
             hint: did you mean `a.npz`?",
        );
        check(
            map([(1, vec![Item::Range([30, 37])])]),
            "the shard map gives rank 1 the range [30, 37] of 36 samples\n\
             hint: a range is its first sample, from 0, and the one behind its last, up to 36",
        );
        check(
            map([(0, vec![Item::Range([0, 20])]), (1, vec![file("b.npz")])]),
            "ranks 0 and 1 are both given samples 10 to 14\nhint: give each sample to one rank, once",
        );
        check(
            map([(1, vec![file("d.npz"), file("d.npz")])]),
            "rank 1 is given sample 35 twice\nhint: give each sample to one rank, once",
        );
        check(
            map([(0, vec![file("a.npz")]), (1, vec![file("b.npz"), file("d.npz")])]),
            "no rank is given samples 15 to 34 (file `c.npz`)\n\
             hint: give them to a rank",
        );
        check(
            map([(0, vec![Item::Range([0, 36])])]),
            "rank 1 would read no samples\nhint: use fewer ranks, or give this one some",
        );
    }

    #[test]
    fn a_long_range_is_compared_with_all_behind_it() {
        let given =
            map([(0, vec![Item::Range([0, 36])]), (1, vec![Item::Range([3, 4]), file("c.npz")])]);
        let fault = Shards::given(&files(), &given, 2, Rest::Refuse).unwrap_err();
        assert_eq!(fault.sentence, "ranks 0 and 1 are both given sample 3");
    }

    #[test]
    fn items_are_read_from_text() {
        let read: Vec<Item> = serde_json::from_str(r#"["a.npz", [0, 5]]"#).unwrap();
        assert_eq!(read, [file("a.npz"), Item::Range([0, 5])]);
    }
}
