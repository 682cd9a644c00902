//! The end of a sweep, as the verbs see it that run trials: they call its hook.

use anyhow::Result;

use super::Context;
use crate::tree::Tree;
use crate::worker::hooks::sweep::{self, Witness};

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
