//! The words `lr=0.1,0.01`, `seed=1..5` and `lr=log(1e-4,1e-1,7)`: parameters with their values, as a plan has them.
//!
//! Pure text. A value is what docs/plan.md ("What a cell means") says of a cell, without its words for missing values.

use crate::base::fault::Fault;
use crate::base::words::{nearest, sh_quote, short};
use crate::plan::{MAX_TRIALS, RESERVED_NAMES, float_text, toml_text};

/// A parameter and its values.
#[derive(Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    /// In TOML; at least one.
    pub(super) values: Vec<String>,
}

/// Functions of two ends and a number of values.
const SPACINGS: [&str; 2] = ["linear", "log"];

/// The forms of a word, for hints.
const FORMS: &str =
    "write `NAME=VALUES`: `lr=0.1,0.01`, `seed=1..5`, `lr=log(1e-4,1e-1,7)`, `x=linear(0,1,11)`";

/// Reads words. `taken` is the parameter that lines of input have.
///
/// # Errors
/// With the first word that is no axis.
pub(super) fn read(words: &[String], taken: Option<&str>) -> Result<Vec<Axis>, Fault> {
    let mut axes: Vec<Axis> = Vec::with_capacity(words.len());
    for word in words {
        let place = || format!("on the command line: {}", short(&sh_quote(word), 100));
        let axis = axis(word).map_err(|fault| fault.at(place()))?;
        if axes.iter().any(|other| other.name == axis.name) {
            let fault = Fault::request(format!("`{}` is given twice", axis.name)).at(place());
            return Err(
                fault.hint(format!("write all its values in one word: `{}=A,B`", axis.name))
            );
        }
        if taken == Some(&*axis.name) {
            let fault =
                Fault::request(format!("`{}` is what each line of input is called", axis.name));
            return Err(fault.at(place()).hint("choose another name for this parameter"));
        }
        axes.push(axis);
    }
    let points = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(axis.values.len() as u64));
    if points.is_none_or(|points| points > MAX_TRIALS) {
        let sentence = format!("these axes make more than {MAX_TRIALS} trials");
        return Err(Fault::request(sentence).hint("give fewer values"));
    }
    Ok(axes)
}

fn axis(word: &str) -> Result<Axis, Fault> {
    let Some((name, values)) = word.split_once('=') else {
        let sentence = format!("`{}` is no axis", short(word, 60));
        return Err(
            Fault::request(sentence).hint(format!("{FORMS}; the command stands after `--`"))
        );
    };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    if !name.split('.').all(is_part) {
        let sentence = format!("a parameter cannot be called `{}`", short(name, 60));
        return Err(Fault::request(sentence).hint(
            "use letters, digits, `_` and `-`, a letter first, with dots between tables: `opt.lr=0.1`",
        ));
    }
    if name.split('.').next().is_some_and(|top| RESERVED_NAMES.contains(&top)) {
        let sentence = format!("a parameter cannot be called `{name}`");
        return Err(Fault::request(sentence)
            .hint("choose another name: plans use this one for something else"));
    }
    let values = match spaced(values) {
        Some(values) => values?,
        None => list(name, values)?,
    };
    Ok(Axis { name: name.to_owned(), values })
}

/// The values of `log(LOW,HIGH,N)` and `linear(LOW,HIGH,N)`; `None` for a list.
fn spaced(text: &str) -> Option<Result<Vec<String>, Fault>> {
    let (function, ends) = text.strip_suffix(')')?.split_once('(')?;
    if !function.chars().all(|c| c.is_ascii_alphabetic()) || function.is_empty() {
        return None;
    }
    let wrong = |sentence: String, hint: &str| Some(Err(Fault::request(sentence).hint(hint)));
    if !SPACINGS.contains(&function) {
        let known = nearest(function, SPACINGS).unwrap_or("linear");
        return wrong(
            format!("`{function}(...)` is not a function of values"),
            &format!("write `{known}(LOW,HIGH,N)`, or quotes for a text: `'\"{text}\"'`"),
        );
    }
    let form = format!(
        "write `{function}(LOW,HIGH,N)`, with both ends among N values: `log(1e-4,1e-1,7)`"
    );
    let parts: Vec<&str> = ends.split(',').map(str::trim).collect();
    let [low, high, n] = *parts else {
        return wrong(format!("`{text}` does not have two ends and a number of values"), &form);
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let (Some(from), Some(to)) = (number(low), number(high)) else {
        return wrong(format!("the ends of `{text}` are not numbers"), &form);
    };
    let Some(n) = n.parse::<u32>().ok().filter(|n| (2..=MAX_TRIALS).contains(&u64::from(*n)))
    else {
        return wrong(format!("`{n}` is not a number of values, 2 or more"), &form);
    };
    if function == "log" && (from <= 0.0 || to <= 0.0) {
        return wrong(
            format!("the ends of `{text}` are not greater than 0"),
            "use `linear`, or other ends",
        );
    }
    let last = f64::from(n - 1);
    let inner = |i: u32| {
        let part = f64::from(i) / last;
        match function {
            // Eight digits are what `[sample]` draws.
            "log" => rounded(from * (to / from).powf(part), from.abs().min(to.abs()), 8),
            _ => rounded(from + (to - from) * part, from.abs().max(to.abs()), 12),
        }
    };
    let values: Vec<f64> = (0..n)
        .map(|i| {
            if i == 0 {
                from
            } else if i == n - 1 {
                to
            } else {
                inner(i)
            }
        })
        .collect();
    let mut steps = values.windows(2);
    if !steps.all(|pair| (pair[0] < pair[1]) == (from < to) && pair[0] != pair[1]) {
        return wrong(format!("the ends of `{text}` are too near for so many values"), &form);
    }
    let is_whole = [low, high].iter().all(|end| end.parse::<i64>().is_ok())
        && values.iter().all(|value| value.fract() == 0.0);
    let shown = |value: &f64| if is_whole { format!("{value}") } else { float_text(*value) };
    Some(Ok(values.iter().map(shown).collect()))
}

/// A number with so many digits, counted from the first one of `size` or its own.
fn rounded(number: f64, size: f64, digits: i32) -> f64 {
    let first = size.max(number.abs()).log10().floor() as i32;
    // A float has no more than 324 decimals before its first digit.
    let decimals = (digits - 1).saturating_sub(first).clamp(0, 340) as usize;
    // Through text, whose nearest float is the shortest one to read: 0.3 and not 0.30000000000000004.
    format!("{number:.decimals$}").parse::<f64>().unwrap_or(number) + 0.0
}

/// The values of a list: an element is a value, a range of whole numbers, or a text in quotes.
fn list(name: &str, text: &str) -> Result<Vec<String>, Fault> {
    let mut values = Vec::new();
    let mut unread = text;
    loop {
        let after = match unread.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = closed(quoted).ok_or_else(|| {
                    let sentence = format!("the quotes of `{}` do not close", short(unread, 60));
                    Fault::request(sentence).hint("a text in quotes ends in `\"` before a comma or the end; `\"\"` is a quote within")
                })?;
                values.push(toml_text(&value));
                after
            }
            None => {
                let end = unread.find(',').unwrap_or(unread.len());
                element(name, unread[..end].trim(), &mut values)?;
                &unread[end..]
            }
        };
        if values.len() as u64 > MAX_TRIALS {
            let sentence = format!("`{name}` has more than {MAX_TRIALS} values");
            return Err(Fault::request(sentence).hint("give fewer values"));
        }
        match after.strip_prefix(',') {
            Some(next) => unread = next,
            None => return Ok(values),
        }
    }
}

/// The text up to its closing quote, and what is behind it, which is a comma or nothing.
fn closed(quoted: &str) -> Option<(String, &str)> {
    let mut at = 0;
    loop {
        at += quoted[at..].find('"')?;
        let after = &quoted[at + 1..];
        if after.starts_with('"') {
            at += 2;
        } else {
            let is_end = after.is_empty() || after.starts_with(',');
            return is_end.then(|| (quoted[..at].replace("\"\"", "\""), after));
        }
    }
}

/// Adds the values of one element without quotes.
fn element(name: &str, text: &str, values: &mut Vec<String>) -> Result<(), Fault> {
    let in_quotes = format!("in quotes for a text: `{name}='\"{}\"'`", short(text, 40));
    if text.is_empty() {
        return Err(Fault::request(format!("a value of `{name}` is empty"))
            .hint(format!("{FORMS}; the empty text is `{name}='\"\"'`")));
    }
    if let Some((low, high)) = text.split_once("..") {
        match (low.parse::<i64>(), high.parse::<i64>()) {
            (Ok(low), Ok(high)) if low <= high => {
                if high.abs_diff(low) >= MAX_TRIALS {
                    let sentence = format!("`{text}` is more than {MAX_TRIALS} values");
                    return Err(Fault::request(sentence).hint("give fewer values"));
                }
                values.extend((low..=high).map(|value| value.to_string()));
                return Ok(());
            }
            (Ok(low), Ok(high)) => {
                let sentence = format!("the range `{text}` is empty");
                return Err(Fault::request(sentence).hint(format!("write `{high}..{low}`")));
            }
            _ if low.parse::<f64>().is_ok() && high.parse::<f64>().is_ok() => {
                let sentence = format!("the ends of the range `{text}` are not whole numbers");
                let hint = format!("write `{name}=linear({low},{high},N)` for N values");
                return Err(Fault::request(sentence).hint(hint));
            }
            _ => {}
        }
    }
    if SPACINGS.iter().any(|function| text.starts_with(&format!("{function}("))) {
        let sentence = format!("`{text}` stands beside other values");
        return Err(Fault::request(sentence)
            .hint(format!("write `{name}=log(LOW,HIGH,N)` alone, or the values themselves")));
    }
    values.push(value(name, text, &in_quotes)?);
    Ok(())
}

/// One value in TOML: a number only if the program would get it as it is written.
fn value(name: &str, text: &str, in_quotes: &str) -> Result<String, Fault> {
    if matches!(text, "true" | "false") {
        return Ok(text.to_owned());
    }
    if text.parse::<i64>().is_ok_and(|whole| whole.to_string() == text) {
        return Ok(text.to_owned());
    }
    let number = text.parse::<f64>().ok();
    let Some(number) = number.filter(|_| text.contains(|c: char| c.is_ascii_digit())) else {
        return Ok(toml_text(text));
    };
    let has_power = text.contains(['e', 'E']);
    let is_kept = number.is_finite()
        && text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && match has_power {
            true => true,
            false => {
                [format!("{number}"), format!("{number:.1}")].contains(&text.to_owned())
                    && text.contains('.')
            }
        };
    if is_kept {
        // A power of ten has forms that TOML does not read (`1.e5`).
        return Ok(float_text(number));
    }
    let digits = text.trim_start_matches(['-', '+']);
    let is_whole = digits.bytes().all(|b| b.is_ascii_digit());
    let as_number = match is_whole {
        true => text.parse::<i64>().ok().map(|whole| whole.to_string()),
        false => Some(float_text(number)).filter(|_| number.is_finite()),
    };
    let sentence =
        format!("`{name}` is `{text}`, a number that would not come back as it is written");
    let hint = match as_number {
        Some(number) => format!("write `{number}`, or put it {in_quotes}"),
        None => format!("put it {in_quotes}"),
    };
    Err(Fault::request(sentence).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(word: &str) -> String {
        match read(&[word.to_owned()], None) {
            Ok(axes) => axes[0].values.join(" "),
            Err(fault) => fault.to_string().replace('\n', " | "),
        }
    }

    #[test]
    fn a_value_is_what_toml_means_if_it_comes_back_as_it_is_written() {
        for (word, expected) in [
            ("x=1,-7,0.1,1.0,1e-4,true,adam", "1 -7 0.1 1.0 0.0001 true \"adam\""),
            ("x=1e-7,1.5e3", "1e-7 1500.0"),
            (
                "x=False,nan,0x10,1_000,2026-11-28,..,a..b",
                r#""False" "nan" "0x10" "1_000" "2026-11-28" ".." "a..b""#,
            ),
            (r#"x="a,b",c,"say ""hi""","","3.10""#, r#""a,b" "c" "say \"hi\"" "" "3.10""#),
            ("x=a=b, c d ", r#""a=b" "c d""#),
            ("x=1..3,7", "1 2 3 7"),
            ("x=-2..1", "-2 -1 0 1"),
            (r"x=a\b,é", r#""a\\b" "é""#),
        ] {
            assert_eq!(values(word), expected, "{word}");
        }
    }

    #[test]
    fn spaced_values_have_exact_ends_and_short_decimals() {
        for (word, expected) in [
            ("x=linear(0,1,11)", "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0"),
            ("x=linear(0,100,5)", "0 25 50 75 100"),
            ("x=linear(-0.3,0.3,3)", "-0.3 0.0 0.3"),
            ("x=linear(1,0,3)", "1.0 0.5 0.0"),
            ("x=log(1e-4,1e-1,4)", "0.0001 0.001 0.01 0.1"),
            ("x=log(1e-4,1e-1,7)", "0.0001 0.00031622777 0.001 0.0031622777 0.01 0.031622777 0.1"),
            ("x=log(1,1000,4)", "1 10 100 1000"),
        ] {
            assert_eq!(values(word), expected, "{word}");
        }
    }

    #[test]
    fn a_word_that_is_no_axis_is_refused_with_what_to_write() {
        for (word, sentence, hint) in [
            ("train.py", "`train.py` is no axis", "the command stands after `--`"),
            ("1x=2", "a parameter cannot be called `1x`", "a letter first"),
            ("trial=2", "a parameter cannot be called `trial`", "plans use this one"),
            ("x=", "a value of `x` is empty", "the empty text is `x='\"\"'`"),
            ("x=1,,2", "a value of `x` is empty", ""),
            (
                "x=3.10",
                "`x` is `3.10`, a number that would not come back as it is written",
                "write `3.1`, or put it in quotes for a text: `x='\"3.10\"'`",
            ),
            ("x=007", "`x` is `007`,", "write `7`, or"),
            ("x=.5", "`x` is `.5`,", "write `0.5`, or"),
            ("x=18446744073709551615", "a number that would not come back", "put it in quotes"),
            ("x=5..1", "the range `5..1` is empty", "write `1..5`"),
            ("x=0.1..0.5", "are not whole numbers", "`x=linear(0.1,0.5,N)`"),
            ("x=1..9999999999", "is more than", "fewer"),
            ("x=lin(0,1,2)", "`lin(...)` is not a function of values", "`linear(LOW,HIGH,N)`"),
            ("x=log(0,1,3)", "are not greater than 0", "`linear`"),
            ("x=log(1,2)", "does not have two ends and a number", "LOW,HIGH,N"),
            ("x=log(1,2,1)", "`1` is not a number of values, 2 or more", ""),
            ("x=log(a,2,3)", "are not numbers", ""),
            ("x=linear(1,1,3)", "too near", ""),
            ("x=0,log(1,10,2)", "`log(1` stands beside other values", "alone"),
            ("x=\"a", "do not close", ""),
            ("x=\"a\"b", "do not close", ""),
        ] {
            let said = values(word);
            assert!(said.contains(sentence) && said.contains(hint), "{word}: {said}");
            assert!(said.contains("on the command line: "), "{said}");
        }
        let twice = read(&["a=1".to_owned(), "a=2".to_owned()], None).unwrap_err().to_string();
        assert!(twice.contains("`a` is given twice"), "{twice}");
        let taken = read(&["input=1".to_owned()], Some("input")).unwrap_err().to_string();
        assert!(taken.contains("`input` is what each line of input is called"), "{taken}");
    }
}
