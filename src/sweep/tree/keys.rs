//! The keys of trials by their numbers, for readers of records: what a line says of a trial counts only if it is of the trial
//! that the table has under that number.

use std::borrow::Cow;
use std::sync::OnceLock;

use anyhow::Result;

use super::Tree;
use super::key::Key;
use super::table::{self, KeysOfTable};

/// The keys that a reader compares records with.
pub(crate) struct Keys<'a>(Source<'a>);

enum Source<'a> {
    All(Cow<'a, [KeysOfTable]>),
    One { tree: &'a Tree, trial: u64, key: OnceLock<Option<Key>> },
}

impl<'a> Keys<'a> {
    /// Those of all trials.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn all(tree: &Tree) -> Result<Self> {
        Ok(Self(Source::All(table::believed_keys(tree)?.into())))
    }

    /// Those of tables that were read.
    pub(crate) fn of_tables(tables: &'a [KeysOfTable]) -> Self {
        Self(Source::All(tables.into()))
    }

    /// That of one trial, which is read when a record has one to compare.
    pub(crate) fn one(tree: &'a Tree, trial: u64) -> Self {
        Self(Source::One { tree, trial, key: OnceLock::new() })
    }

    /// The key of a trial; `None` if no table has it, or that table is damaged.
    pub(crate) fn of(&self, wanted: u64) -> Option<Key> {
        match &self.0 {
            Source::All(tables) => {
                let after = tables.partition_point(|table| table.first <= wanted);
                tables.get(after.checked_sub(1)?)?.of(wanted)
            }
            Source::One { tree, trial, key } => {
                let read = || Key::of(&table::find(tree, *trial).ok()?.1.key);
                (wanted == *trial).then(|| *key.get_or_init(read))?
            }
        }
    }

    /// Whether a record with this key, if it has one, is of the trial that the table has under this number.
    pub(crate) fn fits(&self, trial: u64, key: Option<Key>) -> bool {
        key.is_none_or(|key| self.of(trial).is_none_or(|own| own == key))
    }
}
