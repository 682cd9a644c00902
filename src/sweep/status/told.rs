//! The scheduler's last answer, for programs that look at a sweep again and again: the scheduler is asked seldom, and what it
//! has said of a trial holds until the trial's record changes or the scheduler answers again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Status;
use crate::base::host::Vars;
use crate::plan::site::Site;
use crate::sweep::standing::Standing;
use crate::sweep::tree::records::{Outcome, Record};
use crate::sweep::tree::table::Row;

/// The scheduler is not asked more often.
const ASKED_EVERY: Duration = Duration::from_secs(60);

/// Whom to ask about a sweep that a scheduler has.
#[derive(Debug, Clone)]
pub struct Asking {
    /// How the site's scheduler is asked.
    pub site: Site,
    /// The environment of the calls.
    pub vars: Vars,
    /// Whether it may be asked at all.
    pub may_ask: bool,
}

/// The state of a trial's record, and whether the plan has dropped the trial. While it stays the same, the scheduler's
/// last answer about the trial holds.
type Signature = (usize, Option<Outcome>, bool, bool);

fn signature(status: &Status, row: &Row) -> Signature {
    let is_dropped = status.dropped.has(row.id);
    let of = |r: &Record| (r.attempts.len(), r.outcome(), r.skipped.is_some(), is_dropped);
    status.records.get(&row.id).map_or((0, None, false, is_dropped), of)
}

/// What a scheduler has said, and when.
#[derive(Default)]
pub(crate) struct Told {
    asked: Option<Instant>,
    /// The standing of each trial by the scheduler's last answer.
    known: HashMap<u64, (Signature, Standing)>,
    witness: String,
}

impl Told {
    /// Reads a sweep with `read`, which gets whom to ask if that is due. The standings of the status are those of the last
    /// answer where it still holds.
    ///
    /// # Errors
    /// What `read` returns.
    pub(crate) fn look(
        &mut self,
        asking: &Asking,
        read: impl FnOnce(Option<(&Site, &Vars)>) -> Result<Status>,
    ) -> Result<Status> {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= ASKED_EVERY);
        let ask = asking.may_ask && is_due;
        let mut status = read(ask.then_some((&asking.site, &asking.vars)))?;
        if status.jobs.is_empty() {
            // Without jobs the tree has everything.
            *self = Self { witness: status.witness.clone(), ..Self::default() };
            return Ok(status);
        }
        if ask && status.is_sure() {
            let one = |(row, standing): (&Row, &Standing)| {
                (row.id, (signature(&status, row), standing.clone()))
            };
            self.known = status.trials().map(one).collect();
        } else {
            status.standings = status.trials().map(|of| self.stand(&status, of)).collect();
        }
        if ask {
            self.asked = Some(Instant::now());
        }
        if ask || self.asked.is_none() {
            self.witness.clone_from(&status.witness);
        } else {
            status.witness.clone_from(&self.witness);
        }
        Ok(status)
    }

    fn stand(&self, status: &Status, (row, standing): (&Row, &Standing)) -> Standing {
        let kept = self.known.get(&row.id).filter(|(then, _)| *then == signature(status, row));
        kept.map_or_else(|| standing.clone(), |(_, kept)| kept.clone())
    }

    /// Who has said how trials stand, in words, and how many whole seconds ago, if that is not now.
    pub(crate) fn witness(&self) -> (&str, Option<u64>) {
        let ago = self.asked.map(|asked| asked.elapsed().as_secs()).filter(|ago| *ago > 0);
        (&self.witness, ago)
    }
}
