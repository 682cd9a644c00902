//! Figures as text: braille and blocks. Nothing depends on colours, which only help: lines end in letters of the legend.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line as Segment, Points};
use unicode_width::UnicodeWidthStr;

use super::axis::{Scale, digits, digits_between, power};
use super::{Axis, Body, Figure, Line, Look, Sample};
use crate::base::words::printable;

/// The room that a figure has, in letters, and whether it may have colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) width: usize,
    /// Rows of lines; other kinds have as many as they have values.
    pub(crate) height: usize,
    pub(crate) colour: bool,
}

/// Colours that terminals have.
const COLOURS: [Color; 7] = [
    Color::Blue,
    Color::Red,
    Color::Green,
    Color::Magenta,
    Color::Yellow,
    Color::Cyan,
    Color::Reset,
];

/// Widest labels of an axis upwards.
const LABEL: usize = 24;

/// The least width of what is between the axes.
const LEAST: usize = 8;

/// From the least to the greatest value of a heat map.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Parts of a letter, from the left.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A page of letters.
struct Page {
    cells: Buffer,
}

impl Page {
    fn new(width: usize, height: usize) -> Self {
        let size = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        // A buffer has less than 2^16 cells.
        let width = size(width).clamp(1, 1000);
        let height = size(height).clamp(1, 65_000 / width);
        Self { cells: Buffer::empty(Rect { x: 0, y: 0, width, height }) }
    }

    /// Writes a text from a place on; what goes beyond the page is left out.
    fn write(&mut self, x: usize, y: usize, text: &str, style: Style) {
        let (x, y) = (u16::try_from(x).unwrap_or(u16::MAX), u16::try_from(y).unwrap_or(u16::MAX));
        if x < self.cells.area.width && y < self.cells.area.height {
            self.cells.set_string(x, y, printable(text), style);
        }
    }

    /// A text that ends before a place.
    fn write_before(&mut self, end: usize, y: usize, text: &str) {
        self.write(end.saturating_sub(text.width()), y, text, Style::new());
    }

    /// The lines, without spaces at their ends.
    fn text(&self, colour: bool) -> String {
        let Rect { width, height, .. } = self.cells.area;
        let mut out = String::new();
        for y in 0..height {
            let (mut line, mut now, mut x) = (String::new(), Color::Reset, 0);
            while x < width {
                let cell = &self.cells[(x, y)];
                let wanted = if colour && cell.symbol() != " " { cell.fg } else { Color::Reset };
                if wanted != now {
                    line.push_str(&code(wanted));
                    now = wanted;
                }
                line.push_str(cell.symbol());
                x += u16::try_from(cell.symbol().width()).unwrap_or(1).max(1);
            }
            if now != Color::Reset {
                line.push_str(&code(Color::Reset));
            }
            // An empty cell of braille is a space to the eye.
            out.push_str(line.trim_end_matches([' ', '\u{2800}']));
            out.push('\n');
        }
        out
    }
}

fn code(colour: Color) -> String {
    let number = match colour {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::DarkGray => 90,
        _ => 0,
    };
    format!("\u{1b}[{number}m")
}

fn style(colour: Color) -> Style {
    Style::new().fg(colour)
}

/// A figure as lines of text.
pub(crate) fn draw(figure: &Figure, room: Room) -> String {
    let mut out = String::new();
    if let Some(title) = &figure.title {
        out.push_str(&format!("{}\n", printable(title)));
    }
    out.push_str(&match &figure.body {
        Body::Lines { lines, legend } => curves(figure, lines, legend.as_deref(), room),
        Body::Cells { rows, values, best } => cells(figure, rows, values, *best, room),
        Body::Boxes(samples) => boxes(figure, samples, room),
        Body::Bars(all) => bars(figure, all, room),
    });
    for sentence in &figure.caption {
        out.push_str(&format!("{}\n", printable(sentence)));
    }
    out
}

/// What an axis shows, with the power of ten of its labels.
fn named(axis: &Axis) -> String {
    match axis.scale.exponent() {
        0 => axis.label.clone(),
        exponent => format!("{} ×{}", axis.label, power(1, exponent)),
    }
}

/// The letter of a line.
fn letter(number: usize) -> char {
    char::from_u32('a' as u32 + u32::try_from(number).unwrap_or(0)).unwrap_or('?')
}

fn colour_of(look: Look) -> Color {
    match look {
        Look::Colour(number) | Look::Marked(number) => COLOURS[number % COLOURS.len()],
        Look::Behind | Look::Ideal => Color::DarkGray,
    }
}

fn curves(figure: &Figure, lines: &[Line], legend: Option<&str>, room: Room) -> String {
    let rows = room.height.max(6);
    let ticks = figure.y.scale.ticks((rows / 3).clamp(2, 6));
    let margin_left = ticks.iter().map(|tick| tick.label.width()).max().unwrap_or(0).min(LABEL) + 1;
    let width = room.width.saturating_sub(margin_left + 2).max(LEAST);
    let shown: Vec<&Line> = lines.iter().filter(|line| colour_number(line).is_some()).collect();
    let entries = if shown.len() > 1 { shown.len() } else { 0 };
    let mut page = Page::new(margin_left + width + 2, rows + 4 + entries);
    page.write(0, 0, &named(&figure.y), Style::new());
    for y in 0..rows {
        page.write(margin_left, y + 1, "│", Style::new());
    }
    for tick in &ticks {
        let y = row(tick.place, rows);
        if !tick.label.is_empty() {
            page.write_before(margin_left, y + 1, &tick.label);
            page.write(margin_left, y + 1, "┤", Style::new());
        }
    }
    let position = |x: f64, y: f64| (figure.x.scale.place(x), figure.y.scale.place(y));
    let area = Rect { x: margin_left as u16 + 1, y: 1, width: width as u16, height: rows as u16 };
    let canvas =
        Canvas::default().marker(Marker::Braille).x_bounds([0.0, 1.0]).y_bounds([0.0, 1.0]).paint(
            |context| {
                // What matters most is drawn last.
                let rank = |line: &&Line| colour_number(line).map_or(0, |number| 1000 - number);
                let mut order: Vec<&Line> = lines.iter().collect();
                order.sort_by_key(rank);
                for line in order {
                    let color = colour_of(line.look);
                    for two in line.points.windows(2) {
                        let ((x1, y1), (x2, y2)) =
                            (position(two[0].x, two[0].y), position(two[1].x, two[1].y));
                        match line.look {
                            Look::Ideal => {
                                let dot = |i: u32| {
                                    let step = f64::from(i) / 40.0;
                                    (x1 + (x2 - x1) * step, y1 + (y2 - y1) * step)
                                };
                                let dots: Vec<(f64, f64)> = (0..=40).map(dot).collect();
                                context.draw(&Points { coords: &dots, color });
                            }
                            _ => context.draw(&Segment { x1, y1, x2, y2, color }),
                        }
                    }
                    if line.points.len() == 1 {
                        let (x, y) = position(line.points[0].x, line.points[0].y);
                        context.draw(&Points { coords: &[(x, y)], color });
                    }
                }
            },
        );
    canvas.render(area.intersection(page.cells.area), &mut page.cells);
    if entries > 0 {
        let mut used_rows = Vec::new();
        for line in &shown {
            let (Some(last), Some(number)) = (line.points.last(), colour_number(line)) else {
                continue;
            };
            let (x, y) = position(last.x, last.y);
            let x = ((x * width as f64) as usize).min(width - 1);
            let y = free(row(y, rows), rows, &used_rows, x);
            used_rows.push((x, y));
            page.write(
                margin_left + 2 + x,
                y + 1,
                &letter(number).to_string(),
                style(colour_of(line.look)),
            );
        }
    }
    bottom(&mut page, &figure.x, margin_left, width, rows + 1);
    if entries > 0 {
        for (at, line) in shown.iter().enumerate() {
            let Some(number) = colour_number(line) else { continue };
            let legend_name = legend.map_or_else(String::new, |name| format!("{name} = "));
            let y = rows + 4 + at;
            page.write(margin_left, y, &letter(number).to_string(), style(colour_of(line.look)));
            page.write(margin_left + 2, y, &format!("{legend_name}{}", line.label), Style::new());
        }
    }
    let mut text = page.text(room.colour);
    if lines.iter().any(|line| line.look == Look::Ideal) {
        text.push_str("dots: ideal scaling\n");
    }
    text
}

/// The number of a line that has a colour and a letter.
fn colour_number(line: &Line) -> Option<usize> {
    match line.look {
        Look::Colour(number) | Look::Marked(number) => Some(number),
        Look::Behind | Look::Ideal => None,
    }
}

/// The row of a place from 0 to 1 upwards, from above.
fn row(place: f64, rows: usize) -> usize {
    let from_above = (1.0 - place.clamp(0.0, 1.0)) * (rows - 1) as f64;
    from_above.round() as usize
}

/// The next row in this column that has no letter yet.
fn free(y: usize, rows: usize, taken: &[(usize, usize)], x: usize) -> usize {
    let near = (0..rows).flat_map(|far| [y.checked_sub(far), Some(y + far)]).flatten();
    let mut free = near.filter(|y| *y < rows && !taken.contains(&(x, *y)));
    free.next().unwrap_or(y)
}

/// The axis to the right, its labels and its name, in three rows.
fn bottom(page: &mut Page, axis: &Axis, left: usize, width: usize, y: usize) {
    page.write(left, y, &format!("└{}", "─".repeat(width)), Style::new());
    let mut end = 0;
    for tick in axis.scale.ticks((width / 10).clamp(2, 10)) {
        let tick_column =
            left + 1 + ((tick.place.clamp(0.0, 1.0) * width as f64) as usize).min(width - 1);
        if tick.label.is_empty() {
            continue;
        }
        let label_start = tick_column.saturating_sub(tick.label.width() / 2);
        if label_start < end {
            continue;
        }
        page.write(tick_column, y, "┬", Style::new());
        page.write(label_start, y + 1, &tick.label, Style::new());
        end = label_start + tick.label.width() + 1;
    }
    let name = named(axis);
    page.write((left + 1 + width).saturating_sub(name.width()), y + 2, &name, Style::new());
}

/// The words of an axis and the width of the widest.
fn words(axis: &Axis) -> (Vec<String>, usize) {
    let Scale::Words(words) = &axis.scale else { return (Vec::new(), 0) };
    let words: Vec<String> =
        words.iter().map(|word| crate::base::words::short(word, LABEL)).collect();
    let width = words.iter().map(|word| word.width()).max().unwrap_or(0);
    (words, width)
}

fn cells(
    figure: &Figure,
    rows: &[Vec<Option<f64>>],
    values: &Axis,
    best: Option<(usize, usize)>,
    room: Room,
) -> String {
    let (columns, widest) = words(&figure.x);
    let (names, _) = words(&figure.y);
    let widest_label = names
        .iter()
        .map(|n| n.width())
        .chain([figure.y.label.width(), figure.x.label.width()])
        .max();
    let margin_left = widest_label.unwrap_or(0) + 2;
    let unit = 10f64.powi(values.scale.exponent());
    let all_values = || rows.iter().flatten().flatten().copied();
    let enough = digits_between(all_values().map(|value| value / unit));
    let text = |value: f64| digits(value / unit, enough);
    let numbers = all_values().map(|value| text(value).width());
    // Two letters of shade, the number, a mark and a space; without the number where there is no room.
    let wide = numbers.chain([widest.saturating_sub(3)]).max().unwrap_or(0) + 6;
    let is_narrow = margin_left + wide * columns.len() > room.width;
    let cell = if is_narrow { 4 } else { wide };
    let mut page = Page::new(margin_left + cell * columns.len(), rows.len() + 2);
    page.write(0, 0, &figure.y.label, Style::new());
    for (y, row) in rows.iter().rev().enumerate() {
        if let Some(name) = names.get(rows.len() - 1 - y) {
            page.write_before(margin_left - 2, y + 1, name);
        }
        for (x, value) in row.iter().enumerate() {
            let Some(value) = value else { continue };
            let position = values.scale.place(*value).clamp(0.0, 1.0);
            let shade = SHADES[((position * SHADES.len() as f64) as usize).min(SHADES.len() - 1)];
            let mark = if best == Some((x, rows.len() - 1 - y)) { "*" } else { "" };
            let cell_text = match is_narrow {
                true => format!("{shade}{shade}{mark}"),
                false => format!("{shade}{shade} {}{mark}", text(*value)),
            };
            page.write(margin_left + x * cell, y + 1, &cell_text, Style::new());
        }
    }
    page.write_before(margin_left - 2, rows.len() + 1, &figure.x.label);
    let mut end = 0;
    for (x, name) in columns.iter().enumerate() {
        // Those are left out that have no room beside the one before.
        let label_start = margin_left + x * cell;
        if label_start >= end {
            page.write(label_start, rows.len() + 1, name, Style::new());
            end = label_start + name.width() + 1;
        }
    }
    let mut out = page.text(false);
    let (least, greatest) = (
        all_values().fold(f64::INFINITY, f64::min),
        all_values().fold(f64::NEG_INFINITY, f64::max),
    );
    out.push_str(&format!(
        "{}, from {} (light) to {} (dark){}\n",
        named(values),
        text(least),
        text(greatest),
        if best.is_some() { "; * the best" } else { "" }
    ));
    out
}

fn boxes(figure: &Figure, samples: &[Sample], room: Room) -> String {
    let (names, widest) = words(&figure.x);
    let margin_left = widest.max(figure.x.label.width().min(LABEL)) + 1;
    let counts = samples.iter().map(|s| s.values.len().to_string().len()).max().unwrap_or(1) + 4;
    let width = room.width.saturating_sub(margin_left + counts + 3).max(LEAST);
    let mut page = Page::new(margin_left + width + counts + 3, samples.len() + 4);
    page.write(0, 0, &figure.x.label, Style::new());
    for (at, (name, sample)) in names.iter().zip(samples).enumerate() {
        let y = at + 1;
        page.write_before(margin_left - 1, y, name);
        page.write(margin_left, y, "│", Style::new());
        let column = |value: f64| {
            margin_left + 1 + ((figure.y.scale.place(value) * width as f64) as usize).min(width - 1)
        };
        let ink = style(COLOURS[0]);
        let is_out = |value: f64| {
            sample.quartiles().is_none_or(|[least, .., greatest]| value < least || value > greatest)
        };
        for value in sample.values.iter().filter(|value| is_out(**value)) {
            page.write(column(*value), y, "∘", ink);
        }
        if let Some([least, low, median, high, greatest]) = sample.quartiles() {
            let [from, box_from, middle, box_to, to] =
                [least, low, median, high, greatest].map(column);
            (from..=to).for_each(|x| page.write(x, y, "─", ink));
            page.write(from, y, "├", ink);
            page.write(to, y, "┤", ink);
            (box_from..=box_to).for_each(|x| page.write(x, y, "▒", ink));
            page.write(middle, y, "┃", Style::new());
        } else if sample.values.len() > 1 {
            page.write(column(sample.quantile(0.5)), y, "┃", Style::new());
        }
        page.write(margin_left + width + 2, y, &format!("n={}", sample.values.len()), Style::new());
    }
    bottom(&mut page, &figure.y, margin_left, width, samples.len() + 1);
    page.text(room.colour)
}

fn bars(figure: &Figure, all: &[(f64, Option<[f64; 2]>)], room: Room) -> String {
    let (names, left) = words(&figure.y);
    let width = room.width.saturating_sub(left + 30).max(LEAST);
    let mut page = Page::new(left + width + 30, all.len() + 1);
    page.write(0, 0, &figure.x.label, Style::new());
    let greatest = all.iter().map(|(value, _)| *value).fold(0.0, f64::max).max(1e-9);
    for (at, (name, (value, ends))) in names.iter().zip(all).enumerate() {
        let y = at + 1;
        page.write_before(left, y, name);
        let eighths = (value / greatest * (width * 8) as f64).round() as usize;
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(EIGHTHS[eighths % 8 - 1]);
        }
        page.write(left + 1, y, &bar, style(COLOURS[0]));
        let ends = ends.map_or_else(String::new, |[low, high]| format!(" [{low:.1}, {high:.1}]"));
        page.write(left + 1 + bar.width() + 1, y, &format!("{value:.1}{ends}"), Style::new());
    }
    page.text(room.colour)
}
