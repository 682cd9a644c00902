//! Sweeps that are handed over, moved, divided, put together, and done again.

mod export;
mod merge;
mod moved;
mod reproduce;
mod shard;
