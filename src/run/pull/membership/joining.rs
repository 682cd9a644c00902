//! How an agent comes into the ledger, for the first time or after others have taken it for dead.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Membership, Offer, follow_decks, settings};
use crate::base::host::{clock, process};
use crate::run::pull::membership::expiry::expire;
use crate::run::pull::membership::offer::room;
use crate::run::pull::membership::watch::Watch;
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::ledger::{self, Entry, Ledger, Link};
use crate::sweep::tree::records::Who;
use crate::sweep::tree::table::{self, Head};
use crate::sweep::tree::terms::Dropped;
use crate::sweep::tree::{Tree, bundle};

/// What an agent knows of a sweep.
struct Known {
    ledger: Ledger,
    decks: Vec<Deck>,
    heads: Vec<Head>,
}

impl Membership {
    /// Joins a sweep that has a queue. Waits while no slot is free (`max_running`), and reports that once. It calls
    /// `go_on` meanwhile, and returns `None` when that returns false.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn join(
        tree: &Tree,
        offer: Offer,
        link: Link,
        mut tell: impl FnMut(&str),
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Self>> {
        let (ledger, decks, heads) = (Ledger::read(tree)?, deck::read(tree)?, table::heads(tree)?);
        let mut watch = Watch::new(Duration::from_secs_f64(settings(&decks).lease_s));
        let mut known = Known { ledger, decks, heads };
        let name = name(&offer);
        let (mut is_told, mut lost) = (false, Vec::new());
        loop {
            if let Some((slots, cores)) = known.enter(tree, &offer, &name, link)? {
                let mut own = known.begin(tree, offer, name, slots, cores, link, watch)?;
                own.decide_about(lost)?;
                return Ok(Some(own));
            }
            let Known { ledger, decks, heads } = &mut known;
            for dead in watch.look(tree, ledger, &name) {
                lost.extend(expire(tree, ledger, decks, heads, &dead, &name, link)?);
            }
            if !std::mem::replace(&mut is_told, true) {
                tell(&no_slot(&offer));
            }
            if !go_on() {
                return Ok(None);
            }
            known.ledger.follow(tree)?;
            // Others may take from a plan that has changed, and die; and it may leave more slots.
            follow_decks(tree, &mut known.decks, &mut known.heads)?;
        }
    }

    /// Joins again under another name, after its lease has expired and others have taken over its units.
    /// Returns the reason if no slot is free now; the agent then tries again.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn rejoin(&mut self) -> Result<Option<String>> {
        self.look()?;
        // No more than it had: its slots are what they are.
        let offer = Offer { slots: self.slots, ..self.offer.clone() };
        let name = name(&offer);
        let (ledger, decks) = (self.ledger.clone(), self.decks.clone());
        let mut known = Known { ledger, decks, heads: self.heads.clone() };
        let Some((slots, cores)) = known.enter(&self.tree, &offer, &name, self.link)? else {
            // The agent that holds the slots may be dead too.
            for dead in self.watch.look(&self.tree, &self.ledger, &self.name) {
                let Known { ledger, decks, heads } = &mut known;
                self.lost.extend(expire(
                    &self.tree, ledger, decks, heads, &dead, &self.name, self.link,
                )?);
            }
            return Ok(Some(no_slot(&offer)));
        };
        let watch = Watch::new(Duration::from_secs_f64(self.settings().lease_s));
        let fresh = known.begin(&self.tree, offer, name, slots, cores, self.link, watch)?;
        let (done, busy_s) = (self.done, self.busy_s);
        let lost = std::mem::take(&mut self.lost);
        *self = Self { done, busy_s, ..fresh };
        self.decide_about(lost)?;
        Ok(None)
    }
}

fn name(offer: &Offer) -> String {
    format!("{}-{}-{}", offer.host, std::process::id(), clock::short_token())
}

fn no_slot(offer: &Offer) -> String {
    format!("`max_running` leaves no slot on {} now", offer.host)
}

impl Known {
    /// Enters an agent into the ledger: its slots and cores, if there is room for it.
    fn enter(
        &mut self,
        tree: &Tree,
        offer: &Offer,
        name: &str,
        link: Link,
    ) -> Result<Option<(u32, Vec<u32>)>> {
        loop {
            let most = self.decks.last().and_then(|deck| deck.max_running);
            let (slots, cores) = room(&self.ledger, offer, most);
            if slots == 0 {
                return Ok(None);
            }
            let entry = Entry::Join {
                agent: name.to_owned(),
                nonce: "join".to_owned(),
                host: offer.host.clone(),
                slots,
                cores: cores.clone(),
                job: offer.job.clone(),
            };
            if ledger::append(tree, &mut self.ledger, &entry, link)? {
                return Ok(Some((slots, cores)));
            }
            self.ledger.follow(tree)?;
        }
    }

    /// Makes the bundle of an agent that has entered.
    #[expect(clippy::too_many_arguments, reason = "what it has entered with, once")]
    fn begin(
        self,
        tree: &Tree,
        offer: Offer,
        name: String,
        slots: u32,
        cores: Vec<u32>,
        link: Link,
        watch: Watch,
    ) -> Result<Membership> {
        let Self { ledger, decks, heads } = self;
        let pid = std::process::id();
        let who = Who {
            agent: name.clone(),
            time: clock::now(),
            host: offer.host.clone(),
            pid,
            started: process::started(pid.cast_signed()),
            job: offer.job.clone(),
            slots,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let bundle = bundle::create(tree, &who)?;
        let (now, (requests, memory)) = (Instant::now(), super::assigned(&decks));
        Ok(Membership {
            tree: tree.clone(),
            ledger,
            decks,
            heads,
            name,
            bundle,
            slots,
            cores,
            done: 0,
            busy_s: 0.0,
            offer,
            link,
            nonce: 0,
            requests,
            memory,
            code: None,
            outbox: VecDeque::new(),
            ready: VecDeque::new(),
            taken: VecDeque::new(),
            dropped: Dropped::default(),
            too_long: BTreeSet::new(),
            lost: Vec::new(),
            watch,
            began: now,
            last_beat: now,
            last_look: now,
            is_idle: false,
        })
    }
}
