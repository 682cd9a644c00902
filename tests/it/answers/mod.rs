//! What is read from a sweep: states, tables, statistics, pictures, pages.

mod best;
mod causes;
mod collect;
mod curves;
mod index;
mod logs;
mod looks_done;
mod plot;
mod printed;
mod recorded;
mod report;
mod report_serve;
mod requests;
mod soundness;
mod status;
#[cfg(feature = "tables")]
mod tables;
mod tensorboard;
mod usage;
mod watch;
mod why;
