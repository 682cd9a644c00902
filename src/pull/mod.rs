//! Pull mode: agents on any number of hosts take trials from the results tree and keep their slots busy.
//!
//! There is no server. What agents agree on is a log of small files ([`crate::tree::ledger`]); what each has
//! done stands in a file of its own ([`crate::tree::bundle`]). [`membership`] deals with both, [`agent`] runs
//! programs, [`solo`] hands trials to a function of the caller.

pub mod agent;
mod attempts;
pub mod bind;
mod copies;
mod expiry;
pub mod guard;
mod hooks;
mod leaving;
mod lifecycle;
pub mod membership;
mod news;
mod offer;
pub mod pace;
pub mod place;
pub mod program;
pub mod share;
pub mod slot;
pub mod solo;
mod verdict;
mod watch;
