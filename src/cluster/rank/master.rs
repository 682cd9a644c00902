//! What torch wants to know besides the rank: its variables, the host and the port of rank 0.

use std::collections::BTreeMap;

use super::Rank;
use super::read::text;
use crate::base::fault::Fault;
use crate::base::hostlist;

/// Returns the variables that torchrun gives its workers (`local_elastic_agent.py`), with one role.
///
/// Unknown values are left out.
pub fn torch_env(rank: &Rank, master_addr: &str, master_port: u16) -> Vec<(&'static str, String)> {
    let numbers = [
        ("RANK", Some(rank.rank)),
        ("WORLD_SIZE", rank.world_size),
        ("LOCAL_RANK", rank.local_rank),
        ("LOCAL_WORLD_SIZE", rank.local_size),
        ("GROUP_RANK", rank.node_rank),
        ("GROUP_WORLD_SIZE", rank.nodes),
        ("ROLE_RANK", Some(rank.rank)),
        ("ROLE_WORLD_SIZE", rank.world_size),
    ];
    let mut vars: Vec<_> =
        numbers.into_iter().filter_map(|(name, n)| Some((name, n?.to_string()))).collect();
    vars.push(("MASTER_ADDR", master_addr.to_owned()));
    vars.push(("MASTER_PORT", master_port.to_string()));
    vars
}

/// Returns the host that runs rank 0 of this Slurm step, if the node list shows it.
///
/// That is the first host of `SLURM_STEP_NODELIST`, never of the job's list (a step may use a part)
/// nor `SLURM_LAUNCH_NODE_IPADDR` (where srun ran). With an arbitrary distribution it is `None`: the
/// list is sorted, while ranks follow the host file (Lightning #17228). Rank 0 must publish itself.
///
/// # Errors
/// A fault when the list is not a host list.
pub fn head_host(vars: &BTreeMap<String, String>) -> Result<Option<String>, Fault> {
    match text(vars, "SLURM_STEP_NODELIST") {
        Some(list) if !is_arbitrary(vars) => Ok(hostlist::expand(list)?.into_iter().next()),
        _ => Ok(None),
    }
}

/// Whether ranks follow a host file (srun(1), `SLURM_HOSTFILE` and `--distribution=arbitrary`).
pub(super) fn is_arbitrary(vars: &BTreeMap<String, String>) -> bool {
    let distribution = text(vars, "SLURM_DISTRIBUTION").unwrap_or_default();
    distribution.to_ascii_lowercase().starts_with("arb") || text(vars, "SLURM_HOSTFILE").is_some()
}

/// Linux's own range, for when the file is unreadable (`Documentation/networking/ip-sysctl.rst`).
const USUAL_EPHEMERAL: (u16, u16) = (32768, 60999);

/// Below this, ports tend to belong to known services.
const LOWEST: u16 = 10000;

/// How many ports are tried before giving up.
const TRIES: u64 = 512;

/// Returns a port that `try_bind` could bind and that no outgoing connection can take meanwhile.
///
/// Ports in the ephemeral range fail now and then on busy nodes (NVIDIA/enroot#243). `range_text` is
/// the content of `/proc/sys/net/ipv4/ip_local_port_range`. Different seeds begin at different
/// ports; a caller makes the seed from job, array task, step and restart count.
pub fn free_port_outside_ephemeral(
    range_text: &str,
    try_bind: &mut dyn FnMut(u16) -> bool,
    seed: u64,
) -> Option<u16> {
    let (low, high) = read_range(range_text).unwrap_or(USUAL_EPHEMERAL);
    let outside = |first: u16| -> Vec<u16> {
        (first..=u16::MAX).filter(|port| !(low..=high).contains(port)).collect()
    };
    let mut ports = outside(LOWEST);
    if ports.is_empty() {
        ports = outside(1024);
    }
    let n = ports.len() as u64;
    let start = mix(seed).checked_rem(n)?;
    (0..n.min(TRIES)).map(|i| ports[((start + i) % n) as usize]).find(|port| try_bind(*port))
}

fn read_range(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => Some((low, high)),
        _ => None,
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): near seeds begin far apart.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
