//! `hpcsweep generate`: manual pages and completions, made from the command line itself.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Context};
use crate::host::disk;

/// Write manual pages or shell completions (used by the installation)
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
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8> {
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
                disk::make_dir(&dir.join(folder))?;
                disk::write_whole(&dir.join(folder).join(name), &text)?;
            }
        }
    }
    Ok(0)
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
