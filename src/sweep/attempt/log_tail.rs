//! The end of what a trial has printed, for its hooks.

/// The most lines of a log that a hook is given.
pub(crate) const MOST_LINES: usize = 20;
/// The most bytes of a log that a hook is given.
pub(crate) const MOST_BYTES: usize = 4096;

/// The last lines of what a trial has printed, at most [`MOST_LINES`] and [`MOST_BYTES`], without the
/// final line break. Bytes that are not UTF-8, and NULs, which no variable can hold, become U+FFFD.
pub(crate) fn of(bytes: &[u8]) -> String {
    let mut cut = bytes.len().saturating_sub(MOST_BYTES);
    // The remains of a character that was cut in two are not a character.
    let is_rest = |cut: usize| cut > 0 && bytes.get(cut).is_some_and(|b| b & 0xC0 == 0x80);
    for _ in 0..3 {
        cut += usize::from(is_rest(cut));
    }
    let text = String::from_utf8_lossy(&bytes[cut..]).replace('\0', "\u{fffd}");
    let text = text.trim_end_matches(['\n', '\r']);
    let from = text.rmatch_indices('\n').nth(MOST_LINES - 1).map_or(0, |(i, _)| i + 1);
    // Replaced bytes are longer than they were.
    let mut from = from.max(text.len().saturating_sub(MOST_BYTES));
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_short_and_can_be_a_variable() {
        let check = |log: &[u8], expected: &str| assert_eq!(of(log), expected);
        check(b"", "");
        check(b"\n\n", "");
        check(b"one", "one");
        check("ä\nb\r\n".as_bytes(), "ä\nb");
        check(b"a\0b\xff\xfec", "a\u{fffd}b\u{fffd}\u{fffd}c");
        let lines: String = (1..=25).map(|n| format!("{n}\n")).collect();
        let last: Vec<String> = (6..=25).map(|n| n.to_string()).collect();
        check(lines.as_bytes(), &last.join("\n"));
        // A character that would be cut in two is left out whole.
        check("€".repeat(2000).as_bytes(), &"€".repeat(MOST_BYTES / 3));
        check(&[0xff; 5000], &"\u{fffd}".repeat(MOST_BYTES / 3));
    }

    proptest::proptest! {
        #[test]
        fn any_log_has_a_tail(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..9000)) {
            let tail = of(&bytes);
            proptest::prop_assert!(tail.len() <= MOST_BYTES && !tail.contains('\0'));
            proptest::prop_assert!(tail.split('\n').count() <= MOST_LINES);
        }
    }
}
