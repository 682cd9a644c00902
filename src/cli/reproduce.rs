//! `hpcsweep submit --reproduce`: one trial again, compared with what was recorded.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::out::aligned;
use super::{Context, sweeps};
use crate::collect::{self, text};
use crate::plan::value::json_float;
use crate::render::Templates;
use crate::site::Site;
use crate::submit::Source;
use crate::submit::arrays::batch;
use crate::submit::local::{self, LocalOptions};
use crate::submit::reproduce::{self, Reproduction};
use crate::tree::records::{self, Outcome};
use crate::words::count;

/// Hands the trial to a scheduler.
pub(super) type Submit<'a> = &'a dyn Fn(&batch::ArrayOptions, &Source, &Templates) -> Result<u8>;

/// Runs a trial again, on this machine unless there is `submit`, and compares it. Exit code 1 if a metric differs, or the
/// trial did not succeed this time.
pub(super) fn run(
    named: &Path,
    trial: u64,
    templates: Option<&Path>,
    site: &Site,
    submit: Option<Submit<'_>>,
    context: &Context,
) -> Result<u8> {
    let (original, identity) = sweeps::one(&[named.to_string_lossy().into_owned()], context)?;
    let own = reproduce::prepare(&original, &identity, trial)?;
    own.note.iter().for_each(|note| context.out.say(note));
    if records::of_trial(&own.tree, trial)?.0.outcome() != Some(Outcome::Done) {
        let templates = own.source.templates(templates, site)?;
        if let Some(submit) = submit {
            let options =
                batch::ArrayOptions { retry: own.again.clone(), ..batch::ArrayOptions::default() };
            let code = submit(&options, &own.source, &templates)?;
            context.out.say("the same command compares both when the trial has ended");
            return Ok(code);
        }
        let options = LocalOptions { jobs: Some(1), retry: own.again.clone(), repeats: false };
        let report = local::run(&own.source, site, &templates, &options, &context.vars, |_| {})?;
        if report.interrupted {
            context.out.say("the same command goes on where this one stopped");
            return Ok(130);
        }
    }
    compare(&original, &own, trial, context)
}

/// Prints the trial's metrics, as recorded and as reproduced. The exit code is 0 if all are equal, else 1.
fn compare(
    original: &crate::tree::Tree,
    own: &Reproduction,
    trial: u64,
    context: &Context,
) -> Result<u8> {
    let out = &context.out;
    let (record, _) = records::of_trial(&own.tree, trial)?;
    let dir = own.tree.dir().display();
    if record.outcome() != Some(Outcome::Done) {
        let attempt = record.decisive();
        let why = attempt.map(|attempt| attempt.why()).filter(|why| !why.is_empty());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        out.say(&format!("trial {trial} was done, and is not this time{why}"));
        out.say(&format!("reproduced in: {dir}"));
        return Ok(1);
    }
    let (was, is) =
        (collect::metrics_of(original, &own.recorded)?, collect::metrics_of(&own.tree, &record)?);
    let find = |all: &[(String, Value)], name: &str| {
        all.iter().find(|(own, _)| own == name).map_or(Value::Null, |(_, value)| value.clone())
    };
    let new = is.iter().filter(|(name, _)| !was.iter().any(|(known, _)| known == name));
    let names: Vec<&String> = was.iter().chain(new).map(|(name, _)| name).collect();
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|name| {
            let (a, b) = (find(&was, name), find(&is, name));
            vec![(*name).clone(), text(&a), text(&b), difference(&a, &b)]
        })
        .collect();
    let equal = rows.iter().filter(|row| row[3] == "equal").count();
    let head = ["metric", "recorded", "reproduced", "difference"].map(str::to_owned);
    if !rows.is_empty() {
        out.page(&aligned(&head, &rows));
    }
    let all = count(rows.len() as u64, "metric");
    out.say(&match rows.len() - equal {
        _ if rows.is_empty() => format!("trial {trial}: done both times, without metrics"),
        0 => format!("trial {trial}: reproduced: {all}, all equal"),
        n => format!("trial {trial}: {n} of {all} different"),
    });
    out.say(&format!("reproduced in: {dir}"));
    Ok(u8::from(equal < rows.len()))
}

/// In what two values differ.
fn difference(a: &Value, b: &Value) -> String {
    if a == b {
        return "equal".to_owned();
    }
    match (json_float(a), json_float(b)) {
        (Some(a), Some(b)) if a.is_nan() && b.is_nan() => "equal".to_owned(),
        (Some(x), Some(y)) if x == y => "equal".to_owned(),
        (Some(x), Some(y)) if x != 0.0 => {
            format!("{} ({} %)", signed(y - x), signed(100.0 * (y - x) / x.abs()))
        }
        (Some(x), Some(y)) => signed(y - x),
        _ => "different".to_owned(),
    }
}

/// A difference with its sign, to about four digits.
fn signed(number: f64) -> String {
    match number.abs() {
        1e-3..1e6 => format!("{number:+.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => format!("{number:+.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_has_its_sign_and_its_part() {
        let check = |a: Value, b: Value, expected: &str| assert_eq!(difference(&a, &b), expected);
        check(json!(0.5), json!(0.5), "equal");
        check(json!(1), json!(1.0), "equal");
        check(json!("nan"), json!("nan"), "equal");
        check(json!(13.5), json!(15.5), "+2 (+14.8148 %)");
        check(json!(-2.0), json!(-2.5), "-0.5 (-25 %)");
        check(json!(0), json!(1e-9), "+1.000e-9");
        check(json!(1.0), json!(1.0 + 1e-12), "+1.000e-12 (+1.000e-10 %)");
        check(json!("a"), json!("b"), "different");
        check(json!(1), Value::Null, "different");
    }
}
