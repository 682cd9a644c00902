//! What runs trials: workers with their ranks, agents, and the syncs between ranks.

pub mod pull;
pub mod sync;
pub mod worker;
