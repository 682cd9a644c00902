//! Bounds beyond which no number can lie, such as those of accuracies and times.

use super::Interval;

/// The least and the greatest possible value; infinite where nothing bounds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bounds(pub(crate) [f64; 2]);

impl Bounds {
    /// Whether a number lies within them, the bounds themselves included.
    pub(crate) fn hold(self, value: f64) -> bool {
        let Self([least, most]) = self;
        (least..=most).contains(&value)
    }

    /// An interval of `value`, as one of its logit where both sides are bounded, and of its logarithm where one is: the errors are carried
    /// over by the slope there, so that the ends stay within the bounds. As it is where no side is bounded, or `value` is no inner one.
    pub(crate) fn keep(self, value: f64, [low, high]: Interval) -> Interval {
        let Self([least, most]) = self;
        if value <= least || value >= most {
            return [low, high];
        }
        let (below, above) = (value - least, most - value);
        let end = |end: f64| {
            let way = end - value;
            match (least.is_finite(), most.is_finite()) {
                (true, true) => {
                    // Of the smaller part, so that an exponential which overflows leaves the bound.
                    let shift = way * (below + above) / (below * above);
                    match shift < 0.0 {
                        true => least + (below + above) * below / (below + above * (-shift).exp()),
                        false => most - (below + above) * above / (above + below * shift.exp()),
                    }
                }
                (true, false) => least + below * (way / below).exp(),
                (false, true) => most - above * (-way / above).exp(),
                (false, false) => end,
            }
        };
        [end(low), end(high)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_stay_within_bounds_and_are_the_same_far_from_them() {
        let unit = Bounds([0.0, 1.0]);
        let [low, high] = unit.keep(0.9, [0.6, 1.2]);
        // logit(0.9) = 2.197, and its slope there 1 / 0.09.
        assert!((low - 0.243_036).abs() < 1e-6 && (high - 0.996_052).abs() < 1e-6, "{low} {high}");
        let [low, high] = unit.keep(0.5, [-1e9, 1e9]);
        assert!(low >= 0.0 && high <= 1.0, "{low} {high}");
        let far = unit.keep(0.5, [0.4999, 0.5001]);
        assert!((far[0] - 0.4999).abs() < 1e-9 && (far[1] - 0.5001).abs() < 1e-9, "{far:?}");
        let positive = Bounds([0.0, f64::INFINITY]);
        let (e, third) = (std::f64::consts::E, positive.keep(2.0, [0.0, 4.0]));
        assert_eq!(third, [2.0 / e, 2.0 * e]);
        let negative = Bounds([f64::NEG_INFINITY, 0.0]);
        assert_eq!(negative.keep(-2.0, [-4.0, 0.0]), [-2.0 * e, -2.0 / e]);
        let none = Bounds([f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!(none.keep(2.0, [0.0, 4.0]), [0.0, 4.0]);
        // At a bound there is no inner scale.
        assert_eq!(unit.keep(1.0, [0.9, 1.1]), [0.9, 1.1]);
    }
}
