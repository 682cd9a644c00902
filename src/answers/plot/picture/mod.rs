//! Figures as files: one SVG, of which PNG and PDF are made. Sizes are in points of 1/72 inch.
//!
//! `layout` places things, `svg` writes them, `font` knows the one font that pictures have, which is in this program.

mod area;
mod font;
mod forms;
mod layout;
mod marks;
mod svg;

use std::io::Write;

use anyhow::Result;

use super::{Figure, Form, Size};
use font::Font;

/// Writes a figure in a form. The same figure gives the same bytes.
///
/// # Errors
/// When the picture is too small for what is in it, or `out` cannot be written.
pub(crate) fn write(figure: &Figure, size: Size, form: Form, out: &mut dyn Write) -> Result<()> {
    let font = Font::own()?;
    let drawn = layout::draw(figure, size, &font)?;
    let bytes = match form {
        Form::Svg => drawn.document(Some(&font))?.into_bytes(),
        Form::Png => forms::png(&drawn.document(None)?)?,
        Form::Pdf => forms::pdf(&drawn.document(None)?)?,
    };
    Ok(out.write_all(&bytes)?)
}
