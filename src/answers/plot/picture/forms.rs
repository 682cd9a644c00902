//! PNG and PDF of an SVG, with the one font.

use std::sync::Arc;

use anyhow::Result;
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{self, Options, Tree};

use super::font;
use crate::base::fault::{Fault, Kind};

/// Pixels of a PNG an inch.
const RESOLUTION: f32 = 300.0;

/// Units of SVG an inch, once points have become units.
const UNITS: f32 = 96.0;

fn bug(why: impl std::fmt::Display) -> Fault {
    Fault::new(Kind::Bug, format!("a picture cannot be drawn: {why}"))
}

fn parse(svg: &str) -> Result<Tree, Fault> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(font::FILE.to_vec());
    let options = Options {
        fontdb: Arc::new(fonts),
        font_family: font::FAMILY.to_owned(),
        dpi: UNITS,
        ..Options::default()
    };
    Tree::from_str(svg, &options).map_err(bug)
}

/// Pixels on white.
///
/// # Errors
/// When the picture is too large.
pub(super) fn png(svg: &str) -> Result<Vec<u8>> {
    let tree = parse(svg)?;
    let scale = RESOLUTION / UNITS;
    let pixels = |length: f32| (length * scale).round().max(1.0) as u32;
    let (width, height) = (pixels(tree.size().width()), pixels(tree.size().height()));
    let mut pixmap = Pixmap::new(width, height).ok_or_else(|| {
        Fault::request(format!("a picture of {width} x {height} pixels"))
            .hint("make it smaller: `--width 85mm`")
    })?;
    pixmap.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    Ok(with_resolution(pixmap.encode_png().map_err(bug)?))
}

/// Adds the chunk that says how many pixels a metre has, behind the head.
fn with_resolution(mut png: Vec<u8>) -> Vec<u8> {
    /// Signature (8 bytes), length, type, 13 bytes and checksum of the head.
    const HEAD: usize = 8 + 4 + 4 + 13 + 4;
    let metre = (RESOLUTION / 0.0254).round() as u32;
    let mut body = b"pHYs".to_vec();
    body.extend([metre, metre].iter().flat_map(|n| n.to_be_bytes()));
    body.push(1);
    let mut chunk = 9u32.to_be_bytes().to_vec();
    chunk.extend(&body);
    chunk.extend(crc32fast::hash(&body).to_be_bytes());
    png.splice(HEAD..HEAD, chunk);
    png
}

/// A page of the picture's size, with its text as text.
///
/// # Errors
/// When a bug makes it impossible.
pub(super) fn pdf(svg: &str) -> Result<Vec<u8>> {
    let tree = parse(svg)?;
    let page = svg2pdf::PageOptions { dpi: UNITS };
    let pdf = svg2pdf::to_pdf(&tree, svg2pdf::ConversionOptions::default(), page);
    Ok(in_order(&pdf.map_err(bug)?))
}

/// The same PDF with the entries of its dictionaries in order. `svg2pdf` lists resources in the order of a hash table, which
/// differs from run to run. An entry is a line such as `/gs1 8 0 R`; lines beside each other are of one dictionary, in which order
/// means nothing, and places of objects stay.
fn in_order(pdf: &[u8]) -> Vec<u8> {
    let is_entry = |line: &[u8]| {
        let line = line.trim_ascii();
        line.starts_with(b"/") && line.ends_with(b" 0 R") && line.is_ascii()
    };
    let lines: Vec<&[u8]> = pdf.split_inclusive(|byte| *byte == b'\n').collect();
    let mut out = Vec::with_capacity(pdf.len());
    for part in lines.chunk_by(|a, b| is_entry(a) && is_entry(b)) {
        let mut sorted_part = part.to_vec();
        sorted_part.sort_unstable();
        out.extend(sorted_part.concat());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_dictionary_are_put_in_order_and_nothing_else() {
        let pdf = b"3 0 obj\n<<\n  /gs2 9 0 R\n  /gs1 8 0 R\n>>\nstream\nb\na\xff\n/gs1 8 0 R\nend";
        let expected =
            b"3 0 obj\n<<\n  /gs1 8 0 R\n  /gs2 9 0 R\n>>\nstream\nb\na\xff\n/gs1 8 0 R\nend";
        assert_eq!(in_order(pdf), expected);
    }
}
