//! `[sample]`: random values that depend on the seed, the name and the number of the draw alone.
//!
//! So a larger `count` keeps the draws it had, and a new parameter changes no other. Never uses a
//! generator with a state.

use std::sync::Arc;

use serde_json::json;
use toml::de::DeValue;

use crate::plan::document::form::count;
use crate::plan::document::{Entry, Form, Item, Reader, Section, Table, entries, section};
use crate::plan::expansion::axes::{Axis, Group};
use crate::plan::expansion::ranges::eight_digits;
use crate::plan::expansion::trials::{check_count, check_plain_name};
use crate::plan::value::{Value, read_value};

const KINDS: &[&str] = &["uniform", "log_uniform", "int", "normal", "choice"];

/// How a parameter is drawn.
#[derive(Debug, Clone, PartialEq)]
enum Draw {
    Uniform(f64, f64),
    LogUniform(f64, f64),
    Int(i64, i64),
    Normal(f64, f64),
    Choice(Vec<Value>),
}

/// `[sample]` as written; `None` and an empty list for keys that are absent.
#[derive(Default)]
pub(crate) struct Written {
    count: Option<u32>,
    /// Names with their places.
    parameters: Vec<(Arc<str>, usize, Draw)>,
}

/// The keys of `[sample]`.
pub(crate) static SAMPLE: Section<Written> = section!("`[sample]`", Written:
    "count" => count: count::<1>(), "required", "how many points are drawn";
    "parameters" => parameters: DRAWS, "required", "names with their distributions";
);

const DRAWS: Form<Vec<(Arc<str>, usize, Draw)>> = Form {
    read: |reader, entry| {
        let table = reader.table(entry)?;
        let mut draws = Vec::new();
        read_draws(reader, table, "", &mut draws);
        Some(draws)
    },
    schema: || {
        let numbers = || json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
        let values = json!({ "type": "array", "minItems": 1 });
        let mut kinds = Vec::new();
        for kind in KINDS {
            let schema = if *kind == "choice" { values.clone() } else { numbers() };
            kinds.push(json!({
                "type": "object",
                "properties": { *kind: schema },
                "required": [kind],
                "additionalProperties": false,
            }));
        }
        // Further dots are further tables.
        kinds.push(json!({ "type": "object", "additionalProperties": { "type": "object" } }));
        json!({ "type": "object", "additionalProperties": { "anyOf": kinds } })
    },
};

/// Reads `[sample]`: all its parameters are one group of `count` points.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>, seed: i64) -> Option<Group> {
    let n_before = reader.n_faults();
    let mut written = Written::default();
    SAMPLE.read(reader, Some(entry), &mut written);
    if reader.n_faults() > n_before {
        return None;
    }
    let Written { count, parameters: draws } = written;
    let Some(count) = count else {
        reader.wrong(entry.at, "`[sample]` has no `count`", "write how many: `count = 20`");
        return None;
    };
    if draws.is_empty() {
        let hint = "write `parameters.lr = { log_uniform = [1e-5, 1e-1] }`";
        reader.wrong(entry.at, "`[sample]` has no `parameters`", hint);
        return None;
    }
    if !check_count(reader, entry.at, count) {
        return None;
    }
    let axes = draws.into_iter().map(|(name, at, draw)| {
        let values =
            (0..u64::from(count)).map(|i| draw.value(&Bits::new(seed, &name, i))).collect();
        Axis { name, at, values, special: None }
    });
    Some(Group::new("[sample]", axes.collect()))
}

fn read_draws(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    prefix: &str,
    draws: &mut Vec<(Arc<str>, usize, Draw)>,
) {
    for entry in entries(table) {
        let name = format!("{prefix}{}", entry.key);
        let Some(inner) = reader.table(&entry) else { continue };
        let is_group = !inner.is_empty()
            && inner.iter().all(|(_, item)| matches!(item.get_ref(), DeValue::Table(_)));
        if is_group {
            read_draws(reader, inner, &format!("{name}."), draws);
        } else if let Some(draw) = read_draw(reader, &entry, inner, &name)
            && check_plain_name(reader, entry.at, &name)
        {
            draws.push((Arc::from(name), entry.at, draw));
        }
    }
}

fn read_draw(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    table: &Table<'_>,
    name: &str,
) -> Option<Draw> {
    let kinds = entries(table);
    let [kind] = kinds.as_slice() else {
        let hint = format!("write one of {}", crate::base::words::ticked(KINDS));
        reader.wrong(entry.at, format!("`{name}` needs exactly one distribution"), hint);
        return None;
    };
    if !KINDS.contains(&kind.key) {
        reader.unknown(kind, &format!("a distribution of `{name}`"), KINDS);
        return None;
    }
    let items = reader.list(kind, "a list")?;
    if kind.key == "choice" {
        if items.is_empty() {
            reader.wrong(kind.at, format!("`{name}` has no choice"), "give at least one value");
            return None;
        }
        let n_before = reader.n_faults();
        let values: Vec<Value> =
            items.iter().filter_map(|item| read_value(reader, name, item)).collect();
        // TOML itself refuses such a value, and that was reported before.
        let is_whole = reader.n_faults() == n_before && values.len() == items.len();
        return is_whole.then_some(Draw::Choice(values));
    }
    let ends = match items {
        [a, b] => number(reader, name, a).zip(number(reader, name, b)),
        _ => None,
    };
    let problem = match (kind.key, &ends) {
        (_, None) => "needs two numbers",
        ("int", Some((Value::Int(a), Value::Int(b)))) if a <= b => "",
        ("int", Some((Value::Int(_), Value::Int(_)))) => "needs the smaller number first",
        ("int", _) => "needs two integers",
        (_, Some((a, b))) => {
            let (a, b) = (as_f64(a), as_f64(b));
            match kind.key {
                _ if !a.is_finite() || !b.is_finite() || !(b - a).is_finite() => {
                    "needs two finite numbers"
                }
                "normal" if b < 0.0 => "needs a standard deviation that is not negative",
                "normal" => "",
                _ if a > b => "needs the smaller number first",
                "log_uniform" if a <= 0.0 => "needs numbers above zero",
                _ => "",
            }
        }
    };
    if !problem.is_empty() {
        let hint = match kind.key {
            "normal" => "write `normal = [mean, standard_deviation]`".to_owned(),
            key => format!("write `{key} = [smallest, largest]`"),
        };
        reader.wrong(kind.at, format!("`{}` of `{name}` {problem}", kind.key), hint);
        return None;
    }
    match (kind.key, ends?) {
        ("int", (Value::Int(a), Value::Int(b))) => Some(Draw::Int(a, b)),
        ("uniform", (a, b)) => Some(Draw::Uniform(as_f64(&a), as_f64(&b))),
        ("log_uniform", (a, b)) => Some(Draw::LogUniform(as_f64(&a), as_f64(&b))),
        (_, (a, b)) => Some(Draw::Normal(as_f64(&a), as_f64(&b))),
    }
}

fn number(reader: &mut Reader<'_>, name: &str, item: &Item<'_>) -> Option<Value> {
    match item.get_ref() {
        DeValue::Integer(_) | DeValue::Float(_) => read_value(reader, name, item),
        _ => None,
    }
}

fn as_f64(value: &Value) -> f64 {
    match value {
        Value::Int(i) => *i as f64,
        Value::Float(f) => *f,
        _ => f64::NAN,
    }
}

/// Two independent 64-bit numbers of one draw.
struct Bits(u64, u64);

impl Bits {
    fn new(seed: i64, name: &str, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"hpcsweep sample 1");
        hasher.update(&seed.to_le_bytes());
        hasher.update(&index.to_le_bytes());
        hasher.update(name.as_bytes());
        let hash = hasher.finalize();
        let word = |from: usize| {
            let bytes = &hash.as_bytes()[from..from + 8];
            bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        Self(word(0), word(8))
    }

    /// A number from 0 (included) to 1 (excluded), with 53 bits.
    fn unit(word: u64) -> f64 {
        (word >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Draw {
    fn value(&self, bits: &Bits) -> Value {
        let u = Bits::unit(bits.0);
        match self {
            Self::Uniform(a, b) => Value::Float(eight_digits(a + (b - a) * u).clamp(*a, *b)),
            Self::LogUniform(a, b) => {
                let exponent = libm::log(*a) + (libm::log(*b) - libm::log(*a)) * u;
                Value::Float(eight_digits(libm::exp(exponent)).clamp(*a, *b))
            }
            Self::Int(a, b) => {
                let n_values = (i128::from(*b) - i128::from(*a) + 1) as u128;
                // 128 bits over at most 2^64 values: the bias is below 2^-64.
                let wide = u128::from(bits.0) << 64 | u128::from(bits.1);
                Value::Int((i128::from(*a) + (wide % n_values) as i128) as i64)
            }
            Self::Normal(mean, deviation) => {
                // Box and Muller; 1 - u is never zero.
                let radius = (-2.0 * libm::log(1.0 - u)).sqrt();
                let angle = std::f64::consts::TAU * Bits::unit(bits.1);
                Value::Float(eight_digits(mean + deviation * radius * libm::cos(angle)))
            }
            Self::Choice(values) => {
                let i = (u128::from(bits.0) * values.len() as u128) >> 64;
                values[i as usize].clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::plan::testing::{check_faults, params, plan};
    use crate::plan::{Plan, Value};

    fn column(plan: &Plan, name: &str) -> Vec<Value> {
        plan.trials.iter().map(|trial| trial.params.get(name).unwrap().clone()).collect()
    }

    #[test]
    fn draws_are_the_same_on_every_machine() {
        let plan = plan(
            "[sample]
count = 2
[sample.parameters]
lr = { log_uniform = [1e-5, 1e-1] }
n = { int = [1, 10] }
opt.m = { uniform = [0, 1] }
c = { choice = [\"a\", \"b\"] }
w = { normal = [0, 1] }
",
        );
        assert_eq!(
            params(&plan),
            [
                r#"{"lr":0.0000279456,"n":8,"opt":{"m":0.32625971},"c":"b","w":0.1926401}"#,
                r#"{"lr":0.04723073,"n":1,"opt":{"m":0.12797495},"c":"b","w":-2.3622357}"#,
            ]
        );
    }

    #[test]
    fn growing_a_sample_changes_nothing_it_had() {
        let sample = |seed: i64, count: usize, more: &str| {
            plan(&format!(
                "sweep.seed = {seed}\n[sample]\ncount = {count}\nparameters.x.uniform = [0, 1]\n{more}"
            ))
        };
        let small = column(&sample(1, 5, ""), "x");
        let large = column(&sample(1, 50, "parameters.y.uniform = [0, 1]"), "x");
        assert_eq!(small, large[..5]);
        assert_ne!(small, column(&sample(2, 5, ""), "x"));
        let grown = sample(1, 50, "parameters.y.uniform = [0, 1]");
        assert_ne!(column(&grown, "x"), column(&grown, "y"));
    }

    #[test]
    fn draws_stay_in_their_range_and_fill_it() {
        let plan = plan(
            "[sample]
count = 4000
[sample.parameters]
u = { uniform = [-1.0, 3.0] }
l = { log_uniform = [1e-4, 1.0] }
i = { int = [-2, 2] }
n = { normal = [5.0, 2.0] }
big = { int = [-9223372036854775808, 9223372036854775807] }
",
        );
        let floats = |name: &str| -> Vec<f64> {
            let float = |value| if let Value::Float(f) = value { f } else { f64::NAN };
            column(&plan, name).into_iter().map(float).collect()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let u = floats("u");
        assert!(u.iter().all(|x| (-1.0..=3.0).contains(x)) && (mean(&u) - 1.0).abs() < 0.1);
        let l: Vec<f64> = floats("l").iter().map(|x| x.log10()).collect();
        assert!(l.iter().all(|x| (-4.0..=0.0).contains(x)) && (mean(&l) + 2.0).abs() < 0.1);
        let n = floats("n");
        let spread = mean(&n.iter().map(|x| (x - 5.0).powi(2)).collect::<Vec<_>>()).sqrt();
        assert!((mean(&n) - 5.0).abs() < 0.15 && (spread - 2.0).abs() < 0.1);
        let i: HashSet<String> = column(&plan, "i").iter().map(ToString::to_string).collect();
        assert_eq!(i.len(), 5);
        let big: HashSet<String> = column(&plan, "big").iter().map(ToString::to_string).collect();
        assert_eq!(big.len(), 4000);
    }

    #[test]
    fn distributions_that_make_no_sense_are_refused() {
        check_faults(
            "[sample]
count = 3
[sample.parameters]
a = { uniform = [2, 1] }
b = { log_uniform = [0, 1] }
c = { int = [1, 2.5] }
d = { normal = [0, -1] }
e = { choice = [] }
f = { unifrom = [0, 1] }
g = { uniform = [0, 1], int = [0, 1] }
h = 3
i = { uniform = [0, inf] }
task_id = { int = [0, 1] }
",
            "`uniform` of `a` needs the smaller number first
  plan.toml:7: a = { uniform = [2, 1] }
hint: write `uniform = [smallest, largest]`
error: `log_uniform` of `b` needs numbers above zero
  plan.toml:8: b = { log_uniform = [0, 1] }
hint: write `log_uniform = [smallest, largest]`
error: `int` of `c` needs two integers
  plan.toml:9: c = { int = [1, 2.5] }
hint: write `int = [smallest, largest]`
error: `normal` of `d` needs a standard deviation that is not negative
  plan.toml:10: d = { normal = [0, -1] }
hint: write `normal = [mean, standard_deviation]`
error: `e` has no choice
  plan.toml:11: e = { choice = [] }
hint: give at least one value
error: a distribution of `f` has no key `unifrom`
  plan.toml:12: f = { unifrom = [0, 1] }
hint: did you mean `uniform`?
error: `g` needs exactly one distribution
  plan.toml:13: g = { uniform = [0, 1], int = [0, 1] }
hint: write one of `uniform`, `log_uniform`, `int`, `normal` and `choice`
error: `h` must be a table, not an integer
  plan.toml:14: h = 3
error: `uniform` of `i` needs two finite numbers
  plan.toml:15: i = { uniform = [0, inf] }
hint: write `uniform = [smallest, largest]`
error: `task_id` is not a parameter
  plan.toml:16: task_id = { int = [0, 1] }
hint: set it in `[[trials]]`, `[grid]` or `[zip]`",
        );
        check_faults(
            "[sample]\nparameters.x.uniform = [0, 1]",
            "`[sample]` has no `count`
  plan.toml:4: [sample]
hint: write how many: `count = 20`",
        );
        check_faults(
            "[sample]\ncount = 1",
            "`[sample]` has no `parameters`
  plan.toml:4: [sample]
hint: write `parameters.lr = { log_uniform = [1e-5, 1e-1] }`",
        );
        check_faults(
            "[sample]\ncount = 10000001\nparameters.x.uniform = [0, 1]",
            "`count = 10000001` is more than the 10,000,000 trials a plan may have
  plan.toml:4: [sample]
hint: cut the plan into several sweeps",
        );
    }

    #[test]
    fn a_choice_that_is_no_toml_is_said_once_and_is_no_panic() {
        let text = "version = 1\nsweep.name = \"s\"\nrun.command = [\"x\"]\n[sample]\nn = 2\nc = { choice = [01] }\n";
        let error = crate::plan::parse(text, "plan.toml").unwrap_err().to_string();
        assert!(error.contains("this is not TOML"), "{error}");
    }
}
