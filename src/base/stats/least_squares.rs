//! Least squares over the levels of axes, where some combinations were not observed or some more often than others.
//!
//! Columns are indicators: of a level, of two levels together, of a block. Those that others already say are left out when a model is factored,
//! so that its rank is right whichever combinations are missing.

use std::ops::Range;

/// The levels of each observation, one for each axis.
pub(super) type Levels = [Vec<usize>];

/// Why observations are not analysed as a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoGrid {
    /// Fewer than half of the combinations were observed.
    Sparse,
    /// An axis cannot be told from others: they vary together.
    Confounded,
    /// There are gaps, and too many levels for least squares.
    Large,
    /// The metric hardly differs.
    Flat,
}

/// Most columns of a model. Factoring takes the time of their third power, for each term.
const MOST_COLUMNS: usize = 600;

/// The part of a column's square below which what is left of it is rounding.
const ROUNDING: f64 = 1e-9;

/// How far apart two parts of combinations are that rounding alone tells apart.
const SAME: f64 = 1e-6;

/// A factor of the matrix of products of some columns (Cholesky), without the columns that those before them say.
pub(super) struct Factor {
    kept: Vec<usize>,
    lower: Vec<Vec<f64>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Factor {
    /// Of these columns, in this order; `products` are those of all.
    pub(super) fn from_products(
        products: &[Vec<f64>],
        columns: impl Iterator<Item = usize>,
    ) -> Self {
        let mut factor = Self { kept: Vec::new(), lower: Vec::new() };
        for column in columns {
            let mut row = factor.forward(&products[column]);
            let square = products[column][column];
            let remainder = square - dot(&row, &row);
            if remainder > square * ROUNDING {
                row.push(remainder.sqrt());
                factor.kept.push(column);
                factor.lower.push(row);
            }
        }
        factor
    }

    pub(super) fn rank(&self) -> usize {
        self.kept.len()
    }

    /// What each kept column adds to the length of a vector, of which the products with all columns are known: the squares of some are the
    /// sum of squares of these columns beyond those before them.
    pub(super) fn forward(&self, products: &[f64]) -> Vec<f64> {
        let mut adds = Vec::with_capacity(self.kept.len() + 1);
        for (column, row) in self.kept.iter().zip(&self.lower) {
            let explained = dot(row, &adds);
            adds.push((products[*column] - explained) / row[adds.len()]);
        }
        adds
    }

    /// The coefficients of all columns, those that are left out being 0.
    pub(super) fn coefficients(&self, products: &[f64]) -> Vec<f64> {
        let mut solved = self.forward(products);
        for at in (0..solved.len()).rev() {
            solved[at] /= self.lower[at][at];
            let (own, row) = (solved[at], &self.lower[at]);
            solved[..at].iter_mut().zip(row).for_each(|(above, factor)| *above -= own * factor);
        }
        let mut coefficients = vec![0.0; products.len()];
        self.kept.iter().zip(solved).for_each(|(column, own)| coefficients[*column] = own);
        coefficients
    }
}

/// Some of the terms, factored behind the mean and the blocks.
struct Model {
    terms: Vec<usize>,
    factor: Factor,
    /// How many of the kept columns are of no term but the last.
    others: usize,
}

/// The mean, blocks and terms of some observations.
pub(super) struct LeastSquares<'a> {
    counts: &'a [usize],
    terms: &'a [Vec<usize>],
    /// The columns that are 1, of each observation.
    rows: Vec<Vec<usize>>,
    /// How many blocks have a column, behind the one of the mean.
    blocks: usize,
    /// The columns of each term.
    columns: Vec<Range<usize>>,
    products: Vec<Vec<f64>>,
    /// Of each term, the model of those that do not contain it, and of itself at last.
    own: Vec<Model>,
    whole: Model,
}

impl<'a> LeastSquares<'a> {
    /// # Errors
    /// If the columns are too many, or an axis cannot be told from others.
    pub(super) fn from_levels(
        levels: &Levels,
        counts: &'a [usize],
        terms: &'a [Vec<usize>],
        blocks: &[usize],
    ) -> Result<Self, NoGrid> {
        let many = blocks.iter().max().map_or(0, |last| last + 1);
        let mut n_columns = 1 + many;
        let mut columns = Vec::with_capacity(terms.len());
        for term in terms {
            let size: usize = term.iter().map(|axis| counts[*axis]).product();
            columns.push(n_columns..n_columns + size);
            n_columns += size;
        }
        if n_columns > MOST_COLUMNS {
            return Err(NoGrid::Large);
        }
        let row = |(at, level): (usize, &Vec<usize>)| -> Vec<usize> {
            let block = blocks.get(at).map(|block| 1 + block);
            std::iter::once(0)
                .chain(block)
                .chain(terms.iter().zip(&columns).map(|(term, columns)| {
                    columns.start
                        + term.iter().fold(0, |at, axis| at * counts[*axis] + level[*axis])
                }))
                .collect()
        };
        let rows: Vec<Vec<usize>> = levels.iter().enumerate().map(row).collect();
        let mut products = vec![vec![0.0; n_columns]; n_columns];
        for row in &rows {
            for a in row {
                row.iter().for_each(|b| products[*a][*b] += 1.0);
            }
        }
        let model = |terms: Vec<usize>| {
            let term_columns = terms.iter().flat_map(|term| columns[*term].clone());
            let factor = Factor::from_products(&products, (0..=many).chain(term_columns));
            let last_columns = terms.last().map_or(0..0, |last| columns[*last].clone());
            let n_other_columns =
                factor.kept.iter().filter(|kept| !last_columns.contains(kept)).count();
            Model { terms, factor, others: n_other_columns }
        };
        let model_of_term = |(at, term): (usize, &Vec<usize>)| {
            let contains = |other: usize| term.iter().all(|axis| terms[other].contains(axis));
            model((0..terms.len()).filter(|other| !contains(*other)).chain([at]).collect())
        };
        let term_models: Vec<Model> = terms.iter().enumerate().map(model_of_term).collect();
        let full_model = model((0..terms.len()).collect());
        let design = Self {
            counts,
            terms,
            rows,
            blocks: many,
            columns,
            products,
            own: term_models,
            whole: full_model,
        };
        match counts.iter().enumerate().all(|(at, count)| design.freedom(at) == count - 1) {
            true => Ok(design),
            false => Err(NoGrid::Confounded),
        }
    }

    /// The degrees of freedom of a term beyond those that do not contain it.
    pub(super) fn freedom(&self, term: usize) -> usize {
        self.own[term].factor.rank() - self.own[term].others
    }

    /// The degrees of freedom of the whole model, with that of the mean.
    pub(super) fn rank(&self) -> usize {
        self.whole.factor.rank()
    }

    /// How many multiplications sums of squares take.
    pub(super) fn work(&self) -> usize {
        let term_cost = self.own.iter().map(|own| own.factor.rank().pow(2) / 2).sum::<usize>();
        term_cost + self.rows.len() * self.terms.len()
    }

    /// The sum of the observations in each column.
    fn with_columns(&self, ys: &[f64]) -> Vec<f64> {
        let mut products = vec![0.0; self.products.len()];
        for (row, y) in self.rows.iter().zip(ys) {
            row.iter().for_each(|column| products[*column] += y);
        }
        products
    }

    /// The sum of squares of each term beyond all that do not contain it (type II).
    pub(super) fn sums(&self, ys: &[f64]) -> Vec<f64> {
        let products = self.with_columns(ys);
        self.own
            .iter()
            .map(|own| {
                let adds = own.factor.forward(&products);
                adds[own.others..].iter().map(|x| x * x).sum()
            })
            .collect()
    }

    /// What the whole model expects of each observation.
    pub(super) fn fitted(&self, ys: &[f64]) -> Vec<f64> {
        let coefficients = self.whole.factor.coefficients(&self.with_columns(ys));
        self.rows.iter().map(|row| row.iter().map(|column| coefficients[*column]).sum()).collect()
    }

    /// The means at each level of an axis over all combinations of the others, each with its variance where that of an observation is 1: by the
    /// whole model or, if combinations are missing that it would need, by the model in which the axis does nothing together with others.
    pub(super) fn means(&self, ys: &[f64], axis: usize) -> Vec<(f64, f64)> {
        let products = self.with_columns(ys);
        let means_by = |model: &Model| -> Option<Vec<(f64, f64)>> {
            let levels = 0..self.counts[axis];
            levels.map(|level| self.mean(model, &products, [axis, level])).collect()
        };
        means_by(&self.whole)
            .or_else(|| means_by(&self.own[axis]))
            .unwrap_or_else(|| vec![(f64::NAN, f64::NAN); self.counts[axis]])
    }

    /// The mean at a level of an axis by a model; `None` if the observations do not tell it.
    fn mean(&self, model: &Model, products: &[f64], level: [usize; 2]) -> Option<(f64, f64)> {
        // Of each column, its mean over the combinations that are meant.
        let mut wanted = vec![0.0; products.len()];
        wanted[0] = 1.0;
        wanted[1..=self.blocks].fill(1.0 / self.blocks as f64);
        for term in &model.terms {
            for (place, column) in self.columns[*term].clone().enumerate() {
                wanted[column] = self.part(&self.terms[*term], place, level);
            }
        }
        let weights = model.factor.coefficients(&wanted);
        let term_columns = model.terms.iter().flat_map(|term| self.columns[*term].clone());
        let is_told =
            |column: usize| (dot(&self.products[column], &weights) - wanted[column]).abs() < SAME;
        let is_told = (0..=self.blocks).chain(term_columns).all(is_told);
        is_told.then(|| (dot(&weights, products), dot(&weights, &wanted)))
    }

    /// The part that a column of a term has among the combinations with a level of an axis.
    fn part(&self, term: &[usize], place: usize, [axis, level]: [usize; 2]) -> f64 {
        let (mut rest, mut part) = (place, 1.0);
        for own in term.iter().rev() {
            let count = self.counts[*own];
            part *= match (*own == axis, rest % count == level) {
                (true, true) => 1.0,
                (true, false) => 0.0,
                (false, _) => 1.0 / count as f64,
            };
            rest /= count;
        }
        part
    }
}
