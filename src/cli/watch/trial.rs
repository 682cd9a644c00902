//! One trial of a dashboard: its parameters, its attempts, and the end of what it printed.

use std::collections::HashMap;

use anyhow::Result;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::draw::View;
use crate::answers::collect::text;
use crate::base::words::{duration, printable, short};
use crate::cli::logs::output::Output;
use crate::sweep::tree::records::{self, Attempt};
use crate::sweep::tree::{Tree, table, waves};

/// Lines of the log that are kept.
const LINES: usize = 200;

/// A trial at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) trial: u64,
    /// The parameters in the order of the table: dotted name and value as text.
    pub(super) parameters: Vec<(String, String)>,
    /// A line for each attempt.
    pub(super) attempts: Vec<String>,
    /// The last lines that it printed.
    pub(super) log: Vec<String>,
    /// Whether that was left out when the sweep was exported or merged.
    pub(super) is_left_out: bool,
    /// The command that prints all of it.
    pub(super) command: String,
}

impl Trial {
    /// Reads one: its row of the table, its record, and the end of its log.
    ///
    /// # Errors
    /// When the sweep has no such trial, or a file cannot be read.
    pub(super) fn read(tree: &Tree, trial: u64, now: f64) -> Result<Self> {
        let (_, row) = table::find(tree, trial)?;
        let (record, _) = records::of_trial(tree, trial)?;
        let mut records = HashMap::from([(trial, record)]);
        // The status reports a damaged wave.
        let waves = waves::read(tree).unwrap_or_default();
        waves.iter().flat_map(|wave| &wave.ended).for_each(|ended| ended.tell_all(&mut records));
        let record = records.remove(&trial).unwrap_or_default();
        let output = Output::of(tree, trial, &record)?;
        let log = output.tail(LINES)?;
        let one = |(i, attempt): (usize, &Attempt)| {
            let state = record.state_of(i).unwrap_or_else(|| "open".to_owned());
            let cause = record.cause_of(i).map(|cause| format!(" ({})", cause.word()));
            let since = attempt.duration_s().unwrap_or((now - attempt.start.time).max(0.0));
            let mut words = format!("{state}{}, {}", cause.unwrap_or_default(), duration(since));
            if !attempt.start.host.is_empty() {
                words.push_str(&format!(", on {}", attempt.start.host));
            }
            attempt.start.job.iter().for_each(|job| words.push_str(&format!(", job {job}")));
            match attempt.why() {
                why if why.is_empty() => words,
                why => format!("{words}: {why}"),
            }
        };
        Ok(Self {
            trial,
            parameters: row
                .params
                .iter()
                .map(|(name, value)| (name.to_owned(), text(&value.to_json())))
                .collect(),
            attempts: record.attempts.iter().enumerate().map(one).collect(),
            is_left_out: output.is_left_out,
            log: String::from_utf8_lossy(&log).lines().map(str::to_owned).collect(),
            command: format!("hpcsweep logs {trial} {}", tree.named()),
        })
    }

    /// Its screen, however long.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec!["parameters:".to_owned()];
        let longest = self.parameters.iter().map(|(name, _)| name.chars().count()).max();
        let longest = longest.unwrap_or(0).min(40);
        lines.extend(
            self.parameters.iter().map(|(name, value)| format!("  {name:longest$}  {value}")),
        );
        match self.attempts.len() {
            0 => lines.push("it has not begun".to_owned()),
            _ => lines.push("attempts:".to_owned()),
        }
        lines.extend((1..).zip(&self.attempts).map(|(i, words)| format!("  {i}: {words}")));
        match self.log.is_empty() {
            true if self.is_left_out => {
                lines.push("its log was left out of this copy (`--without logs`)".to_owned());
            }
            true => lines.push("it has printed nothing".to_owned()),
            false => lines.push(format!("the end of its log ({} prints all):", self.command)),
        }
        lines.extend(self.log.iter().map(|line| format!("  {}", line.replace('\t', "    "))));
        lines.iter().map(|line| printable(line).into_owned()).collect()
    }
}

const KEYS: &str = "Esc back   arrows PgUp PgDn Home End scroll";

/// Draws a trial instead of the lists, from its end on; `None` while it is read. Corrects `view` if it was scrolled too far.
pub(super) fn draw(
    screen: &mut ratatui::Frame<'_>,
    number: u64,
    trial: Option<&Result<Trial, String>>,
    view: &mut View,
) {
    let area = screen.area();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let all = match trial {
        None => vec!["it is being read".to_owned()],
        Some(Ok(trial)) => trial.lines(),
        Some(Err(sentence)) => vec![sentence.clone()],
    };
    let room = usize::from(area.height).saturating_sub(2);
    view.back = view.back.min(all.len().saturating_sub(room));
    let from = all.len().saturating_sub(room + view.back);
    let width = usize::from(area.width).max(10);
    let seen = all.iter().skip(from).take(room).map(|line| Line::raw(short(line, width)));
    let lines = std::iter::once(Line::styled(format!("trial {number}"), bold)).chain(seen);
    for (y, line) in lines.enumerate().take(usize::from(area.height).saturating_sub(1)) {
        screen.render_widget(&line, Rect { y: area.y + y as u16, height: 1, ..area });
    }
    if let Some(last) = area.height.checked_sub(1) {
        screen.render_widget(Line::styled(KEYS, dim), Rect { y: area.y + last, height: 1, ..area });
    }
}
