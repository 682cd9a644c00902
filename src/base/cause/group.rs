//! Failures that are the same but for numbers and paths, together.

use std::collections::HashMap;

/// The most parts of a list of trials that are shown.
const MOST_PARTS: usize = 8;

/// Trials that ended without success for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Why the first of them did.
    pub(crate) words: String,
    /// Their numbers, ascending; at least one.
    pub(crate) trials: Vec<u64>,
    /// Whether numbers or paths in the words of others are different.
    pub(crate) differ: bool,
}

impl Group {
    /// In one line: `37 x ModuleNotFoundError: No module named 'foo' (trials 0, 3, 9-42)`.
    pub(crate) fn line(&self) -> String {
        let Self { words, trials, differ } = self;
        let differ = if *differ { "; others have other numbers or paths" } else { "" };
        format!("{} x {words} ({}{differ})", trials.len(), list(trials))
    }
}

/// The groups of trials, ascending by number, and why each of them ended without success: the largest first.
pub(crate) fn of(all: impl Iterator<Item = (u64, String)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (trial, words) in all {
        let place = *places.entry(fold(&words)).or_insert(groups.len());
        match groups.get_mut(place) {
            None => groups.push(Group { words, trials: vec![trial], differ: false }),
            Some(group) => {
                group.trials.push(trial);
                group.differ |= group.words != words;
            }
        }
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.trials.len()), group.trials[0]));
    groups
}

/// What comes before a number that says how a program ended: other numbers are other failures.
const ENDS: [&str; 2] = ["exit code ", "signal "];

/// Words without what differs between trials: every number is `#`, every absolute path is `/`; not those of [`ENDS`].
fn fold(words: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || "\"'`(),:;<>".contains(c);
    let mut folded = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(c) = rest.chars().next() {
        let begins =
            folded.chars().next_back().is_none_or(|before| is_end(before) || before == '=');
        let (mark, length) = if c == '/' && begins {
            ('/', rest.find(is_end).unwrap_or(rest.len()))
        } else if let Some(hex) = rest.strip_prefix("0x") {
            ('#', 2 + hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len()))
        } else if c.is_ascii_digit() && ENDS.iter().any(|end| folded.ends_with(end)) {
            let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            folded.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        } else if c.is_ascii_digit() {
            ('#', rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()))
        } else {
            (c, c.len_utf8())
        };
        folded.push(mark);
        rest = &rest[length..];
    }
    folded
}

/// Numbers of trials, ascending, in words: `trial 3`, `trials 0, 3, 9-42`.
pub(crate) fn list(trials: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &trial in trials {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == trial => *last = trial,
            _ => runs.push((trial, trial)),
        }
    }
    let part = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let mut parts: Vec<String> = runs.iter().take(MOST_PARTS).map(part).collect();
    if runs.len() > MOST_PARTS {
        parts.push("...".to_owned());
    }
    format!("trial{} {}", if trials.len() == 1 { "" } else { "s" }, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_differ_in_numbers_and_paths_are_one_group() {
        let why = |trial: u64| match trial {
            5 => "exit code 3".to_owned(),
            0 | 2 => "KeyError: 'a'".to_owned(),
            _ => format!("OSError: '/tmp/x{trial}/f': code 0x{trial}f at line {trial}"),
        };
        let groups = of([0, 1, 2, 3, 4, 5, 7].map(|trial| (trial, why(trial))).into_iter());
        let lines: Vec<String> = groups.iter().map(Group::line).collect();
        assert_eq!(
            lines,
            [
                "4 x OSError: '/tmp/x1/f': code 0x1f at line 1 (trials 1, 3-4, 7; others have other numbers or paths)",
                "2 x KeyError: 'a' (trials 0, 2)",
                "1 x exit code 3 (trial 5)",
            ]
        );
    }

    #[test]
    fn a_list_of_trials_is_short() {
        assert_eq!(list(&[3]), "trial 3");
        assert_eq!(list(&[0, 3, 9, 10, 11]), "trials 0, 3, 9-11");
        let odd: Vec<u64> = (0..20).map(|n| 2 * n + 1).collect();
        assert_eq!(list(&odd), "trials 1, 3, 5, 7, 9, 11, 13, 15, ...");
    }

    #[test]
    fn words_are_folded_by_numbers_and_whole_paths() {
        for (words, folded) in [
            ("rank 3 on n12: exit code 17", "rank # on n#: exit code 17"),
            ("signal 11 (SIGSEGV): rank 3", "signal 11 (SIGSEGV): rank #"),
            ("cannot read `/a/b 1`: no", "cannot read `/ #`: no"),
            ("either/or, file=/x.py", "either/or, file=/"),
            ("", ""),
            ("0x", "#"),
        ] {
            assert_eq!(fold(words), folded);
        }
    }
}
