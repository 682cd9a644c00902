//! `range`, `linear` and `log`: values that two ends describe, for the axes of a plan and for the words of `hpcsweep run`.
//!
//! Pure. Ranges count in decimals, `linear` keeps twelve digits and `log` eight, as `[sample]` does.

use crate::base::words;
use crate::plan::expansion::trials::MAX_TRIALS;
use crate::plan::value::Value;

/// How the values between two ends are spaced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spacing {
    /// By equal steps.
    Linear,
    /// By equal ratios.
    Log,
}

impl Spacing {
    /// Each with its word.
    pub(crate) const WORDS: [(&'static str, Self); 2] =
        [("linear", Self::Linear), ("log", Self::Log)];
}

/// Why there are no values.
#[derive(Debug, PartialEq)]
pub(crate) enum Flaw {
    NoNumbers,
    /// A number of values, as it is written, that is none or less than 2.
    NoCount(String),
    TooMany(u128),
    TooNear,
    /// The ends and the step have too many digits between them.
    TooFar,
    /// An end of `log`.
    NotPositive,
    /// The ends are not whole, and there is no step.
    NoStep,
    ZeroStep,
    /// The range leads down, and there is no step.
    Reversed,
    /// The step leads away from the end; the other step.
    Away(String),
    /// The step jumps over the end.
    Misses {
        step: String,
        /// The last value before the end.
        last: String,
        /// The step nearest to it that meets the end.
        nearest: Option<String>,
    },
}

impl Flaw {
    /// A sentence about `what`, such as "`range` of `lr`", and what to write instead.
    pub(crate) fn told(&self, what: &str) -> (String, String) {
        let most = words::count(MAX_TRIALS, "trial");
        let (sentence, hint) = match self {
            Self::NoNumbers => {
                (format!("the ends of {what} are not numbers"), "write finite numbers".to_owned())
            }
            Self::NoCount(n) => (
                format!("`{n}` is not a number of values, 2 or more"),
                "write both ends, then how many values: `log(1e-4,1e-1,7)` or `{ log = [1e-4, 1e-1, 7] }`".to_owned(),
            ),
            Self::TooMany(n) => {
                let n = u64::try_from(*n).map_or_else(|_| n.to_string(), words::thousands);
                (format!("{n} values of {what} are more than the {most} a plan may have"), "give fewer values".to_owned())
            }
            Self::TooNear => (
                format!("the ends of {what} are too near for so many values"),
                "give fewer values, or other ends".to_owned(),
            ),
            Self::TooFar => (
                format!("the ends and the step of {what} differ too much in size"),
                "use `log`, or other numbers".to_owned(),
            ),
            Self::NotPositive => (
                format!("the ends of {what} are not greater than 0"),
                "use `linear`, or other ends".to_owned(),
            ),
            Self::NoStep => (
                format!("{what} has ends that are not whole numbers, and no step"),
                "add the step, as in `{ range = [0.1, 0.5], step = 0.1 }`, or write `linear = [LOW, HIGH, N]` for N values"
                    .to_owned(),
            ),
            Self::ZeroStep => {
                (format!("the step of {what} is 0"), "write another step".to_owned())
            }
            Self::Reversed => (
                format!("{what} ends before it begins"),
                "write the smaller number first, or add `step = -1` to count down".to_owned(),
            ),
            Self::Away(step) => (
                format!("the step of {what} leads away from its end"),
                format!("write `step = {step}`"),
            ),
            Self::Misses { step, last, nearest } => {
                let nearest =
                    nearest.as_ref().map(|step| format!(", or write `step = {step}`"));
                (
                    format!("{what} does not meet its end by steps of {step}"),
                    format!("end it at {last}{}", nearest.unwrap_or_default()),
                )
            }
        };
        (sentence, hint)
    }
}

/// A finite number as it is written, without rounding.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    digits: i128,
    /// The power of ten of the last digit.
    power: i32,
    /// Whether it is written as an integer of 64 bits.
    is_whole: bool,
}

impl Decimal {
    const ONE: Self = Self { digits: 1, power: 0, is_whole: true };

    fn read(text: &str) -> Option<Self> {
        let (number, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}").parse().ok()?;
        let power = power.parse::<i32>().ok()?.checked_sub(i32::try_from(part.len()).ok()?)?;
        let number = Self { digits, power, is_whole: text.parse::<i64>().is_ok() };
        number.float().is_finite().then_some(number)
    }

    /// The nearest float.
    fn float(self) -> f64 {
        // Of zeros there is one.
        format!("{}e{}", self.digits, self.power).parse().unwrap_or(f64::NAN) + 0.0
    }

    /// Its digits down to a power of ten that is not above its own.
    fn digits_to(self, power: i32) -> Option<i128> {
        let more = u32::try_from(self.power.checked_sub(power)?).ok()?;
        self.digits.checked_mul(10i128.checked_pow(more)?)
    }

    fn value(self) -> Value {
        let whole = i64::try_from(self.digits).ok().filter(|_| self.is_whole);
        whole.map_or_else(|| Value::Float(self.float()), Value::Int)
    }
}

/// The values from `low` to `high`, both included; the step is 1 if none is written between whole numbers.
///
/// # Errors
/// With the flaw of what is written.
pub(crate) fn range(low: &str, high: &str, step: Option<&str>) -> Result<Vec<Value>, Flaw> {
    let read = |text| Decimal::read(text).ok_or(Flaw::NoNumbers);
    let (low, high) = (read(low)?, read(high)?);
    let written = step.map(read).transpose()?;
    let is_whole = low.is_whole && high.is_whole && written.is_none_or(|step| step.is_whole);
    let step = written.or(is_whole.then_some(Decimal::ONE)).ok_or(Flaw::NoStep)?;
    let power = low.power.min(high.power).min(step.power);
    let digits = |number: Decimal| number.digits_to(power).ok_or(Flaw::TooFar);
    let (from, to, by) = (digits(low)?, digits(high)?, digits(step)?);
    let span = to.checked_sub(from).ok_or(Flaw::TooFar)?;
    let at = |digits| Decimal { digits, power, is_whole };
    if by == 0 {
        return Err(Flaw::ZeroStep);
    }
    if span.signum() == -by.signum() {
        let away = || Flaw::Away(at(-by).value().to_string());
        return Err(written.map_or(Flaw::Reversed, |_| away()));
    }
    if span % by != 0 {
        return Err(Flaw::Misses {
            step: at(by).value().to_string(),
            last: at(to - span % by).value().to_string(),
            nearest: nearest_step(span, at(by)).map(|step| step.value().to_string()),
        });
    }
    let n = span / by + 1;
    if n > i128::from(MAX_TRIALS) {
        return Err(Flaw::TooMany(n.unsigned_abs()));
    }
    Ok((0..n).map(|i| at(from + i * by).value()).collect())
}

/// The step nearest to `step` that divides a span into equal parts; a decimal may have two digits more.
fn nearest_step(span: i128, step: Decimal) -> Option<Decimal> {
    /// Steps beyond these are no slip of the one that is written.
    const MOST: usize = 10_000;
    let more = if step.is_whole { 0 } else { 2 };
    let power = step.power.checked_sub(more)?;
    let span = span.checked_mul(10i128.pow(more as u32))?;
    let by = step.digits_to(power)?;
    let n = (span / by).max(1);
    let meets = |n: &i128| span % n == 0;
    let fewer = (1..=n).rev().take(MOST).find(meets);
    let more = (n + 1..=span.abs()).take(MOST).find(meets);
    let steps = [fewer, more].into_iter().flatten().map(|n| span / n);
    let digits = steps.min_by_key(|candidate| (candidate - by).abs())?;
    Some(Decimal { digits, power, is_whole: step.is_whole })
}

/// `n` values from `low` to `high`, both included.
///
/// # Errors
/// With the flaw of what is written.
pub(crate) fn spaced(spacing: Spacing, low: &str, high: &str, n: &str) -> Result<Vec<Value>, Flaw> {
    let read = |text| Decimal::read(text).ok_or(Flaw::NoNumbers);
    let (low, high) = (read(low)?, read(high)?);
    let count = n.parse::<u128>().ok().filter(|count| *count >= 2);
    let count = count.ok_or_else(|| Flaw::NoCount(n.to_owned()))?;
    let count = u32::try_from(count)
        .ok()
        .filter(|count| u64::from(*count) <= MAX_TRIALS)
        .ok_or(Flaw::TooMany(count))?;
    let (from, to) = (low.float(), high.float());
    if spacing == Spacing::Log && (from <= 0.0 || to <= 0.0) {
        return Err(Flaw::NotPositive);
    }
    if let Some(values) = whole(spacing, [low, high], count) {
        return Ok(values);
    }
    let largest = from.abs().max(to.abs());
    let inner = |i| match spacing {
        Spacing::Linear => twelve_digits(between(spacing, [from, to], count, i), largest),
        Spacing::Log => eight_digits(between(spacing, [from, to], count, i)),
    };
    let values: Vec<f64> = (0..count)
        .map(|i| match i {
            0 => from,
            _ if i == count - 1 => to,
            _ => inner(i),
        })
        .collect();
    let is_step = |pair: &[f64]| pair[0] != pair[1] && (pair[0] < pair[1]) == (from < to);
    let is_strict = values.windows(2).all(is_step);
    if is_strict { Ok(values.into_iter().map(Value::Float).collect()) } else { Err(Flaw::TooNear) }
}

/// The value with the number `i` of `count`, without rounding.
fn between(spacing: Spacing, [from, to]: [f64; 2], count: u32, i: u32) -> f64 {
    let part = f64::from(i) / f64::from(count - 1);
    let mean = |from: f64, to: f64| from * (1.0 - part) + to * part;
    match spacing {
        Spacing::Linear => mean(from, to),
        Spacing::Log => libm::exp(mean(libm::log(from), libm::log(to))),
    }
}

/// The values, if ends that are whole have nothing but whole numbers between them.
fn whole(spacing: Spacing, [low, high]: [Decimal; 2], count: u32) -> Option<Vec<Value>> {
    if !low.is_whole || !high.is_whole || low.digits == high.digits {
        return None;
    }
    let last = i128::from(count - 1);
    let ends = [low.float(), high.float()];
    let values: Vec<i128> = (0..count)
        .map(|i| match (spacing, i128::from(i)) {
            (_, 0) => low.digits,
            (_, i) if i == last => high.digits,
            (Spacing::Linear, i) => low.digits + (high.digits - low.digits) / last * i,
            (Spacing::Log, _) => between(spacing, ends, count, i).round() as i128,
        })
        .collect();
    let is_even = |three: &[i128]| match spacing {
        Spacing::Linear => three[1] - three[0] == three[2] - three[1],
        Spacing::Log => three[1] * three[1] == three[0] * three[2],
    };
    let values = values.windows(3).all(is_even).then_some(values)?;
    values.into_iter().map(|value| i64::try_from(value).ok().map(Value::Int)).collect()
}

/// Eight significant digits: short to read, and the same on machines whose `exp` and `ln` differ in
/// the last bit, so that a plan read again is the same plan.
pub(super) fn eight_digits(number: f64) -> f64 {
    format!("{number:.7e}").parse().unwrap_or(number)
}

/// A number with twelve digits, counted from the first one of the largest.
fn twelve_digits(number: f64, largest: f64) -> f64 {
    let first = libm::log10(largest).floor() as i32;
    // A float has no more than 324 decimals before its first digit.
    let decimals = 11i32.saturating_sub(first).clamp(0, 340) as usize;
    // Through text, whose nearest float is the shortest one to read: 0.3 and not 0.30000000000000004.
    format!("{number:.decimals$}").parse::<f64>().unwrap_or(number) + 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(values: Result<Vec<Value>, Flaw>) -> String {
        match values {
            Ok(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Err(flaw) => {
                let (sentence, hint) = flaw.told("`x`");
                format!("{sentence} | {hint}")
            }
        }
    }

    #[test]
    fn a_range_has_both_ends_and_exact_decimals() {
        for (low, high, step, expected) in [
            ("1", "5", None, "1 2 3 4 5"),
            ("-2", "1", None, "-2 -1 0 1"),
            ("7", "7", None, "7"),
            ("0", "10", Some("5"), "0 5 10"),
            ("5", "1", Some("-2"), "5 3 1"),
            ("0.1", "0.5", Some("0.1"), "0.1 0.2 0.3 0.4 0.5"),
            ("0", "1", Some("0.25"), "0.0 0.25 0.5 0.75 1.0"),
            ("-0.1", "0.1", Some("0.1"), "-0.1 0.0 0.1"),
            ("1e-3", "3e-3", Some("0.001"), "0.001 0.002 0.003"),
            ("1e3", "3e3", Some("1000"), "1000.0 2000.0 3000.0"),
            (
                "9223372036854775806",
                "9223372036854775807",
                None,
                "9223372036854775806 9223372036854775807",
            ),
        ] {
            assert_eq!(shown(range(low, high, step)), expected, "{low} {high}");
        }
    }

    #[test]
    fn a_range_that_is_none_says_why_and_what_is_near() {
        let near = "does not meet its end by steps of";
        for (low, high, step, expected) in [
            (
                "0.1",
                "0.5",
                None,
                "`x` has ends that are not whole numbers, and no step | add the step, as in `{ range = [0.1, 0.5], step = 0.1 }`, or write `linear = [LOW, HIGH, N]` for N values",
            ),
            (
                "5",
                "1",
                None,
                "`x` ends before it begins | write the smaller number first, or add `step = -1` to count down",
            ),
            ("5", "1", Some("2"), "the step of `x` leads away from its end | write `step = -2`"),
            (
                "0.1",
                "0.5",
                Some("-0.1"),
                "the step of `x` leads away from its end | write `step = 0.1`",
            ),
            ("1", "5", Some("0.0"), "the step of `x` is 0 | write another step"),
            (
                "0",
                "1",
                Some("0.3"),
                &format!("`x` {near} 0.3 | end it at 0.9, or write `step = 0.25`"),
            ),
            ("1", "20", Some("2"), &format!("`x` {near} 2 | end it at 19, or write `step = 1`")),
            (
                "20",
                "1",
                Some("-18"),
                &format!("`x` {near} -18 | end it at 2, or write `step = -19`"),
            ),
            ("0", "1", Some("3"), &format!("`x` {near} 3 | end it at 0, or write `step = 1`")),
            ("1", "10000001", None, "10,000,001 values of `x`"),
            ("1e-300", "1e300", Some("1"), "the ends and the step of `x` differ too much in size"),
            ("nan", "1", None, "the ends of `x` are not numbers"),
            ("0", "inf", Some("1"), "the ends of `x` are not numbers"),
        ] {
            let said = shown(range(low, high, step));
            let expected = if expected.contains(" | ") {
                said == expected
            } else {
                said.starts_with(expected)
            };
            assert!(expected, "{low} {high} {step:?}: {said}");
        }
        let many = "10,000,001 values of `x` are more than the 10,000,000 trials a plan may have | give fewer values";
        assert_eq!(shown(range("1", "10000001", None)), many);
        assert_eq!(shown(spaced(Spacing::Log, "1", "2", "10000001")), many);
    }

    #[test]
    fn spaced_values_have_exact_ends_and_short_decimals() {
        use Spacing::{Linear, Log};
        for (spacing, low, high, n, expected) in [
            (Linear, "0.0", "1.0", "11", "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0"),
            (Linear, "0", "1", "5", "0.0 0.25 0.5 0.75 1.0"),
            (Linear, "0", "100", "5", "0 25 50 75 100"),
            (Linear, "0", "100.0", "3", "0.0 50.0 100.0"),
            (Linear, "-0.3", "0.3", "3", "-0.3 0.0 0.3"),
            (Linear, "1", "0", "3", "1.0 0.5 0.0"),
            (
                Linear,
                "9223372036854775803",
                "9223372036854775807",
                "3",
                "9223372036854775803 9223372036854775805 9223372036854775807",
            ),
            (Linear, "-1e308", "1e308", "3", "-1e308 0.0 1e308"),
            (Log, "1e-4", "1e-1", "4", "0.0001 0.001 0.01 0.1"),
            (
                Log,
                "1e-4",
                "1e-1",
                "7",
                "0.0001 0.00031622777 0.001 0.0031622777 0.01 0.031622777 0.1",
            ),
            (Log, "1", "1000", "4", "1 10 100 1000"),
            (Log, "1000", "1", "4", "1000 100 10 1"),
            (Log, "4", "9", "3", "4 6 9"),
            (Log, "1", "1000", "3", "1.0 31.622777 1000.0"),
            (Log, "16", "4294967296", "3", "16 262144 4294967296"),
            (Log, "1e-300", "1e300", "3", "1e-300 1.0 1e300"),
        ] {
            let said = shown(spaced(spacing, low, high, n)).replace(&float_exact(-1e308), "-1e308");
            assert_eq!(said, expected, "{spacing:?} {low} {high}");
        }
        for (spacing, low, high, n, expected) in [
            (
                Log,
                "0",
                "1",
                "3",
                "the ends of `x` are not greater than 0 | use `linear`, or other ends",
            ),
            (Log, "-1", "-9", "3", "the ends of `x` are not greater than 0"),
            (Linear, "1", "1", "3", "the ends of `x` are too near for so many values"),
            (Log, "1.0", "1.00000001", "9", "the ends of `x` are too near"),
            (Linear, "0", "1", "1", "`1` is not a number of values, 2 or more"),
            (Linear, "0", "1", "2.5", "`2.5` is not a number of values, 2 or more"),
            (Linear, "a", "1", "2", "the ends of `x` are not numbers"),
        ] {
            let said = shown(spaced(spacing, low, high, n));
            assert!(said.starts_with(expected), "{said}");
        }
    }

    /// A large negative float has no exponent as text.
    fn float_exact(float: f64) -> String {
        crate::plan::float_text(float)
    }

    proptest! {
        #[test]
        fn a_range_is_what_counting_in_whole_numbers_gives(low in -1000i64..1000, by in 1i64..50, n in 0i64..50, decimals in 0usize..6) {
            let text = |digits: i64| {
                let sign = if digits < 0 { "-" } else { "" };
                let digits = format!("{:0>1$}", digits.abs(), decimals + 1);
                let (whole, part) = digits.split_at(digits.len() - decimals);
                format!("{sign}{whole}.{part}0")
            };
            let values = range(&text(low), &text(low + n * by), Some(&text(by))).unwrap();
            let expected: Vec<Value> = (0..=n).map(|i| Value::Float(text(low + i * by).parse::<f64>().unwrap() + 0.0)).collect();
            prop_assert_eq!(values, expected);
        }
    }
}
