//! Which variables belong to the job or launcher around us, and must not reach another one.
//!
//! hpcsweep strips them when it submits a job, or starts trials of its own, from inside a job: sbatch
//! and srun read `SLURM_*` and `SBATCH_*` as options, an MPI program with its parent's `PMIX_*`
//! hangs, and torch believes any `RANK`. The list began as submitit's (`clean_env`).

use std::collections::BTreeMap;

/// Names, and beginnings of names where they end in `*`, of the variables to strip.
///
/// People configure MPI libraries through variables of the same families (`OMPI_MCA_pml`,
/// `MV2_USE_CUDA`, `HYDRA_LAUNCHER`; `HYDRA_FULL_ERROR` is not even about MPI), so of those
/// families only what a launcher sets itself is listed.
pub const SCRUB: &[&str] = &[
    // Slurm, and what wraps it.
    "SLURM_*",
    "SLURMD_*",
    "SRUN_*",
    "SBATCH_*",
    "SALLOC_*",
    "SUBMITIT_*",
    // PBS, LSF with jsrun, Flux, Cray PALS.
    "PBS_*",
    "LSB_*",
    "JSM_*",
    "FLUX_*",
    "PALS_*",
    // PMI, PMIx, PRRTE, Open MPI (seen under mpirun 4.1.4).
    "PMI_*",
    "PMIX_*",
    "PRTE_*",
    "ORTE_*",
    "OMPI_COMM_WORLD_*",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_MCA_ess*",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_*",
    "OMPI_MCA_pmix",
    "OMPI_MCA_rmaps_base_oversubscribe",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    // Hydra and MVAPICH2.
    "HYDI_*",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "MPIRUN_*",
    "MV2_COMM_WORLD_*",
    // torch.
    "TORCHELASTIC_*",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    // Our own.
    "HPCSWEEP_*",
];

/// What [`SCRUB`] would catch but a person has set to say which cluster, and who pays.
pub const KEPT: &[&str] = &[
    "HPCSWEEP_GPU_SAMPLE_S",
    "HPCSWEEP_NVML_FILE",
    "HPCSWEEP_RENDEZVOUS_S",
    "HPCSWEEP_SITE",
    "HPCSWEEP_SMOKE",
    "PBS_CONF_FILE",
    "PBS_DEFAULT",
    "PBS_SERVER",
    "SBATCH_ACCOUNT",
    "SBATCH_CLUSTERS",
    "SLURM_CLUSTERS",
    "SLURM_CONF",
];

/// Returns whether a variable belongs to the surrounding job or launcher.
pub fn is_launcher_variable(name: &str) -> bool {
    SCRUB.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *pattern,
    }) && !KEPT.contains(&name)
}

/// The variables by which the Python module tells a launcher that a program has called from the one that started its
/// worker: rank, number of ranks, and what tells one launch from another (`LAUNCHERS` in `ranks.py`).
pub(super) const TOLD: [&str; 22] = [
    "RANK",
    "WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_NAMESPACE",
    "JSM_NAMESPACE_RANK",
    "JSM_NAMESPACE_SIZE",
    "FLUX_TASK_RANK",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_ID",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "MPIRUN_ID",
    "PALS_RANKID",
    "PALS_APID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_ID",
];

/// Those of a program that its worker gives it, as JSON.
pub(crate) fn told(vars: &BTreeMap<String, String>) -> String {
    let told_variables =
        TOLD.iter().filter_map(|name| Some((*name, vars.get(*name)?.as_str().into())));
    serde_json::Value::Object(
        told_variables.map(|(name, value)| (name.to_owned(), value)).collect(),
    )
    .to_string()
}
