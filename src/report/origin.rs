//! Where the results come from: plan, code, versions, jobs.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::host::clock;
use crate::status::Status;
use crate::words::thousands;

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

/// What is known of the origin of a sweep's results.
pub(super) fn of(status: &Status, now: f64) -> Origin {
    let own = &status.identity;
    let attempts = || status.records.values().flat_map(|record| &record.attempts);
    let each = |of: &dyn Fn(&crate::tree::records::Attempt) -> Option<String>| {
        let all: BTreeSet<String> =
            attempts().filter_map(of).filter(|text| !text.is_empty()).collect();
        listed(all)
    };
    let snapshots: BTreeSet<(u64, &str)> = status
        .rows
        .iter()
        .filter_map(|row| {
            let attempt = status.records.get(&row.id)?.decisive()?;
            Some((row.id, attempt.start.snapshot.as_deref()?))
        })
        .collect();
    let code: BTreeSet<String> = snapshots
        .into_iter()
        .map(|(trial, name)| status.code.code_of(trial, name).words())
        .collect();
    let submissions = |of: &dyn Fn(&crate::tree::code::Submission) -> Option<String>| {
        listed(status.code.all().filter_map(of).collect())
    };
    let modules = |own: &crate::tree::code::Submission| {
        (!own.modules.is_empty()).then(|| own.modules.join(", "))
    };
    let jobs = match status.jobs.len() {
        0 => None,
        n if n <= MOST => Some(status.jobs.join(", ")),
        n => Some(format!("{} and {} more", status.jobs[..MOST].join(", "), n - MOST)),
    };
    let facts = [
        ("Sweep", Some(own.name.clone())),
        ("Folder", Some(status.tree.dir().display().to_string())),
        ("Created", Some(clock::local(own.created))),
        (
            "Report",
            Some(format!("{} by hpcsweep {}", clock::local(now), env!("CARGO_PKG_VERSION"))),
        ),
        ("Submitted by", Some(format!("hpcsweep {}", own.version))),
        ("Workers", each(&|attempt| Some(attempt.start.version.clone()))),
        ("Code", listed(code)),
        ("Interpreter", submissions(&|own| own.interpreter.clone())),
        ("Modules", submissions(&modules)),
        ("Hosts", each(&|attempt| Some(attempt.start.host.clone()))),
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
    let all: Vec<String> = status.damage.iter().map(ToString::to_string).collect();
    all.join("; ")
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
