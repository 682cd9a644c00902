//! SVG: a few shapes and texts, as numbers with two decimals.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::Result;

use super::font::{self, Font};
use crate::base::words;

/// The colour of text and axes.
pub(super) const INK: &str = "#222";

/// Where a text begins at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A place in a picture, from its upper left corner to the right and down, in points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position(pub(super) f64, pub(super) f64);

/// Width and height of a rectangle, in points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent(pub(super) f64, pub(super) f64);

/// A picture that grows.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
    letters: BTreeSet<char>,
}

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stroke<'a> {
    pub(super) colour: &'a str,
    pub(super) width: f64,
    /// Lengths of strokes and gaps; empty for a whole line.
    pub(super) dash: &'a str,
}

impl<'a> Stroke<'a> {
    /// A stroke without gaps, of this width in points.
    pub(super) const fn solid(colour: &'a str, width: f64) -> Self {
        Self { colour, width, dash: "" }
    }

    fn attributes(self) -> String {
        let dash = match self.dash {
            "" => String::new(),
            dash => format!(" stroke-dasharray=\"{dash}\""),
        };
        format!(" stroke=\"{}\" stroke-width=\"{}\"{dash}", self.colour, number(self.width))
    }
}

/// Text for XML: no markup, and nothing that XML has no place for.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in words::printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A colour as SVG writes it.
pub(super) fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A number with at most two decimals.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

impl Svg {
    /// An empty picture of this size in points.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new(), letters: BTreeSet::new() }
    }

    pub(super) fn line(&mut self, from: Position, to: Position, stroke: Stroke) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}/>",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1),
            stroke.attributes()
        );
    }

    pub(super) fn polyline(&mut self, points: &[Position], stroke: Stroke) {
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke-linejoin=\"round\"{}/>",
            places(points),
            stroke.attributes()
        );
    }

    pub(super) fn polygon(&mut self, points: &[Position], fill: &str, opacity: f64) {
        let _ = writeln!(
            self.body,
            "<polygon points=\"{}\" fill=\"{fill}\" fill-opacity=\"{}\"/>",
            places(points),
            number(opacity)
        );
    }

    pub(super) fn rect(
        &mut self,
        Position(x, y): Position,
        Extent(width, height): Extent,
        fill: &str,
        stroke: Option<Stroke>,
    ) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"{}/>",
            number(x),
            number(y),
            number(width),
            number(height),
            stroke.map(Stroke::attributes).unwrap_or_default()
        );
    }

    pub(super) fn circle(
        &mut self,
        Position(x, y): Position,
        radius: f64,
        fill: &str,
        opacity: f64,
    ) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{fill}\" fill-opacity=\"{}\"/>",
            number(x),
            number(y),
            number(radius),
            number(opacity)
        );
    }

    /// A line of text at its base line, turned by so many degrees clockwise.
    pub(super) fn text(
        &mut self,
        Position(x, y): Position,
        anchor: Anchor,
        size: f64,
        turn: f64,
        fill: &str,
        text: &str,
    ) {
        self.letters.extend(words::printable(text).chars());
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let placement = match turn {
            0.0 => format!("x=\"{}\" y=\"{}\"", number(x), number(y)),
            turn => format!(
                "transform=\"translate({} {}) rotate({})\"",
                number(x),
                number(y),
                number(turn)
            ),
        };
        let fill = if fill == INK { String::new() } else { format!(" fill=\"{fill}\"") };
        let _ = writeln!(
            self.body,
            "<text {placement} font-size=\"{}\"{anchor}{fill}>{}</text>",
            number(size),
            escaped(text)
        );
    }

    /// A fill of this name: colours from below.
    pub(super) fn gradient(&mut self, name: &str, colours: &[[u8; 3]]) {
        let last_colour = colours.len().saturating_sub(1).max(1) as f64;
        let stops: String = colours
            .iter()
            .enumerate()
            .map(|(at, colour)| {
                let colour = hex(*colour);
                format!(
                    "<stop offset=\"{}\" stop-color=\"{colour}\"/>",
                    number(at as f64 / last_colour)
                )
            })
            .collect();
        let _ = writeln!(
            self.body,
            "<linearGradient id=\"{name}\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">{stops}</linearGradient>"
        );
    }

    /// All further shapes are only seen within this rectangle, until [`Svg::unclip`].
    pub(super) fn clip(&mut self, Position(x, y): Position, Extent(width, height): Extent) {
        let _ = writeln!(
            self.body,
            "<clipPath id=\"plot\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n<g clip-path=\"url(#plot)\">",
            number(x),
            number(y),
            number(width),
            number(height)
        );
    }

    pub(super) fn unclip(&mut self) {
        self.body.push_str("</g>\n");
    }

    /// The whole document; with a font, its letters are embedded.
    ///
    /// # Errors
    /// As [`Font::subset`].
    pub(super) fn document(&self, font: Option<&Font>) -> Result<String> {
        let style = match font {
            Some(font) => format!(
                "<style>@font-face{{font-family:{};src:url(data:font/ttf;base64,{})}}</style>\n",
                font::FAMILY,
                font.subset(&self.letters)?
            ),
            None => String::new(),
        };
        let (width, height) = (number(self.width), number(self.height));
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}pt\" height=\"{height}pt\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{}\" fill=\"{}\">\n{style}{}</svg>\n",
            font::FAMILIES,
            INK,
            self.body
        ))
    }
}

fn places(points: &[Position]) -> String {
    let coordinates: Vec<String> =
        points.iter().map(|Position(x, y)| format!("{},{}", number(*x), number(*y))).collect();
    coordinates.join(" ")
}
