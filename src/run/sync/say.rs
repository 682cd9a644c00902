//! How ranks and keys are named in sentences.

/// "rank 1", "ranks 0 and 2", "ranks 0-6 and 9": the ranks come in order.
pub(super) fn ranks(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == *rank => run.1 = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let mut words = Vec::new();
    for (first, last) in runs {
        match last - first {
            0 => words.push(first.to_string()),
            1 => words.extend([first.to_string(), last.to_string()]),
            _ => words.push(format!("{first}-{last}")),
        }
    }
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", and(&words))
}

/// The kind of each rank, ranks of the same kind together: "`sum` on rank 0, `mean` on ranks 1 and 2". At
/// most four kinds are listed.
pub(super) fn by_rank<T: PartialEq>(all: &[T], show: impl Fn(&T) -> String) -> String {
    let groups = groups(all.iter().enumerate());
    list(groups.iter().map(|(one, who)| format!("{} on {}", show(one), ranks(who))), ", ")
}

/// The ranks of each different thing, in the order in which things first come.
pub(super) fn groups<T: PartialEq>(all: impl Iterator<Item = (usize, T)>) -> Vec<(T, Vec<usize>)> {
    let mut groups: Vec<(T, Vec<usize>)> = Vec::new();
    for (rank, one) in all {
        match groups.iter_mut().find(|(other, _)| *other == one) {
            Some((_, who)) => who.push(rank),
            None => groups.push((one, vec![rank])),
        }
    }
    groups
}

/// The first four, and how many more there are.
pub(super) fn list(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    let parts: Vec<String> = parts.into_iter().collect();
    let n_listed = parts.len().min(4);
    let text = parts[..n_listed].join(between);
    if n_listed < parts.len() {
        format!("{text}{between}and {} more", parts.len() - n_listed)
    } else {
        text
    }
}

/// The path to a leaf, as people write it: `a.b`.
pub(super) fn key(path: &[String]) -> String {
    crate::base::words::short(&path.join("."), 80)
}

/// "1", "1 and 2", "1, 2 and 3".
fn and(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_as_briefly_as_people_do() {
        assert_eq!(ranks(&[1]), "rank 1");
        assert_eq!(ranks(&[0, 2]), "ranks 0 and 2");
        assert_eq!(ranks(&[0, 1]), "ranks 0 and 1");
        assert_eq!(ranks(&[0, 1, 2, 5, 7, 8, 9]), "ranks 0-2, 5 and 7-9");
        assert_eq!(
            by_rank(&["a", "b", "a"], |s| format!("`{s}`")),
            "`a` on ranks 0 and 2, `b` on rank 1"
        );
        let six = by_rank(&[1, 2, 3, 4, 5, 6], i32::to_string);
        assert_eq!(six, "1 on rank 0, 2 on rank 1, 3 on rank 2, 4 on rank 3, and 2 more");
    }
}
