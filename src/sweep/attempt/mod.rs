//! The life of an attempt as decisions: what an exit means, what becomes of the trial, how long a program that was asked
//! to end may take, and what is shown of its output. Workers and agents ask here. Values in, decision out: no clock, disk
//! or process.

pub(crate) mod exit;
pub(crate) mod log_tail;
pub(crate) mod repeat;
pub(crate) mod stop;
pub(crate) mod time;
pub(crate) mod verdict;
