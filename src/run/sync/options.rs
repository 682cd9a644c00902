//! What ranks ask for beside their values, and must ask for alike: the settings of a gather and of a reduction.

use serde::{Deserialize, Serialize};

/// How values are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flags {
    /// Everything but tensors becomes float64. Without it plain floats (in lists too) become float32, and
    /// everything else keeps its type. Tensors always do.
    pub double_precision: bool,
    /// The values of all ranks, one after the other along the first dimension; otherwise one by rank.
    pub concat: bool,
    /// The result is a tensor; otherwise an array where an array went in, and a list where anything else
    /// did.
    pub return_tensor: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self { double_precision: false, concat: true, return_tensor: true }
    }
}

impl Flags {
    /// As a number, for the header.
    pub(super) fn code(self) -> u16 {
        u16::from(self.double_precision)
            | u16::from(self.concat) << 1
            | u16::from(self.return_tensor) << 2
    }

    /// The flags of which [`Self::code`] made this number.
    pub(super) fn from_code(code: u16) -> Self {
        Self {
            double_precision: code & 1 != 0,
            concat: code & 2 != 0,
            return_tensor: code & 4 != 0,
        }
    }
}

/// The reduction of the values of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Their sum. Whole numbers are added exactly.
    Sum,
    /// The smallest value of any rank.
    Min,
    /// The largest value of any rank.
    Max,
    /// The mean, each value with its weight.
    Mean,
    /// The variance of the population, each value with its weight.
    Variance,
}

impl How {
    pub(super) const ALL: [Self; 5] = [Self::Sum, Self::Min, Self::Max, Self::Mean, Self::Variance];

    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Variance => "variance",
        }
    }
}

/// The treatment of a NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nan {
    /// It makes the result NaN, smallest and largest too.
    #[default]
    Propagate,
    /// It is left out, with its weight.
    Ignore,
    /// It is an error that names the ranks.
    Error,
}

impl Nan {
    pub(super) const ALL: [Self; 3] = [Self::Propagate, Self::Ignore, Self::Error];

    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Propagate => "propagate",
            Self::Ignore => "ignore",
            Self::Error => "error",
        }
    }
}
