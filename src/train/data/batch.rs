//! Batches: the numbers of some samples, as a model and its loss take them.

use super::array::Dtype;
use super::convert::{self, Scaling};

/// Width of real numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// IEEE 754 binary32, 32 bit.
    F32,
    /// IEEE 754 binary64, 64 bit.
    F64,
}

/// What targets are for the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of classes, from 0.
    Classes,
    /// Real numbers, of the inputs' width.
    Values,
}

/// How samples become a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct How {
    /// Width of inputs, and of targets that are values.
    pub width: Width,
    /// Whether targets are classes or values.
    pub targets: Kind,
    /// Inputs are multiplied by this,
    pub scale: f64,
    /// and then this is added. Targets stay as they are.
    pub offset: f64,
}

/// Real numbers of one of the two widths.
#[derive(Debug, Clone, PartialEq)]
pub enum Reals {
    /// Numbers of 32 bit.
    F32(Vec<f32>),
    /// Numbers of 64 bit.
    F64(Vec<f64>),
}

impl Reals {
    /// None yet, of this width.
    pub(crate) fn new(width: Width) -> Self {
        match width {
            Width::F32 => Self::F32(Vec::new()),
            Width::F64 => Self::F64(Vec::new()),
        }
    }

    /// Empties it and makes it of this width; the memory is kept where it can be.
    pub(super) fn clear(&mut self, width: Width) {
        match (&mut *self, width) {
            (Self::F32(numbers), Width::F32) => numbers.clear(),
            (Self::F64(numbers), Width::F64) => numbers.clear(),
            _ => *self = Self::new(width),
        }
    }

    /// Appends the numbers in `bytes`, scaled.
    pub(super) fn append(&mut self, dtype: Dtype, bytes: &[u8], scaling: Scaling) {
        match self {
            Self::F32(numbers) => convert::reals(dtype, bytes, scaling, numbers),
            Self::F64(numbers) => convert::reals(dtype, bytes, scaling, numbers),
        }
    }
}

/// Targets of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Numbers of classes, none negative.
    Classes(Vec<i64>),
    /// Real numbers, of the width of the inputs.
    Values(Reals),
}

impl Targets {
    /// Targets of no sample yet, of the kind that `how` says.
    pub(crate) fn new(how: &How) -> Self {
        match how.targets {
            Kind::Classes => Self::Classes(Vec::new()),
            Kind::Values => Self::Values(Reals::new(how.width)),
        }
    }

    pub(super) fn clear(&mut self, how: &How) {
        match (&mut *self, how.targets) {
            (Self::Classes(classes), Kind::Classes) => classes.clear(),
            (Self::Values(values), Kind::Values) => values.clear(how.width),
            _ => *self = Self::new(how),
        }
    }
}

/// Samples one after the other, in C order.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Inputs of all samples.
    pub inputs: Reals,
    /// Their dimensions as libtorch takes them: the number of samples, then those of one sample.
    pub input_shape: Vec<i64>,
    /// Targets of all samples.
    pub targets: Targets,
    /// Their dimensions. Where a sample has one class, the number of samples alone.
    pub target_shape: Vec<i64>,
}

impl Batch {
    /// An empty one, to be filled.
    pub(super) fn new(how: &How) -> Self {
        Self {
            inputs: Reals::new(how.width),
            input_shape: Vec::new(),
            targets: Targets::new(how),
            target_shape: Vec::new(),
        }
    }

    /// How many samples it has.
    pub fn len(&self) -> u64 {
        self.input_shape.first().map_or(0, |n| *n as u64)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
