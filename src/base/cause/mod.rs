//! Causes: why an attempt or a trial ended without success, one word each.
//!
//! [`TABLE`] is the only list of them; docs/causes.md has the same one with the evidence. A cause is recorded with the
//! end of an attempt, and derived by the reader where an attempt has none.

pub(crate) mod group;
pub(crate) mod log;

use std::io;

use serde::{Deserialize, Serialize};

/// Why an attempt or a trial ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "docs/causes.md and `TABLE` say what each of them means")]
pub enum Cause {
    OutOfMemory,
    CudaOutOfMemory,
    Walltime,
    NodeFailure,
    Preempted,
    Requeued,
    Cancelled,
    Stopped,
    AllocationEnded,
    SetUp,
    CommandNotFound,
    BadInterpreter,
    Permission,
    ExecFormat,
    CodeChanged,
    DiskFull,
    Quota,
    Limit,
    TreeUnreachable,
    Launch,
    Rendezvous,
    RankLost,
    SyncMismatch,
    Exception,
    Signal,
    ExitCode,
    NoResult,
    WorkerLost,
    ChainStopped,
    /// Also a word of a later version.
    #[serde(other)]
    Unknown,
}

/// Each cause with its word, a shorter word that options take as well, and what it means.
pub(crate) const TABLE: [(Cause, &str, &str, &str); 30] = {
    use Cause::*;
    [
        (OutOfMemory, "out-of-memory", "oom", "it had less memory than it needed"),
        (CudaOutOfMemory, "cuda-out-of-memory", "cuda-oom", "a GPU had less memory than it needed"),
        (Walltime, "walltime", "timeout", "its time was over"),
        (NodeFailure, "node-failure", "node", "its node failed"),
        (Preempted, "preempted", "", "the scheduler needed its place"),
        (Requeued, "requeued", "", "its job was given back to the queue"),
        (Cancelled, "cancelled", "", "a person cancelled it"),
        (Stopped, "stopped", "", "a signal asked it to stop, and nothing says why"),
        (AllocationEnded, "allocation-ended", "", "the allocation of its agent ended"),
        (SetUp, "set-up", "setup", "a line of the set-up failed"),
        (CommandNotFound, "command-not-found", "", "its command does not exist there"),
        (BadInterpreter, "bad-interpreter", "", "the first line of its command names no program"),
        (Permission, "permission", "", "its command or a file may not be used"),
        (ExecFormat, "exec-format", "", "its command is no program for this machine"),
        (CodeChanged, "code-changed", "", "its snapshot is not what was stored"),
        (DiskFull, "disk-full", "", "a disk was full"),
        (Quota, "quota", "", "a disk quota was used up"),
        (Limit, "limit", "", "a limit of the machine left no place for it"),
        (
            TreeUnreachable,
            "tree-unreachable",
            "",
            "the results tree or the working folder could not be reached",
        ),
        (Launch, "launch", "", "the launcher started other ranks than the plan asks for"),
        (Rendezvous, "rendezvous", "", "its ranks did not find each other"),
        (RankLost, "rank-lost", "", "a rank vanished without a word"),
        (SyncMismatch, "sync-mismatch", "", "its ranks disagreed about what they sync"),
        (Exception, "exception", "", "the program ended with an exception"),
        (Signal, "signal", "", "a signal killed the program"),
        (ExitCode, "exit-code", "", "the program returned an exit code other than 0"),
        (NoResult, "no-result", "", "it ended with 0, without what the plan expects of it"),
        (WorkerLost, "worker-lost", "lost", "its job, worker or agent left no end"),
        (ChainStopped, "chain-stopped", "", "a trial before it in its chain did not succeed"),
        (Unknown, "unknown", "", "nothing is known"),
    ]
};

impl Cause {
    /// The word by which it is recorded, shown and selected.
    pub fn word(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self).map_or("unknown", |row| row.1)
    }

    /// The cause of a word, or of its shorter one.
    pub fn of_word(word: &str) -> Option<Self> {
        let is_meant =
            |row: &&(Self, &str, &str, &str)| !word.is_empty() && (row.1 == word || row.2 == word);
        TABLE.iter().find(is_meant).map(|row| row.0)
    }

    /// The cause that an error of the system shows, whatever was tried.
    pub(crate) fn of_io(error: &io::Error) -> Option<Self> {
        /// ENODEV, EIO, ESTALE, ENOTCONN, ETIMEDOUT, EHOSTDOWN, EREMOTEIO.
        const GONE: [i32; 7] = [19, 5, 116, 107, 110, 112, 121];
        match error.kind() {
            io::ErrorKind::StorageFull => Some(Self::DiskFull),
            io::ErrorKind::QuotaExceeded => Some(Self::Quota),
            io::ErrorKind::PermissionDenied => Some(Self::Permission),
            _ if hint_of_limit(error).is_some() => Some(Self::Limit),
            _ => error.raw_os_error().filter(|n| GONE.contains(n)).map(|_| Self::TreeUnreachable),
        }
    }

    /// Whether it is the machine's, and passes: a trial that could not begin for it has not failed.
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::DiskFull | Self::Quota | Self::Limit)
    }

    /// Whether the words about it say more than the exit code or the signal of the program.
    pub(crate) fn says_more(self) -> bool {
        !matches!(self, Self::Signal | Self::ExitCode | Self::SetUp | Self::Unknown)
    }
}

/// What can be done about an error that comes of a limit of this process or machine.
pub(crate) fn hint_of_limit(error: &io::Error) -> Option<&'static str> {
    use nix::libc::{EAGAIN, EFBIG, EMFILE, ENFILE, ENOMEM};
    match error.raw_os_error()? {
        EMFILE | ENFILE => {
            Some("raise the limit of open files (`ulimit -n`) and run the same command again")
        }
        EFBIG => Some("raise the limit of file sizes (`ulimit -f`) and run the same command again"),
        EAGAIN | ENOMEM => Some(
            "run the same command again when fewer processes run, or raise `ulimit -u` and `-v`",
        ),
        _ => None,
    }
}

/// A cause and what there is to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) cause: Cause,
    pub(crate) words: String,
}

impl Why {
    pub(crate) fn new(cause: Cause, words: impl Into<String>) -> Self {
        Self { cause, words: words.into() }
    }

    /// With what the log says besides.
    #[must_use]
    pub(crate) fn with(self, logged: Option<Self>) -> Self {
        let more = logged.map(|logged| format!("; its log ends with: {}", logged.words));
        Self { words: self.words + &more.unwrap_or_default(), ..self }
    }

    /// As it is said of a rank: `rank 3 on n2: ValueError: no`.
    #[must_use]
    pub(crate) fn of(self, whom: &str) -> Self {
        Self { words: format!("{whom}: {}", self.words), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_one_word_in_records_options_and_the_page() {
        let page = include_str!("../../../docs/causes.md");
        let mut words = std::collections::BTreeSet::new();
        for (cause, word, alias, meaning) in TABLE {
            let recorded = serde_json::to_string(&cause).unwrap();
            assert_eq!((recorded, cause.word()), (format!("\"{word}\""), word));
            let read: Cause = serde_json::from_str(&format!("\"{word}\"")).unwrap();
            assert_eq!(read, cause);
            for own in [word, alias].iter().filter(|own| !own.is_empty()) {
                assert!(words.insert(*own), "`{own}` is two causes");
                assert_eq!(Cause::of_word(own), Some(cause));
            }
            let alias = if alias.is_empty() { String::new() } else { format!(", `{alias}`") };
            let row = format!("| `{word}`{alias} | {meaning} | ");
            assert!(page.contains(&row), "docs/causes.md has no row {row}");
        }
        assert_eq!(Cause::of_word(""), None);
        assert_eq!(Cause::of_word("exploded"), None);
        assert_eq!(serde_json::from_str::<Cause>("\"exploded\"").unwrap(), Cause::Unknown);
    }

    #[test]
    fn an_error_of_the_system_has_a_cause_where_its_number_says_so() {
        let of = |number| Cause::of_io(&io::Error::from_raw_os_error(number));
        use nix::libc::{EACCES, EDQUOT, EINVAL, EIO, ENOENT, ENOSPC, ENOTCONN, EPERM, ESTALE};
        use nix::libc::{EAGAIN, EFBIG, EMFILE, ENFILE, ENOMEM};
        assert_eq!([ENOSPC, EDQUOT].map(of), [Some(Cause::DiskFull), Some(Cause::Quota)]);
        assert_eq!([EACCES, EPERM].map(of), [Some(Cause::Permission); 2]);
        assert_eq!([EIO, ESTALE, ENOTCONN].map(of), [Some(Cause::TreeUnreachable); 3]);
        let limits = [EAGAIN, EFBIG, EMFILE, ENFILE, ENOMEM];
        assert_eq!(limits.map(of), [Some(Cause::Limit); 5]);
        assert_eq!([ENOENT, EINVAL].map(of), [None; 2]);
    }
}
