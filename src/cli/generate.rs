//! `hpcsweep generate`: manual pages and completions, made from the command line itself.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Context, candidates};
use crate::base::host::disk;

/// Write manual pages or shell completions (used by the installation), or what completes a word
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// One manual page a verb
    Man {
        /// The folder
        dir: PathBuf,
    },
    /// Completions for bash, zsh and fish
    Completions {
        /// The folder
        dir: PathBuf,
    },
    /// What the last one of these words of a command can become (used by the completions)
    Candidates {
        /// The words behind `hpcsweep`
        #[arg(last = true)]
        words: Vec<String>,
    },
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    match &args.verb {
        Verb::Man { dir } => {
            disk::make_dir(dir)?;
            page(&mut Cli::command(), "hpcsweep", dir)?;
        }
        Verb::Completions { dir } => {
            for (shell, folder, name) in [
                (Shell::Bash, "bash", "hpcsweep"),
                (Shell::Zsh, "zsh", "_hpcsweep"),
                (Shell::Fish, "fish", "hpcsweep.fish"),
            ] {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "hpcsweep", &mut text);
                let text = with_candidates(shell, &String::from_utf8_lossy(&text));
                disk::make_dir(&dir.join(folder))?;
                disk::write_whole(&dir.join(folder).join(name), text.as_bytes())?;
            }
        }
        Verb::Candidates { words } => candidates::print(words, context),
    }
    Ok(0)
}

/// In bash: the candidates of the program, if it has any, else what the script knows.
const BASH: &str = r#"
_hpcsweep_candidates() {
    local own
    own=$("$1" generate candidates -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n $own ]]; then
        local IFS=$'\n'
        COMPREPLY=($own)
        return 0
    fi
    _hpcsweep "$@"
}

"#;

/// The same in zsh.
const ZSH: &str = r#"
_hpcsweep() {
    local -a own
    own=(${(f)"$("${words[1]}" generate candidates -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#own )); then
        compadd -Q -a own
    else
        _hpcsweep_script "$@"
    fi
}

"#;

/// The same in fish, which joins them with what the script knows.
const FISH: &str = r#"
function __fish_hpcsweep_candidates
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    $program generate candidates -- $words "$typed" 2>/dev/null
end

set -l verbs status collect best compare effects report logs cancel hold release retry watch
complete -c hpcsweep -n "__fish_seen_subcommand_from $verbs" -a "(__fish_hpcsweep_candidates)"
complete -c hpcsweep -n "__fish_seen_subcommand_from $verbs submit" -l state -x -a "(__fish_hpcsweep_candidates)"
complete -c hpcsweep -n "__fish_seen_subcommand_from $verbs submit" -l cause -x -a "(__fish_hpcsweep_candidates)"
complete -c hpcsweep -n "__fish_seen_subcommand_from $verbs submit" -l trial -x -a "(__fish_hpcsweep_candidates)"
complete -c hpcsweep -n "__fish_seen_subcommand_from best compare effects report watch" -s m -l metric -x -a "(__fish_hpcsweep_candidates)"
"#;

/// A script that asks the program for sweeps, trials, metrics and states.
fn with_candidates(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let (functions, end) =
                script.rsplit_once("\nif [[ \"${BASH_VERSINFO[0]}\"").unwrap_or((script, ""));
            let end = end.replace("complete -F _hpcsweep ", "complete -F _hpcsweep_candidates ");
            format!("{functions}{BASH}if [[ \"${{BASH_VERSINFO[0]}}\"{end}")
        }
        Shell::Zsh => {
            let script = script.replacen("\n_hpcsweep() {", "\n_hpcsweep_script() {", 1);
            let (functions, end) =
                script.rsplit_once("\nif [ \"$funcstack[1]\"").unwrap_or((&script, ""));
            format!("{functions}{ZSH}if [ \"$funcstack[1]\"{end}")
        }
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

fn page(command: &mut clap::Command, name: &str, dir: &Path) -> Result<()> {
    let mut text = Vec::new();
    let titled = command.clone().display_name(name.to_owned()).bin_name(name.replace('-', " "));
    clap_mangen::Man::new(titled).title(name.to_uppercase()).render(&mut text)?;
    disk::write_whole(&dir.join(format!("{name}.1")), &text)?;
    for sub in command.get_subcommands_mut().filter(|s| !s.is_hide_set() && s.get_name() != "help")
    {
        let name = format!("{name}-{}", sub.get_name());
        page(sub, &name, dir)?;
    }
    Ok(())
}
