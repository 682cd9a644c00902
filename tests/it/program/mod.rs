//! The program itself: its command line, its installation, what it finds on a machine.

mod cli;
mod gpus;
mod init;
mod install;
mod launch;
mod run;
mod startup;
mod which;
