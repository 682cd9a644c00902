//! The rows of the precedence table, one function each, in the order in which they are believed.
//!
//! A row answers `None` when its launcher's variables are absent, and a fault when they are there
//! but make no sense. Rows never look at each other; that is what `checks` is for.

use std::collections::BTreeMap;

use super::read::{Reader, text};
use super::{Launcher, Rank};
use crate::base::fault::Fault;
use crate::base::hostlist;

/// The values of one row of the table.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) launcher: Launcher,
    pub(super) rank: u32,
    pub(super) world_size: Option<u32>,
    pub(super) local_rank: Option<u32>,
    pub(super) local_size: Option<u32>,
    pub(super) node_rank: Option<u32>,
    pub(super) nodes: Option<u32>,
    pub(super) evidence: Vec<(String, String)>,
}

type Vars = BTreeMap<String, String>;
type Detect = fn(&Vars) -> Result<Option<Row>, Fault>;

/// Rows 0 to 10. Rows 2 to 7 stand before Slurm's because mpirun, PALS, Hydra and Flux inside a
/// Slurm job leave the variables of their own daemon behind (NVIDIA/legate#732, hoomd-blue#1647).
pub(super) const TABLE: &[Detect] = &[
    given,
    torchrun,
    open_mpi,
    jsrun,
    flux,
    mvapich,
    pals,
    hydra,
    slurm_step,
    pmix,
    torch_variables,
];

/// Row 11: a process that no launcher started is alone.
pub(super) fn nobody() -> Row {
    Row {
        launcher: Launcher::Nobody,
        rank: 0,
        world_size: Some(1),
        local_rank: Some(0),
        local_size: Some(1),
        node_rank: Some(0),
        nodes: Some(1),
        evidence: Vec::new(),
    }
}

/// Row 0: explicit values. Rank and world size belong together, and so do the other two pairs.
fn given(vars: &Vars) -> Result<Option<Row>, Fault> {
    const PAIRS: [(&str, &str); 3] = [
        ("HPCSWEEP_RANK", "HPCSWEEP_WORLD_SIZE"),
        ("HPCSWEEP_LOCAL_RANK", "HPCSWEEP_LOCAL_WORLD_SIZE"),
        ("HPCSWEEP_NODE_RANK", "HPCSWEEP_NNODES"),
    ];
    let names = || PAIRS.iter().flat_map(|(a, b)| [*a, *b]);
    let Some(any) = names().find(|name| text(vars, name).is_some()) else { return Ok(None) };
    let mut read = Reader::new(vars);
    let mut pair = |(rank, size): (&str, &str)| -> Result<Option<(u32, u32)>, Fault> {
        match (text(vars, rank), text(vars, size)) {
            (None, None) => Ok(None),
            (None, Some(_)) => read.required(rank, size).map(|_| None),
            (Some(_), _) => {
                let size = read.required(size, rank)?;
                Ok(read.number(rank)?.map(|rank| (rank, size)))
            }
        }
    };
    let Some((rank, world_size)) = pair(PAIRS[0])? else {
        return Err(Fault::request(format!("`{any}` is set, but `HPCSWEEP_RANK` is not")).hint(
            "set `HPCSWEEP_RANK` and `HPCSWEEP_WORLD_SIZE` too, or none of the HPCSWEEP_* ranks",
        ));
    };
    let (local, node) = (pair(PAIRS[1])?, pair(PAIRS[2])?);
    Ok(Some(Row {
        launcher: Launcher::Given,
        rank,
        world_size: Some(world_size),
        local_rank: local.map(|l| l.0),
        local_size: local.map(|l| l.1),
        node_rank: node.map(|n| n.0),
        nodes: node.map(|n| n.1),
        evidence: read.evidence,
    }))
}

/// Row 1: torchrun first, since it is also started inside Slurm steps (Lightning's order).
fn torchrun(vars: &Vars) -> Result<Option<Row>, Fault> {
    const ID: &str = "TORCHELASTIC_RUN_ID";
    let mut read = Reader::new(vars);
    if read.text(ID).is_none() {
        return Ok(None);
    }
    Ok(Some(Row {
        launcher: Launcher::Torchrun,
        rank: read.required("RANK", ID)?,
        world_size: Some(read.required("WORLD_SIZE", ID)?),
        local_rank: read.number("LOCAL_RANK")?,
        local_size: read.number("LOCAL_WORLD_SIZE")?,
        node_rank: read.number("GROUP_RANK")?,
        nodes: read.number("GROUP_WORLD_SIZE")?,
        evidence: read.evidence,
    }))
}

/// Row 2. `OMPI_COMM_WORLD_NODE_RANK` is not a node index but "the relative rank of this process on
/// this node looking across all jobs" (docs.open-mpi.org): never used.
fn open_mpi(vars: &Vars) -> Result<Option<Row>, Fault> {
    by_names(
        vars,
        Launcher::OpenMpi,
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        [Some("OMPI_COMM_WORLD_LOCAL_RANK"), Some("OMPI_COMM_WORLD_LOCAL_SIZE"), None],
    )
}

/// Row 3. The node's index would need the rank file, whose first line is the launch node.
fn jsrun(vars: &Vars) -> Result<Option<Row>, Fault> {
    by_names(
        vars,
        Launcher::Jsrun,
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        [Some("JSM_NAMESPACE_LOCAL_RANK"), None, None],
    )
}

/// Row 4. The task map may be cyclic, so a node's rank is never computed (`flux-environment(7)`).
fn flux(vars: &Vars) -> Result<Option<Row>, Fault> {
    by_names(
        vars,
        Launcher::Flux,
        "FLUX_TASK_RANK",
        "FLUX_JOB_SIZE",
        [Some("FLUX_TASK_LOCAL_ID"), None, Some("FLUX_JOB_NNODES")],
    )
}

/// Row 5: every variable is MVAPICH2's own. None gives the number of nodes.
fn mvapich(vars: &Vars) -> Result<Option<Row>, Fault> {
    by_names(
        vars,
        Launcher::Mvapich,
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        [Some("MV2_COMM_WORLD_LOCAL_RANK"), Some("MV2_COMM_WORLD_LOCAL_SIZE"), None],
    )
}

/// Row 6. flux-coral2 sets all of these but `PALS_LOCAL_RANKID`; the world size is PMI's.
fn pals(vars: &Vars) -> Result<Option<Row>, Fault> {
    let mut read = Reader::new(vars);
    let rank = match read.text("PALS_APID") {
        Some(_) => read.first(&["PALS_RANKID", "PMI_RANK"])?,
        None => read.number("PALS_RANKID")?,
    };
    let Some(rank) = rank else { return Ok(None) };
    Ok(Some(Row {
        launcher: Launcher::Pals,
        rank,
        world_size: read.first(&["PMI_SIZE", "PALS_SIZE"])?,
        local_rank: read.first(&["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"])?,
        local_size: read.first(&["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"])?,
        node_rank: read.number("PALS_NODEID")?,
        nodes: None,
        evidence: read.evidence,
    }))
}

/// Row 7 (`src/pm/hydra/proxy/pmip_cb.c`); with `-pmi-port` Hydra gives no size, only `PMI_ID`.
fn hydra(vars: &Vars) -> Result<Option<Row>, Fault> {
    let mut read = Reader::new(vars);
    let by_port = || text(vars, "PMI_PORT").is_some() && text(vars, "PMI_ID").is_some();
    let (rank, world_size) = match (text(vars, "PMI_RANK"), text(vars, "PMI_SIZE")) {
        (Some(_), Some(_)) => (read.number("PMI_RANK")?, read.number("PMI_SIZE")?),
        _ if by_port() => (read.number("PMI_ID")?, None),
        _ => return Ok(None),
    };
    let Some(rank) = rank else { return Ok(None) };
    Ok(Some(Row {
        launcher: Launcher::Hydra,
        rank,
        world_size,
        local_rank: read.number("MPI_LOCALRANKID")?,
        local_size: read.number("MPI_LOCALNRANKS")?,
        node_rank: None,
        nodes: None,
        evidence: read.evidence,
    }))
}

/// Row 8. Everything comes from the step's own variables: `srun --preserve-env` leaves the job's in
/// `SLURM_NTASKS`, and a step may use a part of the job (`src/common/env.c`, `env_array_for_step`).
fn slurm_step(vars: &Vars) -> Result<Option<Row>, Fault> {
    const NEEDED: [&str; 3] = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"];
    if NEEDED.iter().any(|name| text(vars, name).is_none()) || is_reserved_step(vars)? {
        return Ok(None);
    }
    let mut read = Reader::new(vars);
    let Some(rank) = read.number("SLURM_PROCID")? else { return Ok(None) };
    let world_size = read.number("SLURM_STEP_NUM_TASKS")?;
    let node_rank = read.number("SLURM_NODEID")?;
    let counts =
        read.text("SLURM_STEP_TASKS_PER_NODE").map(hostlist::tasks_per_node).transpose()?;
    let nodes = read.number("SLURM_STEP_NUM_NODES")?.or(counts.as_ref().map(|c| c.len() as u32));
    // Counts that do not add up (a relic of another step) say nothing about this node.
    let counts = counts.filter(|counts| {
        let sum: u64 = counts.iter().map(|n| u64::from(*n)).sum();
        world_size.is_some_and(|size| u64::from(size) == sum)
    });
    let local_size =
        counts.zip(node_rank).and_then(|(counts, node)| counts.get(node as usize).copied());
    read.text("SLURM_STEP_NODELIST");
    Ok(Some(Row {
        launcher: Launcher::SlurmStep,
        rank,
        world_size,
        local_rank: read.number("SLURM_LOCALID")?,
        local_size,
        node_rank,
        nodes,
        evidence: read.evidence,
    }))
}

/// Whether `SLURM_STEP_ID` is one of the ids that are not steps of srun (`slurm/slurm.h`): pending
/// 0xfffffffd, extern 0xfffffffc, batch 0xfffffffb, interactive 0xfffffffa.
///
/// srun prints them unsigned; slurmstepd, since 2026, signed (commit 87077e7c7d).
fn is_reserved_step(vars: &Vars) -> Result<bool, Fault> {
    let Some(text) = text(vars, "SLURM_STEP_ID") else { return Ok(false) };
    let id: Option<i64> = text.parse().ok();
    let id = id.and_then(|id| u32::try_from(id).or(i32::try_from(id).map(i32::cast_unsigned)).ok());
    let id = id.ok_or_else(|| {
        Fault::request(format!("`SLURM_STEP_ID` is `{text}`, which is not the number of a step"))
            .hint("unset the SLURM_* variables if another job left them behind")
    })?;
    Ok((0xffff_fffa..=0xffff_fffd).contains(&id))
}

/// Row 9: the size is not in the environment; `MPI_Init` or PMIx must say it.
fn pmix(vars: &Vars) -> Result<Option<Row>, Fault> {
    let mut read = Reader::new(vars);
    let Some(rank) = read.number("PMIX_RANK")? else { return Ok(None) };
    Ok(Some(Row {
        launcher: Launcher::Pmix,
        rank,
        world_size: None,
        local_rank: None,
        local_size: None,
        node_rank: None,
        nodes: None,
        evidence: read.evidence,
    }))
}

/// Row 10: the variables that torch reads. Any launcher may have set them.
fn torch_variables(vars: &Vars) -> Result<Option<Row>, Fault> {
    by_names(
        vars,
        Launcher::TorchVariables,
        "RANK",
        "WORLD_SIZE",
        [Some("LOCAL_RANK"), Some("LOCAL_WORLD_SIZE"), None],
    )
}

/// A launcher that simply has a variable for each: local rank, local size, number of nodes.
fn by_names(
    vars: &Vars,
    launcher: Launcher,
    rank: &str,
    size: &str,
    [local_rank, local_size, nodes]: [Option<&str>; 3],
) -> Result<Option<Row>, Fault> {
    if text(vars, rank).is_none() || text(vars, size).is_none() {
        return Ok(None);
    }
    let mut read = Reader::new(vars);
    let mut number = |name: Option<&str>| name.map_or(Ok(None), |name| read.number(name));
    let Some(rank) = number(Some(rank))? else { return Ok(None) };
    let world_size = number(Some(size))?;
    let (local_rank, local_size) = (number(local_rank)?, number(local_size)?);
    let nodes = number(nodes)?;
    Ok(Some(Row {
        launcher,
        rank,
        world_size,
        local_rank,
        local_size,
        node_rank: None,
        nodes,
        evidence: read.evidence,
    }))
}

impl Row {
    /// Refuses a rank that is not below its size.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let below = [
            ("rank", Some(self.rank), "world size", self.world_size),
            ("local rank", self.local_rank, "local world size", self.local_size),
            ("node rank", self.node_rank, "number of nodes", self.nodes),
        ];
        for (what, rank, of, size) in below {
            if let (Some(rank), Some(size)) = (rank, size)
                && rank >= size
            {
                return Err(self.senseless(format!("{what} {rank} with a {of} of {size}")));
            }
        }
        match (self.local_size, self.world_size) {
            (Some(local), Some(world)) if local > world => {
                Err(self.senseless(format!("{local} ranks on this node of {world} in all")))
            }
            _ => Ok(()),
        }
    }

    fn senseless(&self, what: String) -> Fault {
        let evidence: Vec<String> = self.evidence.iter().map(|(n, v)| format!("{n}={v}")).collect();
        Fault::request(format!("{} gives {what}", self.launcher)).at(evidence.join("\n")).hint(
            "unset these variables if another job left them behind; ranks count from 0 and are \
             below their size",
        )
    }

    /// Whether the other row has the same values, where both have values.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let same = |a: Option<u32>, b: Option<u32>| a.zip(b).is_none_or(|(a, b)| a == b);
        self.rank == other.rank && same(self.world_size, other.world_size)
    }

    /// Takes what only the agreeing row knows, such as the node's size under `srun --mpi=pmi2`.
    ///
    /// False if anything else contradicts or a world size is unknown: a Hydra proxy that Slurm started may
    /// share its number with one of its ranks by accident. Only PMIx, which never knows more than the rank,
    /// takes the rest on trust.
    pub(super) fn fill_from(&mut self, other: &Self) {
        let sure = self.world_size.is_some() && other.world_size.is_some();
        if !sure && self.launcher != Launcher::Pmix {
            return;
        }
        let mut mine =
            [&mut self.local_rank, &mut self.local_size, &mut self.node_rank, &mut self.nodes];
        let theirs = [other.local_rank, other.local_size, other.node_rank, other.nodes];
        if mine.iter().zip(theirs).any(|(a, b)| a.zip(b).is_some_and(|(a, b)| a != b)) {
            return;
        }
        let mut used = false;
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            used |= mine.is_none() && theirs.is_some();
            **mine = mine.or(theirs);
        }
        if self.world_size.is_none() && other.world_size.is_some() {
            self.world_size = other.world_size;
            used = true;
        }
        if used {
            let new = other.evidence.iter().filter(|e| !self.evidence.contains(e));
            let new: Vec<_> = new.cloned().collect();
            self.evidence.extend(new);
        }
    }

    pub(super) fn into_rank(self) -> Rank {
        Rank {
            launcher: self.launcher,
            rank: self.rank,
            world_size: self.world_size,
            local_rank: self.local_rank,
            local_size: self.local_size,
            node_rank: self.node_rank,
            nodes: self.nodes,
            evidence: self.evidence,
            others: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
