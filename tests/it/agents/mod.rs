//! Agents, which take trials from the results tree.

mod auto;
mod clocks;
mod copies;
mod disks;
mod faults;
mod hold;
mod learn;
mod many;
mod retry;
mod run;
mod running;
mod serve;
mod storm;
mod time;
