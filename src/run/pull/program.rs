//! The program that has the function of a sweep's trials. An agent without `--serve` becomes this program, and
//! the program starts agents with `--serve`.

use anyhow::Result;
use serde_json::json;

use crate::base::host::{Vars, disk};
use crate::run::pull::agent::Options;
use crate::run::worker::process::prepare;
use crate::sweep::tree::{Tree, deck};

/// How the program learns which sweep it is for: JSON with its folder, how many agents it is to start, and the options
/// that each of them takes.
pub(crate) const SERVE: &str = "HPCSWEEP_SERVE";

/// What becomes of an agent of the sweep: argument vector and environment; `None` where trials run commands, or only
/// their user can start what has their function.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn of(
    tree: &Tree,
    options: &Options,
    vars: &Vars,
) -> Result<Option<(Vec<String>, Vars)>> {
    let Some(deck) = deck::read(tree)?.pop().filter(|deck| !deck.program.is_empty()) else {
        return Ok(None);
    };
    let left = options.time_left_s.map(|s| format!("{}s", s as u64));
    let mut agents: Vec<String> =
        left.into_iter().flat_map(|left| ["--time-left".to_owned(), left]).collect();
    agents.extend(options.may_go.then(|| "--may-go".to_owned()));
    agents.extend(options.quiet.then(|| "--quiet".to_owned()));
    let serve = json!({
        "sweep": tree.dir(),
        "processes": options.slots.or(deck.pull.slots).or(deck.pull.slots_per_gpu).unwrap_or(1),
        "options": agents,
        "devices": deck.devices.is_some(),
    });
    let mut env = vars.clone();
    env.insert(SERVE.to_owned(), serve.to_string());
    // The one that the program starts as its agents.
    let own = disk::own_executable()?;
    env.insert("HPCSWEEP_BIN".to_owned(), own.to_string_lossy().into_owned());
    prepare::find_module(&mut env)?;
    Ok(Some((deck.program, env)))
}
