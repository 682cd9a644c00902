//! The keys of trials by their numbers, for readers of records: what a line says of a trial counts only if it is of the trial
//! that the table has under that number.

use std::fmt;
use std::sync::OnceLock;

use anyhow::Result;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Tree, table};

/// The first half of a trial's key: what a record says of its trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

/// Hexadecimal digits of a [`Key`].
const DIGITS: usize = 16;

impl Key {
    /// That of a whole key, as tables have it; `None` of any other text.
    pub(crate) fn of(key: &str) -> Option<Self> {
        Self::of_digits(key.as_bytes())
    }

    fn of_digits(key: &[u8]) -> Option<Self> {
        let digits = key.get(..DIGITS)?.iter();
        let mut values = digits.map(|digit| char::from(*digit).to_digit(16).map(u64::from));
        values.try_fold(0, |number, value| Some(number << 4 | value?)).map(Self)
    }

    pub(in crate::tree) fn number(self) -> u64 {
        self.0
    }

    pub(in crate::tree) fn of_number(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let key = Self::of(&text).filter(|_| text.len() == DIGITS);
        key.ok_or_else(|| D::Error::custom("a key has 16 hexadecimal digits"))
    }
}

/// The keys that a reader compares records with.
pub(crate) struct Keys<'a>(Source<'a>);

enum Source<'a> {
    All(Vec<table::Keys>),
    One { tree: &'a Tree, trial: u64, key: OnceLock<Option<Key>> },
}

impl<'a> Keys<'a> {
    /// Those of all trials.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn all(tree: &Tree) -> Result<Self> {
        Ok(Self(Source::All(table::believed_keys(tree)?)))
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
                Key::of_digits(tables.get(after.checked_sub(1)?)?.of(wanted)?)
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
