//! Measures what the processes of one rank use: samples while they run, and what the kernel reports at their end.
//!
//! The samples are for memory: a peak of several processes together is seen by nothing else. A control group of the rank's own
//! is asked first. Its own peak has cached files in it, which the kernel drops before it kills, so they are taken out of it.
//! Otherwise the shares of all processes are added up. The pace adapts: samples cost at most one hundredth of a core, and a
//! program that ends at once is not sampled at all. The energy of a node is counted where the job has all of its cores.

use std::time::{Duration, Instant};

use crate::base::host::cgroup::{self, Charged, Group};
use crate::base::host::energy::Energy;
use crate::base::host::process::tree::{self, Shares, Snapshot};
use crate::base::host::process::{self, Spent};
use crate::cluster::scheduler::job as scheduler;
use crate::run::worker::Job;
use crate::sweep::tree::records::{EnergySource, GpuUsage, MemorySource, Usage, Used};

/// When the next sample is due.
#[derive(Debug)]
struct Pace {
    began: Instant,
    due: Instant,
    /// What a sample costs.
    cost: Duration,
    /// How many programs share what samples may cost.
    share: u32,
}

impl Pace {
    /// No sample is earlier after the start, or after another.
    const SHORTEST: Duration = Duration::from_millis(20);
    /// The most time between two samples that are cheap.
    const LONGEST: Duration = Duration::from_secs(1);

    fn new(now: Instant, share: u32) -> Self {
        let mut pace = Self { began: now, due: now, cost: Duration::from_micros(100), share };
        pace.due = now + pace.pause(now, false);
        pace
    }

    /// A sample has cost so much; `has_grown`: memory is more than the last time.
    fn sampled(&mut self, now: Instant, cost: Duration, has_grown: bool) {
        // One that was interrupted is no reason to be blind for long.
        let at_most = self.cost * 32;
        self.cost = if cost > self.cost { cost.min(at_most) } else { (self.cost + cost) / 2 };
        self.due = now + self.pause(now, has_grown);
    }

    /// A twentieth of the time so far, less while memory grows, and never so little that samples cost more than a hundredth.
    fn pause(&self, now: Instant, has_grown: bool) -> Duration {
        let ran = now.saturating_duration_since(self.began);
        let part = if has_grown { ran / 100 } else { ran / 20 };
        part.min(Self::LONGEST).max(Self::SHORTEST).max(self.cost * 100 * self.share)
    }
}

/// The memory of a rank in its own control group.
#[derive(Debug)]
struct Own {
    group: Group,
    /// What the group was charged before the program began.
    base: Charged,
    peak_before: u64,
    /// The most cached files in a sample.
    cached: u64,
}

impl Own {
    /// The group of this worker, where no other program is in it.
    fn find() -> Option<Self> {
        let group = cgroup::own().filter(Group::is_ours)?;
        let (base, peak_before) = (group.charged()?, group.peak().unwrap_or(u64::MAX));
        Some(Self { group, base, peak_before, cached: 0 })
    }

    /// What its processes need now; `None` if other programs have come.
    fn look(&mut self) -> Option<u64> {
        let now = self.group.charged()?;
        self.cached = self.cached.max(now.cached);
        self.group.is_ours().then(|| now.needed.saturating_sub(self.base.needed))
    }

    /// The kernel's own peak without cached files, where it came in this attempt: a peak between two samples. To be called
    /// when the program has ended; `None` if other programs have come.
    fn peak(&self) -> Option<u64> {
        let peak = self.group.peak().filter(|peak| *peak > self.peak_before)?;
        let left = self.group.charged().filter(|_| self.group.is_ours())?;
        Some(peak.saturating_sub(self.cached.max(left.cached)).saturating_sub(self.base.needed))
    }
}

/// Measures the processes of one program, from its start to its end.
#[derive(Debug)]
pub(crate) struct Meter {
    pace: Pace,
    own: Option<Own>,
    /// The largest memory in a sample.
    peak: Option<(u64, MemorySource)>,
    last: u64,
    /// The largest resident set of one process in a sample.
    largest: u64,
    /// What the kernel reports of the program at least, whatever it needs.
    least: fn() -> u64,
    processes: u32,
    threads: u32,
    /// The counters of the node, and when they are looked at next.
    energy: Option<(Energy, Instant)>,
}

/// How often the counters of energy are looked at.
const ENERGY: Duration = Duration::from_secs(60);

impl Meter {
    /// Begins with a program that is started now; `share` programs are measured by this process. With `may_be_alone`, the
    /// worker's control group is asked if it has no other programs.
    pub(crate) fn begin(share: u32, may_be_alone: bool) -> Self {
        let own = may_be_alone.then(Own::find).flatten();
        let pace = Pace::new(Instant::now(), share);
        let (last, largest, peak) = (0, 0, None);
        let (processes, threads, energy) = (0, 0, None);
        Self { pace, own, peak, last, largest, least: || 0, processes, threads, energy }
    }

    /// The program began in this process's memory ([`process::start_on`]), so that the kernel's peak of it is at least the peak
    /// of this process.
    pub(crate) fn began_here(&mut self) {
        self.least = process::peak_memory;
    }

    /// Begins with the program of a rank. Control groups are not asked on a machine without a scheduler, where the programs of
    /// several trials are in one of them.
    pub(crate) fn of_rank(job: &Job) -> Self {
        let mut meter = Self::begin(job.rank.local_size.unwrap_or(1), job.job_id.is_some());
        let is_first = job.rank.local_rank.unwrap_or(job.rank.rank) == 0;
        let cores = scheduler::cores(&job.vars).filter(|_| is_first);
        if cores.zip(process::cores_of_machine()).is_some_and(|(ours, all)| ours >= all) {
            meter.energy = Energy::of_node().map(|energy| (energy, Instant::now() + ENERGY));
        }
        meter
    }

    /// The time until the next sample.
    pub(crate) fn until_due(&self) -> Duration {
        self.pace.due.saturating_duration_since(Instant::now())
    }

    /// Takes a sample of the processes that `find` finds, if one is due.
    pub(crate) fn look(&mut self, find: impl FnOnce() -> Snapshot) {
        if Instant::now() < self.pace.due {
            return;
        }
        // A sample that had to wait for a core has not cost more.
        let before = process::time_of_thread();
        let found = find();
        let memory = self.memory(&found);
        let has_grown = memory > self.last + self.last / 20;
        self.last = memory;
        self.processes = self.processes.max(u32::try_from(found.pids.len()).unwrap_or(u32::MAX));
        self.threads = self.threads.max(found.threads);
        let now = Instant::now();
        self.pace.sampled(now, process::time_of_thread().saturating_sub(before), has_grown);
        if let Some((energy, due)) = self.energy.as_mut().filter(|(_, due)| now >= *due) {
            energy.look();
            *due = now + ENERGY;
        }
    }

    fn memory(&mut self, found: &Snapshot) -> u64 {
        self.largest = self.largest.max(found.largest);
        if let Some(own) = &mut self.own {
            if let Some(bytes) = own.look() {
                self.saw(bytes, MemorySource::Cgroup);
                return bytes;
            }
            self.own = None;
        }
        // Reading the shares takes milliseconds for each hundred megabytes. They are never more than all resident memory, and
        // where one process has nearly all of it, they are not less. At the end, the kernel reports the largest one.
        let most = self.peak.map_or(0, |(peak, _)| peak).max(found.largest);
        if found.resident <= most + most / 50 {
            return found.resident;
        }
        let Shares { bytes, is_exact } = tree::shares(&found.pids);
        self.saw(bytes, if is_exact { MemorySource::Pss } else { MemorySource::Rss });
        bytes
    }

    fn saw(&mut self, bytes: u64, source: MemorySource) {
        if self.peak.is_none_or(|(peak, _)| bytes > peak) {
            self.peak = Some((bytes, source));
        }
    }

    /// All processes have ended, and have spent this.
    pub(crate) fn end(&mut self, spent: Spent, gpus: Vec<GpuUsage>) -> Used {
        let own = self.own.as_ref().and_then(Own::peak).map(|peak| (peak, MemorySource::Cgroup));
        // A program without a sample is short: it is not worth the look at our own memory.
        let kernel = match self.largest == 0 || spent.memory > (self.least)() {
            true => (spent.memory, MemorySource::Rusage),
            false => (self.largest, MemorySource::Rss),
        };
        let seen = [Some(kernel), own, self.peak];
        let largest = seen.into_iter().flatten().max_by_key(|(bytes, _)| *bytes);
        let (memory, source) = largest.unwrap_or(kernel);
        let seen = |n: u32| Some(n).filter(|n| *n > 0);
        let mut usage = usage(spent, source, seen(self.processes), seen(self.threads));
        usage.gpus = gpus;
        if let Some((energy, _)) = &mut self.energy {
            usage.energy_j = Some((energy.look() * 1e3).round() / 1e3);
            let is_rapl = energy.is_rapl;
            usage.energy_source =
                Some(if is_rapl { EnergySource::Rapl } else { EnergySource::Cray });
        }
        Used { memory, usage }
    }
}

/// What was spent, as it is recorded.
pub(crate) fn usage(
    spent: Spent,
    memory_source: MemorySource,
    processes: Option<u32>,
    threads: Option<u32>,
) -> Usage {
    Usage {
        memory_source,
        node_memory: None,
        rank_memory: None,
        cpu_user_s: spent.user.as_micros() as f64 / 1e6,
        cpu_system_s: spent.system.as_micros() as f64 / 1e6,
        processes,
        threads,
        read_bytes: spent.read,
        written_bytes: spent.written,
        gpus: Vec::new(),
        energy_j: None,
        energy_source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments of samples in the first `seconds`, each of which costs so many microseconds.
    fn moments(seconds: f64, cost_us: u64, share: u32, grows: bool) -> Vec<f64> {
        let start = Instant::now();
        let mut pace = Pace::new(start, share);
        let mut all = Vec::new();
        loop {
            let at = (pace.due - start).as_secs_f64();
            if at > seconds {
                return all;
            }
            all.push(at);
            let cost = Duration::from_micros(cost_us);
            pace.sampled(pace.due + cost, cost, grows);
        }
    }

    #[test]
    fn samples_become_rarer_and_cost_at_most_a_hundredth_of_a_core() {
        assert_eq!(moments(0.019, 60, 1, false), Vec::<f64>::new());
        let calm = moments(60.0, 60, 1, false);
        assert!(calm.len() > 100 && calm.len() < 250, "{}", calm.len());
        assert!(calm.windows(2).all(|pair| pair[1] - pair[0] < 1.01));
        assert!(moments(60.0, 60, 1, true).len() > 2 * calm.len());
        for (cost_us, share, grows) in
            [(60, 1, true), (2000, 1, true), (50_000, 1, false), (100, 64, true)]
        {
            let n = moments(60.0, cost_us, share, grows).len() as u64;
            let spent_us = n * cost_us * u64::from(share);
            assert!(spent_us <= 660_000, "{n} samples of {cost_us} us in each of {share}");
        }
        // One slow sample delays the next one, and not all of them.
        let mut pace = Pace::new(Instant::now(), 1);
        pace.sampled(pace.due, Duration::from_secs(10), false);
        assert!(pace.pause(pace.due, false) < Pace::LONGEST, "{:?}", pace.cost);
    }

    #[test]
    fn the_largest_figure_counts_and_says_where_it_comes_from() {
        let end = |memory: u64, peak| {
            let mut meter = Meter { peak, ..Meter::begin(1, false) };
            let used = meter.end(Spent { memory, ..Spent::default() }, Vec::new());
            (used.memory, used.usage.memory_source, used.usage.processes)
        };
        assert_eq!(end(7, None), (7, MemorySource::Rusage, None));
        assert_eq!(end(7, Some((9, MemorySource::Pss))), (9, MemorySource::Pss, None));
        assert_eq!(end(7, Some((5, MemorySource::Rss))), (7, MemorySource::Rusage, None));
        // What began in the memory of a large process.
        let end = |largest: u64, memory: u64| {
            let mut meter = Meter { largest, least: || 9, ..Meter::begin(1, false) };
            let used = meter.end(Spent { memory, ..Spent::default() }, Vec::new());
            (used.memory, used.usage.memory_source)
        };
        assert_eq!(end(0, 9), (9, MemorySource::Rusage));
        assert_eq!(end(3, 9), (3, MemorySource::Rss));
        assert_eq!(end(3, 10), (10, MemorySource::Rusage));
    }
}
