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
        let start = (step as usize).saturating_mul(self.size).min(self.indices.len());
        let end = start.saturating_add(self.size).min(self.indices.len());
        &self.indices[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_may_be_short() {
        let batches = Batches::new((0..7).collect(), 3, 3);
        let all: Vec<&[u64]> = (0..3).map(|step| batches.batch(step)).collect();
        assert_eq!(all, [&[0, 1, 2][..], &[3, 4, 5], &[6]]);
        assert_eq!(batches.batch(3), &[] as &[u64]);
        assert_eq!(batches.batch(u64::MAX), &[] as &[u64]);
    }
}
