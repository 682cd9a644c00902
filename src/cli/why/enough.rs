//! The request that would have been enough.

use crate::base::cause::Cause;
use crate::base::units;
use crate::plan::Resources;
use crate::sweep::status::progress::Progress;

/// What a trial gets beyond what it has needed.
const MARGIN: f64 = 1.2;

/// The lines of `[resources]` that would have been enough for an attempt that ended because of this, and why it is thought
/// so. `peak`: bytes that it had at most.
pub(super) fn request(
    cause: Cause,
    asked: &Resources,
    peak: u64,
    seconds: Option<f64>,
    progress: Option<&Progress>,
) -> Option<(String, String)> {
    match cause {
        Cause::OutOfMemory => {
            let had = peak.div_ceil(1 << 20);
            // What was killed at its limit may have wanted any amount.
            let doubled = asked.memory_mib.map_or(0, |asked| 2 * asked);
            let least = doubled.max((had as f64 * MARGIN) as u64);
            let step = if least > 8192 { 1024 } else { 256 };
            let memory = units::memory_text(least.div_ceil(step) * step);
            let why = match asked.memory_mib {
                Some(_) => "twice the request: it was ended at its limit",
                None => "1.2 times what it had when it ended",
            };
            (least > 0).then(|| (format!("memory = \"{memory}\""), why.to_owned()))
        }
        Cause::Walltime => {
            let progress = progress?;
            let whole = progress.whole(seconds?)?;
            let minutes = (whole * MARGIN / 60.0).ceil() as u64;
            let walltime = units::walltime_text(minutes.max(1) * 60);
            let why = format!("by its pace until {}, and 1.2 times that", progress.words());
            Some((format!("walltime = \"{walltime}\""), why))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_not_enough_is_doubled() {
        let asked = |memory_mib| Resources { memory_mib, ..Resources::default() };
        let request =
            |asked: Resources, peak| request(Cause::OutOfMemory, &asked, peak, None, None);
        let (line, _) = request(asked(Some(4096)), 4000 << 20).unwrap();
        assert_eq!(line, "memory = \"8G\"");
        // The limit was not its request.
        let (line, _) = request(asked(Some(1024)), 20000 << 20).unwrap();
        assert_eq!(line, "memory = \"24G\"");
        let (line, _) = request(asked(None), 1000 << 20).unwrap();
        assert_eq!(line, "memory = \"1280M\"");
        assert_eq!(request(asked(None), 0), None);
    }

    #[test]
    fn a_walltime_that_is_enough_follows_from_the_pace() {
        let progress = |first, last, target| Progress { counter: "epoch", first, last, target };
        let line = |progress: &Progress| {
            let asked = Resources::default();
            request(Cause::Walltime, &asked, 0, Some(3600.0), Some(progress)).map(|(line, _)| line)
        };
        let five = progress(1.0, 5.0, Some(10.0));
        assert_eq!(line(&five).as_deref(), Some("walltime = \"02:24:00\""));
        assert_eq!(five.words(), "epoch 5 of 10");
        // It had resumed: a whole run takes longer than what is left.
        let resumed = progress(6.0, 8.0, Some(10.0));
        assert_eq!(line(&resumed).as_deref(), Some("walltime = \"04:00:00\""));
        assert_eq!(line(&progress(1.0, 5.0, None)), None);
        assert_eq!(line(&progress(1.0, 10.0, Some(10.0))), None);
        assert_eq!(line(&progress(0.0, 0.0, Some(10.0))), None);
    }
}
