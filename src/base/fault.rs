//! An error in the user's words: one sentence, the place, a hint, and its cause.
//!
//! A fault is an ordinary error that travels inside [`anyhow::Error`]; `main` finds it in the chain
//! and turns its [`Kind`] into the exit code. This module never prints.

use std::fmt;
use std::io;

use crate::base::cause::Cause;

/// The cause of the fault; decides the exit code of `hpcsweep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Some trials failed: exit code 1.
    Trials,
    /// The request is wrong (usage, plan, profile): exit code 2.
    Request,
    /// The scheduler refused or cannot be reached: exit code 3.
    Scheduler,
    /// The machine failed us (disk, permissions, missing program): exit code 4.
    Machine,
    /// Our own bug: exit code 70.
    Bug,
}

impl Kind {
    /// The exit code of the program for this kind.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Trials => 1,
            Self::Request => 2,
            Self::Scheduler => 3,
            Self::Machine => 4,
            Self::Bug => 70,
        }
    }
}

/// One fault: a lower-case sentence without a final period, where it is, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault it is.
    pub kind: Kind,
    /// One lower-case sentence, the exact thing in backticks, no final period.
    pub sentence: String,
    /// The key of a plan to which it belongs: `command[1]`, `train.optimizer.lr`.
    pub key: Option<String>,
    /// Where: `plan.toml:7: lr = []`, or what was run; shown indented below the sentence.
    pub place: Option<String>,
    /// A command or an edit that fixes it.
    pub hint: Option<String>,
    /// The cause that it is for a trial that cannot run because of it.
    pub cause: Option<Cause>,
    /// Whether it is in vain to wait until it has passed: what is refused stays refused.
    pub is_lasting: bool,
}

impl Fault {
    /// A fault of the given kind, without place and hint.
    pub fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        let (key, place, hint, cause) = (None, None, None, None);
        Self { kind, sentence: sentence.into(), key, place, hint, cause, is_lasting: false }
    }

    /// The request is wrong.
    pub fn request(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Request, sentence)
    }

    /// The scheduler refused or cannot be reached.
    pub(crate) fn scheduler(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Scheduler, sentence)
    }

    /// The machine failed us.
    pub fn machine(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Machine, sentence)
    }

    /// Says to which key of a plan it belongs.
    #[must_use]
    pub(crate) fn of_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the place: `plan.toml:7: lr = []`, or what was run. A place that it had is replaced.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Sets the hint: a command to copy or an edit that fixes it. A hint that it had is replaced.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what it is for a trial.
    #[must_use]
    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sentence)?;
        if let Some(place) = &self.place {
            for line in place.lines() {
                write!(f, "\n  {line}")?;
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Several faults found in one reading, reported together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                write!(f, "\nerror: ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Faults {
    /// `Ok(value)` when nothing was found, otherwise all that was found.
    ///
    /// # Errors
    /// Returns the faults themselves when there are any.
    pub(crate) fn or(self, value: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.0.is_empty() { value() } else { Err(self.into()) }
    }
}

/// An error in one sentence, for a log or a cell: without place and hint.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        if let Some(fault) = cause.downcast_ref::<Fault>() {
            parts.push(fault.sentence.clone());
            break;
        }
        if let Some(first) = cause.downcast_ref::<Faults>().and_then(|Faults(all)| all.first()) {
            parts.push(first.sentence.clone());
            break;
        }
        parts.push(cause.to_string());
    }
    parts.join(": ")
}

/// A whole error on one line, for a record.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// What an error is for a trial that cannot run because of it.
pub(crate) fn cause(error: &anyhow::Error) -> Cause {
    let of = |part: &(dyn std::error::Error + 'static)| {
        let fault = part.downcast_ref::<Fault>().and_then(|fault| fault.cause);
        fault.or_else(|| part.downcast_ref::<io::Error>().and_then(Cause::of_io))
    };
    error.chain().find_map(of).unwrap_or(Cause::Unknown)
}

/// Whether it is in vain to wait until an error has passed.
pub(crate) fn is_lasting(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|part| part.downcast_ref::<Fault>()).any(|fault| fault.is_lasting)
}

/// The exit code for an error: that of the first [`Fault`] in its chain, otherwise "our bug".
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(fault) = cause.downcast_ref::<Fault>() {
            return fault.kind.exit_code();
        }
        if let Some(Faults(all)) = cause.downcast_ref::<Faults>() {
            return all.first().map_or(70, |f| f.kind.exit_code());
        }
        if cause.downcast_ref::<std::io::Error>().is_some() {
            return Kind::Machine.exit_code();
        }
    }
    Kind::Bug.exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_prints_sentence_place_and_hint() {
        let fault = Fault::request("axis `lr` has no values")
            .at("plan.toml:7: lr = []")
            .hint("give at least one value, or remove the axis");
        assert_eq!(
            fault.to_string(),
            "axis `lr` has no values\n  plan.toml:7: lr = []\nhint: give at least one value, or remove the axis"
        );
    }

    #[test]
    fn the_sentence_of_an_error_has_its_context_and_no_hint() {
        let fault = Fault::machine("no room").at("/x").hint("make some");
        let error = anyhow::Error::new(fault).context("writing the record");
        assert_eq!(sentence(&error), "writing the record: no room");
        assert_eq!(sentence(&anyhow::anyhow!("a").context("b")), "b: a");
        assert_eq!(sentence(&Faults(vec![Fault::request("x").hint("y")]).into()), "x");
    }

    #[test]
    fn the_first_fault_of_the_chain_decides_the_exit_code() {
        let error = anyhow::Error::new(Fault::scheduler("no")).context("submitting array 2");
        assert_eq!(exit_code(&error), 3);
        assert_eq!(exit_code(&anyhow::anyhow!("?")), 70);
        assert_eq!(exit_code(&anyhow::Error::new(std::io::Error::other("disk"))), 4);
    }
}
