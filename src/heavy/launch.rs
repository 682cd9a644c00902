//! The start of MPI: whether it comes up, and whether it sees the ranks that the launcher has started.

use std::path::Path;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::disk;
use hpcsweep::run::sync::peers::Peers;

use crate::{end, mpi::World};

/// Starts MPI as this rank. Most libraries do not return from MPI_Init if they do not understand the
/// launcher: they print a page and end the process (Open MPI 4 under `srun --mpi=none`). So the error is
/// written before the call, and removed afterwards.
///
/// # Errors
/// When MPI cannot be called from here, or sees another number of ranks.
pub(crate) fn start(rank: u32, world: u32, host: &str, reason: &Path) -> Result<World> {
    let fault = Fault::machine(format!("MPI did not start on rank {rank} ({host})")).hint(
        "try `srun --mpi=pmix` (see `srun --mpi=list`) or mpirun; MPI's own words are in the log",
    );
    disk::append(reason, end::line(&fault.to_string()).as_bytes())?;
    let mpi = World::init()?;
    disk::remove_if_there(reason)?;
    if mpi.size() != world {
        settle(rank, world, host, &mpi)?;
    }
    Ok(mpi)
}

/// Compares MPI's rank and size with the launcher's, before anything is sent.
///
/// # Errors
/// When MPI sees another number of ranks: usually N processes of which each is alone, because MPI does
/// not understand the launcher; or when it gives this one another number.
fn settle(rank: u32, world: u32, host: &str, peers: &dyn Peers) -> Result<(), Fault> {
    let sees = peers.size();
    if sees == 1 && world > 1 {
        let sentence = format!(
            "the launcher started {world} ranks, but MPI sees one: rank {rank} on {host} is alone"
        );
        return Err(Fault::machine(sentence)
            .hint("try `srun --mpi=pmix` (see `srun --mpi=list`) or mpirun"));
    }
    let hint = "variables of another launcher are left over: run `hpcsweep worker --explain`";
    if sees != world {
        let sentence = format!(
            "the launcher started {world} ranks, but MPI sees {sees} (rank {rank} on {host})"
        );
        return Err(Fault::machine(sentence).hint(hint));
    }
    if peers.rank() != rank {
        let sentence =
            format!("the launcher calls this rank {rank}, but MPI {} (on {host})", peers.rank());
        return Err(Fault::machine(sentence).hint(hint));
    }
    Ok(())
}
