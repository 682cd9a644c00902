//! stub
use std::collections::BTreeMap;
use crate::fault::Fault;
#[derive(serde::Serialize)]
pub struct Rank { pub rank: u32, pub world_size: Option<u32>, pub local_rank: Option<u32> }
pub fn derive(vars: &BTreeMap<String, String>, _h: &str) -> Result<Rank, Fault> {
    let g = |n: &str| vars.get(n).and_then(|v| v.parse().ok());
    Ok(Rank { rank: g("HPCSWEEP_RANK").unwrap_or(0), world_size: g("HPCSWEEP_WORLD_SIZE").or(Some(1)), local_rank: None })
}
pub fn torch_env(r: &Rank, a: &str, p: u16) -> Vec<(&'static str, String)> { vec![("RANK", r.rank.to_string()), ("MASTER_ADDR", a.into()), ("MASTER_PORT", p.to_string())] }
pub fn is_launcher_variable(n: &str) -> bool { (n.starts_with("SLURM_") && n != "SLURM_CONF") || (n.starts_with("HPCSWEEP_") && n != "HPCSWEEP_SITE") }
pub fn free_port_outside_ephemeral(_: &str, f: &mut dyn FnMut(u16) -> bool, _: u64) -> Option<u16> { (20000..30000).find(|p| f(*p)) }

pub fn explain(_: &Rank) -> String { String::new() }
