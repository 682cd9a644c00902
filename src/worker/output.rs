//! What programs print, on its way into the trial's one log: lines with the number of their rank.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::host::threads;

/// Copies a program's output, line by line, behind a prefix.
///
/// # Errors
/// When the machine gives no thread.
pub(super) fn pipe_lines(
    program: &mut Child,
    prefix: &'static str,
    log: &Arc<Mutex<File>>,
) -> Result<Vec<std::thread::JoinHandle<()>>, Fault> {
    let mut readers = Vec::new();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        program.stdout.take().map(|p| Box::new(p) as _),
        program.stderr.take().map(|p| Box::new(p) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let log = Arc::clone(log);
        readers.push(threads::start("output", move || {
            each_line(pipe, |text| write_line(&log, prefix, text));
        })?);
    }
    Ok(readers)
}

/// Waits until all output has been read; not for ever, as something the program left behind may hold
/// the pipe open.
pub(super) fn drain(pipes: Vec<std::thread::JoinHandle<()>>) {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until && !pipes.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `with` for every line of a stream; bytes that are not UTF-8 are replaced.
pub(super) fn each_line(pipe: Box<dyn Read + Send>, mut with: impl FnMut(&str)) {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
        with(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).as_ref());
        bytes.clear();
    }
}

pub(super) fn write_line(log: &Arc<Mutex<File>>, prefix: &str, text: &str) {
    if let Ok(mut log) = log.lock() {
        let _ = log.write_all(format!("{prefix}{text}\n").as_bytes());
    }
}

/// The job's own output file, which the scheduler has made: removed when nothing was written to it, so
/// that a trial leaves its record and its log and no third file.
pub(super) fn drop_empty_job_log() {
    let path = Path::new("/proc/self/fd/2");
    let Ok(file) = std::fs::read_link(path) else { return };
    let ours = file.extension().is_some_and(|e| e == "log")
        && file.parent().and_then(|p| p.parent()).is_some_and(|p| p.ends_with("logs/jobs"));
    if ours && std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == 0) {
        let _ = std::fs::remove_file(file);
    }
}
