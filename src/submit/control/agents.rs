//! Cancelling, holding and releasing a sweep that agents share. Its pilots are jobs of a scheduler; agents that
//! were started by hand read the order in the ledger. Only the agents have the trials.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, vars};
use crate::cluster::scheduler::order::{self, Order};
use crate::plan::site::Site;
use crate::submit::arrays::reconcile::settle_all;
use crate::submit::control::done::Done;
use crate::sweep::status::pilots;
use crate::sweep::tree::journal::{self, Journal};
use crate::sweep::tree::ledger::{self, CANCELLED, Entry, Ledger};
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::{Identity, Tree, deck, records, table};

/// Does it for the agents of a sweep; `None` where agents have none of it.
///
/// # Errors
/// When single trials are named, or the scheduler refuses or does not answer.
pub(crate) fn control(
    tree: &Tree,
    identity: &Identity,
    trials: &[u64],
    order: Order,
    site: &Site,
    environment: &Vars,
    tell: &mut impl FnMut(&str),
) -> Result<Option<Done>> {
    let decks = deck::read(tree)?;
    if decks.is_empty() {
        return Ok(None);
    }
    // Locks out a submission under way, which would add jobs that are not cancelled.
    let _lock = (order == Order::Cancel).then(|| Lock::take(tree)).transpose()?;
    let mut ledger = Ledger::read(tree)?;
    let is_over = ledger.is_over(deck::total(&decks));
    if let (Some(trial), false) = (trials.first(), is_over) {
        let last = trials.iter().max().unwrap_or(trial);
        table::find(tree, *last)?;
        let is_over = |trial: &u64| Ok(records::of_trial(tree, *trial)?.0.is_over(0));
        let ended: Result<Vec<bool>> = trials.iter().map(is_over).collect();
        if ended?.iter().all(|ended| *ended) {
            return Ok(Some(Done { ended: trials.to_vec(), ..Done::default() }));
        }
        let sentence =
            format!("agents share the trials of {}: trial {trial} is not a job", identity.name);
        let word = order.word();
        return Err(Fault::request(sentence)
            .hint(format!("name no trial to {word} all of it, or submit a plan without the trial"))
            .into());
    }
    let mut calls = Journal::read(tree)?.calls(environment, site);
    if order == Order::Cancel {
        settle_all(tree, site, &mut calls, false, tell)?;
    }
    let journal = Journal::read(tree)?;
    let alive = pilots::ask(tree, &journal, &ledger, &mut calls)?.ok_or_else(|| {
        Fault::scheduler("cannot tell which pilots of this sweep wait or run").hint("try again")
    })?;
    let is_held = ledger.held.is_some();
    if is_over && alive.is_empty() && !(is_held && order == Order::Release) {
        return Ok(None);
    }
    let mut done = Done::default();
    for pilots in &alive {
        let n = match order {
            Order::Cancel => pilots.queued + pilots.running + pilots.leaving,
            Order::Hold => pilots.queued - pilots.held,
            Order::Release => pilots.held,
        };
        if n > 0 {
            done.pilots += n;
            done.ids.push(pilots.job.clone());
        }
    }
    // Before the scheduler is asked: a pilot that begins meanwhile is to find what holds now.
    done.is_told = note(tree, &mut ledger, order, is_over)?;
    if done.ids.is_empty() {
        return Ok(Some(done));
    }
    let scheduler = journal.scheduler();
    let accepted = order::give(&*scheduler, &mut calls, order, &done.ids)?;
    if order == Order::Cancel && !accepted.ids.is_empty() {
        let mut writer = journal::Writer::open(tree)?;
        for pilots in alive.iter().filter(|pilots| accepted.ids.contains(&pilots.job)) {
            let (array, trials) = (pilots.array, String::new());
            let time = clock::now();
            writer.write(&journal::Entry::Cancelled { array, time, trials })?;
        }
    }
    accepted.whole?;
    Ok(Some(done))
}

/// Writes down in the ledger what holds from now on. Whether it is another thing than before.
fn note(tree: &Tree, ledger: &mut Ledger, order: Order, is_over: bool) -> Result<bool> {
    let user = vars::user_name;
    let is = |ledger: &Ledger| (ledger.halted.is_some(), ledger.held.is_some());
    let before = is(ledger);
    match order {
        Order::Cancel if !is_over => {
            let reason = format!("{CANCELLED}{}", user());
            let halt = |agent, nonce| Entry::Halt { agent, nonce, reason: reason.clone() };
            say(tree, ledger, "cancel", halt, |ledger| ledger.halted.is_some())?;
            let release = |agent, nonce| Entry::Release { agent, nonce };
            say(tree, ledger, "cancel", release, |ledger| ledger.held.is_none())?;
        }
        Order::Hold if !is_over => {
            let hold = |agent, nonce| Entry::Hold { agent, nonce, by: user() };
            say(tree, ledger, "hold", hold, |ledger| ledger.held.is_some())?;
        }
        Order::Release => {
            let release = |agent, nonce| Entry::Release { agent, nonce };
            say(tree, ledger, "release", release, |ledger| ledger.held.is_none())?;
        }
        _ => {}
    }
    Ok(is(ledger) != before)
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
