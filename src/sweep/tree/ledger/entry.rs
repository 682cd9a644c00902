//! The entries of the ledger.

use serde::{Deserialize, Serialize};

use crate::sweep::tree::numbers;

/// Units next to each other that are in the same state; or one unit on its way.
///
/// A unit is a chain of the sweep, or what was left of it: its trials run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Number of the first unit, from 0.
    pub(crate) from: u64,
    /// How many units there are, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) count: u64,
    /// Trials of the unit that have ended for good.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) link: u32,
    /// Attempts of the trial after those that have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) tries: u32,
    /// How often the machine or the agent failed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) faults: u32,
    /// How many allocations in a row have cut it off without a checkpoint written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cuts: u32,
    /// Those of them that were made before `[retry]` repeated it the last time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) spent: u32,
    /// How often `[retry]` has repeated it, as far as that counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) repeats: u32,
    /// How often its walltime has grown by that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) grown: u32,
    /// Whether nothing else may run beside it in its agent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) alone: bool,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_one(n: &u64) -> bool {
    *n == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(is: &bool) -> bool {
    !is
}

impl Piece {
    /// Units that no agent has begun.
    pub(crate) fn untouched(from: u64, count: u64) -> Self {
        let (tries, faults, cuts, alone) = (0, 0, 0, false);
        let (spent, repeats, grown) = (0, 0, 0);
        Self { from, count, link: 0, tries, faults, cuts, spent, repeats, grown, alone }
    }

    /// Whether no agent has begun it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.link == 0 && self.cuts == 0 && self.is_new()
    }

    /// Whether none of its units has failed anywhere.
    pub(crate) fn is_new(&self) -> bool {
        self.tries == 0 && self.faults == 0
    }

    /// Whether a unit is in it.
    pub(crate) fn has(&self, unit: u64) -> bool {
        unit >= self.from && unit - self.from < self.count
    }
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Entry {
    /// An agent joins, and may take units from now on.
    Join {
        /// The name of the new agent.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The host on which it runs.
        host: String,
        /// Trials it runs at once.
        slots: u32,
        /// The cores it binds its slots to; empty where it does not.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cores: Vec<u32>,
        /// The scheduler's id of its job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
    },
    /// An agent takes units, which no other agent has then.
    Take {
        /// The name of the agent that takes them.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The units that it takes.
        units: Vec<Piece>,
        /// Trials it has ended so far: how fast it is.
        done: u64,
        /// Seconds that its slots were busy with them.
        busy_s: f64,
    },
    /// It gives units back.
    Back {
        /// The name of the agent that had them.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The units that it gives back.
        units: Vec<Piece>,
        /// Whether it leaves as soon as what it runs has ended, which it has asked for.
        #[serde(default, skip_serializing_if = "is_false")]
        leaving: bool,
    },
    /// All it took has ended, and it found nothing to take.
    Idle {
        /// The name of the idle agent.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
    },
    /// It leaves, and holds nothing.
    Leave {
        /// The name of the agent that leaves.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// Why, in words; empty when there was nothing left to do.
        reason: String,
        /// Bytes of its bundle.
        #[serde(default)]
        size: u64,
    },
    /// An agent's lease has expired.
    Expire {
        /// The agent whose lease has expired.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The agent that writes this.
        by: String,
        /// Bytes of its bundle that count.
        size: u64,
        /// The units that it held and had not ended by then.
        units: Vec<Piece>,
        /// Trials that it was about to copy, and had not begun.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unbegun: Vec<u64>,
    },
    /// An idle agent runs a copy of a trial that another has run for too long.
    Copy {
        /// The agent that runs the copy.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The agent that runs the trial already.
        of: String,
        /// Number of the trial that is copied.
        trial: u64,
        /// Bytes of the other's bundle: up to there it had not ended.
        size: u64,
        /// How many entries the other had read when it began.
        #[serde(default)]
        since: u64,
    },
    /// The end of a trial with a copy: the first such entry decides.
    Won {
        /// The agent whose end of the trial counts.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// Number of the trial that was copied.
        trial: u64,
        /// The number of that agent's attempt, from 1.
        attempt: u32,
        /// How many entries its agent had read when the attempt began.
        #[serde(default)]
        begun: u64,
    },
    /// The copy has failed or was given up.
    Uncopy {
        /// Who ran the copy.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// Number of the trial that was copied.
        trial: u64,
        /// Whether it never began: the other run stands alone, as before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unbegun: bool,
    },
    /// No agent may take units any more.
    Halt {
        /// The process that writes this.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// Why, in words for all agents.
        reason: String,
    },
    /// No agent may take units until a user releases the sweep.
    Hold {
        /// The process that writes this.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// The user who holds it.
        by: String,
    },
    /// A held sweep continues.
    Release {
        /// The process that writes this.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
    },
    /// These units are no longer in the plan: no agent takes them.
    Drop {
        /// The process that writes this.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
        /// Units that no agent held.
        units: Vec<Piece>,
    },
    /// A halted sweep continues.
    Resume {
        /// The process that writes this.
        agent: String,
        /// Distinguishes this entry from any other.
        nonce: String,
    },
}

impl Entry {
    /// Whether its numbers can be those of a sweep.
    pub fn is_sound(&self) -> bool {
        let units = match self {
            Self::Take { units, .. }
            | Self::Back { units, .. }
            | Self::Expire { units, .. }
            | Self::Drop { units, .. } => units.as_slice(),
            _ => &[],
        };
        units.iter().all(|piece| piece.from < numbers::END && piece.count < numbers::END)
    }

    /// Its writer, and the word that distinguishes it from any other of this agent.
    pub(crate) fn signature(&self) -> (&str, &str) {
        match self {
            Self::Expire { by, nonce, .. } => (by, nonce),
            Self::Join { agent, nonce, .. }
            | Self::Take { agent, nonce, .. }
            | Self::Back { agent, nonce, .. }
            | Self::Idle { agent, nonce }
            | Self::Leave { agent, nonce, .. }
            | Self::Copy { agent, nonce, .. }
            | Self::Won { agent, nonce, .. }
            | Self::Uncopy { agent, nonce, .. }
            | Self::Halt { agent, nonce, .. }
            | Self::Drop { agent, nonce, .. }
            | Self::Hold { agent, nonce, .. }
            | Self::Release { agent, nonce }
            | Self::Resume { agent, nonce } => (agent, nonce),
        }
    }
}
