//! The words `lr=0.1,0.01`, `seed=1..5` and `lr=log(1e-4,1e-1,7)`: parameters with their values, as a plan has them.
//!
//! Pure text. A value is what docs/plan.md ("What a cell means") says of a cell, without its words for missing values.

use crate::base::fault::Fault;
use crate::base::words::{nearest, sh_quote, short};
use crate::plan::ranges::{self, Flaw, Spacing};
use crate::plan::{MAX_TRIALS, RESERVED_NAMES, Value, float_as_written, float_text, toml_text};

/// A parameter and its values.
#[derive(Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    /// In TOML; at least one.
    pub(super) values: Vec<String>,
    /// The table of a plan that describes them, in TOML, if a word alone does.
    pub(super) described: Option<String>,
}

/// The forms of a word, for hints.
const FORMS: &str =
    "write `NAME=VALUES`: `lr=0.1,0.01`, `seed=1..5`, `lr=log(1e-4,1e-1,7)`, `x=linear(0,1,11)`";

/// Reads words. `taken` is the parameter that lines of input have.
///
/// # Errors
/// With the first word that is no parameter.
pub(super) fn read(words: &[String], taken: Option<&str>) -> Result<Vec<Axis>, Fault> {
    let mut axes: Vec<Axis> = Vec::with_capacity(words.len());
    let mut points = 1;
    for (i, word) in words.iter().enumerate() {
        let place = || format!("on the command line: {}", short(&sh_quote(word), 100));
        if !word.contains('=') {
            let rest: Vec<String> = words[i..].iter().map(|word| sh_quote(word)).collect();
            let sentence = format!("`{}` is no parameter", short(word, 60));
            let hint = format!(
                "{FORMS}; the command stands after `--`: `-- {}`",
                short(&rest.join(" "), 100)
            );
            return Err(Fault::request(sentence).at(place()).hint(hint));
        }
        let axis = axis(word, MAX_TRIALS / points).map_err(|fault| fault.at(place()))?;
        points *= axis.values.len() as u64;
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
    Ok(axes)
}

/// Refuses more trials than a plan may have. It is called before their values take memory.
fn refuse_more(values: u64, most: u64) -> Result<(), Fault> {
    if values <= most {
        return Ok(());
    }
    let sentence = format!("these parameters make more than {MAX_TRIALS} trials");
    Err(Fault::request(sentence).hint("give fewer values"))
}

/// A parameter of at most so many values.
fn axis(word: &str, most: u64) -> Result<Axis, Fault> {
    let (name, values) = word.split_once('=').unwrap_or((word, ""));
    if !is_name(name) {
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
    let (values, form) = match spaced(values) {
        Some(spaced) => {
            let (spacing, values) = spaced?;
            (texts(&values), Some(spacing))
        }
        None => (list(name, values, most)?, is_range(values).then_some("range")),
    };
    refuse_more(values.len() as u64, most)?;
    let described = form.and_then(|form| {
        let (low, high) = (values.first()?, values.last()?);
        let n = if form == "range" { String::new() } else { format!(", {}", values.len()) };
        Some(format!("{{ {form} = [{low}, {high}{n}] }}"))
    });
    Ok(Axis { name: name.to_owned(), values, described })
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().map(Value::to_string).collect()
}

/// Whether a word is one range alone.
fn is_range(text: &str) -> bool {
    let ends = text.split_once("..");
    ends.is_some_and(|(low, high)| low.parse::<i64>().is_ok() && high.parse::<i64>().is_ok())
}

/// Whether a parameter can have this name.
fn is_name(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    })
}

/// The values of `log(LOW,HIGH,N)` and `linear(LOW,HIGH,N)`, with the function; `None` for a list.
fn spaced(text: &str) -> Option<Result<(&'static str, Vec<Value>), Fault>> {
    let (function, ends) = text.strip_suffix(')')?.split_once('(')?;
    let function = function.trim_end();
    if !function.chars().all(|c| c.is_ascii_alphabetic()) || function.is_empty() {
        return None;
    }
    let wrong = |sentence: String, hint: &str| Some(Err(Fault::request(sentence).hint(hint)));
    let Some((word, spacing)) = Spacing::WORDS.into_iter().find(|(word, _)| *word == function)
    else {
        let known = Spacing::WORDS.map(|(word, _)| word);
        let known = nearest(function, known).unwrap_or("linear");
        return wrong(
            format!("`{function}(...)` is not a function of values"),
            &format!("write `{known}(LOW,HIGH,N)`, or quotes for a text: `'\"{text}\"'`"),
        );
    };
    let parts: Vec<&str> = ends.split(',').map(str::trim).collect();
    let [low, high, n] = *parts else {
        return wrong(
            format!("`{text}` does not have two ends and a number of values"),
            &format!(
                "write `{function}(LOW,HIGH,N)`, with both ends among N values: `log(1e-4,1e-1,7)`"
            ),
        );
    };
    let values = ranges::spaced(spacing, low, high, n);
    Some(values.map(|values| (word, values)).map_err(|flaw| fault(&flaw, &format!("`{text}`"))))
}

fn fault(flaw: &Flaw, what: &str) -> Fault {
    let (sentence, hint) = flaw.told(what);
    Fault::request(sentence).hint(hint)
}

/// The values of a list: an element is a value, a range of whole numbers, or a text in quotes.
fn list(name: &str, text: &str, most: u64) -> Result<Vec<String>, Fault> {
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
                element(name, unread[..end].trim(), most, &mut values)?;
                &unread[end..]
            }
        };
        refuse_more(values.len() as u64, most)?;
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
fn element(name: &str, text: &str, most: u64, values: &mut Vec<String>) -> Result<(), Fault> {
    let in_quotes = format!("in quotes for a text: `{name}='\"{}\"'`", short(text, 40));
    if text.is_empty() {
        return Err(Fault::request(format!("a value of `{name}` is empty"))
            .hint(format!("{FORMS}; the empty text is `{name}='\"\"'`")));
    }
    if let Some(ends) = text.split_once("..")
        && let Some(range) = range(name, text, ends, &in_quotes)?
    {
        let span = range.end().abs_diff(*range.start()).saturating_add(1);
        refuse_more(span.saturating_add(values.len() as u64), most)?;
        values.extend(range.map(|value| value.to_string()));
        return Ok(());
    }
    let function = text.split('(').next().unwrap_or("").trim_end();
    if text.contains('(') && Spacing::WORDS.iter().any(|(word, _)| *word == function) {
        let sentence = format!("`{text}` stands beside other values");
        return Err(Fault::request(sentence)
            .hint(format!("write `{name}=log(LOW,HIGH,N)` alone, or the values themselves")));
    }
    if text.starts_with(['[', '(']) {
        let sentence = format!("a value of `{name}` begins with a bracket: `{}`", short(text, 40));
        let hint = format!("values stand without brackets: `{name}=A,B`; or put it {in_quotes}");
        return Err(Fault::request(sentence).hint(hint));
    }
    let is_parameter = |word: &str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    if text.split_whitespace().skip(1).any(is_parameter) {
        let sentence =
            format!("a value of `{name}` holds another parameter: `{}`", short(text, 60));
        let hint = format!(
            "write each parameter as a word of its own, without quotes around both; or put it {in_quotes}"
        );
        return Err(Fault::request(sentence).hint(hint));
    }
    values.push(value(name, text, &in_quotes)?);
    Ok(())
}

/// The whole numbers of a range; `None` for a text with points in it. What is nearly a range is refused.
fn range(
    name: &str,
    text: &str,
    (low, high): (&str, &str),
    in_quotes: &str,
) -> Result<Option<std::ops::RangeInclusive<i64>>, Fault> {
    let is_near = text.contains(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || " .eE+-:".contains(c));
    if !is_near {
        return Ok(None);
    }
    let whole = |end: &str| end.trim().parse::<i64>().ok();
    let float = |end: &str| end.trim().parse::<f64>().is_ok();
    let (sentence, hint) = match (whole(low), whole(high)) {
        (Some(from), Some(to)) if from > to => {
            (format!("the range `{text}` is empty"), format!("write `{to}..{from}`"))
        }
        (Some(from), Some(to)) if format!("{from}..{to}") != text => (
            format!("the ends of the range `{text}` would not come back as they are written"),
            format!(
                "write `{from}..{to}`, or each value in quotes for texts: `{name}='\"{}\"'`",
                low.trim()
            ),
        ),
        (Some(from), Some(to)) => return Ok(Some(from..=to)),
        _ if float(low) && float(high) => (
            format!("the ends of the range `{text}` are not whole numbers"),
            format!("write `{name}=linear({low},{high},N)` for N values"),
        ),
        _ => (
            format!("`{text}` is no range"),
            format!(
                "a range is `{name}=LOW..HIGH` in steps of 1; other steps are `{name}=linear(LOW,HIGH,N)`; or put it {in_quotes}"
            ),
        ),
    };
    Err(Fault::request(sentence).hint(hint))
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
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if let Some(number) = float_as_written(text).filter(|_| is_plain) {
        // A power of ten has forms that TOML does not read (`1.e5`).
        return Ok(float_text(number));
    }
    let digits = text.trim_start_matches(['-', '+']);
    let is_whole = digits.bytes().all(|b| b.is_ascii_digit());
    let as_number = match is_whole {
        true => text.parse::<i64>().ok().map(|whole| whole.to_string()),
        // A number beyond the least or the greatest float is another one.
        false => Some(float_text(number)).filter(|_| number.is_normal()),
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
            ("x=1e-7,1.5e3,1e+5,1.50E-3", "1e-7 1500.0 100000.0 0.0015"),
            ("x=log (1,10,2)", "1 10"),
            (r#"x="[1,2]","1..","01..03","a b=c",a b"#, r#""[1,2]" "1.." "01..03" "a b=c" "a b""#),
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
    fn a_word_that_describes_values_gives_what_the_plan_makes_of_it() {
        for (word, described, expected) in [
            ("x=1..5", "{ range = [1, 5] }", "1 2 3 4 5"),
            ("x=linear(0,100,5)", "{ linear = [0, 100, 5] }", "0 25 50 75 100"),
            ("x=linear(-.3,0.3,3)", "{ linear = [-0.3, 0.3, 3] }", "-0.3 0.0 0.3"),
            ("x=linear(0,1,3)", "{ linear = [0.0, 1.0, 3] }", "0.0 0.5 1.0"),
            ("x=log(1,1000,3)", "{ log = [1.0, 1000.0, 3] }", "1.0 31.622777 1000.0"),
            ("x=log(1e-6,1e-5,2)", "{ log = [1e-6, 1e-5, 2] }", "1e-6 1e-5"),
        ] {
            let axes = read(&[word.to_owned()], None).unwrap();
            assert_eq!(axes[0].described.as_deref(), Some(described), "{word}");
            assert_eq!(values(word), expected, "{word}");
            let plan = crate::plan::testing::plan(&format!("[grid]\nx = {described}"));
            let made: Vec<String> = plan
                .trials
                .iter()
                .map(|trial| trial.params.get("x").unwrap().to_string())
                .collect();
            assert_eq!(made.join(" "), expected, "{word}");
        }
        let axes = read(&["x=1..3,7".to_owned()], None).unwrap();
        assert_eq!(axes[0].described, None);
    }

    #[test]
    fn a_word_that_is_no_axis_is_refused_with_what_to_write() {
        for (word, sentence, hint) in [
            (
                "train.py",
                "`train.py` is no parameter",
                "the command stands after `--`: `-- train.py`",
            ),
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
            ("x=1..9999999999", "make more than 10000000 trials", "fewer"),
            (
                "x=01..03",
                "the ends of the range `01..03` would not come back",
                "write `1..3`, or each",
            ),
            ("x=+1..3", "would not come back", "write `1..3`"),
            ("x=1..10..2", "`1..10..2` is no range", "`x=linear(LOW,HIGH,N)`"),
            ("x=1..", "`1..` is no range", "`x=LOW..HIGH`"),
            ("x=..5", "`..5` is no range", "in quotes for a text: `x='\"..5\"'`"),
            ("x=0..1:0.1", "is no range", "`x=linear(LOW,HIGH,N)`"),
            ("x=[1,2]", "a value of `x` begins with a bracket: `[1`", "`x=A,B`"),
            ("x=(1,2)", "a value of `x` begins with a bracket: `(1`", "`x=A,B`"),
            (
                "x=0.1 seed=1",
                "a value of `x` holds another parameter: `0.1 seed=1`",
                "a word of its own",
            ),
            (
                "x=1e-400",
                "`x` is `1e-400`, a number that would not come back",
                "hint: put it in quotes",
            ),
            ("x=1e400", "would not come back", "hint: put it in quotes"),
            ("x=1e5", "would not come back", "write `100000.0`, or put it"),
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
        let many = ["a=1..9000000", "b=1..9000000"].map(str::to_owned);
        let many = read(&many, None).unwrap_err().to_string();
        assert!(
            many.contains("make more than 10000000 trials\n  on the command line: b="),
            "{many}"
        );
        let twice = read(&["a=1".to_owned(), "a=2".to_owned()], None).unwrap_err().to_string();
        assert!(twice.contains("`a` is given twice"), "{twice}");
        let taken = read(&["input=1".to_owned()], Some("input")).unwrap_err().to_string();
        assert!(taken.contains("`input` is what each line of input is called"), "{taken}");
    }
}
