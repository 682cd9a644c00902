//! Whether the kernel has killed something of a trial because its control group was out of memory.

use std::path::PathBuf;

use crate::base::host::{cgroup, process};
use crate::base::units;

/// A count of such kills, and what it was when the trial began.
#[derive(Debug)]
pub(crate) struct Memory {
    counter: Option<PathBuf>,
    before: u64,
}

impl Memory {
    /// To be called before the program is started.
    pub(crate) fn watch() -> Self {
        Self::of(cgroup::own().map(|group| group.kills_file()))
    }

    fn of(counter: Option<PathBuf>) -> Self {
        let mut memory = Self { counter, before: 0 };
        memory.before = memory.kills();
        memory
    }

    fn kills(&self) -> u64 {
        let text = self.counter.as_ref().map(process::text_of).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// That processes of a program were killed which ended with 0 all the same.
    pub(crate) fn overlooked(&self) -> Option<String> {
        let kills = self.kills().saturating_sub(self.before);
        let words = "of its processes for lack of memory, and it went on without";
        (kills > 0).then(|| format!("the kernel killed {kills} {words}"))
    }

    /// Why a program that failed did so, where memory is why: it had `peak` bytes, and `asked` MiB were asked
    /// for on its node. Without a count of the kernel one that was killed near its limit perhaps had too little.
    pub(crate) fn why(&self, signal: Option<i32>, peak: u64, asked: Option<u64>) -> Option<String> {
        let peak_mib = peak.div_ceil(1 << 20);
        let is_counted = self.kills() > self.before;
        let is_near = signal == Some(9) && asked.is_some_and(|asked| peak_mib * 10 >= asked * 9);
        let what = match (is_counted, is_near) {
            (true, _) => "out of memory",
            (false, true) => "perhaps out of memory",
            (false, false) => return None,
        };
        let asked = match asked {
            Some(asked) => format!("{} asked for", units::memory_text(asked)),
            None => "no `memory` asked for".to_owned(),
        };
        Some(format!("{what}: its processes had {}, {asked}", units::memory_text(peak_mib)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn memory_is_why_when_the_kernel_counts_a_kill_or_a_killed_program_was_near_its_limit() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("memory.events");
        fs::write(&file, "low 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n").unwrap();
        let memory = Memory::of(Some(file.clone()));
        assert_eq!(memory.why(None, 1 << 30, Some(2048)), None);
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n").unwrap();
        let why = |peak_mib: u64, asked| memory.why(None, peak_mib << 20, asked).unwrap();
        assert_eq!(why(1900, Some(2048)), "out of memory: its processes had 1900M, 2G asked for");
        assert_eq!(
            why(1900, None),
            "out of memory: its processes had 1900M, no `memory` asked for"
        );
        let blind = Memory::of(None);
        let near = blind.why(Some(9), 1900 << 20, Some(2048)).unwrap();
        assert_eq!(near, "perhaps out of memory: its processes had 1900M, 2G asked for");
        assert_eq!(blind.why(Some(9), 500 << 20, Some(2048)), None);
        assert_eq!(blind.why(Some(11), 2000 << 20, Some(2048)), None);
        assert_eq!(blind.why(Some(9), 2000 << 20, None), None);
    }
}
