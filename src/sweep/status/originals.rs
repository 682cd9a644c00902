//! The sweep of which another one is a copy, made while its jobs waited or ran (`cp -r`): those jobs belong to the original.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::host::disk;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::{Identity, Tree};

/// Whether the sweep in a folder is another one with this identity: what lies in `tree` is a copy of it.
pub(crate) fn is_original(dir: &Path, tree: &Tree, identity: &Identity) -> bool {
    let is_its = |own: Option<Identity>| own.is_some_and(|own| own.token == identity.token);
    !disk::is_same(dir, tree.dir()) && Tree::at(dir).identity().is_ok_and(is_its)
}

/// The arrays whose jobs belong to the original of which a sweep is a copy, and its folder.
///
/// # Errors
/// When the sweep's identity cannot be read.
pub(crate) fn of_originals(tree: &Tree, journal: &Journal) -> Result<BTreeMap<u32, PathBuf>> {
    let dirs: BTreeMap<u32, &Path> =
        journal.arrays.keys().filter_map(|array| Some((*array, journal.dir_of(*array)?))).collect();
    let mut others: BTreeSet<&Path> = dirs.values().copied().collect();
    others.remove(tree.dir());
    if !others.is_empty() {
        let identity = tree.identity()?;
        let is_it = |dir: &Path| identity.as_ref().is_some_and(|own| is_original(dir, tree, own));
        others.retain(|dir| is_it(dir));
    }
    let own = dirs.into_iter().filter(|(_, dir)| others.contains(dir));
    Ok(own.map(|(array, dir)| (array, dir.to_owned())).collect())
}
