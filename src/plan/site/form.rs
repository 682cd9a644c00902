//! The forms a value of a profile can have: how each is read and shown, and how it overrides an earlier one.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::SchedulerKind;
use crate::base::host::access::{Readers, Shared};
use crate::base::units;
use crate::base::words;
use crate::plan::document::form::{self, WHOLE};
use crate::plan::document::{Form as Read, Word, directives};

/// One form of value.
pub(super) struct Form<T, R> {
    /// How the value is read.
    pub(super) read: Read<R>,
    /// The value as people read it.
    pub(super) show: fn(&T) -> String,
}

/// A form of values that are read as they are kept.
type Plain<T> = Form<T, T>;
/// A form of values that needs no description.
type Optional<T> = Form<Option<T>, T>;

/// A text of one line; an empty one removes the value of an earlier layer.
pub(super) const NAME: Plain<Option<String>> = Form {
    read: Read {
        read: |reader, entry| {
            let is_empty = entry.item.get_ref().as_str() == Some("");
            if is_empty { Some(None) } else { (form::LINE.read)(reader, entry).map(Some) }
        },
        schema: || json!({ "type": "string", "pattern": "^[^\\n\\r]*$" }),
    },
    show: |name| name.clone().unwrap_or_else(|| "none".to_owned()),
};

/// A list of texts, each of one line.
pub(super) const WORDS: Plain<Vec<String>> =
    Form { read: form::LINES, show: |words| show_words(words) };

/// The words before a worker.
pub(super) const LAUNCHER: Optional<Vec<String>> = Form {
    read: form::LINES,
    show: |words| match words {
        Some(words) => show_words(words),
        None => "that of the scheduler".to_owned(),
    },
};

/// Options of the scheduler.
pub(super) const DIRECTIVES: Plain<Vec<String>> =
    Form { read: directives::OF_SITE, show: |words| show_words(words) };

/// A flag: `true` or `false`, always set.
pub(super) const SWITCH: Plain<bool> = Form { read: form::FLAG, show: bool::to_string };

/// A limit of the scheduler.
pub(super) const LIMIT: Optional<u64> = Form {
    read: WHOLE,
    show: |limit| limit.map_or_else(|| "as the scheduler says".to_owned(), |n| n.to_string()),
};

/// Seconds that are always set: a day at most, since a command waits for them.
pub(super) const SECONDS: Form<u64, u32> =
    Form { read: form::count_to::<1, 86_400>(), show: u64::to_string };

/// A number that is always set.
pub(super) const NUMBER: Plain<u64> = Form { read: WHOLE, show: u64::to_string };

/// A cap on a number.
pub(super) const CAP: Optional<u64> =
    Form { read: WHOLE, show: |cap| cap.map_or_else(|| "no cap".to_owned(), |n| n.to_string()) };

/// A cap on a wall-clock time.
pub(super) const WALLTIME_CAP: Optional<u64> = Form {
    read: form::WALLTIME,
    show: |cap| cap.map_or_else(|| "no cap".to_owned(), units::walltime_text),
};

impl Word for SchedulerKind {
    const WORDS: &'static [(&'static str, Self)] = &Self::ALL;
}

/// The kind of scheduler.
pub(super) const KIND: Plain<SchedulerKind> =
    Form { read: form::word(), show: |kind| kind.word().to_owned() };

/// Which users may write to sweeps.
pub(super) const SHARED: Plain<Shared> = Form { read: form::word(), show: |shared| word(*shared) };

/// Which users may read sweeps.
pub(super) const READERS: Optional<Readers> = Form {
    read: form::word(),
    show: |readers| readers.map_or_else(|| "as the umask says".to_owned(), word),
};

/// A path; a relative one is under the folder of its profile, an empty one takes back.
pub(super) const FOLDER: Plain<Option<PathBuf>> = Form {
    read: Read {
        read: |reader, entry| {
            let folder = Path::new(reader.name()).parent().unwrap_or(Path::new(""));
            Some((NAME.read.read)(reader, entry)?.map(|text| folder.join(text)))
        },
        schema: NAME.read.schema,
    },
    show: |path| path.as_ref().map_or_else(|| "none".to_owned(), |p| p.display().to_string()),
};

/// The path of a program.
pub(super) const PROGRAM: Plain<PathBuf> = Form {
    read: Read {
        read: |reader, entry| {
            let text = reader.line_of_text(entry)?;
            if !text.starts_with('/') || text.contains(char::is_whitespace) {
                let sentence = format!("`{}` must be an absolute path without blanks", entry.key);
                reader.wrong(entry.at, sentence, "write it as in `\"/bin/bash\"`");
                return None;
            }
            Some(text.into())
        },
        schema: || json!({ "type": "string", "pattern": "^/\\S*$" }),
    },
    show: |path| path.display().to_string(),
};

/// What laying a value over an earlier one came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Laid {
    /// The later value holds.
    Taken,
    /// The earlier value holds, because it is the tighter cap.
    Kept,
    /// The later words were added to the earlier ones.
    Added,
}

/// The later value wins.
pub(super) fn wins<T>(slot: &mut T, new: T) -> Laid {
    *slot = new;
    Laid::Taken
}

/// The lower cap wins.
pub(super) fn lowers(slot: &mut Option<u64>, new: Option<u64>) -> Laid {
    if slot.zip(new).is_some_and(|(old, new)| new > old) {
        return Laid::Kept;
    }
    *slot = new;
    Laid::Taken
}

/// Forbidden words stay forbidden.
pub(super) fn adds(slot: &mut Vec<String>, new: Vec<String>) -> Laid {
    let laid = if slot.is_empty() { Laid::Taken } else { Laid::Added };
    for word in new {
        if !slot.contains(&word) {
            slot.push(word);
        }
    }
    laid
}

fn word<T: Word + PartialEq>(setting: T) -> String {
    let matching = T::WORDS.iter().find(|(_, known)| *known == setting);
    matching.map_or_else(String::new, |(word, _)| (*word).to_owned())
}

fn show_words(words: &[String]) -> String {
    if words.is_empty() {
        return "none".to_owned();
    }
    words.iter().map(|word| words::sh_quote(word)).collect::<Vec<_>>().join(" ")
}
