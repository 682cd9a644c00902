//! The kernel's data about a process in /proc.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The text of a file of proc(5) or of a control group; empty if it cannot be read. Such a file does not say its length, and
/// the standard library begins with 32 bytes of one: here one read is enough for most.
pub(crate) fn text_of(path: impl AsRef<Path>) -> String {
    let mut text = vec![0; 4096];
    let mut len = 0;
    let Ok(mut file) = File::open(path) else { return String::new() };
    while let Ok(read) = file.read(&mut text[len..]) {
        len += read;
        // Part of a list of processes stays for the next read where one more has no room.
        if text.len() - len > 64 {
            break;
        }
        text.resize(2 * text.len(), 0);
    }
    text.truncate(len);
    String::from_utf8(text).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Whether a child of this process has ended, without taking note of it: `None` while it runs. `Some(true)` if at
/// its end it had a handler for one of these signals, or held one back.
pub(crate) fn has_ended(pid: u32, handling: &[Signal]) -> Option<bool> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let child = Id::Pid(Pid::from_raw(pid.cast_signed()));
    if matches!(waitid(child, flags), Ok(WaitStatus::StillAlive)) {
        return None;
    }
    let status = text_of(format!("/proc/{pid}/status"));
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
    let stat = text_of(format!("/proc/{pid}/stat"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_are_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("children").display().to_string();
        assert_eq!(text_of(&path), "");
        for len in [0, 1, 4031, 4032, 4033, 4095, 4096, 4097, 100_000] {
            let text = "7 ".repeat(len / 2 + 1)[..len].to_owned();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(text_of(&path), text, "{len}");
        }
    }
}
