//! Answers from the results: tables, statistics, pictures, pages, and what goes on.

pub(crate) mod analysis;
pub mod collect;
pub(crate) mod plot;
pub(crate) mod report;
pub(crate) mod select;
pub(crate) mod usage;
pub mod watch;
