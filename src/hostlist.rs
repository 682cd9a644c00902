//! Slurm's host lists (`n[1-3],m7`) and its counts a node (`2(x3),1`), read exactly as Slurm does.
//!
//! Pure text; never asks `scontrol`, which containers lack. The grammar is that of Slurm 23.11 and
//! later (`src/common/hostlist.c`), one-dimensional systems only; what Slurm would misread without
//! a word (a missing bracket, a blank inside one) is a fault here.

use crate::fault::Fault;

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
/// # use hpcsweep::hostlist::expand;
/// assert_eq!(expand("n[08-10],m1").unwrap(), ["n08", "n09", "n10", "m1"]);
/// ```
pub fn expand(text: &str) -> Result<Vec<String>, Fault> {
    let mut hosts = Vec::new();
    for token in tokens(text)? {
        expand_token(text, token, &mut hosts)?;
    }
    Ok(hosts)
}

/// Returns a list that [`expand`] turns back into exactly these hosts, in this order.
///
/// Neighbours with the same letters share a bracket, as in `scontrol show hostlist`:
/// `node3,node1,node2` becomes `node[3,1-2]`. Nothing is sorted and nothing is dropped. Empty names
/// and names with brackets, commas or blanks are not host names and must not be given.
pub fn compress<S: AsRef<str>>(hosts: &[S]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut group: Option<(&str, Vec<Range>)> = None;
    for host in hosts {
        let host = host.as_ref();
        let Some((prefix, number, width)) = split(host) else {
            out.extend(group.take().map(print));
            out.push(host.to_owned());
            continue;
        };
        let range = Range { lo: number, hi: number, width };
        match &mut group {
            Some((same, ranges)) if *same == prefix => match ranges.last_mut() {
                Some(last) if follows(last, number, width) => last.hi = number,
                _ => ranges.push(range),
            },
            _ => {
                out.extend(group.take().map(print));
                group = Some((prefix, vec![range]));
            }
        }
    }
    out.extend(group.map(print));
    out.join(",")
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
    let mut found = Vec::new();
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
                found.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(invalid(text, "a bracket is not closed"));
    }
    found.push(&text[start..]);
    found.retain(|token| !token.is_empty());
    Ok(found)
}

/// Expands one token, the way `_hostlist_create_bracketed` hands it to `_push_range_list`.
fn expand_token(text: &str, token: &str, hosts: &mut Vec<String>) -> Result<(), Fault> {
    let Some((prefix, rest)) = token.rsplit_once('[') else {
        return push(text, hosts, token.to_owned());
    };
    let (inside, suffix) = rest.split_once(']').unwrap_or((rest, ""));
    let ranges = ranges(text, inside)?;
    let numbers: u64 = ranges.iter().map(|r| r.hi - r.lo + 1).sum();
    let most = prefix_count(text, prefix)?.saturating_mul(numbers);
    if most > MAX_HOSTS as u64 {
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
        let here: u64 = ranges(text, inside)?.iter().map(|r| r.hi - r.lo + 1).sum();
        if here > MAX_PREFIXES {
            return Err(too_many(text));
        }
        count = count.saturating_mul(here);
        prefix = before;
    }
    Ok(count)
}

/// Reads the inside of one bracket: `1-3,07` (`_parse_range_list`, `_parse_single_range`).
fn ranges(text: &str, inside: &str) -> Result<Vec<Range>, Fault> {
    let mut found = Vec::new();
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
        found.push(Range { lo, hi, width: low.len() });
    }
    Ok(found)
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

/// The letters, the number at the end and its width, if there is a number small enough to count on.
fn split(host: &str) -> Option<(&str, u64, usize)> {
    let prefix = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &host[prefix.len()..];
    let number = decimal(digits).filter(|_| digits.len() <= 18)?;
    Some((prefix, number, digits.len()))
}

/// Whether `number`, written `width` wide, is what comes out when the range grows by one.
fn follows(range: &Range, number: u64, width: usize) -> bool {
    let written = number.checked_ilog10().map_or(1, |n| n as usize + 1).max(range.width);
    number == range.hi + 1 && written == width && number - range.lo < MAX_RANGE
}

fn print((prefix, ranges): (&str, Vec<Range>)) -> String {
    let part = |r: &Range| match r.lo == r.hi {
        true => format!("{:0w$}", r.lo, w = r.width),
        false => format!("{:0w$}-{:0w$}", r.lo, r.hi, w = r.width),
    };
    match ranges.as_slice() {
        [one] if one.lo == one.hi => format!("{prefix}{}", part(one)),
        many => format!("{prefix}[{}]", many.iter().map(part).collect::<Vec<_>>().join(",")),
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let hosts = expand(text).unwrap();
        assert_eq!(hosts.join(" "), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        assert_eq!(expand(text).unwrap_err().sentence, expected);
    }

    /// Printed by `scontrol show hostnames` of Slurm 22.05.8.
    #[test]
    fn hosts_come_in_the_order_of_scontrol() {
        check("node[001-003,7]", "node001 node002 node003 node7");
        check("node[098-101]", "node098 node099 node100 node101");
        check("node[000-001]", "node000 node001");
        check("node[9,001]", "node9 node001");
        check("rack[1-2]node[3-4]", "rack1node3 rack1node4 rack2node3 rack2node4");
        check("gpu-a[5],gpu-b[1-2]", "gpu-a5 gpu-b1 gpu-b2");
        check("n[1-2]c[0-1]b[3-4]", "n1c0b3 n1c0b4 n2c0b3 n2c0b4 n1c1b3 n1c1b4 n2c1b3 n2c1b4");
        check(
            "n[1-2]c[0-1]b[3-4]d[7-8]",
            "n1c0b3d7 n1c0b3d8 n2c0b3d7 n2c0b3d8 n1c1b3d7 n1c1b3d8 n2c1b3d7 n2c1b3d8 \
             n1c0b4d7 n1c0b4d8 n2c0b4d7 n2c0b4d8 n1c1b4d7 n1c1b4d8 n2c1b4d7 n2c1b4d8",
        );
        check("tux2,tux1,tux2", "tux2 tux1 tux2");
        check("a[1,1]b[2,2]", "a1b2 a1b2 a1b2 a1b2");
        check("a1 b2", "a1 b2");
        check("a\tb\nc,,d,", "a b c d");
        check("a[1-2][3-4]", "a13 a14 a23 a24");
        check("[1-3]", "1 2 3");
        check("n[9-10]a[01-2]", "n9a01 n9a02 n10a01 n10a02");
        check("n[001-2]", "n001 n002");
        check("n[1-001]", "n1");
        check("n007", "n007");
        check("n1-3", "n1-3");
        check("", "");
        assert_eq!(expand("n[0-65535]").unwrap().len(), 65536);
    }

    /// Accepted since Slurm 23.11 (commit 0994b5f198); 22.05 says "Invalid hostlist".
    #[test]
    fn a_name_may_go_on_after_its_bracket() {
        check("rack[1-2]n5", "rack1n5 rack2n5");
        check("gpu-[3-4]-ib", "gpu-3-ib gpu-4-ib");
        check("r[1-2]n[3-4]-ib,x", "r1n3-ib r1n4-ib r2n3-ib r2n4-ib x");
    }

    #[test]
    fn what_is_no_host_list_is_a_fault() {
        refused("node[3-1]", "`node[3-1]` is not a host list: the range `3-1` runs backwards");
        refused("gpu-[a]", "`gpu-[a]` is not a host list: `a` is not a number or a range");
        refused("x[1x2]", "`x[1x2]` is not a host list: `1x2` is not a number or a range");
        refused("n[]", "`n[]` is not a host list: `` is not a number or a range");
        refused("n[1,]", "`n[1,]` is not a host list: `` is not a number or a range");
        refused("n[1--3]", "`n[1--3]` is not a host list: `1--3` is not a number or a range");
        refused(
            "n[0-65536]",
            "`n[0-65536]` is not a host list: the range `0-65536` names more than 65,536 hosts",
        );
        refused("n[1[2]]", "`n[1[2]]` is not a host list: a bracket opens inside a bracket");
    }

    /// 22.05 prints `node]`, `n]`, `n01 n02` and a wrapped number for these, and exits with 0.
    #[test]
    fn what_slurm_misreads_silently_is_a_fault_too() {
        refused("node[1-", "`node[1-` is not a host list: a bracket is not closed");
        refused("n]", "`n]` is not a host list: a bracket closes that was not opened");
        refused("n[ 1-2]", "`n[ 1-2]` is not a host list: ` 1-2` is not a number or a range");
        refused("n[+1]", "`n[+1]` is not a host list: `+1` is not a number or a range");
        let huge = "n[99999999999999999999]";
        refused(
            huge,
            &format!(
                "`{huge}` is not a host list: `99999999999999999999` is not a number or a range"
            ),
        );
        refused("{f}", "`{f}` is not a host list: only the controller can expand `{...}`");
    }

    #[test]
    fn a_short_text_cannot_fill_the_memory() {
        refused("a[0-65535]b[0-65535]", "`a[0-65535]b[0-65535]` names too many hosts");
        refused("a[0-65535,0-1]b[1]", "`a[0-65535,0-1]b[1]` names too many hosts");
        let many = ["n[0-65535]"; 5].join(",");
        refused(&many, &format!("`{many}` names too many hosts"));
    }

    #[test]
    fn neighbours_share_a_bracket() {
        let check = |hosts: &str, expected: &str| {
            let hosts: Vec<&str> = hosts.split_whitespace().collect();
            assert_eq!(compress(&hosts), expected);
        };
        check("node3 node1 node2", "node[3,1-2]");
        check("n098 n099 n100 n101", "n[098-101]");
        check("n9 n10 n011", "n[9-10,011]");
        check("n1", "n1");
        check("n1 n1", "n[1,1]");
        check("a1 b2 b3 login", "a1,b[2-3],login");
        check("", "");
    }

    #[test]
    fn tasks_of_each_node_are_spelt_out() {
        let check = |text, expected: &[u32]| assert_eq!(tasks_per_node(text).unwrap(), expected);
        check("2(x3),1", &[2, 2, 2, 1]);
        check("3,1(x2)", &[3, 1, 1]);
        check("4", &[4]);
        let refused = |text: &str| {
            let fault = tasks_per_node(text).unwrap_err();
            assert_eq!(fault.sentence, format!("`{text}` does not count tasks a node"));
        };
        for text in ["", "2(x3", "2(3)", "2(x0)", "a", "1,,2", "-1", "1(x65536),1", "9999999999"] {
            refused(text);
        }
    }

    proptest! {
        #[test]
        fn expand_undoes_compress(
            hosts in proptest::collection::vec("([a-z]{1,2}-?|[0-9]{0,2}[a-z])[0-9]{0,3}", 0..40)
        ) {
            prop_assert_eq!(expand(&compress(&hosts)).unwrap(), hosts);
        }

        #[test]
        fn long_runs_of_any_width_survive(start in 0u64..1200, n in 1u64..300, width in 1usize..5) {
            let hosts: Vec<String> =
                (start..start + n).map(|i| format!("n{i:0width$}")).collect();
            let text = compress(&hosts);
            prop_assert!(text.len() < 16, "{}", text);
            prop_assert_eq!(expand(&text).unwrap(), hosts);
        }

        #[test]
        fn no_text_breaks_it(text in "[a-c0-9\\[\\]\\-, ]{0,24}") {
            let _ = expand(&text);
        }
    }
}
