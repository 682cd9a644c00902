//! What a shell can offer for the word that is being typed: sweeps, trials, metrics, states. The shells' own scripts know the rest.
//!
//! A key press waits for this, so it asks no scheduler and reads little of a large sweep.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use clap::{Arg, Command, CommandFactory};

use super::{Cli, Context, sweeps};
use crate::answers::collect;
use crate::answers::select::is_set;
use crate::base::cause::TABLE;
use crate::sweep::standing::State;
use crate::sweep::status;
use crate::sweep::tree::{Tree, table};

/// Candidates of numbers at most.
const MOST: usize = 100;

/// Trials whose metrics are looked at.
const LOOKED_AT: usize = 20;

/// What a word can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    State,
    Cause,
    Metric,
    Ids,
    Sweep,
    SweepOrIds,
}

/// Prints the candidates for the last one of these words, a line each; none where the shell's script knows better.
pub(super) fn print(typed: &[String], context: &Context) {
    let Some((word, before)) = typed.split_last() else { return };
    let Some(kind) = kind(before, word) else { return };
    let found = of(kind, before, word, context).unwrap_or_default();
    let fits = found.into_iter().filter(|candidate| candidate.starts_with(word.as_str()));
    fits.for_each(|candidate| context.out.data(&candidate));
}

/// What a word can be behind these.
fn kind(before: &[String], word: &str) -> Option<Kind> {
    let command = Cli::command();
    let verb = before.iter().find(|word| !word.starts_with('-'))?;
    let verb = command.find_subcommand(verb)?;
    let option = before.last().and_then(|last| option(verb, last));
    if let Some(option) = option.filter(|option| option.get_action().takes_values()) {
        return match option.get_id().as_str() {
            "state" => Some(Kind::State),
            "cause" => Some(Kind::Cause),
            "metric" => Some(Kind::Metric),
            "trial" => Some(Kind::Ids),
            _ => None,
        };
    }
    if word.starts_with('-') {
        return None;
    }
    let names = verb.get_positionals().next()?.get_value_names()?;
    match names.first().map(|name| name.as_str()) {
        Some("SWEEP|IDS" | "IDS|SWEEP") => Some(Kind::SweepOrIds),
        Some("SWEEP") => Some(Kind::Sweep),
        _ => None,
    }
}

/// The option of a verb that is written so.
fn option<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    let has_name = |arg: &&Arg| match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => arg.get_long() == Some(long),
        (None, Some(short)) => arg.get_short().is_some_and(|own| short == own.to_string()),
        (None, None) => false,
    };
    verb.get_arguments().find(has_name)
}

/// All candidates of a kind.
fn of(kind: Kind, before: &[String], word: &str, context: &Context) -> Result<Vec<String>> {
    // Of a list its last item is typed.
    let item = match kind {
        Kind::State | Kind::Cause => word.rfind(','),
        _ if is_set(word) => word.rfind([',', '-']),
        _ => None,
    };
    let item = item.map_or(0, |at| at + 1);
    let (list, item) = word.split_at(item);
    let behind = |all: Vec<String>| all.into_iter().map(|one| format!("{list}{one}")).collect();
    let sweep = || -> Result<Tree> {
        let named: Vec<String> = before
            .iter()
            .filter(|word| Path::new(word).join("sweep.json").is_file())
            .cloned()
            .collect();
        Ok(sweeps::one(&named, context)?.0)
    };
    Ok(match kind {
        Kind::State => behind(State::KNOWN.iter().map(State::word).collect()),
        Kind::Cause => behind(TABLE.iter().map(|(_, word, ..)| (*word).to_owned()).collect()),
        Kind::Metric => metrics(&sweep()?)?,
        Kind::Ids => behind(ids(&sweep()?, item)?),
        Kind::Sweep => sweeps::known(context),
        // Numbers, once one is begun: a sweep has many.
        Kind::SweepOrIds if is_set(word) => behind(ids(&sweep()?, item)?),
        Kind::SweepOrIds => sweeps::known(context),
    })
}

/// Numbers of trials that begin so.
fn ids(tree: &Tree, begun: &str) -> Result<Vec<String>> {
    let trials = table::heads(tree)?.last().map_or(0, |head| head.first + head.count);
    let is_begun = |trial: &String| trial.starts_with(begun);
    Ok((0..trials).map(|trial| trial.to_string()).filter(is_begun).take(MOST).collect())
}

/// The metrics of the first trials that have any, as `best` knows them.
fn metrics(tree: &Tree) -> Result<Vec<String>> {
    let (tree, identity) = Tree::open(tree.dir())?;
    let status = status::read(tree, identity, None)?;
    let mut names = BTreeSet::new();
    let begun = status.trials().filter(|(row, _)| status.records.contains_key(&row.id));
    for (row, standing) in begun.take(LOOKED_AT) {
        let line = collect::of_trial(&status, (row, standing), Some(1))?;
        names.extend(line.metrics.into_iter().map(|(name, _)| name));
    }
    Ok(names.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_word_can_be_follows_from_the_words_before_it() {
        let kind = |before: &str, word: &str| {
            kind(&before.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), word)
        };
        assert_eq!(kind("status", ""), Some(Kind::SweepOrIds));
        assert_eq!(kind("-q retry results/s", "3"), Some(Kind::SweepOrIds));
        assert_eq!(kind("logs -f", ""), Some(Kind::SweepOrIds));
        assert_eq!(kind("logs -n", ""), None);
        assert_eq!(kind("watch", "res"), Some(Kind::Sweep));
        assert_eq!(kind("best -m", ""), Some(Kind::Metric));
        assert_eq!(kind("cancel results/s --state", "fa"), Some(Kind::State));
        assert_eq!(kind("submit plan.toml --retry --trial", ""), Some(Kind::Ids));
        assert_eq!(kind("retry --cause", "oom,"), Some(Kind::Cause));
        for (before, word) in [("", "st"), ("submit", "pl"), ("status", "--off"), ("no-verb", "")] {
            assert_eq!(kind(before, word), None, "{before} {word}");
        }
    }
}
