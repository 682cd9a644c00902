//! The launcher that would start the ranks of a PBS job here.

use super::{Check, Severity, check};
use crate::base::host::{Vars, disk};
use crate::base::words;
use crate::cluster::scheduler::launch::{Flavour, Launcher, Request, find};
use crate::plan::site::Site;

/// The command that would start the ranks of a job, for an example of two hosts with two ranks each.
pub(super) fn examine(site: &Site, vars: &Vars) -> Vec<Check> {
    if let Some(words) = &site.scheduler.launcher {
        let words: Vec<String> = words.iter().map(|word| words::sh_quote(word)).collect();
        return vec![check(
            "launcher",
            Severity::Ok,
            format!("that of the site profile: {}", words.join(" ")),
            "",
        )];
    }
    let (all, passed) = find::programs(vars);
    let mut checks = match find::launcher(vars) {
        Ok(launcher) => of_launcher(&find::with_tm(launcher, vars), vars),
        Err(fault) => vec![check(
            "launcher",
            Severity::Note,
            fault.sentence,
            "trials of several ranks need one: load the module of your MPI and run this again",
        )],
    };
    // `mpirun` beside `mpiexec` is the same one.
    let mut passed_over: Vec<String> = all
        .iter()
        .skip(1)
        .filter(|program| program.parent() != all[0].parent())
        .map(|program| format!("{} ({})", program.display(), find::ask(program, vars).version))
        .collect();
    passed_over.extend(
        passed.iter().map(|program| format!("{} (a script of PBS itself)", program.display())),
    );
    if !passed_over.is_empty() {
        let summary = format!("passed over: {}", passed_over.join(", "));
        checks.push(check("launcher", Severity::Ok, summary, ""));
    }
    checks
}

fn of_launcher(launcher: &Launcher, vars: &Vars) -> Vec<Check> {
    let own_program =
        disk::own_executable().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let hosts = [("HOST1".to_owned(), 2), ("HOST2".to_owned(), 2)];
    let command = ["hpcsweep", "worker", "..."].map(str::to_owned);
    let request = Request {
        nodefile: "$PBS_NODEFILE",
        hosts: &hosts,
        hostfile: "$TMPDIR/hpcsweep-hosts-$PBS_JOBID",
        ranks: 4,
        own: &own_program,
        vars,
        command: &command,
    };
    let named = format!("{}: {}", launcher.program, launcher.version);
    let line = match launcher.line(&request) {
        Ok(line) => line,
        Err(fault) => {
            let todo = fault.hint.unwrap_or_default();
            return vec![check(
                "launcher",
                Severity::Note,
                format!("{named}; {}", fault.sentence),
                &todo,
            )];
        }
    };
    let integration = match launcher.flavour {
        Flavour::OpenMpi { tm: true, .. } => "built with PBS's task interface",
        Flavour::OpenMpi { .. } => "built without PBS's task interface",
        Flavour::Hydra | Flavour::Intel => "reads the hosts of a job by itself",
        Flavour::Pals => "asks PBS for the hosts of a job",
        Flavour::Unknown => {
            return vec![
                check(
                    "launcher",
                    Severity::Note,
                    format!(
                        "{named}; whose it is cannot be told, so it is only given the number of ranks"
                    ),
                    "try a plan of two hosts; `scheduler.launcher` in the site profile names a better command line",
                ),
                check("launch line", Severity::Ok, line.to_string(), ""),
            ];
        }
    };
    let (verdict, integration, todo) = match (line.by_agent, find::tmrsh(vars)) {
        (true, Ok(_)) => (
            Severity::Ok,
            format!("{integration}, reaches other hosts by pbs_tmrsh"),
            String::new(),
        ),
        (true, Err(fault)) => (
            Severity::Note,
            format!("{integration}, and there is no pbs_tmrsh to reach other hosts by"),
            fault.hint.unwrap_or_default(),
        ),
        (false, _) => (Severity::Ok, integration.to_owned(), String::new()),
    };
    // For people it need not be quoted: the shell fills it in.
    let shown = line.to_string().replace(&format!("'{}'", request.hostfile), request.hostfile);
    vec![
        check("launcher", verdict, format!("{named}; {integration}"), &todo),
        check("launch line", Severity::Ok, format!("2 hosts of 2 ranks: {shown}"), ""),
    ]
}
