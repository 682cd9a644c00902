//! The verbs in groups, as `hpcsweep --help` shows them.

use clap::Command;

/// The groups, and the verbs of each in the order in which people meet them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Begin", &["init", "run", "plan", "submit", "retry"]),
    ("Look", &["status", "watch", "why", "logs", "usage", "verify"]),
    ("Answer", &["collect", "best", "compare", "effects", "plot", "report"]),
    ("Share", &["export", "merge"]),
    ("Steer", &["cancel", "hold", "release"]),
    ("Site", &["doctor", "site", "templates", "schema"]),
    ("Inside jobs", &["worker", "launch", "gpu"]),
];

/// The column at which the descriptions of verbs begin, and the one before which their lines end.
const COLUMNS: (usize, usize) = (13, 100);

/// The command line with its verbs in groups.
pub(super) fn grouped(command: Command) -> Command {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&entry(verb, &about));
        }
        text.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";
    command.help_template(template).before_help(text.clone()).before_long_help(text)
}

/// A verb and what it does, in lines that fit.
fn entry(verb: &str, about: &str) -> String {
    let (from, to) = COLUMNS;
    let mut text = format!("  {verb:<width$}", width = from - 2);
    let mut at = from;
    for word in about.split(' ') {
        if at > from && at + 1 + word.len() > to {
            text.push_str(&format!("\n{:from$}", ""));
            at = from;
        }
        if at > from {
            text.push(' ');
            at += 1;
        }
        text.push_str(word);
        at += word.len();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_verb_that_is_shown_is_in_one_group() {
        let command = Cli::command();
        let shown: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(Command::get_name)
            .collect();
        let grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(grouped.len(), shown.len());
    }
}
