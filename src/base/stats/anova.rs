//! Which axes of a grid matter: sums of squares of main effects, of interactions of two axes, and of what more axes do together.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::difference::{resolution, rounded_away};
use super::interval::{Interval, around};
use super::least_squares::{LeastSquares, Levels, NoGrid};
use super::sample::{has_spread, mean, scaled, squares};
use super::within::Cells;

/// The part that one axis, or several together, have in the variance of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// One axis for its main effect; two for what they do together beyond their main effects; all of three or more for what
    /// any three or more of them do together beyond both.
    pub(crate) axes: Vec<usize>,
    /// Its part of the whole variance, from 0 to 1.
    pub(crate) share: f64,
    /// How far the part varies: the middle 95 % when residuals are drawn again, or of the trees of a forest. It holds the truth in fewer
    /// than 95 % of the cases. `None` where nothing tells it.
    pub(crate) interval: Option<Interval>,
    /// The probability of a part as large as this if the term does nothing: by an F test or, of a forest, by shuffles of the axis.
    /// `None` where nothing is left to compare with.
    pub(crate) p: Option<f64>,
}

/// The mean of a metric at each level of an axis, with its 95 % interval where something tells it.
pub(crate) type Means = Vec<(f64, Option<Interval>)>;

/// The analysis of a grid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Anova {
    /// The parts of the variance, in the order of [`terms`]; behind them, if repetitions tell it from noise, what three or more axes do
    /// together. Two axes have none if the combinations that were observed tell nothing of it.
    pub(crate) terms: Vec<Term>,
    /// The part that neither the terms nor blocks explain.
    pub(crate) noise: f64,
    /// The part of blocks beyond the combinations of levels.
    pub(crate) in_common: f64,
    /// What the terms are compared with.
    pub(crate) error: Error,
    /// The means at the levels of each axis, over all combinations of the others.
    pub(crate) means: Vec<Means>,
    /// Whether each combination was observed as often as any other, and by each block.
    pub(crate) is_complete: bool,
}

/// What terms are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// The variance within combinations that were observed more than once.
    Repeated,
    /// What main effects and the interactions of two axes leave over.
    Left,
    /// The interaction of the two axes, which is not told from noise.
    Pair,
    /// Nothing.
    Nothing,
}

/// How often the residuals are drawn again.
const RESAMPLES: usize = 999;

/// The observations by their levels of some axes.
struct Groups {
    /// The group of each observation, from 0.
    of: Vec<usize>,
    /// How many observations each group has.
    sizes: Vec<usize>,
}

impl Groups {
    fn by_axes(levels: &Levels, axes: &[usize], counts: &[usize]) -> Self {
        let group = |level: &Vec<usize>| {
            axes.iter().zip(counts).fold(0, |group, (axis, count)| group * count + level[*axis])
        };
        let groups: Vec<usize> = levels.iter().map(group).collect();
        let mut sizes = vec![0; counts.iter().product()];
        groups.iter().for_each(|group| sizes[*group] += 1);
        Self { of: groups, sizes }
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
struct Complete<'a> {
    levels: &'a Levels,
    counts: &'a [usize],
    terms: &'a [Vec<usize>],
    groups: Vec<Groups>,
}

impl<'a> Complete<'a> {
    fn new(levels: &'a Levels, counts: &'a [usize], terms: &'a [Vec<usize>]) -> Self {
        Self {
            levels,
            counts,
            groups: terms
                .iter()
                .map(|term| {
                    let counts: Vec<usize> = term.iter().map(|axis| counts[*axis]).collect();
                    Groups::by_axes(levels, term, &counts)
                })
                .collect(),
            terms,
        }
    }

    /// Of each term and each of its groups, what it adds to the mean of all.
    fn effects(&self, ys: &[f64]) -> Vec<Vec<f64>> {
        let overall_mean = mean(ys);
        let means: Vec<Vec<f64>> = self.groups.iter().map(|groups| groups.means(ys)).collect();
        self.terms
            .iter()
            .enumerate()
            .map(|(at, term)| match term[..] {
                [a, b] => {
                    let width = self.counts[b];
                    means[at]
                        .iter()
                        .enumerate()
                        .map(|(group, both)| {
                            both - means[a][group / width] - means[b][group % width] + overall_mean
                        })
                        .collect()
                }
                _ => means[at].iter().map(|mean| mean - overall_mean).collect(),
            })
            .collect()
    }

    /// What the effects expect of each observation.
    fn fitted(&self, ys: &[f64]) -> Vec<f64> {
        let (all, effects) = (mean(ys), self.effects(ys));
        (0..ys.len())
            .map(|at| {
                let group_effects = self.groups.iter().zip(&effects);
                all + group_effects.map(|(groups, effect)| effect[groups.of[at]]).sum::<f64>()
            })
            .collect()
    }

    /// The sum of squares of each term.
    fn sums(&self, effects: &[Vec<f64>]) -> Vec<f64> {
        let each = |groups: &Groups| (self.levels.len() / groups.sizes.len()) as f64;
        let sum = |effect: &Vec<f64>| effect.iter().map(|x| x * x).sum::<f64>();
        self.groups.iter().zip(effects).map(|(groups, effect)| each(groups) * sum(effect)).collect()
    }
}

/// What explains the observations: the terms, behind blocks.
enum Model<'a> {
    /// By means alone.
    Complete(Complete<'a>),
    /// By least squares, as combinations or blocks are missing, or some more often than others.
    Gaps(LeastSquares<'a>),
}

impl Model<'_> {
    fn sums(&self, ys: &[f64]) -> Vec<f64> {
        match self {
            Self::Complete(grid) => grid.sums(&grid.effects(ys)),
            Self::Gaps(model) => model.sums(ys),
        }
    }

    fn freedom(&self, term: usize) -> usize {
        match self {
            Self::Complete(grid) => {
                grid.terms[term].iter().map(|axis| grid.counts[*axis] - 1).product()
            }
            Self::Gaps(model) => model.freedom(term),
        }
    }

    /// What is expected of each observation; in a complete grid without what blocks add.
    fn fitted(&self, ys: &[f64]) -> Vec<f64> {
        match self {
            Self::Complete(grid) => grid.fitted(ys),
            Self::Gaps(model) => model.fitted(ys),
        }
    }

    /// How many multiplications sums of squares take.
    fn work(&self) -> usize {
        match self {
            Self::Complete(grid) => grid.levels.len() * grid.terms.len(),
            Self::Gaps(model) => model.work(),
        }
    }

    /// The means at each level of an axis, and their variances where that of an observation is 1.
    fn means(&self, ys: &[f64], axis: usize) -> Vec<(f64, f64)> {
        match self {
            Self::Complete(grid) => {
                let variance = grid.counts[axis] as f64 / ys.len() as f64;
                grid.groups[axis].means(ys).into_iter().map(|mean| (mean, variance)).collect()
            }
            Self::Gaps(model) => model.means(ys, axis),
        }
    }
}

/// What observations are compared with.
struct Rest<'a> {
    model: &'a Model<'a>,
    cells: &'a Cells,
    /// Degrees of freedom of what three or more axes do together, where the error is that within combinations.
    together: Option<usize>,
}

impl Rest<'_> {
    /// What is expected of each observation, noise aside.
    fn fitted(&self, ys: &[f64]) -> Vec<f64> {
        match self.together {
            Some(_) => self.cells.fitted(ys),
            None => self.model.fitted(ys),
        }
    }

    /// The sums of squares of the terms and, last, of what three or more axes do together, if that is told from noise.
    fn sums(&self, ys: &[f64]) -> Vec<f64> {
        let mut sums = self.model.sums(ys);
        if self.together.is_some_and(|freedom| freedom > 0) {
            let model = self.model.fitted(ys);
            let cells = match self.model {
                Model::Complete(_) => self.cells.means_of_each(ys),
                Model::Gaps(_) => self.cells.fitted(ys),
            };
            sums.push(cells.iter().zip(model).map(|(cells, model)| (cells - model).powi(2)).sum());
        }
        sums
    }
}

/// The least degrees of freedom within combinations that are the error by themselves, where there are others.
const LEAST_WITHIN: usize = 4;

/// The parts of the variance of `ys`, where the observations are a grid, also one with gaps. `levels` are from 0 to `counts` of their axis.
///
/// Sums of squares are of type II: each term beyond all those that do not contain it. In a complete grid they are those of any type. With gaps, the
/// hypotheses of type III would depend on which combinations are missing.
///
/// The error is the variance within combinations that were observed more than once, else what the main effects and the
/// interactions of two axes leave over; of two axes that were observed once each, their interaction. `blocks` say which observations were made
/// alike, such as with the same seed: if blocks are linked by combinations that several have, what they have in common is no error.
///
/// # Errors
/// If the observations are no grid.
pub(crate) fn anova(
    levels: &Levels,
    counts: &[usize],
    ys: &[f64],
    blocks: &[usize],
) -> Result<Anova, NoGrid> {
    let (ys, unit) = scaled(ys);
    let ys = ys.as_slice();
    let total = squares(ys);
    if !has_spread(total) {
        return Err(NoGrid::Flat);
    }
    let product = counts.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    let combinations = product.ok_or(NoGrid::Sparse)?;
    let terms = terms(counts.len());
    let mut cells = Cells::from_levels(levels, blocks);
    if cells.sizes.len() < combinations.div_ceil(2) {
        return Err(NoGrid::Sparse);
    }
    let is_equal = cells.sizes.len() == combinations && cells.are_equal();
    let complete = || Model::Complete(Complete::new(levels, counts, &terms));
    let model = match is_equal && cells.are_blocks_whole() {
        true => complete(),
        false => match LeastSquares::from_levels(levels, counts, &terms, cells.blocks()) {
            Ok(model) => Model::Gaps(model),
            Err(_) if is_equal => {
                cells = Cells::from_levels(levels, &[]);
                complete()
            }
            Err(why) => return Err(why),
        },
    };
    let freedoms: Vec<usize> = (0..terms.len()).map(|term| model.freedom(term)).collect();
    let explained = match &model {
        Model::Complete(_) => 1 + cells.between_blocks() + freedoms.iter().sum::<usize>(),
        Model::Gaps(model) => model.rank(),
    };
    let (within, rest) = (cells.freedom(), ys.len().saturating_sub(explained));
    let together = rest - within.min(rest);
    let is_within = within >= LEAST_WITHIN || (within > 0 && together == 0);
    let (left, together) = if is_within { (within, Some(together)) } else { (rest, None) };
    let reference = Rest { model: &model, cells: &cells, together };
    let decomposition = Found { terms: &terms, freedoms, rest: reference, left, unit };
    Ok(decomposition.into_anova(ys, total))
}

/// The variance of a single observation, as something tells it, and with how many degrees of freedom.
struct Compared {
    error: Error,
    variance: f64,
    freedom: usize,
}

impl Compared {
    /// The probability of a sum of squares as large as this where there is only noise (F test).
    fn p(&self, sum: f64, freedom: usize) -> Option<f64> {
        let f = FisherSnedecor::new(freedom as f64, self.freedom as f64).ok()?;
        Some(f.sf(sum / freedom as f64 / self.variance))
    }
}

/// A model, and how much is left to compare its terms with.
struct Found<'a> {
    terms: &'a [Vec<usize>],
    freedoms: Vec<usize>,
    rest: Rest<'a>,
    left: usize,
    unit: f64,
}

impl Found<'_> {
    fn into_anova(self, ys: &[f64], total: f64) -> Anova {
        let Self { terms, mut freedoms, rest, left, unit } = self;
        let axes = terms.iter().filter(|term| term.len() == 1).count();
        let fitted = rest.fitted(ys);
        let residuals: Vec<f64> = ys.iter().zip(&fitted).map(|(y, fitted)| y - fitted).collect();
        let noise = residuals.iter().map(|x| x * x).sum::<f64>();
        // Repetitions that differ by less than the metric's step do not show that there is no noise.
        let least = rounded_away(resolution(ys.iter().copied())).powi(2);
        let variance = (noise / left as f64).max(least);
        let sums = rest.sums(ys);
        let mut names = terms.to_vec();
        if let Some(together) = rest.together.filter(|freedom| *freedom > 0) {
            names.push((0..axes).collect());
            freedoms.push(together);
        }
        let shares: Vec<f64> = sums.iter().map(|sum| sum / total).collect();
        let intervals = (left > 0).then(|| drawn_again(&rest, &shares, &fitted, &residuals, left));
        let pair = match (left, &freedoms[..]) {
            (0, [_, _, freedom]) if *freedom > 0 => Some((sums[2], *freedom)),
            _ => None,
        };
        let compared = match pair {
            // Of two axes that were observed once each, what they do together cannot be told from noise.
            Some((sum, freedom)) => Compared {
                error: Error::Pair,
                variance: (sum / freedom as f64).max(least),
                freedom,
            },
            None if left == 0 => Compared { error: Error::Nothing, variance: f64::NAN, freedom: 0 },
            None if rest.together.is_some() => {
                Compared { error: Error::Repeated, variance, freedom: left }
            }
            None => Compared { error: Error::Left, variance, freedom: left },
        };
        let test = |at: usize| match compared.error {
            Error::Nothing => None,
            Error::Pair if at == 2 => None,
            // What rounding leaves of nothing is nothing.
            _ if sums[at] <= total * 1e-20 => Some(1.0),
            _ => compared.p(sums[at], freedoms[at]),
        };
        let free_terms = names.into_iter().enumerate().filter(|(at, _)| freedoms[*at] > 0);
        let tested_terms = free_terms.map(|(at, axes)| {
            let interval = intervals.as_ref().map(|all| all[at]).filter(|[low, high]| low < high);
            Term { axes, share: shares[at], interval, p: test(at) }
        });
        let means = |axis| {
            rest.model
                .means(ys, axis)
                .into_iter()
                .map(|(mean, own)| {
                    let ends = around(mean, (own * variance).sqrt(), left as f64);
                    let ends = ends.map(|ends| ends.map(|end| end * unit));
                    (mean * unit, ends.filter(|ends| ends.iter().all(|end| end.is_finite())))
                })
                .collect()
        };
        Anova {
            terms: tested_terms.collect(),
            noise: noise / total,
            in_common: rest.cells.in_common(ys) / total,
            error: compared.error,
            means: (0..axes).map(means).collect(),
            is_complete: matches!(rest.model, Model::Complete(_)),
        }
    }
}

/// The middle 95 % of the parts when the residuals are drawn again. What is drawn is noise on top of the noise that the fitted
/// values have already: by what that adds to a part on average, its interval is moved.
fn drawn_again(
    rest: &Rest<'_>,
    shares: &[f64],
    fitted: &[f64],
    residuals: &[f64],
    left: usize,
) -> Vec<Interval> {
    let n = fitted.len();
    // Fitted values are closer to the observations than the truth is.
    let scale = (n as f64 / left as f64).sqrt();
    let mut random = fastrand::Rng::with_seed(n as u64);
    // A large grid says the same with fewer draws, and sooner.
    let draws = RESAMPLES.min(20_000_000 / rest.model.work().max(1)).max(99);
    let mut drawn = vec![Vec::with_capacity(draws); shares.len()];
    for _ in 0..draws {
        let ys: Vec<f64> =
            fitted.iter().map(|fit| fit + scale * residuals[random.usize(..n)]).collect();
        let total = squares(&ys);
        for (sum, drawn) in rest.sums(&ys).into_iter().zip(&mut drawn) {
            drawn.push(if total > 0.0 { sum / total } else { 0.0 });
        }
    }
    drawn
        .into_iter()
        .zip(shares)
        .map(|(drawn, share)| {
            let bias = mean(&drawn) - share;
            middle(drawn).map(|end| (end - bias).clamp(0.0, 1.0))
        })
        .collect()
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
        // An axis alone, once each: nothing is left over.
        let one = anova(&grid(&[3], 1), &[3], &[1.0, 2.0, 4.0], &[]).unwrap();
        assert_eq!((one.terms[0].p, one.error), (None, Error::Nothing));
    }

    #[test]
    fn of_two_axes_once_each_their_interaction_is_the_error() {
        // Sums of squares 6.25, 2.25 and 0.25, with a degree of freedom each: t of 5 and of 3.
        let two = anova(&grid(&[2, 2], 1), &[2, 2], &[1.0, 2.0, 3.0, 5.0], &[]).unwrap();
        assert_eq!(two.error, Error::Pair);
        let ps: Vec<Option<String>> =
            two.terms.iter().map(|term| term.p.map(|p| format!("{p:.4}"))).collect();
        assert_eq!(ps, [Some("0.1257".to_owned()), Some("0.2048".to_owned()), None]);
        assert!(two.terms.iter().all(|term| term.interval.is_none()));
        assert!(two.means.iter().flatten().all(|(_, interval)| interval.is_none()));
    }

    /// Sums of squares to four digits behind the point, and p.
    fn found(anova: &Anova, ys: &[f64]) -> Vec<(Vec<usize>, String, String)> {
        let total = squares(ys);
        let of = |term: &Term| {
            let p = term.p.map_or_else(String::new, |p| format!("{p:.4}"));
            (term.axes.clone(), format!("{:.4}", term.share * total), p)
        };
        anova.terms.iter().map(of).collect()
    }

    #[test]
    fn a_grid_with_gaps_has_sums_of_squares_of_type_two() {
        // Exact: by fractions, each term beyond those that do not contain it.
        let levels: Vec<Vec<usize>> =
            [0, 0, 0, 1, 1, 2, 3, 4, 4, 4, 5, 5].map(|at| vec![at / 3, at % 3]).to_vec();
        let ys = [4.0, 5.0, 6.0, 7.0, 9.0, 12.0, 6.0, 8.0, 9.0, 13.0, 9.0, 10.0];
        let all = anova(&levels, &[2, 3], &ys, &[]).unwrap();
        let of = |axes: &[usize], sum: &str, p: &str| (axes.to_vec(), sum.into(), p.into());
        assert_eq!(
            found(&all, &ys),
            [
                of(&[0], "0.8409", "0.6202"),
                of(&[1], "42.2909", "0.0282"),
                of(&[0, 1], "8.8758", "0.3086")
            ]
        );
        assert!((all.noise * squares(&ys) - 18.5).abs() < 1e-9 && !all.is_complete);
        assert_eq!(all.error, Error::Repeated);
        // Means over the combinations, whatever has been observed more often.
        let means: Vec<f64> = all.means[0].iter().map(|(mean, _)| mean * 3.0).collect();
        assert!((means[0] - 25.0).abs() < 1e-9 && (means[1] - 25.5).abs() < 1e-9, "{means:?}");
        // With seeds in common.
        let seeds = [0, 1, 2, 0, 1, 0, 1, 0, 1, 2, 1, 2];
        let all = anova(&levels, &[2, 3], &ys, &seeds).unwrap();
        assert_eq!(
            found(&all, &ys),
            [
                of(&[0], "0.0050", "0.9466"),
                of(&[1], "42.9889", "0.0071"),
                of(&[0, 1], "15.6797", "0.0404")
            ]
        );
        assert!((all.noise * squares(&ys) - 3.942_857).abs() < 1e-6);
    }

    /// Two of each of 2 x 2 x 3, but for one combination, and one trial of another.
    fn three() -> (Vec<Vec<usize>>, Vec<f64>) {
        let mut levels = grid(&[2, 2, 3], 2);
        levels.retain(|level| *level != [1, 1, 2]);
        levels.pop();
        let y = |(at, l): (usize, &Vec<usize>)| {
            7 * l[0] + 3 * l[1] + 5 * l[2] + 2 * l[0] * l[1] * (l[2] + 1) + at * at * 3 % 7
        };
        let ys = levels.iter().enumerate().map(|both| y(both) as f64).collect();
        (levels, ys)
    }

    #[test]
    fn what_three_axes_do_together_is_no_noise_where_repetitions_tell() {
        let (levels, ys) = three();
        let all = anova(&levels, &[2, 2, 3], &ys, &[]).unwrap();
        let sums: Vec<String> = found(&all, &ys).into_iter().map(|(_, sum, _)| sum).collect();
        assert_eq!(
            sums,
            ["328.7202", "87.1488", "545.4444", "23.0028", "22.3778", "1.0444", "2.7222"]
        );
        assert_eq!(all.terms[6].axes, [0, 1, 2]);
        // F of 1 and 10 degrees of freedom: 2.7222 / 1.95.
        assert!((all.terms[6].p.unwrap() - 0.2647).abs() < 1e-4, "{:?}", all.terms[6]);
        // The parity of three axes is nothing else.
        let levels = grid(&[2, 2, 2], 3);
        let seeds: Vec<usize> = (0..24).map(|at| at % 3).collect();
        let y = |(at, l): (usize, &Vec<usize>)| {
            f64::from(u8::from(l.iter().sum::<usize>() % 2 == 0)) + 0.1 * (at * at % 5) as f64
        };
        let ys: Vec<f64> = levels.iter().enumerate().map(y).collect();
        for seeds in [&seeds[..], &[]] {
            let all = anova(&levels, &[2, 2, 2], &ys, seeds).unwrap();
            let last = all.terms.last().unwrap();
            assert!(last.axes == [0, 1, 2] && last.share > 0.8 && last.p.unwrap() < 1e-6);
            let whole = all.terms.iter().map(|term| term.share).sum::<f64>() + all.noise;
            assert!(if seeds.is_empty() { (whole - 1.0).abs() < 1e-9 } else { whole < 1.0 });
        }
    }

    #[test]
    fn least_squares_and_means_agree_of_a_complete_grid() {
        let (counts, mut random) = ([2, 3, 4], fastrand::Rng::with_seed(2));
        let levels = grid(&counts, 2);
        let ys: Vec<f64> = levels.iter().map(|l| l[0] as f64 + random.f64()).collect();
        let terms = terms(3);
        let seeds: Vec<usize> = (0..ys.len()).map(|at| at % 2).collect();
        let complete = Model::Complete(Complete::new(&levels, &counts, &terms));
        for seeds in [&seeds[..], &[]] {
            let gaps =
                Model::Gaps(LeastSquares::from_levels(&levels, &counts, &terms, seeds).unwrap());
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
            complete.sums(&ys).into_iter().zip(gaps.sums(&ys)).for_each(|(a, b)| near(a, b));
            for axis in 0..3 {
                assert_eq!(complete.freedom(axis), gaps.freedom(axis));
                for (a, b) in complete.means(&ys, axis).into_iter().zip(gaps.means(&ys, axis)) {
                    near(a.0, b.0);
                    near(a.1, b.1);
                }
            }
        }
    }

    #[test]
    fn means_stay_means_where_a_combination_is_missing() {
        // Additive, without noise: what is missing is known from the others.
        let mut levels = grid(&[3, 3], 1);
        levels.pop();
        let ys: Vec<f64> = levels.iter().map(|l| (l[0] + 10 * l[1]) as f64).collect();
        let all = anova(&levels, &[3, 3], &ys, &[]).unwrap();
        for (level, (mean, _)) in all.means[0].iter().enumerate() {
            assert!((mean - (10 + level) as f64).abs() < 1e-9, "{:?}", all.means);
        }
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
            let back = found.means[0].iter();
            let back = back.map(|(mean, ends)| (mean / scale, ends.map(|e| e.map(|e| e / scale))));
            assert_eq!(back.collect::<Vec<_>>(), near.means[0]);
        }
    }

    #[test]
    fn what_is_no_grid_is_left_to_others() {
        let ys = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0];
        let why = |levels: &[Vec<usize>], counts: &[usize]| {
            anova(levels, counts, &ys[..levels.len()], &[]).map(|_| ()).unwrap_err()
        };
        let few = grid(&[4, 4], 1);
        assert_eq!(why(&few[..7], &[4, 4]), NoGrid::Sparse);
        assert_eq!(why(&[vec![0, 0], vec![1, 1]], &[2, 2]), NoGrid::Confounded);
        let large = grid(&[30, 30], 1);
        let found = anova(&large[1..], &[30, 30], &[&ys[..1], &[0.0; 898]].concat(), &[]);
        assert_eq!(found, Err(NoGrid::Large));
        assert_eq!(anova(&few, &[4, 4], &[1.0; 16], &[]), Err(NoGrid::Flat));
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
