//! Samples: files of arrays and made-up fields, read where they lie, and made into batches off the
//! training thread.
//!
//! A file becomes arrays ([`files`]: `.npy`, `.npz`, `.safetensors`, IDX), arrays become a
//! [`dataset::Dataset`], and a [`loader::Loader`] makes batches of it. Numbers stay in the files as they
//! are; only those of a batch are ever converted ([`batch`]).

pub mod array;
pub mod batch;
mod convert;
pub mod dataset;
pub mod files;
pub mod fingerprint;
mod idx;
pub mod loader;
mod npy;
mod npz;
mod packed;
mod tensors;
pub(crate) mod turbulence;

#[cfg(test)]
mod tests;
