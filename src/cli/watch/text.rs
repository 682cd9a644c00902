//! A frame as lines of text: the same words on a screen and on paper.

use std::collections::{BTreeSet, HashMap};

use crate::answers::analysis::repeats_by_name;
use crate::answers::plot::spark;
use crate::answers::watch::{Curve, Failure, Frame, Place};
use crate::base::cause::{Cause, group};
use crate::base::words::{count, duration, figures, printable, short};
use crate::cli::out::aligned;
use crate::sweep::standing::{self, State};

/// The key of the list of failures.
const FAILURES: usize = 2;

/// One of the lists.
#[derive(Debug, PartialEq)]
pub(super) struct Pane {
    /// Its number among the keys.
    pub(super) key: usize,
    /// The name of its rows.
    pub(super) name: &'static str,
    /// How many there are, whether listed or not.
    pub(super) total: u64,
    /// The heads of its columns; empty where nothing is listed.
    pub(super) head: String,
    /// The rows that are listed, each as one aligned line of text.
    pub(super) rows: Vec<String>,
    /// The trial of each row, where it is about one.
    pub(super) trials: Vec<u64>,
}

/// The lists of a frame; the one of GPUs only where trials have some.
pub(super) fn panes(frame: &Frame) -> Vec<Pane> {
    let are_agents = frame.places.iter().any(|place| place.slots.is_some());
    let name = if are_agents || frame.places.is_empty() { "agents" } else { "hosts" };
    let total = frame.places.len() as u64;
    let mut panes = vec![pane(1, name, total, &places(&frame.places), Vec::new())];
    let bad = frame.bad() - frame.count(&State::Skipped);
    let (rows, trials) = failures(frame, bad);
    panes.push(pane(FAILURES, "failures", bad, &rows, trials));
    let have_curves = frame.slowest.iter().any(|slow| slow.curve.is_some());
    let rows = frame.slowest.iter().map(|slow| {
        let times = slow.times.map(|times| format!("{times:.1}")).unwrap_or_default();
        let mut row =
            vec![slow.trial.to_string(), slow.host.clone(), duration(slow.since_s), times];
        row.extend(have_curves.then(|| slow.curve.as_ref().map(curve).unwrap_or_default()));
        row
    });
    let mut head = vec!["trial", "host", "runs for", "x median"];
    head.extend(have_curves.then_some("newest values"));
    let running = frame.count(&State::Running);
    let trials = frame.slowest.iter().map(|slow| slow.trial).collect();
    panes.push(pane(3, "slowest", running, &(head, rows.collect()), trials));
    if !frame.gpus.is_empty() {
        let trials = frame.gpus.iter().map(|used| used.trial).collect();
        panes.push(pane(4, "GPUs", frame.gpus.len() as u64, &gpus(frame), trials));
    }
    panes
}

/// The newest values as bars, the metric's name and its last value: `▇▅▃▂ loss 0.31`.
fn curve(curve: &Curve) -> String {
    let spark = spark::spark(&curve.values, spark::WIDTH).unwrap_or_default();
    let last = curve.values.last().map_or_else(String::new, |value| figures(*value, 4));
    format!("{spark} {} {last}", short(&curve.metric, 30))
}

type Table = (Vec<&'static str>, Vec<Vec<String>>);

/// The failures of a frame in groups, the largest first, as `status` shows them, and the first trial of each.
fn failures(frame: &Frame, total: u64) -> (Table, Vec<u64>) {
    let known: HashMap<u64, &Failure> = frame.failures.iter().map(|one| (one.trial, one)).collect();
    let mut all: Vec<&Failure> = frame.failures.iter().collect();
    all.sort_by_key(|one| one.trial);
    let groups = group::of(all.iter().map(|one| (one.trial, one.why())));
    let rows = groups.iter().map(|group| {
        let own: Vec<&&Failure> =
            group.trials.iter().filter_map(|trial| known.get(trial)).collect();
        let newest = own.iter().filter_map(|one| one.ago_s).reduce(f64::min);
        let newest = newest.map(|s| format!("{} ago", duration(s))).unwrap_or_default();
        let hosts: BTreeSet<&str> = own.iter().map(|one| &*one.host).collect();
        let hosts = match hosts.len() {
            1 => hosts.into_iter().collect(),
            n => count(n as u64, "host"),
        };
        vec![newest, hosts, format!("hpcsweep logs {}", group.trials[0]), group.line()]
    });
    // Of many failures, the frame has the newest.
    let why = if total > all.len() as u64 { "why, of the newest" } else { "why" };
    let first = groups.iter().map(|group| group.trials[0]).collect();
    ((vec!["last", "host", "log to read", why], rows.collect()), first)
}

fn pane(
    key: usize,
    name: &'static str,
    total: u64,
    (head, rows): &Table,
    trials: Vec<u64>,
) -> Pane {
    let head: Vec<String> = head.iter().map(|&h| h.to_owned()).collect();
    let text = aligned(&head, rows);
    let mut lines = text.lines().map(str::to_owned);
    let head = lines.next().filter(|_| !rows.is_empty()).unwrap_or_default();
    Pane { key, name, total, head, rows: lines.collect(), trials }
}

fn places(places: &[Place]) -> Table {
    let has = [
        true,
        places.iter().any(|place| place.job.is_some()),
        places.iter().any(|place| place.pid.is_some()),
        true,
        true,
        places.iter().any(|place| place.rate.is_some()),
    ];
    let mut head = vec!["host", "job", "pid", "busy", "ended", "pace", "last sign"];
    let rows = places.iter().map(|place| {
        let busy = match place.slots {
            Some(slots) => format!("{}/{slots}", place.busy),
            None => place.busy.to_string(),
        };
        let seen = place.seen_s.map(|s| format!("{} ago", duration(s))).unwrap_or_default();
        let silent = if place.silent { " (silent)" } else { "" };
        let pid = place.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let mut row = vec![place.host.clone(), place.job.clone().unwrap_or_default(), pid, busy];
        let pace = place.rate.map(|rate| format!("{:.1}/min", rate * 60.0)).unwrap_or_default();
        row.extend([place.ended.to_string(), pace, format!("{seen}{silent}")]);
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let shows = |i: usize| has.get(i).copied().unwrap_or(true);
    keep(&mut head, shows);
    rows.iter_mut().for_each(|row| keep(row, shows));
    (head, rows)
}

/// Removes the cells of columns that `shows` does not select; it takes a column's index, from 0.
fn keep<T>(row: &mut Vec<T>, shows: impl Fn(usize) -> bool) {
    let mut column = 0..;
    row.retain(|_| column.next().is_some_and(&shows));
}

fn gpus(frame: &Frame) -> Table {
    let text = |number: Option<f64>| number.map(|n| format!("{n:.0}")).unwrap_or_default();
    let rows = frame.gpus.iter().map(|used| {
        let gpu = &used.gpu;
        let memory = gpu.memory_used.map(|bytes| bytes / f64::from(1 << 20));
        let own = [used.host.clone(), used.trial.to_string(), used.number.to_string()];
        let told = [gpu.utilization, memory, gpu.power_w, gpu.temperature_c].map(text);
        own.into_iter().chain(told).collect()
    });
    (vec!["host", "trial", "gpu", "util %", "MiB used", "watt", "deg C"], rows.collect())
}

/// The sweep's name and how many trials it has: `digits: 6 trials`.
pub(super) fn title(frame: &Frame) -> String {
    format!("{}: {}", short(&frame.sweep, 60), count(frame.total, "trial"))
}

/// How many trials are in each state, in words.
pub(super) fn counts(frame: &Frame) -> Vec<(State, String)> {
    let one = |(state, n): (&State, &u64)| (state.clone(), format!("{} {n}", state.word()));
    frame.counts.iter().map(one).collect()
}

/// The meaning of a piece of the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Done,
    Bad,
    Running,
    Open,
}

impl Piece {
    pub(super) fn symbol(self) -> char {
        match self {
            Self::Done => '#',
            Self::Bad => '!',
            Self::Running => '>',
            Self::Open => '.',
        }
    }
}

/// A bar of so many pieces: done, without success, running, the rest. Whatever there is one of is seen.
pub(super) fn bar(frame: &Frame, width: usize) -> Vec<Piece> {
    let parts = [
        (Piece::Done, frame.count(&State::Done)),
        (Piece::Bad, frame.bad()),
        (Piece::Running, frame.count(&State::Running)),
    ];
    let mut bar = Vec::with_capacity(width);
    for (piece, n) in parts {
        let pieces = (n as f64 * width as f64 / frame.total.max(1) as f64) as usize;
        bar.extend(std::iter::repeat_n(piece, pieces.max(usize::from(n > 0))));
    }
    bar.truncate(width);
    let is_over = frame.ended() == frame.total && frame.total > 0;
    let rest = if is_over { bar.last().copied().unwrap_or(Piece::Open) } else { Piece::Open };
    bar.resize(width, rest);
    bar
}

/// The share of trials that have ended; 100 only when all have.
pub(super) fn percent(frame: &Frame) -> String {
    let tenths = frame.ended() * 1000 / frame.total.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Its pace and the time left.
pub(super) fn pace(frame: &Frame) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = frame.rate {
        parts.push(rate_of(rate));
    }
    if let Some(left) = frame.left_s {
        parts.push(format!("{} left", duration(left)));
    }
    if let Some(median) = frame.median_s {
        parts.push(format!("median {}", duration(median)));
    }
    if let Some(took) = frame.took_s {
        let took = duration(took);
        let is_over = frame.ended() == frame.total;
        parts.push(if is_over { format!("took {took}") } else { format!("began {took} ago") });
    }
    parts.join(", ")
}

/// The best trial so far, in words. Where seeds repeat a setting it is the one that was luckiest, and tells little of its setting.
pub(super) fn best(frame: &Frame) -> Option<String> {
    let best = frame.best.as_ref()?;
    let goal = if best.max { "greatest" } else { "least" };
    let assumed = if best.assumed { ", assumed" } else { "" };
    let (value, trial) = (best.value, best.trial);
    let names = best.parameters.varied.iter().filter(|name| repeats_by_name(name));
    let repeating: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    let word = if repeating.is_empty() { "best" } else { "luckiest" };
    let mut words = format!("{word} {} {value} ({goal}{assumed}): trial {trial}", best.metric);
    if !best.parameters.all.is_empty() {
        let each = |(name, value): &(String, String)| format!("{name}={value}");
        let parameters: Vec<String> = best.parameters.all.iter().map(each).collect();
        words.push_str(&format!(", {}", parameters.join(" ")));
    }
    if !repeating.is_empty() {
        words.push_str(&format!("; `hpcsweep best` averages over {}", repeating.join(" and ")));
    }
    Some(printable(&words).into_owned())
}

/// How many trials failed for which cause.
pub(super) fn causes(frame: &Frame) -> Option<String> {
    let each = |(cause, n): &(Cause, u64)| format!("{n} {}", cause.word());
    let all: Vec<String> = frame.causes.iter().map(each).collect();
    (!all.is_empty()).then(|| format!("causes: {}", all.join(", ")))
}

/// A rate in the unit that suits it.
fn rate_of(a_second: f64) -> String {
    match a_second {
        r if r >= 10.0 => format!("{r:.0} trials/s"),
        r if r >= 1.0 => format!("{r:.1} trials/s"),
        r if r * 60.0 >= 1.0 => format!("{:.1} trials/min", r * 60.0),
        r => format!("{:.1} trials/h", r * 3600.0),
    }
}

/// Rows of a list on paper.
const PAPER_ROWS: usize = 10;

/// What else there is to know: what could not be read first.
pub(super) fn notes(frame: &Frame) -> impl Iterator<Item = String> + '_ {
    let damage = frame.damage.iter().map(|damaged| format!("left out: {damaged}"));
    let dropped = standing::dropped_words(frame.count(&State::Dropped));
    damage.chain(dropped).chain(frame.notes.iter().cloned())
}

/// A frame as plain text.
pub(super) fn plain(frame: &Frame) -> String {
    let counts: Vec<String> = counts(frame).into_iter().map(|(_, text)| text).collect();
    let bar: String = bar(frame, 50).into_iter().map(Piece::symbol).collect();
    let bar = format!("[{bar}] {}", percent(frame));
    let mut lines = vec![title(frame), counts.join("  "), bar, pace(frame)];
    lines.extend(best(frame).iter().chain(&causes(frame)).map(|line| short(line, 200)));
    lines.extend(notes(frame).map(|note| short(&note, 200)));
    lines.retain(|line| !line.is_empty());
    for pane in panes(frame).iter().filter(|pane| !pane.rows.is_empty()) {
        lines.push(String::new());
        lines.push(format!("{}: {}", pane.name, pane.total));
        let rows = std::iter::once(&pane.head).chain(pane.rows.iter().take(PAPER_ROWS));
        lines.extend(rows.map(|row| format!("  {row}")));
        // A row of failures is a group of them.
        let rows = if pane.key == FAILURES { pane.rows.len() as u64 } else { pane.total };
        if rows > PAPER_ROWS as u64 {
            lines.push(format!("  ... and {} more", rows - PAPER_ROWS as u64));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}
