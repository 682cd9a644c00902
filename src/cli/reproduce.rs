//! `hpcsweep submit --reproduce`: one trial again, compared with what was recorded.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::out::aligned;
use super::{Context, sweeps};
use crate::answers::collect::{self, is_gpu_sample, text};
use crate::base::host::access;
use crate::base::words::count;
use crate::cluster::render::Templates;
use crate::plan::site::Site;
use crate::plan::value::json_float;
use crate::submit::Source;
use crate::submit::arrays::batch;
use crate::submit::local::{self, LocalOptions};
use crate::submit::reproduce::{self, Reproduction};
use crate::sweep::tree::records::{self, Outcome};

/// Hands the trial to a scheduler.
pub(super) type Submit<'a> = &'a dyn Fn(&batch::ArrayOptions, &Source, &Templates) -> Result<u8>;

/// Runs a trial again, on this machine unless there is `submit`, and compares it. Exit code 1 if a metric differs, or the
/// trial did not succeed this time.
pub(super) fn run(
    (named, trial): (&Path, u64),
    templates: Option<&Path>,
    site: &Site,
    submit: Option<Submit<'_>>,
    json: bool,
    context: &Context,
) -> Result<u8> {
    let (original, identity) = sweeps::one(&[named.to_string_lossy().into_owned()], context)?;
    let dir = original.dir();
    if named.is_file() {
        original.trust()?;
    } else if let Some(owner) = access::owner_of(dir).filter(|_| !access::is_own(dir)) {
        let dir = dir.display();
        context
            .out
            .say(&format!("`{dir}` belongs to {owner}: what runs now is what its plan says"));
    }
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
    let compared = compare(&original, &own, trial)?;
    match json {
        true => context.out.json(&compared)?,
        false => show(&compared, context),
    }
    Ok(u8::from(!compared.equal))
}

/// Both results, as `--json` writes them.
#[derive(Debug, Serialize)]
struct Compared {
    sweep: String,
    trial: u64,
    /// The folder of the sweep that ran the trial again.
    dir: PathBuf,
    /// Whether the trial was done this time.
    done: bool,
    /// Why it was not.
    reason: String,
    /// Whether it was done with the same metrics.
    equal: bool,
    metrics: Vec<Metric>,
}

/// A metric of both.
#[derive(Debug, Serialize)]
struct Metric {
    metric: String,
    recorded: Value,
    reproduced: Value,
    equal: bool,
}

/// Compares both results.
fn compare(
    original: &crate::sweep::tree::Tree,
    own: &Reproduction,
    trial: u64,
) -> Result<Compared> {
    let (record, _) = records::of_trial(&own.tree, trial)?;
    let done = record.outcome() == Some(Outcome::Done);
    let mut compared = Compared {
        sweep: own.source.plan.name.clone(),
        trial,
        dir: own.tree.dir().to_owned(),
        done,
        reason: String::new(),
        equal: false,
        metrics: Vec::new(),
    };
    if !done {
        compared.reason = record.decisive().map(|attempt| attempt.why()).unwrap_or_default();
        return Ok(compared);
    }
    let (was, is) =
        (collect::metrics_of(original, &own.recorded)?, collect::metrics_of(&own.tree, &record)?);
    let is_train = own.source.plan.run.train.is_some();
    let new = is.iter().filter(|(name, _)| !was.iter().any(|(known, _)| known == name));
    let of = |name: &String| {
        let (recorded, reproduced) = (find(&was, name), find(&is, name));
        let equal = difference(&recorded, &reproduced) == "equal";
        Metric { metric: name.clone(), recorded, reproduced, equal }
    };
    let all = was.iter().chain(new).map(|(name, _)| name);
    let is_meant = |name: &&String| !is_gpu_sample(name) && (!is_train || is_of_the_model(name));
    compared.metrics = all.filter(is_meant).map(of).collect();
    compared.equal = compared.metrics.iter().all(|metric| metric.equal);
    Ok(compared)
}

/// Whether a metric of `[train]` is one of the model, and not of the machine on which it was trained or of the place of its file.
fn is_of_the_model(name: &str) -> bool {
    let name = name.strip_suffix(".min").or_else(|| name.strip_suffix(".max")).unwrap_or(name);
    !["seconds", "samples_per_second", "weights"].contains(&name)
}

/// A metric of a trial; null if it has none of this name.
fn find(all: &[(String, Value)], name: &str) -> Value {
    let found = all.iter().find(|(own, _)| own == name);
    found.map_or(Value::Null, |(_, value)| value.clone())
}

/// Shows both results.
fn show(compared: &Compared, context: &Context) {
    let out = &context.out;
    let Compared { trial, metrics, .. } = compared;
    let dir = compared.dir.display();
    if !compared.done {
        let why = match compared.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        out.say(&format!("trial {trial} was done, and is not this time{why}"));
        out.say(&format!("reproduced in: {dir}"));
        return;
    }
    let row = |one: &Metric| {
        let Metric { metric, recorded, reproduced, .. } = one;
        vec![metric.clone(), text(recorded), text(reproduced), difference(recorded, reproduced)]
    };
    let head = ["metric", "recorded", "reproduced", "difference"].map(str::to_owned);
    if !metrics.is_empty() {
        out.page(&aligned(&head, &metrics.iter().map(row).collect::<Vec<_>>()));
    }
    let all = count(metrics.len() as u64, "metric");
    out.say(&match metrics.iter().filter(|metric| !metric.equal).count() {
        _ if metrics.is_empty() => format!("trial {trial}: done both times, without metrics"),
        0 => format!("trial {trial}: reproduced: {all}, all equal"),
        n => format!("trial {trial}: {n} of {all} different"),
    });
    out.say(&format!("reproduced in: {dir}"));
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
    fn speed_and_place_of_a_training_are_not_compared() {
        let all = ["val_loss", "seconds", "samples_per_second.min", "weights", "parameters.max"];
        let compared: Vec<&str> = all.into_iter().filter(|name| is_of_the_model(name)).collect();
        assert_eq!(compared, ["val_loss", "parameters.max"]);
    }

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
