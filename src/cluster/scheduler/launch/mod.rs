//! Starts the ranks of a PBS job by the launcher of the loaded MPI: which MPI it is, and the command line
//! that puts one process on each line of the job's node file.
//!
//! PBS starts a job on its first host alone and its own `pbsdsh` hides how tasks end, so ranks are the
//! MPI's business. Where an MPI was not built for PBS it reaches other hosts through an agent, as it would
//! through ssh, which many sites do not allow: ours (`hpcsweep tm-agent`) asks PBS by `pbs_tmrsh`, and the
//! ranks stay processes of the job, killed and accounted with it.

pub(crate) mod find;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::words::{count, sh_quote};

/// The verb of this program that an MPI calls in place of ssh.
pub(crate) const AGENT: &str = "tm-agent";

/// The word by which the agent becomes a program on the host that it was sent to.
pub(crate) const HERE: &str = "--here";

/// Whose launcher it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI, of this major version; `tm` when it can start processes through PBS by itself.
    OpenMpi {
        /// 5 stands for PRRTE, which has other parameter names, too.
        major: u32,
        /// Built with PBS's task interface; `false` where that is not known.
        tm: bool,
    },
    /// MPICH, MVAPICH and others with the launcher Hydra.
    Hydra,
    /// Intel MPI: a Hydra of its own kind.
    Intel,
    /// Cray PALS: `mpiexec` and `aprun`.
    Pals,
    /// A launcher whose path and version text name no known MPI.
    Unknown,
}

/// A launcher and its version text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launcher {
    /// Its path, as it was found.
    pub(crate) program: String,
    /// Which MPI's command line it takes.
    pub(crate) flavour: Flavour,
    /// Its version, for people.
    pub(crate) version: String,
}

/// The kind of a launcher, from its path, symbolic links resolved, and its output for `--version`.
pub fn flavour(program: &str, text: &str) -> Flavour {
    let text = text.trim_start();
    if let Some((_, version)) = ["(Open MPI) ", "(OpenRTE) ", "(PRRTE) "]
        .iter()
        .find_map(|mark| text.lines().next().unwrap_or_default().split_once(mark))
    {
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        // PRRTE counts its own versions, from 1 on.
        let major = if text.contains("(PRRTE)") { 5 } else { digits.parse().unwrap_or(4) };
        return Flavour::OpenMpi { major, tm: false };
    }
    if text.contains("Intel(R) MPI") {
        return Flavour::Intel;
    }
    if text.starts_with("HYDRA build details") {
        return Flavour::Hydra;
    }
    if text.contains("PALS") || program.contains("/pals/") {
        return Flavour::Pals;
    }
    Flavour::Unknown
}

/// The version in a launcher's output for `--version`.
pub fn version(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("of unknown version");
    // MPICH prints how it was built, the version on a line of its own.
    match lines.find_map(|line| line.strip_prefix("Version:")) {
        Some(version) if first.starts_with("HYDRA") => format!("MPICH (Hydra) {}", version.trim()),
        _ => first.to_owned(),
    }
}

/// Whether `ompi_info` or `prte_info` (with or without `--parsable`) lists PBS's task interface among
/// what starts daemons.
pub fn has_tm(info: &str) -> bool {
    info.lines()
        .map(str::trim)
        .any(|l| l.starts_with("mca:plm:tm:") || l.starts_with("MCA plm: tm "))
}

/// The hosts of a job in the order of its node file, each with its number of places for ranks.
pub fn hosts(nodefile: &str) -> Vec<(String, u32)> {
    let mut hosts: Vec<(String, u32)> = Vec::new();
    for host in nodefile.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, places)) => *places += 1,
            None => hosts.push((host.to_owned(), 1)),
        }
    }
    hosts
}

/// The request to a launcher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// Path of the node file.
    pub(crate) nodefile: &'a str,
    /// Its hosts, with their numbers of places.
    pub(crate) hosts: &'a [(String, u32)],
    /// Where a host file of the launcher's own may be written.
    pub(crate) hostfile: &'a str,
    /// How many ranks the trial asks for.
    pub(crate) ranks: u32,
    /// The path of this program, which is the agent.
    pub(crate) own: &'a str,
    /// The environment: what a person has chosen there stays.
    pub(crate) vars: &'a Vars,
    /// What each rank runs.
    pub(crate) command: &'a [String],
}

/// The command line that starts the ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Variables it needs besides those there are.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Program and arguments, the ranks' command at the end.
    pub(crate) argv: Vec<String>,
    /// Whether it reaches other hosts by our agent.
    pub(crate) by_agent: bool,
    /// The contents of the host file that it names, if it names one.
    pub(crate) hostfile: Option<String>,
}

impl fmt::Display for Line {
    /// As a person would type it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", sh_quote(value)));
        let words: Vec<String> = env.chain(self.argv.iter().map(|word| sh_quote(word))).collect();
        f.write_str(&words.join(" "))
    }
}

impl Launcher {
    /// The command line that starts one process on each line of the node file.
    ///
    /// # Errors
    /// When the job has another number of places than the trial has ranks, or this launcher cannot fill
    /// them as they are.
    pub(crate) fn line(&self, request: &Request<'_>) -> Result<Line, Fault> {
        let places: u32 = request.hosts.iter().map(|(_, n)| n).sum();
        if places != request.ranks {
            return Err(other_number(places, request));
        }
        let argv = vec![self.program.clone()];
        let mut line = Line { env: Vec::new(), argv, by_agent: false, hostfile: None };
        line.add(&["-n", &request.ranks.to_string()]);
        match self.flavour {
            Flavour::OpenMpi { major, tm } => open_mpi(&mut line, request, major, tm)?,
            Flavour::Hydra => hydra(&mut line, request)?,
            Flavour::Intel => intel(&mut line, request)?,
            Flavour::Pals => pals(&mut line, request)?,
            Flavour::Unknown => {}
        }
        line.argv.extend_from_slice(request.command);
        Ok(line)
    }
}

impl Line {
    fn add(&mut self, words: &[&str]) {
        self.argv.extend(words.iter().map(|word| (*word).to_owned()));
    }
}

impl Request<'_> {
    fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Launchers take the agent for a command line, and Open MPI for a list of them: apart at blanks and
    /// colons. Some then wait for ever for the host that they cannot reach.
    fn own_path_is_one_word(&self, launcher: &str) -> Result<(), Fault> {
        if !self.own.contains(|c: char| c.is_whitespace() || c == ':') {
            return Ok(());
        }
        let sentence = format!(
            "{launcher} cannot call `{}` on other hosts: the path has a blank or a colon",
            self.own
        );
        Err(Fault::machine(sentence).hint(
            "install hpcsweep under another path, or name `scheduler.launcher` in the site profile",
        ))
    }

    /// Whether one of these variables is already set.
    fn is_chosen(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.vars.get(*name).is_some_and(|value| !value.is_empty()))
    }
}

fn other_number(places: u32, request: &Request<'_>) -> Fault {
    let places = count(u64::from(places), "place");
    let sentence = format!("the job has {places} for ranks, the trial asks for {}", request.ranks);
    let hosts = request.hosts.iter().map(|(host, n)| format!("{host}: {n}"));
    let hosts: Vec<String> = hosts.collect();
    let place = format!(
        "{}: {}",
        request.nodefile,
        if hosts.is_empty() { "empty".to_owned() } else { hosts.join(", ") }
    );
    Fault::request(sentence).at(place).hint(
        "PBS gives a place for each of `mpiprocs`: `-l select=HOSTS:ncpus=C:mpiprocs=RANKS_A_HOST`",
    )
}

/// Variables that Open MPI does not hand to other hosts by itself and that a rank needs: which element of
/// the array it is. `PBS_NODEFILE` has a value of its own on each host.
const CARRIED: [&str; 5] =
    ["PBS_JOBID", "PBS_ARRAY_INDEX", "PBS_ARRAY_ID", "HPCSWEEP_MEET", "HPCSWEEP_AGAIN"];

/// Open MPI binds a rank to one core, or counts cores from the first in each job of a host.
const OPEN_MPI_BINDING: [&str; 3] = [
    "OMPI_MCA_hwloc_base_binding_policy",
    "PRTE_MCA_hwloc_default_binding_policy",
    "OMPI_MCA_rmaps_base_mapping_policy",
];

fn open_mpi(line: &mut Line, request: &Request<'_>, major: u32, tm: bool) -> Result<(), Fault> {
    // A worker whose MPI program died at MPI_Init or later has its own way to end the others.
    let left_to_workers = match major {
        5.. => "PRTE_MCA_prte_allowed_exit_without_sync",
        _ => "OMPI_MCA_orte_allowed_exit_without_sync",
    };
    if !request.is_chosen(&[left_to_workers]) {
        line.env.push((left_to_workers, "1".to_owned()));
    }
    if !request.is_chosen(&OPEN_MPI_BINDING) {
        line.add(&["--bind-to", "none"]);
    }
    if !tm && request.has_several_hosts() {
        // If the node file names a host once, Open MPI takes all its cores for places, and puts further ranks
        // there.
        let places = |(host, n): &(String, u32)| format!("{host} slots={n}\n");
        line.hostfile = Some(request.hosts.iter().map(places).collect());
        line.add(&["--hostfile", request.hostfile]);
        open_mpi_agent(line, request, major)?;
    } else if !tm {
        line.add(&["--hostfile", request.nodefile]);
    }
    for name in CARRIED {
        if request.is_chosen(&[name]) {
            line.add(&["-x", name]);
        }
    }
    Ok(())
}

fn open_mpi_agent(line: &mut Line, request: &Request<'_>, major: u32) -> Result<(), Fault> {
    if request.is_chosen(&["OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"]) {
        return Ok(());
    }
    request.own_path_is_one_word("Open MPI")?;
    let agent = format!("{} {AGENT}", request.own);
    let (option, name) = if major >= 5 { ("--prtemca", "ssh") } else { ("--mca", "rsh") };
    // Without the second one, daemons of other hosts would start further daemons, where pbs_tmrsh finds
    // neither node file nor PATH.
    line.add(&[option, &format!("plm_{name}_agent"), &agent]);
    line.add(&[option, &format!("plm_{name}_no_tree_spawn"), "1"]);
    // PBS now and then kills a daemon that goes into the background: it ends the rest of a task when the
    // task's first process ends, perhaps before the daemon has a session of its own. So all agents stay.
    if major >= 5 {
        line.add(&["--leave-session-attached"]);
    } else {
        line.add(&[option, "orte_leave_session_attached", "1"]);
    }
    let hosts = request.hosts.len().to_string();
    line.add(&[option, &format!("plm_{name}_num_concurrent"), &hosts]);
    line.by_agent = true;
    Ok(())
}

/// Hydra finds hosts and places in `PBS_NODEFILE` by itself, hands the whole environment on, and binds
/// nothing. Its agent is one program, whose first words come from a variable.
fn hydra(line: &mut Line, request: &Request<'_>) -> Result<(), Fault> {
    let chosen =
        ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC"];
    if request.has_several_hosts() && !request.is_chosen(&chosen) {
        request.own_path_is_one_word("Hydra")?;
        line.env.push(("HYDRA_LAUNCHER_EXTRA_ARGS", AGENT.to_owned()));
        line.add(&["-bootstrap", "rsh", "-bootstrap-exec", request.own]);
        line.by_agent = true;
    }
    Ok(())
}

fn intel(line: &mut Line, request: &Request<'_>) -> Result<(), Fault> {
    // Each job would pin its ranks to the same cores, from the first on, where nodes are shared.
    if !request.is_chosen(&["I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST"]) {
        line.env.push(("I_MPI_PIN", "off".to_owned()));
    }
    let chosen = ["I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"];
    if request.has_several_hosts() && !request.is_chosen(&chosen) {
        request.own_path_is_one_word("Intel MPI")?;
        line.add(&["-bootstrap", "rsh", "-bootstrap-exec", request.own]);
        line.add(&["-bootstrap-exec-args", AGENT]);
        line.by_agent = true;
    }
    Ok(())
}

/// PALS asks PBS for the hosts; how many ranks each gets is ours to say.
fn pals(line: &mut Line, request: &Request<'_>) -> Result<(), Fault> {
    let a_host = request.hosts.first().map_or(1, |(_, n)| *n);
    if let Some((other, n)) = request.hosts.iter().find(|(_, n)| *n != a_host) {
        let sentence = format!(
            "Cray PALS starts as many ranks on every host, but the job has {a_host} on `{}` and {n} on `{other}`",
            request.hosts[0].0
        );
        return Err(Fault::request(sentence).hint(
            "ask for equal chunks on hosts of their own (`place=scatter`), or name `scheduler.launcher` in \
             the site profile",
        ));
    }
    line.add(&["--ppn", &a_host.to_string(), "--cpu-bind", "none"]);
    Ok(())
}

/// The request to the agent: a host and the words of a shell command. PBS has no use for options that a
/// launcher puts in front of the host, as for ssh.
///
/// # Errors
/// When host or command is missing.
pub fn agent_request(words: &[String]) -> Result<(String, String), Fault> {
    let mut rest = words.iter();
    let host = loop {
        match rest.next() {
            Some(word) if word == "-l" => _ = rest.next(),
            Some(word) if word.starts_with('-') => {}
            Some(host) => break host.clone(),
            None => return Err(Fault::request("the agent is told no host")),
        }
    };
    let command = rest.map(String::as_str).collect::<Vec<_>>().join(" ");
    if command.is_empty() {
        return Err(Fault::request(format!("the agent is told nothing to run on `{host}`")));
    }
    Ok((host, command))
}

/// What PBS is to run on another host for a shell command. Processes there begin with the environment of
/// the submission and a bare `PATH`: an MPI out of a module would not find its own libraries. `own`, the
/// path of this program, becomes the shell there, by [`HERE`].
pub(crate) fn on_other_host(vars: &Vars, own: &str, shell: &str, command: String) -> Vec<String> {
    let mut argv = vec!["/usr/bin/env".to_owned()];
    for name in ["PATH", "LD_LIBRARY_PATH"] {
        argv.extend(vars.get(name).map(|value| format!("{name}={value}")));
    }
    argv.extend([own, AGENT, HERE, shell, "-c"].map(str::to_owned));
    argv.push(command);
    argv
}

/// A host as PBS knows it: launchers cut off the domain, `pbs_tmrsh` compares whole names.
pub fn host_in(nodefile: &str, host: &str) -> String {
    let known = hosts(nodefile);
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let mut same = known.iter().filter(|(name, _)| short(name) == short(host));
    match (known.iter().any(|(name, _)| name == host), same.next(), same.next()) {
        (false, Some((name, _)), None) => name.clone(),
        _ => host.to_owned(),
    }
}
