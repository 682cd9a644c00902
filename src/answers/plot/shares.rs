//! What matters: the parts of the variance of a metric, as `effects` finds them.

use anyhow::Result;

use super::axis::{Axis, Scale};
use super::groups::{self, Grouped};
use super::{Body, Figure, Wish};
use crate::answers::analysis::{self, Method};
use crate::answers::collect::Goal;
use crate::base::words::count;

/// The most bars that are drawn; smaller shares are left out.
const MOST: usize = 12;

/// The least part of two parameters together that is shown.
const WORTH_SHOWING: f64 = 0.01;

/// A bar for each parameter, and for each two that do more together, the largest first.
///
/// # Errors
/// As [`Grouped::by_columns`] and [`analysis::effects`].
pub(crate) fn shares(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    let grouped = Grouped::by_columns(wish, &[])?;
    // The goal says which value of a parameter is best, which is no part of the picture.
    let goal = wish.goal.unwrap_or(Goal::Min);
    let effects = analysis::effects(table, &grouped.settings, grouped.metric, goal)?;
    let name = |axis: usize| groups::label(&table.columns[effects.axes[axis].column]);
    let shown: Vec<_> = effects
        .terms
        .iter()
        .filter(|term| term.axes.len() == 1 || term.share >= WORTH_SHOWING)
        .take(MOST)
        .collect();
    let words = shown.iter().map(|term| effects.term(term, name, " × ")).collect();
    let percent = |share: f64| share.clamp(0.0, 1.0) * 100.0;
    let bars: Vec<(f64, Option<[f64; 2]>)> = shown
        .iter()
        .map(|term| (percent(term.share), term.interval.map(|i| i.map(percent))))
        .collect();
    let trials = count(effects.trials as u64, "trial");
    let mut caption = vec![match effects.method {
        Method::Grid(_) => format!("{} of {trials}", effects.method.name()),
        Method::Forest(_) => format!("{} over {trials}", effects.method.name()),
    }];
    if bars.iter().any(|(_, ends)| ends.is_some()) {
        let whiskers = match effects.method {
            Method::Grid(_) => {
                "whiskers show how parts vary when residuals are drawn again, and are no intervals"
            }
            Method::Forest(_) => "whiskers are the middle 95 % of the trees, and no intervals",
        };
        caption.push(whiskers.to_owned());
    }
    let hidden = (0..effects.axes.len()).filter(|axis| !effects.is_shown(*axis)).map(name);
    let hidden: Vec<String> = hidden.collect();
    if !hidden.is_empty() {
        caption.push(format!("no effect shown of {}", hidden.join(", ")));
    }
    caption.push(effects.rest());
    caption.extend(grouped.caption(table, true));
    let upper_ends = bars.iter().map(|(value, ends)| ends.map_or(*value, |e| e[1].max(*value)));
    let greatest = upper_ends.fold(0.0, f64::max).max(1.0);
    let label = format!("part of the variance of {} (%)", groups::label(wish.metric));
    Ok(Figure {
        title: None,
        x: Axis { label, scale: Scale::Linear(0.0, greatest * 1.03) },
        y: Axis { label: String::new(), scale: Scale::Words(words) },
        body: Body::Bars(bars),
        caption,
    })
}
