//! What the sweep has cost, and what its trials requested and used.

use serde::Serialize;

use super::{figure, rounded};
use crate::answers::usage::{Attempt, Report, Shape, Spread};
use crate::base::units::{memory_text, walltime_text};
use crate::base::words::count;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Cost {
    /// Of all attempts that ended: cores and GPUs times hours.
    pub(super) core_hours: f64,
    pub(super) gpu_hours: f64,
    /// Of the GPUs and nodes that report it.
    pub(super) energy_kwh: Option<f64>,
    /// What was requested, and the share that was used, of attempts that recorded both.
    pub(super) hours: Vec<Used>,
    shapes: Vec<Asked>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Used {
    pub(super) what: &'static str,
    pub(super) requested: String,
    pub(super) used: String,
    pub(super) wasted: String,
    /// From 0 to 1.
    pub(super) share: f64,
}

/// The attempts with one request.
#[derive(Debug, PartialEq, Serialize)]
struct Asked {
    title: String,
    rows: Vec<Row>,
    /// The lines of a plan that would have been enough.
    enough: Vec<String>,
    notes: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row {
    what: &'static str,
    asked: String,
    median: String,
    p95: String,
    largest: String,
    /// Median, 95 of 100 and largest as shares of what was asked for.
    shares: Option<[Option<f64>; 3]>,
}

/// The most requests of a page.
const MOST: usize = 12;

/// The cost of a sweep.
pub(super) fn sum_up(usage: &Report, ended: &[Attempt]) -> Cost {
    let hours = |units: &dyn Fn(&Attempt) -> u64| {
        let unit_hours = ended.iter().map(|own| units(own) as f64 * own.duration_s / 3600.0);
        unit_hours.sum::<f64>()
    };
    let energy = [usage.gpu_energy_j, usage.node_energy_j];
    let usage_hours = usage.hours;
    let named_hours = [
        ("core-hours", usage_hours.core),
        ("GiB-hours", usage_hours.gib),
        ("GPU-hours", usage_hours.gpu),
    ];
    Cost {
        core_hours: hours(&|own| own.request.cores()),
        gpu_hours: hours(&|own| own.request.total_gpus()),
        energy_kwh: energy.into_iter().flatten().reduce(|a, b| a + b).map(|joules| joules / 3.6e6),
        hours: named_hours
            .into_iter()
            .filter(|(_, hours)| hours.requested > 0.0)
            .map(|(what, hours)| Used {
                what,
                requested: figure(hours.requested),
                used: figure(hours.used),
                wasted: figure(hours.wasted),
                share: rounded((hours.used / hours.requested).min(1.0)).unwrap_or(0.0),
            })
            .collect(),
        shapes: usage.shapes.iter().take(MOST).map(asked).collect(),
    }
}

fn asked(shape: &Shape) -> Asked {
    let request = &shape.request;
    let mut parts = vec![count(shape.cores, "core")];
    if request.nodes > 1 {
        parts.insert(0, count(request.nodes.into(), "node"));
    }
    parts.extend((shape.gpus > 0).then(|| count(shape.gpus, "GPU")));
    parts.extend(request.memory_mib.map(memory_text));
    parts.extend(request.walltime_s.map(walltime_text));
    parts.extend(request.partition.clone());
    let title = format!(
        "{} ({}, {})",
        parts.join(", "),
        count(shape.trials as u64, "trial"),
        count(shape.attempts as u64, "attempt")
    );
    let memory = if request.nodes > 1 { "memory of a node" } else { "memory" };
    let mib = |mib: f64| memory_text(mib.ceil() as u64);
    let time = |s: f64| walltime_text(s.ceil() as u64);
    let row = |what, asked: Option<f64>, used: Option<Spread>, show: &dyn Fn(f64) -> String| {
        let Spread { median, p95, largest } = used?;
        let share = |asked: f64| [median, p95, largest].map(|used| rounded(used / asked));
        Some(Row {
            what,
            asked: asked.map_or("–".to_owned(), show),
            median: show(median),
            p95: show(p95),
            largest: show(largest),
            shares: asked.filter(|asked| *asked > 0.0).map(share),
        })
    };
    let as_number = |n: Option<u64>| n.map(|n| n as f64);
    let rows = [
        row("cores", Some(shape.cores as f64), shape.busy_cores, &figure),
        row(memory, as_number(request.memory_mib), shape.memory_mib, &mib),
        row("walltime", as_number(request.walltime_s), shape.duration_s, &time),
        row("GPUs", Some(shape.gpus as f64).filter(|n| *n > 0.0), shape.busy_gpus, &figure),
    ];
    let enough = &shape.enough;
    let lines = [
        enough.cpus_per_rank.map(|n| format!("cpus_per_rank = {n}")),
        enough.gpus_per_rank.map(|n| format!("gpus_per_rank = {n}")),
        enough.memory_mib.map(|mib| format!("memory = \"{}\"", memory_text(mib))),
        enough.walltime_s.map(|s| format!("walltime = \"{}\"", walltime_text(s))),
    ];
    let mut notes = Vec::new();
    for (n, what) in [
        (shape.out_of_memory, "ran out of memory and needed more"),
        (shape.out_of_time, "reached the walltime and needed more"),
        (shape.unmeasured, "recorded no usage"),
    ] {
        notes.extend((n > 0).then(|| format!("{} {what}.", count(n as u64, "attempt"))));
    }
    Asked {
        title,
        rows: rows.into_iter().flatten().collect(),
        enough: lines.into_iter().flatten().collect(),
        notes,
    }
}
