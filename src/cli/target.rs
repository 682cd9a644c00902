//! The options that say for which scheduler a verb is: one for each kind.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::cluster::scheduler;
use crate::plan::site::{SchedulerKind, Site};

/// The target that was named: `HERE` with this machine among the options, for a verb that submits; else for one
/// that shows.
#[derive(Debug)]
pub(super) struct Target<const HERE: bool>(Option<SchedulerKind>);

impl<const HERE: bool> Target<HERE> {
    /// The scheduler that was named, else that of the site profile.
    pub(super) fn kind(&self, site: &Site) -> SchedulerKind {
        self.0.unwrap_or(site.scheduler.kind)
    }

    /// The target that was named, else this machine.
    pub(super) fn or_here(&self) -> SchedulerKind {
        self.0.unwrap_or(SchedulerKind::Local)
    }

    /// The kinds that have an option, each with its word.
    fn options() -> impl Iterator<Item = (&'static str, SchedulerKind)> {
        let has_option =
            |kind: SchedulerKind| kind.takes_jobs() || (HERE && kind == SchedulerKind::Local);
        SchedulerKind::ALL.into_iter().filter(move |(_, kind)| has_option(*kind))
    }
}

impl<const HERE: bool> Args for Target<HERE> {
    fn augment_args(command: Command) -> Command {
        let option = |(word, kind): (&'static str, SchedulerKind)| {
            let name = scheduler::of(kind).facts().name;
            let help = match kind.takes_jobs() {
                true if HERE => format!("Submit to {name}"),
                true => format!("For {name}, whatever the site profile says"),
                false => "Run on this machine (the default unless the site profile says otherwise)"
                    .to_owned(),
            };
            Arg::new(word).long(word).action(ArgAction::SetTrue).help(help)
        };
        let words = Self::options().map(|(word, _)| word);
        let group = ArgGroup::new("target").args(words).multiple(false);
        command.args(Self::options().map(option)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const HERE: bool> FromArgMatches for Target<HERE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let named = Self::options().find(|(word, _)| matches.get_flag(word));
        Ok(Self(named.map(|(_, kind)| kind)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
