//! Words for people: counts with the right plural, the nearest known name, shell quoting of one word.
//!
//! Pure text; knows nothing of plans or clusters.

use std::borrow::Cow;

/// How often something happened: `once`, `3 times`.
pub(crate) fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// `count(1, "trial")` is "1 trial", `count(3, "trial")` is "3 trials".
pub fn count(n: u64, noun: &str) -> String {
    if n == 1 {
        return format!("{} {noun}", thousands(n));
    }
    let plural = match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{noun}s"),
    };
    format!("{} {plural}", thousands(n))
}

/// Digits in groups of three: 1234567 is "1,234,567".
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The known name nearest to `word`, if one is near enough to be a slip of the keyboard.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(score, _)| *score >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The words in backticks, joined: "`a`, `b` and `c`".
pub(crate) fn ticked<S: AsRef<str>>(words: &[S]) -> String {
    let ticked: Vec<String> = words.iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match ticked.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// The hint for a word that is not among the known ones: the nearest of these, or `otherwise` ("there are") and their list.
pub(crate) fn suggestion<S: AsRef<str>>(word: &str, known: &[S], otherwise: &str) -> String {
    const MOST: usize = 20;
    if let Some(near) = nearest(word, known.iter().map(AsRef::as_ref)) {
        return format!("did you mean `{near}`?");
    }
    match known.len().saturating_sub(MOST) {
        0 | 1 => format!("{otherwise} {}", ticked(known)),
        more => {
            let first: Vec<String> =
                known[..MOST].iter().map(|name| format!("`{}`", name.as_ref())).collect();
            format!("{otherwise} {} and {more} more", first.join(", "))
        }
    }
}

/// Quotes one word for a POSIX shell so that it stays exactly this text.
///
/// A word of safe characters is left bare; everything else is put between single quotes, a single
/// quote itself as `'\''` (POSIX.1-2017, XCU 2.2.2). A NUL cannot be part of a word: callers refuse it.
pub fn sh_quote(word: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=,+%@".contains(&b);
    if !word.is_empty() && word.bytes().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A text for a line that people read: control characters escaped, at most `most` characters; one that
/// was cut ends in `...`.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i >= most {
            out.truncate(out.char_indices().nth(most.saturating_sub(3)).map_or(0, |(at, _)| at));
            out.push_str("...");
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Text that a terminal shows as it is: characters that would move the cursor, change colours or turn the direction of
/// writing are spelt out (`\u{1b}`). Names, reasons, hosts and metrics come from files that others may have written.
/// Line breaks and tabs stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    spelt(text, |c| c.escape_unicode().to_string())
}

/// JSON for a terminal: the same document, with the characters that would steer it as JSON's own escapes.
pub(crate) fn printable_json(text: &str) -> Cow<'_, str> {
    // All of them are in the first plane of Unicode.
    spelt(text, |c| format!("\\u{:04x}", u32::from(c)))
}

/// The text with each character that steers a terminal as `harmless` spells it.
fn spelt(text: &str, harmless: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let spelt = |c: char| if is_harmful(c) { harmless(c) } else { c.to_string() };
    Cow::Owned(text.chars().map(spelt).collect())
}

/// How numbers are written for people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Significant digits; zeros at the end are left out.
    digits: usize,
    /// Numbers from here on have no exponent.
    least: f64,
    /// Numbers from here on have one.
    most: f64,
    /// Whether `1.0` has its point, which tells it from a whole number.
    has_point: bool,
    /// Whether digits before the point are never rounded.
    is_whole: bool,
}

impl Figures {
    /// Numbers in words and tables of answers.
    const ANSWER: Self =
        Self { digits: 6, least: 1e-4, most: 1e15, has_point: false, is_whole: false };
    /// Values beside their exact form, in the form of plans: `1.0`, `1e-5`. Twelve digits are all that a person has written,
    /// without what binary fractions add to it.
    pub(crate) const EXACT: Self =
        Self { digits: 12, least: 1e-5, most: 1e16, has_point: true, is_whole: false };
    /// Numbers in the words of a report.
    pub(crate) const REPORT: Self =
        Self { digits: 4, least: 1e-3, most: 1e6, has_point: false, is_whole: true };

    /// The same with so many significant digits.
    pub(crate) const fn digits(self, digits: usize) -> Self {
        Self { digits, ..self }
    }

    /// A number in this form; `nan`, `inf` and `-inf` as plans have them.
    pub(crate) fn of(self, number: f64) -> String {
        if !number.is_finite() {
            return format!("{number}").to_lowercase();
        }
        let to = |digits: usize| -> f64 {
            format!("{number:.*e}", digits.saturating_sub(1)).parse().unwrap_or(number)
        };
        let mut rounded = to(self.digits);
        if self.is_whole && (self.least..self.most).contains(&number.abs()) {
            let before = number.abs().log10().floor() as i64 + 1;
            rounded = to(self.digits.max(usize::try_from(before).unwrap_or(0)));
        }
        match rounded.abs() {
            0.0 if !self.has_point => "0".to_owned(),
            size if size == 0.0 || (self.least..self.most).contains(&size) => {
                match self.has_point {
                    true => format!("{rounded:?}"),
                    false => format!("{rounded}"),
                }
            }
            _ => format!("{rounded:e}"),
        }
    }
}

/// A number for people: so many significant digits, without zeros at the end.
pub(crate) fn figures(number: f64, digits: usize) -> String {
    Figures::ANSWER.digits(digits).of(number)
}

/// A number with as many digits as a spread of `half` around it leaves sense: two of its own. Numbers beside each other
/// with the same spread have the same decimals.
pub(crate) fn within(number: f64, half: f64) -> String {
    if half <= 0.0 || !half.is_finite() || !number.is_finite() {
        return figures(number, 6);
    }
    let size = number.abs().max(half);
    // Fifteen digits are all that a float is sure of.
    let decimals = (1 - half.log10().floor() as i32).min(14 - size.log10().floor() as i32);
    match decimals {
        _ if !(1e-4..1e15).contains(&size) => {
            let digits = (size.log10().floor() as i32 + decimals).clamp(1, 15);
            format!("{number:.*e}", digits as usize)
        }
        _ => {
            let text = format!("{number:.*}", decimals.max(0) as usize);
            let is_nothing = text.trim_start_matches('-').bytes().all(|b| matches!(b, b'0' | b'.'));
            if is_nothing { text.trim_start_matches('-').to_owned() } else { text }
        }
    }
}

/// Both ends of an interval with the digits that its width leaves sense: `[0.310, 0.333]`; empty without one.
pub(crate) fn ends(interval: Option<[f64; 2]>) -> String {
    let Some([low, high]) = interval else { return String::new() };
    let half = (high - low) / 2.0;
    format!("[{}, {}]", within(low, half), within(high, half))
}

/// Seconds as people read them: "0.3 s", "42 s", "3 min 20 s", "2 h 05 min", "3 d 04 h".
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {:02} h", whole / 86400, whole % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_steers_a_terminal() {
        let check = |text: &str, shown: &str| assert_eq!(printable(text), shown);
        check("two words\n\tand é, 中, 🎉", "two words\n\tand é, 中, 🎉");
        check("\u{1b}[2J\u{7}", "\\u{1b}[2J\\u{7}");
        check("\u{9b}31m\u{7f}\r", "\\u{9b}31m\\u{7f}\\u{d}");
        check("a\u{202e}cod.exe\u{2066}", "a\\u{202e}cod.exe\\u{2066}");
        let value = serde_json::json!({"é\u{9b}": ["\u{202e}\u{7f}\n中", "\u{61c}\u{2066}"]});
        let shown = printable_json(&value.to_string()).into_owned();
        let expected = r#"{"é\u009b":["\u202e\u007f\n中","\u061c\u2066"]}"#;
        assert_eq!(shown, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn numbers_have_one_definition_with_options() {
        let (answer, exact, report) = (Figures::ANSWER, Figures::EXACT, Figures::REPORT);
        for (number, words) in [
            (0.0, ["0", "0.0", "0"]),
            (1.0, ["1", "1.0", "1"]),
            (0.022_000_000_000_000_002, ["0.022", "0.022", "0.022"]),
            (12345.678, ["12345.7", "12345.678", "12346"]),
            (0.000_012_5, ["1.25e-5", "1.25e-5", "1.25e-5"]),
            (-0.000_25, ["-0.00025", "-0.00025", "-2.5e-4"]),
            (1.5e9, ["1500000000", "1500000000.0", "1.5e9"]),
            (f64::NAN, ["nan"; 3]),
            (f64::NEG_INFINITY, ["-inf"; 3]),
        ] {
            assert_eq!([answer, exact, report].map(|form| form.of(number)), words, "{number}");
        }
        assert_eq!(exact.digits(6).of(0.123_456_78), "0.123457");
        assert_eq!(report.digits(2).of(0.958), "0.96");
    }

    #[test]
    fn counts_have_the_right_plural() {
        let check = |n, noun, expected: &str| assert_eq!(count(n, noun), expected);
        check(1, "trial", "1 trial");
        check(0, "array", "0 arrays");
        check(1_234_567, "trial", "1,234,567 trials");
        check(2, "retry", "2 retries");
        check(2, "day", "2 days");
    }

    #[test]
    fn nearest_finds_slips_and_only_slips() {
        let known = ["walltime", "memory", "partition"];
        assert_eq!(nearest("wall_time", known), Some("walltime"));
        assert_eq!(nearest("partitoin", known), Some("partition"));
        assert_eq!(nearest("zzz", known), None);
    }

    #[test]
    fn durations_read_well() {
        let check = |s, expected: &str| assert_eq!(duration(s), expected);
        check(0.26, "0.3 s");
        check(42.0, "42 s");
        check(200.0, "3 min 20 s");
        check(7500.0, "2 h 05 min");
        check(273_600.0, "3 d 04 h");
    }

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let check = |number, digits, expected: &str| assert_eq!(figures(number, digits), expected);
        check(0.1 + 0.2, 6, "0.3");
        check(123456789.0, 3, "123000000");
        check(1.23456e-7, 3, "1.23e-7");
        check(-0.0, 3, "0");
        check(f64::NAN, 3, "nan");
        let check = |number, half, expected: &str| assert_eq!(within(number, half), expected);
        check(0.321_456, 0.012, "0.321");
        check(12.5, 0.25, "12.50");
        check(-0.045, 16.0, "0");
        check(1234.567, 87.0, "1235");
        check(1.234_56e-8, 3e-10, "1.235e-8");
        check(0.5, 0.0, "0.5");
        check(12.31, 1e-16, "12.3100000000000");
    }
}
