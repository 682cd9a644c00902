//! The program seen from outside: its real binaries, run in folders of their own.
//!
//! One test binary. Whole outputs are compared wherever they are stable; what differs from run to run
//! (paths, times, tokens) is replaced first. A tool that a test needs and does not find fails the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod alone;
mod attempts;
mod cases_distributed_sampler;
mod cases_mp_sync;
mod cli;
mod collect;
mod curves;
mod damage;
mod devices;
mod gpu_share;
mod gpus;
mod hooks;
mod init;
mod install;
mod interrupt;
mod kill;
mod launch;
mod local;
mod memory;
mod pbs;
mod pbs_arrays;
mod pbs_chains;
mod pbs_control;
mod pbs_functions;
mod pbs_limits;
mod pbs_once;
mod pbs_once_killed;
mod pbs_pack;
mod pbs_pilots;
mod pbs_ranks;
mod pbs_readers;
mod pbs_resources;
mod pbs_scripts;
mod pbs_server;
mod pbs_stalled;
mod pbs_storm;
mod pbs_truth;
mod pbs_truth_ends;
mod plan;
mod pull;
mod pull_clocks;
mod pull_copies;
mod pull_disks;
mod pull_faults;
mod pull_hold;
mod pull_many;
mod pull_retry;
mod pull_running;
mod pull_storm;
mod pull_time;
mod python;
mod quoting;
mod ranks;
mod readers;
mod rehearsal;
mod resources;
mod schema;
mod scripts;
mod serve;
mod starting;
mod startup;
mod status;
mod stopped;
mod strangers;
mod sync_cases;
mod templates;
mod threads;
mod tidy;
mod watch;
mod world;
