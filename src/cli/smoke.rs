//! `hpcsweep submit --smoke`: one trial, here and now, in a folder that is thrown away.

use std::path::Path;

use anyhow::Result;

use super::Context;
use crate::collect::{self, text};
use crate::fault::Fault;
use crate::host::{clock, disk};
use crate::site::Site;
use crate::submit::Source;
use crate::submit::local::{self, News, Options};
use crate::tree::Tree;
use crate::words::{count, duration};

/// Runs trial `number` of the plan and shows what came of it. Exit code 1 when it did not end well.
pub(super) fn run(
    mut source: Source,
    number: usize,
    templates: Option<&Path>,
    site: &Site,
    context: &Context,
) -> Result<u8> {
    let n = source.plan.trials.len();
    if number >= n {
        return Err(Fault::request(format!("the plan has no trial {number}"))
            .hint(format!("it has {}, numbered from 0", count(n as u64, "trial")))
            .into());
    }
    let templates = source.templates(templates, site)?;
    let base = context.vars.get("TMPDIR").map_or("/tmp", String::as_str);
    let dir = Path::new(base).join(format!("hpcsweep-smoke-{}", clock::short_token()));
    disk::make_dir(&dir)?;
    let trial = source.plan.trials.swap_remove(number);
    source.plan.trials = vec![trial];
    source.plan.root = dir.to_string_lossy().into_owned();
    let mut vars = context.vars.clone();
    // Every other HPCSWEEP_ variable of ours is private to workers.
    vars.insert("HPCSWEEP_SMOKE".to_owned(), "1".to_owned());
    let result = try_it(&source, number, site, &templates, &vars, context);
    disk::remove_tree(&dir);
    result
}

fn try_it(
    source: &Source,
    number: usize,
    site: &Site,
    templates: &crate::render::Templates,
    vars: &crate::host::Vars,
    context: &Context,
) -> Result<u8> {
    let out = &context.out;
    let options = Options { jobs: Some(1), retry: false };
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
    out.raw(&disk::read_bytes_if_there(&tree.log(0, 1))?);
    let table = collect::collect(&[(tree, identity)])?;
    let good = table.rows.iter().all(|row| table.state(row) == "done");
    for row in &table.rows {
        let metrics: Vec<String> = (table.first_metric..table.columns.len())
            .map(|c| format!("{}={}", table.columns[c], text(&row[c])))
            .collect();
        if !metrics.is_empty() {
            out.say(&format!("metrics: {}", metrics.join(" ")));
        }
    }
    out.say(&ended);
    Ok(u8::from(!good))
}
