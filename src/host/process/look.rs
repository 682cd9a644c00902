//! The kernel's data about a process in /proc.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Whether a child of this process has ended, without taking note of it: `None` while it runs. `Some(true)` if at
/// its end it had a handler for one of these signals, or held one back.
pub(crate) fn has_ended(pid: u32, handling: &[Signal]) -> Option<bool> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let child = Id::Pid(Pid::from_raw(pid.cast_signed()));
    if matches!(waitid(child, flags), Ok(WaitStatus::StillAlive)) {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = |name: &str| {
        let digits = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
    };
    let handled = mask("SigCgt:") | mask("SigBlk:");
    Some(handling.iter().any(|signal| handled & (1 << (*signal as u32 - 1)) != 0))
}

/// When a process of this host was started, in clock ticks since boot (proc(5), field 22 of `stat`); `None`
/// if there is no such process, or only its remains that its parent has not waited for. Distinguishes a
/// process from a later one of the same number.
pub(crate) fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Field 3, the state, is the first behind the name.
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The kernel's name of a process: the name of its program, cut to 15 bytes; `None` if there is none.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whether a process has children; `None` if the kernel does not report it.
pub(crate) fn has_children(pid: u32) -> Option<bool> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut all = tasks.flatten().map(|task| std::fs::read(task.path().join("children")).ok());
    all.try_fold(false, |any, children| Some(any || !children?.is_empty()))
}
