//! What a plan means before anything runs: its check, its expressions, its keys, sets of its trials.

mod doubts;
mod dropped;
mod expressions;
mod quoting;
mod schema;
mod select;
mod verb;
