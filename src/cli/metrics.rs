//! Which metrics a verb is about, each with its goal: `--metric loss --min --metric seconds --min`.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::answers::collect::Goal;
use crate::answers::collect::statistics::Statistic;

/// Statistics of learning curves as columns.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct CurveStatistics {
    /// Add statistics of learning curves as columns: `area`, `tail`, `argmin`, `argmax`, `loss<=0.1` (docs/collect.md)
    #[arg(long, value_name = "STATISTICS", value_delimiter = ',', value_parser = statistic)]
    pub(super) curve: Vec<Statistic>,
}

fn statistic(word: &str) -> Result<Statistic, String> {
    word.parse().map_err(|fault: crate::base::fault::Fault| match fault.hint {
        Some(hint) => format!("{}: {hint}", fault.sentence),
        None => fault.sentence,
    })
}

/// The metrics in the order in which they were named; each goal belongs to the metric of the same place.
#[derive(Debug, Clone)]
pub(super) struct Metrics(pub(super) Vec<(String, Goal)>);

impl Metrics {
    /// The metrics' names, in the order of the command line.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// As on the command line.
    pub(super) fn words(metric: &str, goal: Goal) -> String {
        let goal = if goal == Goal::Min { "--min" } else { "--max" };
        format!("--metric {} {goal}", crate::base::words::sh_quote(metric))
    }
}

impl Args for Metrics {
    fn augment_args(command: Command) -> Command {
        let goal = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .help(help)
                .action(ArgAction::Append)
                .num_args(0)
                .default_missing_value("yes")
        };
        command
            .arg(
                Arg::new("metric")
                    .short('m')
                    .long("metric")
                    .required(true)
                    .action(ArgAction::Append)
                    .help(
                        "The metric: any column of numbers, `loss` (last value) or `loss.min` (best of its steps)",
                    ),
            )
            .arg(goal("min", "The least is best"))
            .arg(goal("max", "The greatest is best"))
            .group(clap::ArgGroup::new("goal").args(["min", "max"]).required(true).multiple(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Metrics {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let metrics: Vec<&String> = matches.get_many("metric").into_iter().flatten().collect();
        let at = |name: &str, goal: Goal| -> Vec<(usize, Goal)> {
            let is_named =
                matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
            let indices = matches.indices_of(name).filter(|_| is_named);
            indices.into_iter().flatten().map(|index| (index, goal)).collect()
        };
        let mut goals = [at("min", Goal::Min), at("max", Goal::Max)].concat();
        goals.sort_by_key(|(index, _)| *index);
        if goals.len() != metrics.len() {
            let sentence = match metrics.len() {
                1 => "a metric has one goal: `--min` or `--max`\n".to_owned(),
                n => format!("{n} metrics need {n} goals: say `--min` or `--max` behind each\n"),
            };
            return Err(Error::raw(ErrorKind::ArgumentConflict, sentence));
        }
        if let Some(twice) = (1..metrics.len()).find(|at| metrics[..*at].contains(&metrics[*at])) {
            let sentence = format!("`{}` is named twice\n", metrics[twice]);
            return Err(Error::raw(ErrorKind::ArgumentConflict, sentence));
        }
        let all = metrics.into_iter().cloned().zip(goals.into_iter().map(|(_, goal)| goal));
        Ok(Self(all.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
