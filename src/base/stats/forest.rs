//! Which axes matter where the observations are no complete grid: functional analysis of variance over a forest of
//! regression trees (Hutter, Hoos and Leyton-Brown 2014). Each tree divides the grid of levels into boxes, so that the
//! means over all other axes, and with them the parts of the variance, are exact for the tree.

use super::anova::{Term, middle, terms};
use super::interval::Interval;
use super::sample::{drawn, has_spread, mean, scaled, squares};
use super::within::Cells;

const TREES: usize = 64;

/// Observations of one tree at most: more say the same.
const MOST: usize = 2000;

/// The least observations of a box.
const LEAST: usize = 2;

/// A box of a tree: of each axis the levels from the first to before the second, and the mean of the observations in it.
#[derive(Debug, Clone)]
struct Leaf {
    box_: Vec<(usize, usize)>,
    value: f64,
}

/// A forest that was grown over observations.
#[derive(Debug)]
pub(crate) struct Forest {
    counts: Vec<usize>,
    /// Of each axis, where each level stands in the order in which it is divided.
    places: Vec<Vec<usize>>,
    trees: Vec<Vec<Leaf>>,
    /// The part of the variance that the trees explain of observations that they were not grown from.
    explained: f64,
    /// What the observations were divided by.
    unit: f64,
}

/// Of what a tree expects over the whole grid.
struct Spread {
    mean: f64,
    variance: f64,
}

/// What a tree grows from: levels in the order in which they are divided.
struct Ground<'a> {
    counts: &'a [usize],
    levels: &'a [Vec<usize>],
    ys: &'a [f64],
}

impl Forest {
    /// Grows a forest. `levels` are from 0 to `counts` of their axis; those of an axis that is not `ordered` are put in the
    /// order of their means. The same observations give the same forest.
    pub(crate) fn grow(
        levels: &[Vec<usize>],
        counts: &[usize],
        ordered: &[bool],
        ys: &[f64],
    ) -> Self {
        Self::with_trees(levels, counts, ordered, ys, TREES)
    }

    fn with_trees(
        levels: &[Vec<usize>],
        counts: &[usize],
        ordered: &[bool],
        ys: &[f64],
        trees: usize,
    ) -> Self {
        let (ys, unit) = scaled(ys);
        let ys = ys.as_slice();
        let places: Vec<Vec<usize>> = (0..counts.len())
            .map(|axis| match ordered[axis] {
                true => (0..counts[axis]).collect(),
                false => by_mean(levels, ys, axis, counts[axis]),
            })
            .collect();
        let placed: Vec<Vec<usize>> = levels
            .iter()
            .map(|level| level.iter().zip(&places).map(|(level, places)| places[*level]).collect())
            .collect();
        let ground = Ground { counts, levels: &placed, ys };
        let mut random = fastrand::Rng::with_seed(ys.len() as u64);
        let mut unseen = Unseen::new(ys.len());
        let trees: Vec<Vec<Leaf>> = (0..trees)
            .map(|_| {
                let n = ys.len().min(MOST);
                let drawn: Vec<usize> = (0..n).map(|_| random.usize(..ys.len())).collect();
                let mut leaves = Vec::new();
                let full_box = counts.iter().map(|n| (0, *n)).collect();
                let mut is_seen = vec![false; ys.len()];
                drawn.iter().for_each(|i| is_seen[*i] = true);
                ground.divide(drawn, full_box, &mut random, &mut leaves);
                unseen.add(&leaves, &placed, &is_seen);
                leaves
            })
            .collect();
        let explained = unseen.explained(ys);
        Self { counts: counts.to_vec(), places, trees, explained, unit }
    }

    /// The means that the forest expects at each level of an axis over all levels of the other axes, with the middle 95 % of
    /// its trees.
    pub(crate) fn marginal(&self, axis: usize) -> Vec<(f64, Interval)> {
        let of_trees: Vec<Vec<f64>> =
            self.trees.iter().map(|tree| self.means(tree, &[axis])).collect();
        self.places[axis]
            .iter()
            .map(|place| {
                let values: Vec<f64> = of_trees.iter().map(|means| means[*place]).collect();
                (mean(&values) * self.unit, middle(values).map(|end| end * self.unit))
            })
            .collect()
    }

    /// The means of a tree over all other axes, by the places of one or two axes, the second one faster.
    fn means(&self, tree: &[Leaf], axes: &[usize]) -> Vec<f64> {
        let size: usize = axes.iter().map(|axis| self.counts[*axis]).product();
        let mut means = vec![0.0; size];
        for leaf in tree {
            let other_axes = (0..self.counts.len()).filter(|axis| !axes.contains(axis));
            let other_share: f64 = other_axes.map(|axis| self.part(leaf, axis)).product();
            let add = leaf.value * other_share;
            let (from, to) = leaf.box_[axes[0]];
            for first in from..to {
                match axes.get(1) {
                    None => means[first] += add,
                    Some(second) => {
                        let (from, to) = leaf.box_[*second];
                        let row = first * self.counts[*second];
                        means[row + from..row + to].iter_mut().for_each(|mean| *mean += add);
                    }
                }
            }
        }
        means
    }

    fn part(&self, leaf: &Leaf, axis: usize) -> f64 {
        let (from, to) = leaf.box_[axis];
        (to - from) as f64 / self.counts[axis] as f64
    }

    /// The mean and the variance of a tree over the whole grid; `None` if it has found no difference.
    fn spread(&self, tree: &[Leaf]) -> Option<Spread> {
        let weight =
            |leaf: &Leaf| (0..self.counts.len()).map(|axis| self.part(leaf, axis)).product::<f64>();
        let weighted_mean: f64 = tree.iter().map(|leaf| weight(leaf) * leaf.value).sum();
        let variance =
            tree.iter().map(|leaf| weight(leaf) * (leaf.value - weighted_mean).powi(2)).sum();
        has_spread(variance).then_some(Spread { mean: weighted_mean, variance })
    }

    /// The variance of a tree's means by one or two axes.
    fn variance(&self, tree: &[Leaf], axes: &[usize], mean: f64) -> f64 {
        let means = self.means(tree, axes);
        means.iter().map(|own| (own - mean).powi(2)).sum::<f64>() / means.len() as f64
    }

    /// The variance of the means by one axis, of all trees: what its part is made of, before it is known how much the forest explains.
    fn main_variance(&self, axis: usize) -> f64 {
        mean(
            &self
                .trees
                .iter()
                .map(|tree| {
                    self.spread(tree)
                        .map_or(0.0, |spread| self.variance(tree, &[axis], spread.mean))
                })
                .collect::<Vec<_>>(),
        )
    }

    /// The parts that each axis and each two have in the variance over the whole grid, in the order of [`terms`], with the middle
    /// 95 % of the trees. What the forest does not explain of observations that a tree has not seen (the out-of-bag error) is noise,
    /// and part of none. `None` where no tree has found any difference.
    pub(crate) fn terms(&self) -> Option<Vec<Term>> {
        let terms = terms(self.counts.len());
        let mut shares: Vec<Vec<f64>> = vec![Vec::new(); terms.len()];
        for tree in &self.trees {
            let Some(spread) = self.spread(tree) else { continue };
            let variance = |axes: &[usize]| self.variance(tree, axes, spread.mean);
            let main: Vec<f64> = (0..self.counts.len()).map(|axis| variance(&[axis])).collect();
            for (term, shares) in terms.iter().zip(&mut shares) {
                let own_variance = match term[..] {
                    [a, b] => (variance(term) - main[a] - main[b]).max(0.0),
                    _ => main[term[0]],
                };
                shares.push(self.explained * own_variance / spread.variance);
            }
        }
        if shares.first().is_none_or(Vec::is_empty) {
            return None;
        }
        let averaged_terms = terms.into_iter().zip(shares).map(|(axes, shares)| Term {
            axes,
            share: mean(&shares),
            interval: Some(middle(shares)),
            p: None,
        });
        Some(averaged_terms.collect())
    }
}

/// Trees of a forest that is grown again and again, and the most of its observations.
const FEW_TREES: usize = 16;
const FEW: usize = 300;

/// How often an axis is shuffled at most, and after how many parts as large as its own no more: they are too many for an effect at 5 %.
const SHUFFLES: usize = 59;
const ENOUGH: usize = 5;

/// Of each axis, how probable a part as large as its own is if the axis does nothing: its levels are shuffled among the combinations that were
/// observed, and a forest is grown over them. All other axes keep what they explain, which shuffling the metric would take from them.
pub(crate) fn shuffled(
    levels: &[Vec<usize>],
    counts: &[usize],
    ordered: &[bool],
    ys: &[f64],
) -> Vec<f64> {
    let places = drawn(ys.len(), FEW);
    let mut levels: Vec<Vec<usize>> = places.iter().map(|at| levels[*at].clone()).collect();
    let ys: Vec<f64> = places.iter().map(|at| ys[*at]).collect();
    // Observations of one combination have more in common than its levels, and stay together.
    let cells = Cells::from_levels(&levels, &[]);
    let share = |levels: &[Vec<usize>], axis: usize| {
        Forest::with_trees(levels, counts, ordered, &ys, FEW_TREES).main_variance(axis)
    };
    let mut random = fastrand::Rng::with_seed(ys.len() as u64);
    let mut test = |axis: usize| {
        let share_observed = share(&levels, axis);
        let mut of_cells = vec![0; cells.sizes.len()];
        cells.of.iter().zip(&levels).for_each(|(cell, level)| of_cells[*cell] = level[axis]);
        let original_levels: Vec<usize> = levels.iter().map(|level| level[axis]).collect();
        let (mut tried, mut as_large) = (0, 0);
        while share_observed > 0.0 && tried < SHUFFLES && as_large < ENOUGH {
            random.shuffle(&mut of_cells);
            cells
                .of
                .iter()
                .zip(&mut levels)
                .for_each(|(cell, level)| level[axis] = of_cells[*cell]);
            tried += 1;
            as_large += usize::from(share(&levels, axis) >= share_observed);
        }
        levels.iter_mut().zip(original_levels).for_each(|(level, original)| level[axis] = original);
        match as_large {
            ENOUGH => ENOUGH as f64 / tried as f64,
            _ => (1 + as_large) as f64 / (1 + tried) as f64,
        }
    };
    (0..counts.len()).map(&mut test).collect()
}

/// What trees expect of observations that they were not grown from.
struct Unseen {
    /// Of some observations, their places, the sum of what trees expect, and of how many trees.
    sums: Vec<(usize, f64, usize)>,
}

impl Unseen {
    fn new(observations: usize) -> Self {
        Self { sums: drawn(observations, MOST).into_iter().map(|at| (at, 0.0, 0)).collect() }
    }

    fn add(&mut self, leaves: &[Leaf], levels: &[Vec<usize>], is_seen: &[bool]) {
        for (at, sum, trees) in self.sums.iter_mut().filter(|(at, ..)| !is_seen[*at]) {
            let holds = |leaf: &&Leaf| {
                leaf.box_
                    .iter()
                    .zip(&levels[*at])
                    .all(|((from, to), level)| (*from..*to).contains(level))
            };
            if let Some(leaf) = leaves.iter().find(holds) {
                *sum += leaf.value;
                *trees += 1;
            }
        }
    }

    fn explained(&self, ys: &[f64]) -> f64 {
        let expected = self.sums.iter().filter(|(.., n)| *n > 0);
        let error = |y: f64, sum: f64, n: usize| (y, (y - sum / n as f64).powi(2));
        let (known, errors): (Vec<f64>, Vec<f64>) =
            expected.map(|(at, sum, n)| error(ys[*at], *sum, *n)).unzip();
        let total = squares(&known);
        if has_spread(total) { (1.0 - errors.iter().sum::<f64>() / total).max(0.0) } else { 0.0 }
    }
}

/// Where each level stands in the order of the means of its observations; those without any come last.
fn by_mean(levels: &[Vec<usize>], ys: &[f64], axis: usize, count: usize) -> Vec<usize> {
    let mut sums = vec![(0.0, 0usize); count];
    for (level, y) in levels.iter().zip(ys) {
        sums[level[axis]].0 += y;
        sums[level[axis]].1 += 1;
    }
    let mean_of_level = |level: &usize| match sums[*level] {
        (_, 0) => f64::INFINITY,
        (sum, n) => sum / n as f64,
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| mean_of_level(a).total_cmp(&mean_of_level(b)));
    let mut places = vec![0; count];
    order.iter().enumerate().for_each(|(place, level)| places[*level] = place);
    places
}

impl Ground<'_> {
    /// Divides a box until its observations are few or equal.
    fn divide(
        &self,
        drawn: Vec<usize>,
        box_: Vec<(usize, usize)>,
        random: &mut fastrand::Rng,
        leaves: &mut Vec<Leaf>,
    ) {
        let axes = self.counts.len();
        let mut offered: Vec<usize> = (0..axes).collect();
        random.shuffle(&mut offered);
        // Trees that see different axes err differently; five of six as in the paper's forests.
        offered.truncate((axes * 5).div_ceil(6));
        let best = offered
            .into_iter()
            .filter_map(|axis| self.split(&drawn, axis, box_[axis]))
            .max_by(|a, b| a.gain.total_cmp(&b.gain));
        let Some(Split { axis, at, .. }) = best else {
            let values: Vec<f64> = drawn.iter().map(|i| self.ys[*i]).collect();
            leaves.push(Leaf { box_, value: mean(&values) });
            return;
        };
        let (low, high): (Vec<usize>, Vec<usize>) =
            drawn.into_iter().partition(|i| self.levels[*i][axis] < at);
        let (mut below, mut above) = (box_.clone(), box_);
        below[axis].1 = at;
        above[axis].0 = at;
        self.divide(low, below, random, leaves);
        self.divide(high, above, random, leaves);
    }

    /// The best place to divide an axis; `None` if no place leaves enough on both sides, or nothing differs.
    fn split(&self, drawn: &[usize], axis: usize, (from, to): (usize, usize)) -> Option<Split> {
        let mut sums = vec![(0.0, 0usize); to - from];
        for i in drawn {
            let sum = &mut sums[self.levels[*i][axis] - from];
            sum.0 += self.ys[*i];
            sum.1 += 1;
        }
        let total: f64 = sums.iter().map(|(sum, _)| sum).sum();
        let n = drawn.len();
        let least = total * total / n as f64;
        // Rounding is no difference.
        let floor = (least.abs() + drawn.iter().map(|i| self.ys[*i].powi(2)).sum::<f64>()) * 1e-12;
        let (mut below, mut count) = (0.0, 0);
        let mut best: Option<Split> = None;
        for (level, (sum, seen)) in sums.iter().enumerate().take(to - from - 1) {
            below += sum;
            count += seen;
            if count < LEAST || n - count < LEAST {
                continue;
            }
            let above = total - below;
            let gain = below * below / count as f64 + above * above / (n - count) as f64 - least;
            // Of places that divide the observations alike, the first: levels between were not observed.
            if gain > floor && best.as_ref().is_none_or(|best| gain > best.gain) {
                best = Some(Split { axis, at: from + level + 1, gain });
            }
        }
        best
    }
}

/// Where a box is divided: the first level of the upper part.
struct Split {
    axis: usize,
    at: usize,
    gain: f64,
}

#[cfg(test)]
mod tests {
    use super::super::anova::anova;
    use super::*;

    /// Samples of a function of three axes with so many levels each.
    fn sampled(
        n: usize,
        levels: usize,
        f: impl Fn(f64, f64, f64) -> f64,
    ) -> (Vec<Vec<usize>>, Vec<f64>) {
        let mut random = fastrand::Rng::with_seed(3);
        let points: Vec<Vec<usize>> =
            (0..n).map(|_| (0..3).map(|_| random.usize(..levels)).collect()).collect();
        let x = |level: usize| level as f64 / (levels - 1) as f64;
        let ys = points.iter().map(|p| f(x(p[0]), x(p[1]), x(p[2]))).collect();
        (points, ys)
    }

    fn order(terms: &[Term]) -> Vec<Vec<usize>> {
        let mut sorted = terms.to_vec();
        sorted.sort_by(|a, b| b.share.total_cmp(&a.share));
        sorted.into_iter().map(|term| term.axes).collect()
    }

    #[test]
    fn axes_of_known_functions_are_in_the_right_order() {
        // Variances of the parts: 16/12, 1/12 and 0.
        let (points, ys) = sampled(300, 16, |a, b, _| b + 4.0 * a);
        let forest = Forest::grow(&points, &[16; 3], &[true; 3], &ys);
        let terms = forest.terms().unwrap();
        assert_eq!(order(&terms)[..2], [vec![0], vec![1]]);
        assert!((terms[0].share - 16.0 / 17.0).abs() < 0.1, "{terms:?}");
        assert!(terms.iter().map(|term| term.share).sum::<f64>() < 1.0);
        // A pure interaction: no axis alone says anything.
        let (points, ys) =
            sampled(500, 8, |_, b, c| if (b < 0.5) == (c < 0.5) { 1.0 } else { 0.0 });
        let terms = Forest::grow(&points, &[8; 3], &[true; 3], &ys).terms().unwrap();
        assert_eq!(order(&terms)[0], [1, 2], "{terms:?}");
        // Ishigami's function: the exact parts are those of its whole grid.
        let pi = std::f64::consts::PI;
        let ishigami = |a: f64, b: f64, c: f64| {
            let at = |x: f64| (2.0 * x - 1.0) * pi;
            at(a).sin() + 7.0 * at(b).sin().powi(2) + 0.1 * at(c).powi(4) * at(a).sin()
        };
        let level = |i: usize, n: usize| i as f64 / (n - 1) as f64;
        let grid: Vec<Vec<usize>> = (0..1000).map(|i| vec![i / 100, i / 10 % 10, i % 10]).collect();
        let ys: Vec<f64> = grid
            .iter()
            .map(|p| ishigami(level(p[0], 10), level(p[1], 10), level(p[2], 10)))
            .collect();
        let exact = anova(&grid, &[10; 3], &ys, &[]).unwrap().terms;
        let (points, ys) = sampled(800, 10, ishigami);
        let terms = Forest::grow(&points, &[10; 3], &[true; 3], &ys).terms().unwrap();
        let three = |terms: &[Term]| {
            let mut three = order(terms)[..3].to_vec();
            three.sort();
            three
        };
        assert_eq!(three(&terms), three(&exact), "{terms:?} {exact:?}");
        for (term, exact) in terms.iter().zip(&exact) {
            assert!((term.share - exact.share).abs() < 0.12, "{term:?} {exact:?}");
        }
    }

    #[test]
    fn parts_do_not_depend_on_the_order_of_observations() {
        // More observations than are looked at again: those that come first share the first level of the first axis.
        let grid: Vec<Vec<usize>> =
            (0..6_000).map(|i| vec![i / 1200, i / 60 % 20, i % 60]).collect();
        let mut random = fastrand::Rng::with_seed(5);
        let ys: Vec<f64> = grid.iter().map(|at| at[0] as f64 + random.f64()).collect();
        let share = |levels: &[Vec<usize>], counts: [usize; 3], ys: &[f64], axis: usize| {
            Forest::grow(levels, &counts, &[true; 3], ys).terms().unwrap()[axis].share
        };
        let first = share(&grid, [5, 20, 60], &ys, 0);
        let mut last: Vec<(Vec<usize>, f64)> =
            grid.iter().zip(&ys).map(|(at, y)| (vec![at[1], at[2], at[0]], *y)).collect();
        last.sort_by(|a, b| a.0.cmp(&b.0));
        let (levels, ys): (Vec<_>, Vec<_>) = last.into_iter().unzip();
        let last = share(&levels, [20, 60, 5], &ys, 2);
        assert!(first > 0.9 && (first - last).abs() < 0.02, "{first} {last}");
    }

    #[test]
    fn parts_are_the_same_at_any_scale() {
        let (points, ys) = sampled(100, 4, |a, b, _| b + 4.0 * a);
        let near = Forest::grow(&points, &[4; 3], &[true; 3], &ys);
        for exponent in [1000, -1000] {
            let scale = f64::from(exponent).exp2();
            let far: Vec<f64> = ys.iter().map(|y| y * scale).collect();
            let found = Forest::grow(&points, &[4; 3], &[true; 3], &far);
            assert_eq!(found.terms(), near.terms());
            let back = found.marginal(0).into_iter();
            let back = back.map(|(mean, ends)| (mean / scale, ends.map(|end| end / scale)));
            assert_eq!(back.collect::<Vec<_>>(), near.marginal(0));
        }
    }

    #[test]
    fn noise_is_no_effect() {
        let (points, _) = sampled(200, 4, |_, _, _| 0.0);
        let mut random = fastrand::Rng::with_seed(5);
        let ys: Vec<f64> = points.iter().map(|_| random.f64()).collect();
        let terms = Forest::grow(&points, &[4; 3], &[true; 3], &ys).terms().unwrap();
        assert!(terms.iter().map(|term| term.share).sum::<f64>() < 0.1, "{terms:?}");
    }

    #[test]
    fn an_axis_without_effect_is_not_shown_beside_one_that_has_much() {
        let (points, mut ys) = sampled(120, 8, |a, b, _| 4.0 * a + b);
        let mut random = fastrand::Rng::with_seed(9);
        ys.iter_mut().for_each(|y| *y += 0.2 * random.f64());
        let ps = shuffled(&points, &[8; 3], &[true; 3], &ys);
        assert!(ps[0] < 0.02 && ps[1] < 0.02 && ps[2] > 0.05, "{ps:?}");
        // By shuffles of the metric, which explain nothing, any part would be one.
        let terms = Forest::grow(&points, &[8; 3], &[true; 3], &ys).terms().unwrap();
        assert!(terms[2].share > 0.0, "{terms:?}");
    }

    #[test]
    fn levels_without_an_order_are_put_in_one() {
        // The middle one of three is the best: no single division of the given order finds it.
        let (points, ys) = sampled(200, 3, |a, _, _| if a == 0.5 { 0.0 } else { 1.0 });
        let forest = Forest::grow(&points, &[3; 3], &[false; 3], &ys);
        let marginal = forest.marginal(0);
        let means: Vec<f64> = marginal.iter().map(|(mean, _)| (mean * 1e6).round() / 1e6).collect();
        assert_eq!(means, [1.0, 0.0, 1.0]);
        assert!(marginal.iter().all(|(mean, [low, high])| low <= mean && mean <= high));
    }

    #[test]
    fn where_nothing_differs_nothing_matters() {
        let (points, _) = sampled(50, 4, |_, _, _| 0.0);
        assert_eq!(Forest::grow(&points, &[4; 3], &[true; 3], &[0.1; 50]).terms(), None);
    }
}
