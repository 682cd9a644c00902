//! A curve as a few letters: `▇▅▃▂▁▁`.

/// Letters of a curve in a table.
pub(crate) const WIDTH: usize = 16;

/// From the least to the greatest value.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The values in at most `width` letters, each the mean of the values at its place; `None` of fewer than two finite values.
pub(crate) fn spark(values: &[f64], width: usize) -> Option<String> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if values.len() < 2 || width < 2 {
        return None;
    }
    let letters = values.len().min(width);
    let means: Vec<f64> = (0..letters)
        .map(|at| {
            let (from, to) = (at * values.len() / letters, (at + 1) * values.len() / letters);
            crate::base::stats::mean(&values[from..to])
        })
        .collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(
        means
            .iter()
            .map(|mean| match greatest > least {
                true => {
                    let height = (mean - least) / (greatest - least);
                    BLOCKS[((height * BLOCKS.len() as f64) as usize).min(BLOCKS.len() - 1)]
                }
                // What never changes is in the middle.
                false => BLOCKS[3],
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_letters_from_its_least_to_its_greatest_value() {
        assert_eq!(spark(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8).unwrap(), "▁▂▃▄▅▆▇█");
        assert_eq!(spark(&[4.0, 2.0, 1.0, f64::NAN, 0.0], 8).unwrap(), "█▅▃▁");
        assert_eq!(spark(&[1.0, 1.0, 1.0], 8).unwrap(), "▄▄▄");
        let long: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(spark(&long, 8).unwrap(), "▁▂▃▄▅▆▇█");
        assert_eq!(spark(&[1.0], 8), None);
        assert_eq!(spark(&[f64::NAN, 1.0], 8), None);
    }
}
