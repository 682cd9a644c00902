//! The text of `hpcsweep worker --explain`; the JSON form is the `Serialize` of [`Rank`].

use std::fmt::Write;

use super::{Launcher, Rank};
use crate::base::words::ticked;

/// Returns what was derived, from which variables, what contradicts it and what to do.
pub fn explain(rank: &Rank) -> String {
    let mut out = String::new();
    let pairs = [
        ("rank", Some(rank.rank), rank.world_size),
        ("local rank", rank.local_rank, rank.local_size),
        ("node", rank.node_rank, rank.nodes),
    ];
    for (what, number, size) in pairs {
        let show = |n: Option<u32>| n.map_or("unknown".to_owned(), |n| n.to_string());
        line(&mut out, &format!("{:<11} {} of {}", what, show(number), show(size)));
    }
    line(&mut out, &format!("{:<11} {}", "started by", rank.launcher));
    let unknown: Vec<&str> = [
        (rank.world_size.is_none(), "world size"),
        (rank.local_rank.is_none(), "local rank"),
        (rank.local_size.is_none(), "local world size"),
        (rank.node_rank.is_none(), "node rank"),
        (rank.nodes.is_none(), "number of nodes"),
    ]
    .into_iter()
    .filter_map(|(is, what)| is.then_some(what))
    .collect();
    if !unknown.is_empty() {
        line(&mut out, &format!("only MPI can tell: {}", unknown.join(", ")));
    }
    if !rank.evidence.is_empty() {
        line(&mut out, "");
        line(&mut out, "derived from");
        for (name, value) in &rank.evidence {
            line(&mut out, &format!("  {name}={value}"));
        }
    }
    if !rank.others.is_empty() {
        line(&mut out, "");
        line(&mut out, "also present");
        for other in &rank.others {
            let size = other.world_size.map_or(String::new(), |size| format!(" of {size}"));
            let verdict = if other.agrees { "agrees" } else { "differs, not used" };
            line(&mut out, &format!("  {}: rank {}{size}: {verdict}", other.launcher, other.rank));
        }
    }
    for warning in &rank.warnings {
        line(&mut out, "");
        line(&mut out, &format!("warning: {}", warning.sentence));
        line(&mut out, &format!("hint: {}", warning.hint));
    }
    if rank.launcher == Launcher::Nobody && rank.warnings.is_empty() && rank.evidence.is_empty() {
        let names = ["HPCSWEEP_RANK", "HPCSWEEP_WORLD_SIZE"];
        line(&mut out, "");
        line(&mut out, "no variable of any launcher is set, so this process works alone");
        line(&mut out, &format!("hint: start it with srun or mpiexec, or set {}", ticked(&names)));
    }
    out
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
