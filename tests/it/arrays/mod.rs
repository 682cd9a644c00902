//! What is given to Slurm, and what it is asked; its programs are scripts here, and real in `tests/cluster`.

mod calls;
mod clusters;
mod decided;
mod personal;
mod rehearsal;
mod retry;
mod scripts;
mod templates;
mod tree_calls;
mod unanswered;
