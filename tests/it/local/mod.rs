//! Sweeps that run on this machine, by `submit --local`.

mod alone;
mod attempts;
mod container;
mod devices;
mod executor;
mod gpu_share;
mod hooks;
mod interrupt;
mod late_hooks;
mod ranks;
mod resources;
mod retry;
mod starting;
mod sweep_hooks;
mod time_left;
