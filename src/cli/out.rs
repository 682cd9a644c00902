//! Output: data on standard output, messages on standard error. The only place that prints.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};

use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::base::fault::{Fault, Kind};
use crate::base::host::disk;
use crate::base::words;
use crate::sweep::tree::to_json_line;

/// The two streams, and how much talk is wanted.
pub(super) struct Out {
    /// `-q` was given: [`Out::say`] prints nothing.
    pub(super) quiet: bool,
    /// Whether standard error is a terminal.
    pub(super) terminal: bool,
    /// Whether something that was asked for is missing from the answer.
    left_out: Cell<bool>,
}

impl Out {
    /// The process's own streams.
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, terminal: io::stderr().is_terminal(), left_out: Cell::new(false) }
    }

    /// A line of data for people.
    pub(super) fn data(&self, text: &str) {
        self.page(text);
        self.raw(b"\n");
    }

    /// Prints text for people, with control characters spelt out, and no line break after it.
    pub(super) fn page(&self, text: &str) {
        self.raw(words::printable(text).as_bytes());
    }

    /// Bytes of data, as they are. A closed pipe is the reader's wish to stop.
    pub(super) fn raw(&self, bytes: &[u8]) {
        if let Err(error) = io::stdout().lock().write_all(bytes) {
            if error.kind() == io::ErrorKind::BrokenPipe {
                std::process::exit(0);
            }
            let reason = disk::reason(&error);
            self::error(
                &Fault::machine(format!("cannot write to standard output: {reason}")).into(),
            );
            std::process::exit(4);
        }
    }

    /// A line of JSON. A terminal is not steered by what is in it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn json<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        let mut out = self.stream(true);
        out.write_all(&to_json_line(value)?)?;
        Ok(out.flush()?)
    }

    /// Bytes of data for a program that waits for them.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn line_now(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// The file for messages, for a program that is started.
    ///
    /// # Errors
    /// When the process has no more descriptors.
    pub(super) fn talk(&self) -> io::Result<OwnedFd> {
        io::stderr().as_fd().try_clone_to_owned()
    }

    /// Standard output, for a program that is started and whose output is asked for, and to notice that its reader has gone.
    ///
    /// # Errors
    /// When the process has no more descriptors.
    pub(super) fn stdout(&self) -> io::Result<OwnedFd> {
        io::stdout().as_fd().try_clone_to_owned()
    }

    /// Standard output as a stream of data, which is JSON where `of_json` says so: [`Out::json`].
    pub(super) fn stream(&self, of_json: bool) -> impl Write + use<'_> {
        Data { out: self, escapes: of_json && io::stdout().is_terminal(), rest: Vec::new() }
    }

    /// A line about what is wrong with results that are given out all the same.
    pub(super) fn warn(&self, text: &str) {
        let _ = writeln!(io::stderr(), "warning: {}", words::printable(text));
    }

    /// A warning that something that was asked for is missing from the answer.
    pub(super) fn leave_out(&self, text: &str) {
        self.left_out.set(true);
        self.warn(text);
    }

    /// Whether something that was asked for is missing from the answer.
    pub(super) fn has_left_out(&self) -> bool {
        self.left_out.get()
    }

    /// A message. Errors of standard error are ignored.
    pub(super) fn say(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{}", words::printable(text));
        }
    }
}

/// A line in the log of a job, whatever the command line says.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "hpcsweep: {}", words::printable(text));
}

/// Standard output, as [`Out::raw`] writes it.
struct Data<'a> {
    out: &'a Out,
    /// Whether it is JSON for a terminal.
    escapes: bool,
    /// What waits for its end: a part of a character cannot be escaped.
    rest: Vec<u8>,
}

impl Write for Data<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.escapes {
            self.rest.extend(bytes);
            let whole = bytes.iter().rposition(|&b| b == b'\n');
            let rest = whole.map_or(self.rest.len(), |at| bytes.len() - at - 1);
            let lines = self.rest.drain(..self.rest.len() - rest).collect::<Vec<u8>>();
            self.out.raw(words::printable_json(&String::from_utf8_lossy(&lines)).as_bytes());
        } else {
            self.out.raw(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.out.raw(words::printable_json(&String::from_utf8_lossy(&rest)).as_bytes());
        Ok(())
    }
}

/// The terminal as a screen of its own. It is as before when this is dropped, and when the program panics.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When standard output is not a terminal.
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave_screen();
            before(info);
        }));
        let open = || {
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen)?;
            ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))
        };
        match open() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                leave_screen();
                Err(error)
            }
        }
    }

    /// Draws what has changed.
    ///
    /// # Errors
    /// When the terminal has gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave_screen();
    }
}

fn leave_screen() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A panic ends the program with the exit code of a bug and one sentence, in every thread and however it was built.
pub(super) fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let said = info.payload();
        let said = said.downcast_ref::<&str>().copied().map(str::to_owned);
        let said = said.or_else(|| info.payload().downcast_ref::<String>().cloned());
        let line = said.unwrap_or_default().split('\n').collect::<Vec<_>>().join("; ");
        let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line()));
        let fault = Fault::new(
            Kind::Bug,
            format!("a bug of hpcsweep: {line}{}", place.unwrap_or_default()),
        )
        .hint("please report it with the command and, if you can, the plan");
        let _ = writeln!(io::stderr(), "error: {fault}");
        std::process::exit(i32::from(Kind::Bug.exit_code()));
    }));
}

/// Prints an error the way all errors look.
pub(super) fn error(error: &anyhow::Error) {
    let mut chain = error.chain().map(ToString::to_string).collect::<Vec<_>>();
    let last = chain.pop().unwrap_or_default();
    let context = chain.iter().map(|c| format!("{c}: ")).collect::<String>();
    let _ = writeln!(io::stderr(), "error: {}", words::printable(&format!("{context}{last}")));
}

/// No cell of a table for people is wider; files have everything.
const WIDEST: usize = 200;

/// Columns side by side, numbers to the right: every cell a text.
pub(super) fn aligned(head: &[String], rows: &[Vec<String>]) -> String {
    let tame = |cells: &[String]| {
        cells.iter().map(|c| words::short(&words::printable(c), WIDEST)).collect()
    };
    let head: Vec<String> = tame(head);
    let head = head.as_slice();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| tame(row)).collect();
    let rows = rows.as_slice();
    let numeric: Vec<bool> = (0..head.len())
        .map(|c| {
            let mut cells = rows.iter().map(|r| r[c].as_str()).filter(|c| !c.is_empty()).peekable();
            cells.peek().is_some() && cells.all(|c| c.parse::<f64>().is_ok())
        })
        .collect();
    let mut widths: Vec<usize> = head.iter().map(|h| h.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut out = String::new();
    for row in std::iter::once(head).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.width());
            if c > 0 {
                line.push_str("  ");
            }
            if numeric[c] {
                line.push_str(&pad);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&pad);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// How many at once, in words.
pub(super) fn at_a_time(n: u64) -> String {
    if n == 1 { "one at a time".to_owned() } else { format!("{n} at a time") }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Tells the process of the test that it is the one that panics.
    const PANICS: &str = "HPCSWEEP_TEST_PANICS";

    #[test]
    fn a_panic_in_any_thread_is_one_sentence_and_exit_code_70() {
        if std::env::var_os(PANICS).is_some() {
            super::end_on_panic();
            let _ = std::thread::spawn(|| panic!("first\nsecond")).join();
            return;
        }
        let name = "cli::out::tests::a_panic_in_any_thread_is_one_sentence_and_exit_code_70";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]).env(PANICS, "1");
        let ended = again.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(70), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("error: a bug of hpcsweep: first; second (src/cli/out.rs:"));
        assert_eq!(lines[1], "hint: please report it with the command and, if you can, the plan");
        assert_eq!(lines.len(), 2, "{said}");
    }
}
