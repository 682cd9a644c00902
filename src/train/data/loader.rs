//! Batches made ahead, off the training thread.
//!
//! Threads take the next list of indices and make its batch; the training thread takes the batches in the
//! order of the lists. Only these threads read files (pages of a map come from the disk when they are
//! touched) and convert numbers.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::batch::{Batch, How};
use super::dataset::Dataset;
use crate::base::fault::{self, Fault};
use crate::base::host::threads;

/// Makes a batch of some samples, perhaps in the memory of an old one.
type Make = dyn Fn(&[u64], Option<Batch>) -> Result<Batch, Fault> + Send + Sync;

/// An iterator over batches. It ends after the last list of indices, or after the first fault. Dropped
/// early, it waits for the batches being made and ends its threads.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    make: Box<Make>,
    /// Batches ahead of the one in use: ready or being made.
    depth: u64,
    state: Mutex<State>,
    /// A batch is ready, or no batch will come.
    made: Condvar,
    /// A batch was taken, or the loader ends.
    taken: Condvar,
}

struct State {
    lists: Box<dyn Iterator<Item = Vec<u64>> + Send>,
    /// Lists taken from there.
    n_begun: u64,
    /// Batches that were handed out.
    n_taken: u64,
    /// The batches that are ready, by number.
    ready: BTreeMap<u64, Result<Batch, Fault>>,
    /// Batches that were given back, for their memory; at most `depth`.
    spare: Vec<Batch>,
    /// No further list is taken.
    over: bool,
}

impl Loader {
    /// Starts `threads` threads (at least 1) that make batches of `dataset`, one for each list of indices,
    /// at most `depth` ahead of the one in use, and at least one a thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<L>(
        dataset: Arc<Dataset>,
        lists: L,
        how: How,
        threads: usize,
        depth: usize,
    ) -> Result<Self, Fault>
    where
        L: IntoIterator<Item = Vec<u64>>,
        L::IntoIter: Send + 'static,
    {
        Self::spawn(
            Box::new(move |indices, spare| dataset.batch(indices, &how, spare)),
            Box::new(lists.into_iter()),
            threads,
            depth,
        )
    }

    fn spawn(
        make: Box<Make>,
        lists: Box<dyn Iterator<Item = Vec<u64>> + Send>,
        threads: usize,
        depth: usize,
    ) -> Result<Self, Fault> {
        let n_threads = threads.max(1);
        let shared = Shared {
            make,
            depth: depth.max(n_threads) as u64,
            state: Mutex::new(State {
                lists,
                n_begun: 0,
                n_taken: 0,
                ready: BTreeMap::new(),
                spare: Vec::new(),
                over: false,
            }),
            made: Condvar::new(),
            taken: Condvar::new(),
        };
        let mut loader = Self { shared: Arc::new(shared), threads: Vec::new() };
        for n in 0..n_threads {
            let shared = Arc::clone(&loader.shared);
            match threads::start(&format!("data {n}"), move || shared.work()) {
                Ok(thread) => loader.threads.push(thread),
                // Fewer make the same batches, more slowly.
                Err(_) if n > 0 => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(loader)
    }

    /// Gives back a batch that is no longer needed: its memory is used for one to come.
    pub fn give_back(&self, batch: Batch) {
        let mut state = self.shared.lock();
        if (state.spare.len() as u64) < self.shared.depth {
            state.spare.push(batch);
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.shared.lock();
        loop {
            let number = state.n_taken;
            if let Some(batch) = state.ready.remove(&number) {
                state.n_taken += 1;
                if batch.is_err() {
                    state.end();
                }
                self.shared.taken.notify_all();
                return Some(batch);
            }
            if state.over && state.n_taken == state.n_begun {
                return None;
            }
            state = self.shared.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.taken.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was handed out as a fault already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        write!(f, "Loader({} begun, {} taken)", state.n_begun, state.n_taken)
    }
}

impl State {
    /// Whether one more may be begun.
    fn has_room(&self, depth: u64) -> bool {
        self.n_begun - self.n_taken < depth
    }

    /// After a fault: nothing more is begun, and nothing that is being made is handed out.
    fn end(&mut self) {
        self.over = true;
        self.ready.clear();
        self.n_taken = self.n_begun;
    }
}

impl Shared {
    /// The state is whole between any two of its changes, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of a thread.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            while !state.over && !state.has_room(self.depth) {
                state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.over {
                return;
            }
            let list = caught(|| Ok(state.lists.next()));
            let Some(list) = list.transpose() else {
                state.over = true;
                self.made.notify_all();
                self.taken.notify_all();
                return;
            };
            let number = state.n_begun;
            state.n_begun += 1;
            let spare = state.spare.pop();
            drop(state);
            let batch = list.and_then(|list| caught(|| (self.make)(&list, spare)));
            let mut state = self.lock();
            // No batch is taken after a fault.
            if number >= state.n_taken {
                state.over |= batch.is_err();
                state.ready.insert(number, batch);
                self.made.notify_all();
            }
        }
    }
}

/// What `f` returns; its panic as a fault.
fn caught<T>(f: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let panic_words = said(&*panic);
        Err(Fault::new(
            fault::Kind::Bug,
            format!("a thread that prepares data panicked: {panic_words}"),
        ))
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use super::super::batch::{Kind, Reals, Targets, Width};
    use super::*;
    use crate::train::config::{Field, Source, Synthetic};

    /// A batch that holds nothing but the indices, as targets.
    fn of_indices(indices: &[u64]) -> Batch {
        Batch {
            inputs: Reals::F32(Vec::new()),
            input_shape: vec![indices.len() as i64],
            targets: Targets::Classes(indices.iter().map(|i| *i as i64).collect()),
            target_shape: vec![indices.len() as i64],
        }
    }

    fn lists(n: u64) -> Box<dyn Iterator<Item = Vec<u64>> + Send> {
        Box::new((0..n).map(|i| vec![i, i + 100]))
    }

    fn taken(loader: Loader) -> Vec<Result<Vec<i64>, String>> {
        loader
            .map(|batch| match batch {
                Ok(Batch { targets: Targets::Classes(classes), .. }) => Ok(classes),
                Ok(other) => panic!("{other:?}"),
                Err(fault) => Err(fault.sentence),
            })
            .collect()
    }

    #[test]
    fn batches_come_in_the_order_of_their_lists() {
        // The first list waits until the second one is done.
        let (done, wait) = mpsc::channel();
        let wait = Mutex::new(wait);
        let make = move |indices: &[u64], _: Option<Batch>| {
            match indices[0] {
                0 => wait.lock().unwrap().recv().unwrap(),
                1 => done.send(()).unwrap(),
                _ => {}
            }
            Ok(of_indices(indices))
        };
        let loader = Loader::spawn(Box::new(make), lists(20), 2, 2).unwrap();
        let expected: Vec<Result<Vec<i64>, String>> =
            (0..20).map(|i| Ok(vec![i, i + 100])).collect();
        assert_eq!(taken(loader), expected);
        let none = Loader::spawn(Box::new(|i, _| Ok(of_indices(i))), lists(0), 3, 2).unwrap();
        assert_eq!(taken(none), []);
    }

    #[test]
    fn there_is_room_for_as_many_as_the_depth() {
        let make = |indices: &[u64], _: Option<Batch>| Ok(of_indices(indices));
        let loader = Loader::spawn(Box::new(make), lists(0), 1, 1).unwrap();
        let mut state = loader.shared.lock();
        (state.n_begun, state.n_taken) = (12, 10);
        let room: Vec<bool> = (1..5).map(|depth| state.has_room(depth)).collect();
        (state.n_begun, state.n_taken) = (0, 0);
        assert_eq!(room, [false, false, true, true]);
    }

    #[test]
    fn no_more_are_made_than_the_depth_allows() {
        let begun = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&begun);
        let (seen, wait) = mpsc::channel();
        let make = move |indices: &[u64], _: Option<Batch>| {
            counter.fetch_add(1, Ordering::SeqCst);
            seen.send(indices[0]).unwrap();
            Ok(of_indices(indices))
        };
        let mut loader = Loader::spawn(Box::new(make), lists(50), 2, 3).unwrap();
        for n in 0..50 {
            // All batches that may be begun are begun: the threads do not wait for a request.
            while begun.load(Ordering::SeqCst) < (n + 3).min(50) {
                wait.recv().unwrap();
            }
            assert!(begun.load(Ordering::SeqCst) <= n + 3);
            loader.next().unwrap().unwrap();
        }
        assert!(loader.next().is_none());
    }

    #[test]
    fn the_first_fault_is_the_last_word() {
        let make = |indices: &[u64], _: Option<Batch>| match indices[0] {
            3 => Err(Fault::request("bad sample")),
            _ => Ok(of_indices(indices)),
        };
        for threads in [1, 4] {
            let loader = Loader::spawn(Box::new(make), lists(20), threads, 4).unwrap();
            let mut expected: Vec<Result<Vec<i64>, String>> =
                (0..3).map(|i| Ok(vec![i, i + 100])).collect();
            expected.push(Err("bad sample".into()));
            assert_eq!(taken(loader), expected);
        }
    }

    #[test]
    fn a_panic_is_a_fault() {
        let make = |indices: &[u64], _: Option<Batch>| match indices[0] {
            1 => panic!("broken {}", indices[0]),
            _ => Ok(of_indices(indices)),
        };
        let told = "a thread that prepares data panicked: ";
        let loader = Loader::spawn(Box::new(make), lists(5), 2, 2).unwrap();
        assert_eq!(taken(loader), [Ok(vec![0, 100]), Err(format!("{told}broken 1"))]);
        let source = (0..5).map(|i| if i < 2 { vec![i] } else { panic!("no lists") });
        let make = |indices: &[u64], _: Option<Batch>| Ok(of_indices(indices));
        let loader = Loader::spawn(Box::new(make), Box::new(source), 2, 2).unwrap();
        assert_eq!(taken(loader), [Ok(vec![0]), Ok(vec![1]), Err(format!("{told}no lists"))]);
    }

    #[test]
    fn dropped_early_it_ends_its_threads() {
        let held = Arc::new(());
        let by_threads = Arc::clone(&held);
        let make = move |indices: &[u64], _: Option<Batch>| {
            let _ = &by_threads;
            Ok(of_indices(indices))
        };
        let endless = Box::new((0..).map(|i| vec![i]));
        let mut loader = Loader::spawn(Box::new(make), endless, 3, 2).unwrap();
        loader.next().unwrap().unwrap();
        drop(loader);
        assert_eq!(Arc::strong_count(&held), 1, "a thread still holds it");
    }

    #[test]
    fn it_makes_what_the_data_set_makes_and_uses_memory_again() {
        let field = Synthetic { synthetic: Field::Turbulence, samples: 5, size: 4, seed: 2 };
        let source = Source::Synthetic(field);
        let set =
            Dataset::open_some(&source, "x", "y", std::path::Path::new(""), &|_| true).unwrap();
        let set = Arc::new(set);
        let how = How { width: Width::F32, targets: Kind::Values, scale: 2.0, offset: 1.0 };
        let lists = vec![vec![0, 1], vec![4], vec![3, 2, 1]];
        let mut loader = Loader::start(Arc::clone(&set), lists.clone(), how, 1, 1).unwrap();
        for list in lists {
            let batch = loader.next().unwrap().unwrap();
            assert_eq!(batch, set.batch(&list, &how, None).unwrap());
            loader.give_back(batch);
        }
        assert!(loader.next().is_none());
        let address = |batch: &Batch| match &batch.inputs {
            Reals::F32(numbers) => numbers.as_ptr(),
            Reals::F64(_) => panic!("of f32"),
        };
        let old = set.batch(&[0, 1], &how, None).unwrap();
        let place = address(&old);
        assert_eq!(address(&set.batch(&[4], &how, Some(old)).unwrap()), place);
    }
}
