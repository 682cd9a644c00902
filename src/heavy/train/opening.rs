//! The first exchange of the ranks: which ranks exist, and whether all have the same run.
//!
//! One gather of a card a rank. All ranks judge the same cards in the same order, so that all end with the
//! same sentence, and no rank waits for one that has given up.

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::job::Job;
use serde::{Deserialize, Serialize};

/// Bytes of a card on its way, padded; the same in every version.
const CARD: usize = 1024;

/// The data that a rank shows to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// Version of this program.
    pub(crate) version: String,
    /// As the launcher numbers it.
    pub(crate) rank: u32,
    /// How many the launcher started.
    pub(crate) world: u32,
    /// The name of its node, at most 255 bytes.
    pub(crate) host: String,
    /// BLAKE3 of the configuration, trial and attempt.
    pub(crate) agreed: String,
    /// The GPU it will use.
    pub(crate) gpu: Option<String>,
}

impl Card {
    /// The card of this rank.
    ///
    /// # Errors
    /// When the configuration cannot be written as JSON (our bug).
    pub(crate) fn for_job(job: &Job, gpu: Option<String>) -> Result<Self, Fault> {
        let text = serde_json::to_vec(&(&job.config, job.trial, job.attempt, job.smoke))
            .map_err(|e| Fault::new(hpcsweep::base::fault::Kind::Bug, e.to_string()))?;
        let mut host = job.host.clone();
        host.truncate(host.floor_char_boundary(255));
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: job.rank,
            world: job.world,
            host,
            agreed: blake3::hash(&text).to_hex().to_string(),
            gpu,
        })
    }

    fn name(&self) -> String {
        format!("rank {} on `{}`", self.rank, self.host)
    }
}

/// Gathers the cards of all ranks, in MPI's order.
///
/// # Errors
/// When a rank is gone.
pub(crate) fn gather(peers: &mut dyn Peers, own: &Card) -> Result<Vec<Option<Card>>, Fault> {
    let mut mine = serde_json::to_vec(own).unwrap_or_default();
    mine.resize(CARD, b' ');
    let mut cards = vec![0; CARD * peers.size() as usize];
    peers.all_gather(&mine, &mut cards)?;
    Ok(cards.chunks(CARD).map(|card| serde_json::from_slice(card).ok()).collect())
}

/// The checks of the cards: ranks 0 to W-1 once each, one version, one configuration, and no GPU used twice
/// unless `share_gpu` allows it.
///
/// # Errors
/// The first thing that is wrong, in the same words on every rank.
pub(crate) fn agree(cards: &[Option<Card>], share_gpu: bool) -> Result<(), Fault> {
    let read: Vec<&Card> = cards.iter().flatten().collect();
    if read.len() < cards.len() {
        return Err(Fault::machine("the ranks run different programs")
            .hint("one hpcsweep must be installed on all nodes"));
    }
    let Some(first) = read.first() else { return Ok(()) };
    for (place, card) in read.iter().enumerate() {
        if card.version != first.version {
            return Err(Fault::machine(format!(
                "{} runs hpcsweep-worker {}, but {} runs {}",
                card.name(),
                card.version,
                first.name(),
                first.version
            ))
            .hint("one hpcsweep must be installed on all nodes"));
        }
        if let Some(twin) = read[..place].iter().find(|other| other.rank == card.rank) {
            return Err(Fault::machine(format!(
                "rank {} is there twice: on `{}` and on `{}`",
                card.rank, twin.host, card.host
            ))
            .hint(LEFT_OVER));
        }
        if card.world != first.world || card.world as usize != read.len() {
            return Err(Fault::machine(format!(
                "{} was told of {} ranks, but there are {}",
                card.name(),
                card.world,
                read.len()
            ))
            .hint(LEFT_OVER));
        }
        if card.rank as usize != place {
            return Err(Fault::machine(format!(
                "the launcher calls {} what MPI calls rank {place}",
                card.name()
            ))
            .hint(LEFT_OVER));
        }
        if card.agreed != first.agreed {
            return Err(Fault::request(format!(
                "{} has another configuration than {}",
                card.name(),
                first.name()
            ))
            .hint("was the plan changed while the ranks started? run the trial again"));
        }
    }
    for (place, card) in read.iter().enumerate() {
        let Some(gpu) = &card.gpu else { continue };
        if let Some(twin) = read[..place]
            .iter()
            .find(|other| other.host == card.host && other.gpu.as_ref() == Some(gpu))
            && !share_gpu
        {
            return Err(Fault::request(format!(
                "rank {} and rank {} on `{}` would share the GPU `{gpu}`",
                twin.rank, card.rank, card.host
            ))
            .hint("ask for one GPU a rank, or set `share_gpu = true` in [train]"));
        }
    }
    Ok(())
}

const LEFT_OVER: &str =
    "variables of another launcher are left over: run `hpcsweep worker --explain`";

#[cfg(test)]
mod tests {
    use super::*;

    fn card(rank: u32, host: &str) -> Card {
        Card {
            version: "1.0.0".into(),
            rank,
            world: 2,
            host: host.into(),
            agreed: "aa".into(),
            gpu: None,
        }
    }

    fn said(change: impl FnOnce(&mut Card), share_gpu: bool) -> Option<String> {
        let mut second = card(1, "n2");
        change(&mut second);
        let mut first = card(0, "n1");
        first.gpu = Some("GPU-a".into());
        agree(&[Some(first), Some(second)], share_gpu).err().map(|f| f.sentence)
    }

    #[test]
    fn each_slip_is_told_with_rank_and_host() {
        assert_eq!(said(|_| (), false), None);
        type Change = fn(&mut Card);
        let cases: [(Change, &str); 6] = [
            (
                |c| c.version = "2.0.0".into(),
                "rank 1 on `n2` runs hpcsweep-worker 2.0.0, but rank 0 on `n1` runs 1.0.0",
            ),
            (|c| c.rank = 0, "rank 0 is there twice: on `n1` and on `n2`"),
            (|c| c.rank = 7, "the launcher calls rank 7 on `n2` what MPI calls rank 1"),
            (|c| c.world = 4, "rank 1 on `n2` was told of 4 ranks, but there are 2"),
            (
                |c| c.agreed = "bb".into(),
                "rank 1 on `n2` has another configuration than rank 0 on `n1`",
            ),
            (
                |c| (c.host, c.gpu) = ("n1".into(), Some("GPU-a".into())),
                "rank 0 and rank 1 on `n1` would share the GPU `GPU-a`",
            ),
        ];
        for (change, sentence) in cases {
            assert_eq!(said(change, false).as_deref(), Some(sentence));
        }
    }

    #[test]
    fn a_gpu_is_shared_when_allowed_and_its_name_on_another_node_is_another() {
        assert_eq!(said(|c| c.gpu = Some("GPU-a".into()), false), None);
        let shared = |c: &mut Card| (c.host, c.gpu) = ("n1".into(), Some("GPU-a".into()));
        assert_eq!(said(shared, true), None);
    }

    #[test]
    fn what_is_no_card_is_another_program() {
        let fault = agree(&[Some(card(0, "n1")), None], false).unwrap_err();
        assert_eq!(fault.sentence, "the ranks run different programs");
    }
}
