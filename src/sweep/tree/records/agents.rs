//! What agents have recorded, by trial. Several of them may have run the same trial, and workers, too.

use anyhow::Result;
use rayon::prelude::*;

use super::bundles::{self, Bundle, Bundles, Opened};
use super::by_trial::Part;
use super::index::{Entry, Index};
use super::{ByTrial, Record};
use crate::base::host::threads;
use crate::sweep::tree::Tree;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::table::Which;

/// What becomes of the records of trials that were done at once, if no other file has one of the same trial.
#[derive(Clone, Copy)]
pub(super) enum AtOnce<'a> {
    /// They are kept as all others.
    Kept,
    /// They are taken, and not kept.
    Taken,
    /// They are neither read nor kept, unless they are of these trials.
    Unread(Which<'a>),
}

/// The records of agents.
#[derive(Clone, Copy)]
pub(super) struct Agents<'a> {
    pub(super) tree: &'a Tree,
    pub(super) keys: &'a Keys<'a>,
    pub(super) index: Option<&'a Index>,
    pub(super) at_once: AtOnce<'a>,
}

/// Trials that a thread takes at once.
const PIECE: usize = 1 << 10;

impl Agents<'_> {
    /// As [`Agents::add`], for a caller that takes none.
    ///
    /// # Errors
    /// As [`Agents::add`].
    pub(super) fn keep(self, all: &mut ByTrial, damage: &mut Damage) -> Result<()> {
        self.add(all, damage, &mut (), (|(), _| (), |(), ()| ()))
    }

    /// Adds them to those of workers. `make` makes something of some that are not kept, on any thread, and `take` takes it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn add<T: Sync, P: Send>(
        self,
        all: &mut ByTrial,
        damage: &mut Damage,
        taker: &mut T,
        (make, take): (impl Fn(&T, Vec<(u64, Record)>) -> P + Sync, impl Fn(&mut T, P)),
    ) -> Result<()> {
        if !self.tree.dir().join("agents").exists() {
            return Ok(());
        }
        // The ledger after the bundles could void what was read; before them, it is at most too kind to what
        // was written since, and the next look puts it right.
        let Self { tree, keys, index, .. } = self;
        let ledger = &Ledger::read(tree)?;
        let from = Bundles { tree, keys, ledger, index };
        let (bundles, damaged): (Vec<Bundle>, Vec<Damage>) =
            bundles::all(from, damage)?.into_iter().unzip();
        damaged.into_iter().for_each(|damaged| damage.extend(damaged));
        let mut files = Files::default();
        all.keys().for_each(|trial| files.count(*trial));
        bundles.iter().flat_map(|bundle| &bundle.trials).for_each(|trial| files.count(*trial));
        for bundle in bundles {
            let (opened, mut fresh) = bundle.open(from)?;
            let piece = |taker: &T, entries: &[Entry<'_>]| {
                let (part, taken) = self.piece(&opened, entries, &files);
                (part, make(taker, taken))
            };
            let unread = opened.each(from, |entries| {
                for some in entries.chunks(PIECE * threads::cores() * 2) {
                    let own = &*taker;
                    let pieces: Vec<(Part, P)> = threads::in_parallel(|| {
                        some.par_chunks(PIECE).map(|entries| piece(own, entries)).collect()
                    });
                    for (part, made) in pieces {
                        part.added_to(all);
                        take(taker, made);
                    }
                }
            })?;
            fresh.extend(unread);
            let (part, taken) = self.fresh(fresh, &files);
            let made = make(&*taker, taken);
            part.added_to(all);
            take(taker, made);
        }
        Ok(())
    }

    /// Whether the record of a trial that was done at once is not kept.
    fn passes(self, trial: u64, files: &Files) -> bool {
        let is_kept = match self.at_once {
            AtOnce::Kept => true,
            AtOnce::Taken => false,
            AtOnce::Unread(whole) => whole(trial),
        };
        !is_kept && files.has_one(trial)
    }

    /// What is kept of some entries, and the records that are taken.
    fn piece(
        self,
        opened: &Opened,
        entries: &[Entry<'_>],
        files: &Files,
    ) -> (Part, Vec<(u64, Record)>) {
        let (mut part, mut taken) = (Part::default(), Vec::new());
        for entry in entries {
            let place = entry.at_once.filter(|_| self.passes(entry.trial, files));
            part.at_once.extend(place.map(|place| (entry.trial, place)));
            let records = match place {
                None => &mut part.records,
                Some(_) if matches!(self.at_once, AtOnce::Taken) => &mut taken,
                Some(_) => continue,
            };
            records.push((entry.trial, opened.record(entry)));
        }
        (part, taken)
    }

    /// As [`Agents::piece`], of records that the index does not have.
    fn fresh(self, records: Vec<(u64, Record)>, files: &Files) -> (Part, Vec<(u64, Record)>) {
        let (own, kept) = records.into_iter().partition(|(trial, _)| self.passes(*trial, files));
        let mut part = Part { records: own, ..Part::default() };
        let taken = part.split(&|_| false);
        part.records.extend::<Vec<_>>(kept);
        (part, taken)
    }
}

/// How many files have a record of each trial.
#[derive(Default)]
struct Files(Vec<u8>);

/// Trials of a sweep at most.
const MOST: u64 = 1 << 24;

impl Files {
    fn count(&mut self, trial: u64) {
        if trial >= MOST {
            return;
        }
        let at = trial as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = self.0[at].saturating_add(1);
    }

    fn has_one(&self, trial: u64) -> bool {
        usize::try_from(trial).ok().and_then(|at| self.0.get(at)) == Some(&1)
    }
}
