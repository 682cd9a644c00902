//! The life of an attempt as decisions: what an exit means, what becomes of the trial, how long a program that was asked
//! to end may take, and what is shown of its output. Workers and agents ask here. Values in, decision out: no clock, disk
//! or process.

pub mod exit;
pub mod log_tail;
pub mod stop;
pub mod time;
pub mod verdict;
