//! The ranks of one trial: how they find rank 0, what they send it, and what it makes of them.

mod addresses;
pub(crate) mod gather;
pub(super) mod granted;
pub(crate) mod member;
pub(super) mod others;
pub mod peers;
pub mod rows;
