//! Lines of input: a command each, or a value of `{}` each. They become the list of trials that the plan names.

use serde_json::json;

use crate::base::fault::Fault;
use crate::base::words::{count, short};

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command for bash.
    Command,
    /// A value that the command takes.
    Value,
}

impl Kind {
    /// The parameter that has the line.
    pub(super) fn parameter(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Value => "input",
        }
    }
}

/// The most bytes of an argument: Linux takes one of 128 KiB with its final NUL (MAX_ARG_STRLEN).
const MOST: usize = (128 << 10) - 1;

/// The lines that are trials.
#[derive(Debug, PartialEq)]
pub(super) struct Lines {
    pub(super) kind: Kind,
    pub(super) lines: Vec<String>,
    /// What was left out, in words.
    pub(super) notes: Vec<String>,
}

impl Lines {
    /// Reads what `name` has.
    ///
    /// # Errors
    /// When a line cannot be an argument, or there is none.
    pub(super) fn read(name: &str, bytes: &[u8], kind: Kind) -> Result<Self, Fault> {
        let at = |number: usize| format!("{name}, line {number}");
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let is_ended = bytes.ends_with(b"\n");
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let written: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let is_of_windows = is_of_windows(name, &written, is_ended)?;
        let (mut lines, mut comments, mut notes) = (Vec::new(), 0u64, Vec::new());
        for (i, line) in written.iter().enumerate() {
            let line = match line.strip_suffix(b"\r") {
                Some(line) if is_of_windows || line.is_empty() => line,
                _ => line,
            };
            let line = std::str::from_utf8(line).map_err(|_| {
                Fault::request("a line is not UTF-8").at(at(i + 1)).hint(
                    "convert it (`iconv -f latin1 -t utf-8`), or rename the files that it names",
                )
            })?;
            let start = line.trim_start();
            match kind {
                _ if line.is_empty() => continue,
                Kind::Command if start.is_empty() => continue,
                Kind::Command if start.starts_with("#DISBATCH") => {
                    let sentence = format!(
                        "`{}` is an order to disBatch, which hpcsweep does not follow",
                        short(start, 60)
                    );
                    let hint = "write each command whole, one a line, and remove this line";
                    return Err(Fault::request(sentence).at(at(i + 1)).hint(hint));
                }
                Kind::Command if start.starts_with('#') => {
                    comments += 1;
                    continue;
                }
                _ => {}
            }
            if line.contains('\0') {
                let hint = "write one value a line (`find ... -print`, not `-print0`)";
                return Err(Fault::request(
                    "a line holds a NUL character, which no program can take",
                )
                .at(at(i + 1))
                .hint(hint));
            }
            if line.len() > MOST {
                let sentence = format!(
                    "a line has {} bytes, and Linux gives a program at most {MOST} in one argument",
                    line.len()
                );
                let hint = "write it to a file, and name the file in the line";
                return Err(Fault::request(sentence).at(at(i + 1)).hint(hint));
            }
            lines.push(line.to_owned());
        }
        if lines.is_empty() {
            return Err(Fault::request(format!("{name} has no line to run"))
                .hint("write one command or one value a line; empty lines are left out"));
        }
        if comments > 0 {
            notes.push(format!("{name}: {} left out", count(comments, "comment")));
        }
        if is_of_windows {
            notes.push(format!(
                "{name}: its lines end as on Windows; the carriage returns are left out"
            ));
        }
        Ok(Self { kind, lines, notes })
    }

    /// The list of trials, one on each line.
    pub(super) fn list(&self) -> String {
        let parameter = self.kind.parameter();
        let rows: Vec<String> =
            self.lines.iter().map(|line| json!({ parameter: line }).to_string()).collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }
}

/// Whether lines end in a carriage return, as an editor of Windows writes them. Empty lines do not count, nor does a last line
/// without an end.
///
/// # Errors
/// When some do and others do not.
fn is_of_windows(name: &str, lines: &[&[u8]], is_ended: bool) -> Result<bool, Fault> {
    let has_return = |line: &&&[u8]| line.ends_with(b"\r");
    let full = |line: &&&[u8]| !matches!(**line, b"" | b"\r");
    let with = lines.iter().filter(full).filter(has_return).count() as u64;
    let open = lines.last().filter(|last| !is_ended && full(last) && !last.ends_with(b"\r"));
    let without = lines.iter().filter(full).count() as u64 - with - u64::from(open.is_some());
    if with == 0 || without == 0 {
        return Ok(with > 0);
    }
    let sentence = format!(
        "{name} mixes ends of lines: {} with a carriage return (Windows), {} without",
        count(with, "line"),
        count(without, "line")
    );
    Err(Fault::request(sentence).hint("`sed -i 's/\\r$//' FILE` makes them all alike"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], kind: Kind) -> (Vec<String>, Vec<String>) {
        Lines::read("l.txt", bytes, kind).map(|read| (read.lines, read.notes)).unwrap()
    }

    #[test]
    fn each_line_is_kept_byte_for_byte() {
        let text = b"\xef\xbb\xbf a\tb \n\n\r\n#c\n  \nd\rd\n{{ e }}%";
        let (lines, notes) = of(text, Kind::Value);
        assert_eq!(lines, [" a\tb ", "#c", "  ", "d\rd", "{{ e }}%"]);
        assert!(notes.is_empty(), "{notes:?}");
        let (lines, notes) = of(text, Kind::Command);
        assert_eq!(lines, [" a\tb ", "d\rd", "{{ e }}%"]);
        assert_eq!(notes, ["l.txt: 1 comment left out"]);
        for text in ["a\r\n\r\nb\r\n", "a\r\nb", "a\r\n\r\nb\r\n\n", "\na\r\nb\r"] {
            let (lines, notes) = of(text.as_bytes(), Kind::Value);
            assert_eq!(lines, ["a", "b"], "{text:?}");
            assert_eq!(
                notes,
                ["l.txt: its lines end as on Windows; the carriage returns are left out"]
            );
        }
    }

    #[test]
    fn a_line_that_no_program_can_take_is_refused_with_its_number() {
        let long = [b"a\n".as_slice(), &b"x".repeat(MOST + 1)].concat();
        for (bytes, said) in [
            (b"a\n\xff\n".as_slice(), "a line is not UTF-8\n  l.txt, line 2"),
            (b"a\0b", "a line holds a NUL character, which no program can take\n  l.txt, line 1"),
            (
                b"a\r\n\nb\nc\r\nd",
                "l.txt mixes ends of lines: 2 lines with a carriage return (Windows), 1 line without\nhint: `sed -i 's/\\r$//' FILE`",
            ),
            (b"a\nb\r", "l.txt mixes ends of lines: 1 line with a carriage return"),
            (b"\n\r\n", "l.txt has no line to run"),
            (b"", "l.txt has no line to run"),
            (
                &long,
                "a line has 131072 bytes, and Linux gives a program at most 131071 in one argument\n  l.txt, line 2",
            ),
            (
                b"a\n#DISBATCH PREFIX x",
                "`#DISBATCH PREFIX x` is an order to disBatch, which hpcsweep does not follow\n  l.txt, line 2",
            ),
        ] {
            let fault = Lines::read("l.txt", bytes, Kind::Command).unwrap_err().to_string();
            assert!(fault.starts_with(said), "{fault}");
        }
        assert_eq!(of(&long[..long.len() - 1], Kind::Command).0[1].len(), MOST);
    }
}
