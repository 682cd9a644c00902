//! `hpcsweep submit --smoke`: one trial, here and now, in a folder that is thrown away.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr;

use anyhow::Result;

use super::Context;
use crate::answers::collect;
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, disk, process};
use crate::base::words::{count, duration};
use crate::cluster::render::Templates;
use crate::plan::Resources;
use crate::plan::site::Site;
use crate::run::pull::{agent, program};
use crate::submit::Source;
use crate::submit::local::{self, LocalOptions, News};
use crate::submit::pilots::deal;
use crate::submit::preview;
use crate::sweep::tree::records::{self, Outcome};
use crate::sweep::tree::{Identity, Tree};

/// Which trials are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Trial(usize),
    /// The first of each distinct request.
    Each,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Self::Each),
            _ => text.parse().map(Self::Trial).map_err(|_| {
                "write the number of a trial, or `each`: `--smoke=0` before other words".to_owned()
            }),
        }
    }
}

/// Runs trials of the plan and shows what came of them. Exit code 1 when one did not end well: those behind it are not
/// tried then.
pub(super) fn run(
    mut source: Source,
    which: Which,
    templates: Option<&Path>,
    site: &Site,
    context: &Context,
) -> Result<u8> {
    let n = source.plan.trials.len();
    let numbers: Vec<usize> = match which {
        Which::Trial(number) if number >= n => {
            return Err(Fault::request(format!("the plan has no trial {number}"))
                .hint(format!("it has {}, numbered from 0", count(n as u64, "trial")))
                .into());
        }
        Which::Trial(number) => vec![number],
        Which::Each => {
            let mut seen: HashSet<&Resources> = HashSet::new();
            let trials = source.plan.trials.iter().enumerate();
            trials.filter(|(_, trial)| seen.insert(&trial.resources)).map(|(n, _)| n).collect()
        }
    };
    let templates = source.templates(templates, site)?;
    let trials = std::mem::take(&mut source.plan.trials);
    for number in numbers {
        if which == Which::Each {
            let request = preview::request_words(&trials[number].resources);
            context.out.say(&format!("trial {number}: {request}"));
        }
        source.plan.trials = vec![trials[number].clone()];
        let code = one(&mut source, number, site, &templates, context)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

/// Runs the one trial of a plan, which has this number in the whole plan.
fn one(
    source: &mut Source,
    number: usize,
    site: &Site,
    templates: &Templates,
    context: &Context,
) -> Result<u8> {
    let base = context.vars.get("TMPDIR").map_or("/tmp", String::as_str);
    let dir = Path::new(base).join(format!("hpcsweep-smoke-{}", clock::short_token()));
    disk::make_dir(&dir)?;
    source.plan.root = dir.to_string_lossy().into_owned();
    source.moved = None;
    let mut vars = context.vars.clone();
    // Every other HPCSWEEP_ variable of ours is private to workers.
    vars.insert("HPCSWEEP_SMOKE".to_owned(), "1".to_owned());
    let result = match source.plan.run.function.is_some() {
        true => try_function(source, number, site, templates, &vars, context),
        false => try_it(source, number, site, templates, &vars, context),
    };
    disk::remove_tree(&dir);
    result
}

fn try_it(
    source: &Source,
    number: usize,
    site: &Site,
    templates: &Templates,
    vars: &Vars,
    context: &Context,
) -> Result<u8> {
    let out = &context.out;
    let options = LocalOptions { jobs: Some(1), ..LocalOptions::default() };
    let mut ended = String::new();
    let report = local::run(source, site, templates, &options, vars, |news| {
        if let News::Ended { outcome, reason, duration_s, .. } = news {
            let word = outcome
                .map_or_else(|| "interrupted".to_owned(), |o| format!("{o:?}").to_lowercase());
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            ended = format!("trial {number}: {word} in {}{reason}", duration(duration_s));
        }
    })?;
    let (tree, identity) = Tree::open(report.tree.dir())?;
    disk::each_piece(&tree.log(0, 1), 0, u64::MAX, |piece| out.raw(piece))?;
    let good = say_metrics(tree, identity, context)?;
    out.say(&ended);
    Ok(u8::from(!good))
}

/// Has the program of the function's sweep call it once.
fn try_function(
    source: &Source,
    number: usize,
    site: &Site,
    templates: &Templates,
    vars: &Vars,
    context: &Context,
) -> Result<u8> {
    let dealt = deal::deal(source, site, templates, &deal::DealOptions::default(), vars, || false)?;
    let options = agent::Options { slots: Some(1), quiet: true, ..agent::Options::default() };
    let Some((argv, env)) = program::of(&dealt.tree, &options, vars)? else {
        source.plan.run.refuse_function(|| source.author())?;
        return Ok(2);
    };
    let code = process::run_aside(&argv, &env, context.out.stdout()?)?;
    let (tree, identity) = Tree::open(dealt.tree.dir())?;
    let ends: Vec<String> = records::all(&tree)?
        .values()
        .filter_map(|record| record.attempts.last())
        .map(|attempt| {
            let outcome = attempt.outcome();
            let word =
                outcome.map_or("interrupted".to_owned(), |o| format!("{o:?}").to_lowercase());
            let reason = match attempt.why() {
                why if why.is_empty() || outcome == Some(Outcome::Done) => String::new(),
                why => format!(": {why}"),
            };
            let took = attempt.end.as_ref().map_or(0.0, |end| end.duration_s);
            format!("trial {number}: {word} in {}{reason}", duration(took))
        })
        .collect();
    let good = say_metrics(tree, identity, context)?;
    ends.iter().for_each(|end| context.out.say(end));
    if ends.is_empty() {
        context
            .out
            .say(&format!("trial {number} was not begun: the program ended with exit code {code}"));
    }
    Ok(u8::from(!good || code != 0))
}

/// Shows the metrics of the tree's trials: whether all of them are done.
fn say_metrics(tree: Tree, identity: Identity, context: &Context) -> Result<bool> {
    let table = collect::collect(vec![crate::sweep::status::read(tree, identity, None)?])?;
    for row in &table.rows {
        let metrics: Vec<String> = (table.first_metric..table.columns.len())
            .map(|c| format!("{}={}", table.columns[c], table.cell(row, c).text()))
            .collect();
        if !metrics.is_empty() {
            context.out.say(&format!("metrics: {}", metrics.join(" ")));
        }
    }
    Ok(!table.rows.is_empty() && table.rows.iter().all(|row| table.state(row) == "done"))
}
