//! Pull mode: agents on any number of hosts take trials from the results tree and keep their slots busy.
//!
//! There is no server. Agents agree by a log of small files ([`crate::sweep::tree::ledger`]), and each records its trials in a
//! file of its own ([`crate::sweep::tree::bundle`]). [`membership`] manages both, `lifecycle` manages leases, retries and
//! copies. [`agent`] runs programs in [`places`], [`solo`] hands trials to a function of the caller.

pub(crate) mod agent;
mod hooks;
mod lifecycle;
pub(crate) mod membership;
pub(crate) mod places;
pub(crate) mod program;
pub mod solo;
