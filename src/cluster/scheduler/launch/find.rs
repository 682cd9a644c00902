//! Looks for launchers and for PBS's own tools on this host, and asks the former who they are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Flavour, Launcher, flavour, has_tm, version};
use crate::base::fault::Fault;
use crate::base::host::{Vars, disk, process};

/// How long a launcher may take to say its version.
const PATIENCE: Duration = Duration::from_secs(30);

/// The launchers in the folders of `PATH`, best first; those of PBS itself apart, which are scripts that
/// look for another `mpiexec` and hide it when their folder comes first.
pub(crate) fn programs(vars: &Vars) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let path = vars.get("PATH").map_or("", String::as_str);
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in path.split(':') {
        for program in
            ["mpiexec", "mpirun"].iter().filter_map(|name| disk::program_on(folder, name))
        {
            // `/bin` is `/usr/bin` on most systems.
            if !all.iter().any(|known| {
                known.file_name() == program.file_name()
                    && disk::real(known) == disk::real(&program)
            }) {
                all.push(program);
            }
        }
    }
    all.into_iter().partition(|program| !is_pbs_own(program))
}

/// A script beside `pbs_tmrsh`. An MPI installed in the same folder has a binary.
fn is_pbs_own(program: &Path) -> bool {
    let real = disk::real(program);
    let is_script = disk::read_at(&real, 0, 2).is_ok_and(|start| start == b"#!");
    is_script && real.with_file_name(TMRSH).exists()
}

/// The launcher that will start ranks: the first one on `PATH`.
///
/// # Errors
/// When there is no launcher.
pub(crate) fn launcher(vars: &Vars) -> Result<Launcher, Fault> {
    let (programs, passed) = programs(vars);
    let Some(program) = programs.first() else {
        let fault = Fault::machine("no mpiexec or mpirun on the PATH that could start the ranks");
        let fault = match passed.first() {
            Some(own) => {
                fault.at(format!("passed over: {}, a script of PBS itself", own.display()))
            }
            None => fault,
        };
        return Err(fault.hint(
            "load the MPI of your program (`module load openmpi` in `[run] setup` or `[modules]`), or name \
             `scheduler.launcher` in the site profile",
        ));
    };
    Ok(ask(program, vars))
}

/// The version text of a launcher; a launcher without one is unknown.
pub(crate) fn ask(program: &Path, vars: &Vars) -> Launcher {
    let name = program.to_string_lossy().into_owned();
    let output = process::run(&[name.clone(), "--version".to_owned()], vars, PATIENCE).ok();
    let text = output.map_or_else(String::new, |o| format!("{}{}", o.stdout, o.stderr));
    let real = disk::real(program);
    Launcher {
        flavour: flavour(&real.to_string_lossy(), &text),
        version: version(&text),
        program: name,
    }
}

/// Asks an Open MPI whether it knows PBS. Others need not be asked.
pub(crate) fn with_tm(mut launcher: Launcher, vars: &Vars) -> Launcher {
    if let Flavour::OpenMpi { major, ref mut tm } = launcher.flavour {
        let name = if major >= 5 { "prte_info" } else { "ompi_info" };
        let beside = Path::new(&launcher.program).with_file_name(name);
        let path = vars.get("PATH").map_or("", String::as_str);
        let info = if beside.exists() { Some(beside) } else { disk::program_on(path, name) };
        let argv = info.map(|info| [info.to_string_lossy().into_owned(), "--parsable".to_owned()]);
        let said = argv.and_then(|argv| process::run(&argv, vars, PATIENCE).ok());
        *tm = said.is_some_and(|output| has_tm(&output.stdout));
    }
    launcher
}

const TMRSH: &str = "pbs_tmrsh";

/// PBS's program that runs a command on another host of the job. PBS gives the job's other hosts a `PATH`
/// without its own folder.
///
/// # Errors
/// When it is nowhere, with what that means.
pub(crate) fn tmrsh(vars: &Vars) -> Result<PathBuf, Fault> {
    let path = vars.get("PATH").map_or("", String::as_str);
    let conf = vars.get("PBS_CONF_FILE").map_or("/etc/pbs.conf", String::as_str);
    let conf = disk::read(Path::new(conf)).unwrap_or_default();
    let configured = conf.lines().rev().find_map(|line| line.trim().strip_prefix("PBS_EXEC="));
    let homes = vars.get("PBS_EXEC").map(String::as_str).into_iter().chain(configured);
    let homes = homes.chain(["/opt/pbs"]).map(|home| format!("{}/bin", home.trim()));
    disk::program_on(path, TMRSH)
        .or_else(|| homes.into_iter().find_map(|folder| disk::program_on(&folder, TMRSH)))
        .ok_or_else(|| {
            Fault::machine("`pbs_tmrsh`, which starts processes on the other hosts of a PBS job, is not on this host")
                .hint(
                    "set PBS_EXEC to where PBS is installed, or name in the site profile a \
                     `scheduler.launcher` that reaches other hosts in another way",
                )
        })
}
