//! Which axes of a complete grid matter: exact sums of squares of main effects and of interactions of two axes.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::difference::{resolution, rounded_away};
use super::interval::{Interval, around};
use super::sample::{has_spread, mean, scaled, squares};

/// The part that one axis, or two together, have in the variance of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// One axis for its main effect; two for what they do together beyond their main effects.
    pub(crate) axes: Vec<usize>,
    /// Its part of the whole variance, from 0 to 1.
    pub(crate) share: f64,
    /// How far the part varies: the middle 95 % when residuals are drawn again, or of the trees of a forest. It holds the truth in fewer
    /// than 95 % of the cases. `None` where nothing tells it.
    pub(crate) interval: Option<Interval>,
    /// The probability of a part as large as this if the term does nothing (F test); `None` where nothing is left to
    /// compare with, and of a forest.
    pub(crate) p: Option<f64>,
}

/// The analysis of a complete grid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Anova {
    /// The parts of the variance, in the order of [`terms`].
    pub(crate) terms: Vec<Term>,
    /// The variance of a single observation in squared units, and with how many degrees of freedom it is known.
    error: f64,
    freedom: usize,
    /// What the observations were divided by.
    unit: f64,
}

impl Anova {
    /// The means at each level of an axis, with the 95 % intervals that the error tells.
    pub(crate) fn marginal(
        &self,
        levels: &Levels,
        ys: &[f64],
        axis: usize,
        count: usize,
    ) -> Vec<(f64, Option<Interval>)> {
        let groups = Groups::of(levels, &[axis], &[count]);
        let n = (ys.len() / count.max(1)) as f64;
        let ys: Vec<f64> = ys.iter().map(|y| y / self.unit).collect();
        let with_ends = |mean| {
            let interval = around(mean, (self.error / n).sqrt(), self.freedom as f64);
            let interval = interval.map(|ends| ends.map(|end| end * self.unit));
            (mean * self.unit, interval.filter(|ends| ends.iter().all(|end| end.is_finite())))
        };
        groups.means(&ys).into_iter().map(with_ends).collect()
    }
}

/// How often the residuals are drawn again.
const RESAMPLES: usize = 999;

/// The levels of each observation, one for each axis.
type Levels = [Vec<usize>];

/// The observations by their levels of some axes.
struct Groups {
    /// The group of each observation, from 0.
    of: Vec<usize>,
    /// How many observations each group has.
    sizes: Vec<usize>,
}

impl Groups {
    fn of(levels: &Levels, axes: &[usize], counts: &[usize]) -> Self {
        let group = |level: &Vec<usize>| {
            axes.iter().zip(counts).fold(0, |group, (axis, count)| group * count + level[*axis])
        };
        let of: Vec<usize> = levels.iter().map(group).collect();
        let mut sizes = vec![0; counts.iter().product()];
        of.iter().for_each(|group| sizes[*group] += 1);
        Self { of, sizes }
    }

    fn means(&self, ys: &[f64]) -> Vec<f64> {
        let mut means = vec![0.0; self.sizes.len()];
        self.of.iter().zip(ys).for_each(|(group, y)| means[*group] += y);
        means.iter_mut().zip(&self.sizes).for_each(|(mean, n)| *mean /= *n as f64);
        means
    }
}

/// One axis, and each two.
pub(super) fn terms(axes: usize) -> Vec<Vec<usize>> {
    let pairs = (0..axes).flat_map(|a| (a + 1..axes).map(move |b| vec![a, b]));
    (0..axes).map(|axis| vec![axis]).chain(pairs).collect()
}

/// Observations of every combination of levels, equally many of each.
struct Grid<'a> {
    levels: &'a Levels,
    counts: &'a [usize],
    terms: Vec<Vec<usize>>,
    groups: Vec<Groups>,
}

impl<'a> Grid<'a> {
    fn new(levels: &'a Levels, counts: &'a [usize]) -> Self {
        let terms = terms(counts.len());
        let of = |term: &Vec<usize>| {
            let counts: Vec<usize> = term.iter().map(|axis| counts[*axis]).collect();
            Groups::of(levels, term, &counts)
        };
        Self { levels, counts, groups: terms.iter().map(of).collect(), terms }
    }

    /// Of each term and each of its groups, what it adds to the mean of all.
    fn effects(&self, ys: &[f64]) -> Vec<Vec<f64>> {
        let all = mean(ys);
        let means: Vec<Vec<f64>> = self.groups.iter().map(|groups| groups.means(ys)).collect();
        let of = |(at, term): (usize, &Vec<usize>)| match term[..] {
            [a, b] => {
                let width = self.counts[b];
                let own = |(group, both): (usize, &f64)| {
                    both - means[a][group / width] - means[b][group % width] + all
                };
                means[at].iter().enumerate().map(own).collect()
            }
            _ => means[at].iter().map(|mean| mean - all).collect(),
        };
        self.terms.iter().enumerate().map(of).collect()
    }

    /// The sum of squares of each term.
    fn sums(&self, effects: &[Vec<f64>]) -> Vec<f64> {
        let each = |groups: &Groups| (self.levels.len() / groups.sizes.len()) as f64;
        let sum = |effect: &Vec<f64>| effect.iter().map(|x| x * x).sum::<f64>();
        self.groups.iter().zip(effects).map(|(groups, effect)| each(groups) * sum(effect)).collect()
    }
}

/// The parts of the variance of `ys`, in the order of [`terms`], where the observations are a complete grid: each
/// combination of levels as often as any other. `levels` are from 0 to `counts` of their axis. `None` for any other set of
/// observations, or without any variance.
///
/// The error is the variance within combinations that were observed more than once, else what the main effects and the
/// interactions of two axes leave over. `blocks` say which observations were made alike, such as with the same seed: if each
/// block has each combination once, what blocks have in common is no error.
pub(crate) fn anova(
    levels: &Levels,
    counts: &[usize],
    ys: &[f64],
    blocks: &[usize],
) -> Option<Anova> {
    let all: Vec<usize> = (0..counts.len()).collect();
    let combinations = counts.iter().try_fold(1usize, |product, n| product.checked_mul(*n))?;
    let each = ys.len() / combinations.max(1);
    let (ys, unit) = scaled(ys);
    let ys = ys.as_slice();
    if each == 0 || each * combinations != ys.len() || !has_spread(squares(ys)) {
        return None;
    }
    let cells = Groups::of(levels, &all, counts);
    if cells.sizes.iter().any(|n| *n != each) {
        return None;
    }
    let grid = Grid::new(levels, counts);
    let effects = grid.effects(ys);
    let grand = mean(ys);
    let (fitted, left): (Vec<f64>, usize) = match each {
        1 => {
            let of = |at: usize| {
                let own = grid.groups.iter().zip(&effects);
                grand + own.map(|(groups, effect)| effect[groups.of[at]]).sum::<f64>()
            };
            let freedom: usize = grid.terms.iter().map(|term| freedom(counts, term)).sum();
            ((0..ys.len()).map(of).collect(), (ys.len() - 1).saturating_sub(freedom))
        }
        _ => {
            let means = cells.means(ys);
            let block = block_effects(ys, blocks, &cells, each);
            let less = if block.is_some() { each - 1 } else { 0 };
            let block = block.unwrap_or_else(|| vec![0.0; ys.len()]);
            let of = |at: usize| means[cells.of[at]] + block[at];
            ((0..ys.len()).map(of).collect(), ys.len() - combinations - less)
        }
    };
    let residuals: Vec<f64> = ys.iter().zip(&fitted).map(|(y, fitted)| y - fitted).collect();
    // Repetitions that differ by less than the metric's step do not show that there is no noise.
    let least = rounded_away(resolution(ys.iter().copied())).powi(2);
    let error = (residuals.iter().map(|x| x * x).sum::<f64>() / left as f64).max(least);
    let total = squares(ys);
    let sums = grid.sums(&effects);
    let shares: Vec<f64> = sums.iter().map(|sum| sum / total).collect();
    let intervals = (left > 0).then(|| drawn_again(&grid, &shares, (&fitted, &residuals), left));
    let whole = sums.into_iter().enumerate().map(|(at, squares)| {
        let p = (left > 0).then(|| {
            let free = freedom(counts, &grid.terms[at]) as f64;
            // What rounding leaves of nothing is nothing.
            match squares > total * 1e-20 {
                false => 1.0,
                true => FisherSnedecor::new(free, left as f64)
                    .map_or(f64::NAN, |f| f.sf(squares / free / error)),
            }
        });
        let interval = intervals.as_ref().map(|all| all[at]).filter(|[low, high]| low < high);
        Term { axes: grid.terms[at].clone(), share: shares[at], interval, p }
    });
    let terms = whole.collect();
    Some(Anova { terms, error, freedom: left, unit })
}

/// The degrees of freedom of a term.
fn freedom(counts: &[usize], term: &[usize]) -> usize {
    term.iter().map(|axis| counts[*axis] - 1).product()
}

/// Of each observation, what its block adds; `None` where not each block has each combination once.
fn block_effects(ys: &[f64], blocks: &[usize], cells: &Groups, each: usize) -> Option<Vec<f64>> {
    let n = blocks.iter().max()? + 1;
    let mut seen = vec![false; n.checked_mul(cells.sizes.len())?];
    for (block, cell) in blocks.iter().zip(&cells.of) {
        if std::mem::replace(&mut seen[block * cells.sizes.len() + cell], true) {
            return None;
        }
    }
    if n != each || !seen.into_iter().all(|seen| seen) {
        return None;
    }
    let mut means = vec![0.0; n];
    blocks.iter().zip(ys).for_each(|(block, y)| means[*block] += y);
    let grand = mean(ys);
    let size = cells.sizes.len() as f64;
    Some(blocks.iter().map(|block| means[*block] / size - grand).collect())
}

/// The middle 95 % of the parts when the residuals are drawn again. What is drawn is noise on top of the noise that the fitted
/// values have already: by what that adds to a part on average, its interval is moved.
fn drawn_again(
    grid: &Grid<'_>,
    shares: &[f64],
    (fitted, residuals): (&[f64], &[f64]),
    left: usize,
) -> Vec<Interval> {
    let n = fitted.len();
    // Fitted values are closer to the observations than the truth is.
    let scale = (n as f64 / left as f64).sqrt();
    let mut random = fastrand::Rng::with_seed(n as u64);
    // A large grid says the same with fewer draws, and sooner.
    let draws = RESAMPLES.min(20_000_000 / (n * grid.terms.len()).max(1)).max(99);
    let mut drawn = vec![Vec::with_capacity(draws); grid.terms.len()];
    for _ in 0..draws {
        let ys: Vec<f64> =
            fitted.iter().map(|fit| fit + scale * residuals[random.usize(..n)]).collect();
        let total = squares(&ys);
        for (sum, drawn) in grid.sums(&grid.effects(&ys)).into_iter().zip(&mut drawn) {
            drawn.push(if total > 0.0 { sum / total } else { 0.0 });
        }
    }
    let moved = |(drawn, share): (Vec<f64>, &f64)| {
        let more = mean(&drawn) - share;
        middle(drawn).map(|end| (end - more).clamp(0.0, 1.0))
    };
    drawn.into_iter().zip(shares).map(moved).collect()
}

/// The middle 95 % of some values.
pub(super) fn middle(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let outside = ((values.len() + 1) as f64 * 0.025) as usize;
    let outside = outside.max(1).min(values.len());
    [values[outside - 1], values[values.len() - outside]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(counts: &[usize], each: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for n in counts {
            all = all
                .into_iter()
                .flat_map(|one: Vec<usize>| (0..*n).map(move |level| [&one[..], &[level]].concat()))
                .collect();
        }
        all.iter().flat_map(|one| std::iter::repeat_n(one.clone(), each)).collect()
    }

    #[test]
    fn sums_of_squares_add_up_and_are_those_of_the_book() {
        // Montgomery, Design and Analysis of Experiments: battery life by material and temperature, 4 replicates.
        let ys = [
            130.0, 155.0, 74.0, 180.0, 34.0, 40.0, 80.0, 75.0, 20.0, 70.0, 82.0, 58.0, 150.0,
            188.0, 159.0, 126.0, 136.0, 122.0, 106.0, 115.0, 25.0, 70.0, 58.0, 45.0, 138.0, 110.0,
            168.0, 160.0, 174.0, 120.0, 150.0, 139.0, 96.0, 104.0, 82.0, 60.0,
        ];
        let found = anova(&grid(&[3, 3], 4), &[3, 3], &ys, &[]).unwrap().terms;
        let total = squares(&ys);
        let sums: Vec<i64> = found.iter().map(|term| (term.share * total).round() as i64).collect();
        assert_eq!(sums, [10_684, 39_119, 9_614]);
        let ps: Vec<String> = found.iter().map(|term| format!("{:.4}", term.p.unwrap())).collect();
        assert_eq!(ps, ["0.0020", "0.0000", "0.0186"]);
        for term in &found {
            let [low, high] = term.interval.unwrap();
            assert!(low < term.share && term.share < high, "{term:?}");
        }
    }

    #[test]
    fn an_interval_is_around_its_part_also_where_all_is_noise() {
        let mut random = fastrand::Rng::with_seed(11);
        let levels = grid(&[6, 6], 4);
        let ys: Vec<f64> = levels.iter().map(|_| random.f64()).collect();
        for term in anova(&levels, &[6, 6], &ys, &[]).unwrap().terms {
            let [low, high] = term.interval.unwrap();
            assert!(low <= term.share && term.share <= high, "{term:?}");
        }
    }

    #[test]
    fn without_replicates_higher_interactions_are_the_error() {
        let levels = grid(&[2, 3, 4], 1);
        let wave = |level: &Vec<usize>| ((level[0] * 7 + level[1] * 3 + level[2] * 5) % 4) as f64;
        let ys: Vec<f64> = levels.iter().map(|l| 10.0 * l[2] as f64 + 0.1 * wave(l)).collect();
        let found = anova(&levels, &[2, 3, 4], &ys, &[]).unwrap().terms;
        assert_eq!(found.len(), 6);
        assert!(found[2].share > 0.99 && found[2].p.unwrap() < 1e-9, "{found:?}");
        let rest: f64 = found.iter().map(|term| term.share).sum();
        assert!(rest <= 1.0 + 1e-12);
        // Two axes, once each: nothing is left over.
        let two = anova(&grid(&[2, 2], 1), &[2, 2], &[1.0, 2.0, 3.0, 5.0], &[]).unwrap().terms;
        assert!(two.iter().all(|term| term.p.is_none() && term.interval.is_none()));
    }

    #[test]
    fn parts_are_the_same_at_any_scale() {
        let levels = grid(&[2, 2], 3);
        let ys: Vec<f64> = (0..12_u32).map(|at| f64::from(at * at % 7) + f64::from(at)).collect();
        let near = anova(&levels, &[2, 2], &ys, &[]).unwrap();
        for exponent in [1000, -1000] {
            let scale = f64::from(exponent).exp2();
            let far: Vec<f64> = ys.iter().map(|y| y * scale).collect();
            let found = anova(&levels, &[2, 2], &far, &[]).unwrap();
            assert_eq!(found.terms, near.terms);
            let back = found.marginal(&levels, &far, 0, 2).into_iter();
            let back = back.map(|(mean, ends)| (mean / scale, ends.map(|e| e.map(|e| e / scale))));
            assert_eq!(back.collect::<Vec<_>>(), near.marginal(&levels, &ys, 0, 2));
        }
    }

    #[test]
    fn what_is_no_complete_grid_is_left_to_others() {
        let levels = grid(&[2, 2], 2);
        let ys = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert!(anova(&levels, &[2, 2], &ys, &[]).is_some());
        assert_eq!(anova(&levels[1..], &[2, 2], &ys[1..], &[]), None);
        assert_eq!(anova(&levels[..6], &[2, 2], &ys[..6], &[]), None);
        assert_eq!(anova(&levels, &[2, 2], &[1.0; 8], &[]), None);
    }

    #[test]
    fn what_seeds_have_in_common_is_no_error() {
        let levels = grid(&[2, 2], 3);
        let blocks: Vec<usize> = (0..12).map(|at| at % 3).collect();
        let noise = [0.1, -0.2, 0.15, 0.0, 0.2, -0.1, -0.15, 0.1, 0.05, 0.2, -0.1, -0.1];
        let ys: Vec<f64> = levels
            .iter()
            .zip(&blocks)
            .zip(noise)
            .map(|((level, block), noise)| level[0] as f64 + 10.0 * *block as f64 + noise)
            .collect();
        let p =
            |blocks: &[usize]| anova(&levels, &[2, 2], &ys, blocks).unwrap().terms[0].p.unwrap();
        assert!(p(&[]) > 0.5 && p(&blocks) < 1e-3, "{} {}", p(&[]), p(&blocks));
        // Blocks that miss a combination are none.
        let mut other = blocks.clone();
        other[0] = 1;
        assert_eq!(p(&other), p(&[]));
    }
}
