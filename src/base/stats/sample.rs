//! Numbers that describe a sample.

/// So many of the places below `n`, ascending, each as likely as any other; all of them where they are not more. The same numbers
/// give the same places.
///
/// What is first in a table shares values of the axes that a plan names first, so its beginning is no sample.
pub(crate) fn drawn(n: usize, most: usize) -> Vec<usize> {
    let mut places = fastrand::Rng::with_seed(n as u64).choose_multiple(0..n, most);
    places.sort_unstable();
    places
}

/// The arithmetic mean; NaN of nothing.
pub(crate) fn mean(sample: &[f64]) -> f64 {
    let n = sample.len() as f64;
    let mut rough = sample.iter().sum::<f64>() / n;
    if rough.is_infinite() && sample.iter().all(|x| x.is_finite()) {
        // Only the sum is too large.
        rough = sample.iter().map(|x| x / n).sum();
    }
    // What rounding has left of the deviations is added: exact to the last digits also far from zero.
    match rough.is_finite() {
        true => rough + sample.iter().map(|x| (x - rough) / n).sum::<f64>(),
        false => rough,
    }
}

/// The sample in units of a power of two near its largest number, and this unit: squares are neither nothing nor infinite
/// then, and no digit is lost.
pub(super) fn scaled(sample: &[f64]) -> (Vec<f64>, f64) {
    let size = sample.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    // The highest power of two in it, by its bits: `log2` would need libm.
    let (bits, exponent) = (size.to_bits(), size.to_bits() & f64::INFINITY.to_bits());
    let unit = match (has_spread(size), exponent) {
        (false, _) => 1.0,
        (true, 0) => f64::from_bits(1 << bits.ilog2()),
        (true, exponent) => f64::from_bits(exponent),
    };
    (sample.iter().map(|x| x / unit).collect(), unit)
}

/// The sum of squared deviations from the mean.
pub(super) fn squares(sample: &[f64]) -> f64 {
    let sample_mean = mean(sample);
    sample.iter().map(|x| (x - sample_mean).powi(2)).sum()
}

/// Whether a measure of spread is one: neither nothing, nor NaN or infinite.
pub(super) fn has_spread(spread: f64) -> bool {
    spread > 0.0 && spread.is_finite()
}

/// The standard deviation with n - 1; NaN of fewer than two.
pub(crate) fn sd(sample: &[f64]) -> f64 {
    if sample.len() < 2 {
        return f64::NAN;
    }
    // The squares of numbers near the ends of the range would be nothing or infinite.
    let sample_mean = mean(sample);
    let scale = sample.iter().map(|x| (x - sample_mean).abs()).fold(0.0, f64::max);
    if !has_spread(scale) {
        return if sample.iter().all(|x| x.is_finite()) { scale } else { f64::NAN };
    }
    let squares: f64 = sample.iter().map(|x| ((x - sample_mean) / scale).powi(2)).sum();
    scale * (squares / (sample.len() - 1) as f64).sqrt()
}

/// The sample in ascending order.
pub(super) fn sorted(sample: &[f64]) -> Vec<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// A quantile of an ascending sample, linear between its neighbours (type 7 of Hyndman and Fan, as numpy and R).
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let (low, part) = (position.floor() as usize, position.fract());
    let high = (low + 1).min(sorted.len() - 1);
    // Between infinities of one sign there is nothing to interpolate.
    if part == 0.0 || sorted[low] == sorted[high] {
        return sorted[low];
    }
    sorted[low] + part * (sorted[high] - sorted[low])
}

/// The median; NaN of nothing.
pub(crate) fn median(sample: &[f64]) -> f64 {
    if sample.is_empty() { f64::NAN } else { quantile(&sorted(sample), 0.5) }
}

/// How many values are cut off at each end for the interquartile mean: a quarter, rounded down, as `scipy.stats.trim_mean`.
pub(super) fn quarter(n: usize) -> usize {
    n / 4
}

/// The interquartile mean: the mean without the lowest and the highest quarter. NaN of nothing.
pub(crate) fn iqm(sample: &[f64]) -> f64 {
    let sorted = sorted(sample);
    let cut = quarter(sorted.len());
    mean(&sorted[cut..sorted.len() - cut])
}

/// Whether values lie so far out that the mean says little: beyond three interquartile ranges from the quartiles (Tukey's
/// outer fences). Never of fewer than five.
pub(crate) fn has_heavy_tails(sample: &[f64]) -> bool {
    if sample.len() < 5 {
        return false;
    }
    let sorted = sorted(sample);
    let (low, high) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
    let fence = 3.0 * (high - low);
    sorted[0] < low - fence || sorted[sorted.len() - 1] > high + fence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_spread_over_all_places() {
        assert_eq!(drawn(3, 5), [0, 1, 2]);
        let places = drawn(10_000, 1000);
        assert!(places.len() == 1000 && places.is_sorted_by(|a, b| a < b));
        for period in [2, 5, 10, 100] {
            for rest in [0, period - 1] {
                let part = places.iter().filter(|place| **place % period == rest).count();
                assert!(part.abs_diff(1000 / period) < 60, "{period} {rest}: {part}");
            }
        }
        let first = places.iter().filter(|place| **place < 1000).count();
        assert!((60..140).contains(&first), "{first}");
    }

    #[test]
    fn a_scaled_sample_has_the_same_digits() {
        let sample = [1.1, -2.7, 0.0];
        for scale in [1.0, 1e300, 1e-300, 1e-310, f64::MIN_POSITIVE, 6e307] {
            let sample = sample.map(|x| x * scale);
            let (scaled, unit) = scaled(&sample);
            assert!(scaled.iter().all(|x| x.abs() <= 2.0), "{scale}: {scaled:?}");
            assert_eq!(scaled.iter().map(|x| x * unit).collect::<Vec<_>>(), sample, "{scale}");
        }
        assert_eq!(scaled(&[0.0]), (vec![0.0], 1.0));
    }

    #[test]
    fn a_sample_is_described() {
        let sample = [3.0, 1.0, 2.0, 100.0, 2.5, 1.5, 2.0, 3.5];
        assert_eq!(mean(&sample), 14.4375);
        assert_eq!(median(&sample), 2.25);
        assert_eq!(iqm(&sample), 2.375);
        assert!((sd(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(mean(&[0.1; 10]), 0.1);
        assert_eq!(median(&[f64::INFINITY; 4]), f64::INFINITY);
        assert_eq!(median(&[1.0, 2.0, f64::INFINITY]), 2.0);
        assert!(sd(&[1.0]).is_nan() && mean(&[]).is_nan() && median(&[]).is_nan());
        assert_eq!(mean(&[1.0, f64::INFINITY]), f64::INFINITY);
        // A sum beyond the largest number is no reason for an infinite mean.
        assert_eq!([mean(&[1e308, 1.5e308]), mean(&[-1e308; 4])], [1.25e308, -1e308]);
        for scale in [1e-310, 1e300] {
            assert!((sd(&[scale, 2.0 * scale, 3.0 * scale]) / scale - 1.0).abs() < 1e-3, "{scale}");
        }
        assert_eq!(sd(&[2.0; 3]), 0.0);
        assert!(sd(&[1.0, f64::INFINITY]).is_nan() && sd(&[1.0, f64::NAN]).is_nan());
        assert_eq!([has_heavy_tails(&sample), has_heavy_tails(&sample[..3])], [true, false]);
        assert!(!has_heavy_tails(&[1.0, 2.0, 3.0, 4.0, 5.0]));
    }
}
