//! The next wave of a submission: what is to be asked for of the plan, and how it becomes arrays.

use std::collections::HashMap;

use anyhow::Result;

use crate::scheduler::Places;
use crate::submit::arrays::batch::{ArrayOptions, Submission, account};
use crate::submit::arrays::mapping::{Mapped, Rules};
use crate::submit::arrays::wave::{self, Before, Failures, Waves};
use crate::submit::{Source, grow, retry};
use crate::tree::records;
use crate::words::count;

impl Submission<'_> {
    /// Writes down a wave with all that is to be asked for, where that is anything. Returns how many trials are left to a
    /// later submission.
    pub(crate) fn next_wave(
        &mut self,
        source: &Source,
        options: &ArrayOptions,
        waves: &mut Waves,
        tell: &mut impl FnMut(&str),
    ) -> Result<u64> {
        let (diff, site) = (self.diff, self.site);
        let amended = self.amend(waves, tell)?;
        let mut covered = waves.covered();
        covered.retain(|trial| !amended.due.contains(trial));
        let without_success =
            || retry::without_success(&self.tree, &self.identity, site, self.environment);
        let mut again = match options.retry {
            true => without_success()?,
            false => retry::Retry::default(),
        };
        covered.retain(|trial| !again.bad.contains(trial));
        again.note(diff).iter().for_each(|note| tell(note));
        let records = if diff.known > 0 { records::all(&self.tree)? } else { HashMap::new() };
        amended.note(&records, &covered).iter().for_each(|note| tell(note));
        let known =
            retry::Known { waves, journal: &self.journal, covered: &covered, records: &records };
        if !options.retry && known.is_behind_a_failure(&self.tree, source, diff)? {
            again = without_success()?;
        }
        let before = Before::new(waves, &self.journal, &again.busy);
        let coming = before.coming(&records);
        let failures = Failures { retry: options.retry, due: amended.due, coming };
        let mut todo = wave::left_over(&self.tree, diff, &covered, &records, &failures)?.todo;
        if diff.known > 0 {
            let pack = source.plan.schedule.pack.map_or(1, u64::from);
            let elements = (todo.len() as u64 + diff.added()).div_ceil(pack);
            self.scheduler.check_queue(&mut self.calls, elements, account(source, site))?;
        }
        todo.extend(grow::grow(&self.tree, source, diff, self.templates, site)?);
        let waits = self.max_running.is_some() || todo.iter().any(|t| t.after.is_some());
        let places = if waits { self.scheduler.places(&mut self.calls)? } else { None };
        let mut put_off = 0;
        if let Some(places) = places {
            put_off = before.put_off(&self.tree, &mut todo, places.free())?;
            if put_off > 0 {
                tell(&format!(
                    "{} put off: {places}, and what waits could take the places of what it waits for; submit again when the \
                     jobs before have ended",
                    count(put_off, "trial")
                ));
            }
        }
        if todo.is_empty() {
            return Ok(put_off);
        }
        let rules = self.rules(source, places);
        let target = self.scheduler.facts().kind.word();
        let (_, mapped) = wave::make(&self.tree, target, &todo, &rules, &before, &records)?;
        self.explain(todo.len(), &rules, &mapped, tell);
        *waves =
            Waves { given_up: std::mem::take(&mut waves.given_up), ..Waves::read(&self.tree)? };
        Ok(put_off)
    }

    /// What decides about the arrays of a wave.
    fn rules(&self, source: &Source, places: Option<Places>) -> Rules {
        let limits = self.scheduler.limits();
        let own = Rules::of(&source.plan, self.site, self.scheduler.facts());
        Rules {
            elements: limits.elements(),
            max_walltime_s: limits.max_walltime_s.into_iter().chain(own.max_walltime_s).min(),
            max_running: self.max_running,
            cannot_throttle: limits.cannot_throttle,
            places,
            ..own
        }
    }

    /// Says why a wave of so many trials has the arrays that it has.
    fn explain(&self, trials: usize, rules: &Rules, mapped: &Mapped, tell: &mut impl FnMut(&str)) {
        self.scheduler.notes().iter().for_each(|note| tell(note));
        if let (true, Some(n)) = (rules.cannot_throttle, self.max_running)
            && n < trials as u64
        {
            let version = self.scheduler.limits().version.as_deref().unwrap_or_default();
            tell(&format!(
                "{} {version} cannot throttle arrays: they have {} at most, and wait for each other",
                self.scheduler.facts().name,
                count(n, "element")
            ));
        }
        if self.max_running.is_some() && !rules.cannot_throttle && rules.is_too_narrow(trials) {
            tell(
                "`max_running` holds for each array alone: behind this routing queue arrays that wait could take the \
                 places of those that they wait for",
            );
        }
        if !mapped.why.is_empty() {
            tell(&format!("chains as {}: {}", mapped.mapping.word(), mapped.why));
        }
    }
}
