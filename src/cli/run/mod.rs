//! `hpcsweep run`: a sweep in one line. Writes the plan that a person would have written, and submits it.

mod axes;
mod command;
mod dashes;
mod lines;
mod own;
mod text;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use super::Context;
use super::change::Change;
use super::submit::{self, How};
use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::words::ticked;
use crate::plan::document::Word;
use crate::plan::{Style, is_name, variable_of};
use command::Names;
use lines::{Kind, Lines};
use own::Own;
use text::{List, Wanted};

/// Run a sweep in one line: write its plan, and submit it or run it on this machine
///
/// `{lr}` in the command is the value of the parameter `lr`, `{args}` all of them, `{}` a line of input. The plan is the file NAME.toml of this folder.
/// The same command again continues the sweep: what is done is not run again. To change more than a line can say, edit the plan
/// and use `submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hpcsweep run lr=0.1,0.01 seed=1..5 -- python3 train.py --lr {lr} --seed {seed}
  hpcsweep run --slurm --time 10m --mem 2G 'lr=log(1e-4,1e-1,7)' -- python3 train.py --lr {lr}
  hpcsweep run --args hydra lr=0.1,0.01 seed=1..5 -- python3 train.py {args}
  hpcsweep run --slurm --lines commands.txt
  ls data/*.nii | hpcsweep run --slurm -- ./segment {}")]
pub(crate) struct Args {
    /// Parameters: `lr=0.1,0.01`, `seed=1..5`, `lr=log(1e-4,1e-1,7)`, `x=linear(0,1,11)`; all combinations run
    #[arg(value_name = "NAME=VALUES")]
    words: Vec<String>,
    /// What each trial runs; no shell reads it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// A trial for each line of this file, `-` for standard input: a command for bash, or with COMMAND what `{}` stands for
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// The name of the sweep and of its plan (by default that of the program or script)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How `{args}`, all parameters, is written: `--lr 0.1`, `--lr=0.1`, or `lr=0.1` for Hydra (by default flags)
    #[arg(long, value_name = "STYLE", value_parser = Style::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>())]
    args: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    request: Request,
}

/// What each trial asks for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Requests of each trial")]
struct Request {
    #[command(flatten)]
    change: Change,
    /// Processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
}

impl Request {
    fn keys(&self) -> Result<Vec<(&'static str, String)>> {
        let numbers = [("nodes", self.nodes), ("ranks", self.ranks)];
        let numbers = numbers.into_iter().filter_map(|(key, n)| Some((key, n?.to_string())));
        Ok(numbers.chain(self.change.keys()?).collect())
    }
}

pub(super) use dashes::name_dashes;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let (wanted, notes) = wanted(args)?;
    let own = Own::new(wanted);
    if args.lines.as_deref() == Some(&*own.path) {
        let sentence =
            format!("`{}` holds the lines, and is where the plan would be", own.path.display());
        return Err(Fault::request(sentence)
            .hint("give the sweep another name: `--name OTHER`")
            .into());
    }
    own.check()?;
    let mut source = own.source()?;
    notes.iter().for_each(|note| context.out.say(note));
    if args.how.rehearses() && !args.how.json {
        context.out.say(&format!("would write {}:", own.named()));
        context.out.page(&own.text);
        context.out.page("\n");
    }
    if args.how.only_shows() {
        return submit::submit(source, &args.how, args.how.again(), &site, context);
    }
    if own.is_there()? {
        context.out.say(&format!("as before: {}", own.named()));
        return submit::submit(source, &args.how, args.how.again(), &site, context);
    }
    let own = Arc::new(own);
    let (draft, quiet) = (Arc::clone(&own), context.out.quiet);
    source.write_with(Box::new(move || draft.write(quiet)));
    let code = submit::submit(source, &args.how, args.how.again(), &site, context)?;
    // A submission that adds nothing to the sweep has not written it.
    own.write(context.out.quiet)?;
    Ok(code)
}

/// What the command line asks for, and what its user may not expect of it.
fn wanted(args: &Args) -> Result<(Wanted, Vec<String>)> {
    let lines = read_lines(args)?;
    let parameter = lines.as_ref().map(|lines| lines.kind.parameter());
    let axes = axes::read(&args.words, parameter)?;
    check_command(args, lines.is_some())?;
    let mut words = args.command.clone();
    if let Some(lines) = &lines {
        match lines.kind {
            Kind::Command => words = ["bash", "-c", "{}"].map(str::to_owned).to_vec(),
            Kind::Value => {
                let parameter = lines.kind.parameter();
                let has_line = |word: &String| {
                    command::takes_line(word) || command::names_line(word, parameter)
                };
                if !words.iter().any(has_line) {
                    words.push("{}".to_owned());
                }
            }
        }
    }
    let names = Names { axes: axes.iter().map(|axis| &*axis.name).collect(), input: parameter };
    let command = command::read(&words, &names)?;
    let mut notes = lines.as_ref().map(|lines| lines.notes.clone()).unwrap_or_default();
    let is_unused = |name: &&&str| !command.used.contains(**name);
    let unused: Vec<&str> = names.axes.iter().filter(is_unused).copied().collect();
    if !unused.is_empty() {
        let variables: Vec<String> =
            unused.iter().map(|name| format!("${}", variable_of(name))).collect();
        let stands = if unused.len() == 1 { "stands" } else { "stand" };
        notes.push(format!(
            "{} {stands} in no argument: programs find the value in {}",
            ticked(&unused),
            ticked(&variables)
        ));
    }
    if axes.is_empty() && lines.is_none() {
        notes.push("one trial: there is no parameter (`lr=0.1,0.01`), and `{}` for lines of standard input is not in it".to_owned());
    }
    let name = name(args)?;
    let list = lines.map(|lines| List::new(&name, lines.kind.parameter(), lines.list()));
    let (argv, style, requests) = (command.argv, args.args.clone(), args.request.keys()?);
    Ok((Wanted { name, argv, args: style, requests, axes, list }, notes))
}

/// How braces stay braces, for hints.
const LITERAL: &str = "for braces that the program gets as they are write `p='\"{}\"'` before `--` and `{p}` in the command";

/// The lines that trials are made of, if any. Standard input is read only if it is asked for: under cron, ssh or another program it
/// may never end.
fn read_lines(args: &Args) -> Result<Option<Lines>> {
    let kind = if args.command.is_empty() { Kind::Command } else { Kind::Value };
    let from = match &args.lines {
        Some(file) if file != Path::new("-") => Some(file),
        Some(_) => None,
        None if args.command.iter().any(|word| command::takes_line(word)) => None,
        None => return Ok(None),
    };
    let Some(file) = from else {
        if std::io::stdin().is_terminal() {
            return Err(Fault::request("the lines come from standard input, which is a terminal")
                .hint(format!("pipe them in (`ls data/* | hpcsweep run -- ./segment {{}}`), or name a file: `--lines FILE`; {LITERAL}"))
                .into());
        }
        let bytes = disk::read_standard_input().map_err(|e| {
            Fault::request(format!("cannot read standard input: {}", disk::reason(&e)))
        })?;
        if args.lines.is_none() && bytes.iter().all(|byte| b"\r\n".contains(byte)) {
            let sentence = "standard input has no line, and `{}` in the command asks for lines";
            return Err(Fault::request(sentence)
                .hint(format!("pipe them in, one value a line; {LITERAL}"))
                .into());
        }
        return Ok(Some(Lines::read("standard input", &bytes, kind)?));
    };
    let name = file.display().to_string();
    let bytes = disk::read_named_bytes(file).map_err(|e| {
        Fault::request(format!("cannot read the lines `{name}`: {}", disk::reason(&e)))
            .hint("`--lines FILE` names a file with one command or one value a line")
    })?;
    Ok(Some(Lines::read(&name, &bytes, kind)?))
}

/// Refuses a command that is missing, or that only a shell could read.
fn check_command(args: &Args, has_lines: bool) -> Result<(), Fault> {
    match &*args.command {
        [] if !has_lines => Err(Fault::request("there is no command to run").hint(
            "write it after `--`: `hpcsweep run lr=0.1,0.01 -- python3 train.py --lr {lr}`; or one a line: `--lines FILE`",
        )),
        [program, ..] if program.trim().is_empty() => {
            Err(Fault::request("the program is an empty text").hint("write it first after `--`"))
        }
        [program] if program.contains(char::is_whitespace) && !Path::new(program).exists() => {
            Err(Fault::request("the command is one word with blanks, and no program of that name is here")
                .at(format!("in the command: {program}"))
                .hint("write it without the quotes around all of it; for shell code `-- bash -c '...'`"))
        }
        _ => Ok(()),
    }
}

fn name(args: &Args) -> Result<String, Fault> {
    let Some(name) = &args.name else {
        let file = args.lines.as_ref().filter(|_| args.command.is_empty());
        let stem =
            file.and_then(|file| file.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
        let stem = stem.map(|stem| if stem == "-" { "lines".to_owned() } else { stem });
        return Ok(text::name_of(&stem.map_or_else(|| args.command.clone(), |stem| vec![stem])));
    };
    match is_name(name) {
        true => Ok(name.clone()),
        false => Err(Fault::request(format!("`{name}` cannot be the name of a sweep")).hint(
            "use letters, digits, `.`, `_` and `-`; at most 64 of them, the first a letter or digit",
        )),
    }
}
