//! Threads, of which a machine may give fewer than are wanted: `ulimit -u` and cgroups count them as processes.

use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::disk;
use crate::base::fault::Fault;

/// Starts a thread.
///
/// # Errors
/// When the machine gives none.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(|error| none(&error))
}

/// The fault of a machine that gives no thread.
pub(crate) fn none(error: &std::io::Error) -> Fault {
    Fault::machine(format!("cannot start a thread: {}", disk::reason(error)))
        .hint("see the limits on processes and memory: `ulimit -u`, `ulimit -v`, those of the job")
}

/// Runs what uses rayon's iterators on as many threads as there are cores, on fewer where the machine does not give as
/// many, and on this one alone where it gives none.
pub(crate) fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let halved = |n: &usize| Some(n / 2).filter(|n| *n > 0);
        let sizes = std::iter::successors(Some(cores()), halved);
        // One more thread would not be faster than this one.
        sizes.filter(|n| *n > 1).find_map(|n| ThreadPoolBuilder::new().num_threads(n).build().ok())
    });
    match pool {
        Some(pool) => pool.install(work),
        None => alone(work),
    }
}

/// On this thread, which starts no other.
fn alone<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread_local! {
        static OWN: Option<ThreadPool> =
            ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().ok();
    }
    OWN.with(|own| match own {
        Some(own) => own.install(work),
        // Of a pool already: that one's threads do it.
        None => work(),
    })
}

/// The cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn one_thread_does_all_the_work_alone_in_any_thread_and_within_itself() {
        let sum = || (0..1000_u64).into_par_iter().map(|n| n * 2).sum::<u64>();
        let here = std::thread::current().id();
        let all_here = || (0..100).into_par_iter().all(|_| std::thread::current().id() == here);
        assert!(alone(all_here));
        assert_eq!(alone(|| alone(sum) + sum()), 2 * 999_000);
        assert_eq!(std::thread::spawn(move || alone(sum)).join().unwrap(), 999_000);
        assert_eq!(in_parallel(|| in_parallel(sum)), 999_000);
    }
}
