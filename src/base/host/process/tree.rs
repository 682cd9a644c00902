//! The processes below this one, and the memory that they have now.

use std::fs;

use super::look::text_of;

/// Processes and their descendants at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Those that run, remains of ended ones left out.
    pub(crate) pids: Vec<u32>,
    /// The sum of their threads, at least one for each process.
    pub(crate) threads: u32,
    /// The sum of their resident memory, bytes: an upper bound, because shared memory counts several times.
    pub(crate) resident: u64,
    /// That of the largest one.
    pub(crate) largest: u64,
}

/// Memory of several processes, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) bytes: u64,
    /// Whether the kernel reported the share of each process in what it shares with others.
    pub(crate) is_exact: bool,
}

/// The descendants of this process, but those below `except`.
pub(crate) fn below_us(except: Option<u32>) -> Snapshot {
    let own = super::children().into_iter().map(|pid| pid.as_raw().cast_unsigned());
    from(own.filter(|pid| Some(*pid) != except).collect())
}

/// A process and its descendants.
pub(crate) fn below(pid: u32) -> Snapshot {
    from(vec![pid])
}

fn from(mut open: Vec<u32>) -> Snapshot {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4096);
    let mut found = Snapshot::default();
    while let Some(pid) = open.pop() {
        let stat = text_of(format!("/proc/{pid}/stat"));
        let Some((threads, pages)) = threads_and_pages(&stat) else { continue };
        found.pids.push(pid);
        found.threads += threads;
        found.resident += pages * page;
        found.largest = found.largest.max(pages * page);
        if threads == 1 {
            add_children(&mut open, &format!("/proc/{pid}/task/{pid}/children"));
            continue;
        }
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            add_children(&mut open, &format!("{}/children", task.path().display()));
        }
    }
    found
}

fn add_children(open: &mut Vec<u32>, file: &str) {
    let list = text_of(file);
    open.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
}

/// Threads and resident pages from a `stat` file of proc(5); `None` for the remains of a process.
fn threads_and_pages(stat: &str) -> Option<(u32, u64)> {
    // Field 3, the state, is the first behind the name.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let threads = fields.nth(16)?.parse().ok()?;
    Some((threads, fields.nth(3)?.parse().unwrap_or(0)))
}

/// The memory of processes, in which what they share counts once: by the kernel's shares where they can be read, otherwise
/// what each has alone and the largest shared part of one.
pub(crate) fn shares(pids: &[u32]) -> Shares {
    let (mut bytes, mut shared, mut is_exact) = (0, 0, true);
    for pid in pids {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
        if let Some(share) = rollup.as_deref().and_then(proportional) {
            bytes += share;
            continue;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| kib(&status, name);
        // One that has ended since it was found has nothing.
        let Some(own) = kib("RssAnon:") else { continue };
        is_exact = false;
        bytes += own * 1024;
        shared = shared.max((kib("RssFile:").unwrap_or(0) + kib("RssShmem:").unwrap_or(0)) * 1024);
    }
    Shares { bytes: bytes + shared, is_exact }
}

fn proportional(rollup: &str) -> Option<u64> {
    Some(kib(rollup, "Pss:")? * 1024)
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 777 8888 321 18446744073709551615";
        assert_eq!(threads_and_pages(stat), Some((9, 321)));
        assert_eq!(threads_and_pages(&stat.replace(" S ", " Z ")), None);
        assert_eq!(threads_and_pages("12 (a"), None);
        let rollup =
            "5600-7ff rw-p 0 00:00 0 [rollup]\nRss:  900 kB\nPss:     456 kB\nPss_Anon: 3 kB\n";
        assert_eq!(proportional(rollup), Some(456 * 1024));
        assert_eq!(proportional(""), None);
    }

    #[test]
    fn this_process_is_found_with_its_memory() {
        let own = below(std::process::id());
        assert!(own.pids.contains(&std::process::id()) && own.threads >= 1);
        let shares = shares(&own.pids);
        assert!(shares.bytes > 0 && shares.bytes <= own.resident * 2, "{shares:?} {own:?}");
    }
}
