//! Job ids in the forms in which Slurm prints them, and the elements they stand for.

/// A job id as printed: `12`, `12_7`, `12_[0-99]`, `12_[3-4%2,8]`, `12+1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobId {
    /// The number of the array or job.
    pub base: String,
    /// The indices, as inclusive ranges with a step; empty for the job itself.
    pub indices: Vec<(u64, u64, u64)>,
}

impl JobId {
    /// Reads a printed id; a step suffix (`12_7.batch`) and a heterogeneous part (`12+1`) are cut.
    /// `None` when it does not begin with a number.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = if text.contains('[') { text } else { text.split('.').next()? };
        let (base, rest) = text.split_once('_').unwrap_or((text, ""));
        let base = base.split('+').next()?;
        if base.is_empty() || !base.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let inner = rest.trim_start_matches('[').trim_end_matches(']');
        let inner = inner.split('%').next().unwrap_or("");
        let indices = inner.split(',').filter(|p| !p.is_empty()).filter_map(range).collect();
        Some(Self { base: base.to_owned(), indices })
    }
}

fn range(part: &str) -> Option<(u64, u64, u64)> {
    let (range, step) = part.split_once(':').unwrap_or((part, "1"));
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let step: u64 = step.parse().ok()?;
    Some((from.parse().ok()?, to.parse().ok()?, step.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printed_form_is_read() {
        let check = |text: &str, base: &str, indices: &[(u64, u64, u64)]| {
            let expected = JobId { base: base.into(), indices: indices.to_vec() };
            assert_eq!(JobId::parse(text), Some(expected), "{text}");
        };
        check("12", "12", &[]);
        check("12_7", "12", &[(7, 7, 1)]);
        check("12_7.batch", "12", &[(7, 7, 1)]);
        check("12_[0-10000]", "12", &[(0, 10000, 1)]);
        check("12_[3-4%2]", "12", &[(3, 4, 1)]);
        check("12_[0,2-8:2,11]", "12", &[(0, 0, 1), (2, 8, 2), (11, 11, 1)]);
        check("12+1", "12", &[]);
        assert_eq!(JobId::parse("JOBID"), None);
    }
}
