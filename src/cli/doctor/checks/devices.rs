//! The GPUs of this host, and what is wrong with each.

use super::{Check, Severity, check};
use crate::base::host::Vars;
use crate::base::host::gpus::{self, ComputeMode, Device, Machine, Missing};
use crate::base::words;
use crate::cluster::gpu;

/// One line for all, then one for each.
pub(super) fn examine(vars: &Vars) -> Vec<Check> {
    match gpus::machine(vars) {
        Ok(machine) => told(&machine),
        Err(missing) => vec![none(&missing)],
    }
}

fn none(missing: &Missing) -> Check {
    let (verdict, todo) = match missing {
        Missing::Library => (
            Severity::Note,
            "nothing, unless this host should have some: then install NVIDIA's driver",
        ),
        Missing::Driver => (
            Severity::Note,
            "nothing, unless this host has a GPU: then load the driver, `modprobe nvidia`",
        ),
        Missing::Mismatch => (
            Severity::Bad,
            "an update changed the libraries: reboot this host, or load the new driver",
        ),
        Missing::Other(_) => (Severity::Note, "see what `nvidia-smi` says"),
    };
    check("GPUs", verdict, format!("none: {missing}"), todo)
}

fn told(machine: &Machine) -> Vec<Check> {
    let driver = match (&machine.driver, &machine.cuda) {
        (Some(driver), Some(cuda)) => format!("driver {driver}, CUDA up to {cuda}"),
        (Some(driver), None) => format!("driver {driver}"),
        _ => "driver of unknown version".to_owned(),
    };
    let n_gpus = machine.devices.iter().filter(|device| device.parent.is_none()).count();
    if n_gpus == 0 {
        return vec![check(
            "GPUs",
            Severity::Note,
            format!("NVML works, but sees none; {driver}"),
            "",
        )];
    }
    let summary = format!("{}; {driver}", words::count(n_gpus as u64, "GPU"));
    let mut checks = vec![check("GPUs", Severity::Ok, summary, "")];
    checks.extend(machine.devices.iter().map(|device| {
        let parts =
            machine.devices.iter().filter(|d| d.parent.as_deref() == Some(&device.uuid)).count();
        of_one(device, parts)
    }));
    checks
}

fn of_one(device: &Device, parts: usize) -> Check {
    let memory = device
        .memory_total
        .map_or_else(String::new, |bytes| format!(" ({} MiB)", words::thousands(bytes >> 20)));
    let mut verdict = Severity::Ok;
    let name = format!("{}: {}{memory}", gpu::label(device), device.name);
    // A device that cannot be queried does not report its name either.
    let mut findings = vec![name.trim_end_matches([':', ' ']).to_owned()];
    let mut todo = Vec::new();
    let mut add_finding = |how: Severity, words: String, what: &'static str| {
        if verdict != Severity::Bad && how != Severity::Ok {
            verdict = how;
        }
        findings.push(words);
        todo.push(what);
    };
    if let Some(trouble) = &device.trouble {
        add_finding(
            Severity::Bad,
            format!("cannot be asked: {trouble}"),
            "reset it or reboot this host",
        );
    }
    if device.mig_enabled {
        let parts = words::count(parts as u64, "MIG device");
        add_finding(
            Severity::Note,
            format!("divided into {parts}"),
            "name MIG devices by UUID; a program can use one at a time",
        );
    }
    match device.compute_mode {
        Some(ComputeMode::ExclusiveProcess) => add_finding(
            Severity::Note,
            "exclusive mode".to_owned(),
            "one process at a time: ranks cannot share it",
        ),
        Some(ComputeMode::Prohibited) => add_finding(
            Severity::Bad,
            "compute mode prohibited".to_owned(),
            "an administrator can change it: `nvidia-smi -c DEFAULT`",
        ),
        Some(ComputeMode::Shared) | None => {}
    }
    if let Some(errors) = device.ecc_errors.filter(|errors| *errors > 0) {
        let errors = words::count(errors, "uncorrected memory error");
        add_finding(Severity::Bad, errors, "results may be wrong: have it reset or replaced");
    }
    let (hard, mild): (Vec<&String>, Vec<&String>) = device
        .throttle
        .iter()
        .partition(|why| ["slowdown", "brake"].iter().any(|w| why.contains(w)));
    let joined = |all: &[&String]| all.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", ");
    if !hard.is_empty() {
        add_finding(
            Severity::Note,
            format!("throttled: {}", joined(&hard)),
            "it computes slower than it could: look at cooling and power supply",
        );
    } else if !mild.is_empty() {
        // Every GPU under load meets its power cap.
        findings.push(format!("clocks held by {}", joined(&mild)));
    }
    check("GPU", verdict, findings.join("; "), &todo.join("; "))
}
