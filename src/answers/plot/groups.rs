//! Trials with a number, by the values of axes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use serde_json::Value;

use super::Wish;
use super::axis::has_place;
use crate::answers::analysis::{self, Observed, Setting, Settings};
use crate::answers::collect::{Table, text};
use crate::base::fault::Fault;
use crate::base::words::{self, ticked};
use crate::plan::value::json_float;

/// Longest label that is drawn whole, in characters.
const LONGEST: usize = 40;

/// A word of a picture.
pub(super) fn label(text: &str) -> String {
    // Nothing would be seen of an empty one.
    if text.is_empty() { "\"\"".to_owned() } else { words::short(text, LONGEST) }
}

/// The labels of the values of a column: as short as they are told apart, `1` and `1.0` or `"1"`.
pub(super) fn labels(settings: &Settings, column: usize) -> impl Fn(&Value) -> String {
    let mut values: HashMap<String, HashSet<String>> = HashMap::new();
    for value in settings.list.iter().map(|setting| value(setting, column)) {
        values.entry(of_value(value)).or_default().insert(value.to_string());
    }
    move |value| {
        let short = of_value(value);
        match value {
            _ if values.get(&short).is_none_or(|all| all.len() < 2) => short,
            Value::Number(_) => super::axis::minus(&text(value)),
            other => label(&other.to_string()),
        }
    }
}

/// A value as a label.
fn of_value(value: &Value) -> String {
    match value {
        Value::Null => "(none)".to_owned(),
        value => match value.as_f64() {
            Some(number) => super::axis::plain(number),
            None => label(&text(value)),
        },
    }
}

/// Names of columns that every table has, as a picture says them.
const KNOWN: [(&str, &str); 7] = [
    ("duration_s", "duration (s)"),
    ("last_duration_s", "duration of the last attempt (s)"),
    ("peak_memory", "peak memory (bytes)"),
    ("cpu_s", "processor time (s)"),
    ("read_bytes", "data read (bytes)"),
    ("written_bytes", "data written (bytes)"),
    ("task_id", "task"),
];

/// The label of an axis with the values of a column.
pub(super) fn of_column(name: &str) -> String {
    let known_column = KNOWN.iter().find(|(column, _)| *column == name);
    known_column.map_or_else(|| label(name), |(_, words)| (*words).to_owned())
}

/// The axes of the plan along which a picture is drawn: those that are named, else those in which trials differ, if these are
/// as many.
///
/// # Errors
/// When there is no such column, or it is not clear which are meant.
pub(super) fn axes(wish: &Wish, options: &[&str]) -> Result<Vec<usize>> {
    let table = wish.table;
    let named = wish.axes.iter().take(options.len()).flatten();
    let mut axes: Vec<usize> =
        named.map(|name| analysis::column(table, name)).collect::<Result<_>>()?;
    if let [a, b] = axes[..]
        && a == b
    {
        let sentence = format!("`{}` cannot be both axes", table.columns[a]);
        return Err(Fault::request(sentence).hint("name two").into());
    }
    let missing = options.len() - axes.len();
    if missing == 0 {
        return Ok(axes);
    }
    let settings = Settings::group_trials(table, &[], &[], wish.function)?;
    let by_columns: Vec<usize> =
        wish.by.iter().map(|name| analysis::column(table, name)).collect::<Result<_>>()?;
    let mut open = settings.varied();
    open.retain(|column| !axes.contains(column) && !by_columns.contains(column));
    if open.len() != missing {
        let names: Vec<&String> = open.iter().map(|column| &table.columns[*column]).collect();
        let sentence = match (open.len() < missing, names.len()) {
            (true, 0) => "no parameter differs among the trials".to_owned(),
            (true, _) => format!("only {} differs among the trials", ticked(&names)),
            (false, _) => format!("which axis? the trials differ in {}", ticked(&names)),
        };
        let free = options.iter().zip(&wish.axes).filter(|(_, named)| named.is_none());
        let words: Vec<String> = free
            .zip(names.iter().map(|name| name.as_str()).chain(std::iter::repeat("NAME")))
            .map(|((option, _), name)| format!("{option} {}", words::sh_quote(name)))
            .collect();
        let hint = match open.len() < missing {
            true => "another kind of picture shows them: `curves`, `box`".to_owned(),
            false => format!("name it: `{}`", words.join(" ")),
        };
        return Err(Fault::request(sentence).hint(hint).into());
    }
    match (wish.axes[0], axes.pop()) {
        // `--y` alone was named.
        (None, Some(second)) => axes.extend([open[0], second]),
        (_, first) => axes.extend(first.into_iter().chain(open)),
    }
    Ok(axes)
}

/// The values of an axis in the order of a picture: numbers in ascending order, anything else as trials have it.
pub(super) fn values(settings: &Settings, column: usize) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    for setting in &settings.list {
        if let Some((_, value)) = setting.values.iter().find(|(known, _)| *known == column)
            && !values.contains(value)
        {
            values.push(value.clone());
        }
    }
    if values.iter().all(Value::is_number) {
        let number = |value: &Value| json_float(value).unwrap_or(0.0);
        values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    }
    values
}

/// The value of a setting on an axis.
pub(super) fn value(setting: &Setting, column: usize) -> &Value {
    let pair = setting.values.iter().find(|(known, _)| *known == column);
    pair.map_or(&Value::Null, |(_, value)| value)
}

/// Settings by these columns, each with its finite numbers.
pub(super) struct Grouped {
    pub(super) settings: Settings,
    pub(super) observed: Vec<Observed>,
    /// The column of the metric.
    pub(super) metric: usize,
    /// How many numbers are infinite or near the largest one: no picture has a place for them.
    pub(super) infinite: usize,
    /// Of each setting, whether all its numbers can be drawn: one with others is not the best.
    pub(super) whole: Vec<bool>,
}

impl Grouped {
    /// Of the wish, by these columns or, with none, as `best` makes settings.
    ///
    /// # Errors
    /// When there is no such metric, or no finished trial has a number for it.
    pub(super) fn by_columns(wish: &Wish, by: &[usize]) -> Result<Self> {
        let table = wish.table;
        let metric = table.metric(wish.metric)?;
        let names: Vec<String> = by.iter().map(|column| table.columns[*column].clone()).collect();
        let settings = match names.is_empty() {
            true => Settings::group_trials(table, wish.over, wish.by, wish.function)?,
            false => Settings::group_trials(table, &[], &names, wish.function)?,
        };
        let (mut infinite, mut whole) = (0, Vec::new());
        let observe = |setting: &Setting| {
            let mut observed = settings.observe(table, setting, metric);
            let finite: Vec<bool> = observed.values.iter().map(|v| has_place(*v)).collect();
            infinite += finite.iter().filter(|is| !**is).count();
            whole.push(observed.left.bad() == 0 && finite.iter().all(|is| *is));
            let mut is = finite.iter();
            observed.rows.retain(|_| is.next().copied().unwrap_or(false));
            observed.values.retain(|value| has_place(*value));
            observed
        };
        let observed: Vec<Observed> = settings.list.iter().map(observe).collect();
        if observed.iter().all(|one| one.values.is_empty()) {
            return Err(table.without_numbers(wish.metric));
        }
        Ok(Self { settings, observed, metric, infinite, whole })
    }

    /// What is averaged over and what was left out, for a caption.
    pub(super) fn caption(&self, table: &Table, means: bool) -> Vec<String> {
        let mut caption = Vec::new();
        let averaged_over: Vec<&String> =
            self.settings.over.iter().map(|over| &table.columns[over.column]).collect();
        if means && !averaged_over.is_empty() {
            caption.push(format!("averaged over {}", ticked(&averaged_over)));
        }
        let mut left_out = analysis::Left::default();
        self.observed.iter().for_each(|one| left_out.add(one.left));
        let mut reasons = left_out.words();
        if self.infinite > 0 {
            let n = words::thousands(self.infinite as u64);
            reasons.push(format!("{n} infinite or beyond 1e300"));
        }
        if !reasons.is_empty() {
            caption.push(format!("left out: {}", reasons.join(", ")));
        }
        caption
    }
}

/// How many trials there are behind each number: `5 trials`, `3 to 5 trials`.
pub(super) fn counted(counts: impl Iterator<Item = usize>) -> String {
    let (mut least, mut most) = (usize::MAX, 0);
    for n in counts.filter(|n| *n > 0) {
        (least, most) = (least.min(n), most.max(n));
    }
    match least >= most {
        true => words::count(most as u64, "trial"),
        false => format!("{least} to {most} trials"),
    }
}

/// Refuses a logarithmic axis for numbers that it has no place for.
///
/// # Errors
/// When a number is zero or less.
pub(super) fn check_log(
    name: &str,
    option: &str,
    mut values: impl Iterator<Item = f64>,
) -> Result<()> {
    match values.find(|value| *value <= 0.0) {
        Some(value) => Err(Fault::request(format!(
            "`{name}` is {} in a trial, and a logarithmic axis begins above 0",
            words::figures(value, 6)
        ))
        .hint(format!("leave `{option}` out"))
        .into()),
        None => Ok(()),
    }
}
