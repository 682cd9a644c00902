//! The programs that trials are started with: our own two, srun and its PMI plugins, mpirun.

use super::{Check, Severity, check};
use crate::base::fault;
use crate::base::host::{Vars, disk};
use crate::cluster::scheduler::Limits;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::launch::version;
use crate::run::worker::process::launch;

/// Both of our programs; then the heavy one's report about its MPI and its libtorch, as it prints it.
pub(super) fn installation(vars: &Vars) -> Vec<Check> {
    let version = match launch::shake_hands(vars) {
        Ok(said) => said,
        Err(error) => {
            return vec![check(
                "installation",
                Severity::Bad,
                fault::sentence(&error),
                "install both programs of one version together: scripts/install --prefix DIR",
            )];
        }
    };
    let own_program = disk::own_executable().map(|p| p.display().to_string()).unwrap_or_default();
    let mut checks = vec![check(
        "installation",
        Severity::Ok,
        format!("{own_program}, {version} beside it"),
        "",
    )];
    let lines = match launch::about(vars) {
        Ok(lines) => lines,
        Err(error) => {
            let todo = "only training in the worker and syncs over MPI need that; load the MPI it was built with";
            checks.push(check("worker", Severity::Note, error.to_string(), todo));
            return checks;
        }
    };
    let has_line = |start: &str| {
        let mine = |line: &&String| line.starts_with(start) && !line.ends_with(NOT_BUILT_IN);
        lines.iter().any(|line| mine(&line))
    };
    let built_in = lines.iter().filter(|line| !line.ends_with(NOT_BUILT_IN));
    checks.extend(built_in.map(|line| check("worker", Severity::Ok, line.as_str(), "")));
    let without: Vec<&str> = [("mpi:", "MPI"), ("libtorch:", "libtorch")]
        .into_iter()
        .filter(|(start, _)| !has_line(start))
        .map(|(_, name)| name)
        .collect();
    if !without.is_empty() {
        checks.push(check(
            "worker",
            Severity::Note,
            format!("hpcsweep-worker was built without {}", without.join(" and ")),
            "plans with `[run] command` alone need neither; scripts/setup --for worker gets both",
        ));
    }
    checks
}

/// The end of a line of `hpcsweep-worker about` for a part that the build lacks.
const NOT_BUILT_IN: &str = "not built in";

/// The kinds of PMI that srun offers to MPI programs; nothing if there is no srun to ask and no scheduler
/// that should have one.
pub(super) fn srun(calls: &mut Calls, limits: Option<&Limits>) -> Option<Check> {
    let argv = ["srun", "--mpi=list"].map(str::to_owned);
    let Ok(output) = calls.make(&argv) else {
        return limits.map(|_| {
            check(
                "MPI plugins",
                Severity::Bad,
                "srun cannot be started",
                "install Slurm's client programs",
            )
        });
    };
    if output.code != Some(0) {
        let reason = output.stderr.lines().next().unwrap_or("no answer in time").trim().to_owned();
        let todo = "see whether `srun --mpi=list` works on a login node";
        return Some(check("MPI plugins", Severity::Note, format!("srun says: {reason}"), todo));
    }
    let list: Vec<&str> = output
        .stdout
        .lines()
        .chain(output.stderr.lines())
        .flat_map(|line| line.rsplit(':').next().unwrap_or("").split_whitespace())
        .filter(|word| !["are...", "MPI", "plugin", "types", "specific", "versions"].contains(word))
        .collect();
    let default = limits.and_then(|limits| limits.mpi_default.as_deref()).unwrap_or("unknown");
    let plugins = format!("{} (default {default})", list.join(" "));
    Some(if list.iter().any(|word| word.starts_with("pmix")) {
        check("MPI plugins", Severity::Ok, plugins, "")
    } else {
        check(
            "MPI plugins",
            Severity::Note,
            format!("{plugins}: pmix is missing"),
            "MPI programs of several ranks need a plugin their MPI knows; most want pmix",
        )
    })
}

/// How Slurm's PMIx passes fences on, if its configuration says so: only with its ring no rank leaves one too
/// early.
pub(super) fn fence(limits: &Limits) -> Option<Check> {
    let fence = limits.pmix_fence.as_deref()?;
    if fence == "ring" {
        return Some(check("PMIx fences", Severity::Ok, "PMIxCollFence is ring", ""));
    }
    let setting = match fence {
        "(null)" => "PMIxCollFence is not set".to_owned(),
        other => format!("PMIxCollFence is {other}"),
    };
    Some(check(
        "PMIx fences",
        Severity::Note,
        format!(
            "{setting}: ranks of MPI programs on several nodes may die in MPI_Init now and then (seen with Slurm 22.05)"
        ),
        "job scripts of hpcsweep set SLURM_PMIX_FENCE=ring; so should others, or mpi.conf with PMIxCollFence=ring",
    ))
}

/// Which MPI starts programs here.
pub(super) fn mpirun(calls: &mut Calls) -> Check {
    let argv = ["mpirun", "--version"].map(str::to_owned);
    let todo = "ranks can be started by srun; for mpirun load the module of your MPI";
    let Ok(output) = calls.make(&argv) else {
        return check("mpirun", Severity::Note, "none in PATH", todo);
    };
    if output.code != Some(0) {
        let reason = output.stderr.lines().next().unwrap_or("no answer in time").trim();
        return check(
            "mpirun",
            Severity::Note,
            format!("`mpirun --version` fails: {reason}"),
            todo,
        );
    }
    check("mpirun", Severity::Ok, version(&output.stdout), "")
}
