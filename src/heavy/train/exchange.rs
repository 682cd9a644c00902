//! Small exchanges of numbers among the ranks. All ranks decide from the same bits.

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::means::Means;

/// Everyone's numbers in rank order, as many from each.
///
/// # Errors
/// When a rank is gone.
pub(crate) fn gather(peers: &mut dyn Peers, mine: &[f64]) -> Result<Vec<f64>, Fault> {
    let bytes: Vec<u8> = mine.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut gathered = vec![0; bytes.len() * peers.size() as usize];
    peers.all_gather(&bytes, &mut gathered)?;
    let (numbers, _) = gathered.as_chunks::<8>();
    Ok(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}

/// Everyone's count in rank order; exact below 2^53.
///
/// # Errors
/// When a rank is gone.
pub(crate) fn counts(peers: &mut dyn Peers, mine: u64) -> Result<Vec<u64>, Fault> {
    Ok(gather(peers, &[mine as f64])?.into_iter().map(|n| n as u64).collect())
}

/// Everyone's sums of the epoch in rank order.
///
/// # Errors
/// When a rank is gone.
pub(crate) fn means(peers: &mut dyn Peers, mine: &Means) -> Result<Vec<Means>, Fault> {
    let numbers = gather(peers, &mine.to_numbers())?;
    let (ranks, _) = numbers.as_chunks::<3>();
    Ok(ranks.iter().map(|numbers| Means::from_numbers(*numbers)).collect())
}

/// What rank 0 has, on every rank: bytes, nothing, or its fault.
///
/// # Errors
/// When a rank is gone. The inner fault is rank 0's own, the same on every rank.
pub(crate) fn from_first(
    peers: &mut dyn Peers,
    own: Option<Result<Option<Vec<u8>>, Fault>>,
) -> Result<Result<Option<Vec<u8>>, Fault>, Fault> {
    const NOTHING: u8 = 0;
    const BYTES: u8 = 1;
    const FAULT: u8 = 2;
    let (what, mut bytes) = match &own {
        Some(Ok(Some(bytes))) => (BYTES, bytes.clone()),
        Some(Err(fault)) => {
            let parts = (&fault.sentence, &fault.place, &fault.hint);
            (FAULT, serde_json::to_vec(&parts).unwrap_or_default())
        }
        Some(Ok(None)) | None => (NOTHING, Vec::new()),
    };
    let mut head = [0; 9];
    head[0] = what;
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    peers.broadcast(0, &mut head)?;
    let len = <[u8; 8]>::try_from(&head[1..]).map_or(0, u64::from_le_bytes);
    bytes.resize(len as usize, 0);
    peers.broadcast(0, &mut bytes)?;
    Ok(match (own, head[0]) {
        (Some(own), _) => own,
        (None, BYTES) => Ok(Some(bytes)),
        (None, FAULT) => {
            type Parts = (String, Option<String>, Option<String>);
            let (sentence, place, hint): Parts = serde_json::from_slice(&bytes).unwrap_or_default();
            Err(Fault { place, hint, ..Fault::machine(sentence) })
        }
        (None, _) => Ok(None),
    })
}

/// A loss that is not a finite number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    Nan,
    Infinite,
}

impl Odd {
    /// The kind of a number that is not finite; `None` for others.
    pub(crate) fn classify(number: f64) -> Option<Self> {
        match number {
            number if number.is_nan() => Some(Self::Nan),
            number if number.is_infinite() => Some(Self::Infinite),
            _ => None,
        }
    }
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nan => "NaN",
            Self::Infinite => "infinite",
        })
    }
}

/// A rank's message in each step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Word {
    /// Samples it takes in this step; 0 if it has none left.
    pub(crate) samples: u64,
    /// Whether it was asked to end.
    pub(crate) is_asked: bool,
    /// Whether its losses are not finite, and how.
    pub(crate) odd: Option<Odd>,
}

/// The messages of all ranks in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Update {
    /// Samples of all ranks.
    pub(crate) samples: u64,
    /// Whether any was asked to end: then all do, here.
    pub(crate) is_asked: bool,
    /// The first rank with an odd loss.
    pub(crate) odd: Option<(usize, Odd)>,
}

impl Word {
    /// Sends this rank's message and reads the others'.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn exchange(self, peers: &mut dyn Peers) -> Result<Update, Fault> {
        let odd = match self.odd {
            None => 0.0,
            Some(Odd::Nan) => 1.0,
            Some(Odd::Infinite) => 2.0,
        };
        let mine = [self.samples as f64, f64::from(u8::from(self.is_asked)), odd];
        let numbers = gather(peers, &mine)?;
        let (ranks, _) = numbers.as_chunks::<3>();
        let odd = ranks
            .iter()
            .position(|word| word[2] > 0.0)
            .map(|rank| (rank, if ranks[rank][2] > 1.0 { Odd::Infinite } else { Odd::Nan }));
        Ok(Update {
            samples: ranks.iter().map(|word| word[0] as u64).sum(),
            is_asked: ranks.iter().any(|word| word[1] > 0.0),
            odd,
        })
    }
}

#[cfg(test)]
mod tests {
    use hpcsweep::run::sync::peers::Alone;

    use super::*;

    #[test]
    fn alone_one_hears_oneself() {
        let mut word = Word { samples: 7, is_asked: false, odd: None };
        let heard = Update { samples: 7, is_asked: false, odd: None };
        assert_eq!(word.exchange(&mut Alone), Ok(heard));
        for number in [f64::NAN, f64::NEG_INFINITY] {
            (word.is_asked, word.odd) = (true, Odd::classify(number));
            let heard = Update { samples: 7, is_asked: true, odd: word.odd.map(|odd| (0, odd)) };
            assert_eq!(word.exchange(&mut Alone), Ok(heard));
        }
        assert_eq!(Odd::classify(f64::MAX), None);
        let means = Means { loss_sum: 0.1, samples: 3, right: 2 };
        assert_eq!(super::means(&mut Alone, &means), Ok(vec![means]));
        assert_eq!(counts(&mut Alone, 9), Ok(vec![9]));
    }
}
