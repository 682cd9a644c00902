//! A report that follows its sweep: made anew only if somebody looks at it, at most once in a while, and only if something has
//! changed. Many readers cost as much as one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Report, page};
use crate::base::host::http::Page;
use crate::sweep::status::Status;
use crate::sweep::tree::records::Outcome;

/// Looking takes at most one in so many parts of the time, as in `watch`.
const SHARE: u32 = 10;

/// How long a reader waits for a look that is due before it gets what is there.
const PATIENCE: Duration = Duration::from_secs(3);

/// A report, as its readers get it.
struct Version {
    tag: String,
    page: Arc<Vec<u8>>,
    data: Arc<Vec<u8>>,
}

/// What readers and the one that looks share.
struct State {
    version: Arc<Version>,
    number: u64,
    /// Whether a reader has come since the last look began.
    is_wanted: bool,
    /// When the next look may begin.
    due: Instant,
    /// Looks that have ended.
    looks: u64,
}

/// A report that follows its sweep.
pub(crate) struct Live {
    state: Mutex<State>,
    changed: Condvar,
    every: Duration,
}

impl Live {
    /// Begins with a report that has just been made. Readers ask, and the sweep is looked at, at most once in `every`.
    pub(crate) fn new(first: &Report, every: Duration) -> Self {
        let version = Version::render(first, 1, every);
        let due = Instant::now() + every;
        let state =
            State { version: Arc::new(version), number: 1, is_wanted: false, due, looks: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), every }
    }

    /// The page, and as `data` its data alone, for a page that is already there.
    pub(crate) fn page(&self, path: &str) -> Option<Page> {
        let is_page = match path {
            "" => true,
            "data" => false,
            _ => return None,
        };
        let version = self.version();
        let (kind, policy, body) = match is_page {
            true => {
                let policy = format!("{}; frame-ancestors 'none'", page::served_policy());
                ("text/html; charset=utf-8", policy, &version.page)
            }
            false => ("application/json", "default-src 'none'".to_owned(), &version.data),
        };
        Some(Page { kind, policy, tag: version.tag.clone(), body: Arc::clone(body) })
    }

    /// The newest version. If a look is due, it is waited for, though not for long.
    fn version(&self) -> Arc<Version> {
        let mut state = self.lock();
        state.is_wanted = true;
        self.changed.notify_all();
        let (looks, until) = (state.looks, Instant::now() + PATIENCE);
        while state.looks == looks && state.due <= Instant::now() {
            let time_left = until.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, time_left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Arc::clone(&state.version)
    }

    /// Looks at the sweep for ever, when a reader has come and a look is due. `look` returns a report if the sweep has
    /// changed; `tell` gets its faults, each once in a row.
    pub(crate) fn follow(
        &self,
        mut look: impl FnMut() -> Result<Option<Report>>,
        tell: impl Fn(&anyhow::Error),
    ) -> ! {
        let mut sent_words = String::new();
        loop {
            self.wait();
            let since = Instant::now();
            let looked = look();
            let took = since.elapsed();
            let number = self.lock().number + 1;
            // It may be large: readers need not wait for it.
            let version = match looked {
                Ok(report) => {
                    sent_words.clear();
                    report.map(|report| Arc::new(Version::render(&report, number, self.every)))
                }
                Err(error) => {
                    let words = error.to_string();
                    if words != sent_words {
                        tell(&error);
                        sent_words = words;
                    }
                    None
                }
            };
            let mut state = self.lock();
            if let Some(version) = version {
                (state.version, state.number) = (version, number);
            }
            state.looks += 1;
            state.due = Instant::now() + self.every.max(took * SHARE);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until a reader has come and a look is due.
    fn wait(&self) {
        let mut state = self.lock();
        loop {
            let time_left = state.due.saturating_duration_since(Instant::now());
            state = match (state.is_wanted, time_left.is_zero()) {
                (true, true) => break,
                (true, false) => {
                    let waited = self.changed.wait_timeout(state, time_left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.is_wanted = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Version {
    fn render(report: &Report, number: u64, every: Duration) -> Self {
        let tag = number.to_string();
        let page = report.served(&tag, every.as_secs_f64());
        Self { page: Arc::new(page), data: Arc::new(report.data().into_bytes()), tag }
    }
}

/// A number that is another one if something of a sweep has changed that a report shows: states, attempts, metric lines.
pub(crate) fn signature(status: &Status) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (row, standing) in status.trials() {
        (row.id, standing.state.word(), &standing.reason).hash(&mut hasher);
        let Some(record) = status.records.get(&row.id) else { continue };
        record.skipped.hash(&mut hasher);
        record.attempts.len().hash(&mut hasher);
        // Of one that was done at once, no more may be known, and its record never changes.
        let is_done = record.outcome() == Some(Outcome::Done);
        for attempt in record.attempts.iter().filter(|_| !is_done) {
            let end = attempt.end.as_ref().map(|end| end.time.to_bits());
            (attempt.start.time.to_bits(), end, attempt.metrics.len()).hash(&mut hasher);
        }
    }
    (&status.jobs, status.unsubmitted).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::answers::report::summary::Summary;
    use crate::base::host::threads;

    fn report(json: &str) -> Report {
        let (name, summary, json) = ("s".to_owned(), Summary::default(), json.to_owned());
        Report { name, summary, json, source: Vec::new(), shown: 0, trials: 0 }
    }

    /// The next look may begin now.
    fn make_due(live: &Live) {
        live.lock().due = Instant::now();
        live.changed.notify_all();
    }

    fn wait_for_looks(live: &Live, looks: u64) {
        let mut state = live.lock();
        while state.looks < looks {
            let (next, waited) = live.changed.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!waited.timed_out(), "{} looks", next.looks);
            state = next;
        }
    }

    #[test]
    fn many_readers_cost_one_look_and_nobody_none() {
        let live = Arc::new(Live::new(&report("1"), Duration::from_secs(3600)));
        let looks = Arc::new(AtomicU32::new(0));
        let (own, count) = (Arc::clone(&live), Arc::clone(&looks));
        threads::start("looks", move || {
            own.follow(
                || match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Ok(Some(report("2"))),
                    _ => Err(anyhow::anyhow!("the disk is away")),
                },
                |_| {},
            )
        })
        .unwrap();
        // Made just now: a reader gets it, and is remembered.
        assert_eq!(live.page("data").unwrap().tag, "1");
        assert_eq!(looks.load(Ordering::SeqCst), 0);
        make_due(&live);
        wait_for_looks(&live, 1);
        assert!(!live.lock().is_wanted);
        // One look is due, and nobody comes until many do.
        live.lock().due = Instant::now();
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let live = Arc::clone(&live);
                threads::start("reader", move || live.page("").unwrap().tag).unwrap()
            })
            .collect();
        // What was there stays, since the look has failed.
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == "2"));
        wait_for_looks(&live, 2);
        assert_eq!(looks.load(Ordering::SeqCst), 2);
        assert!(live.page("other").is_none());
    }
}
