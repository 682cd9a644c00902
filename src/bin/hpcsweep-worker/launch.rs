//! Whether MPI sees the ranks that the launcher has started.

use hpcsweep::fault::Fault;
use hpcsweep::sync::peers::Peers;

/// Compares what MPI sees with what the launcher said, before anything is sent.
///
/// # Errors
/// When MPI sees another number of ranks: usually N processes of which each is alone, because MPI does
/// not understand the launcher; or when it gives this one another number.
pub(crate) fn settle(rank: u32, world: u32, host: &str, peers: &dyn Peers) -> Result<(), Fault> {
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
