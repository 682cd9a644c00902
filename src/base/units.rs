//! Wall-clock time and memory as schedulers write them: parse what a person wrote, print one form.
//!
//! Pure text and arithmetic; never rounds a request down.

/// The forms of a wall-clock time that [`parse_walltime`] reads, for hints.
pub(crate) const WALLTIME_FORMS: &str =
    "write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`";

/// The forms of a memory size that [`parse_memory`] reads, for hints.
pub(crate) const MEMORY_FORMS: &str = "write a number with its unit: `500M`, `2G`, `1T`";

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

/// Seconds of a wall-clock time; `None` when the text is not a duration or is zero.
///
/// A bare number is refused: Slurm reads it as minutes, PBS as seconds.
pub fn parse_walltime(text: &str) -> Option<u64> {
    let text = text.trim();
    let seconds =
        if text.contains([':', '-']) { clock_seconds(text)? } else { unit_seconds(text)? };
    (seconds > 0).then_some(seconds)
}

/// `HH:MM:SS`, `MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`.
fn clock_seconds(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(digits(days)?), clock),
        None => (None, text),
    };
    let fields: Vec<u64> = clock.split(':').map(digits).collect::<Option<_>>()?;
    let below = |field: u64, limit: u64| (field < limit).then_some(field);
    let rest = match (days, fields.as_slice()) {
        (Some(_), [h]) => below(*h, 24)? * HOUR,
        (Some(_), [h, m]) => below(*h, 24)? * HOUR + below(*m, 60)? * MINUTE,
        (Some(_), [h, m, s]) => below(*h, 24)? * HOUR + below(*m, 60)? * MINUTE + below(*s, 60)?,
        (None, [m, s]) => m.checked_mul(MINUTE)?.checked_add(below(*s, 60)?)?,
        (None, [h, m, s]) => {
            let minutes = below(*m, 60)? * MINUTE + below(*s, 60)?;
            h.checked_mul(HOUR)?.checked_add(minutes)?
        }
        _ => return None,
    };
    days.unwrap_or(0).checked_mul(DAY)?.checked_add(rest)
}

/// `90s`, `30m`, `2h`, `1d`, and sums from large to small: `1h30m`.
fn unit_seconds(text: &str) -> Option<u64> {
    let mut total = 0u64;
    let mut last = u64::MAX;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = match rest.as_bytes()[end].to_ascii_lowercase() {
            b's' => 1,
            b'm' => MINUTE,
            b'h' => HOUR,
            b'd' => DAY,
            _ => return None,
        };
        if unit >= last {
            return None;
        }
        last = unit;
        total = total.checked_add(digits(&rest[..end])?.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    Some(total)
}

/// A number of digits only: no sign, no blank.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A walltime without days, as PBS takes it: `100:00:00`.
pub fn hours_text(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / HOUR, seconds % HOUR / MINUTE, seconds % 60)
}

/// The Slurm form: `HH:MM:SS`, or `D-HH:MM:SS` from one day on.
pub fn walltime_text(seconds: u64) -> String {
    let clock =
        format!("{:02}:{:02}:{:02}", seconds % DAY / HOUR, seconds % HOUR / MINUTE, seconds % 60);
    if seconds < DAY { clock } else { format!("{}-{clock}", seconds / DAY) }
}

/// MiB of a memory size, rounded up; `None` when the text is not a size or is zero.
///
/// Units are K, M, G and T (powers of 1024), with an optional `i` and `B`, in either case. A bare
/// number is refused: Slurm reads it as MiB, PBS as bytes.
pub fn parse_memory(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let mut letters = unit.chars();
    let kib: u64 = match letters.next()?.to_ascii_uppercase() {
        'K' => 1,
        'M' => 1 << 10,
        'G' => 1 << 20,
        'T' => 1 << 30,
        _ => return None,
    };
    if !["", "i", "b", "ib"].contains(&letters.as_str().to_ascii_lowercase().as_str()) {
        return None;
    }
    let total_kib = match number.split_once('.') {
        None => digits(number)?.checked_mul(kib)?,
        Some((whole, part)) => {
            digits(whole)?;
            digits(part)?;
            let exact = number.parse::<f64>().ok()? * kib as f64;
            // Beyond 2^53 KiB (8 EiB) a float no longer counts single KiB.
            if exact > 9e15 {
                return None;
            }
            exact.ceil() as u64
        }
    };
    let mib = total_kib.div_ceil(1 << 10);
    (mib > 0).then_some(mib)
}

/// The shortest exact form in whole units: `500M`, `2G`, `1T`.
pub fn memory_text(mib: u64) -> String {
    match mib {
        0 => "0M".to_owned(),
        m if m.is_multiple_of(1 << 20) => format!("{}T", m >> 20),
        m if m.is_multiple_of(1 << 10) => format!("{}G", m >> 10),
        m => format!("{m}M"),
    }
}

/// MiB that a request asks for, to have so many: up to a step that is a tenth at most, or 32 MiB, from 64 MiB on.
pub(crate) fn request_of_mib(mib: f64) -> u64 {
    let mib = mib.ceil() as u64;
    let step = (mib / 10 + 1).next_power_of_two() / 2;
    mib.next_multiple_of(step.max(32)).max(64)
}

/// Seconds that a request asks for, to have so many: up to whole minutes, and to five minutes from an hour on.
pub(crate) fn request_of_seconds(seconds: f64) -> u64 {
    let seconds = (seconds.ceil() as u64).max(1);
    seconds.next_multiple_of(if seconds < HOUR { 60 } else { 300 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn walltimes_are_read_in_every_form() {
        let check = |text, expected| assert_eq!(parse_walltime(text), expected, "{text}");
        check("00:10:00", Some(600));
        check("48:00:00", Some(172_800));
        check("1-02:03:04", Some(93_784));
        check("2-12", Some(216_000));
        check("2-12:30", Some(217_800));
        check("90:00", Some(5400));
        check("90s", Some(90));
        check("30m", Some(1800));
        check("2h", Some(7200));
        check("1d", Some(86_400));
        check("1h30m", Some(5400));
        for wrong in [
            "",
            "10",
            "0s",
            "00:00:00",
            "10:60",
            "1:60:00",
            "1-24:00:00",
            "-5",
            "1-",
            "5x",
            "h",
            "30m1h",
            "1h1h",
            "+5m",
            "1.5h",
            "1:2:3:4",
            "99999999999999999999s",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn memory_is_read_in_every_form_and_never_rounded_down() {
        let check = |text, expected| assert_eq!(parse_memory(text), expected, "{text}");
        check("500M", Some(500));
        check("2G", Some(2048));
        check("2GiB", Some(2048));
        check("2 gb", Some(2048));
        check("1T", Some(1 << 20));
        check("1.5G", Some(1536));
        check("1K", Some(1));
        check("1025k", Some(2));
        for wrong in ["", "2", "0G", "G", "2X", "2Gx", "-2G", ".5G", "1.G", "1.2.3G", "2G 1M"] {
            check(wrong, None);
        }
    }

    #[test]
    fn printed_units_are_what_slurm_reads() {
        assert_eq!(walltime_text(600), "00:10:00");
        assert_eq!(walltime_text(93_784), "1-02:03:04");
        assert_eq!(memory_text(500), "500M");
        assert_eq!(memory_text(2048), "2G");
        assert_eq!(memory_text(1 << 20), "1T");
        assert_eq!(memory_text(1536), "1536M");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(seconds in 1u64..4_000_000_000, mib in 1u64..1 << 40) {
            prop_assert_eq!(parse_walltime(&walltime_text(seconds)), Some(seconds));
            prop_assert_eq!(parse_memory(&memory_text(mib)), Some(mib));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,12}") {
            let _ = parse_walltime(&text);
            let _ = parse_memory(&text);
        }
    }

    proptest! {
        #[test]
        fn requests_are_rounded_up_and_not_far(mib in 1.0f64..1e8, seconds in 0.001f64..1e7) {
            let memory = request_of_mib(mib) as f64;
            prop_assert!(memory >= mib && memory <= (mib * 1.101 + 1.0).max(mib + 64.0));
            let time = request_of_seconds(seconds) as f64;
            prop_assert!(time >= seconds && time < seconds + 301.0);
        }
    }
}
