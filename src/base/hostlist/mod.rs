//! Slurm's host lists (`n[1-3],m7`) and its counts a node (`2(x3),1`), read exactly as Slurm does.
//!
//! Pure text; never asks `scontrol`, which containers lack. The grammar is that of Slurm 23.11 and
//! later (`src/common/hostlist.c`), one-dimensional systems only; what Slurm would misread without
//! a word (a missing bracket, a blank inside one) is a fault here.

use crate::base::fault::Fault;

#[cfg(test)]
mod tests;

/// The most hosts one range may name (`MAX_SLURM_NODES`, `slurm/slurm.h`).
const MAX_RANGE: u64 = 64 * 1024;

/// The most texts the brackets before the last one may stand for (`MAX_PREFIX_CNT`).
const MAX_PREFIXES: u64 = 64 * 1024;

/// The most hosts of a whole list. Slurm bounds only its parts (`MAX_RANGES` is 256K); a list that
/// passes every one of those limits could still fill the memory.
const MAX_HOSTS: usize = 256 * 1024;

/// One `LO-HI` of a bracket. The width is that of LO and belongs to this range alone.
#[derive(Debug, Clone, Copy)]
struct Range {
    lo: u64,
    hi: u64,
    width: usize,
}

/// Returns the hosts in Slurm's order, duplicates kept, as `scontrol show hostnames` prints them.
///
/// With two brackets the first one turns slowest. With three or more the order is not that of an
/// odometer: Slurm expands the last bracket but one first and recurses outward (`_push_range_list`).
///
/// # Errors
/// A fault when the text is not a host list, or names more hosts than Slurm allows.
///
/// ```
/// # use hpcsweep::base::hostlist::expand;
/// assert_eq!(expand("n[08-10],m1").unwrap(), ["n08", "n09", "n10", "m1"]);
/// ```
pub fn expand(text: &str) -> Result<Vec<String>, Fault> {
    let mut hosts = Vec::new();
    for token in tokens(text)? {
        expand_token(text, token, &mut hosts)?;
    }
    Ok(hosts)
}

/// Returns the tasks of each node of `SLURM_TASKS_PER_NODE` or `SLURM_STEP_TASKS_PER_NODE`, in the
/// order of the node list: `2(x3),1` is 2, 2, 2, 1 (sbatch(1), output environment variables).
///
/// # Errors
/// A fault when the text is not a list of `COUNT` or `COUNT(xTIMES)`.
pub fn tasks_per_node(text: &str) -> Result<Vec<u32>, Fault> {
    let wrong = || {
        Fault::request(format!("`{text}` does not count tasks a node"))
            .hint("Slurm writes it as `2(x3),1`: two tasks on each of three nodes, then one")
    };
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, rest)) => (count, rest.strip_suffix(')').ok_or_else(wrong)?),
            None => (part, "1"),
        };
        let count: u32 = decimal(count).ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        let times = decimal(times).filter(|t| (1..=MAX_RANGE).contains(t)).ok_or_else(wrong)?;
        if counts.len() as u64 + times > MAX_RANGE {
            return Err(wrong());
        }
        counts.extend(std::iter::repeat_n(count, times as usize));
    }
    Ok(counts)
}

/// Cuts at tabs, commas, blanks and newlines that are outside brackets (`_next_tok`).
fn tokens(text: &str) -> Result<Vec<&str>, Fault> {
    let mut tokens = Vec::new();
    let (mut start, mut open) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            '[' if open => return Err(invalid(text, "a bracket opens inside a bracket")),
            ']' if !open => return Err(invalid(text, "a bracket closes that was not opened")),
            '[' => open = true,
            ']' => open = false,
            // A hostlist function; only the controller can expand it (`hostlist_create_client`).
            '{' | '}' => return Err(invalid(text, "only the controller can expand `{...}`")),
            '\t' | ',' | ' ' | '\n' if !open => {
                tokens.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(invalid(text, "a bracket is not closed"));
    }
    tokens.push(&text[start..]);
    tokens.retain(|token| !token.is_empty());
    Ok(tokens)
}

/// Expands one token, the way `_hostlist_create_bracketed` hands it to `_push_range_list`.
fn expand_token(text: &str, token: &str, hosts: &mut Vec<String>) -> Result<(), Fault> {
    let Some((prefix, rest)) = token.rsplit_once('[') else {
        return push(text, hosts, token.to_owned());
    };
    let (inside, suffix) = rest.split_once(']').unwrap_or((rest, ""));
    let ranges = ranges(text, inside)?;
    let numbers: u64 = ranges.iter().map(|r| r.hi - r.lo + 1).sum();
    let max_hosts = prefix_count(text, prefix)?.saturating_mul(numbers);
    if max_hosts > MAX_HOSTS as u64 {
        return Err(too_many(text));
    }
    push_prefix(text, prefix, suffix, &ranges, hosts)
}

/// The recursion of `_push_range_list`: the last bracket of the prefix turns slowest.
fn push_prefix(
    text: &str,
    prefix: &str,
    suffix: &str,
    last: &[Range],
    hosts: &mut Vec<String>,
) -> Result<(), Fault> {
    let Some((before, rest)) = prefix.rsplit_once('[') else {
        for range in last {
            for n in range.lo..=range.hi {
                push(text, hosts, format!("{prefix}{n:0width$}{suffix}", width = range.width))?;
            }
        }
        return Ok(());
    };
    let (inside, after) = rest.split_once(']').unwrap_or((rest, ""));
    for range in ranges(text, inside)? {
        for n in range.lo..=range.hi {
            let prefix = format!("{before}{n:0width$}{after}", width = range.width);
            push_prefix(text, &prefix, suffix, last, hosts)?;
        }
    }
    Ok(())
}

/// How many texts the brackets of the prefix stand for, before any of them is made.
fn prefix_count(text: &str, mut prefix: &str) -> Result<u64, Fault> {
    let mut count: u64 = 1;
    while let Some((before, rest)) = prefix.rsplit_once('[') {
        let inside = rest.split_once(']').map_or(rest, |(inside, _)| inside);
        let n_numbers: u64 = ranges(text, inside)?.iter().map(|r| r.hi - r.lo + 1).sum();
        if n_numbers > MAX_PREFIXES {
            return Err(too_many(text));
        }
        count = count.saturating_mul(n_numbers);
        prefix = before;
    }
    Ok(count)
}

/// Reads the inside of one bracket: `1-3,07` (`_parse_range_list`, `_parse_single_range`).
fn ranges(text: &str, inside: &str) -> Result<Vec<Range>, Fault> {
    let mut ranges = Vec::new();
    for part in inside.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (Some(lo), Some(hi)) = (decimal(low), decimal(high)) else {
            return Err(invalid(text, &format!("`{part}` is not a number or a range")));
        };
        if lo > hi {
            return Err(invalid(text, &format!("the range `{part}` runs backwards")));
        }
        if hi - lo >= MAX_RANGE {
            return Err(invalid(text, &format!("the range `{part}` names more than 65,536 hosts")));
        }
        if low.len() > 1024 {
            return Err(invalid(text, "a host name is too long"));
        }
        ranges.push(Range { lo, hi, width: low.len() });
    }
    Ok(ranges)
}

fn push(text: &str, hosts: &mut Vec<String>, host: String) -> Result<(), Fault> {
    if hosts.len() == MAX_HOSTS {
        return Err(too_many(text));
    }
    hosts.push(host);
    Ok(())
}

/// Digits only; `str::parse` alone would take a sign.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn invalid(text: &str, why: &str) -> Fault {
    Fault::request(format!("`{}` is not a host list: {why}", shown(text)))
        .hint("write hosts as Slurm does: `n[1-3,07],login1`")
}

fn too_many(text: &str) -> Fault {
    Fault::request(format!("`{}` names too many hosts", shown(text)))
        .hint("Slurm takes at most 65,536 hosts a range, and hpcsweep 262,144 hosts a list")
}

/// A list can be very long; a fault shows its beginning.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(80).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}
