//! `memory = "auto"` under agents: what trials that have ended have used is what others with the same values need, whoever ran
//! them. An agent begins a trial only if there is room for it beside those that run.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::base::cause::Cause;
use crate::base::units;
use crate::plan::{Learn, Params};
use crate::run::pull::membership::Membership;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::records::{self, End, Event, Outcome};
use crate::sweep::tree::{bundle, table};

/// Between two looks at what trials of other agents have used.
const PAUSE: Duration = Duration::from_secs(5);

/// What trials that have ended have used.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The most memory that trials with these values have used, bytes.
    used: HashMap<String, u64>,
    /// Bytes that were read of the bundle of each agent.
    read: HashMap<String, u64>,
    /// Whether the records of workers were read.
    has_workers: bool,
    /// When the other agents' bundles were read; `None`: nothing was read yet.
    at: Option<Instant>,
    /// Whether a trial has ended here since the agent's own bundle was read.
    pub(crate) is_stale: bool,
}

impl Needs {
    /// The memory that a trial needs, MiB; `None` until one with equal values has shown it.
    pub(super) fn of(&self, learn: &Learn, params: &Params) -> Option<u64> {
        let used = *self.used.get(&learn.values(params))?;
        Some(units::request_of_mib(used as f64 / f64::from(1 << 20) * learn.margin))
    }

    /// Reads what has ended since the last look: at once here, every few seconds elsewhere.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(in crate::run::pull) fn look(&mut self, membership: &mut Membership) -> Result<()> {
        let is_due = self.at.is_none_or(|at| at.elapsed() >= PAUSE);
        if !membership.learns() || !(is_due || self.is_stale) {
            return Ok(());
        }
        membership.flush()?;
        let mut ended: HashMap<u64, u64> = HashMap::new();
        let mut note = |trial: u64, bytes: u64| {
            let most = ended.entry(trial).or_default();
            *most = bytes.max(*most);
        };
        // What cannot be read now is not known yet.
        let workers = (!self.has_workers)
            .then(|| records::of_workers(&membership.tree, &mut Damage::default()).ok())
            .flatten();
        for (trial, record) in workers.iter().flatten() {
            let ends = record.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
            ends.filter_map(shown).for_each(|bytes| note(*trial, bytes));
        }
        let agents = match is_due {
            true => bundle::agents(&membership.tree)?,
            false => vec![membership.name.clone()],
        };
        let mut read = Vec::new();
        for agent in agents {
            let from = self.read.get(&agent).copied().unwrap_or(0);
            let Ok((lines, size)) = bundle::deeds(&membership.tree, &agent, from) else { continue };
            for (_, line) in lines {
                if let Event::End(end) = line
                    && let Some(bytes) = shown(&end)
                {
                    note(end.trial, bytes);
                }
            }
            read.push((agent, size));
        }
        let mut trials: Vec<u64> = ended.keys().copied().collect();
        trials.retain(|trial| membership.learn_of(*trial).is_some());
        trials.sort_unstable();
        for row in table::some(&membership.tree, &membership.heads, &trials)? {
            let Some(learn) = membership.learn_of(row.id) else { continue };
            let most = self.used.entry(learn.values(&row.params)).or_default();
            *most = ended[&row.id].max(*most);
        }
        // Last: after an error all of it is read again.
        self.read.extend(read);
        self.has_workers |= workers.is_some();
        self.is_stale = false;
        if is_due {
            self.at = Some(Instant::now());
        }
        Ok(())
    }
}

/// The memory that a trial has shown to need, bytes: what it used if it is done, and at least that if it had too little.
fn shown(end: &End) -> Option<u64> {
    let has_shown = end.state == Outcome::Done || end.cause == Some(Cause::OutOfMemory);
    end.node_memory().filter(|_| has_shown)
}
