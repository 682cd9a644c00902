//! Sets of trials: by number, by state, and by an expression over parameters, metrics and columns. All verbs that take sets
//! use this module, so that the same words mean the same trials.

mod condition;

use std::collections::BTreeSet;

use anyhow::Result;

use crate::base::cause::{Cause, TABLE};
use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::idset::IdSet;
use crate::base::words;
use crate::plan::site::Site;
use crate::sweep::standing::{Standing, State};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::table::{self, Row};
use crate::sweep::tree::{Identity, Tree};
use condition::Condition;

/// What trials must be like. Without any wish, all are meant; each further wish leaves out trials.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Numbers of trials, one of which is theirs; `None`: any.
    pub(crate) ids: Option<IdSet>,
    /// They ended without success.
    failed: bool,
    /// Words of states, one of which is theirs.
    states: Vec<String>,
    /// Causes, one of which is theirs.
    causes: Vec<Cause>,
    /// An expression that holds for them.
    condition: Option<Condition>,
}

impl Wanted {
    /// Reads the wishes: `sets` of numbers, words of `states` and of `causes`, an `expression`.
    ///
    /// # Errors
    /// When a set, a cause or the expression cannot be read.
    pub(crate) fn new(
        sets: &[&str],
        failed: bool,
        states: &[String],
        causes: &[String],
        expression: Option<&str>,
    ) -> Result<Self> {
        let mut ids: Option<IdSet> = None;
        for set in sets {
            let set = numbers(set)?;
            ids = Some(ids.map_or(set.clone(), |ids| ids.union(&set)));
        }
        let condition = expression.map(Condition::new).transpose()?;
        let causes = causes.iter().map(|word| cause(word)).collect::<Result<_, _>>()?;
        Ok(Self { ids, failed, states: states.to_vec(), causes, condition })
    }

    /// Whether there is no wish.
    pub(crate) fn is_all(&self) -> bool {
        self.ids.is_none() && self.is_by_number()
    }

    /// Whether nothing but numbers decides.
    pub(crate) fn is_by_number(&self) -> bool {
        !self.asks_how_it_ended() && self.condition.is_none()
    }

    fn asks_how_it_ended(&self) -> bool {
        self.failed || !self.states.is_empty() || !self.causes.is_empty()
    }

    /// Whether it matters how the trials stand: only then a scheduler needs to be asked.
    pub(crate) fn asks_for_states(&self) -> bool {
        self.asks_how_it_ended() || self.condition.as_ref().is_some_and(Condition::asks_for_states)
    }

    /// How the trials of a sweep stand, for a caller that reads no metric lines unless the expression does. Of trials that other
    /// numbers have, no more is known than how they stand.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn look(
        &self,
        tree: Tree,
        identity: Identity,
        whom: Option<(&Site, &Vars)>,
    ) -> Result<Status> {
        match (&self.condition, &self.ids) {
            (Some(_), _) => status::read(tree, identity, whom),
            (None, Some(ids)) => status::counted(tree, identity, whom, &|trial| ids.has(trial)),
            (None, None) => status::glance(tree, identity, whom),
        }
    }

    /// The trials of each sweep that are meant.
    ///
    /// # Errors
    /// When a number, a state or a name exists in none of the sweeps, or the expression fails.
    pub(crate) fn trials_in(&self, sweeps: &[Status]) -> Result<Vec<BTreeSet<u64>>> {
        self.check_numbers(sweeps)?;
        self.check_states(sweeps)?;
        let mut sweep_trials: Vec<BTreeSet<u64>> = Vec::new();
        for status in sweeps {
            let chosen = status.trials().filter(|(row, standing)| self.has(row, standing));
            sweep_trials.push(chosen.map(|(row, _)| row.id).collect());
        }
        match &self.condition {
            Some(condition) => condition.narrow(sweeps, sweep_trials),
            None => Ok(sweep_trials),
        }
    }

    /// Leaves the trials that are not meant out of the sweeps.
    ///
    /// # Errors
    /// As [`Wanted::trials_in`].
    pub(crate) fn narrow(&self, sweeps: &mut [Status]) -> Result<()> {
        if self.is_all() {
            return Ok(());
        }
        let chosen = self.trials_in(sweeps)?;
        sweeps.iter_mut().zip(&chosen).for_each(|(status, kept)| status.retain(kept));
        Ok(())
    }

    /// Whether a trial is meant as far as its number and its state decide.
    fn has(&self, row: &Row, standing: &Standing) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.has(row.id))
            && (!self.failed || standing.state.is_bad())
            && (self.states.is_empty() || self.states.contains(&standing.state.word()))
            && (self.causes.is_empty() || standing.cause.is_some_and(|c| self.causes.contains(&c)))
    }

    /// Refuses numbers that no sweep has.
    fn check_numbers(&self, sweeps: &[Status]) -> Result<(), Fault> {
        let last_trial =
            sweeps.iter().filter_map(|status| status.rows.last()).map(|row| row.id).max();
        let wanted = self.ids.as_ref().and_then(|ids| ids.runs().last()).map(|(_, last)| *last);
        match (wanted, sweeps) {
            (Some(wanted), [one, ..]) if last_trial.is_none_or(|last| last < u64::from(wanted)) => {
                let end = last_trial.map_or(0, |last| last + 1);
                Err(table::no_trial(&one.tree, u64::from(wanted), end))
            }
            _ => Ok(()),
        }
    }

    /// Refuses words that are no states. A scheduler may have words of its own.
    fn check_states(&self, sweeps: &[Status]) -> Result<(), Fault> {
        let standings = || sweeps.iter().flat_map(|status| &status.standings);
        for wanted in &self.states {
            let is_known = State::KNOWN.iter().any(|state| state.word() == *wanted);
            if is_known || standings().any(|standing| standing.state.word() == *wanted) {
                continue;
            }
            let state_names: Vec<String> = State::KNOWN.iter().map(State::word).collect();
            let fault = Fault::request(format!("`{wanted}` is not a state of a trial"));
            return Err(fault.hint(words::suggestion(wanted, &state_names, "there are")));
        }
        Ok(())
    }
}

/// Whether a word is a set of trials, and no name of a sweep: digits, commas, ranges.
pub(crate) fn is_set(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-' | b':'))
}

/// The cause of a word.
fn cause(word: &str) -> Result<Cause, Fault> {
    Cause::of_word(word).ok_or_else(|| {
        let cause_names: Vec<&str> = TABLE.iter().map(|(_, word, ..)| *word).collect();
        Fault::request(format!("`{word}` is not a cause")).hint(words::suggestion(
            word,
            &cause_names,
            "there are",
        ))
    })
}

/// The trials of a set.
fn numbers(set: &str) -> Result<IdSet, Fault> {
    let reads = |fault: Fault| Fault {
        sentence: fault.sentence.replace("set of array indices", "set of trials"),
        ..Fault::request(String::new())
    };
    let hint = "write numbers and ranges of them, as in `3-7,12`";
    IdSet::of_numbers(set).map_err(|fault| reads(fault).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_digits_is_a_set_of_trials() {
        let sets = ["0", "3-7,12", "0-9:2", "12,"].map(is_set);
        let names = ["results/s", "./3", "3x", "plan.toml", "", "-3"].map(is_set);
        assert_eq!((sets, names), ([true; 4], [false; 6]));
    }

    #[test]
    fn sets_are_joined_and_wrong_ones_are_explained() {
        let ids = |sets: &[&str]| Wanted::new(sets, false, &[], &[], None).map(|w| w.ids);
        assert_eq!(ids(&["3-7", "12,4"]).unwrap().unwrap().to_string(), "3-7,12");
        assert!(ids(&[]).unwrap().is_none());
        assert_eq!(
            ids(&["7-3"]).unwrap_err().to_string(),
            "`7-3` is not a set of trials: `7-3` runs backwards\nhint: write numbers and ranges of them, as in `3-7,12`"
        );
    }
}
