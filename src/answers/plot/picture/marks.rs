//! What is between the axes.

use super::area::Area;
use super::font::Font;
use super::svg::{Anchor, Extent, INK, Position, Stroke, Svg, hex};
use crate::answers::plot::axis::{self, Axis, Scale};
use crate::answers::plot::{Body, Figure, Line, Look, Sample};

/// The colours of Okabe and Ito, which people with any kind of colour vision can tell apart; without yellow, which is pale
/// on paper.
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

/// The colours of values from the least to the greatest (viridis): even in grey, and for any kind of colour vision.
pub(super) const SHADES: [[u8; 3]; 11] = [
    [0x44, 0x01, 0x54],
    [0x48, 0x24, 0x75],
    [0x41, 0x44, 0x87],
    [0x35, 0x5f, 0x8d],
    [0x2a, 0x78, 0x8e],
    [0x21, 0x91, 0x8c],
    [0x22, 0xa8, 0x84],
    [0x44, 0xbf, 0x70],
    [0x7a, 0xd1, 0x51],
    [0xbd, 0xdf, 0x26],
    [0xfd, 0xe7, 0x25],
];

/// Lines behind others, what is ideal, and cells without a value.
const BEHIND: Stroke = Stroke::solid("#bbbbbb", 0.5);
const IDEAL: Stroke = Stroke { colour: "#777777", width: 0.8, dash: "3 2" };
const EMPTY: &str = "#f2f2f2";

/// Most numbers of a sample that are drawn beside its box.
const MOST_POINTS: usize = 20;

/// The size of the numbers in cells.
const NUMBER: f64 = 6.0;

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// The colour of a place between the least and the greatest value.
fn shade(place: f64) -> [u8; 3] {
    let position = place.clamp(0.0, 1.0) * (SHADES.len() - 1) as f64;
    let below = (position.floor() as usize).min(SHADES.len() - 2);
    let fraction = position - below as f64;
    std::array::from_fn(|i| {
        let (a, b) = (f64::from(SHADES[below][i]), f64::from(SHADES[below + 1][i]));
        (a + (b - a) * fraction).round() as u8
    })
}

/// Draws what is between the axes.
pub(super) fn draw(figure: &Figure, area: &Area, font: &Font, svg: &mut Svg) {
    match &figure.body {
        Body::Lines { lines, .. } => {
            svg.clip(Position(area.left, area.top), Extent(area.width, area.height));
            let point_at = |x: f64, y: f64| {
                Position(area.x(figure.x.scale.place(x)), area.y(figure.y.scale.place(y)))
            };
            // The first lines are the ones that matter: they are drawn last.
            let rank = |line: &&Line| match line.look {
                Look::Ideal => 0,
                Look::Behind => 1,
                Look::Colour(n) | Look::Marked(n) => 1000 - n,
            };
            let mut order: Vec<&Line> = lines.iter().collect();
            order.sort_by_key(rank);
            order.iter().for_each(|line| around(line, &figure.y.scale, point_at, svg));
            order.iter().for_each(|line| path(line, point_at, svg));
            svg.unclip();
            // Marks at the edge are whole.
            order.iter().for_each(|line| points(line, point_at, svg));
        }
        Body::Cells { rows, values, best } => cells(rows, values, *best, area, font, svg),
        Body::Boxes(samples) => {
            let slot = area.width / samples.len().max(1) as f64;
            for (at, sample) in samples.iter().enumerate() {
                let x = area.x(figure.x.scale.place(at as f64));
                distribution(
                    sample,
                    x,
                    (slot * 0.55).min(20.0),
                    |value| area.y(figure.y.scale.place(value)),
                    svg,
                );
            }
        }
        Body::Bars(bars) => {
            let slot = area.height / bars.len().max(1) as f64;
            for (at, (value, ends)) in bars.iter().enumerate() {
                let y = area.top + (at as f64 + 0.5) * slot;
                let x = |value: f64| area.x(figure.x.scale.place(value));
                let height = (slot * 0.6).min(12.0);
                svg.rect(
                    Position(area.left, y - height / 2.0),
                    Extent(x(*value) - area.left, height),
                    COLOURS[0],
                    None,
                );
                if let Some([low, high]) = ends {
                    let stroke = Stroke::solid(INK, 0.8);
                    svg.line(Position(x(*low), y), Position(x(*high), y), stroke);
                    for end in [low, high] {
                        svg.line(Position(x(*end), y - 2.0), Position(x(*end), y + 2.0), stroke);
                    }
                }
            }
        }
    }
}

/// What is around the means of a line: a band, or bars at marks. A logarithmic axis cuts what is not above zero.
fn around(line: &Line, scale: &Scale, place: impl Fn(f64, f64) -> Position, svg: &mut Svg) {
    let least = match scale {
        Scale::Log(from, ..) => from / 1e3,
        _ => f64::NEG_INFINITY,
    };
    let ends = |low: f64, high: f64| (low.max(least), high);
    match line.look {
        Look::Colour(number) => {
            // Where one trial is left, the band has no width.
            if line.points.iter().any(|point| point.ends.is_some()) {
                let (above, below): (Vec<_>, Vec<_>) = line
                    .points
                    .iter()
                    .map(|p| {
                        let [low, high] = p.ends.unwrap_or([p.y, p.y]);
                        let (low, high) = ends(low, high);
                        (place(p.x, high), place(p.x, low))
                    })
                    .unzip();
                let outline: Vec<Position> =
                    above.into_iter().chain(below.into_iter().rev()).collect();
                svg.polygon(&outline, colour(number), 0.18);
            }
        }
        Look::Marked(number) => {
            for (point, [low, high]) in line.points.iter().filter_map(|p| Some((p, p.ends?))) {
                let (low, high) = ends(low, high);
                let (from, to) = (place(point.x, low), place(point.x, high));
                let stroke = Stroke::solid(colour(number), 0.7);
                svg.line(from, to, stroke);
                for Position(x, y) in [from, to] {
                    svg.line(Position(x - 1.6, y), Position(x + 1.6, y), stroke);
                }
            }
        }
        Look::Behind | Look::Ideal => {}
    }
}

fn path(line: &Line, place: impl Fn(f64, f64) -> Position, svg: &mut Svg) {
    let points: Vec<Position> = line.points.iter().map(|p| place(p.x, p.y)).collect();
    svg.polyline(&points, stroke(line.look));
}

fn points(line: &Line, place: impl Fn(f64, f64) -> Position, svg: &mut Svg) {
    if let Look::Marked(number) = line.look {
        for point in &line.points {
            mark(place(point.x, point.y), number, svg);
        }
    }
}

fn stroke(look: Look) -> Stroke<'static> {
    match look {
        Look::Colour(number) => Stroke::solid(colour(number), 1.1),
        Look::Marked(number) => Stroke::solid(colour(number), 0.9),
        Look::Behind => BEHIND,
        Look::Ideal => IDEAL,
    }
}

/// A mark whose form tells lines apart without colours, too.
fn mark(Position(x, y): Position, number: usize, svg: &mut Svg) {
    let fill = colour(number);
    match number % 3 {
        0 => svg.circle(Position(x, y), 1.9, fill, 1.0),
        1 => svg.rect(Position(x - 1.7, y - 1.7), Extent(3.4, 3.4), fill, None),
        _ => svg.polygon(
            &[Position(x, y - 2.2), Position(x + 2.1, y + 1.6), Position(x - 2.1, y + 1.6)],
            fill,
            1.0,
        ),
    }
}

/// The sign of a line in the legend, from this place to the right.
pub(super) fn swatch(Position(x, y): Position, width: f64, look: Look, svg: &mut Svg) {
    svg.line(Position(x, y), Position(x + width, y), stroke(look));
    if let Look::Marked(number) = look {
        mark(Position(x + width / 2.0, y), number, svg);
    }
}

fn cells(
    rows: &[Vec<Option<f64>>],
    values: &Axis,
    best: Option<(usize, usize)>,
    area: &Area,
    font: &Font,
    svg: &mut Svg,
) {
    let columns = rows.first().map_or(1, Vec::len).max(1);
    let (width, height) = (area.width / columns as f64, area.height / rows.len().max(1) as f64);
    let unit = 10f64.powi(values.scale.exponent());
    let all_values = || rows.iter().flatten().flatten();
    let enough = axis::digits_between(all_values().map(|value| value / unit));
    let label = |value: f64| axis::digits(value / unit, enough);
    let widest = all_values().map(|v| font.width(&label(*v), NUMBER)).fold(0.0, f64::max);
    let has_numbers = widest + 2.0 <= width && NUMBER + 2.0 <= height;
    let corner = |x: usize, y: usize| {
        (area.left + x as f64 * width, area.top + (rows.len() - 1 - y) as f64 * height)
    };
    for (y, row) in rows.iter().enumerate() {
        for (x, value) in row.iter().enumerate() {
            let (left, top) = corner(x, y);
            // A stroke of its own colour leaves no seam to the next cell.
            let fill = value
                .map_or_else(|| EMPTY.to_owned(), |value| hex(shade(values.scale.place(value))));
            svg.rect(
                Position(left, top),
                Extent(width, height),
                &fill,
                Some(Stroke::solid(&fill, 0.2)),
            );
            if let Some(value) = value.filter(|_| has_numbers) {
                let ink = if values.scale.place(value) < 0.55 { "#fff" } else { INK };
                let label_place = Position(left + width / 2.0, top + height / 2.0 + NUMBER * 0.36);
                svg.text(label_place, Anchor::Middle, NUMBER, 0.0, ink, &label(value));
            }
        }
    }
    if let Some((x, y)) = best {
        let (left, top) = corner(x, y);
        svg.rect(
            Position(left + 0.7, top + 0.7),
            Extent(width - 1.4, height - 1.4),
            "none",
            Some(Stroke::solid("#D55E00", 1.4)),
        );
    }
}

fn distribution(sample: &Sample, x: f64, width: f64, y: impl Fn(f64) -> f64, svg: &mut Svg) {
    let (half, ink) = (width / 2.0, COLOURS[0]);
    let quartiles = sample.quartiles();
    if let Some([least, low, _, high, greatest]) = quartiles {
        let thin = Stroke::solid(ink, 0.8);
        svg.line(Position(x, y(least)), Position(x, y(low)), thin);
        svg.line(Position(x, y(high)), Position(x, y(greatest)), thin);
        for end in [least, greatest] {
            svg.line(Position(x - half * 0.5, y(end)), Position(x + half * 0.5, y(end)), thin);
        }
        svg.rect(
            Position(x - half, y(high)),
            Extent(width, y(low) - y(high)),
            "#d6e6f2",
            Some(thin),
        );
    }
    let has_room = sample.values.len() <= MOST_POINTS;
    let is_out = |value: f64| {
        quartiles.is_none_or(|[least, _, _, _, greatest]| value < least || value > greatest)
    };
    for (at, value) in
        sample.values.iter().enumerate().filter(|(_, value)| has_room || is_out(**value))
    {
        // Neighbours lie beside each other: multiples of the golden ratio are spread evenly.
        let aside = match sample.values.len() {
            1 => 0.0,
            _ if !has_room => 0.0,
            _ => ((at as f64 * 0.618_034).fract() - 0.5) * width * 0.6,
        };
        svg.circle(Position(x + aside, y(*value)), 1.2, ink, 0.6);
    }
    if sample.values.len() > 1 {
        let median = y(sample.quantile(0.5));
        svg.line(Position(x - half, median), Position(x + half, median), Stroke::solid(INK, 1.2));
    }
}
