//! Cancelling, holding and releasing a sweep that agents share. Its pilots are jobs of a scheduler; agents that
//! somebody has started by hand hear of it by the ledger. No trial is anybody's but the agents'.

use std::time::Duration;

use anyhow::Result;

use super::control::{Done, Wish, call};
use crate::fault::Fault;
use crate::host::{Vars, clock, vars};
use crate::scheduler::calls::Calls;
use crate::site::Site;
use crate::status::pilots;
use crate::tree::journal::{self, Journal};
use crate::tree::ledger::{self, Entry, Ledger};
use crate::tree::lock::Lock;
use crate::tree::{Identity, Tree, deck};

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
        let sentence =
            format!("agents share the trials of {}: trial {trial} is no job", identity.name);
        return Err(Fault::request(sentence)
            .hint("name no trial to cancel all of it, or submit a plan without the trial")
            .into());
    }
    let journal = Journal::read(tree)?;
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let alive = pilots::ask(tree, &journal, &mut calls)?.ok_or_else(|| {
        Fault::scheduler("cannot tell which pilots of this sweep wait or run").hint("try again")
    })?;
    if is_over && alive.is_empty() {
        return Ok(None);
    }
    let is_pbs = journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs");
    let mut done = Done::default();
    for pilots in &alive {
        let n = match wish {
            Wish::Cancel => pilots.queued + pilots.running,
            Wish::Hold => pilots.queued - pilots.held,
            Wish::Release => pilots.held,
        };
        if n > 0 {
            done.pilots += n;
            done.ids.push(pilots.job.clone());
        }
    }
    if wish == Wish::Cancel && !is_over && ledger.halted.is_none() {
        halt(tree, &mut ledger)?;
        done.is_halted = true;
    }
    if done.ids.is_empty() {
        return Ok(Some(done));
    }
    call(&mut calls, &done.ids, wish, is_pbs)?;
    if wish == Wish::Cancel {
        let mut writer = journal::Writer::open(tree)?;
        for pilots in &alive {
            let (array, trials) = (pilots.array, String::new());
            let time = clock::now();
            writer.write(&journal::Entry::Cancelled { array, time, trials })?;
        }
    }
    Ok(Some(done))
}

/// Tells every agent to take no more.
fn halt(tree: &Tree, ledger: &mut Ledger) -> Result<()> {
    let agent = format!("cancel-{}", clock::short_token());
    let reason = format!("cancelled by {}", vars::user_name());
    let entry = Entry::Halt { agent, nonce: "1".to_owned(), reason };
    while ledger.halted.is_none() && !ledger::append(tree, ledger, &entry, ledger::link)? {
        ledger.follow(tree)?;
    }
    Ok(())
}
