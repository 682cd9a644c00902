//! An agent whose trials the caller runs: which trial the caller gets next, and what its answers mean.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::call::{Call, Settled};
use super::{Failure, News, Options, Report, Trial};
use crate::base::cause::{Cause, Why};
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, vars};
use crate::run::pull::agent::{self, Agent};
use crate::run::pull::lifecycle::leaving::Time;
use crate::run::pull::lifecycle::{Activity, Lifecycle};
use crate::run::pull::membership::{Membership, Offer};
use crate::run::pull::places::{Place, Role, bind};
use crate::sweep::attempt::verdict::Verdict;
use crate::sweep::tree::records::{Event, Used};
use crate::sweep::tree::{Tree, deck, ledger, table};

/// What the caller is to do next.
pub(super) enum Step {
    /// Run this, and answer.
    Run(Box<Trial>),
    /// Nothing for so long.
    Wait(Duration),
    /// The agent has left.
    Gone,
}

/// An agent of one place whose trials the caller runs.
pub(super) struct FunctionAgent<T> {
    agent: Agent<Call, T>,
    nap: Duration,
    is_gone: bool,
}

impl<T: FnMut(News<'_>)> FunctionAgent<T> {
    /// Joins a sweep. While no slot is free, `go_on` waits for a moment and returns whether to continue.
    pub(super) fn join(
        tree: &Tree,
        options: Options,
        vars: &Vars,
        mut tell: T,
        mut go_on: impl FnMut(Duration) -> bool,
    ) -> Result<Option<Self>> {
        clock::notice_suspensions();
        let decks = deck::read(tree)?;
        let heads = table::heads(tree)?;
        let (Some(deck), Some(head)) = (decks.last(), heads.last()) else {
            let sentence = format!("`{}` has nothing for agents to take", tree.dir().display());
            return Err(Fault::request(sentence)
                .hint("name the plan instead of the sweep: it is laid down then")
                .into());
        };
        let Some(function) = head.run.function.clone() else {
            let sentence = format!("the trials of `{}` run a command, and no function", head.sweep);
            return Err(Fault::request(sentence)
                .hint("`hpcsweep worker --pull SWEEP` without `--serve` runs them")
                .into());
        };
        let found = bind::find(tree, deck, Some(1), vars)
            .and_then(|bounds| Ok((bounds, bind::by_name(deck, vars)?)));
        let (bounds, pool) = match found {
            Ok(found) => found,
            // If nothing is left to run, the agent needs no device.
            Err(_) if agent::is_over(tree, &decks)? => return Ok(None),
            Err(error) => return Err(error),
        };
        let offer = Offer {
            host: vars::node_name(vars),
            job: crate::cluster::scheduler::job::id(vars),
            slots: 1,
            // The caller's threads are its own affair.
            cores: Vec::new(),
            cores_per_slot: deck.cores,
            may_shrink: false,
        };
        let say = |why: &str| tell(News::Waiting(why));
        let wait = || go_on(Duration::from_millis(500));
        let joined = Membership::join(tree, offer, ledger::link, say, wait)?;
        let Some(membership) = joined else { return Ok(None) };
        tell(News::Joined(&membership.name, membership.slots));
        let call = Call::new(&membership, function, bounds.devices.first().cloned(), pool, vars);
        let lifecycle =
            Lifecycle::new(membership, Time::of(vars, options.time_left_s), options.may_go, tell);
        let agent = Agent::new(lifecycle, vec![call]);
        Ok(Some(Self { agent, nap: Duration::ZERO, is_gone: false }))
    }

    pub(super) fn name(&self) -> &str {
        &self.agent.lifecycle.membership.name
    }

    /// The report on its trials.
    pub(super) fn report(self) -> Report {
        self.agent.lifecycle.report
    }

    /// The one place that it has.
    pub(super) fn call(&mut self) -> &mut Call {
        &mut self.agent.slots[0]
    }

    /// The next step. The caller asks for it while it runs nothing.
    pub(super) fn next_step(&mut self) -> Result<Step> {
        let nap = self.turn()?;
        // A trial whose start is recorded is handed out, whatever else failed.
        Ok(match self.call().take_offer() {
            Some(trial) => Step::Run(trial),
            None if self.is_gone => Step::Gone,
            None => Step::Wait(nap),
        })
    }

    /// Keeps the agent alive while the caller runs a trial. The caller calls it now and then
    /// ([`FunctionAgent::until_due`]). `true` once the agent has left without waiting for the caller's answer.
    pub(super) fn watch(&mut self) -> Result<bool> {
        self.turn()?;
        Ok(self.is_gone)
    }

    /// One look at everything, and how long nothing is to be done then.
    fn turn(&mut self) -> Result<Duration> {
        if self.is_gone {
            return Ok(Duration::ZERO);
        }
        let turned = self.agent.turn();
        self.call().rest()?;
        match turned {
            Ok(Activity::Gone) => {
                self.is_gone = true;
                self.nap = Duration::ZERO;
            }
            Ok(Activity::Busy) => self.nap = Duration::ZERO,
            Ok(Activity::Quiet) => {
                let longest = self.agent.lifecycle.longest_nap();
                self.nap = (self.nap * 3 / 2).clamp(Duration::from_millis(5), longest);
                return Ok(self.agent.until_due(self.nap));
            }
            Err(error) => {
                self.agent.lifecycle.in_trouble(error)?;
                self.nap = Duration::from_millis(500);
            }
        }
        Ok(self.nap)
    }

    /// The ends that were recorded since the last call.
    pub(super) fn take_saved(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.call().settled)
    }

    /// The time until [`FunctionAgent::watch`] has something to do.
    pub(super) fn until_due(&self) -> Duration {
        self.agent.until_due(self.agent.lifecycle.longest_nap())
    }

    /// A signal has come.
    pub(super) fn told(&mut self, signal: Signal) {
        self.agent.lifecycle.told(signal);
    }

    /// The caller wants to go.
    pub(super) fn leave(&mut self, reason: &str) {
        self.agent.lifecycle.leave(reason.to_owned());
    }

    /// Which trial the caller runs, and its attempt.
    pub(super) fn running(&self) -> Option<(u64, u32)> {
        self.agent.slots[0].busy()
    }

    /// The caller has run it: its result, and where they were measured, the seconds it took and what it used. A caller
    /// that was interrupted takes no more, unless it was this agent that wanted an end of the trial.
    pub(super) fn answer(
        &mut self,
        result: Result<Value, Failure>,
        seconds: Option<f64>,
        used: Option<Used>,
    ) {
        let is_interrupted = result.as_ref().is_err_and(|failure| failure.is_interrupted);
        if is_interrupted && !self.call().is_asked() {
            self.leave("its function was interrupted");
        }
        self.call().answered(result, seconds, used);
    }

    /// The caller is gone.
    pub(super) fn lost(&mut self, reason: &str) -> Result<()> {
        let stops =
            self.agent.lifecycle.leaving.as_ref().is_some_and(|leaving| leaving.stop.is_some());
        if stops {
            // The signal that this agent had has ended the caller too.
            let failure = Failure { exit_code: Some(137), ..Failure::default() };
            self.agent.guard();
            self.call().answered(Err(failure), None, None);
        } else if let Some(running) = self.call().abandon() {
            let rows = self.call().metrics();
            if !rows.is_empty() {
                // Its earlier metric lines are kept.
                let (trial, attempt) = (running.trial, running.attempt);
                self.agent.lifecycle.membership.bundle.push(&Event::Metrics {
                    trial,
                    attempt,
                    rows,
                })?;
            }
            match running.role {
                Role::Unit(unit) => {
                    let why = Why::new(Cause::WorkerLost, reason);
                    let verdict = Verdict::of_fault(unit.faults, why);
                    self.agent.lifecycle.record_not_started(unit, running.attempt, verdict)?;
                }
                Role::Copy(row) => self.agent.uncopy(row.id, false),
            }
        }
        self.leave(reason);
        Ok(())
    }
}
