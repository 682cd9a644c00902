//! `hpcsweep watch`: a live view of a sweep, on a terminal or as one page of text.

mod draw;
mod text;
mod trial;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::out::Screen;
use super::{Context, sweeps};
use crate::answers::collect::Goal;
use crate::answers::watch::Frame;
use crate::answers::watch::follow::Watcher;
use crate::answers::watch::whole::Asking;
use crate::base::fault::{self, Fault, Kind};
use crate::base::host::signal::Signals;
use crate::base::host::{clock, threads};
use crate::sweep::tree::Tree;
use draw::View;
use trial::Trial;

/// Watch a sweep: counts, pace, the best trial, agents, failures, the slowest trials, GPUs
///
/// Keys: q or Ctrl-C quit; Tab or 1 to 4 choose a list; arrows, PgUp, PgDn, Home and End select a row; Enter shows its trial, b the
/// best one, and Esc or q goes back. Where
/// standard output is not a terminal, it prints how the sweep stands once and ends, with exit code 1 where a file of the
/// sweep is damaged.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").multiple(false))]
pub(crate) struct Args {
    /// The sweep; by default that of this folder, else the last one submitted
    sweep: Option<String>,
    /// Print how it stands now as text, and end
    #[arg(long)]
    once: bool,
    /// Refresh every so many seconds, at least 0.5; less often if a refresh takes long
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    interval: f64,
    /// The metric of the best trial; by default one is chosen by its name
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

/// The pause between two looks, as an argument.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| *s >= 0.5 && *s <= 86_400.0);
    seconds.ok_or_else(|| "a number of seconds from 0.5 to 86400".to_owned())
}

/// How long a look may take before what was read is shown.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named: Vec<String> = args.sweep.iter().cloned().collect();
    let (tree, identity) = sweeps::one(&named, context)?;
    let (site, vars) = (context.site()?, context.vars.clone());
    let asking = Asking { site, vars, may_ask: !args.offline };
    let mut watcher = Watcher::new(tree.clone(), identity, asking);
    let goal = if args.max { Goal::Max } else { Goal::Min };
    let is_dumb = context.vars.get("TERM").is_none_or(|term| term == "dumb");
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb;
    let is_once = args.once || !is_terminal;
    // Who asks for a metric once wants the answer, however long it takes.
    let wish = args.metric.clone().map(|metric| (metric, goal));
    watcher.compare_by(wish, is_once && args.metric.is_some());
    if is_once {
        while watcher.look(PATIENCE)? {}
        let frame = watcher.frame(clock::now());
        context.out.page(&text::plain(&frame));
        return Ok(u8::from(!frame.damage.is_empty()));
    }
    let colour = context.vars.get("NO_COLOR").is_none_or(String::is_empty);
    live(watcher, tree, Duration::from_secs_f64(args.interval), View::new(colour))
}

/// What wakes the screen.
enum News {
    /// A look has ended.
    Frame(Result<Box<Frame>>),
    /// The trial that was opened for the so many-th time has been read.
    Trial(u64, Result<Box<Trial>>),
    /// Something was pressed, or the terminal has another size.
    Terminal(Event),
    /// The terminal has gone.
    NoTerminal,
    /// We are asked to end.
    Signal(Signal),
}

/// Shows the sweep until the user quits.
fn live(watcher: Watcher, tree: Tree, interval: Duration, view: View) -> Result<u8> {
    // Blocked before other threads are there, so that they come to us alone.
    let signals = Signals::listen(&[Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT])?;
    let (tell, news) = mpsc::channel();
    let teller = tell.clone();
    threads::start("signals", move || listen(signals, &teller))?;
    let teller = tell.clone();
    let reader = threads::start("reader", move || read_tree(watcher, interval, &teller))?;
    // Errors at the start are printed on a terminal that is still as it was.
    let frame = match news.recv()? {
        News::Frame(frame) => *frame?,
        News::Signal(signal) => return Ok(128 + signal as u8),
        _ => return Err(lost(&io::ErrorKind::Other.into()).into()),
    };
    let screen = Screen::open().map_err(|e| lost(&e))?;
    let opening = Opening { tree, interval, tell: tell.clone(), number: Arc::default() };
    threads::start("keys", move || read_keys(&tell))?;
    let shown = Shown { frame, since: Instant::now(), trouble: None, view, trial: None, opening };
    show(screen, shown, &news, || reader.is_finished())
}

fn listen(mut signals: Signals, tell: &Sender<News>) {
    loop {
        if let Some(signal) = signals.next(Duration::from_secs(3600))
            && tell.send(News::Signal(signal)).is_err()
        {
            return;
        }
    }
}

fn read_keys(tell: &Sender<News>) {
    while let Ok(event) = event::read() {
        if tell.send(News::Terminal(event)).is_err() {
            return;
        }
    }
    let _ = tell.send(News::NoTerminal);
}

/// Looks at the tree for ever; a file system that hangs makes nothing else hang.
fn read_tree(mut watcher: Watcher, interval: Duration, tell: &Sender<News>) {
    let mut more = true;
    loop {
        if !more {
            std::thread::sleep(watcher.pause(interval));
        }
        let looked = watcher.look(PATIENCE);
        more = matches!(looked, Ok(true));
        let frame = looked.map(|_| Box::new(watcher.frame(clock::now())));
        if tell.send(News::Frame(frame)).is_err() {
            return;
        }
    }
}

/// The content of the screen.
struct Shown {
    frame: Frame,
    since: Instant,
    /// Why nothing newer could be read.
    trouble: Option<String>,
    view: View,
    /// The trial that is opened, once it has been read.
    trial: Option<Result<Trial, String>>,
    opening: Opening,
}

/// How a trial is read beside the sweep: again and again while it is shown, by a thread of its own.
struct Opening {
    tree: Tree,
    interval: Duration,
    tell: Sender<News>,
    /// How often trials have been opened and closed.
    number: Arc<AtomicU64>,
}

impl Opening {
    /// Reads this trial from now on, and no other one.
    fn open(&self, trial: Option<u64>) -> Result<()> {
        let own = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        let Some(trial) = trial else { return Ok(()) };
        let (tree, tell) = (self.tree.clone(), self.tell.clone());
        let (number, interval) = (Arc::clone(&self.number), self.interval);
        threads::start("trial", move || {
            while number.load(Ordering::SeqCst) == own {
                let since = Instant::now();
                let read = Trial::read(&tree, trial, clock::now()).map(Box::new);
                let pause = interval.max(since.elapsed() * SHARE);
                if tell.send(News::Trial(own, read)).is_err() {
                    return;
                }
                std::thread::sleep(pause);
            }
        })?;
        Ok(())
    }
}

/// Reading a trial takes at most one in so many parts of the time.
const SHARE: u32 = 10;

fn show(
    mut screen: Screen,
    mut shown: Shown,
    news: &Receiver<News>,
    is_over: impl Fn() -> bool,
) -> Result<u8> {
    loop {
        let Shown { frame, since, trouble, view, trial, .. } = &mut shown;
        let age_s = since.elapsed().as_secs_f64();
        let drawn = screen.draw(|screen| match view.opened {
            Some(number) => trial::draw(screen, number, trial.as_ref(), view),
            None => draw::draw(screen, frame, view, age_s, trouble.as_deref()),
        });
        drawn.map_err(|e| lost(&e))?;
        match news.recv_timeout(Duration::from_secs(1)) {
            Ok(News::Frame(Ok(frame))) => {
                (shown.frame, shown.since, shown.trouble) = (*frame, Instant::now(), None);
            }
            Ok(News::Frame(Err(error))) => {
                shown.trouble = Some(fault::sentence(&error));
            }
            Ok(News::Terminal(Event::Key(key))) => {
                let before = shown.view.opened;
                if let Some(code) = press(key, &mut shown.view) {
                    return Ok(code);
                }
                if shown.view.opened != before {
                    shown.trial = None;
                    shown.opening.open(shown.view.opened)?;
                }
            }
            Ok(News::Trial(number, read)) => {
                // Another one may have been opened since.
                if number == shown.opening.number.load(Ordering::SeqCst) {
                    shown.trial = Some(read.map(|own| *own).map_err(|e| fault::sentence(&e)));
                }
            }
            Ok(News::Terminal(_)) => {}
            Ok(News::NoTerminal) => return Err(lost(&io::ErrorKind::UnexpectedEof.into()).into()),
            Ok(News::Signal(signal)) => return Ok(128 + signal as u8),
            Err(RecvTimeoutError::Timeout) if !is_over() => {}
            Err(_) => {
                drop(screen);
                return Err(Fault::new(Kind::Bug, "the part that reads the tree has ended").into());
            }
        }
    }
}

fn lost(error: &io::Error) -> Fault {
    let why = crate::base::host::disk::reason(error);
    Fault::machine(format!("cannot use the terminal: {why}"))
        .hint("`hpcsweep watch --once` needs none")
}

/// Rows that PgUp and PgDn move by.
const PAGE: usize = 10;

/// Handles a key; an exit code if it ends the program.
fn press(key: KeyEvent, view: &mut View) -> Option<u8> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if view.opened.is_some() {
        return press_in_trial(key, view);
    }
    let at = &mut view.at[view.focus - 1];
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Some(130),
        KeyCode::Char('q' | 'Q') => return Some(0),
        KeyCode::Char(c @ '1'..='4') => view.focus = (c as usize - '0' as usize).min(view.panes),
        KeyCode::Tab => view.focus = view.focus % view.panes + 1,
        KeyCode::BackTab => view.focus = (view.focus + view.panes - 2) % view.panes + 1,
        KeyCode::Up => *at = at.saturating_sub(1),
        KeyCode::Down => *at += 1,
        KeyCode::PageUp => *at = at.saturating_sub(PAGE),
        KeyCode::PageDown => *at += PAGE,
        KeyCode::Home => *at = 0,
        KeyCode::End => *at = usize::MAX - PAGE,
        KeyCode::Enter => (view.opened, view.back) = (view.under, 0),
        KeyCode::Char('b') => (view.opened, view.back) = (view.best, 0),
        _ => {}
    }
    None
}

/// The same while a trial is shown.
fn press_in_trial(key: KeyEvent, view: &mut View) -> Option<u8> {
    let back = &mut view.back;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Some(130),
        KeyCode::Esc | KeyCode::Char('q' | 'Q') => view.opened = None,
        KeyCode::Up => *back += 1,
        KeyCode::Down => *back = back.saturating_sub(1),
        KeyCode::PageUp => *back += PAGE,
        KeyCode::PageDown => *back = back.saturating_sub(PAGE),
        KeyCode::Home => *back = usize::MAX - PAGE,
        KeyCode::End => *back = 0,
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests;
