//! The font of pictures: Arimo, whose letters are as wide as those of Arial and Helvetica (templates/plot/README.md).

use std::collections::BTreeSet;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::base::fault::{Fault, Kind};

/// The file. It has the letters of European languages, Greek, and mathematical signs.
pub(super) const FILE: &[u8] = include_bytes!("../../../../templates/plot/Arimo.ttf");

/// Its name, and others of the same width where a viewer does not read embedded fonts.
pub(super) const FAMILIES: &str = "Arimo, Arial, Helvetica, Liberation Sans, sans-serif";

/// The name under which it is embedded.
pub(super) const FAMILY: &str = "Arimo";

/// The font of pictures, parsed: it measures texts.
pub(super) struct Font {
    face: ttf_parser::Face<'static>,
    units: f64,
}

fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::new(Kind::Bug, format!("the font of pictures cannot be read: {why}"))
}

impl Font {
    /// That of this program.
    ///
    /// # Errors
    /// When it is broken, which a test excludes.
    pub(super) fn own() -> Result<Self, Fault> {
        let face = ttf_parser::Face::parse(FILE, 0).map_err(broken)?;
        let units = f64::from(face.units_per_em());
        Ok(Self { face, units })
    }

    /// The width of a text in points.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars()
            .map(|c| {
                let glyph = self.face.glyph_index(c).unwrap_or_default();
                f64::from(self.face.glyph_hor_advance(glyph).unwrap_or_default())
            })
            .sum::<f64>()
            / self.units
            * size
    }

    /// A text of at most this width; one that was cut ends in an ellipsis.
    pub(super) fn fit(&self, text: &str, size: f64, most: f64) -> String {
        if self.width(text, size) <= most {
            return text.to_owned();
        }
        let mut cut = text.to_owned();
        while cut.pop().is_some() && self.width(&cut, size) + self.width("…", size) > most {}
        format!("{}…", cut.trim_end())
    }

    /// A text in lines of at most this width, broken at spaces; the last of at most `most` lines is cut where needed.
    pub(super) fn lines(&self, text: &str, size: f64, width: f64, most: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let is_last = lines.len() == most;
            let Some(line) = lines.last_mut() else { continue };
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            match line.is_empty() || is_last || self.width(&longer, size) <= width {
                true => *line = longer,
                false => lines.push(word.to_owned()),
            }
        }
        lines.iter().map(|line| self.fit(line, size, width)).collect()
    }

    /// The letters of these texts as a font of its own, in base64.
    ///
    /// # Errors
    /// When the font is broken, which a test excludes.
    pub(super) fn subset(&self, letters: &BTreeSet<char>) -> Result<String, Fault> {
        let full_font = font_subset::Font::opentype(FILE).map_err(|e| broken(format!("{e:?}")))?;
        let known_letters =
            letters.iter().copied().filter(|c| full_font.contains_char(*c)).collect();
        let subset = full_font.subset(&known_letters).map_err(|e| broken(format!("{e:?}")))?;
        Ok(STANDARD.encode(subset.to_opentype()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_is_that_of_its_readme_and_has_the_signs_of_labels() {
        use sha2::{Digest, Sha256};
        let readme = include_str!("../../../../templates/plot/README.md");
        let hash: String = Sha256::digest(FILE).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(readme.contains(&format!("{hash}  Arimo.ttf")), "{hash}");
        let font = Font::own().unwrap();
        for sign in "aZ09ßéλΩж\u{2212}×…⁻⁰¹²³⁴⁵⁶⁷⁸⁹%≤".chars() {
            assert!(font.face.glyph_index(sign).is_some(), "{sign}");
        }
        assert!(font.subset(&"loss 0.1".chars().collect()).unwrap().len() < 10_000);
    }

    #[test]
    fn texts_are_cut_to_their_width() {
        let font = Font::own().unwrap();
        assert_eq!(font.fit("loss", 7.0, 100.0), "loss");
        let cut = font.fit("a very long label of an axis", 7.0, 40.0);
        assert!(cut.ends_with('…') && font.width(&cut, 7.0) <= 40.0, "{cut}");
        let lines = font.lines("one two three four five six seven", 8.0, 50.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| font.width(line, 8.0) <= 50.0), "{lines:?}");
    }
}
