//! Where the results come from: plan, code, versions, jobs.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::base::host::clock;
use crate::base::words::thousands;
use crate::sweep::status::Status;
use crate::sweep::tree::records::Record;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Origin {
    /// Names of facts with their values as text; what is not known is left out.
    facts: Vec<(&'static str, String)>,
    /// The plan as submitted last, if it can be read.
    plan: Option<String>,
}

/// The most values of a fact that are named.
const MOST: usize = 8;

/// Characters of a plan in a page.
const PLAN: usize = 60_000;

/// What records say of the origin of their results.
#[derive(Default)]
pub(super) struct Told {
    versions: BTreeSet<String>,
    hosts: BTreeSet<String>,
    /// Trials by the snapshots from which they ran.
    snapshots: HashMap<String, Vec<u64>>,
}

impl Told {
    /// Adds where and by which program the attempts of a record ran.
    pub(super) fn add(&mut self, record: &Record) {
        for start in record.attempts.iter().map(|attempt| &attempt.start) {
            for (all, own) in [(&mut self.versions, &start.version), (&mut self.hosts, &start.host)]
            {
                if !own.is_empty() && !all.contains(own) {
                    all.insert(own.clone());
                }
            }
        }
    }

    /// Adds the code of a trial.
    pub(super) fn add_code(&mut self, trial: u64, record: &Record) {
        let ran = record.decisive().and_then(|attempt| attempt.start.snapshot.as_ref());
        let Some(name) = ran else { return };
        match self.snapshots.get_mut(name) {
            Some(trials) => trials.push(trial),
            None => drop(self.snapshots.insert(name.clone(), vec![trial])),
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.versions.extend(other.versions);
        self.hosts.extend(other.hosts);
        for (name, trials) in other.snapshots {
            self.snapshots.entry(name).or_default().extend(trials);
        }
    }
}

/// What is known of the origin of a sweep's results: from what was taken while it was read, and the records that the status
/// has.
pub(super) fn describe(status: &Status, mut taken: Told, now: f64) -> Origin {
    let identity = &status.identity;
    status.records.values().for_each(|record| taken.add(record));
    for row in &status.rows {
        status.records.whole(row.id).iter().for_each(|record| taken.add_code(row.id, record));
    }
    let Told { versions, hosts, snapshots } = taken;
    let codes = snapshots.iter().flat_map(|(name, trials)| {
        trials.iter().map(|trial| status.code.code_of(*trial, name).words())
    });
    let code: BTreeSet<String> = codes.collect();
    let submissions = |of: &dyn Fn(&crate::sweep::tree::code::Submission) -> Option<String>| {
        listed(status.code.all().filter_map(of).collect())
    };
    let modules = |own: &crate::sweep::tree::code::Submission| {
        (!own.modules.is_empty()).then(|| own.modules.join(", "))
    };
    let jobs = match status.jobs.len() {
        0 => None,
        n if n <= MOST => Some(status.jobs.join(", ")),
        n => Some(format!("{} and {} more", status.jobs[..MOST].join(", "), n - MOST)),
    };
    let facts = [
        ("Sweep", Some(identity.name.clone())),
        ("Folder", Some(status.tree.dir().display().to_string())),
        ("Created", Some(clock::local(identity.created))),
        (
            "Report",
            Some(format!("{} by hpcsweep {}", clock::local(now), env!("CARGO_PKG_VERSION"))),
        ),
        ("Submitted by", Some(format!("hpcsweep {}", identity.version))),
        ("Workers", listed(versions)),
        ("Code", listed(code)),
        ("Interpreter", submissions(&|own| own.interpreter.clone())),
        ("Modules", submissions(&modules)),
        ("Hosts", listed(hosts)),
        ("Jobs", jobs),
        ("States seen by", Some(status.witness.clone())),
        ("Damaged files", (!status.damage.is_empty()).then(|| damaged(status))),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let plan = status.tree.stored_plan().ok().map(|text| match text.char_indices().nth(PLAN) {
        Some((end, _)) => format!("{}\n# ... left out here\n", &text[..end]),
        None => text,
    });
    Origin { facts, plan }
}

fn damaged(status: &Status) -> String {
    let damages: Vec<String> = status.damage.iter().map(ToString::to_string).collect();
    damages.join("; ")
}

/// Values in words; `None` if there are none.
fn listed(all: BTreeSet<String>) -> Option<String> {
    let n = all.len();
    let named: Vec<String> = all.into_iter().take(MOST).collect();
    match n {
        0 => None,
        n if n <= MOST => Some(named.join(", ")),
        n => Some(format!("{} and {} more", named.join(", "), thousands((n - MOST) as u64))),
    }
}
