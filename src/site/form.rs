//! The forms a value of a profile can have: how each is read, shown, and laid over an earlier one.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::SchedulerKind;
use crate::host::access::{Readers, Shared};
use crate::{units, words};

/// One form of value.
pub(super) struct Form<T> {
    /// What the value must be, completing "... must be ...".
    pub(super) expects: &'static str,
    /// The value from TOML; relative paths are under the given folder. `None`: not of this form.
    pub(super) read: fn(&DeValue<'_>, &Path) -> Option<T>,
    /// The value as people read it.
    pub(super) show: fn(&T) -> String,
}

/// A text of one line; an empty one takes back what an earlier layer said.
pub(super) const NAME: Form<Option<String>> = Form {
    expects: "a text of one line",
    read: |value, _| line(value).map(|text| (!text.is_empty()).then(|| text.to_owned())),
    show: |name| name.clone().unwrap_or_else(|| "none".to_owned()),
};

/// A list of texts, each of one line.
pub(super) const WORDS: Form<Vec<String>> = Form {
    expects: "a list of texts, each of one line and none empty",
    read: |value, _| list(value, |word| !word.is_empty()),
    show: |words| show_words(words),
};

/// The words before a worker.
pub(super) const LAUNCHER: Form<Option<Vec<String>>> = Form {
    expects: WORDS.expects,
    read: |value, folder| (WORDS.read)(value, folder).map(Some),
    show: |words| match words {
        Some(words) => show_words(words),
        None => "that of the scheduler".to_owned(),
    },
};

/// Options of the scheduler.
pub(super) const DIRECTIVES: Form<Vec<String>> = Form {
    expects: "a list of options, each of one line and beginning with `-`",
    read: |value, _| list(value, |word| word.starts_with('-')),
    show: |words| show_words(words),
};

/// `true` or `false`.
pub(super) const SWITCH: Form<bool> =
    Form { expects: "`true` or `false`", read: |value, _| value.as_bool(), show: bool::to_string };

/// A limit of the scheduler.
pub(super) const LIMIT: Form<Option<u64>> = Form {
    expects: "a whole number from 1",
    read: |value, _| whole(value).map(Some),
    show: |limit| limit.map_or_else(|| "as the scheduler says".to_owned(), |n| n.to_string()),
};

/// A number of seconds.
pub(super) const SECONDS: Form<u64> =
    Form { expects: "whole seconds from 1", read: |value, _| whole(value), show: u64::to_string };

/// A number that is always set.
pub(super) const NUMBER: Form<u64> =
    Form { expects: "a whole number from 1", read: |value, _| whole(value), show: u64::to_string };

/// A cap on a number.
pub(super) const CAP: Form<Option<u64>> = Form {
    expects: "a whole number from 1",
    read: |value, _| whole(value).map(Some),
    show: |cap| cap.map_or_else(|| "no cap".to_owned(), |n| n.to_string()),
};

/// A cap on a wall-clock time.
pub(super) const WALLTIME_CAP: Form<Option<u64>> = Form {
    expects: "a time like `\"1-12:00:00\"` or `\"90m\"`",
    read: |value, _| units::parse_walltime(value.as_str()?).map(Some),
    show: |cap| cap.map_or_else(|| "no cap".to_owned(), units::walltime_text),
};

/// The kind of scheduler.
pub(super) const KIND: Form<SchedulerKind> = Form {
    expects: "`\"slurm\"`, `\"pbs\"`, `\"local\"` or `\"auto\"`",
    read: |value, _| {
        let word = value.as_str()?;
        SchedulerKind::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    },
    show: |kind| kind.word().to_owned(),
};

/// Who may write to sweeps.
pub(super) const SHARED: Form<Shared> = Form {
    expects: "`\"group\"` or `\"no\"`",
    read: |value, _| match value.as_str()? {
        "group" => Some(Shared::Group),
        "no" => Some(Shared::No),
        _ => None,
    },
    show: |shared| if *shared == Shared::Group { "group" } else { "no" }.to_owned(),
};

/// Who may read sweeps.
pub(super) const READERS: Form<Option<Readers>> = Form {
    expects: "`\"owner\"`, `\"group\"` or `\"all\"`",
    read: |value, _| match value.as_str()? {
        "owner" => Some(Some(Readers::Owner)),
        "group" => Some(Some(Readers::Group)),
        "all" => Some(Some(Readers::All)),
        _ => None,
    },
    show: |readers| {
        match readers {
            None => "as the umask says",
            Some(Readers::Owner) => "owner",
            Some(Readers::Group) => "group",
            Some(Readers::All) => "all",
        }
        .to_owned()
    },
};

/// A path; a relative one is under the folder of its profile, an empty one takes back.
pub(super) const FOLDER: Form<Option<PathBuf>> = Form {
    expects: "a path",
    read: |value, folder| line(value).map(|text| (!text.is_empty()).then(|| folder.join(text))),
    show: |path| path.as_ref().map_or_else(|| "none".to_owned(), |p| p.display().to_string()),
};

/// The path of a program.
pub(super) const PROGRAM: Form<PathBuf> = Form {
    expects: "an absolute path without blanks",
    read: |value, _| {
        let text = line(value)?;
        (text.starts_with('/') && !text.contains(char::is_whitespace)).then(|| text.into())
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
    /// Both hold together.
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

/// What was forbidden stays so.
pub(super) fn adds(slot: &mut Vec<String>, new: Vec<String>) -> Laid {
    let laid = if slot.is_empty() { Laid::Taken } else { Laid::Added };
    for word in new {
        if !slot.contains(&word) {
            slot.push(word);
        }
    }
    laid
}

/// A text without control characters: a line break would end the directive it is written into.
fn line<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    value.as_str().filter(|text| !text.contains(char::is_control))
}

fn list(value: &DeValue<'_>, fits: fn(&str) -> bool) -> Option<Vec<String>> {
    let word = |item| line(item).filter(|word| fits(word)).map(str::to_owned);
    value.as_array()?.iter().map(|item| word(item.get_ref())).collect()
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    let n = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
    (1..=i64::MAX as u64).contains(&n).then_some(n)
}

fn show_words(words: &[String]) -> String {
    if words.is_empty() {
        return "none".to_owned();
    }
    words.iter().map(|word| words::sh_quote(word)).collect::<Vec<_>>().join(" ")
}
