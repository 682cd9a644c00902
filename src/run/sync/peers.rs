//! What ranks can do together. Every call is collective: all ranks make the same calls in the same
//! order, with the same sizes.

use crate::base::fault::Fault;

/// The ranks of one trial.
pub trait Peers {
    /// This one, from 0.
    fn rank(&self) -> u32;

    /// How many there are.
    fn size(&self) -> u32;

    /// Everyone's bytes in rank order: `all` is `size` times as long as `mine`, and `mine` as long on
    /// every rank.
    ///
    /// # Errors
    /// When a rank is gone.
    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault>;

    /// Everyone's bytes in rank order, `lens[r]` of rank r.
    ///
    /// # Errors
    /// When a rank is gone.
    fn all_gather_pieces(
        &mut self,
        mine: &[u8],
        lens: &[usize],
        all: &mut [u8],
    ) -> Result<(), Fault>;

    /// The bytes of rank `root` on every rank.
    ///
    /// # Errors
    /// When a rank is gone.
    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Fault>;
}

/// The only rank of a trial: each call returns its own bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Peers for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
        all.copy_from_slice(mine);
        Ok(())
    }

    fn all_gather_pieces(&mut self, mine: &[u8], _: &[usize], all: &mut [u8]) -> Result<(), Fault> {
        all.copy_from_slice(mine);
        Ok(())
    }

    fn broadcast(&mut self, _: u32, _: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }
}
