//! The plan as it was submitted last: the text, and a last line with the CRC-32 of the lines above it. For every
//! other program that line is a comment.

const SEAL: &str = "# crc32 of the lines above: ";

/// A plan with its last line.
pub(super) fn sealed(text: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}");
    let crc = crc32fast::hash(text.as_bytes());
    format!("{text}{SEAL}{crc:08x}\n")
}

/// The lines above the last one, and whether they are unchanged; `None` if there is no such line.
pub(super) fn unsealed(text: &str) -> Option<(&str, bool)> {
    let whole = text.strip_suffix('\n').unwrap_or(text);
    let at = whole.rfind('\n').map_or(0, |newline| newline + 1);
    let digits = whole[at..].strip_prefix(SEAL)?;
    Some((&text[..at], digits == format!("{:08x}", crc32fast::hash(&text.as_bytes()[..at]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_whether_it_is_whole() {
        for text in ["", "a = 1\n", "a = 1"] {
            let kept = sealed(text);
            let (lines, is_whole) = unsealed(&kept).unwrap();
            assert_eq!((lines.trim_end(), is_whole), (text.trim_end(), true));
            assert_eq!(sealed(lines), kept);
            assert!(toml::from_str::<toml::Table>(&kept).is_ok());
        }
        let kept = sealed("a = 1\n");
        assert_eq!(unsealed(&kept.replace('1', "2")).map(|(_, is_whole)| is_whole), Some(false));
        assert_eq!(unsealed("a = 1\n"), None);
    }
}
