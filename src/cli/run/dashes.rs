//! A forgotten `--`: the words of the command are read as options of `run`, and its own line says where it belongs.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

use crate::base::words::sh_quote;

/// Says in a fault of `run` where `--` belongs, if a command stands in the line without it.
pub(in crate::cli) fn name_dashes(
    args: &[OsString],
    program: &clap::Command,
    error: &mut clap::Error,
) {
    let words: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(at) = words.iter().position(|word| word == "run") else { return };
    let Some(options) = program.find_subcommand("run") else { return };
    let Some(mended) = with_dashes(&words[at + 1..], options) else { return };
    let tip = format!("the command stands after '--': {}", mended);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The line with `--` before its command, which begins with the first word that is no parameter and no option.
fn with_dashes(words: &[String], options: &clap::Command) -> Option<String> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let mut is_value = false;
    let begin = words.iter().position(|word| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        if word.starts_with('-') {
            is_value = takes_value(word, options);
            return false;
        }
        !word.contains('=')
    })?;
    let quoted =
        |words: &[String]| -> Vec<String> { words.iter().map(|word| sh_quote(word)).collect() };
    let line = [quoted(&words[..begin]), vec!["--".to_owned()], quoted(&words[begin..])].concat();
    Some(format!("hpcsweep run {}", line.join(" ")))
}

/// Whether the word behind an option is its value.
fn takes_value(word: &str, options: &clap::Command) -> bool {
    let is_it = |arg: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long)
                || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => word.len() == 2 && arg.get_short() == word.chars().nth(1),
    };
    let takes = |arg: &clap::Arg| {
        arg.get_action().takes_values() && arg.get_num_args().is_none_or(|n| n.min_values() > 0)
    };
    options.get_arguments().find(is_it).is_some_and(takes)
}
