//! An epoch cut into batches.

/// The batches of one rank in one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    indices: Vec<u64>,
    size: usize,
    steps: u64,
}

impl Batches {
    /// Cuts `indices` into `steps` batches of `size`.
    pub(super) fn new(indices: Vec<u64>, size: u64, steps: u64) -> Self {
        Self { indices, size: size.max(1) as usize, steps }
    }

    /// How many there are; the same number on every rank.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The samples of a step, from 0. The last one may be short or empty; those behind it are empty.
    pub fn batch(&self, step: u64) -> &[u64] {
        if step >= self.steps {
            return &[];
        }
        let first = (step as usize).saturating_mul(self.size).min(self.indices.len());
        let last = first.saturating_add(self.size).min(self.indices.len());
        &self.indices[first..last]
    }

    /// The batches from a step on: how a resumed run goes on.
    pub fn from(&self, step: u64) -> impl Iterator<Item = &[u64]> {
        (step..self.steps).map(|step| self.batch(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_may_be_short() {
        let batches = Batches::new((0..7).collect(), 3, 3);
        let all: Vec<&[u64]> = batches.from(0).collect();
        assert_eq!(all, [&[0, 1, 2][..], &[3, 4, 5], &[6]]);
        assert_eq!(batches.batch(3), &[] as &[u64]);
        assert_eq!(batches.batch(u64::MAX), &[] as &[u64]);
    }

    #[test]
    fn a_resumed_epoch_goes_on_where_it_was() {
        let batches = Batches::new((0..10).collect(), 2, 5);
        let whole: Vec<&[u64]> = batches.from(0).collect();
        for step in 0..=5 {
            let before: Vec<&[u64]> = (0..step).map(|s| batches.batch(s)).collect();
            let joined: Vec<&[u64]> = before.into_iter().chain(batches.from(step)).collect();
            assert_eq!(joined, whole);
        }
    }
}
