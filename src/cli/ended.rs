//! The end of a sweep, as the verbs see it that run trials: they call its hook.

use anyhow::Result;

use super::Context;
use crate::base::words::count;
use crate::run::worker::hooks::lost::{self, Witness};
use crate::run::worker::hooks::sweep;
use crate::sweep::tree::Tree;

/// Calls the hooks of trials that are due and whose callers were lost, and says so.
///
/// # Errors
/// As [`lost::call`].
pub(super) fn settle(tree: &Tree, witness: Witness<'_>, context: &Context) -> Result<()> {
    let called = lost::call(tree, witness, &context.vars)?;
    if called > 0 {
        let hooks = count(called, "hook");
        context
            .out
            .say(&format!("{hooks} called of trials that have ended: the callers were lost"));
    }
    Ok(())
}

/// Calls the hook for the end of a sweep, and says what went wrong with it.
///
/// # Errors
/// As [`sweep::tell_end`].
pub(super) fn tell(
    tree: &Tree,
    witness: Witness<'_>,
    stopped: Option<&str>,
    context: &Context,
) -> Result<()> {
    let complaint = sweep::tell_end(tree, witness, stopped, &context.vars)?;
    complaint.iter().for_each(|words| context.out.say(words));
    Ok(())
}
