//! What the trials of a sweep have asked for and what they have used: pure arithmetic over attempts that have ended.
//! `read` finds the attempts, each with its request.

mod read;

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::base::units;
use crate::plan::Resources;

pub(crate) use read::{Ended, Taken};

/// An attempt that has ended; the duration of one that has recorded no end is 0.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) trial: u64,
    pub(crate) request: Arc<Resources>,
    pub(crate) end: Ending,
    pub(crate) duration_s: f64,
    /// Peak memory of the node that used most, bytes.
    pub(crate) memory: Option<u64>,
    /// Seconds of processor time.
    pub(crate) cpu_s: Option<f64>,
    /// What few attempts have.
    pub(crate) more: Option<Box<More>>,
}

/// Figures of an attempt that few have: the memory of a million attempts counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct More {
    /// Mean utilization of each of its GPUs, percent.
    pub(crate) gpus: Vec<f64>,
    /// Joules of its GPUs and of its nodes.
    pub(crate) gpu_energy_j: Option<f64>,
    pub(crate) node_energy_j: Option<f64>,
    /// MiB of a node that it would have asked for, if its memory was learnt from others.
    pub(crate) first_memory_mib: Option<u64>,
}

impl Attempt {
    pub(crate) fn more(&self) -> &More {
        static NOTHING: More = More {
            gpus: Vec::new(),
            gpu_energy_j: None,
            node_energy_j: None,
            first_memory_mib: None,
        };
        self.more.as_deref().unwrap_or(&NOTHING)
    }

    /// Mean utilization of its GPUs together; `None` if none was sampled.
    fn busy_gpus(&self) -> Option<f64> {
        let gpus = &self.more().gpus;
        (!gpus.is_empty()).then(|| gpus.iter().sum::<f64>() / 100.0)
    }
}

/// How an attempt has ended, as far as it says what would have been enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has finished: what it used was enough.
    Done,
    /// It would have needed more memory.
    NoMemory,
    /// It would have needed more time.
    NoTime,
    /// It failed, or was stopped.
    Other,
}

/// One figure of the attempts of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// Not exceeded by 95 of 100 attempts.
    pub(crate) p95: f64,
    pub(crate) largest: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Option<Self> {
        all.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (all.len() as f64 * share).ceil() as usize;
            all.get(rank.saturating_sub(1)).copied()
        };
        Some(Self { median: at(0.5)?, p95: at(0.95)?, largest: *all.last()? })
    }
}

/// Hours of cores, GiB or GPUs: those that attempts had, and those that they used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Hours {
    pub(crate) requested: f64,
    pub(crate) used: f64,
    pub(crate) wasted: f64,
}

impl Hours {
    fn add(&mut self, requested: f64, used: f64) {
        self.requested += requested;
        self.used += used;
        // An attempt that used more than it had asked for makes up for no other one.
        self.wasted += (requested - used).max(0.0);
    }

    fn and(&mut self, other: Self) {
        self.requested += other.requested;
        self.used += other.used;
        self.wasted += other.wasted;
    }
}

/// All hours of a shape or of a sweep, of the attempts for which both sides are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct AllHours {
    pub(crate) core: Hours,
    pub(crate) gib: Hours,
    pub(crate) gpu: Hours,
}

/// The request that would have been enough; a value that nothing is known about is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Enough {
    pub(crate) cpus_per_rank: Option<u32>,
    pub(crate) gpus_per_rank: Option<u32>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) walltime_s: Option<u64>,
}

/// The attempts with one request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Shape {
    pub(crate) request: Resources,
    /// Cores and GPUs of a whole trial.
    pub(crate) cores: u64,
    pub(crate) gpus: u64,
    pub(crate) trials: usize,
    pub(crate) attempts: usize,
    /// Those that are done: the figures are of these, or of all if none is.
    pub(crate) done: usize,
    /// Those that recorded no usage.
    pub(crate) unmeasured: usize,
    pub(crate) out_of_memory: usize,
    pub(crate) out_of_time: usize,
    /// Cores that were busy, on average over an attempt.
    pub(crate) busy_cores: Option<Spread>,
    /// MiB of the node that used most.
    pub(crate) memory_mib: Option<Spread>,
    pub(crate) duration_s: Option<Spread>,
    /// GPUs that were busy, on average over an attempt.
    pub(crate) busy_gpus: Option<Spread>,
    pub(crate) hours: AllHours,
    pub(crate) enough: Enough,
}

/// What came of memory that was learnt from other trials, in GiB-hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Learnt {
    /// Attempts whose memory was learnt.
    pub(crate) attempts: usize,
    /// Those of them that ran out of it.
    pub(crate) out_of_memory: usize,
    /// Memory that they requested and did not use.
    pub(crate) wasted: f64,
    /// What they would have wasted with the request of the first trials.
    pub(crate) wasted_by_first: f64,
}

/// The usage of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Those with the most core-hours first.
    pub(crate) shapes: Vec<Shape>,
    pub(crate) hours: AllHours,
    /// Joules of the GPUs and nodes that report them.
    pub(crate) gpu_energy_j: Option<f64>,
    pub(crate) node_energy_j: Option<f64>,
    /// Where memory was learnt.
    pub(crate) learnt_memory: Option<Learnt>,
}

const HOUR: f64 = 3600.0;
const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;

/// Adds attempts up; what would have been enough is `margin` times what was used.
pub(crate) fn report(attempts: &[Attempt], margin: f64) -> Report {
    let mut shapes: HashMap<&Resources, Vec<&Attempt>> = HashMap::new();
    // Most neighbours share their request: one look at its address saves hashing it.
    for some in attempts.chunk_by(|a, b| Arc::ptr_eq(&a.request, &b.request)) {
        shapes.entry(&some[0].request).or_default().extend(some);
    }
    let mut shapes: Vec<Shape> =
        shapes.into_iter().map(|(request, all)| shape(request, &all, margin)).collect();
    let first =
        |shape: &Shape| (shape.request.cores(), shape.request.memory_mib, shape.request.walltime_s);
    shapes.sort_by(|a, b| {
        let hours = b.hours.core.requested.total_cmp(&a.hours.core.requested);
        hours.then_with(|| first(a).cmp(&first(b)))
    });
    let mut hours = AllHours::default();
    for shape in &shapes {
        hours.core.and(shape.hours.core);
        hours.gib.and(shape.hours.gib);
        hours.gpu.and(shape.hours.gpu);
    }
    let energy = |of: fn(&More) -> Option<f64>| {
        attempts.iter().filter_map(|attempt| of(attempt.more())).reduce(|a, b| a + b)
    };
    Report {
        shapes,
        hours,
        gpu_energy_j: energy(|more| more.gpu_energy_j),
        node_energy_j: energy(|more| more.node_energy_j),
        learnt_memory: learnt(attempts),
    }
}

fn learnt(attempts: &[Attempt]) -> Option<Learnt> {
    let mut all = Learnt::default();
    for attempt in attempts {
        let Some(first) = attempt.more().first_memory_mib else { continue };
        all.attempts += 1;
        all.out_of_memory += usize::from(attempt.end == Ending::NoMemory);
        if let (Some(asked), Some(used)) = (attempt.request.memory_mib, attempt.memory) {
            let hours = f64::from(attempt.request.nodes) * attempt.duration_s / HOUR;
            let wasted = |mib: u64| (mib as f64 / 1024.0 - used as f64 / GIB).max(0.0) * hours;
            all.wasted += wasted(asked);
            all.wasted_by_first += wasted(first);
        }
    }
    (all.attempts > 0).then_some(all)
}

fn shape(request: &Resources, all: &[&Attempt], margin: f64) -> Shape {
    let count = |ending: Ending| all.iter().filter(|attempt| attempt.end == ending).count();
    let done = count(Ending::Done);
    let shown: Vec<&Attempt> =
        all.iter().copied().filter(|attempt| done == 0 || attempt.end == Ending::Done).collect();
    let spread = |of: &dyn Fn(&Attempt) -> Option<f64>| {
        Spread::of(shown.iter().filter_map(|attempt| of(attempt)).collect())
    };
    let busy = |attempt: &Attempt| {
        attempt.cpu_s.filter(|_| attempt.duration_s > 0.0).map(|cpu| cpu / attempt.duration_s)
    };
    let mut trials: Vec<u64> = all.iter().map(|attempt| attempt.trial).collect();
    trials.sort_unstable();
    trials.dedup();
    let mut shape = Shape {
        request: request.clone(),
        cores: request.cores(),
        gpus: request.total_gpus(),
        trials: trials.len(),
        attempts: all.len(),
        done,
        unmeasured: all.iter().filter(|attempt| attempt.cpu_s.is_none()).count(),
        out_of_memory: count(Ending::NoMemory),
        out_of_time: count(Ending::NoTime),
        busy_cores: spread(&busy),
        memory_mib: spread(&|attempt| attempt.memory.map(|bytes| bytes as f64 / MIB)),
        duration_s: spread(&|attempt| Some(attempt.duration_s).filter(|s| *s > 0.0)),
        busy_gpus: spread(&Attempt::busy_gpus),
        hours: hours(request, all),
        enough: Enough::default(),
    };
    let most_gpus =
        shown.iter().map(|attempt| attempt.more().gpus.iter().filter(|use_| **use_ > 0.0).count());
    shape.enough = enough(&shape, margin, most_gpus.max().unwrap_or(0));
    shape
}

fn hours(request: &Resources, all: &[&Attempt]) -> AllHours {
    let mut hours = AllHours::default();
    for attempt in all {
        let ran = attempt.duration_s / HOUR;
        if let Some(cpu_s) = attempt.cpu_s {
            hours.core.add(request.cores() as f64 * ran, cpu_s / HOUR);
        }
        if let (Some(mib), Some(bytes)) = (request.memory_mib, attempt.memory) {
            let nodes = f64::from(request.nodes);
            hours.gib.add(nodes * mib as f64 / 1024.0 * ran, nodes * bytes as f64 / GIB * ran);
        }
        if let Some(used) = attempt.busy_gpus() {
            hours.gpu.add(request.total_gpus() as f64 * ran, used * ran);
        }
    }
    hours
}

/// `gpus`: the most GPUs of an attempt that were used at all.
fn enough(shape: &Shape, margin: f64, gpus: usize) -> Enough {
    let request = &shape.request;
    let ranks = f64::from(request.ranks.max(1));
    let cores = shape.busy_cores.map(|busy| ((busy.largest * margin / ranks).ceil() as u32).max(1));
    let is_counted = request.gpus_per_rank > 0 && shape.busy_gpus.is_some();
    let per_rank = (gpus as f64 / ranks).ceil() as u32;
    // What ran out has needed more than was seen.
    let memory = shape.memory_mib.filter(|_| shape.out_of_memory == 0);
    let time = shape.duration_s.filter(|_| shape.out_of_time == 0 && shape.done > 0);
    let at_most = |found: u64, asked: Option<u64>| asked.map_or(found, |asked| found.min(asked));
    Enough {
        cpus_per_rank: cores.map(|cores| cores.min(request.cpus_per_rank)),
        gpus_per_rank: is_counted.then(|| per_rank.min(request.gpus_per_rank)),
        memory_mib: memory.map(|memory| {
            at_most(units::request_of_mib(memory.largest * margin), request.memory_mib)
        }),
        walltime_s: time.map(|time| {
            at_most(units::request_of_seconds(time.largest * margin), request.walltime_s)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cpus_per_rank: u32, memory_mib: Option<u64>, walltime_s: Option<u64>) -> Resources {
        Resources { cpus_per_rank, memory_mib, walltime_s, ..Resources::default() }
    }

    fn attempt(
        trial: u64,
        request: &Resources,
        end: Ending,
        hours: f64,
        mib: u64,
        cpu_h: f64,
    ) -> Attempt {
        Attempt {
            trial,
            request: Arc::new(request.clone()),
            end,
            duration_s: hours * 3600.0,
            memory: Some(mib << 20),
            cpu_s: Some(cpu_h * 3600.0),
            more: None,
        }
    }

    #[test]
    fn hours_and_figures_are_those_of_each_request() {
        let wide = request(4, Some(8192), Some(7200));
        let narrow = request(1, None, None);
        let mut all: Vec<Attempt> =
            (0..20).map(|i| attempt(i, &wide, Ending::Done, 0.5, 1000 + i * 10, 0.5)).collect();
        all.push(attempt(20, &narrow, Ending::Done, 1.0, 100, 1.5));
        all.push(attempt(0, &wide, Ending::Other, 1.0, 7000, 4.0));
        let report = report(&all, 1.2);
        assert_eq!(report.shapes.len(), 2);
        let shape = &report.shapes[0];
        assert_eq!((shape.trials, shape.attempts, shape.done), (20, 21, 20));
        // What is not done is no measure of what is enough, but it has cost hours.
        let memory = shape.memory_mib.unwrap();
        assert_eq!((memory.median, memory.p95, memory.largest), (1090.0, 1180.0, 1190.0));
        assert_eq!(shape.busy_cores.unwrap().largest, 1.0);
        let core = shape.hours.core;
        assert_eq!((core.requested, core.used, core.wasted), (44.0, 14.0, 30.0));
        assert_eq!(shape.hours.gib.requested, 88.0);
        let enough = Enough {
            cpus_per_rank: Some(2),
            gpus_per_rank: None,
            memory_mib: Some(1536),
            walltime_s: Some(2160),
        };
        assert_eq!(shape.enough, enough);
        // More use than was asked for is no waste, and makes up for none.
        let other = &report.shapes[1];
        assert_eq!((other.hours.core.used, other.hours.core.wasted), (1.5, 0.0));
        assert_eq!(other.hours.gib, Hours::default());
        assert_eq!(other.enough.cpus_per_rank, Some(1));
        assert_eq!(report.hours.core.wasted, 30.0);
    }

    #[test]
    fn what_ran_out_does_not_say_what_is_enough() {
        let small = request(1, Some(1024), Some(3600));
        let no_memory = [
            attempt(0, &small, Ending::Done, 0.1, 500, 0.1),
            attempt(1, &small, Ending::NoMemory, 0.1, 1020, 0.1),
        ];
        let shape = &report(&no_memory, 1.5).shapes[0];
        assert_eq!((shape.enough.memory_mib, shape.out_of_memory), (None, 1));
        assert_eq!(shape.enough.walltime_s, Some(540));
        let no_time = [attempt(0, &small, Ending::NoTime, 1.0, 500, 0.1)];
        let shape = &report(&no_time, 1.5).shapes[0];
        assert_eq!((shape.enough.walltime_s, shape.enough.memory_mib), (None, Some(768)));
        // What was enough stays enough.
        let full = [attempt(0, &small, Ending::Done, 0.99, 1000, 0.1)];
        let enough = &report(&full, 1.5).shapes[0].enough;
        assert_eq!((enough.memory_mib, enough.walltime_s), (Some(1024), Some(3600)));
        assert_eq!(report(&[], 1.2), Report::default());
    }

    #[test]
    fn gpus_that_nothing_ran_on_are_wasted() {
        let gpus = Resources { gpus_per_rank: 2, ..Resources::default() };
        let more = |gpus| More { gpus, gpu_energy_j: Some(1800.0), ..More::default() };
        let with = |gpus_used: Vec<f64>| Attempt {
            more: Some(Box::new(more(gpus_used))),
            ..attempt(0, &gpus, Ending::Done, 2.0, 1, 2.0)
        };
        let all = [with(vec![50.0, 0.0]), with(vec![25.0, 0.0])];
        let report = report(&all, 1.2);
        let shape = &report.shapes[0];
        assert_eq!(shape.enough.gpus_per_rank, Some(1));
        let hours = shape.hours.gpu;
        assert_eq!((hours.requested, hours.used, hours.wasted), (8.0, 1.5, 6.5));
        assert_eq!(shape.busy_gpus.unwrap().largest, 0.5);
        assert_eq!((report.gpu_energy_j, report.node_energy_j), (Some(3600.0), None));
    }
}
