//! A frame on a screen: the head, the lists below each other, the keys. Letters alone, so that nothing depends on
//! fonts or on colour.

use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::text::{self, Pane, Piece};
use crate::answers::watch::Frame;
use crate::base::words::{duration, short};
use crate::sweep::standing::State;

/// The choices of the user.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    /// The list that the keys are for.
    pub(super) focus: usize,
    /// How many lists there are.
    pub(super) panes: usize,
    /// Rows of each list that are above what is seen.
    pub(super) above: [usize; 4],
    /// The row of each list that is selected.
    pub(super) at: [usize; 4],
    /// The trial of the selected row, if that is about one, and the best one: those of the last screen.
    pub(super) under: Option<u64>,
    pub(super) best: Option<u64>,
    /// The trial that is shown instead of the lists.
    pub(super) opened: Option<u64>,
    /// Lines of its screen that are above what is seen.
    pub(super) back: usize,
    /// Whether the terminal may be coloured.
    pub(super) colour: bool,
}

impl View {
    /// The view at the start: the second list, that of failures, has the keys.
    pub(super) fn new(colour: bool) -> Self {
        Self {
            focus: 2,
            panes: 3,
            above: [0; 4],
            at: [0; 4],
            under: None,
            best: None,
            opened: None,
            back: 0,
            colour,
        }
    }

    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn of_state(&self, state: &State) -> Style {
        match state {
            State::Done => self.style(Color::Green),
            State::Running => self.style(Color::Cyan),
            State::Queued | State::Pending | State::Dropped => Style::new(),
            state if state.is_bad() => self.style(Color::Red),
            _ => self.style(Color::Yellow),
        }
    }
}

const KEYS: &str =
    "q quit   Tab 1-4 list   arrows PgUp PgDn Home End select   Enter trial   b best";

/// Most notes that are shown.
const NOTES: usize = 3;

/// Draws a frame that was read `age_s` seconds ago. Corrects `view` if it was scrolled too far.
pub(super) fn draw(
    screen: &mut ratatui::Frame<'_>,
    frame: &Frame,
    view: &mut View,
    age_s: f64,
    trouble: Option<&str>,
) {
    let area = screen.area();
    let width = usize::from(area.width);
    let mut lines = head(frame, view, age_s, width);
    lines.extend(answers(frame, width));
    let notes = text::notes(frame).take(NOTES);
    for note in trouble.map(str::to_owned).into_iter().chain(notes) {
        lines.push(Line::styled(short(&note, width.max(10)), view.style(Color::Yellow)));
    }
    let room = usize::from(area.height).saturating_sub(lines.len() + 1);
    let panes = text::panes(frame);
    view.panes = panes.len();
    view.focus = view.focus.min(view.panes);
    view.best = frame.best.as_ref().map(|best| best.trial);
    view.under = None;
    for (pane, height) in panes.iter().zip(heights(&panes, view.focus, room)) {
        lines.extend(listed(pane, view, height, width));
    }
    lines.truncate(usize::from(area.height).saturating_sub(1));
    for (y, line) in lines.iter().enumerate() {
        screen.render_widget(line, Rect { y: area.y + y as u16, height: 1, ..area });
    }
    if let Some(last) = area.height.checked_sub(1) {
        let keys = Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM));
        screen.render_widget(&keys, Rect { y: area.y + last, height: 1, ..area });
    }
}

/// Name, counts, bar and pace.
fn head<'a>(frame: &Frame, view: &View, age_s: f64, width: usize) -> Vec<Line<'a>> {
    let title = text::title(frame);
    let age = if age_s < 10.0 { format!("{age_s:.0} s") } else { duration(age_s) };
    let read = format!("read {age} ago");
    let gap = width.saturating_sub(title.chars().count() + read.len()).max(2);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let first = Line::from(vec![Span::styled(title, bold), Span::raw(" ".repeat(gap) + &read)]);
    let mut counts = Vec::new();
    for (state, text) in text::counts(frame) {
        counts.push(Span::styled(text, view.of_state(&state)));
        counts.push(Span::raw("  "));
    }
    let percent = text::percent(frame);
    let room = width.saturating_sub(percent.len() + 3);
    let mut bar = vec![Span::raw("[")];
    bar.extend(text::bar(frame, room).into_iter().map(|piece| {
        let style = match piece {
            Piece::Done => view.style(Color::Green),
            Piece::Bad => view.style(Color::Red),
            Piece::Running => view.style(Color::Cyan),
            Piece::Open => Style::new(),
        };
        Span::styled(piece.symbol().to_string(), style)
    }));
    bar.push(Span::raw(format!("] {percent}")));
    vec![first, Line::from(counts), Line::from(bar), Line::raw(text::pace(frame))]
}

/// The best trial so far, and why trials failed.
fn answers<'a>(frame: &Frame, width: usize) -> Vec<Line<'a>> {
    let lines = text::best(frame).into_iter().chain(text::causes(frame));
    lines.map(|line| Line::raw(short(&line, width.max(10)))).collect()
}

/// Rows for each list: what it needs up to an equal share, and all the rest for the one in focus.
fn heights(panes: &[Pane], focus: usize, room: usize) -> Vec<usize> {
    let share = if room >= 4 * panes.len() { room / panes.len() } else { 1 };
    let of = |pane: &Pane| if pane.rows.is_empty() { 1 } else { pane.rows.len() + 2 };
    let others = panes.iter().map(|p| if p.key == focus { 0 } else { of(p).min(share) });
    let mut heights: Vec<usize> = others.collect();
    let rest = room.saturating_sub(heights.iter().sum());
    for (pane, height) in panes.iter().zip(&mut heights) {
        if pane.key == focus {
            *height = rest;
        }
    }
    heights
}

/// A list in so many lines: its title, the heads of its columns, rows.
fn listed<'a>(pane: &Pane, view: &mut View, height: usize, width: usize) -> Vec<Line<'a>> {
    let has_focus = pane.key == view.focus;
    let shown = height.saturating_sub(2);
    let at = &mut view.at[pane.key - 1];
    *at = (*at).min(pane.rows.len().saturating_sub(1));
    let at = *at;
    // The selected row is among those that are seen.
    let above = &mut view.above[pane.key - 1];
    *above = (*above).min(at).max((at + 1).saturating_sub(shown));
    *above = (*above).min(pane.rows.len().saturating_sub(shown));
    let above = *above;
    let seen = pane.rows.iter().skip(above).take(shown);
    let part = match seen.len() {
        n if n > 0 && n < pane.rows.len() => format!(" ({} to {})", above + 1, above + n),
        _ => String::new(),
    };
    let (rule, style) = if has_focus {
        ("=", Style::new().add_modifier(Modifier::BOLD))
    } else {
        ("-", Style::new())
    };
    let title = format!("{} [{}] {}: {}{part} ", rule.repeat(2), pane.key, pane.name, pane.total);
    let rest = rule.repeat(width.saturating_sub(title.len()));
    let mut lines = vec![Line::styled(title + &rest, style)];
    if !pane.head.is_empty() {
        let dim = Style::new().add_modifier(Modifier::DIM);
        lines.push(Line::styled(pane.head.clone(), dim));
    }
    if has_focus {
        view.under = pane.trials.get(at).copied();
    }
    let selected = Style::new().add_modifier(Modifier::REVERSED);
    lines.extend(seen.enumerate().map(|(i, row)| {
        let is_selected = has_focus && above + i == at && !pane.trials.is_empty();
        Line::styled(row.clone(), if is_selected { selected } else { Style::new() })
    }));
    lines.truncate(height);
    lines.resize_with(height, || Line::raw(""));
    lines
}
