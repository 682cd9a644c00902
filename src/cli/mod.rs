//! The command line: arguments become requests, answers become text. One file a verb.

mod best;
mod candidates;
mod change;
mod chosen;
mod collect;
mod compare;
mod doctor;
mod effects;
mod ended;
mod export;
mod feed;
mod generate;
mod gpu;
mod groups;
mod init;
mod jobs;
mod launch;
mod logs;
mod merge;
mod metrics;
mod next;
mod out;
mod plan;
mod plot;
mod project;
mod pull;
mod rehearsal;
mod report;
mod reproduce;
mod retry;
mod run;
mod schema;
mod script;
mod select;
mod sibling;
mod site;
mod smoke;
mod spark;
mod status;
mod submit;
mod sweeps;
mod target;
mod templates;
mod usage;
mod verify;
mod warnings;
mod watch;
mod why;
mod worker;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::answers::collect::sheet;
use crate::answers::plot::Draw;
use crate::base::host::{Vars, disk, signal, vars};
use crate::plan::site::Site;

use out::Out;

/// Parameter sweeps on HPC batch systems: one plan, native job arrays, one results tree
///
/// A plan is a TOML file: what to run, with which parameters, on which resources. `submit` turns it into job
/// arrays (or runs it on this machine), `status` shows how it stands, `collect` makes the table.
#[derive(Debug, Parser)]
#[command(name = "hpcsweep", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 some trials failed, 2 the request is wrong, \
3 the scheduler refused or cannot be reached, 4 the machine failed, 70 a bug of hpcsweep.")]
pub(crate) struct Cli {
    /// Print only results and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(init::Args),
    Run(run::Args),
    Plan(plan::Args),
    Submit(submit::Args),
    Retry(retry::Args),
    Status(status::Args),
    Watch(watch::Args),
    Why(why::Args),
    Collect(collect::Args),
    Best(best::Args),
    Compare(compare::Args),
    Effects(effects::Args),
    Plot(plot::Args),
    Report(report::Args),
    Export(export::Args),
    Merge(merge::Args),
    Logs(logs::Args),
    Usage(usage::Args),
    Verify(verify::Args),
    Cancel(jobs::CancelArgs),
    Hold(jobs::HoldArgs),
    Release(jobs::ReleaseArgs),
    Worker(worker::Args),
    Launch(launch::Args),
    TmAgent(launch::AgentArgs),
    Feed(feed::Args),
    Templates(templates::Args),
    Site(site::Args),
    Gpu(gpu::Args),
    Schema(schema::Args),
    Doctor(doctor::Args),
    Generate(generate::Args),
}

/// What every verb may need.
struct Context {
    vars: Vars,
    out: Out,
    /// What writes tables with types: `hpcsweep-worker` has it, and the light program becomes that one.
    typed: Option<sheet::Write>,
    /// What draws pictures, likewise.
    draw: Option<Draw>,
}

impl Context {
    /// The site profile, all layers.
    ///
    /// # Errors
    /// With all faults of all profiles at once.
    fn site(&self) -> Result<Site> {
        crate::plan::site::load(&self.vars, &read_profile, share().as_deref())
    }
}

fn read_profile(path: &Path) -> std::io::Result<Option<String>> {
    match disk::read_named(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// `share/hpcsweep` of the installation this program runs from.
fn share() -> Option<PathBuf> {
    let share = disk::own_executable().ok()?.parent()?.parent()?.join("share/hpcsweep");
    share.is_dir().then_some(share)
}

/// Options that a verb does not have although others do, and what it has in their place.
const OTHER_OPTIONS: [(&str, &str, &str); 1] = [("collect", "--json", "--format jsonl")];

/// Names the option that a verb has in place of an unknown one: the tip of clap is that it may be a file.
fn name_other_option(verb: Option<&OsStr>, error: &mut clap::Error) {
    let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let is_it = |(of, option, _): &&(&str, &str, &str)| {
        verb.is_some_and(|verb| verb == *of) && unknown.as_deref() == Some(*option)
    };
    if let Some((verb, _, other)) = OTHER_OPTIONS.iter().find(is_it) {
        let tip = format!("`{verb}` has '{other}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    run(std::env::args_os().collect(), None, None)
}

/// The same with `args` besides its name, in `hpcsweep-worker`, which can write tables with types and draw pictures. That code
/// would make every start of the light program slower.
pub fn main_as_worker(args: &[&str]) -> ExitCode {
    #[cfg(feature = "tables")]
    let typed: Option<sheet::Write> = Some(crate::answers::collect::typed::write);
    #[cfg(not(feature = "tables"))]
    let typed = None;
    #[cfg(feature = "pictures")]
    let draw: Option<Draw> = Some(crate::answers::plot::picture::write);
    #[cfg(not(feature = "pictures"))]
    let draw = None;
    let name = std::iter::once("hpcsweep");
    run(name.chain(args.iter().copied()).map(OsString::from).collect(), typed, draw)
}

fn run(args: Vec<OsString>, typed: Option<sheet::Write>, draw: Option<Draw>) -> ExitCode {
    out::end_on_panic();
    signal::ignore_file_size();
    let verb = args.iter().skip(1).find(|arg| !arg.to_string_lossy().starts_with('-')).cloned();
    let is_run = verb.as_deref().is_some_and(|verb| verb == "run");
    let words = if is_run { args.clone() } else { Vec::new() };
    let matches = groups::grouped(Cli::command()).try_get_matches_from(args);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(mut error) => {
            name_other_option(verb.as_deref(), &mut error);
            if error.kind() == clap::error::ErrorKind::UnknownArgument {
                run::name_dashes(&words, &Cli::command(), &mut error);
            }
            // clap prints help and version to standard output, usage faults to standard error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let context = Context { vars: vars::snapshot(), out: Out::new(cli.quiet), typed, draw };
    let result = match cli.verb {
        Verb::Init(args) => init::run(&args, &context),
        Verb::Run(args) => run::run(&args, &context),
        Verb::Plan(args) => plan::run(&args, &context),
        Verb::Submit(args) => submit::run(&args, &context),
        Verb::Retry(args) => retry::run(&args, &context),
        Verb::Status(args) => status::run(&args, &context),
        Verb::Watch(args) => watch::run(&args, &context),
        Verb::Why(args) => why::run(&args, &context),
        Verb::Collect(args) => collect::run(&args, &context),
        Verb::Best(args) => best::run(&args, &context),
        Verb::Compare(args) => compare::run(&args, &context),
        Verb::Effects(args) => effects::run(&args, &context),
        Verb::Plot(args) => plot::run(&args, &context),
        Verb::Report(args) => report::run(&args, &context),
        Verb::Export(args) => export::run(&args, &context),
        Verb::Merge(args) => merge::run(&args, &context),
        Verb::Logs(args) => logs::run(&args, &context),
        Verb::Usage(args) => usage::run(&args, &context),
        Verb::Verify(args) => verify::run(&args, &context),
        Verb::Cancel(args) => jobs::cancel(&args, &context),
        Verb::Hold(args) => jobs::hold(&args, &context),
        Verb::Release(args) => jobs::release(&args, &context),
        Verb::Worker(args) => worker::run(args, context),
        Verb::Launch(args) => launch::run(&args, &context),
        Verb::TmAgent(args) => launch::agent(&args, &context),
        Verb::Feed(args) => feed::run(&args, &context),
        Verb::Templates(args) => templates::run(&args, &context),
        Verb::Site(args) => site::run(&args, &context),
        Verb::Gpu(args) => gpu::run(&args, &context),
        Verb::Doctor(args) => doctor::run(&args, &context),
        Verb::Schema(args) => schema::run(&args, &context),
        Verb::Generate(args) => generate::run(&args, &context),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            out::error(&error);
            ExitCode::from(crate::base::fault::exit_code(&error))
        }
    }
}
