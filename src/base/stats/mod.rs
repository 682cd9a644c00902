//! Statistics of repeated trials: what a sample says of its mean, whether two differ, and which axes matter. Arithmetic
//! alone; distributions come from `statrs`.
//!
//! All functions take finite numbers: who calls decides what becomes of missing values and NaN.

mod anova;
mod bounds;
mod difference;
mod forest;
mod interval;
mod least_squares;
mod sample;
mod within;

pub(crate) use anova::{Anova, Error, Means, Term, anova};
pub(crate) use bounds::Bounds;
pub(crate) use difference::{Test, at_least, of_chosen, paired, resolution, signed_rank, welch};
pub(crate) use forest::{Forest, shuffled};
pub(crate) use interval::{Interval, bootstrap, of_iqm, of_mean, of_median};
pub(crate) use least_squares::NoGrid;
pub(crate) use sample::{drawn, has_heavy_tails, iqm, mean, median, sd};
