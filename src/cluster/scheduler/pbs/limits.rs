//! The limits of a PBS server and its queues, read before the first call that submits anything.

use std::collections::BTreeSet;

use anyhow::Result;

use super::commands;
use super::jobs::Job;
use super::server::{self as words, MaxQueued, Queue, Server, Way};
use crate::base::fault::Fault;
use crate::base::host::vars::user_name;
use crate::base::units::walltime_text;
use crate::base::words::{count, suggestion, thousands};
use crate::cluster::scheduler::calls::{Calls, refusal};
use crate::cluster::scheduler::{Limits, Places, Room, Wanted};
use crate::plan::Resources;
use crate::plan::site::{Ask, Site};

/// The server's answer, as far as it binds this plan.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// In the terms of all schedulers.
    pub(super) limits: Limits,
    /// The limits on queued elements.
    queued: Vec<Queued>,
    /// The limits that shape the arrays in a way that users may not expect, in words.
    pub(super) notes: Vec<String>,
    /// Whether a queue of the plan hands jobs on to others.
    pub(super) routes: bool,
    /// Whether a job that has ended is known long enough for another to wait for it.
    pub(super) keeps_jobs: bool,
    /// Queues of the plan that hand on only so many elements of this user at a time, with the queues behind
    /// them.
    narrow: Vec<(u64, Vec<String>)>,
}

impl Read {
    /// The places behind the queue that has the fewest left, where a queue of the plan has such a limit.
    ///
    /// # Errors
    /// When the server does not say which jobs there are.
    pub(super) fn places(&self, calls: &mut Calls) -> Result<Option<Places>> {
        if self.narrow.is_empty() {
            return Ok(None);
        }
        let user = user_name();
        let mut jobs = commands::ask(calls, &commands::all(false))?;
        jobs.retain(|job| job.owner == user);
        let places = self.narrow.iter().map(|(width, queues)| {
            let here = jobs.iter().filter(|job| queues.contains(&job.queue));
            Places { width: *width, taken: here.map(Job::places).sum() }
        });
        Ok(places.min_by_key(Places::free))
    }

    /// Adds what binds jobs in a queue of the plan.
    fn queue(
        &mut self,
        (queue, way): (&Queue, &Way),
        server: MaxQueued,
        wanted: &Wanted<'_>,
        site: &Site,
    ) -> Result<(), Fault> {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        let (own, name) = (&site.limits, &queue.name);
        self.routes |= queue.destinations.is_some();
        if !queue.started {
            self.notes.push(format!("queue `{name}` runs nothing now: it is not started"));
        }
        if let Some(width) = way.width {
            let behind = queue.destinations.iter().flatten().chain([name]);
            self.narrow.push((width, behind.cloned().collect()));
            if own.max_array_size.is_none() {
                self.width(name, width, wanted, site)?;
            }
        }
        // An array that passes max_queued by itself would be refused.
        let size = least(own.max_array_size.or(way.max_array_size), way.max_queued);
        self.limits.max_array_size = least(self.limits.max_array_size, size);
        self.limits.max_walltime_s = least(self.limits.max_walltime_s, way.max_walltime_s);
        let whole = match own.max_submit_jobs {
            Some(limit) => MaxQueued { own: Some(limit), all: None },
            None => server,
        };
        self.queued.extend(Queued::of(whole, name, None));
        if own.max_submit_jobs.is_none() {
            self.queued.extend(Queued::of(queue.max_queued, name, Some(name)));
        }
        Ok(())
    }

    /// Keeps arrays to what a routing queue hands on at a time: a wider array is accepted and never run, throttled or not
    /// (OpenPBS 23.06: all its elements count).
    fn width(
        &mut self,
        name: &str,
        width: u64,
        wanted: &Wanted<'_>,
        site: &Site,
    ) -> Result<(), Fault> {
        self.limits.max_array_size = self.limits.max_array_size.into_iter().chain([width]).min();
        let elements = count(width, "element");
        let calls = wanted.elements.div_ceil(width.max(1));
        if calls > site.limits.max_calls {
            let sentence = format!(
                "queue `{name}` hands on {elements} of a user at a time: {} of qsub, more than \
                 `limits.max_calls` of the site profile, {}",
                count(calls, "call"),
                thousands(site.limits.max_calls)
            );
            let hint = format!(
                "name another `partition`; where the site hands on wider arrays that are throttled, set \
                 `max_array_size` under `[limits]` of the site profile and `max_running = {width}`"
            );
            return Err(Fault::request(sentence).hint(hint));
        }
        if width < wanted.elements {
            self.notes.push(format!(
                "queue `{name}` hands on {elements} of a user at a time: no array has more"
            ));
        }
        Ok(())
    }

    /// The places under the limit that leaves the fewest for elements of this user, where a limit is known.
    ///
    /// # Errors
    /// When the server does not say which jobs there are.
    pub(super) fn room(&self, calls: &mut Calls, elements: u64) -> Result<Option<Room>> {
        if self.queued.is_empty() || elements == 0 {
            return Ok(None);
        }
        let user = user_name();
        let jobs = commands::ask(calls, &commands::all(false))?;
        Ok(self.queued.iter().map(|queued| queued.room(&jobs, &user)).min_by_key(Room::free))
    }
}

/// A limit on the elements that wait or run.
#[derive(Debug)]
struct Queued {
    limit: u64,
    /// The queue of the plan that it was found for.
    name: String,
    /// The only queue whose elements count; `None`: those of all queues.
    queue: Option<String>,
    /// Whether the elements of all users count.
    is_of_all: bool,
}

impl Queued {
    /// The limits for a queue of the plan, as far as there are any.
    fn of(max: MaxQueued, name: &str, queue: Option<&String>) -> impl Iterator<Item = Self> {
        let one = move |limit: Option<u64>, is_of_all: bool| {
            let (name, queue) = (name.to_owned(), queue.cloned());
            limit.map(|limit| Self { limit, name, queue, is_of_all })
        };
        one(max.own, false).into_iter().chain(one(max.all, true))
    }

    /// The places under it, beside these jobs.
    fn room(&self, jobs: &[Job], user: &str) -> Room {
        let counts = |job: &&Job| {
            (self.is_of_all || job.owner == user)
                && self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
        };
        let taken = jobs.iter().filter(counts).map(Job::places).sum();
        let of = if self.is_of_all { ", of all users," } else { "" };
        let name = format!("max_queued of queue `{}`{of}", self.name);
        Room { name, limit: self.limit, taken, kept: 0 }
    }
}

/// Asks the server and its queues, and checks that the plan's queues take it.
///
/// # Errors
/// When the server does not answer or is not PBS, or a queue cannot run the plan's requests.
pub(super) fn read(calls: &mut Calls, wanted: &Wanted<'_>, site: &Site) -> Result<Read> {
    let (server, queues) = ask(calls)?;
    let limits = Limits {
        accounting: server.history,
        version: Some(server.version.clone()),
        cannot_throttle: !server.can_throttle(),
        max_array_tasks: site.limits.max_array_tasks,
        max_array_size: site.caps.max_array_size,
        ..Limits::default()
    };
    let mut read = Read { limits, keeps_jobs: server.keeps_jobs(), ..Read::default() };
    for name in names(wanted, site, &server)? {
        let queue = open(&queues, &name)?;
        let way = words::way(&server, &queues, &name);
        check(&way, &name, wanted, site, &server)?;
        check_ends(&words::ends(&queues, &name), &name, wanted, site, &server)?;
        read.queue((queue, &way), server.max_queued, wanted, site)?;
    }
    if wanted.requests.iter().any(|r| r.qos.is_some()) {
        read.notes.push("PBS has no `qos`: it is left out".to_owned());
    }
    read.limits.max_array_size = read.limits.max_array_size.or(Some(10_000));
    read.limits.max_submit_jobs = read.queued.iter().map(|queued| queued.limit).min();
    Ok(read)
}

/// The server and its queues.
fn ask(calls: &mut Calls) -> Result<(Server, Vec<Queue>)> {
    let user = user_name();
    let strange = |said: String| {
        Fault::scheduler(format!("`qstat` does not answer as PBS does: {said}"))
            .hint("`hpcsweep doctor` says what is there; Torque and its likes are not supported")
    };
    let argv = commands::server();
    let said = calls.make(&argv)?;
    if said.code == Some(2) {
        // Its usage: some other program of this name.
        let line = said.stderr.lines().find(|line| !line.trim().is_empty());
        return Err(strange(line.unwrap_or("it does not know `-Bf`").trim().to_owned()).into());
    }
    if said.code != Some(0) {
        return Err(refusal(&argv, &said).into());
    }
    let server = words::server(&said.stdout, &user).map_err(strange)?;
    let text = calls.ask(&commands::queues())?;
    let queues = words::queues(&text, &user).map_err(strange)?;
    Ok((server, queues))
}

/// The queues that the requests go to.
fn names(wanted: &Wanted<'_>, site: &Site, server: &Server) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for r in &wanted.requests {
        let name = r.partition.as_ref().or(site.scheduler.partition.as_ref());
        if name.is_some_and(|name| name.contains(',')) {
            let name = name.map_or("", String::as_str);
            let fault = Fault::request(format!("PBS takes one queue, not `{name}`"));
            return Err(fault.hint("name one queue as `partition`, perhaps a routing one").into());
        }
        if let Some((option, hint)) = r
            .directives
            .iter()
            .chain(&site.scheduler.directives)
            .find_map(|option| Some((option, commands::instead(option, &wanted.plan)?)))
        {
            let fault = Fault::request(format!("the directive `{option}` is hpcsweep's own"));
            return Err(fault.hint(hint).into());
        }
        if let Some(option) = r
            .directives
            .iter()
            .chain(&site.scheduler.directives)
            .find(|option| option.starts_with("--"))
        {
            let fault = Fault::request(format!("PBS has no option `{option}`"));
            return Err(fault
                .hint("`directives` are the scheduler's own: those of qsub have one dash")
                .into());
        }
        names.extend(name.cloned().or_else(|| server.default_queue.clone()));
    }
    Ok(names)
}

/// A queue, which must be there and take jobs of this user.
fn open<'q>(queues: &'q [Queue], name: &str) -> Result<&'q Queue> {
    let Some(queue) = queues.iter().find(|queue| queue.name == name) else {
        let known: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        let hint = suggestion(name, &known, "it has");
        return Err(Fault::request(format!("this server has no queue `{name}`")).hint(hint).into());
    };
    if queue.is_closed_to_us {
        let sentence = format!("the queue `{name}` is not open to {}", user_name());
        return Err(Fault::request(sentence).hint("name another `partition`").into());
    }
    if !queue.enabled {
        let sentence = format!("the queue `{name}` takes no jobs now: it is not enabled");
        return Err(Fault::scheduler(sentence).hint("name another `partition`, or wait").into());
    }
    Ok(queue)
}

/// The requests that go to a queue.
fn requests_of<'a>(
    name: &'a str,
    wanted: &'a Wanted<'_>,
    site: &'a Site,
    server: &'a Server,
) -> impl Iterator<Item = &'a Resources> {
    wanted.requests.iter().copied().filter(move |r| {
        let own = r.partition.as_ref().or(site.scheduler.partition.as_ref());
        own.or(server.default_queue.as_ref()).is_some_and(|own| own == name)
    })
}

/// Refuses what none of the queues takes in which jobs of a queue may run. A routing queue would accept such a job, and the
/// server would then delete it.
fn check_ends(
    ends: &[&Queue],
    name: &str,
    wanted: &Wanted<'_>,
    site: &Site,
    server: &Server,
) -> Result<(), Fault> {
    for r in requests_of(name, wanted, site, server) {
        let (nodes, cores) = (u64::from(r.nodes.min(r.ranks).max(1)), r.cores());
        let refusals: Option<Vec<String>> =
            ends.iter().map(|queue| queue.refusal(nodes, cores)).collect();
        if let Some(refusals) = refusals.filter(|refusals| !refusals.is_empty()) {
            let (nodes, cores) = (count(nodes, "node"), count(cores, "core"));
            let sentence = format!("no queue of `{name}` takes a job of {nodes} and {cores}");
            return Err(Fault::request(sentence).at(refusals.join("\n")).hint(
                "name another `partition`, or let agents run several trials in one job: `submit --pull`",
            ));
        }
    }
    Ok(())
}

/// Refuses what a queue would take and never run.
fn check(way: &Way, name: &str, wanted: &Wanted<'_>, site: &Site, server: &Server) -> Result<()> {
    let ask = Ask { partition: Some(name), ..Ask::default() };
    if let Some(fault) = site.refusals(&ask).into_iter().next() {
        return Err(fault.into());
    }
    let longest = requests_of(name, wanted, site, server).filter_map(|r| r.walltime_s).max();
    if let (Some(wanted), Some(allowed)) = (longest, way.max_walltime_s)
        && wanted > allowed
    {
        let [wanted, allowed] = [wanted, allowed].map(walltime_text);
        let sentence =
            format!("a walltime of {wanted} is more than queue `{name}` allows: {allowed}");
        return Err(Fault::request(sentence)
            .hint("lower `walltime` or name another `partition`")
            .into());
    }
    Ok(())
}
