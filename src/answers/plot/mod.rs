//! Pictures of a sweep for a paper or a terminal: what is drawn is a [`Figure`], made of the table of results.
//!
//! `curves`, `heatmap`, `shares`, `scaling` and `boxes` make figures, one kind each. `term` draws them as text, and `picture` as
//! SVG, PNG and PDF, which only `hpcsweep-worker` does.

mod axis;
mod boxes;
mod curves;
mod groups;
mod heatmap;
#[cfg(feature = "pictures")]
pub(crate) mod picture;
mod scaling;
mod shares;
pub(crate) mod spark;
pub(crate) mod term;

use std::io::Write;

use anyhow::Result;

pub(crate) use axis::Axis;
pub(crate) use boxes::boxes;
pub(crate) use curves::{curves, mean_curve, of_mean_curve};
pub(crate) use heatmap::heatmap;
pub(crate) use scaling::scaling;
pub(crate) use shares::shares;

use crate::answers::analysis::Bounded;
use crate::answers::collect::{Goal, Table};
use crate::sweep::status::Status;

/// What is to be drawn of which results.
pub(crate) struct Wish<'a> {
    /// The sweeps, with the records of their trials.
    pub(crate) sweeps: &'a [Status],
    /// The table of their results, in which `metric` and `axes` are columns.
    pub(crate) table: &'a Table,
    /// A column of numbers.
    pub(crate) metric: &'a str,
    /// Which end of it is best, where that was said.
    pub(crate) goal: Option<Goal>,
    /// The axes of the plan that are drawn along the picture's axes.
    pub(crate) axes: [Option<&'a str>; 2],
    /// Columns that make a setting, or that are averaged over: as in `best`.
    pub(crate) by: &'a [String],
    pub(crate) over: &'a [String],
    /// The function whose trials are drawn; by default that of the plan.
    pub(crate) function: Option<&'a str>,
    /// What is shown around means.
    pub(crate) band: Band,
    /// Whether the picture's axes are logarithmic.
    pub(crate) log: [bool; 2],
}

/// What is shown around a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Band {
    /// One standard deviation below and above the mean
    Sd,
    /// The interval of 95 % of the mean, by Student's t
    Ci,
    /// From the least to the greatest value
    Range,
    /// Nothing
    None,
}

impl Band {
    /// The mean of a sample and what is around it; `None` around a single number. On a logarithmic axis both are those of the logarithms: a
    /// deviation below an arithmetic mean may reach below 0, where such an axis has no place.
    fn around(
        self,
        sample: &[f64],
        is_log: bool,
        bounds: Option<Bounded>,
    ) -> (f64, Option<[f64; 2]>) {
        if is_log {
            let logarithms: Vec<f64> = sample.iter().map(|value| value.ln()).collect();
            let (mean, ends) = self.around(&logarithms, false, None);
            // A number is itself, without what a logarithm rounds.
            let is_one = sample.iter().all(|value| *value == sample[0]);
            let geometric_mean = if is_one { crate::base::stats::mean(sample) } else { mean.exp() };
            return (geometric_mean, ends.map(|ends| ends.map(f64::exp)));
        }
        let sample_mean = crate::base::stats::mean(sample);
        let ends = match self {
            _ if sample.len() < 2 => None,
            Self::Sd => {
                let sd = crate::base::stats::sd(sample);
                Some([sample_mean - sd, sample_mean + sd])
            }
            Self::Ci => Bounded::keep(bounds, sample_mean, crate::base::stats::of_mean(sample)),
            Self::Range => {
                let least = sample.iter().copied().fold(f64::INFINITY, f64::min);
                Some([least, sample.iter().copied().fold(f64::NEG_INFINITY, f64::max)])
            }
            Self::None => None,
        };
        (sample_mean, ends)
    }

    /// What it is, for a caption.
    fn words(self, is_log: bool) -> Option<&'static str> {
        match (self, is_log) {
            (Self::Sd, false) => Some("one standard deviation"),
            (Self::Sd, true) => Some("one geometric standard deviation"),
            (Self::Ci, false) => Some("the 95 % interval of the mean"),
            (Self::Ci, true) => Some("the 95 % interval of the geometric mean"),
            (Self::Range, _) => Some("from the least to the greatest value"),
            (Self::None, _) => None,
        }
    }
}

/// A picture: what is drawn, without sizes and colours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// The text above the picture; without it there is no space for one.
    pub(crate) title: Option<String>,
    /// To the right, and upwards.
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) body: Body,
    /// What a reader must know of it, a sentence each: for the caption of a paper.
    pub(crate) caption: Vec<String>,
}

/// What is between the axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// Lines with what is around them; `legend` names what their labels are values of.
    Lines { lines: Vec<Line>, legend: Option<String> },
    /// A colour for each pair of values of two axes of words: rows from below, of each row the cells from the left.
    Cells { rows: Vec<Vec<Option<f64>>>, values: Axis, best: Option<(usize, usize)> },
    /// A sample above each word of the axis to the right.
    Boxes(Vec<Sample>),
    /// A bar beside each word of the axis upwards, from above, with the ends of its interval.
    Bars(Vec<(f64, Option<[f64; 2]>)>),
}

/// A line of means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<Point>,
    pub(crate) look: Look,
}

/// How a line is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// By the colour of this number.
    Colour(usize),
    /// It is one of many behind the others, without a label.
    Behind,
    /// It is what would be ideal, and was not measured.
    Ideal,
    /// As `Colour`, with a mark at each point.
    Marked(usize),
}

/// A mean, and the ends of what is around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) ends: Option<[f64; 2]>,
}

/// Numbers whose distribution is shown, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) values: Vec<f64>,
}

/// The least numbers of which quartiles say more than the numbers.
const LEAST_OF_BOX: usize = 5;

impl Sample {
    /// The quartiles (linear between the two nearest numbers), and the last numbers within one and a half interquartile
    /// ranges from the box: lower whisker, quartile, median, quartile, upper whisker. `None` of few numbers.
    pub(crate) fn quartiles(&self) -> Option<[f64; 5]> {
        let values = &self.values;
        if values.len() < LEAST_OF_BOX {
            return None;
        }
        let [low, median, high] = [0.25, 0.5, 0.75].map(|part| self.quantile(part));
        let reach = 1.5 * (high - low);
        let least = values.iter().copied().find(|v| *v >= low - reach).unwrap_or(low);
        let greatest = values.iter().rev().copied().find(|v| *v <= high + reach).unwrap_or(high);
        Some([least.min(low), low, median, high, greatest.max(high)])
    }

    /// The number below which this part of the sample is.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let position = part * (self.values.len().saturating_sub(1)) as f64;
        let (below, above) = (position.floor() as usize, position.ceil() as usize);
        let value_at = |i: usize| self.values.get(i).copied().unwrap_or(f64::NAN);
        value_at(below) + (value_at(above) - value_at(below)) * (position - position.floor())
    }
}

/// How a picture is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Vectors, with text as text and its font.
    Svg,
    /// Pixels, 300 an inch.
    Png,
    /// Vectors, with text as text and its font.
    Pdf,
}

/// Width and height in points of 1/72 inch; a height of `None` suits what is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Size {
    pub(crate) width: f64,
    pub(crate) height: Option<f64>,
}

/// Writes a picture in a form.
pub(crate) type Draw = fn(&Figure, Size, Form, &mut dyn Write) -> Result<()>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_of_logarithms_stays_above_zero() {
        let sample = [0.01, 1.0];
        let (mean, ends) = Band::Sd.around(&sample, false, None);
        assert!(mean == 0.505 && ends.unwrap()[0] < 0.0);
        let (mean, ends) = Band::Sd.around(&sample, true, None);
        let [low, high] = ends.unwrap();
        assert!((mean - 0.1).abs() < 1e-12, "{mean}");
        // One deviation of the logarithms is a factor.
        assert!(low > 0.0 && (mean / low - high / mean).abs() < 1e-9, "{low} {high}");
        assert_eq!(Band::Range.around(&sample, true, None).1.map(|[low, _]| low > 0.0), Some(true));
        assert_eq!(Band::Sd.around(&[0.3], true, None), (0.3, None));
    }
}
