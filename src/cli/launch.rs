//! `hpcsweep launch`: starts the ranks of a PBS job, by the launcher of the available MPI; and the agent by
//! which such a launcher reaches the job's other hosts.

use std::path::Path;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::Context;
use crate::base::fault::Fault;
use crate::base::host::{Vars, disk, process, vars};
use crate::cluster::scheduler::launch::{self, Line, Request, find};

/// Start a command once a rank of this PBS job (job scripts call this)
///
/// Finds the mpiexec or mpirun of the loaded MPI, asks for its version, and becomes it, with the options that
/// put one process on each line of `$PBS_NODEFILE`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many ranks; the job must have a place for each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Print the command line and start nothing
    #[arg(long)]
    print: bool,
    /// What each rank runs
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Run a command on another host of this PBS job, in place of ssh (launchers call this)
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct AgentArgs {
    /// The host and the words of a shell command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "HOST COMMAND")]
    words: Vec<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let hostfile = hostfile(&context.vars);
    let line = line(args, &hostfile, &context.vars)?;
    if args.print {
        context.out.data(&line.to_string());
        return Ok(0);
    }
    if line.by_agent {
        // One error here is better than one from a daemon on each host.
        find::tmrsh(&context.vars)?;
    }
    if let Some(hosts) = &line.hostfile {
        disk::write_private(Path::new(&hostfile), hosts.as_bytes())?;
    }
    let env: Vec<(&str, &str)> = line.env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    // PBS signals every process of a job. A launcher that got the signal too would kill the ranks after a
    // second. The workers among them save, record what happened, and notify those on other hosts.
    process::block(Signal::SIGTERM);
    Err(process::become_program(&line.argv, &env).into())
}

/// The launcher's host file: in the job's own temporary folder, which PBS removes when the job ends.
fn hostfile(vars: &Vars) -> String {
    let of = |name: &str| vars.get(name).filter(|value| !value.is_empty()).map(String::as_str);
    let dir = of("TMPDIR").unwrap_or("/tmp");
    format!("{dir}/hpcsweep-hosts-{}", of("PBS_JOBID").unwrap_or("none"))
}

fn line(args: &Args, hostfile: &str, vars: &Vars) -> Result<Line> {
    let nodefile = vars.get("PBS_NODEFILE").filter(|path| !path.is_empty()).ok_or_else(|| {
        Fault::request("`PBS_NODEFILE` is not set: this is not a job of PBS")
            .hint("elsewhere ranks are started by srun, mpiexec or `hpcsweep submit --local`")
    })?;
    let hosts = launch::hosts(&disk::read(Path::new(nodefile))?);
    let mut launcher = find::launcher(vars)?;
    if hosts.len() > 1 {
        launcher = find::with_tm(launcher, vars);
    }
    let own = disk::own_executable()?.to_string_lossy().into_owned();
    let ranks = args.ranks;
    let command = &args.command;
    let hosts = &hosts;
    Ok(launcher.line(&Request { nodefile, hosts, hostfile, ranks, own: &own, vars, command })?)
}

pub(super) fn agent(args: &AgentArgs, context: &Context) -> Result<u8> {
    let vars = &context.vars;
    // PBS signals every process of a job. A launcher's daemon that got SIGTERM would end its ranks at once, and a
    // daemon whose connection to another host ended would give up that host. So only the workers get it.
    process::block(Signal::SIGTERM);
    if let Some((launch::HERE, program)) = args.words.split_first().map(|(a, b)| (a.as_str(), b)) {
        return Err(process::become_program(program, &[]).into());
    }
    let (host, command) = launch::agent_request(&args.words)?;
    let nodefile = vars.get("PBS_NODEFILE").and_then(|path| disk::read(Path::new(path)).ok());
    let host = launch::host_in(&nodefile.unwrap_or_default(), &host);
    // pbs_tmrsh runs a program with its arguments, launchers mean a shell, as behind ssh. They write for
    // the login shell, as far as that has a language of its own.
    let shell = vars::login_shell().filter(|shell| shell.ends_with("csh"));
    let mut argv = vec![find::tmrsh(vars)?.to_string_lossy().into_owned(), host];
    let own = disk::own_executable()?.to_string_lossy().into_owned();
    // dash lets go what is blocked; bash hands it on to the daemon.
    let plain = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let shell = shell.as_deref().unwrap_or(plain);
    argv.extend(launch::on_other_host(vars, &own, shell, command));
    Err(process::become_program(&argv, &[]).into())
}
