//! Who am I among the ranks: the one table from the launchers' variables to rank and world size.
//!
//! Pure: takes a snapshot of the environment and never touches the machine. The rows and their
//! order are the precedence of the launchers: the first row that
//! matches is believed, every other one that matches is recorded and compared.

mod checks;
mod device;
mod explain;
mod master;
mod read;
mod rows;
mod scrub;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::base::fault::Fault;

pub use device::{Device, device_for, visible_devices};
pub use explain::explain;
pub use master::{free_port_outside_ephemeral, head_host, torch_env};
pub(crate) use scrub::told;
pub use scrub::{KEPT, SCRUB, is_launcher_variable};

/// Who started this process, in the order in which they are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Launcher {
    /// `HPCSWEEP_RANK`, `HPCSWEEP_WORLD_SIZE` and their companions: explicit values.
    Given,
    /// torchrun's agent (`local_elastic_agent.py`). It may itself run inside a Slurm step.
    Torchrun,
    /// Open MPI's mpirun, PRRTE, and Spectrum MPI under jsrun.
    OpenMpi,
    /// jsrun of LSF without Spectrum MPI's variables.
    Jsrun,
    /// A Flux task (`flux-environment(7)`).
    Flux,
    /// The launchers of MVAPICH2, by their `MV2_` variables.
    Mvapich,
    /// Cray PALS: `aprun`, `mpiexec` on PBS, and Slurm's `--mpi=cray_shasta`.
    Pals,
    /// PMI-1: Hydra (MPICH, Intel MPI), and Slurm's `--mpi=pmi2`.
    Hydra,
    /// A task of a Slurm step (srun).
    SlurmStep,
    /// A PMIx server of which only the rank is known.
    Pmix,
    /// `RANK` and `WORLD_SIZE` alone, as scripts for PyTorch set them.
    TorchVariables,
    /// None: a plain process, perhaps inside an allocation.
    Nobody,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "the environment (HPCSWEEP_*)",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI or PRRTE (mpirun)",
            Self::Jsrun => "jsrun",
            Self::Flux => "Flux",
            Self::Mvapich => "MVAPICH2",
            Self::Pals => "Cray PALS",
            Self::Hydra => "PMI (MPICH or Intel MPI, or srun --mpi=pmi2)",
            Self::SlurmStep => "a Slurm step (srun)",
            Self::Pmix => "PMIx",
            Self::TorchVariables => "the environment (RANK, WORLD_SIZE)",
            Self::Nobody => "no launcher",
        })
    }
}

/// The environment's values for this process. `None` is a value that only MPI knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// Whose variables are believed.
    pub(crate) launcher: Launcher,
    /// This process among all, from 0.
    pub(crate) rank: u32,
    /// How many processes there are.
    pub(crate) world_size: Option<u32>,
    /// This process among those of its node, from 0.
    pub(crate) local_rank: Option<u32>,
    /// How many processes its node has.
    pub(crate) local_size: Option<u32>,
    /// Its node among all nodes, from 0.
    pub(crate) node_rank: Option<u32>,
    /// How many nodes there are.
    pub(crate) nodes: Option<u32>,
    /// The variables that were used, and their values.
    pub(crate) evidence: Vec<(String, String)>,
    /// The other launchers whose variables are present.
    pub(crate) others: Vec<OtherRow>,
    /// What looks wrong, although a rank could be derived.
    pub(crate) warnings: Vec<Warning>,
}

/// A launcher whose variables are present but not believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OtherRow {
    /// The launcher that sets such variables.
    pub(crate) launcher: Launcher,
    /// The rank they give.
    pub(crate) rank: u32,
    /// The world size they give.
    pub(crate) world_size: Option<u32>,
    /// Whether they say the same as the believed ones, where both say something.
    pub(crate) agrees: bool,
}

/// Something a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Warning {
    /// What looks wrong: one lower-case sentence without a period.
    pub(crate) sentence: String,
    /// What to do about it.
    pub(crate) hint: String,
}

impl Warning {
    fn new(sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: hint.into() }
    }
}

/// Derives rank and sizes from a snapshot of the environment.
///
/// `hostname` is what `gethostname(2)` says, with or without its domain.
///
/// # Errors
/// A fault when a variable of the believed launcher is missing or not a number, when a rank is not
/// below its size, or when `RANK` and `WORLD_SIZE` contradict a Slurm step of several nodes.
pub fn derive(vars: &BTreeMap<String, String>, hostname: &str) -> Result<Rank, Fault> {
    from_rows(vars, hostname, None)
}

/// Does the same in a PBS job whose node file could be read.
///
/// `nodefile` is the text of the file that `PBS_NODEFILE` names: PBS gives a process neither rank nor size,
/// and only that file shows how many ranks an allocation was made for (qsub(1B)).
///
/// # Errors
/// The same faults.
pub fn derive_in_pbs(
    vars: &BTreeMap<String, String>,
    hostname: &str,
    nodefile: &str,
) -> Result<Rank, Fault> {
    from_rows(vars, hostname, Some(nodefile))
}

fn from_rows(
    vars: &BTreeMap<String, String>,
    hostname: &str,
    pbs_nodefile: Option<&str>,
) -> Result<Rank, Fault> {
    let mut found_rows: Vec<rows::Row> = Vec::new();
    let mut warnings = Vec::new();
    for detect in rows::TABLE {
        match detect(vars) {
            Ok(Some(row)) => found_rows.push(row),
            Ok(None) => {}
            // Only what is believed must be right; what is merely lying about is mentioned.
            Err(fault) if found_rows.is_empty() => return Err(fault),
            Err(fault) => warnings.push(Warning::new(
                format!("{}; these variables are ignored", fault.sentence),
                "unset them if another job or launcher left them behind",
            )),
        }
    }
    // torchrun's own RANK and WORLD_SIZE are row 1, not a second opinion.
    if found_rows.first().is_some_and(|row| row.launcher == Launcher::Torchrun) {
        found_rows.retain(|row| row.launcher != Launcher::TorchVariables);
    }
    checks::torch_beside_step(vars, &mut found_rows)?;

    let mut rows = found_rows.into_iter();
    let Some(mut row) = rows.next() else {
        let mut rank = rows::nobody().into_rank();
        rank.warnings = warnings;
        checks::forgotten_launcher(vars, pbs_nodefile, &mut rank);
        checks::environment(vars, hostname, &mut rank);
        return Ok(rank);
    };
    if row.launcher == Launcher::OpenMpi {
        checks::local_size_of_prrte(vars, pbs_nodefile, &mut row);
    }
    row.check()?;
    let mut compared_rows = Vec::new();
    for other in rows {
        if let Err(fault) = other.check() {
            warnings.push(Warning::new(
                format!("{}; these variables are ignored", fault.sentence),
                "unset them if another job or launcher left them behind",
            ));
            continue;
        }
        let agrees = row.agrees(&other);
        if agrees {
            row.fill_from(&other);
        }
        compared_rows.push((other, agrees));
    }
    checks::disagreements(&row, &compared_rows, &mut warnings);
    let mut rank = row.into_rank();
    rank.others = compared_rows
        .into_iter()
        .map(|(other, agrees)| OtherRow {
            launcher: other.launcher,
            rank: other.rank,
            world_size: other.world_size,
            agrees,
        })
        .collect();
    rank.warnings = warnings;
    checks::environment(vars, hostname, &mut rank);
    Ok(rank)
}

impl Rank {
    /// The same with the values that its launcher does not provide, from the hosts of all ranks: which of them
    /// this host is, how many there are, and how many ranks it has. Open MPI provides no values about nodes.
    #[must_use]
    pub(crate) fn placed(mut self, hosts: &[(String, u32)], own: &str) -> Self {
        let Some(place) = hosts.iter().position(|(host, _)| host == own) else { return self };
        if self.node_rank.is_none() || self.nodes.is_none() {
            (self.node_rank, self.nodes) = (Some(place as u32), Some(hosts.len() as u32));
        }
        self.local_size.get_or_insert(hosts[place].1);
        self
    }
}
