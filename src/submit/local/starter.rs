//! How `--local` starts the ranks of a trial: one worker each, or, where they talk over MPI, by the
//! MPI's own launcher, set up by variables, which the launchers of other libraries ignore.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::fault::Fault;
use crate::base::host::gpus::FILE_VARIABLE;
use crate::base::host::{Vars, access, clock, disk, process};
use crate::cluster::devices::CHOSEN;
use crate::cluster::rank::is_launcher_variable;
use crate::plan::Resources;
use crate::submit::grow::Request;
use crate::sweep::tree::Tree;

/// Variables for Open MPI 4 and 5: no binding to one core, more ranks than cores, root allowed (in a
/// container), twenty seconds for a checkpoint before ranks are killed. A failed rank is for the workers,
/// who end the others and write it down: mpirun would sleep these twenty seconds, twice, and then kill.
const SETTINGS: [(&str, &str); 11] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_odls_base_sigkill_timeout", "20"),
    ("OMPI_MCA_orte_abort_on_non_zero_status", "0"),
    ("OMPI_MCA_orte_allowed_exit_without_sync", "1"),
    ("PRTE_MCA_state_base_error_non_zero_exit", "0"),
    ("PRTE_MCA_prte_allowed_exit_without_sync", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
];

/// Starts workers of one sweep.
pub(crate) struct Starter<'a> {
    tree: &'a Tree,
    token: &'a str,
    exe: String,
    env: Vars,
}

impl<'a> Starter<'a> {
    /// A starter of workers in this environment, without an outer job's ranks.
    ///
    /// # Errors
    /// When our own path is not known.
    pub(crate) fn new(tree: &'a Tree, token: &'a str, environment: &Vars) -> Result<Self> {
        let exe = disk::own_executable()?.to_string_lossy().into_owned();
        Ok(Self { tree, token, exe, env: worker_environment(environment) })
    }

    /// Starts the workers of a trial, one a rank, or the mpirun that starts them; `began`: when the first ones of
    /// the trial were started, Unix seconds.
    pub(crate) fn start(
        &self,
        trial: u64,
        request: &Request,
        by_mpirun: bool,
        visible: Option<&str>,
        began: f64,
    ) -> Result<Vec<Child>> {
        let ranks = request.resources.ranks;
        let dir = self.tree.dir();
        let mut argv =
            [&self.exe, "worker", "--sweep", &dir.to_string_lossy(), "--trial", &trial.to_string()]
                .map(str::to_owned)
                .to_vec();
        argv.extend(access::shared_option());
        if !request.is_in_table {
            let requests = std::slice::from_ref(&*request.resources);
            argv.extend(["--resources".to_owned(), Resources::to_words(requests)?]);
        }
        let mut env = self.env.clone();
        if let Some(visible) = visible {
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), visible.to_owned());
            env.insert(CHOSEN.to_owned(), visible.to_owned());
        }
        if ranks > 1 {
            let meet = format!("{}-{}", self.token, clock::short_token());
            env.insert("HPCSWEEP_MEET".to_owned(), meet);
        }
        if by_mpirun {
            env.insert("HPCSWEEP_BEGAN".to_owned(), began.to_string());
            argv.splice(0..0, mpirun(&env, ranks)?);
            set_up_mpirun(&mut env);
            // At a SIGTERM mpirun takes the ranks' MPI from under them; SIGUSR2 it hands on, and they save.
            return Ok(vec![start(&argv, &env, self.tree, Signal::SIGUSR2)?]);
        }
        let mut workers: Vec<Child> = Vec::new();
        for rank in 0..ranks {
            if ranks > 1 {
                for (name, value) in [
                    ("HPCSWEEP_RANK", rank),
                    ("HPCSWEEP_WORLD_SIZE", ranks),
                    ("HPCSWEEP_LOCAL_RANK", rank),
                    ("HPCSWEEP_LOCAL_WORLD_SIZE", ranks),
                    ("HPCSWEEP_NODE_RANK", 0),
                    ("HPCSWEEP_NNODES", 1),
                ] {
                    env.insert(name.to_owned(), value.to_string());
                }
            }
            match start(&argv, &env, self.tree, Signal::SIGTERM) {
                Ok(child) => workers.push(child),
                Err(fault) => {
                    for worker in &workers {
                        process::kill_group(worker, Signal::SIGTERM);
                    }
                    return Err(fault.into());
                }
            }
        }
        Ok(workers)
    }
}

fn start(argv: &[String], env: &Vars, tree: &Tree, orphaned: Signal) -> Result<Child, Fault> {
    process::start(argv, env, tree.dir(), process::Sink::Inherit, orphaned, None, &[]).map_err(
        |error| match tree.dir().is_dir() {
            true => process::start_fault(&argv[0], &error),
            false => Fault::machine(format!(
                "the sweep's folder `{}` is gone",
                tree.dir().display()
            ))
            .hint("if it was moved, submit again where it is now: what has ended there counts"),
        },
    )
}

/// The words in front of a worker's own.
fn mpirun(env: &Vars, ranks: u32) -> Result<Vec<String>, Fault> {
    let path = env.get("PATH").map_or("", String::as_str);
    let found = ["mpirun", "mpiexec"].iter().find_map(|name| disk::program_on(path, name));
    let Some(program) = found else {
        let sentence = "ranks that talk over MPI are started by mpirun, which is not on the PATH";
        return Err(Fault::machine(sentence)
            .hint("load the MPI with which hpcsweep-worker was built (`module load openmpi`)"));
    };
    Ok(vec![program.to_string_lossy().into_owned(), "-n".to_owned(), ranks.to_string()])
}

/// Puts the settings into the environment; what a person has set stays.
fn set_up_mpirun(env: &mut Vars) {
    // Probing for networks that one machine does not need takes 0.2 s of every start.
    let plain = ["OMPI_MCA_pml", "OMPI_MCA_btl"].iter().all(|name| !env.contains_key(*name));
    for (name, value) in SETTINGS {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    if plain {
        env.insert("OMPI_MCA_pml".to_owned(), "ob1".to_owned());
        env.entry("OMPI_MCA_osc".to_owned()).or_insert_with(|| "^ucx".to_owned());
    }
}

/// An mpirun that does not notice that all its ranks have gone: Open MPI 4.1 waits for ever for a rank that
/// was killed, if failed ranks are left to the workers.
#[derive(Default)]
pub(crate) struct Deserted {
    had_ranks: bool,
    since: Option<Instant>,
}

impl Deserted {
    /// Looks at a running mpirun; kills it when its last rank has been gone for some seconds.
    pub(crate) fn look(&mut self, mpirun: &Child) {
        match process::has_children(mpirun.id()) {
            Some(true) => *self = Self { had_ranks: true, since: None },
            Some(false) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                let patience = if self.had_ranks { PATIENCE } else { START };
                if since.elapsed() > patience {
                    process::kill_group(mpirun, Signal::SIGKILL);
                }
            }
            _ => {}
        }
    }
}

/// How long an mpirun may outlive its ranks; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long it may take to start them; it takes tenths of a second.
const START: Duration = Duration::from_secs(90);

/// The environment of a worker: ours without an outer job's ranks, but with what an allocation grants.
fn worker_environment(vars: &Vars) -> Vars {
    const KEPT: [&str; 4] =
        ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_END_TIME", "SLURMD_NODENAME"];
    vars.iter()
        .filter(|(name, _)| !is_launcher_variable(name) || KEPT.contains(&name.as_str()))
        .map(|(k, v)| match k == FILE_VARIABLE && !v.is_empty() {
            // Workers begin in the sweep's folder.
            true => (k.clone(), disk::absolute(Path::new(v)).to_string_lossy().into_owned()),
            false => (k.clone(), v.clone()),
        })
        .collect()
}
