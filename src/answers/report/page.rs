//! The file: a fixed page with fixed scripts, and between them the words and the data of a sweep. Nothing of the sweep
//! is ever part of a script: words are text of the page, data is JSON that the script reads.

use super::summary::Summary;

const PAGE: &str = include_str!("../../../templates/report/page.html");
const STYLE: &str = include_str!("../../../templates/report/page.css");
const D3: &str = include_str!("../../../templates/report/d3.min.js");
const PLOT: &str = include_str!("../../../templates/report/plot.min.js");
const SCRIPT: &str = include_str!("../../../templates/report/page.js");
const LICENSES: [&str; 2] = [
    include_str!("../../../templates/report/LICENSE-d3"),
    include_str!("../../../templates/report/LICENSE-plot"),
];

/// SHA-256 of the scripts, in base64, a line each. A test compares them.
const HASHES: &str = include_str!("../../../templates/report/hashes.txt");

/// What a page that is served knows of its server.
pub(super) struct Live<'a> {
    /// Of the data in the page.
    pub(super) tag: &'a str,
    /// How often it asks for newer ones, seconds.
    pub(super) every_s: f64,
}

/// The page of a sweep: a file, or with `live` a page of a server.
pub(super) fn fill_in(
    name: &str,
    summary: &Summary,
    json: &str,
    live: Option<&Live<'_>>,
) -> Vec<u8> {
    let title = escaped(name);
    let policy = if live.is_some() { served_policy() } else { policy() };
    let live = live.map_or_else(String::new, |Live { tag, every_s }| {
        format!("<meta name=\"live\" content=\"{every_s} {}\">\n", escaped(tag))
    });
    let data = in_script(json);
    let words = words(summary);
    let licenses = escaped(&LICENSES.join("\n"));
    let parts: [(&str, &str); 11] = [
        ("@POLICY@", &policy),
        ("@LIVE@", &live),
        ("@TITLE@", &title),
        ("@STYLE@", STYLE),
        ("@NAME@", &title),
        ("@SUMMARY@", &words),
        ("@LICENSES@", &licenses),
        ("@DATA@", &data),
        ("@D3@", D3),
        ("@PLOT@", PLOT),
        ("@SCRIPT@", SCRIPT),
    ];
    let size = PAGE.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>();
    let mut page = String::with_capacity(size);
    // The marks stand in this order, and what was put in is not looked through again.
    let mut remainder = PAGE;
    for (mark, text) in parts {
        let (before, after) = remainder.split_once(mark).unwrap_or((remainder, ""));
        page.push_str(before);
        page.push_str(text);
        remainder = after;
    }
    page.push_str(remainder);
    page.into_bytes()
}

/// No network, no script but those of the page.
fn policy() -> String {
    let hashes: Vec<String> = HASHES.lines().map(|hash| format!("'sha256-{hash}'")).collect();
    format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    )
}

/// The same, and the server of the page.
pub(super) fn served_policy() -> String {
    format!("{}; connect-src 'self'", policy())
}

/// JSON within a script element: no tag can end it.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Text within a page or an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn words(summary: &Summary) -> String {
    let mut out = String::from("<ul class=\"tiles\">");
    for [title, figure, of] in &summary.tiles {
        out.push_str(&format!(
            "<li><span class=\"what\">{}</span> <strong>{}</strong> <span class=\"of\">{}</span></li>",
            escaped(title),
            escaped(figure),
            escaped(of)
        ));
    }
    out.push_str("</ul>\n<dl class=\"answers\">");
    for (what, text) in &summary.answers {
        out.push_str(&format!("<div><dt>{what}</dt><dd>{}</dd></div>", escaped(text)));
    }
    out.push_str("</dl>");
    out
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for part in bytes.chunks(3) {
            let mut word = [0; 3];
            word[..part.len()].copy_from_slice(part);
            let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
            for i in 0..4 {
                let digit = char::from(DIGITS[(word >> (18 - 6 * i) & 63) as usize]);
                out.push(if i <= part.len() { digit } else { '=' });
            }
        }
        out
    }

    /// `BLESS=1` writes the hashes after a change of the page's script; those of the libraries are the publishers'.
    #[test]
    fn the_scripts_are_those_that_the_policy_allows() {
        let scripts = [D3, PLOT, SCRIPT];
        let found: String =
            scripts.map(|text| format!("{}\n", base64(&Sha256::digest(text)))).concat();
        if std::env::var_os("BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/report/hashes.txt");
            std::fs::write(path, &found).unwrap();
        } else {
            assert_eq!(HASHES, found, "BLESS=1 cargo test --lib report writes the hashes");
        }
        let hex = |text: &str| -> String {
            Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        // As `sha256sum` shows them of the files in the packages of npm: README.md beside them.
        let readme = include_str!("../../../templates/report/README.md");
        for (name, text) in [("d3.min.js", D3), ("plot.min.js", PLOT)] {
            let line = format!("{}  {name}", hex(text));
            assert!(readme.lines().any(|own| own == line), "{line} is not in README.md");
        }
        for text in scripts {
            let lower = text.to_ascii_lowercase();
            assert!(!lower.contains("</script") && !lower.contains("<!--") && !text.contains('\r'));
        }
    }

    #[test]
    fn nothing_of_a_sweep_is_markup() {
        let hostile = "</script><script>alert(1)</script>\"'&<!-- @DATA@ @SCRIPT@";
        let summary = Summary {
            tiles: vec![[hostile.to_owned(), hostile.to_owned(), hostile.to_owned()]],
            answers: vec![("Best", hostile.to_owned())],
        };
        let json = serde_json::to_string(&serde_json::json!({ hostile: hostile })).unwrap();
        let page = String::from_utf8(fill_in(hostile, &summary, &json, None)).unwrap();
        assert_eq!(page.matches("</script>").count(), 4, "data, d3, Plot, and the page's own");
        assert!(!page.contains("<script>alert"));
        let (_, data) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read[hostile], hostile);
    }
}
