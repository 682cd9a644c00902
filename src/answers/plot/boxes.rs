//! The distribution of a metric by the values of an axis.

use anyhow::Result;

use super::axis::{Axis, Scale};
use super::groups::{self, Grouped, counted};
use super::{Body, Figure, LEAST_OF_BOX, Sample, Wish};
use crate::base::fault::Fault;
use crate::base::words::thousands;

/// Most values of an axis that stand beside each other.
pub(super) const MOST_WORDS: usize = 40;

/// A box for each value of an axis with enough trials; of fewer the numbers themselves.
///
/// # Errors
/// As [`groups::axes`] and [`Grouped::by_columns`], and when the axis has too many values.
pub(crate) fn boxes(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    table.metric(wish.metric)?;
    let axis = groups::axes(wish, &["--x"])?[0];
    let grouped = Grouped::by_columns(wish, &[axis])?;
    let values = groups::values(&grouped.settings, axis);
    let name = &table.columns[axis];
    check_words(name, values.len())?;
    let of_value = groups::labels(&grouped.settings, axis);
    let (mut words, mut samples) = (Vec::new(), Vec::new());
    for value in &values {
        let shown_settings = grouped
            .settings
            .list
            .iter()
            .zip(&grouped.observed)
            .filter(|(setting, _)| groups::value(setting, axis) == value);
        let mut values: Vec<f64> =
            shown_settings.flat_map(|(_, one)| one.values.iter().copied()).collect();
        values.sort_by(f64::total_cmp);
        words.push(of_value(value));
        samples.push(Sample { values });
    }
    let all_values = || samples.iter().flat_map(|sample| sample.values.iter().copied());
    if wish.log[1] {
        groups::check_log(wish.metric, "--log-y", all_values())?;
    }
    let counts = || samples.iter().map(|sample| sample.values.len());
    let mut caption = vec![match counts().any(|n| n >= LEAST_OF_BOX) {
        true => format!(
            "{} each: median, quartiles, and whiskers to the last value within 1.5 interquartile ranges",
            counted(counts())
        ),
        false => format!("{} each, with their median", counted(counts())),
    }];
    caption.extend(grouped.caption(table, false));
    let y = Axis {
        label: groups::of_column(wish.metric),
        scale: Scale::spanning(all_values(), wish.log[1], true),
    };
    let x = Axis { label: groups::of_column(name), scale: Scale::Words(words) };
    Ok(Figure { title: None, x, y, body: Body::Boxes(samples), caption })
}

/// Refuses an axis with more values than can stand beside each other.
///
/// # Errors
/// When there are too many.
pub(super) fn check_words(name: &str, values: usize) -> Result<()> {
    if values <= MOST_WORDS {
        return Ok(());
    }
    let sentence = format!(
        "`{name}` has {} values, and {MOST_WORDS} fit beside each other",
        thousands(values as u64)
    );
    Err(Fault::request(sentence).hint("choose fewer trials: `--where`").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_has_the_quartiles_and_whiskers_to_the_last_number_within_reach() {
        let sample = Sample { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 30.0] };
        assert_eq!(sample.quartiles(), Some([1.0, 2.75, 4.5, 6.25, 7.0]));
        assert_eq!(Sample { values: vec![1.0, 2.0, 3.0, 4.0] }.quartiles(), None);
    }
}
