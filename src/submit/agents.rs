//! Cancelling, holding and releasing a sweep that agents share. Its pilots are jobs of a scheduler; agents that
//! somebody has started by hand hear of it by the ledger. No trial is anybody's but the agents'.

use std::time::Duration;

use anyhow::Result;

use super::control::{Answer, Done, Wish, call};
use crate::fault::Fault;
use crate::host::{Vars, clock, vars};
use crate::scheduler::calls::Calls;
use crate::site::Site;
use crate::status::pilots;
use crate::tree::journal::{self, Journal};
use crate::tree::ledger::{self, Entry, Ledger};
use crate::tree::lock::Lock;
use crate::tree::{Identity, Tree, deck, records};

/// Does it for the agents of a sweep; `None` where agents have none of it.
///
/// # Errors
/// When single trials are named, or the scheduler refuses or does not answer.
pub(super) fn control(
    tree: &Tree,
    identity: &Identity,
    trials: &[u64],
    wish: Wish,
    site: &Site,
    environment: &Vars,
) -> Result<Option<Done>> {
    let decks = deck::read(tree)?;
    if decks.is_empty() {
        return Ok(None);
    }
    // Against a submission under way, which would bring more than is taken back.
    let _lock = (wish == Wish::Cancel).then(|| Lock::take(tree)).transpose()?;
    let mut ledger = Ledger::read(tree)?;
    let is_over = ledger.is_over(deck::total(&decks));
    if let (Some(trial), false) = (trials.first(), is_over) {
        let is_over = |trial: &u64| Ok(records::of_trial(tree, *trial)?.0.is_over(0));
        let ended: Result<Vec<bool>> = trials.iter().map(is_over).collect();
        if ended?.iter().all(|ended| *ended) {
            return Ok(Some(Done { ended: trials.to_vec(), ..Done::default() }));
        }
        let sentence =
            format!("agents share the trials of {}: trial {trial} is no job", identity.name);
        let word = wish.word();
        return Err(Fault::request(sentence)
            .hint(format!("name no trial to {word} all of it, or submit a plan without the trial"))
            .into());
    }
    let journal = Journal::read(tree)?;
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let alive = pilots::ask(tree, &journal, &ledger, &mut calls)?.ok_or_else(|| {
        Fault::scheduler("cannot tell which pilots of this sweep wait or run").hint("try again")
    })?;
    let is_held = ledger.held.is_some();
    if is_over && alive.is_empty() && !(is_held && wish == Wish::Release) {
        return Ok(None);
    }
    let is_pbs = journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs");
    let mut done = Done::default();
    for pilots in &alive {
        let n = match wish {
            Wish::Cancel => pilots.queued + pilots.running + pilots.leaving,
            Wish::Hold => pilots.queued - pilots.held,
            Wish::Release => pilots.held,
        };
        if n > 0 {
            done.pilots += n;
            done.ids.push(pilots.job.clone());
        }
    }
    // Before the scheduler is asked: a pilot that begins meanwhile is to find what holds now.
    let user = vars::user_name;
    let is = |ledger: &Ledger| (ledger.halted.is_some(), ledger.held.is_some());
    let before = is(&ledger);
    match wish {
        Wish::Cancel if !is_over => {
            let reason = format!("cancelled by {}", user());
            let halt = |agent, nonce| Entry::Halt { agent, nonce, reason: reason.clone() };
            say(tree, &mut ledger, "cancel", halt, |ledger| ledger.halted.is_some())?;
            let release = |agent, nonce| Entry::Release { agent, nonce };
            say(tree, &mut ledger, "cancel", release, |ledger| ledger.held.is_none())?;
        }
        Wish::Hold if !is_over => {
            let hold = |agent, nonce| Entry::Hold { agent, nonce, by: user() };
            say(tree, &mut ledger, "hold", hold, |ledger| ledger.held.is_some())?;
        }
        Wish::Release => {
            let release = |agent, nonce| Entry::Release { agent, nonce };
            say(tree, &mut ledger, "release", release, |ledger| ledger.held.is_none())?;
        }
        _ => {}
    }
    done.is_told = is(&ledger) != before;
    if done.ids.is_empty() {
        return Ok(Some(done));
    }
    let Answer { accepted, whole } = call(&mut calls, &done.ids, wish, is_pbs)?;
    if wish == Wish::Cancel && !accepted.is_empty() {
        let mut writer = journal::Writer::open(tree)?;
        for pilots in alive.iter().filter(|pilots| accepted.contains(&pilots.job)) {
            let (array, trials) = (pilots.array, String::new());
            let time = clock::now();
            writer.write(&journal::Entry::Cancelled { array, time, trials })?;
        }
    }
    whole.map(|()| Some(done))
}

/// Tells every agent what holds from now on, unless it does already.
fn say(
    tree: &Tree,
    ledger: &mut Ledger,
    who: &str,
    entry: impl Fn(String, String) -> Entry,
    holds: impl Fn(&Ledger) -> bool,
) -> Result<()> {
    let entry = entry(format!("{who}-{}", clock::short_token()), "1".to_owned());
    while !holds(ledger) && !ledger::append(tree, ledger, &entry, ledger::link)? {
        ledger.follow(tree)?;
    }
    Ok(())
}
