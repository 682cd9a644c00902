//! A TOML document that a person wrote: read with the place of every key, and with all of its faults at once.
//!
//! A `Section` is the table of the keys that a table of the document may have. Reading, messages, the reference in
//! `docs/` and the JSON schema all follow from it. Knows TOML and sentences, not what a plan or a profile is.

pub(crate) mod directives;
pub(crate) mod form;
pub(crate) mod reader;
pub(crate) mod section;
mod syntax;

pub(crate) use form::{Form, Word};
pub(crate) use reader::{Entry, Item, Reader, Table, entries, kind};
pub(crate) use section::{Key, Section, find, section};

pub(crate) use section::Row;
