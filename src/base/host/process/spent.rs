//! What processes have used that have ended and were waited for.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::libc;
use nix::unistd::Pid;

/// What processes have used, with the children that they have waited for themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Processor time in the programs.
    pub user: Duration,
    /// Processor time in the kernel on their behalf.
    pub system: Duration,
    /// Largest resident set of one of them, bytes.
    pub memory: u64,
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
}

impl Spent {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            memory: self.memory.max(other.memory),
            read: self.read + other.read,
            written: self.written + other.written,
        }
    }

    fn of(usage: &libc::rusage) -> Self {
        let number = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
        let time = |t: libc::timeval| {
            let micros = u64::try_from(t.tv_usec).unwrap_or(0);
            Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0))
                + Duration::from_micros(micros)
        };
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            memory: number(usage.ru_maxrss) * 1024,
            // The kernel counts in sectors, whatever the device has.
            read: number(usage.ru_inblock) * 512,
            written: number(usage.ru_oublock) * 512,
        }
    }
}

/// Processor time that this thread has used.
pub(crate) fn time_of_thread() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    let time = usage.user_time() + usage.system_time();
    Duration::from_micros(
        u64::try_from(nix::sys::time::TimeValLike::num_microseconds(&time)).unwrap_or(0),
    )
}

/// What this process has used so far, with the children that it has waited for; of memory its own.
pub(crate) fn so_far() -> Spent {
    use nix::sys::resource::{UsageWho, getrusage};
    let of = |who: UsageWho| getrusage(who).map(|usage| Spent::of(usage.as_ref()));
    let own = of(UsageWho::RUSAGE_SELF).unwrap_or_default();
    let children = of(UsageWho::RUSAGE_CHILDREN).unwrap_or_default();
    Spent { memory: own.memory, ..own.and(children) }
}

/// The largest resident set of this process since it became its program, bytes; 0 where the kernel does not say. The peak of
/// getrusage(2) is also that of the program which this process was before.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

/// How a child of this process ended and what it has used; `None` while it runs.
///
/// # Errors
/// When it is no child of this process.
#[expect(unsafe_code, reason = "wait4(2) alone tells what one child has used")]
pub fn reap(pid: u32) -> std::io::Result<Option<(ExitStatus, Spent)>> {
    let mut status = 0;
    // SAFETY: a plain record of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right type.
    let got =
        unsafe { libc::wait4(pid.cast_signed(), &raw mut status, libc::WNOHANG, &raw mut usage) };
    match got {
        0 => Ok(None),
        n if n > 0 => Ok(Some((ExitStatus::from_raw(status), Spent::of(&usage)))),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Waits for a child that was killed; one that the kernel holds back is left for later.
pub(super) fn bury(pid: Pid) -> Spent {
    for _ in 0..50 {
        match reap(pid.as_raw().cast_unsigned()) {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some((_, spent))) => return spent,
            Err(_) => break,
        }
    }
    Spent::default()
}
