//! Whether a sweep still has all of its tables, by what its other files say.

use anyhow::Result;

use super::damage::Damage;
use super::{Tree, bundle, records, table, waves};
use crate::base::fault::Fault;
use crate::base::host::disk;

/// Refuses a sweep that has lost a table: new trials would take its numbers, and with them what is recorded under these.
///
/// # Errors
/// When a table is missing, or a folder cannot be listed.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let in_waves = waves::readable(tree, &mut Damage::default())?;
    let in_waves = waves::last_trial(in_waves.iter().map(|(_, map)| &map[..]));
    let by_agents = bundle::agents(tree)?.first().map(|_| 0);
    let known = in_waves.max(by_agents).max(records::last_trial(tree)?);
    let Some(first) = table::missing(tree, known)?.first().copied() else { return Ok(()) };
    let path = tree.dir().join(format!("trials/{first:012}.json"));
    let sentence = format!(
        "`{}` does not exist, although trials from {first} on have been submitted",
        path.display()
    );
    let (own, old) = (tree.named(), disk::named(&tree.dir().with_extension("old")));
    let hint = format!(
        "restore `trials/` from a backup; to run all trials again, move the sweep away: `mv {own} {old}`"
    );
    Err(Fault::machine(sentence).hint(hint).into())
}
