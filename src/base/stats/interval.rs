//! 95 % confidence intervals.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use super::sample::{has_spread, iqm, mean, quarter, scaled, sd, sorted};

/// Both ends of a 95 % confidence interval.
pub(crate) type Interval = [f64; 2];

/// The part of repetitions in which an interval does not contain the true value.
const MISSES: f64 = 0.05;

/// The quantile of Student's t that is exceeded on each side in half of [`MISSES`]; `None` without a degree of freedom.
fn t_quantile(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(1.0 - MISSES / 2.0))
}

/// The mean plus and minus so many standard errors as Student's t says for these degrees of freedom. `None` without an error:
/// numbers that are all the same do not tell how far others may be.
pub(super) fn around(mean: f64, standard_error: f64, freedom: f64) -> Option<Interval> {
    let half = t_quantile(freedom)? * standard_error;
    has_spread(half).then_some([mean - half, mean + half])
}

/// Of the mean, by Student's t: right for normal samples of any size. `None` of fewer than two, and of
/// equal values.
pub(crate) fn of_mean(sample: &[f64]) -> Option<Interval> {
    let n = sample.len() as f64;
    around(mean(sample), sd(sample) / n.sqrt(), n - 1.0)
}

/// How often a sample is drawn again. 50 times the part that lies outside on each side, minus one, so that the ends
/// are samples themselves.
const RESAMPLES: usize = 1999;

/// The least sample that is drawn again: of fewer, too many draws have no spread.
const LEAST_DRAWN: usize = 5;

/// Of the mean, by the studentized bootstrap (Efron 1981, Hall 1988), which follows the skew of the sample. The draws
/// depend on the sample alone. `None` of fewer than five, or of equal values.
pub(crate) fn bootstrap(sample: &[f64]) -> Option<Interval> {
    let n = sample.len();
    let (sample, unit) = scaled(sample);
    let (mean, error) = (mean(&sample), sd(&sample) / (n as f64).sqrt());
    if n < LEAST_DRAWN || !has_spread(error) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(n as u64);
    let mut ts = Vec::with_capacity(RESAMPLES);
    // Draws without spread are drawn again; a bound keeps a sample of nearly equal values from taking for ever.
    for _ in 0..20 * RESAMPLES {
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = sample[random.usize(..n)] - mean;
            sum += x;
            squares += x * x;
        }
        let drawn = sum / n as f64;
        let variance = (squares - sum * drawn) / (n - 1) as f64;
        if variance > error * error * 1e-12 {
            ts.push(drawn / (variance / n as f64).sqrt());
        }
        if ts.len() == RESAMPLES {
            break;
        }
    }
    let outside = ((ts.len() + 1) as f64 * MISSES / 2.0) as usize;
    if outside == 0 {
        return None;
    }
    ts.sort_by(f64::total_cmp);
    let (low, high) = (ts[outside - 1], ts[ts.len() - outside]);
    Some([mean - high * error, mean - low * error].map(|end| end * unit))
}

/// Of the interquartile mean, by Student's t and the winsorized variance (Tukey and McLaughlin 1963). `None` of fewer
/// than four.
pub(crate) fn of_iqm(sample: &[f64]) -> Option<Interval> {
    let n = sample.len();
    let cut = quarter(n);
    if cut == 0 {
        return None;
    }
    let mut winsorized = sorted(sample);
    let (low, high) = (winsorized[cut], winsorized[n - 1 - cut]);
    winsorized.iter_mut().for_each(|x| *x = x.clamp(low, high));
    let n_kept = (n - 2 * cut) as f64;
    let n = n as f64;
    let error = sd(&winsorized) * ((n - 1.0) / (n_kept * (n_kept - 1.0))).sqrt();
    around(iqm(sample), error, n_kept - 1.0)
}

/// Of the median, by order statistics, with interpolation between the two whose coverage is around 95 % (Hettmansperger
/// and Sheather 1986): right for any distribution. `None` of fewer than six, and where both ends are one number.
pub(crate) fn of_median(sample: &[f64]) -> Option<Interval> {
    ends_of_median(sample).filter(|[low, high]| low < high)
}

fn ends_of_median(sample: &[f64]) -> Option<Interval> {
    let n = sample.len();
    let counts = Binomial::new(0.5, n as u64).ok()?;
    let covers = |k: usize| 1.0 - 2.0 * counts.cdf(k as u64 - 1);
    if n < 2 || covers(1) < 1.0 - MISSES {
        return None;
    }
    let sorted = sorted(sample);
    // The last pair of order statistics, counted from the ends, that covers enough.
    let k = (1..=n / 2).take_while(|k| covers(*k) >= 1.0 - MISSES).last()?;
    if k + 1 > n / 2 {
        return Some([sorted[k - 1], sorted[n - k]]);
    }
    let (wide, narrow) = (covers(k), covers(k + 1));
    let weight = (wide - (1.0 - MISSES)) / (wide - narrow);
    let inner = (n - k) as f64 * weight / (k as f64 + (n as f64 - 2.0 * k as f64) * weight);
    let between = |outer: f64, next: f64| outer + inner * (next - outer);
    Some([between(sorted[k - 1], sorted[k]), between(sorted[n - k], sorted[n - k - 1])])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of 2,000 samples whose interval contains the true value.
    fn coverage(
        n: usize,
        truth: f64,
        draw: impl Fn(&mut fastrand::Rng) -> f64,
        interval: impl Fn(&[f64]) -> Option<Interval>,
    ) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let hits = (0..2000).filter(|_| {
            let sample: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
            let [low, high] = interval(&sample).unwrap();
            low <= truth && truth <= high
        });
        hits.count() as f64 / 2000.0
    }

    fn normal(random: &mut fastrand::Rng) -> f64 {
        let (u, v) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }

    fn exponential(random: &mut fastrand::Rng) -> f64 {
        -(1.0 - random.f64()).ln()
    }

    #[test]
    fn intervals_contain_the_truth_as_often_as_they_say() {
        let mut all = Vec::new();
        for n in [3, 5, 10, 30] {
            all.push((format!("t, normal, {n}"), coverage(n, 0.0, normal, of_mean)));
        }
        // The bootstrap draws 1,999 times for each: more of it is in `scripts/bench simulations`.
        all.push(("bootstrap, normal, 10".to_owned(), coverage(10, 0.0, normal, bootstrap)));
        all.push(("bootstrap, skewed, 10".to_owned(), coverage(10, 1.0, exponential, bootstrap)));
        for n in [10, 20] {
            let truth = std::f64::consts::LN_2;
            all.push((format!("median, skewed, {n}"), coverage(n, truth, exponential, of_median)));
            all.push((format!("iqm, normal, {n}"), coverage(n, 0.0, normal, of_iqm)));
        }
        let wrong: Vec<_> = all.iter().filter(|(_, part)| (part - 0.95).abs() > 0.015).collect();
        assert_eq!(wrong, [] as [&(String, f64); 0], "{all:?}");
    }

    #[test]
    fn intervals_are_the_same_at_any_scale() {
        let sample = [1.0, 2.5, 2.0, 7.0, 3.0, 4.5];
        for exponent in [1000, -1000] {
            let scale = f64::from(exponent).exp2();
            let far: Vec<f64> = sample.iter().map(|x| x * scale).collect();
            for interval in [of_mean, bootstrap, of_iqm, of_median] {
                let back = interval(&far).map(|ends| ends.map(|end| end / scale));
                assert_eq!(back, interval(&sample));
            }
        }
    }

    #[test]
    fn what_says_too_little_has_no_interval() {
        assert_eq!(of_mean(&[1.0]), None);
        for interval in [of_mean, bootstrap, of_iqm, of_median] {
            assert_eq!(interval(&[2.0; 9]), None);
        }
        assert_eq!(bootstrap(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(of_median(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(
            of_median(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).map(|[low, _]| low > 1.0),
            Some(true)
        );
        assert_eq!(of_iqm(&[1.0, 2.0, 3.0]), None);
    }
}
