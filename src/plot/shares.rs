//! What matters: the parts of the variance of a metric, as `effects` finds them.

use anyhow::Result;

use super::axis::{Axis, Scale};
use super::groups::{self, Grouped};
use super::{Body, Figure, Wish};
use crate::analysis::{self, Method};
use crate::collect::Goal;
use crate::words::count;

/// The most bars that are drawn; smaller shares are left out.
const MOST: usize = 12;

/// The least part of two parameters together that is shown.
const WORTH_SHOWING: f64 = 0.01;

/// A bar for each parameter, and for each two that do more together, the largest first.
///
/// # Errors
/// As [`Grouped::of`] and [`analysis::effects`].
pub(crate) fn shares(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    let grouped = Grouped::of(wish, &[])?;
    // The goal says which value of a parameter is best, which is no part of the picture.
    let goal = wish.goal.unwrap_or(Goal::Min);
    let effects = analysis::effects(table, &grouped.settings, grouped.metric, goal)?;
    let name = |axis: &usize| groups::label(&table.columns[effects.axes[*axis].column]);
    let shown: Vec<_> = effects
        .terms
        .iter()
        .filter(|term| term.axes.len() == 1 || term.share >= WORTH_SHOWING)
        .take(MOST)
        .collect();
    let words = shown
        .iter()
        .map(|term| term.axes.iter().map(name).collect::<Vec<_>>().join(" × "))
        .collect();
    let percent = |share: f64| share.clamp(0.0, 1.0) * 100.0;
    let bars: Vec<(f64, Option<[f64; 2]>)> = shown
        .iter()
        .map(|term| (percent(term.share), term.interval.map(|i| i.map(percent))))
        .collect();
    let rest = 1.0 - effects.terms.iter().map(|term| term.share).sum::<f64>();
    let trials = count(effects.trials as u64, "trial");
    let how = match effects.method {
        Method::Grid => format!("sums of squares of a complete grid of {trials}"),
        Method::Forest => format!("functional ANOVA by a forest over {trials}"),
    };
    let mut caption = vec![how];
    if bars.iter().any(|(_, ends)| ends.is_some()) {
        let whiskers = match effects.method {
            Method::Grid => {
                "whiskers show how parts vary when residuals are drawn again, and are no intervals"
            }
            Method::Forest => "whiskers are the middle 95 % of the trees, and no intervals",
        };
        caption.push(whiskers.to_owned());
    }
    caption.push(format!("{:.1} % are noise and what is not explained", percent(rest)));
    caption.extend(grouped.caption(table, true));
    let most = bars.iter().map(|(value, ends)| ends.map_or(*value, |e| e[1].max(*value)));
    let most = most.fold(0.0, f64::max).max(1.0);
    let label = format!("part of the variance of {} (%)", groups::label(wish.metric));
    Ok(Figure {
        title: None,
        x: Axis { label, scale: Scale::Linear(0.0, most * 1.03) },
        y: Axis { label: String::new(), scale: Scale::Words(words) },
        body: Body::Bars(bars),
        caption,
    })
}
