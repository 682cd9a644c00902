//! The control group of this process for memory, and what the kernel has counted there.

use std::fs;
use std::path::{Path, PathBuf};

use super::process;

/// The folder of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    folder: PathBuf,
    /// Whether it is of the older kind, in which each controller has a hierarchy of its own.
    is_v1: bool,
}

/// What is charged to a group, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charged {
    /// What its processes need: their own memory, shared memory, mapped files, and the kernel's memory for them.
    pub(crate) needed: u64,
    /// What the kernel can drop: files that were read or written and are not mapped.
    pub(crate) cached: u64,
}

/// The group of this process, if the kernel counts memory there.
pub(crate) fn own() -> Option<Group> {
    find(&process::text_of(Path::new("/proc/self/cgroup")), Path::new("/sys/fs/cgroup"))
}

/// The group of a process, from its `/proc/PID/cgroup`.
fn find(text: &str, root: &Path) -> Option<Group> {
    let mut all = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            return Some(Group { folder: root.join("memory").join(path), is_v1: true });
        }
        controllers.is_empty().then(|| Group { folder: root.join(path), is_v1: false })
    });
    all.find(|group| group.kills_file().is_file())
}

impl Group {
    /// The file that counts the processes that were killed because the group was out of memory, in a line `oom_kill N`.
    pub(crate) fn kills_file(&self) -> PathBuf {
        self.folder.join(if self.is_v1 { "memory.oom_control" } else { "memory.events" })
    }

    /// Whether the group holds only this process, processes above it and processes below it.
    pub(crate) fn is_ours(&self) -> bool {
        let own = std::process::id();
        let above = line_of(own);
        let is_known = |pid: u32| {
            let line = line_of(pid);
            above.contains(&pid) || line.contains(&own) || line.is_empty()
        };
        let procs = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        let mut pids = procs.split_whitespace().map(str::parse::<u32>);
        // A process of another namespace is 0.
        let is_ours = pids.all(|pid| pid.is_ok_and(|pid| pid != 0 && is_known(pid)));
        is_ours && !procs.is_empty() && !self.has_groups()
    }

    /// Whether there are groups in it, whose processes it does not list.
    fn has_groups(&self) -> bool {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    }

    /// What is charged to it now.
    pub(crate) fn charged(&self) -> Option<Charged> {
        Some(charged(&fs::read_to_string(self.folder.join("memory.stat")).ok()?, self.is_v1))
    }

    /// The least limit of memory of the group and of those that it is in, bytes; `None`: there is none.
    pub(crate) fn limit(&self) -> Option<u64> {
        let file = if self.is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        let own = |folder: &Path| -> Option<u64> {
            fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
        };
        // The older kind says "no limit" with a number that is larger than any memory.
        self.folder.ancestors().filter_map(own).filter(|bytes| *bytes < 1 << 60).min()
    }

    /// The most that was charged to it since it was made, cached files included.
    pub(crate) fn peak(&self) -> Option<u64> {
        let file = if self.is_v1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

/// A process and those above it; nothing for one that is gone.
fn line_of(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let (mut line, mut at) = (Vec::new(), pid);
    while let Some(next) = parent(at) {
        line.push(at);
        at = next;
    }
    line
}

fn charged(stat: &str, is_v1: bool) -> Charged {
    let of = |name: &str| -> u64 {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    };
    let (own, shared, mapped, files) = match is_v1 {
        true => ("total_rss", "total_shmem", "total_mapped_file", "total_cache"),
        false => ("anon", "shmem", "file_mapped", "file"),
    };
    // Shared memory that is mapped is in both figures.
    let held = of(shared).max(of(mapped));
    let kernel = ["kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable"];
    let kernel: u64 = if is_v1 { 0 } else { kernel.into_iter().map(of).sum() };
    Charged {
        needed: of(own) + held + kernel,
        cached: of(files).saturating_sub(held) + if is_v1 { 0 } else { of("slab_reclaimable") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_the_one_that_counts_memory() {
        let root = tempfile::tempdir().unwrap();
        let text = "4:cpu,memory:/slurm/uid_1/job_2\n1:name=systemd:/x\n0::/user.slice/a.scope\n";
        assert_eq!(find(text, root.path()), None);
        let v2 = root.path().join("user.slice/a.scope");
        fs::create_dir_all(&v2).unwrap();
        fs::write(v2.join("memory.events"), "oom_kill 0\n").unwrap();
        assert_eq!(find(text, root.path()), Some(Group { folder: v2, is_v1: false }));
        let v1 = root.path().join("memory/slurm/uid_1/job_2");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("memory.oom_control"), "oom_kill 0\n").unwrap();
        assert_eq!(find(text, root.path()), Some(Group { folder: v1, is_v1: true }));
    }

    #[test]
    fn a_group_is_ours_if_it_holds_this_process_and_those_above_and_below_it_alone() {
        let root = tempfile::tempdir().unwrap();
        let group = Group { folder: root.path().to_owned(), is_v1: false };
        let holds = |pids: &[u32]| {
            let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
            fs::write(root.path().join("cgroup.procs"), text).unwrap();
            group.is_ours()
        };
        assert!(!group.is_ours());
        let (own, above) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(holds(&[own]) && holds(&[above, own]));
        assert!(!holds(&[own, 0]));
        // A child, and a process that the child has left to process 1.
        let code = "sleep 60 >&- & echo $!; exec sleep 60";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", code]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut said).unwrap();
        let below: u32 = said.trim().parse().unwrap();
        assert!(holds(&[own, child.id(), below]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!holds(&[own, below]));
        // One that is gone does not count.
        assert!(holds(&[own, child.id()]));
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(below.cast_signed()),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        fs::create_dir(root.path().join("inner")).unwrap();
        assert!(!holds(&[own]));
    }

    #[test]
    fn the_least_limit_on_the_way_up_holds() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("job_2/step_0");
        fs::create_dir_all(&folder).unwrap();
        let limits = |own: &str, above: &str, is_v1: bool| {
            let file = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
            fs::write(folder.join(file), own).unwrap();
            fs::write(root.path().join("job_2").join(file), above).unwrap();
            Group { folder: folder.clone(), is_v1 }.limit()
        };
        assert_eq!(limits("max\n", "max\n", false), None);
        assert_eq!(limits("max\n", "3000\n", false), Some(3000));
        assert_eq!(limits("9223372036854771712\n", "4000\n", true), Some(4000));
        assert_eq!(limits("2000\n", "4000\n", true), Some(2000));
    }

    #[test]
    fn cached_files_are_not_needed() {
        let v2 = "anon 1000\nfile 5000\nkernel 60\nkernel_stack 10\npagetables 20\nsock 0\nshmem 300\nfile_mapped 400\nslab_reclaimable 7\nslab_unreclaimable 3\n";
        assert_eq!(charged(v2, false), Charged { needed: 1433, cached: 4607 });
        let v1 = "cache 1\nrss 1\ntotal_cache 5000\ntotal_rss 1000\ntotal_shmem 300\ntotal_mapped_file 100\n";
        assert_eq!(charged(v1, true), Charged { needed: 1300, cached: 4700 });
    }
}
