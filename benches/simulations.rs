//! How often printed intervals hold the truth, and how often tests see a difference where there is none: simulations with a known truth.
//!
//! Run by `scripts/bench simulations`. The numbers are drawn from seeds of their own, so each run prints the same table. A row whose
//! part is further from what is claimed than [`NEAR`] has a `!`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

#[allow(dead_code, unused_imports, reason = "the library uses what no row here measures")]
#[path = "../src/base/stats/mod.rs"]
mod stats;

use fastrand::Rng;
use stats::{Bounds, Forest, Interval};

/// Simulations behind each row: the standard error of a part near 5 % is 0.3 %.
const ROUNDS: usize = 4000;

/// Simulations behind a row of what takes long: the standard error of a part near 5 % is 0.7 %.
const SLOW: usize = 1000;

/// How far a part may be from what is claimed.
const NEAR: f64 = 0.015;

/// What a row claims.
#[derive(Clone, Copy)]
enum Claim {
    /// This part.
    Is(f64),
    /// This part or less: tests that correct for many others.
    AtMost(f64),
    /// Nothing: the words beside the number say so.
    Less,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // `cargo test --benches` and the like only want to know that it builds.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    let mut rows = Rows::default();
    intervals(&mut rows);
    differences(&mut rows);
    chosen(&mut rows);
    grids(&mut rows);
    gaps(&mut rows);
    forests(&mut rows);
    rows.print();
}

/// How a number is drawn; its mean and its median, and the name.
struct Kind {
    name: &'static str,
    draw: fn(&mut Rng) -> f64,
    mean: f64,
    median: f64,
}

const NORMAL: Kind = Kind { name: "normal", draw: normal, mean: 0.0, median: 0.0 };
const SKEWED: Kind =
    Kind { name: "skewed", draw: skewed, mean: 1.0, median: std::f64::consts::LN_2 };
const DISCRETE: Kind = Kind { name: "of 100 images", draw: discrete, mean: 0.9, median: 0.9 };

fn normal(random: &mut Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

fn skewed(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// The accuracy of a model that is right for 9 of 10 images.
fn discrete(random: &mut Rng) -> f64 {
    (0..100).filter(|_| random.f64() < 0.9).count() as f64 / 100.0
}

/// Accuracies near 1, by a beta distribution with the parameters 20 and 2.
const NEAR_ONE: Kind =
    Kind { name: "accuracies near 1", draw: near_one, mean: 20.0 / 22.0, median: f64::NAN };

fn near_one(random: &mut Rng) -> f64 {
    // Gamma variables with whole parameters are sums of exponential ones.
    let mut gamma = |n: usize| (0..n).map(|_| skewed(random)).sum::<f64>();
    let (above, below) = (gamma(20), gamma(2));
    above / (above + below)
}

/// The rows of the table: of each kind of numbers a line, with what was found for each size.
#[derive(Default)]
struct Rows(Vec<([String; 3], Vec<String>)>);

impl Rows {
    fn add(&mut self, what: &str, numbers: &str, each: usize, claim: Claim, found: f64) {
        let (claimed, is_kept) = match claim {
            Claim::Is(part) => (format!("{:.0} %", part * 100.0), (found - part).abs() <= NEAR),
            Claim::AtMost(part) => (format!("≤ {:.0} %", part * 100.0), found <= part + NEAR),
            Claim::Less => ("less".to_owned(), true),
        };
        let head = [what.to_owned(), numbers.to_owned(), claimed];
        let cell = format!("{each}: {:.1}{}", found * 100.0, if is_kept { "" } else { " !" });
        match self.0.iter_mut().find(|(known, _)| *known == head) {
            Some((_, cells)) => cells.push(cell),
            None => self.0.push((head, vec![cell])),
        }
    }

    fn print(&self) {
        println!(
            "| what | numbers | claimed | found, in %, by how many seeds |\n|---|---|---|---|"
        );
        for (head, cells) in &self.0 {
            println!("| {} | {} |", head.join(" | "), cells.join(", "));
        }
    }
}

/// The part of rounds in which something holds, of those in which it can be said; `f` gets the round's own numbers.
fn part(f: impl Fn(&mut Rng) -> Option<bool>) -> f64 {
    part_of(ROUNDS, f)
}

fn part_of(rounds: usize, f: impl Fn(&mut Rng) -> Option<bool>) -> f64 {
    let (mut said, mut holds) = (0, 0);
    for round in 0..rounds {
        if let Some(is) = f(&mut Rng::with_seed(round as u64)) {
            said += 1;
            holds += usize::from(is);
        }
    }
    f64::from(holds as u32) / f64::from(said.max(1) as u32)
}

fn sample(n: usize, kind: &Kind, random: &mut Rng) -> Vec<f64> {
    (0..n).map(|_| (kind.draw)(random)).collect()
}

fn holds([low, high]: Interval, truth: f64) -> bool {
    low <= truth && truth <= high
}

fn intervals(rows: &mut Rows) {
    let covers = |n: usize, kind: &Kind, truth: f64, of: fn(&[f64]) -> Option<Interval>| {
        part(|random| of(&sample(n, kind, random)).map(|interval| holds(interval, truth)))
    };
    for (kind, claim) in
        [(&NORMAL, Claim::Is(0.95)), (&SKEWED, Claim::Less), (&DISCRETE, Claim::Less)]
    {
        for n in [2, 3, 5, 10, 30] {
            let found = covers(n, kind, kind.mean, stats::of_mean);
            rows.add("interval of the mean (t)", kind.name, n, claim, found);
        }
    }
    for kind in [&NORMAL, &SKEWED, &DISCRETE] {
        for n in [5, 10, 20] {
            let claim = if n < 10 { Claim::Less } else { Claim::Is(0.95) };
            let found = covers(n, kind, kind.mean, stats::bootstrap);
            rows.add("interval of the mean (bootstrap)", kind.name, n, claim, found);
        }
    }
    let unit = Bounds([0.0, 1.0]);
    let positive = Bounds([0.0, f64::INFINITY]);
    for (kind, bounds, how, claim) in [
        (&NEAR_ONE, unit, "logit", Claim::Is(0.95)),
        (&DISCRETE, unit, "logit", Claim::Less),
        (&SKEWED, positive, "logarithm", Claim::Less),
    ] {
        for n in [2, 3, 5, 10, 30] {
            let found = part(|random| {
                let sample = sample(n, kind, random);
                let ends = bounds.keep(stats::mean(&sample), stats::of_mean(&sample)?);
                Some(holds(ends, kind.mean) && ends.iter().all(|end| bounds.hold(*end)))
            });
            let what = format!("interval of the mean (t, within bounds by the {how})");
            rows.add(&what, kind.name, n, claim, found);
        }
        for n in [5, 10, 20] {
            let found = part(|random| {
                let sample = sample(n, kind, random);
                let ends = bounds.keep(stats::mean(&sample), stats::bootstrap(&sample)?);
                Some(holds(ends, kind.mean) && ends.iter().all(|end| bounds.hold(*end)))
            });
            let what = format!("interval of the mean (bootstrap, within bounds by the {how})");
            rows.add(&what, kind.name, n, Claim::Less, found);
        }
    }
    for n in [2, 3, 5, 10, 30] {
        let found = covers(n, &NEAR_ONE, NEAR_ONE.mean, stats::of_mean);
        rows.add("interval of the mean (t)", NEAR_ONE.name, n, Claim::Less, found);
    }
    for kind in [&NORMAL, &SKEWED] {
        for n in [6, 10, 20] {
            let found = covers(n, kind, kind.median, stats::of_median);
            rows.add("interval of the median", kind.name, n, Claim::Is(0.95), found);
        }
    }
    for n in [4, 8, 20] {
        let found = covers(n, &NORMAL, 0.0, stats::of_iqm);
        rows.add("interval of the interquartile mean", "normal", n, Claim::Is(0.95), found);
    }
}

/// Two sides of so many seeds without a difference: each trial has what its seed adds to both, and what it adds to one alone.
fn pairs(n: usize, kind: &Kind, random: &mut Rng) -> Vec<(f64, f64)> {
    (0..n).map(|_| ((kind.draw)(random), (kind.draw)(random))).collect()
}

fn differences(rows: &mut Rows) {
    let step = |pairs: &[(f64, f64)]| stats::resolution(pairs.iter().flat_map(|p| [p.0, p.1]));
    for kind in [&NORMAL, &SKEWED, &DISCRETE] {
        for n in [2, 3, 5, 10] {
            let found = part(|random| {
                let pairs = pairs(n, kind, random);
                Some(stats::paired(&pairs, step(&pairs))?.p < 0.05)
            });
            rows.add("compare: p < 5 % (paired t)", kind.name, n, Claim::AtMost(0.05), found);
        }
    }
    for n in [3, 5, 10] {
        let found = part(|random| {
            let (a, b) = (sample(n, &NORMAL, random), sample(n, &NORMAL, random));
            let both = stats::resolution(a.iter().chain(&b).copied());
            Some(stats::welch(&a, &b, both)?.p < 0.05)
        });
        rows.add("compare: p < 5 % (Welch)", "normal", n, Claim::AtMost(0.05), found);
        let found = part(|random| {
            let pairs = pairs(n, &SKEWED, random);
            Some(stats::signed_rank(&pairs)? < 0.05)
        });
        rows.add("compare: p < 5 % (signed ranks)", "skewed", n, Claim::AtMost(0.05), found);
    }
    for n in [3, 5, 10] {
        let units = |random: &mut Rng| -> Vec<(f64, f64)> {
            let unit = |_| {
                let seed = normal(random);
                let mut side = |more: f64| stats::mean(&sample(6, &NORMAL, random)) * 0.2 + more;
                (side(seed), side(0.0))
            };
            (0..n).map(unit).collect()
        };
        let name = "the difference varies by seed";
        let test = |random: &mut Rng| {
            let pairs = units(random);
            stats::paired(&pairs, step(&pairs))
        };
        let found = part(|random| Some(test(random)?.p < 0.05));
        rows.add("compare: p < 5 %, 6 pairs a seed", name, n, Claim::AtMost(0.05), found);
        let found = part(|random| Some(holds(test(random)?.interval?, 0.0)));
        rows.add("compare: interval of the difference", name, n, Claim::Is(0.95), found);
    }
}

/// The best of so many equal settings, as `best` finds it: whether another one is called worse, and whether the best one's interval
/// holds the truth.
fn best(settings: &[Vec<f64>], truth: f64) -> (bool, Option<bool>) {
    let step = stats::resolution(settings.iter().flatten().copied());
    let mean = |own: &Vec<f64>| stats::mean(own);
    let best = settings.iter().max_by(|a, b| mean(a).total_cmp(&mean(b))).unwrap();
    let others = settings.iter().filter(|own| !std::ptr::eq(*own, best));
    let ps: Vec<f64> = others
        .filter_map(|own| {
            let pairs: Vec<(f64, f64)> = best.iter().copied().zip(own.iter().copied()).collect();
            stats::paired(&pairs, step).map(|test| test.p)
        })
        .collect();
    let is_worse = stats::of_chosen(&ps, settings.len()).iter().any(|p| *p < 0.05);
    (is_worse, stats::of_mean(best).map(|interval| holds(interval, truth)))
}

fn chosen(rows: &mut Rows) {
    for kind in [&NORMAL, &SKEWED, &DISCRETE] {
        for many in [2, 10, 30] {
            for n in [2, 3, 5, 10] {
                let settings = |random: &mut Rng| -> Vec<Vec<f64>> {
                    let seeds = sample(n, &NORMAL, random);
                    let seeds = if kind.name == NORMAL.name { seeds } else { vec![0.0; n] };
                    let own = |_| {
                        let own = sample(n, kind, random);
                        own.iter().zip(&seeds).map(|(own, seed)| own + seed).collect()
                    };
                    (0..many).map(own).collect()
                };
                let found = part(|random| Some(best(&settings(random), kind.mean).0));
                let what = format!("best of {many}: another is worse, p < 5 %");
                let name =
                    if kind.name == NORMAL.name { "normal, seeds in common" } else { kind.name };
                rows.add(&what, name, n, Claim::AtMost(0.05), found);
            }
        }
    }
    for many in [10, 30, 100] {
        for n in [3, 5, 10] {
            let settings = |random: &mut Rng| -> Vec<Vec<f64>> {
                (0..many).map(|_| sample(n, &NORMAL, random)).collect()
            };
            let found = part(|random| best(&settings(random), 0.0).1);
            rows.add(&format!("best of {many}: its interval"), "normal", n, Claim::Less, found);
        }
    }
}

/// A grid of 3 x 4 levels, with so many seeds, and of each observation the seed.
fn grid(seeds: usize) -> (Vec<Vec<usize>>, Vec<usize>) {
    let all = (0..12).flat_map(|cell| (0..seeds).map(move |seed| (vec![cell / 4, cell % 4], seed)));
    all.unzip()
}

fn grids(rows: &mut Rows) {
    for kind in [&NORMAL, &SKEWED, &DISCRETE] {
        for n in [2, 3, 5] {
            let (levels, seeds) = grid(n);
            let found = part(|random| {
                let own = sample(n, &NORMAL, random);
                let add = if kind.name == NORMAL.name { 1.0 } else { 0.0 };
                let ys: Vec<f64> =
                    seeds.iter().map(|seed| (kind.draw)(random) + add * own[*seed]).collect();
                let found = stats::anova(&levels, &[3, 4], &ys, &seeds).ok()?;
                Some(found.terms[0].p? < 0.05)
            });
            let name = if kind.name == NORMAL.name { "normal, seeds in common" } else { kind.name };
            rows.add("effects: p < 5 % (F test)", name, n, Claim::Is(0.05), found);
        }
    }
    for n in [2, 5] {
        let (levels, seeds) = grid(n);
        let found = part(|random| {
            let ys: Vec<f64> = levels.iter().map(|_| normal(random)).collect();
            let found = stats::anova(&levels, &[3, 4], &ys, &seeds).ok()?;
            Some(holds(found.means[0][0].1?, 0.0))
        });
        rows.add("effects: interval of a value's mean (grid)", "normal", n, Claim::Is(0.95), found);
    }
    for (size, name) in [(1.0, "strong"), (0.3, "weak"), (0.0, "none")] {
        for n in [2, 5] {
            let (levels, seeds) = grid(n);
            let found = part(|random| {
                let of = |level: &Vec<usize>| size * (level[0] as f64 - 1.0);
                let ys: Vec<f64> = levels.iter().map(|level| of(level) + normal(random)).collect();
                // The variance of the levels' means, and the noise: what the axis has of both.
                let own = size * size * 2.0 / 3.0;
                let found = stats::anova(&levels, &[3, 4], &ys, &seeds).ok()?;
                Some(holds(found.terms[0].interval?, own / (own + 1.0)))
            });
            rows.add("effects: range of a part (grid)", name, n, Claim::Less, found);
        }
    }
}

/// Observations of a grid in which the last combination is missing, and one of ten others; and of each the seed.
fn with_gaps(seeds: usize, random: &mut Rng) -> (Vec<Vec<usize>>, Vec<usize>) {
    let (levels, seeds) = grid(seeds);
    let all = levels.into_iter().zip(seeds).filter(|(level, _)| *level != [2, 3]);
    all.filter(|_| random.f64() > 0.1).unzip()
}

fn gaps(rows: &mut Rows) {
    for kind in [&NORMAL, &SKEWED, &DISCRETE] {
        for n in [2, 3, 5] {
            let found = part_of(SLOW, |random| {
                let (levels, seeds) = with_gaps(n, random);
                let own = sample(n, &NORMAL, random);
                let add = if kind.name == NORMAL.name { 1.0 } else { 0.0 };
                // The other axis has an effect, of which gaps may give this one none.
                let of = |(level, seed): (&Vec<usize>, &usize)| level[1] as f64 + add * own[*seed];
                let of_all = levels.iter().zip(&seeds).map(of);
                let ys: Vec<f64> = of_all.map(|y| y + (kind.draw)(random)).collect();
                let found = stats::anova(&levels, &[3, 4], &ys, &seeds).ok()?;
                Some(found.terms[0].p? < 0.05)
            });
            let name = if kind.name == NORMAL.name { "normal, seeds in common" } else { kind.name };
            rows.add("effects: p < 5 % (grid with gaps)", name, n, Claim::Is(0.05), found);
        }
    }
    for n in [2, 5] {
        let found = part_of(SLOW, |random| {
            let (levels, seeds) = with_gaps(n, random);
            let of = |level: &Vec<usize>| level[1] as f64 + level[0] as f64;
            let ys: Vec<f64> = levels.iter().map(|level| of(level) + normal(random)).collect();
            let found = stats::anova(&levels, &[3, 4], &ys, &seeds).ok()?;
            Some(holds(found.means[0][2].1?, 3.5))
        });
        let what = "effects: interval of a value's mean (grid with gaps)";
        rows.add(what, "normal", n, Claim::Is(0.95), found);
    }
    for (n, name) in [(2, "no gaps"), (3, "no gaps"), (2, "gaps"), (3, "gaps")] {
        let found = part_of(SLOW, |random| {
            let cells = (0..12).map(|cell| vec![cell / 6, cell / 3 % 2, cell % 3]);
            let mut levels: Vec<Vec<usize>> = cells.flat_map(|at| vec![at; n]).collect();
            levels.retain(|_| name == "no gaps" || random.f64() > 0.1);
            let of = |level: &Vec<usize>| (level[0] * level[1] + level[2]) as f64;
            let ys: Vec<f64> = levels.iter().map(|level| of(level) + normal(random)).collect();
            let found = stats::anova(&levels, &[2, 2, 3], &ys, &[]).ok()?;
            Some(found.terms.iter().find(|term| term.axes.len() == 3)?.p? < 0.05)
        });
        let what = "effects: p < 5 % of three together";
        rows.add(what, &format!("normal, {name}"), n, Claim::Is(0.05), found);
    }
    for kind in [&NORMAL, &SKEWED] {
        let found = part_of(SLOW, |random| {
            let (levels, _) = grid(1);
            let ys: Vec<f64> =
                levels.iter().map(|level| level[1] as f64 + (kind.draw)(random)).collect();
            Some(stats::anova(&levels, &[3, 4], &ys, &[]).ok()?.terms[0].p? < 0.05)
        });
        let claim = if kind.name == NORMAL.name { Claim::Is(0.05) } else { Claim::AtMost(0.05) };
        rows.add("effects: p < 5 % (two axes, once each)", kind.name, 1, claim, found);
    }
}

/// How often the last of three axes of a forest is shown, if it does nothing: with so many random points, of another axis so strong.
fn shuffles(rows: &mut Rows) {
    for (size, name) in [(0.0, "all noise"), (1.0, "another is weak"), (10.0, "another is strong")]
    {
        for n in [30, 100] {
            let found = part_of(SLOW, |random| {
                let point = |_| (0..3).map(|_| random.usize(..12)).collect();
                let points: Vec<Vec<usize>> = (0..n).map(point).collect();
                let of = |at: &Vec<usize>| size * at[0] as f64 / 11.0;
                let ys: Vec<f64> = points.iter().map(|at| of(at) + normal(random)).collect();
                Some(stats::shuffled(&points, &[12; 3], &[true; 3], &ys)[2] < 0.05)
            });
            rows.add("effects: p < 5 % (forest)", name, n, Claim::AtMost(0.05), found);
        }
    }
}

fn forests(rows: &mut Rows) {
    shuffles(rows);
    let mut covered = [0, 0];
    let rounds = 200;
    for round in 0..rounds {
        let mut random = Rng::with_seed(round);
        let points: Vec<Vec<usize>> =
            (0..100).map(|_| vec![random.usize(..8), random.usize(..8)]).collect();
        let ys: Vec<f64> =
            points.iter().map(|at| at[0] as f64 / 7.0 + 0.3 * normal(&mut random)).collect();
        let forest = Forest::grow(&points, &[8, 8], &[true, true], &ys);
        let variance = 63.0 / 12.0 / 49.0;
        let truth = variance / (variance + 0.09);
        let share = forest.terms().unwrap()[0].interval.unwrap();
        covered[0] += usize::from(holds(share, truth));
        covered[1] += usize::from(holds(forest.marginal(0)[3].1, 3.0 / 7.0));
    }
    for (what, n) in ["effects: range of a part (forest)", "effects: range of a mean (forest)"]
        .into_iter()
        .zip(covered)
    {
        rows.add(what, "normal", 100, Claim::Less, n as f64 / rounds as f64);
    }
}
