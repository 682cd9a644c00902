//! One rank's program from start to end: its process group, its clock, the signals that reach us.

use std::os::unix::process::parent_id;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::base::host::clock;
use crate::base::host::process::{self, Spent, tree};
use crate::base::host::signal::Signals;
use crate::run::worker::process::meter::Meter;
use crate::run::worker::process::program::LOST_PEERS;
use crate::sweep::attempt::exit::Exit;
use crate::sweep::attempt::stop::{self, Stop};

/// What happens while the program runs.
pub(crate) enum Happening {
    /// Some time has passed.
    Tick,
    /// The program is about to be asked to end.
    Stopping(Stop),
}

/// The end of a program that was waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Termination {
    /// Its exit code or signal, and how long it ran.
    pub(crate) exit: Exit,
    /// Why it was asked to end, if it was.
    pub(crate) stop: Option<Stop>,
    /// When it was asked to end; `None` if it was not.
    pub(crate) asked_at: Option<Instant>,
    /// Whether it had got the plan's signal before.
    pub(crate) is_warned: bool,
    /// When its end was seen.
    pub(crate) at: Instant,
    /// What it has used, with all that it had started.
    pub(crate) spent: Spent,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// When the program is asked to end, by [`clock::awake`].
    pub(crate) deadline: Option<Instant>,
    /// A signal that it gets before that, and when.
    pub(crate) notice: Option<(Signal, Instant)>,
    /// How long after being asked it is killed.
    pub(crate) grace: Duration,
    /// The same where a signal is why: at most what the scheduler gives before it kills.
    pub(crate) signal_grace: Duration,
    /// Our child that carries syncs: what is left of the program at its end is everything but this.
    pub(crate) helper: Option<u32>,
    /// The same where another rank is why; `None`: as long as otherwise.
    pub(crate) peer_grace: Option<Duration>,
    /// Our parent at the start of a trial whose ranks it has wired up for MPI.
    pub(crate) launcher: Option<u32>,
    /// The mpirun or its like that has started the ranks: it ends all of them when one has failed.
    pub(crate) mpirun: Option<u32>,
    /// How often [`Happening::Tick`] is reported.
    pub(crate) tick: Duration,
}

impl Clock {
    fn grace_for(&self, why: Stop) -> Duration {
        match why {
            Stop::Peer => self.peer_grace.unwrap_or(self.grace),
            Stop::Signal(_) => self.signal_grace,
            _ => self.grace,
        }
    }
}

/// The signals a worker listens to: those above, and the end of its child.
pub(crate) fn listen() -> anyhow::Result<Signals> {
    let mut all = stop::SIGNALS.to_vec();
    all.push(Signal::SIGCHLD);
    // Processes that a program leaves behind become our children, so that we find them. PBS does not find
    // them.
    process::adopt_orphans();
    let signals = Signals::listen(&all)?;
    clock::notice_suspensions();
    Ok(signals)
}

/// A signal that asks us to stop and has arrived, or does within a moment; those of `not_from` do not
/// count.
pub(crate) fn pending(
    signals: &mut Signals,
    moment: Duration,
    not_from: Option<u32>,
) -> Option<Signal> {
    let until = Instant::now() + moment;
    loop {
        match signals.next_from(until.saturating_duration_since(Instant::now())) {
            Some((Signal::SIGCHLD, _)) => {}
            Some((_, sender)) if Some(sender) == not_from => {}
            other => return other.map(|(signal, _)| signal),
        }
    }
}

/// A stop that explains the end of a program that this worker did not ask to end: a scheduler signals program
/// and worker at once, and the program may be gone before we look. `is_declared`: it has left a result.
pub(crate) fn overheard(
    ended: &Termination,
    is_declared: bool,
    signals: &mut Signals,
    clock: &Clock,
) -> Option<Stop> {
    let trains = clock.peer_grace.is_some();
    let exit = &ended.exit;
    let said = matches!(exit.code, 1 | LOST_PEERS);
    let moment = match clock.launcher {
        // A trainer's own exit code needs no other explanation.
        Some(_) if said && trains => Duration::ZERO,
        // An MPI library ends its program when its launcher ends, before this worker gets the signal.
        Some(_) if exit.code != 0 && !said => Duration::from_millis(500),
        _ => exit.moment(is_declared),
    };
    // That mpirun ends all ranks may be because this one has failed.
    let mpirun = clock.mpirun.filter(|_| exit.signal.is_none() && exit.code != 0);
    let gone = || exit.code != 0 && clock.launcher.is_some_and(|pid| pid != parent_id());
    pending(signals, moment, mpirun)
        .or_else(|| gone().then_some(Signal::SIGHUP))
        // A trainer that got a signal itself exits with this code: it has saved and can resume.
        .or_else(|| (trains && exit.code == 143).then_some(Signal::SIGTERM))
        .map(Stop::Signal)
}

/// Waits for the end of a program that was started at `start`, by [`clock::awake`], and measures it. `on` is called with
/// each event and may ask for a stop by returning one. [`overheard`] follows.
pub(crate) fn wait(
    child: &mut Child,
    start: Instant,
    signals: &mut Signals,
    limits: Clock,
    meter: &mut Meter,
    mut on: impl FnMut(Happening) -> Option<Stop>,
) -> Termination {
    let mut stop: Option<(Stop, Instant)> = None;
    let mut killed = false;
    let mut notice = limits.notice;
    // The first look comes soon, later ones at the pace of the clock.
    let mut nap = Duration::from_millis(50).min(limits.tick);
    let mut next_tick = Instant::now() + nap;
    loop {
        let handled = process::has_ended(child.id(), &[Signal::SIGTERM, Signal::SIGUSR2]);
        if let Some(has_handler) = handled
            && let Ok(Some((status, spent))) = process::reap(child.id())
        {
            let at = Instant::now();
            let used = clock::awake().saturating_duration_since(start);
            process::end_but_filters(limits.helper.as_slice(), None);
            // Whatever the program left running ends with it, also what has left its group or session.
            process::kill_group(child, Signal::SIGKILL);
            let strays = process::end_strays(limits.helper);
            return Termination {
                exit: Exit::of(status, used, has_handler),
                stop: stop.map(|(why, _)| why),
                asked_at: stop.map(|(_, at)| at),
                is_warned: limits.notice.is_some() && notice.is_none(),
                at,
                spent: spent.and(strays),
            };
        }
        meter.look(|| tree::below_us(limits.helper));
        let now = Instant::now();
        let mut wait = next_tick.saturating_duration_since(now).min(meter.until_due());
        if let (Some(deadline), None) = (limits.deadline, &stop) {
            wait = wait.min(deadline.saturating_duration_since(clock::awake()));
        }
        if let (Some((signal, at)), None) = (notice, &stop) {
            let left = at.saturating_duration_since(clock::awake());
            if left.is_zero() {
                process::kill_group(child, signal);
                notice = None;
            } else {
                wait = wait.min(left);
            }
        }
        if let (Some((why, since)), false) = (&stop, killed) {
            wait = wait.min((*since + limits.grace_for(*why)).saturating_duration_since(now));
        }
        let mut reason = match signals.next(wait) {
            Some(Signal::SIGCHLD) => continue,
            Some(signal) => Some(Stop::Signal(signal)),
            None if Instant::now() >= next_tick => {
                nap = (nap * 2).min(limits.tick);
                let stop = on(Happening::Tick);
                next_tick = Instant::now() + nap;
                stop
            }
            None => None,
        };
        if reason.is_none() && limits.deadline.is_some_and(|at| clock::awake() >= at) {
            reason = Some(Stop::Walltime);
        }
        match (&stop, reason) {
            (None, Some(why)) => {
                on(Happening::Stopping(why));
                process::kill_group(child, Signal::SIGTERM);
                stop = Some((why, Instant::now()));
            }
            (Some((why, since)), _) if !killed && since.elapsed() >= limits.grace_for(*why) => {
                process::kill_group(child, Signal::SIGKILL);
                killed = true;
            }
            _ => {}
        }
    }
}
