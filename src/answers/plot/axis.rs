//! The axes of a figure: where a value is between its ends, and where the ticks are.

/// An axis of a figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// What its values are.
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

/// How values become places.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scale {
    /// In proportion, from and to these values.
    Linear(f64, f64),
    /// The same of whole numbers: ticks are whole, too.
    Whole(f64, f64),
    /// By their logarithms, from and to these values; with ticks at `at`, if there are any.
    Log(f64, f64, Vec<f64>),
    /// Words beside each other.
    Words(Vec<String>),
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// From 0 to 1 along the axis.
    pub(crate) place: f64,
    /// Empty for a small mark without text.
    pub(crate) label: String,
}

/// Whether a number can be drawn: it is finite, and an axis that has it does not overflow.
pub(super) fn has_place(value: f64) -> bool {
    value.abs() <= 1e300
}

/// How much free space there is beyond the values, as a part of their range.
const MARGIN: f64 = 0.05;

impl Scale {
    /// Along numbers, with some room at the ends, or none. A logarithmic axis needs numbers above zero.
    pub(super) fn spanning(values: impl Iterator<Item = f64>, log: bool, room: bool) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| has_place(*v) && (!log || *v > 0.0)) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (1.0, 2.0);
        }
        let margin = if room { MARGIN } else { 0.0 };
        if log {
            let factor = (to / from).powf(margin).max(if from == to { 1.5 } else { 1.0 });
            return Self::Log(from / factor, to * factor, Vec::new());
        }
        let margin_width = match to - from {
            0.0 if from == 0.0 => 0.5,
            0.0 => from.abs() * 0.1,
            range => range * margin,
        };
        Self::Linear(from - margin_width, to + margin_width)
    }

    /// The place of a number, from 0 to 1 between the ends.
    pub(crate) fn place(&self, value: f64) -> f64 {
        match self {
            Self::Linear(from, to) | Self::Whole(from, to) => (value - from) / (to - from),
            Self::Log(from, to, _) => (value / from).ln() / (to / from).ln(),
            Self::Words(words) => (value + 0.5) / words.len().max(1) as f64,
        }
    }

    /// The power of ten by which the labels of ticks are to be multiplied; 0 for none.
    pub(crate) fn exponent(&self) -> i32 {
        let (Self::Linear(from, to) | Self::Whole(from, to)) = self else { return 0 };
        let greatest = from.abs().max(to.abs());
        if greatest == 0.0 || (1e-3..1e5).contains(&greatest) {
            return 0;
        }
        greatest.log10().floor() as i32
    }

    /// Ticks, about `most` of them with a label.
    pub(crate) fn ticks(&self, most: usize) -> Vec<Tick> {
        match self {
            Self::Linear(from, to) => self.even(*from, *to, most, 0.0),
            Self::Whole(from, to) => self.even(*from, *to, most, 1.0),
            Self::Log(from, to, at) if at.is_empty() => self.decades(*from, *to, most),
            Self::Log(_, _, at) => at
                .iter()
                .map(|value| Tick { place: self.place(*value), label: plain(*value) })
                .collect(),
            Self::Words(words) => words
                .iter()
                .enumerate()
                .map(|(at, word)| Tick { place: self.place(at as f64), label: word.clone() })
                .collect(),
        }
    }

    fn even(&self, from: f64, to: f64, most: usize, least: f64) -> Vec<Tick> {
        let step = nice_step((to - from) / most.max(1) as f64).max(least);
        let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
        let exponent = self.exponent();
        let unit = 10f64.powi(exponent);
        let decimals = (-(step / unit).log10().floor()).clamp(0.0, 12.0) as usize;
        (first..=last)
            .map(|number| {
                let value = number as f64 * step;
                Tick {
                    place: self.place(value),
                    label: minus(&format!("{:.decimals$}", value / unit)),
                }
            })
            .collect()
    }

    fn decades(&self, from: f64, to: f64, most: usize) -> Vec<Tick> {
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let inside = |value: f64| value >= from * (1.0 - 1e-9) && value <= to * (1.0 + 1e-9);
        let n_decades = (first..=last).filter(|&e| inside(10f64.powi(e))).count();
        let every = n_decades.div_ceil(most.max(1)).max(1) as i32;
        let parts: &[u32] = match n_decades {
            0 | 1 if to < 10.0 * from => &[1, 2, 3, 5, 7],
            0..=2 if n_decades < 2 || most > 4 => &[1, 2, 5],
            _ => &[1],
        };
        let is_plain = from >= 1e-3 && to < 1e5;
        let mut ticks = Vec::new();
        for exponent in first..=last {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                if !inside(value) {
                    continue;
                }
                let has_label = parts.contains(&digit) && exponent.rem_euclid(every) == 0;
                let label = match (has_label, is_plain) {
                    (false, _) => String::new(),
                    (true, true) => plain(value),
                    (true, false) => power(digit, exponent),
                };
                if every == 1 || has_label {
                    ticks.push(Tick { place: self.place(value), label });
                }
            }
        }
        // Between neighbouring digits there are no such numbers.
        match ticks.iter().filter(|tick| !tick.label.is_empty()).count() {
            0 | 1 => self.even(from, to, most, 0.0),
            _ => ticks,
        }
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let size = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 5.0].into_iter().find(|step| step * size >= least * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * size
}

/// A number as a label, with the minus sign of print.
pub(super) fn plain(value: f64) -> String {
    minus(&crate::base::words::figures(value, 6))
}

/// A number with so many digits, with the minus sign of print.
pub(super) fn digits(value: f64, digits: usize) -> String {
    minus(&crate::base::words::figures(value, digits))
}

/// How many digits tell numbers apart: three, or as many more as they differ less than they are large; at most eight.
pub(super) fn digits_between(numbers: impl Iterator<Item = f64>) -> usize {
    let ends = numbers.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, greatest], number| {
        [least.min(number), greatest.max(number)]
    });
    let [least, greatest] = ends;
    let power = |size: f64| size.log10().floor();
    match greatest - least {
        spread if spread > 0.0 && spread.is_finite() => {
            let further_digits = power(least.abs().max(greatest.abs())) - power(spread);
            (2.0 + further_digits).clamp(3.0, 8.0) as usize
        }
        _ => 3,
    }
}

/// A number with the minus sign of print.
pub(super) fn minus(text: &str) -> String {
    text.replace('-', "\u{2212}")
}

/// A power of ten with a factor from 1 to 9: `10⁻³`, `2×10⁻³`.
pub(super) fn power(digit: u32, exponent: i32) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised: String = exponent
        .to_string()
        .chars()
        .map(|c| c.to_digit(10).map_or('⁻', |digit| RAISED[digit as usize]))
        .collect();
    if digit == 1 { format!("10{raised}") } else { format!("{digit}×10{raised}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale, most: usize) -> String {
        let ticks = scale.ticks(most);
        let all: Vec<&str> = ticks.iter().map(|t| &*t.label).filter(|l| !l.is_empty()).collect();
        all.join(" ")
    }

    #[test]
    fn ticks_are_round_numbers_with_as_many_digits_as_tell_them_apart() {
        for (scale, most, expected) in [
            (Scale::Linear(0.0, 1.0), 5, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (Scale::Linear(-1.0, 1.1), 4, "\u{2212}1 0 1"),
            (Scale::Linear(0.97, 0.98), 4, "0.970 0.975 0.980"),
            (Scale::Linear(0.0, 2e7), 4, "0.0 0.5 1.0 1.5 2.0"),
            (Scale::Whole(1.0, 4.0), 8, "1 2 3 4"),
            (Scale::Log(1e-5, 1.0, Vec::new()), 6, "10⁻⁵ 10⁻⁴ 10⁻³ 10⁻² 10⁻¹ 10⁰"),
            (Scale::Log(1e-5, 1.0, Vec::new()), 3, "10⁻⁴ 10⁻² 10⁰"),
            (Scale::Log(0.15, 6.0, Vec::new()), 5, "0.2 0.5 1 2 5"),
            (Scale::Log(0.31, 0.39, Vec::new()), 5, "0.32 0.34 0.36 0.38"),
            (Scale::Log(1.0, 16.0, vec![1.0, 4.0, 16.0]), 5, "1 4 16"),
        ] {
            assert_eq!(labels(&scale, most), expected, "{scale:?}");
        }
        assert_eq!(Scale::Linear(0.0, 2e7).exponent(), 7);
        assert_eq!(power(2, -13), "2×10⁻¹³");
    }

    #[test]
    fn cells_have_as_many_digits_as_tell_them_apart() {
        for (numbers, expected) in [
            (vec![0.1, 0.9], 3),
            (vec![12.11, 12.16, 12.31], 4),
            (vec![-1000.0, -999.9], 6),
            (vec![1.0, 1.0 + 1e-12], 8),
            (vec![5.0], 3),
            (vec![], 3),
        ] {
            assert_eq!(digits_between(numbers.iter().copied()), expected, "{numbers:?}");
        }
    }

    #[test]
    fn equal_numbers_have_an_axis_too() {
        assert_eq!(Scale::spanning([3.0, 3.0].into_iter(), false, true), Scale::Linear(2.7, 3.3));
        assert_eq!(Scale::spanning([0.0].into_iter(), false, true), Scale::Linear(-0.5, 0.5));
        let Scale::Log(from, to, _) = Scale::spanning([2.0].into_iter(), true, true) else {
            panic!("not logarithmic");
        };
        assert!(from < 2.0 && 2.0 < to);
    }
}
