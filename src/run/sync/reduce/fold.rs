//! One number out of the numbers of the ranks, in rank order. Nothing here depends on the machine: a NaN
//! that comes out is always the same one, and of equal numbers the first stays.

use super::How;

/// Sum, smallest or largest of whole numbers; `None` when the sum does not fit, or there are none to
/// choose from.
pub(super) fn ints<'a>(numbers: impl Iterator<Item = &'a i64>, how: How) -> Option<i64> {
    match how {
        How::Min => numbers.min().copied(),
        How::Max => numbers.max().copied(),
        _ => i64::try_from(numbers.map(|n| i128::from(*n)).sum::<i128>()).ok(),
    }
}

/// Any reduction of numbers with weights above 0.
pub(super) fn floats(numbers: impl Iterator<Item = (f64, f64)> + Clone, how: How) -> f64 {
    let result = match how {
        How::Sum => numbers.map(|(x, _)| x).fold(0.0, |sum, x| sum + x),
        How::Min => best(numbers, |x, y| x < y),
        How::Max => best(numbers, |x, y| x > y),
        How::Mean => mean(numbers),
        How::Variance => {
            let center = mean(numbers.clone());
            let squares = numbers.map(|(x, w)| ((x - center) * (x - center), w));
            weighted(squares)
        }
    };
    if result.is_nan() { f64::NAN } else { result }
}

/// The best number, or NaN where one is among them or there are none.
fn best(numbers: impl Iterator<Item = (f64, f64)>, better: fn(f64, f64) -> bool) -> f64 {
    let pick = |best: f64, x: f64| if x.is_nan() || better(x, best) { x } else { best };
    let keep = |best: f64, x: f64| if best.is_nan() { best } else { pick(best, x) };
    numbers.map(|(x, _)| x).reduce(keep).unwrap_or(f64::NAN)
}

/// The weighted mean. It lies among the numbers whatever is rounded, so that the mean of equal ones is that
/// number.
fn mean(numbers: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let weighted_mean = weighted(numbers.clone());
    let [least, most] = [How::Min, How::Max].map(|how| floats(numbers.clone(), how));
    if weighted_mean < least {
        least
    } else if weighted_mean > most {
        most
    } else {
        weighted_mean
    }
}

/// Sum of weighted numbers over the sum of weights; NaN where there are none.
fn weighted(numbers: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let add = |(sum, all): (f64, f64), (x, w): (f64, f64)| (sum + x * w, all + w);
    let (sum, all) = numbers.clone().fold((0.0, 0.0), add);
    if sum.is_finite() && all.is_finite() {
        return sum / all;
    }
    // A sum on the way may be too large although each share is not.
    let largest_weight = numbers.clone().fold(0.0, |most: f64, (_, w)| most.max(w));
    let weight_sum: f64 = numbers.clone().fold(0.0, |all, (_, w)| all + w / largest_weight);
    numbers.fold(0.0, |sum, (x, w)| sum + x * (w / largest_weight / weight_sum))
}
