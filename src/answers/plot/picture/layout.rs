//! Where title, legend, axes and what is between them are. Nothing lies above data: the legend has lines of its own, and labels
//! that would overlap are turned or thinned out.

use super::area::Area;
use super::font::Font;
use super::marks;
use super::svg::{Anchor, Extent, INK, Position, Stroke, Svg};
use crate::answers::plot::axis::{self, Axis, Scale, Tick};
use crate::answers::plot::{Body, Figure, Line, Look, Size};
use crate::base::fault::Fault;

/// Heights of letters in points: of the title, of labels and of ticks.
const TITLE: f64 = 8.5;
const LABEL: f64 = 7.5;
const TICK: f64 = 7.0;

/// The space below a title.
const BELOW_TITLE: f64 = 1.5;

/// The edge of a picture that stays free.
const PAD: f64 = 3.0;

/// The length of ticks, and of those without a label.
const MARK: f64 = 2.5;
const SMALL_MARK: f64 = 1.5;

/// From a tick to its label.
const GAP: f64 = 1.5;

/// The height of capital letters as a part of their size.
const CAPITAL: f64 = 0.72;

/// The height of a row of the legend, the line before a label, and the space behind it.
const LEGEND_ROW: f64 = 10.0;
const SWATCH: f64 = 12.0;
const BEHIND_ENTRY: f64 = 9.0;

/// The bar of colours: space before it, and its width.
const BAR: [f64; 2] = [6.0, 7.0];

/// The least room for what is between the axes.
const LEAST: [f64; 2] = [50.0, 30.0];

/// The sine and cosine of 45 degrees.
const TURNED: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// What is around the area.
struct Around {
    title: Vec<String>,
    legend: Vec<Vec<Entry>>,
    left: f64,
    right: f64,
    top: f64,
    below: f64,
    x: Labels,
    y: Vec<Tick>,
    values: Vec<Tick>,
}

/// The ticks of the axis to the right, and whether their labels are turned.
struct Labels {
    ticks: Vec<Tick>,
    turned: bool,
}

/// A line of the legend; a title has no line.
struct Entry {
    at: f64,
    look: Option<Look>,
    label: String,
}

/// Draws a figure.
///
/// # Errors
/// When it is too small for what is in it.
pub(super) fn draw(figure: &Figure, size: Size, font: &Font) -> Result<Svg, Fault> {
    let mut rows = 5;
    let mut around = Around::measure(figure, size.width, rows, font);
    let mut area = around.area(figure, size)?;
    // The number of ticks upwards follows the height, which follows the width that the ticks' labels leave.
    rows = ((area.height / 18.0) as usize).clamp(2, 8);
    around = Around::measure(figure, size.width, rows, font);
    area = around.area(figure, size)?;
    let height = area.top + area.height + around.below;
    let mut svg = Svg::new(size.width, height);
    around.text(figure, &area, size.width, font, &mut svg);
    marks::draw(figure, &area, font, &mut svg);
    axes(figure, &around, &area, font, &mut svg);
    Ok(svg)
}

/// The width of the widest label in points; 0 without ticks.
fn widest(ticks: &[Tick], font: &Font) -> f64 {
    ticks.iter().map(|tick| font.width(&tick.label, TICK)).fold(0.0, f64::max)
}

impl Around {
    fn measure(figure: &Figure, width: f64, rows: usize, font: &Font) -> Self {
        let inner = width - 2.0 * PAD;
        let title = figure
            .title
            .iter()
            .flat_map(|text| font.lines(text, TITLE, inner, 3))
            .collect::<Vec<_>>();
        let mut y = figure.y.scale.ticks(rows);
        for tick in &mut y {
            tick.label = font.fit(&tick.label, TICK, width * 0.4);
        }
        let y_label = if figure.y.label.is_empty() { 0.0 } else { LABEL + 3.0 };
        let mut margin_left = PAD + y_label + widest(&y, font) + GAP + MARK;
        let (mut right, mut values) = (PAD, Vec::new());
        if let Body::Cells { values: axis, .. } = &figure.body {
            values = axis.scale.ticks(5);
            right += BAR[0] + BAR[1] + MARK + GAP + widest(&values, font) + 3.0 + LABEL;
        }
        let x = Labels::fitting(&figure.x.scale, width - margin_left - right, font);
        if let Some(last) = x.ticks.last().filter(|_| !x.turned) {
            let beyond = font.width(&last.label, TICK) / 2.0
                - (1.0 - last.place) * (width - margin_left - right);
            right = right.max(PAD + beyond);
        }
        if x.turned {
            // The first labels begin to the left of the axis.
            let area = width - margin_left - right;
            let beyond =
                x.ticks.iter().map(|t| font.width(&t.label, TICK) * TURNED - t.place * area);
            margin_left = margin_left.max(PAD + beyond.fold(0.0, f64::max));
        }
        let legend = legend(figure, width - margin_left - PAD, font);
        let title_height = match title.len() {
            0 => 0.0,
            lines => lines as f64 * TITLE * 1.25 + BELOW_TITLE,
        };
        let above = title_height + legend.len() as f64 * LEGEND_ROW;
        let space = if above > 0.0 { 3.0 } else { 0.0 };
        let colours = match &figure.body {
            Body::Cells { values, .. } => values.scale.exponent(),
            _ => 0,
        };
        let has_factor = figure.y.scale.exponent() != 0 || colours != 0;
        let factor = if has_factor { TICK + 2.0 } else { 0.0 };
        let top = PAD + above + space + factor.max(TICK / 2.0);
        let labels = match x.turned {
            true => (widest(&x.ticks, font) + TICK * CAPITAL) * TURNED,
            false => TICK * CAPITAL,
        };
        let x_label = if figure.x.label.is_empty() { 0.0 } else { LABEL + 3.5 };
        let factor = if figure.x.scale.exponent() != 0 { TICK } else { 0.0 };
        let below = MARK + GAP + labels + x_label.max(factor) + PAD;
        Self { title, legend, left: margin_left, right, top, below, x, y, values }
    }

    /// The rectangle that is left.
    fn area(&self, figure: &Figure, size: Size) -> Result<Area, Fault> {
        let width = size.width - self.left - self.right;
        let suits = match &figure.body {
            Body::Cells { rows, .. } => {
                let columns = rows.first().map_or(1, Vec::len).max(1) as f64;
                let rows = rows.len().max(1) as f64;
                let max_height = (width * 1.2 / rows).clamp(9.0, 26.0);
                rows * (width / columns * 0.8).clamp(9.0, max_height)
            }
            Body::Bars(bars) => bars.len() as f64 * 13.0 + 4.0,
            _ => width * 0.62,
        };
        let height =
            size.height.map_or(suits.max(LEAST[1]), |height| height - self.top - self.below);
        if width < LEAST[0] || height < LEAST[1] {
            return Err(Fault::request(
                "the picture is too small for its labels and what is to be seen",
            )
            .hint(
                "make it larger, 85 mm is the width of a column: `--width 85mm`, `--height 60mm`",
            ));
        }
        Ok(Area { left: self.left, top: self.top, width, height })
    }

    /// Title, legend and the labels of axes.
    fn text(&self, figure: &Figure, area: &Area, width: f64, font: &Font, svg: &mut Svg) {
        let mut y = PAD;
        for line in &self.title {
            y += TITLE;
            svg.text(Position(width / 2.0, y), Anchor::Middle, TITLE, 0.0, INK, line);
            y += TITLE * 0.25;
        }
        y += if self.title.is_empty() { 0.0 } else { BELOW_TITLE };
        for row in &self.legend {
            for entry in row {
                let entry_x = area.left + entry.at;
                let text = if entry.look.is_some() { entry_x + SWATCH + 3.0 } else { entry_x };
                if let Some(look) = entry.look {
                    marks::swatch(Position(entry_x, y + LEGEND_ROW / 2.0), SWATCH, look, svg);
                }
                svg.text(
                    Position(text, y + LEGEND_ROW / 2.0 + TICK * CAPITAL / 2.0),
                    Anchor::Start,
                    TICK,
                    0.0,
                    INK,
                    &entry.label,
                );
            }
            y += LEGEND_ROW;
        }
        let bottom = area.top + area.height + self.below - PAD - 1.5;
        // An axis of few words has its label in the middle, and one with a power of ten leaves room for it.
        svg_label(&figure.x, Position(area.x(0.5), bottom), 0.0, area.width, font, svg);
        svg_label(
            &figure.y,
            Position(PAD + LABEL * CAPITAL, area.y(0.5)),
            -90.0,
            area.height + 2.0 * area.top.min(8.0),
            font,
            svg,
        );
    }
}

fn svg_label(axis: &Axis, place: Position, turn: f64, room: f64, font: &Font, svg: &mut Svg) {
    if !axis.label.is_empty() {
        let text = font.fit(&axis.label, LABEL, room);
        svg.text(place, Anchor::Middle, LABEL, turn, INK, &text);
    }
}

impl Labels {
    /// Labels that do not overlap in this width: numbers are thinned out, words turned.
    fn fitting(scale: &Scale, width: f64, font: &Font) -> Self {
        let mut max_ticks = ((width / 30.0) as usize).clamp(2, 10);
        loop {
            let mut ticks = scale.ticks(max_ticks);
            if overlap_at(&ticks, width, font) <= 1 {
                return Self { ticks, turned: false };
            }
            if !matches!(scale, Scale::Words(_)) && max_ticks > 2 {
                max_ticks -= 1;
                if !matches!(scale, Scale::Log(_, _, at) if !at.is_empty()) {
                    continue;
                }
            }
            let is_number =
                |tick: &Tick| tick.label.replace('\u{2212}', "-").parse::<f64>().is_ok();
            let turned = !ticks.iter().all(|tick| tick.label.is_empty() || is_number(tick));
            if turned {
                for tick in &mut ticks {
                    tick.label = font.fit(&tick.label, TICK, 70.0);
                }
                return Self { ticks, turned };
            }
            let every = overlap_at(&ticks, width, font);
            let hidden = ticks.iter_mut().enumerate().filter(|(at, _)| at % every != 0);
            hidden.for_each(|(_, tick)| tick.label = String::new());
            return Self { ticks, turned };
        }
    }
}

/// The least number of ticks from one label to the next at which labels do not overlap; 1 if none does.
fn overlap_at(ticks: &[Tick], width: f64, font: &Font) -> usize {
    let named: Vec<&Tick> = ticks.iter().filter(|tick| !tick.label.is_empty()).collect();
    let half = |tick: &Tick| font.width(&tick.label, TICK) / 2.0;
    let fits = |every: usize| {
        let kept_ticks: Vec<&&Tick> = named.iter().step_by(every).collect();
        kept_ticks
            .windows(2)
            .all(|two| (two[1].place - two[0].place) * width >= half(two[0]) + half(two[1]) + 3.0)
    };
    (1..named.len().max(2)).find(|every| fits(*every)).unwrap_or(named.len().max(1))
}

/// The lines of the legend, in rows of this width: none for one line without others.
fn legend(figure: &Figure, width: f64, font: &Font) -> Vec<Vec<Entry>> {
    let Body::Lines { lines, legend } = &figure.body else { return Vec::new() };
    let mut named: Vec<&Line> = lines.iter().filter(|line| line.look != Look::Behind).collect();
    // What is ideal is said once, behind what was measured.
    named.sort_by_key(|line| line.look == Look::Ideal);
    let mut has_ideal = false;
    named.retain(|line| line.look != Look::Ideal || !std::mem::replace(&mut has_ideal, true));
    if named.len() < 2 {
        return Vec::new();
    }
    let title = legend.as_ref().map(|title| font.fit(title, TICK, width / 3.0));
    let indent = title.as_ref().map_or(0.0, |title| font.width(title, TICK) + 6.0);
    let room = width - indent;
    let labels: Vec<String> =
        named.iter().map(|line| font.fit(&line.label, TICK, room - SWATCH - 3.0)).collect();
    let widths: Vec<f64> =
        labels.iter().map(|label| SWATCH + 3.0 + font.width(label, TICK) + BEHIND_ENTRY).collect();
    let is_one_row = widths.iter().sum::<f64>() - BEHIND_ENTRY <= room;
    let widest = widths.iter().copied().fold(0.0, f64::max);
    // Several rows have columns.
    let columns = match is_one_row {
        true => named.len(),
        false => (((room + BEHIND_ENTRY) / widest).floor() as usize).max(1),
    };
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    for (place, (line, label)) in named.iter().zip(labels).enumerate() {
        let column = place % columns;
        if column == 0 {
            rows.push(Vec::new());
        }
        let entry_x = match is_one_row {
            true => widths[..place].iter().sum(),
            false => column as f64 * widest,
        };
        if let Some(row) = rows.last_mut() {
            row.push(Entry { at: indent + entry_x, look: Some(line.look), label });
        }
    }
    if let (Some(label), Some(first)) = (title, rows.first_mut()) {
        first.insert(0, Entry { at: 0.0, look: None, label });
    }
    rows
}

/// The lines of the axes with their ticks, and the bar of colours.
fn axes(figure: &Figure, around: &Around, area: &Area, font: &Font, svg: &mut Svg) {
    let thin = Stroke::solid(INK, 0.6);
    let (left, bottom) = (area.left, area.y(0.0));
    let is_grid = matches!(figure.body, Body::Cells { .. });
    if !is_grid {
        svg.line(Position(left, area.top), Position(left, bottom), thin);
        svg.line(Position(left, bottom), Position(area.x(1.0), bottom), thin);
    }
    let has_marks = |scale: &Scale| !matches!(scale, Scale::Words(_));
    for tick in &around.x.ticks {
        let x = area.x(tick.place);
        let mark = if tick.label.is_empty() { SMALL_MARK } else { MARK };
        if has_marks(&figure.x.scale) {
            svg.line(Position(x, bottom), Position(x, bottom + mark), thin);
        }
        let y = bottom + MARK + GAP + TICK * CAPITAL;
        match around.x.turned {
            _ if tick.label.is_empty() => {}
            true => {
                svg.text(Position(x + TICK * 0.3, y), Anchor::End, TICK, -45.0, INK, &tick.label)
            }
            false => svg.text(Position(x, y), Anchor::Middle, TICK, 0.0, INK, &tick.label),
        }
    }
    let row = area.height / around.y.len().max(1) as f64;
    let every = (TICK / row).ceil().max(1.0) as usize;
    for (at, tick) in around.y.iter().enumerate() {
        let is_word = !has_marks(&figure.y.scale);
        // Bars are listed from above.
        let y_place =
            if matches!(figure.body, Body::Bars(_)) { 1.0 - tick.place } else { tick.place };
        let y = area.y(y_place);
        let mark = if tick.label.is_empty() { SMALL_MARK } else { MARK };
        if !is_word {
            svg.line(Position(left - mark, y), Position(left, y), thin);
        }
        let is_hidden = tick.label.is_empty() || is_word && at % every != 0;
        if !is_hidden {
            let label_place = Position(left - MARK - GAP, y + TICK * CAPITAL / 2.0);
            svg.text(label_place, Anchor::End, TICK, 0.0, INK, &tick.label);
        }
    }
    let times = |exponent: i32| format!("×{}", axis::power(1, exponent));
    if figure.y.scale.exponent() != 0 {
        let exponent_place = Position(left, area.top - 4.0);
        svg.text(exponent_place, Anchor::Start, TICK, 0.0, INK, &times(figure.y.scale.exponent()));
    }
    if figure.x.scale.exponent() != 0 {
        let exponent_place =
            Position(area.x(1.0), area.top + area.height + around.below - PAD - 1.5);
        svg.text(exponent_place, Anchor::End, TICK, 0.0, INK, &times(figure.x.scale.exponent()));
    }
    if let Body::Cells { values, .. } = &figure.body {
        bar(values, &around.values, area, font, svg);
    }
}

/// The bar of colours beside a heat map.
fn bar(values: &Axis, ticks: &[Tick], area: &Area, font: &Font, svg: &mut Svg) {
    let bar_left = area.x(1.0) + BAR[0];
    let right = bar_left + BAR[1];
    svg.gradient("values", &marks::SHADES);
    svg.rect(Position(bar_left, area.top), Extent(BAR[1], area.height), "url(#values)", None);
    for tick in ticks {
        let y = area.y(tick.place);
        let mark = if tick.label.is_empty() { SMALL_MARK } else { MARK };
        svg.line(Position(right, y), Position(right + mark, y), Stroke::solid(INK, 0.6));
        svg.text(
            Position(right + MARK + GAP, y + TICK * CAPITAL / 2.0),
            Anchor::Start,
            TICK,
            0.0,
            INK,
            &tick.label,
        );
    }
    let exponent = values.scale.exponent();
    if exponent != 0 {
        let exponent_place =
            Position(right + MARK + GAP + widest(ticks, font) + 3.0 + LABEL, area.top - 4.0);
        svg.text(
            exponent_place,
            Anchor::End,
            TICK,
            0.0,
            INK,
            &format!("×{}", axis::power(1, exponent)),
        );
    }
    let x = right + MARK + GAP + widest(ticks, font) + 3.0 + LABEL * CAPITAL;
    svg_label(values, Position(x, area.y(0.5)), -90.0, area.height + 8.0, font, svg);
}
