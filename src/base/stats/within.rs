//! The variance within combinations of levels that were observed more than once, without what blocks have in common.

use std::collections::HashMap;

use super::least_squares::{Factor, Levels};
use super::sample::mean;

/// The most blocks whose effects are found.
const MOST_BLOCKS: usize = 600;

/// Observations by their combination of levels.
pub(super) struct Cells {
    /// The combination of each observation, from 0, in the order of their first ones.
    pub(super) of: Vec<usize>,
    /// How many observations each combination has.
    pub(super) sizes: Vec<usize>,
    blocks: Option<Blocks>,
}

/// What observations were made alike, such as with the same seed, by a model of the combinations and of them.
struct Blocks {
    of: Vec<usize>,
    /// Of each combination, the blocks that have it.
    in_cells: Vec<Vec<usize>>,
    factor: Factor,
}

impl Cells {
    /// The combinations of these levels. Blocks count if each has each combination at most once, and if they are linked: then what differs
    /// between two is known from combinations that several have.
    pub(super) fn from_levels(levels: &Levels, blocks: &[usize]) -> Self {
        let mut cell_numbers: HashMap<&[usize], usize> = HashMap::new();
        let mut cell_of_row = Vec::with_capacity(levels.len());
        let mut sizes = Vec::new();
        for level in levels {
            let next_number = cell_numbers.len();
            let cell = *cell_numbers.entry(level).or_insert(next_number);
            if cell == sizes.len() {
                sizes.push(0);
            }
            sizes[cell] += 1;
            cell_of_row.push(cell);
        }
        let blocks = Blocks::from_cells(&cell_of_row, &sizes, blocks);
        Self { of: cell_of_row, sizes, blocks }
    }

    /// The blocks that count, of each observation; empty where none do.
    pub(super) fn blocks(&self) -> &[usize] {
        self.blocks.as_ref().map_or(&[], |blocks| &blocks.of)
    }

    /// How many degrees of freedom the differences of blocks have.
    pub(super) fn between_blocks(&self) -> usize {
        self.blocks.as_ref().map_or(0, |blocks| blocks.factor.rank())
    }

    /// The degrees of freedom within combinations and blocks.
    pub(super) fn freedom(&self) -> usize {
        self.of.len() - self.sizes.len() - self.between_blocks()
    }

    /// Whether each combination has as many observations as any other.
    pub(super) fn are_equal(&self) -> bool {
        self.sizes.iter().all(|size| *size == self.sizes[0])
    }

    /// Whether each block that counts has each combination.
    pub(super) fn are_blocks_whole(&self) -> bool {
        self.blocks.as_ref().is_none_or(|blocks| {
            blocks.in_cells.iter().all(|cell| cell.len() == blocks.factor.rank() + 1)
        })
    }

    fn means(&self, ys: &[f64]) -> Vec<f64> {
        let mut means = vec![0.0; self.sizes.len()];
        self.of.iter().zip(ys).for_each(|(cell, y)| means[*cell] += y);
        means.iter_mut().zip(&self.sizes).for_each(|(mean, size)| *mean /= *size as f64);
        means
    }

    /// The sum of squares of blocks beyond combinations.
    pub(super) fn in_common(&self, ys: &[f64]) -> f64 {
        let both = self.fitted(ys).into_iter().zip(self.means_of_each(ys));
        both.map(|(fitted, mean)| (fitted - mean).powi(2)).sum()
    }

    /// The mean of the combination of each observation.
    pub(super) fn means_of_each(&self, ys: &[f64]) -> Vec<f64> {
        let means = self.means(ys);
        self.of.iter().map(|cell| means[*cell]).collect()
    }

    /// What is expected of each observation by its combination and its block.
    pub(super) fn fitted(&self, ys: &[f64]) -> Vec<f64> {
        let Some(blocks) = &self.blocks else { return self.means_of_each(ys) };
        let means = self.means(ys);
        let adds = blocks.factor.coefficients(&blocks.sums(self, ys, &means));
        let in_cells: Vec<f64> = blocks
            .in_cells
            .iter()
            .map(|cell| mean(&cell.iter().map(|b| adds[*b]).collect::<Vec<_>>()))
            .collect();
        let corrections =
            self.of.iter().zip(&blocks.of).map(|(cell, b)| adds[*b] - in_cells[*cell]);
        self.of
            .iter()
            .zip(corrections)
            .map(|(cell, correction)| means[*cell] + correction)
            .collect()
    }
}

impl Blocks {
    fn from_cells(cells: &[usize], sizes: &[usize], blocks: &[usize]) -> Option<Self> {
        let many = blocks.iter().max()? + 1;
        if many == 1 || many > MOST_BLOCKS {
            return None;
        }
        let mut in_cells: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
        for (cell, block) in cells.iter().zip(blocks) {
            if in_cells[*cell].contains(block) {
                return None;
            }
            in_cells[*cell].push(*block);
        }
        // Products of the blocks' columns, each less its mean in a combination.
        let mut products = vec![vec![0.0; many]; many];
        for own in &in_cells {
            for a in own {
                products[*a][*a] += 1.0;
                own.iter().for_each(|b| products[*a][*b] -= 1.0 / own.len() as f64);
            }
        }
        let factor = Factor::from_products(&products, 0..many);
        let is_linked = factor.rank() + 1 == many && cells.len() > sizes.len() + factor.rank();
        is_linked.then(|| Self { of: blocks.to_vec(), in_cells, factor })
    }

    /// Of each block, the sum of what its observations are beyond the means of their combinations.
    fn sums(&self, cells: &Cells, ys: &[f64], means: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.factor.rank() + 1];
        for ((block, cell), y) in self.of.iter().zip(&cells.of).zip(ys) {
            sums[*block] += y - means[*cell];
        }
        sums
    }
}
