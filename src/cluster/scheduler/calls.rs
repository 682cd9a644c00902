//! Running a scheduler's commands: in a clean environment, bounded in time, counted.

use std::time::Duration;

use anyhow::Result;

use crate::base::fault::{self, Fault};
use crate::base::host::Vars;
use crate::base::host::process::{self, Output};
use crate::cluster::rank::is_launcher_variable;
use crate::cluster::scheduler::slurm::versions;

/// What the names of variables begin with by which a person gives the scheduler's commands options of their own: a person's
/// `SQUEUE_PARTITION` would hide jobs from us.
const DEFAULTS: &[&str] = &["SQUEUE_", "SCANCEL_", "SACCT_", "SACCTMGR_", "SCONTROL_", "SINFO_"];

/// The variables that name a cluster where Slurm has several, the one for sbatch alone first.
const CLUSTERS: [&str; 2] = ["SBATCH_CLUSTERS", "SLURM_CLUSTERS"];

/// The one door to the scheduler's commands.
pub(crate) struct Calls {
    env: Vars,
    limit: Duration,
    /// Calls made so far.
    pub(crate) made: u32,
}

impl Calls {
    /// Calls from this environment, without what an outer job or launcher has left in it, or a person for their own calls.
    pub(crate) fn new(vars: &Vars, limit: Duration) -> Self {
        let is_default = |name: &str| DEFAULTS.iter().any(|family| name.starts_with(family));
        let mut env = vars.clone();
        env.retain(|name, _| !is_launcher_variable(name) && !is_default(name));
        // Else squeue cuts a long list of indices short (squeue(1), ENVIRONMENT VARIABLES).
        env.insert("SLURM_BITSTR_LEN".to_owned(), "0".to_owned());
        Self { env, limit, made: 0 }
    }

    /// As [`Calls::new`], for jobs of this cluster, or of the one that is asked by default: whatever the environment names.
    pub(crate) fn on_cluster(cluster: Option<&str>, vars: &Vars, limit: Duration) -> Self {
        let mut calls = Self::new(vars, limit);
        CLUSTERS.iter().for_each(|name| drop(calls.env.remove(*name)));
        // A job is on its cluster already.
        let is_there =
            |cluster: &&str| vars.get("SLURM_CLUSTER_NAME").is_some_and(|own| own == cluster);
        if let Some(cluster) = cluster.filter(|cluster| !is_there(cluster)) {
            calls.env.insert(CLUSTERS[1].to_owned(), cluster.to_owned());
        }
        calls
    }

    /// The cluster that the environment of the calls names.
    pub(crate) fn cluster(&self) -> Option<&str> {
        CLUSTERS.iter().find_map(|name| self.env.get(*name)).map(String::as_str)
    }

    /// Makes a call; what came of it is the caller's to judge.
    ///
    /// # Errors
    /// When the program cannot be started at all.
    pub(crate) fn make(&mut self, argv: &[String]) -> Result<Output> {
        self.made += 1;
        process::run(argv, &self.env, self.limit).map_err(|error| {
            Fault::scheduler(fault::sentence(&error))
                .hint(
                    "is this a host from which jobs can be submitted? `--local` runs the plan here",
                )
                .into()
        })
    }

    /// Makes a call that must succeed, and returns what it printed. An option that this version of the
    /// scheduler refuses is left out where the call can do without it.
    ///
    /// # Errors
    /// With the scheduler's own words when it does not succeed.
    pub(crate) fn ask(&mut self, argv: &[String]) -> Result<String> {
        let output = self.make(argv)?;
        if output.code == Some(0) {
            return Ok(output.stdout);
        }
        match versions::without_refused(argv, &output.stderr) {
            // Each time one option less.
            Some(rest) => self.ask(&rest),
            None if is_out_of_reach(&output) => Err(refusal(argv, &output)
                .hint("the scheduler is out of reach now; try the same again when it answers")
                .into()),
            None => Err(refusal(argv, &output).into()),
        }
    }
}

/// What a call that succeeded has printed for people, a line each.
pub(crate) fn said(argv: &[String], output: &Output) -> Vec<String> {
    let lines = output.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let own = format!("{}: ", argv[0]);
    lines
        .map(|line| format!("`{}` says: {}", argv[0], line.strip_prefix(&own).unwrap_or(line)))
        .collect()
}

/// Whether a call has failed because the scheduler's server does not answer.
fn is_out_of_reach(output: &Output) -> bool {
    const SIGNS: &[&str] = &[
        "Unable to contact",
        "Connection refused",
        "cannot connect to server",
        "timed out",
        "Zero Bytes were transmitted",
    ];
    output.code.is_none() || SIGNS.iter().any(|sign| output.stderr.contains(sign))
}

/// The fault of a call that failed, with the scheduler's words: the first line in the sentence, the
/// others below it.
pub(crate) fn refusal(argv: &[String], output: &Output) -> Fault {
    let program = format!("{}: ", argv[0]);
    let tidy = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix(&program).unwrap_or(line);
        let words = line.split_once("error: ").filter(|(head, _)| !head.starts_with("directive"));
        words.map_or(line, |(_, words)| words).to_owned()
    };
    let mut said = output.stderr.lines().map(tidy).filter(|line| !line.is_empty());
    let first = said.next();
    let sentence = match (output.code, first) {
        (None, _) => format!("`{}` gave no answer in time", argv[0]),
        (Some(code), None) => format!("`{}` failed with exit code {code}", argv[0]),
        (Some(_), Some(first)) => format!("`{}` says: {first}", argv[0]),
    };
    let mut place: Vec<String> = said.take(5).collect();
    place.push(format!("ran: {}", argv.join(" ")));
    Fault::scheduler(sentence).at(place.join("\n"))
}
