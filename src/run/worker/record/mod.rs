//! The record of a run: its one writer, whether another run of the trial is alive, and room on the disk for it.

pub(super) mod alive;
pub(super) mod recorder;
pub(super) mod room;
