//! `hpcsweep worker`: run one trial as one of its ranks. Job scripts call it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::out::{self, Out};
use super::{Context, pull};
use crate::base::fault::Fault;
use crate::base::host::{Vars, access, vars};
use crate::base::units::{WALLTIME_FORMS, parse_walltime};
use crate::cluster::rank;
use crate::cluster::scheduler::JobTime;
use crate::plan::{MOST_SLOTS, Resources};
use crate::run::pull::agent::Options;
use crate::run::worker::process::prepare;
use crate::run::worker::{self, Request, Which};
use crate::sweep::tree::Tree;

/// Run one trial as one of its ranks (job scripts call this)
///
/// Started once a rank by srun, mpirun or the like; derives its rank from what the launcher sets.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print which rank this process is, from which variables, and contradictions; run nothing
    #[arg(long)]
    explain: bool,
    /// With --explain: write JSON
    #[arg(long, requires = "explain")]
    json: bool,
    /// Take trials from this sweep (its folder, or its plan) until none is left, as one of any number of agents
    ///
    /// Agents may be started at any time on any host that sees the folder. With a plan that was not submitted
    /// yet, one of them creates the queue.
    #[arg(long, value_name = "SWEEP|PLAN", conflicts_with_all = ["explain", "sweep", "trial", "wave"])]
    pull: Option<String>,
    /// With --pull: run this many trials at once, instead of the plan's number or as many as cores and GPUs
    /// allow
    #[arg(long, value_name = "N", requires = "pull", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLOTS)))]
    slots: Option<u32>,
    /// With --pull: hand the trials, one by one, to the process that has started this one (docs/serve.md)
    ///
    /// For programs that call a function of their own: one JSON object a line on standard output and input.
    #[arg(long, requires = "pull", conflicts_with = "slots")]
    serve: bool,
    /// With --pull: how long this agent may use the host; it ends before that (`2h`; by default until the job ends)
    #[arg(long, value_name = "TIME", requires = "pull", value_parser = time)]
    time_left: Option<u64>,
    /// With --pull: leave when nothing is left to take and two other agents can finish the rest
    #[arg(long, requires = "pull")]
    may_go: bool,
    /// With --pull PLAN: take trials again that ended without success
    #[arg(long, requires = "pull")]
    retry: bool,
    /// Members of its folder's group share the sweep (`shared = "group"` in its plan): run what they wrote
    #[arg(long)]
    shared: bool,
    /// The sweep's folder
    #[arg(long, value_name = "DIR", required_unless_present_any = ["explain", "pull", "guard", "command"])]
    sweep: Option<PathBuf>,
    /// Run this trial
    #[arg(long, value_name = "N", conflicts_with = "wave")]
    trial: Option<u64>,
    /// Run the trial of this element of an array: the wave it belongs to,
    #[arg(long, value_name = "N", requires_all = ["first", "count"])]
    wave: Option<u32>,
    /// the entry of its first element in the wave's map,
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// and how many elements it has
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Run this trial of an element that runs several trials one after the other
    #[arg(long, value_name = "N")]
    link: Option<u64>,
    /// Exit with this code after a signal to stop, also if the trial is done: the job must start nothing more
    #[arg(long, value_name = "CODE")]
    stopped: Option<u8>,
    /// The index of the element, where the launcher does not pass on what the scheduler has set
    #[arg(long, value_name = "N")]
    index: Option<u64>,
    /// The scheduler's id of the job, likewise
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Run only if the chain has not stopped before this trial
    #[arg(long)]
    gate: bool,
    /// Wait for the end of the agent at the other end of standard input, and end what it leaves behind
    #[arg(long, hide = true)]
    guard: bool,
    /// Become the command in this file: the end of a set-up script
    #[arg(long = "become", value_name = "FILE", hide = true)]
    command: Option<PathBuf>,
    /// Refuse a sweep with another token than this one, in `sweep.json`: the folder has a new sweep since the job was submitted
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The plan's request when the job was submitted, where that is not in the table of trials: a JSON list
    /// of one request, or of one for each link
    #[arg(long, value_name = "JSON")]
    resources: Option<String>,
    /// How long a job without a requested walltime may run (`2h`, `unlimited`), if the scheduler does not tell the
    /// job
    #[arg(long, value_name = "TIME", value_parser = job_time)]
    job_time: Option<JobTime>,
}

fn job_time(text: &str) -> Result<JobTime, String> {
    if text == "unlimited" { Ok(JobTime::Unlimited) } else { time(text).map(JobTime::Seconds) }
}

fn time(text: &str) -> Result<u64, String> {
    parse_walltime(text).ok_or_else(|| WALLTIME_FORMS.to_owned())
}

pub(super) fn run(args: Args, context: Context) -> Result<u8> {
    if args.shared {
        access::share_with_group();
    }
    if args.guard {
        crate::run::pull::places::guard::stand();
        return Ok(0);
    }
    if let Some(file) = &args.command {
        let (words, code) = prepare::become_command(file)?;
        out::note(&words);
        return Ok(code);
    }
    let folder = args.sweep.as_deref().or(args.pull.as_deref().map(Path::new));
    if let (Some(folder), Some(token)) = (folder, &args.token) {
        Tree::at(folder).is_of(token)?;
    }
    if let Some(what) = &args.pull {
        let options = Options {
            slots: args.slots,
            time_left_s: args.time_left.map(|s| s as f64),
            may_go: args.may_go,
            quiet: context.out.quiet,
        };
        return match args.serve {
            true => pull::serve(what, &options, args.retry, &context),
            false => pull::run(what, &options, args.retry, &context),
        };
    }
    let Context { out, vars, .. } = context;
    run_one(args, vars, &out)
}

fn run_one(args: Args, mut vars: Vars, out: &Out) -> Result<u8> {
    if args.explain {
        let host = vars::node_name(&vars);
        let rank = worker::derive_rank(&vars, &host)?;
        if args.json {
            out.json(&rank)?;
        } else {
            out.page(&rank::explain(&rank));
        }
        return Ok(0);
    }
    let which = match (args.trial, args.wave, args.first, args.count) {
        (Some(trial), ..) => Which::Trial(trial),
        (None, Some(wave), Some(first), Some(count)) => {
            Which::Element { wave, first, count, link: args.link.unwrap_or(0) }
        }
        _ => {
            return Err(Fault::request("which trial? `--trial N` is missing")
                .hint("job scripts name theirs by --wave, --first and --count")
                .into());
        }
    };
    let Some(sweep) = args.sweep else {
        return Err(Fault::request("`--sweep DIR` is missing").into());
    };
    // Launchers pass these on or not; the script always does.
    if let Some(job) = args.job {
        vars.insert("PBS_JOBID".to_owned(), job);
        let index = args.index.unwrap_or(0);
        vars.insert("PBS_ARRAY_INDEX".to_owned(), index.to_string());
    }
    let link = args.link.unwrap_or(0);
    let resources = args.resources.map(|text| Resources::of_link(&text, link)).transpose()?;
    let (job_time, stopped) = (args.job_time, args.stopped.map(i32::from));
    let request =
        Request { sweep, which, gate: args.gate, resources, job_time, stopped, say: out::note };
    let code = worker::run(&request, vars, None)?;
    Ok(u8::try_from(code.clamp(0, 255)).unwrap_or(1))
}
