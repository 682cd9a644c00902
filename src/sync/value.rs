//! Values as ranks exchange them: numbers with a type and a shape, and what they were for their owner.

use serde::{Deserialize, Serialize};

/// Type of the numbers; names are those of torch and numpy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// 8 bit, without sign.
    Uint8,
    /// 8 bit.
    Int8,
    /// 16 bit.
    Int16,
    /// 32 bit.
    Int32,
    /// 64 bit.
    Int64,
    /// IEEE 754 binary16.
    Float16,
    /// The upper half of a binary32.
    Bfloat16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// Two binary32.
    Complex64,
    /// Two binary64.
    Complex128,
}

/// What a value was for its owner; decides what it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A plain number of a language: float64, int64 or bool.
    Scalar,
    /// A list (of lists) of plain numbers.
    List,
    /// A number of an array library, which has a type of its own.
    Number,
    /// An n-dimensional array.
    Array,
    /// A tensor.
    Tensor,
}

/// Numbers in C order, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// What it was, or is to become.
    pub form: Form,
    /// Type of the numbers.
    pub dtype: Dtype,
    /// Lengths of its dimensions; empty for a single number.
    pub shape: Vec<u64>,
    /// The numbers.
    pub data: Vec<u8>,
}
