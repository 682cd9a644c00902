//! Samples of a trial's GPUs while it runs: a thread queries them every few seconds and makes metric lines,
//! and at the end one with their energy.
//!
//! Each device is asked by one rank: by local rank 0 for all that the node's ranks see. Where the
//! launcher has given each rank a list of its own (`srun --gpus-per-task`), each rank asks for its own.
//! `gpu.N` counts the trial's devices over its ranks and nodes, as many on each. Nothing here can make a
//! trial fail: what cannot be asked is left out, and why is a line `gpu.note`.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::base::host::Vars;
use crate::base::host::gpus::{self, Sample, Source};
use crate::cluster::devices;
use crate::cluster::gpu;
use crate::cluster::rank::visible_devices;
use crate::run::worker::Job;
use crate::run::worker::process::idle::Idle;
use crate::sweep::tree::records::GpuUsage;

/// How often devices are asked, in seconds; 0 never.
pub(crate) const EVERY_VARIABLE: &str = "HPCSWEEP_GPU_SAMPLE_S";

/// How long the end of a trial waits for a device that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

type Row = Map<String, Value>;

/// The thread that asks.
#[derive(Debug)]
pub(crate) struct Sampler {
    said: Receiver<Said>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    /// What the devices have done, once the last lines were taken.
    pub(crate) used: Vec<GpuUsage>,
}

/// What the thread says.
#[derive(Debug)]
enum Said {
    Row(Row),
    /// What the devices have done, as the thread's last message.
    Used(Vec<GpuUsage>),
}

impl Sampler {
    /// Starts to watch the devices that a trial's program may see. `None`, and no thread, where it sees
    /// none, where another rank watches them, and on a host without NVIDIA's driver.
    pub(crate) fn start(job: &Job, env: &Vars) -> Option<Self> {
        let every = job.vars.get(EVERY_VARIABLE).and_then(|s| s.parse::<f64>().ok()).unwrap_or(5.0);
        let visible: Vec<String> = visible_devices(env)?.into_iter().map(str::to_owned).collect();
        if every <= 0.0 || visible.is_empty() || !gpus::perhaps(&job.vars) {
            return None;
        }
        let part = part_of(job, visible.len())?;
        let every = Duration::from_secs_f64(every.clamp(0.01, 86_400.0));
        let vars = job.vars.clone();
        let (stop, told) = mpsc::channel();
        let (out, said) = mpsc::channel();
        let watch = move || {
            if let Err(why) = watch(&vars, &visible, part, every, &told, &out) {
                let row = Row::from_iter([("gpu.note".to_owned(), json!(why))]);
                let _ = out.send(Said::Row(row));
            }
        };
        std::thread::Builder::new().name("gpus".into()).spawn(watch).ok()?;
        Some(Self { said, stop: Some(stop), used: Vec::new() })
    }

    /// The lines made since the last time. With `last` the devices are released, and the lines include the
    /// one with the energy.
    pub(crate) fn take(&mut self, last: bool) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut take = |said: Said| match said {
            Said::Row(row) => rows.push(row),
            Said::Used(used) => self.used = used,
        };
        if !last {
            self.said.try_iter().for_each(take);
            return rows;
        }
        self.stop = None;
        let until = Instant::now() + PATIENCE;
        // The thread ends, and with it the channel; one that hangs in the driver is left alone.
        while let Ok(said) = self.said.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            take(said);
        }
        rows
    }
}

/// Which of the trial's devices this rank asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// The number of the first one.
    first: usize,
    /// Whether that is all there are.
    all: bool,
}

fn part_of(job: &Job, visible: usize) -> Option<Part> {
    let own = &job.rank;
    let local = own.local_rank.unwrap_or(own.rank);
    let by_scheduler = devices::of_scheduler(&job.vars);
    let narrowed =
        own.local_size.unwrap_or(1) > 1 && by_scheduler.is_some_and(|(ids, _)| ids.len() > visible);
    let several = own.nodes.unwrap_or(job.resources.nodes) > 1;
    part(own.rank, local, own.node_rank.unwrap_or(0), several, narrowed, visible)
}

fn part(
    rank: u32,
    local_rank: u32,
    node: u32,
    several_nodes: bool,
    narrowed: bool,
    visible: usize,
) -> Option<Part> {
    match (narrowed, local_rank) {
        (true, _) => Some(Part { first: rank as usize * visible, all: false }),
        (false, 0) => Some(Part { first: node as usize * visible, all: !several_nodes }),
        (false, _) => None,
    }
}

/// One device: its number, its UUID, and what it has taken so far.
struct Watched {
    number: usize,
    uuid: String,
    meter: Meter,
    memory_total: Option<u64>,
    tally: Tally,
    idle: Idle,
    /// Whether the last line said how long it has been idle.
    says_idle: bool,
}

/// A device that has done nothing for less is not said to be idle, seconds.
const IDLE: f64 = 60.0;

/// What the samples of a device add up to.
#[derive(Debug, Default)]
struct Tally {
    utilization: f64,
    count: u32,
    memory: Option<u64>,
}

impl Tally {
    fn add(&mut self, sample: &Sample) {
        if let Some(percent) = sample.utilization {
            self.utilization += f64::from(percent);
            self.count += 1;
        }
        self.memory = self.memory.max(sample.memory_used);
    }
}

/// Adds up energy: by the device's own counter, or from its power where it has none.
#[derive(Debug, Default)]
struct Meter {
    first: Option<f64>,
    last: Option<f64>,
    power: Option<(f64, f64)>,
    integral: Option<f64>,
}

impl Meter {
    /// Takes in a sample made `seconds` after the start.
    fn add(&mut self, seconds: f64, sample: &Sample) {
        self.first = self.first.or(sample.energy_j);
        self.last = sample.energy_j.or(self.last);
        let Some(now) = sample.power_w else { return };
        if let Some((then, before)) = self.power {
            let area = (seconds - then) * (now + before) / 2.0;
            self.integral = Some(self.integral.unwrap_or(0.0) + area);
        }
        self.power = Some((seconds, now));
    }

    /// Joules; `None` if the device reported nothing, or its counter started over.
    fn joules(&self) -> Option<f64> {
        match (self.first, self.last) {
            (Some(first), Some(last)) => Some(last - first).filter(|joules| *joules >= 0.0),
            _ => self.integral,
        }
    }
}

fn watch(
    vars: &Vars,
    visible: &[String],
    part: Part,
    every: Duration,
    told: &Receiver<()>,
    out: &Sender<Said>,
) -> Result<(), String> {
    let mut source = gpus::open(vars).map_err(|why| why.to_string())?;
    let devices = source.machine().map_err(|why| why.to_string())?.devices;
    let mut all: Vec<Watched> = visible
        .iter()
        .enumerate()
        .filter_map(|(i, entry)| {
            let device = gpu::named(entry, &devices).first().copied()?;
            Some(Watched {
                number: part.first + i,
                uuid: device.uuid.clone(),
                meter: Meter::default(),
                memory_total: device.memory_total,
                tally: Tally::default(),
                idle: Idle::default(),
                says_idle: false,
            })
        })
        .collect();
    if all.is_empty() {
        return Err(format!("NVML knows none of CUDA_VISIBLE_DEVICES={}", visible.join(",")));
    }
    let start = Instant::now();
    // Of the first and the last sample only the energy counts: the program has not begun yet, or has ended.
    ask(source.as_mut(), &mut all, start, false);
    while matches!(told.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
        let row = ask(source.as_mut(), &mut all, start, true);
        if !row.is_empty() && out.send(Said::Row(row)).is_err() {
            return Ok(());
        }
    }
    // A short trial has no other sample than the one of its last moments.
    let is_only = all.iter().all(|device| device.tally.count == 0);
    ask(source.as_mut(), &mut all, start, is_only);
    let row = last_words(&all, part.all);
    if !row.is_empty() {
        let _ = out.send(Said::Row(row));
    }
    let _ = out.send(Said::Used(all.iter().map(used).collect()));
    Ok(())
}

fn used(device: &Watched) -> GpuUsage {
    let tally = &device.tally;
    let mean = (tally.count > 0).then(|| rounded(tally.utilization / f64::from(tally.count)));
    GpuUsage {
        gpu: device.number,
        utilization: mean,
        memory: tally.memory,
        energy_j: device.meter.joules().map(rounded),
    }
}

/// Asks every device once; `counts`: the program runs.
fn ask(source: &mut dyn Source, all: &mut [Watched], start: Instant, counts: bool) -> Row {
    let mut row = Row::new();
    for device in all {
        let sample = source.sample(&device.uuid);
        let seconds = start.elapsed().as_secs_f64();
        device.meter.add(seconds, &sample);
        let idle = device.idle.add(seconds, &sample);
        if counts {
            device.tally.add(&sample);
        }
        enter(&mut row, device.number, &sample);
        let idle = idle.map(|idle| if idle < IDLE { 0.0 } else { idle.round() });
        // A column only for devices that were idle, and its end as well.
        if let Some(idle) = idle.filter(|idle| *idle > 0.0 || device.says_idle) {
            device.says_idle = idle > 0.0;
            row.insert(format!("gpu.{}.idle_s", device.number), json!(idle));
        }
    }
    row
}

fn enter(row: &mut Row, number: usize, sample: &Sample) {
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            row.insert(format!("gpu.{number}.{name}"), value);
        }
    };
    set("utilization", sample.utilization.map(Value::from));
    set("memory_used", sample.memory_used.map(Value::from));
    set("power_w", sample.power_w.map(|watts| json!(rounded(watts))));
    set("temperature_c", sample.temperature_c.map(Value::from));
    set("sm_clock_mhz", sample.sm_clock_mhz.map(Value::from));
    let reasons = |words: &Vec<String>| {
        json!(if words.is_empty() { "none".to_owned() } else { words.join(", ") })
    };
    set("throttle", sample.throttle.as_ref().map(reasons));
}

/// Values that are recorded once, so that each makes one column: each device's memory and energy, and the
/// energy of the trial if these are all of its devices.
fn last_words(all: &[Watched], is_all: bool) -> Row {
    let mut row = Row::new();
    let mut sum = Some(0.0);
    for device in all {
        let joules = device.meter.joules();
        sum = sum.zip(joules).map(|(sum, joules)| sum + joules);
        if let Some(bytes) = device.memory_total {
            row.insert(format!("gpu.{}.memory_total", device.number), json!(bytes));
        }
        if let Some(joules) = joules {
            row.insert(format!("gpu.{}.energy_j", device.number), json!(rounded(joules)));
        }
    }
    if let (Some(sum), true) = (sum, is_all) {
        row.insert("gpu.energy_j".to_owned(), json!(rounded(sum)));
    }
    row
}

/// To thousandths: devices count in milliwatts and millijoules.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_asked_by_one_rank() {
        // Two nodes of two ranks, all of which see the node's four devices.
        let wide = |rank, local, node| part(rank, local, node, true, false, 4);
        assert_eq!(wide(0, 0, 0), Some(Part { first: 0, all: false }));
        assert_eq!(wide(1, 1, 0), None);
        assert_eq!(wide(2, 0, 1), Some(Part { first: 4, all: false }));
        assert_eq!(wide(3, 1, 1), None);
        // The same with one device for each rank.
        let narrow = |rank, local, node| part(rank, local, node, true, true, 1);
        let firsts: Vec<usize> = [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]
            .into_iter()
            .map(|(rank, local, node)| narrow(rank, local, node).unwrap().first)
            .collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
        // One node: rank 0 has it all.
        assert_eq!(part(0, 0, 0, false, false, 2), Some(Part { first: 0, all: true }));
        assert_eq!(part(1, 1, 0, false, false, 2), None);
    }

    fn metered(samples: &[(f64, Option<f64>, Option<f64>)]) -> Option<f64> {
        let mut meter = Meter::default();
        for (seconds, energy_j, power_w) in samples {
            let sample = Sample { energy_j: *energy_j, power_w: *power_w, ..Sample::default() };
            meter.add(*seconds, &sample);
        }
        meter.joules()
    }

    #[test]
    fn energy_is_the_counters_or_the_area_under_the_power() {
        let (a, b) = (Some(100.0), Some(300.0));
        assert_eq!(metered(&[(0.0, Some(5000.0), a), (5.0, Some(5900.5), b)]), Some(900.5));
        assert_eq!(metered(&[(0.0, None, a), (4.0, None, b), (5.0, None, b)]), Some(1100.0));
        assert_eq!(metered(&[(0.0, None, None), (4.0, None, None)]), None);
        assert_eq!(metered(&[(0.0, Some(5000.0), None), (5.0, Some(3.0), None)]), None);
    }

    #[test]
    fn what_a_device_cannot_tell_is_not_in_the_line() {
        let mut row = Row::new();
        enter(&mut row, 0, &Sample { utilization: Some(93), ..Sample::default() });
        let throttle = Some(vec!["power cap".to_owned(), "sync boost".to_owned()]);
        enter(&mut row, 1, &Sample { power_w: Some(70.12345), throttle, ..Sample::default() });
        enter(&mut row, 2, &Sample { throttle: Some(vec![]), ..Sample::default() });
        assert_eq!(
            Value::Object(row),
            json!({
                "gpu.0.utilization": 93,
                "gpu.1.power_w": 70.123,
                "gpu.1.throttle": "power cap, sync boost",
                "gpu.2.throttle": "none",
            })
        );
    }
}
