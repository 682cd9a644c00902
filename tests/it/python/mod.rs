//! The Python module, and the cases that it shares with PyTorch.

mod module;
mod sampler;
mod sync;
