//! What programs print, on its way into the trial's one log: lines with the number of their rank.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::base::fault::Fault;
use crate::base::host::threads;

/// Hands on a program's output, if it comes through pipes, line by line; `with` is called on a thread for each pipe.
///
/// # Errors
/// When the machine gives no thread.
pub(crate) fn pipe_lines(
    program: &mut Child,
    with: impl Fn(&str) + Clone + Send + 'static,
) -> Result<Vec<std::thread::JoinHandle<()>>, Fault> {
    let mut readers = Vec::new();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        program.stdout.take().map(|p| Box::new(p) as _),
        program.stderr.take().map(|p| Box::new(p) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let with = with.clone();
        readers.push(threads::start("output", move || each_line(pipe, with))?);
    }
    Ok(readers)
}

/// Waits until all output has been read; not for ever, as something the program left behind may hold
/// the pipe open.
pub(crate) fn drain(pipes: &[std::thread::JoinHandle<()>]) {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until && !pipes.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes of the longest line that is handed on in one piece.
const LONGEST: usize = 64 << 10;

/// Calls `with` for every line of a stream; bytes that are not UTF-8 are replaced. A line that is too long comes in
/// pieces, as lines of their own: a program that never ends its line must not fill the memory.
pub(crate) fn each_line(pipe: impl Read, mut with: impl FnMut(&str)) {
    let mut reader = BufReader::with_capacity(LONGEST, pipe);
    let mut bytes = Vec::with_capacity(LONGEST);
    let mut is_rest = false;
    loop {
        let room = (LONGEST - bytes.len()) as u64;
        let read = (&mut reader).take(room).read_until(b'\n', &mut bytes);
        let is_over = !read.is_ok_and(|n| n > 0);
        let is_whole = bytes.pop_if(|last| *last == b'\n').is_some();
        if !is_over && !is_whole && bytes.len() < LONGEST {
            // The stream is at its end, or about to say more.
            continue;
        }
        let kept = if is_over || is_whole { 0 } else { unfinished(&bytes) };
        let piece = &bytes[..bytes.len() - kept];
        // A line may end where its last piece did.
        if !piece.is_empty() || (is_whole && !is_rest) {
            with(&String::from_utf8_lossy(piece));
        }
        if is_over {
            return;
        }
        bytes.drain(..bytes.len() - kept);
        is_rest = !is_whole;
    }
}

/// How many of the last bytes begin a character of UTF-8 that is not there as a whole.
fn unfinished(bytes: &[u8]) -> usize {
    let begun = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] & 0xc0 != 0x80);
    let needs = |first: u8| match first {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    begun.filter(|back| needs(bytes[bytes.len() - back]) > *back).unwrap_or(0)
}

pub(crate) fn write_line(log: &Arc<Mutex<File>>, prefix: &str, text: &str) {
    if let Ok(mut log) = log.lock() {
        let _ = log.write_all(format!("{prefix}{text}\n").as_bytes());
    }
}

/// The job's own output file, which the scheduler has made: removed when nothing was written to it, so
/// that a trial leaves its record and its log and no third file.
pub(crate) fn drop_empty_job_log() {
    let path = Path::new("/proc/self/fd/2");
    let Ok(file) = std::fs::read_link(path) else { return };
    let ours = file.extension().is_some_and(|e| e == "log")
        && file.parent().and_then(|p| p.parent()).is_some_and(|p| p.ends_with("logs/jobs"));
    if ours && std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == 0) {
        let _ = std::fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        each_line(bytes, |line| all.push(line.to_owned()));
        all
    }

    #[test]
    fn lines_are_handed_on_as_they_end() {
        assert_eq!(lines(b"a\n\nb\xff\n"), ["a", "", "b\u{fffd}"]);
        assert_eq!(lines(b"a\nno end"), ["a", "no end"]);
        assert_eq!(lines(b""), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_long_comes_in_pieces_that_cut_no_character() {
        for (text, behind) in [("a", "b"), ("\u{20ac}", "c"), ("x\u{1f600}\u{e9}", "\n")] {
            for length in [LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST] {
                let whole = text.repeat(length / text.len());
                let all = lines(format!("{whole}\n{behind}\n").as_bytes());
                let (last, pieces) = all.split_last().unwrap();
                let (last, pieces) = match behind {
                    // An empty line of its own behind it.
                    "\n" => (&all[all.len() - 2], &all[..all.len() - 2]),
                    _ => (last, pieces),
                };
                assert_eq!(*last, behind.trim(), "{length}");
                assert!(pieces.iter().all(|piece| piece.len() <= LONGEST && !piece.is_empty()));
                assert_eq!(pieces.concat(), whole);
            }
        }
    }
}
