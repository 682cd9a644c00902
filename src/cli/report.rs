//! `hpcsweep report`: a sweep as one HTML file, or as a page that follows it.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::select::{Named, Select};
use super::watch::seconds;
use super::{Context, collect, out, sweeps};
use crate::answers::collect::Goal;
use crate::answers::report::live::{self, Live};
use crate::answers::report::{MetricWish, Report, Taken};
use crate::answers::select::Wanted;
use crate::base::fault::{self, Fault, Kind};
use crate::base::host::http::Server;
use crate::base::host::signal::Signals;
use crate::base::host::{clock, named, threads, vars};
use crate::base::words::{count, thousands};
use crate::sweep::status::told::{Asking, Told};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::{Identity, Tree};

/// Write a sweep as one HTML file: summary, charts, failures, cost, and the table
///
/// The file needs no network, and nothing but a browser: it can be sent or put beside a paper. It has the plan and names of
/// hosts, folders and jobs in it. With --serve, a browser shows the same page while the sweep runs.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").multiple(false))]
pub(crate) struct Args {
    /// A sweep folder or a plan, by default the one of this folder; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Write to this file
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "report.html",
        conflicts_with = "serve"
    )]
    output: PathBuf,
    /// Serve the page on this host alone, at an address that only you know, and refresh it while the sweep runs
    ///
    /// Prints the address, and the command that makes it reachable from your own computer. Without a port, on a free one.
    /// Ctrl-C ends it.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, value_parser = clap::value_parser!(u16).range(1..))]
    #[expect(clippy::option_option, reason = "absent, without a port, with one")]
    serve: Option<Option<u16>>,
    /// Look for news every so many seconds, at least 0.5, while a browser shows the page; less often if that takes long
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, requires = "serve")]
    every: f64,
    /// The metric by which trials are compared: any column of numbers; by default one is chosen by its name
    #[arg(short, long, requires = "goal")]
    metric: Option<String>,
    /// The least is best
    #[arg(long, group = "goal", requires = "metric")]
    min: bool,
    /// The greatest is best
    #[arg(long, group = "goal", requires = "metric")]
    max: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let Named { sweeps, wanted } = args.select.read(&args.named)?;
    if args.serve.is_none() {
        sweeps::check_here(&sweeps, context)?;
    }
    let (tree, identity) = sweeps::one(&sweeps, context)?;
    let goal = if args.max { Goal::Max } else { Goal::Min };
    let wish = args.metric.clone().map(|metric| (metric, goal));
    let (site, vars) = (context.site()?, context.vars.clone());
    let asking = Asking { site, vars, may_ask: !args.offline };
    let sight = Sight { tree, identity, wanted, wish, asking, told: Told::default(), seen: None };
    match args.serve {
        Some(port) => serve(sight, port, Duration::from_secs_f64(args.every), context),
        None => write(sight, args, context),
    }
}

/// Writes the report to `--output`, which must not be a folder. Returns the exit code.
fn write(mut sight: Sight, args: &Args, context: &Context) -> Result<u8> {
    if args.output.is_dir() {
        return Err(Fault::request(format!("`{}` is a folder", args.output.display()))
            .hint("name a file: `-o report.html`")
            .into());
    }
    let (mut status, taken) = sight.read()?;
    let report = sight.report(&mut status, taken)?;
    let code = collect::tell(&report.source, context);
    named::write(&args.output, |out| report.write(out))?;
    context.out.say(&format!("{} in {}", trials(&report), args.output.display()));
    status.leave();
    Ok(code)
}

/// How many trials a report is about, in words.
fn trials(report: &Report) -> String {
    let shown = match report.shown < report.trials {
        true => format!(" ({} are in its table)", thousands(report.shown as u64)),
        false => String::new(),
    };
    format!("{}{shown}", count(report.trials as u64, "trial"))
}

/// A sweep that is looked at again and again.
struct Sight {
    tree: Tree,
    identity: Identity,
    wanted: Wanted,
    wish: Option<(String, Goal)>,
    asking: Asking,
    told: Told,
    /// What was seen last.
    seen: Option<u64>,
}

impl Sight {
    /// Reads the sweep and its metric lines. Of all trials, what the page needs is taken while they are read.
    fn read(&mut self) -> Result<(Status, Taken)> {
        let (tree, identity) = (self.tree.clone(), self.identity.clone());
        let mut taken = Taken::start(&tree, self.wanted.is_all())?;
        let status = self.told.look(&self.asking, |whom| match self.wanted.is_all() {
            true => status::gathered(tree, identity, whom, &mut taken),
            false => status::read(tree, identity, whom),
        })?;
        Ok((status, taken))
    }

    /// Its report, of the trials that are meant.
    fn report(&self, status: &mut Status, taken: Taken) -> Result<Report> {
        self.wanted.narrow(std::slice::from_mut(status))?;
        let wish = self.wish.as_ref().map(|(name, goal)| MetricWish { name, goal: *goal });
        Report::build(status, taken, wish, clock::now())
    }

    /// A report, if the sweep has changed since it was seen last.
    fn look(&mut self) -> Result<Option<Report>> {
        let (tree, identity) = (self.tree.clone(), self.identity.clone());
        let glance = self
            .told
            .look(&self.asking, |whom| status::counted(tree, identity, whom, &|_| false))?;
        let seen = Some(live::signature(&glance));
        drop(glance);
        if self.seen == seen {
            return Ok(None);
        }
        let (mut status, taken) = self.read()?;
        let report = self.report(&mut status, taken)?;
        self.seen = seen;
        Ok(Some(report))
    }

    /// Makes the report that is there before any browser asks for one.
    fn first(mut self) -> Result<(Self, Report)> {
        let (mut status, taken) = self.read()?;
        self.seen = Some(live::signature(&status));
        let report = self.report(&mut status, taken)?;
        Ok((self, report))
    }
}

/// How long a signal may wait while the first report is made.
const SIGNAL: Duration = Duration::from_millis(20);

/// Serves the page until the user ends it.
fn serve(sight: Sight, port: Option<u16>, every: Duration, context: &Context) -> Result<u8> {
    // Blocked before other threads are there, so that they come to us alone.
    let mut signals = Signals::listen(&[Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT])?;
    let server = Server::bind(port)?;
    // A file system that hangs keeps no signal from ending this.
    let (tell, news) = mpsc::channel();
    threads::start("first", move || drop(tell.send(sight.first())))?;
    let (mut sight, report) = loop {
        match news.try_recv() {
            Ok(first) => break first?,
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(Fault::new(Kind::Bug, "the part that reads the tree has ended").into());
            }
        }
        if let Some(signal) = signals.next(SIGNAL) {
            return Ok(128 + signal as u8);
        }
    };
    let code = collect::tell(&report.source, context);
    let live = Arc::new(Live::new(&report, every));
    let (port, url) = (server.port(), server.url());
    let pages = Arc::clone(&live);
    threads::start("server", move || server.serve(move |path| pages.page(path)))?;
    threads::start("looks", move || {
        live.follow(|| sight.look(), |e| out::note(&fault::sentence(e)))
    })?;
    let (user, host) = (vars::user_name(), vars::hostname());
    context.out.data(&url);
    context.out.data(&format!(
        "to open it on your own computer, run there: ssh -N -L {port}:127.0.0.1:{port} {user}@{host}"
    ));
    context.out.say(&format!(
        "{}; whoever has the address can read the page; Ctrl-C ends this",
        trials(&report)
    ));
    let _ = signals.next_while(context.out.stdout()?.as_fd());
    Ok(code)
}
