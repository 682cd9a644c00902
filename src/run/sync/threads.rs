//! Ranks that are threads of one process: for tests, and for trying things out without MPI.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::peers::Peers;
use super::say;
use crate::base::fault::{Fault, Kind};
use crate::base::host::threads;

/// Runs `body` once for each of `n` ranks, each on a thread of its own, and returns what they returned, by
/// rank. A rank that has returned or panicked is gone: the others get a fault that names it from every
/// call that needs it.
///
/// # Panics
/// With the panic of the lowest rank that panicked, when all ranks have ended.
pub fn run<T: Send>(n: u32, body: impl Fn(&mut dyn Peers) -> T + Sync) -> Vec<T> {
    let ended = try_run(n, body).into_iter();
    ended.map(|end| end.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

/// [`run`], with the panics of the ranks that panicked.
fn try_run<T: Send>(
    n: u32,
    body: impl Fn(&mut dyn Peers) -> T + Sync,
) -> Vec<std::thread::Result<T>> {
    let world = Arc::new(World::new(n));
    let world = &world;
    let run_rank = |rank| {
        let mut peers = Threads { rank, world: Arc::clone(world) };
        let end = catch_unwind(AssertUnwindSafe(|| body(&mut peers)));
        world.leave(rank, if end.is_ok() { "returned" } else { "panicked" });
        end
    };
    std::thread::scope(|scope| {
        let start = |rank| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || run_rank(rank));
            thread.inspect_err(|_| world.leave(rank, "could not be started"))
        };
        let started: Vec<_> = (0..n).map(start).collect();
        started
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread.join().and_then(|end| end),
                Err(error) => Err(Box::new(threads::none(&error).sentence) as _),
            })
            .collect()
    })
}

/// One rank of [`run`].
struct Threads {
    rank: u32,
    world: Arc<World>,
}

/// Which call a rank makes; all must make the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    AllGather,
    Pieces,
    Broadcast(u32),
}

/// A rank's contribution to a call.
type Brought = (Call, Arc<[u8]>);

/// Where threads meet: a call is complete when each rank has made it.
struct World {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Each rank's contribution to the call under way.
    brought: Vec<Option<Brought>>,
    /// All contributions to the last completed call. They stay until the next call completes, which cannot
    /// happen before every rank has taken them.
    met: Arc<[Brought]>,
    /// How many calls have come about.
    calls: u64,
    /// Why each rank is gone.
    gone: Vec<Option<&'static str>>,
}

impl World {
    fn new(n: u32) -> Self {
        let n = n as usize;
        let met = Arc::from([]);
        let state = State { brought: vec![None; n], met, calls: 0, gone: vec![None; n] };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// No thread panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, rank: u32, how: &'static str) {
        self.lock().gone[rank as usize] = Some(how);
        self.changed.notify_all();
    }

    /// Contributes something, waits for the others, and takes all contributions.
    fn meet(&self, rank: u32, call: Call, bytes: &[u8]) -> Result<Arc<[Brought]>, Fault> {
        let mut state = self.lock();
        let calls_before = state.calls;
        state.brought[rank as usize] = Some((call, Arc::from(bytes)));
        if let Some(all) = state.brought.iter().cloned().collect::<Option<Vec<_>>>() {
            state.met = Arc::from(all);
            state.brought.fill(None);
            state.calls += 1;
            self.changed.notify_all();
        }
        while state.calls == calls_before {
            let gone = state.gone.iter().enumerate().filter_map(|(r, how)| Some((r, (*how)?)));
            let gone = say::groups(gone);
            if !gone.is_empty() {
                let departures = gone.iter().map(|(how, who)| format!("{} {how}", say::ranks(who)));
                return Err(Fault::machine(say::list(departures, "; ")));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.met.iter().find(|(other, _)| *other != call) {
            Some((other, _)) => Err(bug(format_args!("ranks call {call:?} and {other:?} at once"))),
            None => Ok(Arc::clone(&state.met)),
        }
    }
}

impl Threads {
    fn gather(
        &self,
        call: Call,
        mine: &[u8],
        lens: impl Fn(usize) -> usize,
        all: &mut [u8],
    ) -> Result<(), Fault> {
        let met = self.world.meet(self.rank, call, mine)?;
        let mut unfilled = all;
        for (rank, (_, piece)) in met.iter().enumerate() {
            if lens(rank) != piece.len() || unfilled.len() < piece.len() {
                let (due, came) = (lens(rank), piece.len());
                return Err(bug(format_args!(
                    "rank {rank} sent {came} bytes where {due} were due"
                )));
            }
            let (place, after) = unfilled.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            unfilled = after;
        }
        Ok(())
    }
}

impl Peers for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.lock().gone.len() as u32
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
        self.gather(Call::AllGather, mine, |_| mine.len(), all)
    }

    fn all_gather_pieces(
        &mut self,
        mine: &[u8],
        lens: &[usize],
        all: &mut [u8],
    ) -> Result<(), Fault> {
        self.gather(Call::Pieces, mine, |rank| lens[rank], all)
    }

    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let mine: &[u8] = if self.rank == root { bytes } else { &[] };
        let met = self.world.meet(self.rank, Call::Broadcast(root), mine)?;
        let (_, sent) = &met[root as usize];
        if sent.len() != bytes.len() {
            let (due, came) = (bytes.len(), sent.len());
            return Err(bug(format_args!("rank {root} sent {came} bytes where {due} were due")));
        }
        bytes.copy_from_slice(sent);
        Ok(())
    }
}

fn bug(what: fmt::Arguments<'_>) -> Fault {
    Fault::new(Kind::Bug, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_gets_the_bytes_of_all_in_order() {
        for n in [1u32, 2, 7] {
            let all = run(n, |peers| {
                let rank = peers.rank() as u8;
                let mut even = vec![0; 2 * n as usize];
                let mut last = [rank];
                let mut pieces = vec![0; (0..n as usize).sum()];
                let lens: Vec<usize> = (0..n as usize).collect();
                for _ in 0..50 {
                    peers.all_gather(&[rank, 9], &mut even).unwrap();
                    peers.all_gather_pieces(&vec![rank; rank.into()], &lens, &mut pieces).unwrap();
                    peers.broadcast(n - 1, &mut last).unwrap();
                }
                (even, pieces, last)
            });
            let even: Vec<u8> = (0..n as u8).flat_map(|r| [r, 9]).collect();
            let pieces: Vec<u8> = (0..n as u8).flat_map(|r| vec![r; r.into()]).collect();
            assert_eq!(all, vec![(even, pieces, [n as u8 - 1]); n as usize]);
        }
    }

    #[test]
    fn a_rank_that_panics_or_returns_is_named_to_the_others() {
        // The others stay until both have seen both gone.
        let seen = std::sync::Barrier::new(2);
        let all = try_run(4, |peers| {
            let mut bytes = [0; 4];
            peers.all_gather(&[1], &mut bytes).unwrap();
            match peers.rank() {
                1 => resume_unwind(Box::new("on purpose")),
                2 => None,
                _ => loop {
                    let fault = peers.all_gather(&[1], &mut bytes).unwrap_err();
                    assert!(fault.sentence.contains("rank"), "{fault}");
                    if fault.sentence.contains(';') {
                        seen.wait();
                        break Some(fault);
                    }
                    std::thread::yield_now();
                },
            }
        });
        let fault = Fault::machine("rank 1 panicked; rank 2 returned");
        assert!(all[1].is_err());
        assert_eq!(all[2].as_ref().unwrap(), &None);
        for rank in [0, 3] {
            assert_eq!(all[rank].as_ref().unwrap().as_ref(), Some(&fault));
        }
    }

    #[test]
    fn one_that_is_gone_before_the_others_call_is_enough() {
        let all = run(3, |peers| {
            (peers.rank() != 1).then(|| peers.broadcast(0, &mut [0]).unwrap_err().sentence)
        });
        for told in [&all[0], &all[2]] {
            assert!(told.as_ref().unwrap().contains("returned"), "{told:?}");
        }
        assert_eq!(all[1], None);
    }

    #[test]
    fn calls_that_do_not_fit_are_a_fault_and_not_a_wait() {
        let all = run(2, |peers| {
            let mut two = [0; 2];
            let calls = match peers.rank() {
                0 => peers.all_gather(&[1], &mut two),
                _ => peers.broadcast(0, &mut two),
            };
            let sizes = match peers.rank() {
                0 => peers.all_gather(&[1], &mut two),
                _ => peers.all_gather(&[1, 2], &mut [0; 4]),
            };
            (calls.unwrap_err().kind, sizes.unwrap_err().kind)
        });
        assert_eq!(all, [(Kind::Bug, Kind::Bug); 2]);
    }
}
