//! The entries that an agent writes to the ledger, and when what it has recorded counts.

use anyhow::Result;

use super::Membership;
use crate::base::host::disk;
use crate::sweep::tree::ledger::{self, Entry, Piece};

impl Membership {
    pub(crate) fn give_back(&mut self, units: Vec<Piece>) {
        if !units.is_empty() {
            let (agent, nonce) = (self.name.clone(), self.nonce());
            self.say(Entry::Back { agent, nonce, units, leaving: false });
        }
    }

    /// Says that it leaves as soon as what it runs has ended.
    pub(crate) fn say_leaving(&mut self) {
        let (agent, nonce, units) = (self.name.clone(), self.nonce(), Vec::new());
        self.say(Entry::Back { agent, nonce, units, leaving: true });
    }

    /// Records that everything it took has ended and nothing is left to take. Its records are on disk before.
    /// `false` if others have written something new, which it must read first.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn say_idle(&mut self) -> Result<bool> {
        if self.is_idle {
            return Ok(true);
        }
        self.save()?;
        self.deliver()?;
        let (agent, nonce) = (self.name.clone(), self.nonce());
        self.is_idle = self.append(&Entry::Idle { agent, nonce })?;
        Ok(self.is_idle)
    }

    /// Leaves. Its records are on disk before. `false` if others have written something new, which it must
    /// read first.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn leave(&mut self, reason: &str) -> Result<bool> {
        self.save()?;
        self.deliver()?;
        if self.is_fenced() {
            return Ok(true);
        }
        let (agent, nonce) = (self.name.clone(), self.nonce());
        let (reason, size) = (reason.to_owned(), self.bundle.size());
        self.append(&Entry::Leave { agent, nonce, reason, size })
    }

    /// Whether at least two other agents have renewed their leases, so that one of them may die and its work is still
    /// done. Agents that were killed do not count, although their leases are not over, and agents that are about to
    /// leave do not count either.
    pub(crate) fn is_spare(&self) -> bool {
        self.watch.well(&self.ledger) >= 2
    }

    /// The agent that does not renew its lease and holds units that this one could run, in words, and how long this
    /// one waits for it.
    pub(crate) fn missed(&self) -> Option<(String, std::time::Duration)> {
        let (name, left) = self.watch.missed(&self.ledger)?;
        Some((self.ledger.describe(&name), left))
    }

    /// Writes the lines that wait: from then on they count. An agent that was suspended first checks whether
    /// its lease has expired. If it has, the agent writes nothing.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.was_away() {
            self.look()?;
        }
        if self.is_fenced() {
            return Ok(());
        }
        let path = self.bundle.path().to_owned();
        self.bundle.flush().map_err(|e| disk::fault("write", &path, &e).into())
    }

    /// As [`Membership::flush`], and waits for the disk: on NFS other hosts read it only then.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.flush()?;
        let path = self.bundle.path().to_owned();
        self.bundle.sync().map_err(|e| disk::fault("write", &path, &e).into())
    }

    /// Writes an entry with the next [`Membership::deliver`], however many other agents are faster, unless
    /// this agent is considered dead by then.
    pub(crate) fn say(&mut self, entry: Entry) {
        self.outbox.push_back(entry);
    }

    /// Whether such an entry waits.
    pub(crate) fn is_about_to_say(&self, such: impl Fn(&Entry) -> bool) -> bool {
        self.outbox.iter().any(such)
    }

    /// Writes the entries that wait, in order. Earlier records are on their way to the disk first. They are on the
    /// disk if other agents continue from what an entry says about them.
    ///
    /// # Errors
    /// When the tree cannot be read or written; the entries wait on.
    pub(crate) fn deliver(&mut self) -> Result<()> {
        if self.is_about_to_say(|entry| matches!(entry, Entry::Won { .. })) {
            self.save()?;
        } else if !self.outbox.is_empty() {
            self.flush()?;
        }
        while let Some(entry) = self.outbox.front().cloned() {
            if self.is_fenced() {
                self.outbox.clear();
            } else if self.append(&entry)? {
                self.outbox.pop_front();
            } else {
                self.look()?;
            }
        }
        Ok(())
    }

    /// Adds an entry at the place behind all that was read; `false` if another was faster.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<bool> {
        ledger::append(&self.tree, &mut self.ledger, entry, self.link)
    }

    /// The word that distinguishes an entry of this agent from any other.
    pub(crate) fn nonce(&mut self) -> String {
        self.nonce += 1;
        self.nonce.to_string()
    }
}
