//! What a call of a function has used: its caller says so, or it is measured in this process.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::base::host::process::{self, Spent};
use crate::run::worker::process::meter;
use crate::sweep::tree::records::{MemorySource, Used};

/// Shorter calls record nothing: measuring them would cost as much.
const SHORTEST: Duration = Duration::from_millis(1);

/// The beginning of a call in this process.
pub(super) struct Begun {
    at: Instant,
    before: Spent,
}

impl Begun {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), before: process::spent_so_far() }
    }

    /// The call has ended.
    pub(super) fn used(&self) -> Option<Used> {
        if self.at.elapsed() < SHORTEST {
            return None;
        }
        let (before, now) = (self.before, process::spent_so_far());
        Some(of(Spent {
            user: now.user.saturating_sub(before.user),
            system: now.system.saturating_sub(before.system),
            memory: now.memory,
            read: now.read.saturating_sub(before.read),
            written: now.written.saturating_sub(before.written),
        }))
    }
}

/// What the caller says that a call has used; what it does not say, or says wrongly, is 0.
pub(super) fn said(usage: &Value) -> Option<Used> {
    let members = usage.as_object()?;
    let bytes = |name: &str| members.get(name).and_then(Value::as_u64).unwrap_or(0);
    let time = |name: &str| {
        let seconds = members.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    };
    Some(of(Spent {
        user: time("cpu_user_s"),
        system: time("cpu_system_s"),
        memory: bytes("peak_memory"),
        read: bytes("read_bytes"),
        written: bytes("written_bytes"),
    }))
}

fn of(spent: Spent) -> Used {
    Used { memory: spent.memory, usage: meter::usage(spent, MemorySource::Process, None, None) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_caller_says_wrongly_is_nothing() {
        assert_eq!(said(&json!(3)), None);
        let used = said(
            &json!({"peak_memory": -1, "cpu_user_s": -2.5, "cpu_system_s": 1e300, "read_bytes": "x"}),
        );
        assert_eq!(used, Some(of(Spent::default())));
        let used = said(&json!({"peak_memory": 7, "cpu_user_s": 1.5})).unwrap();
        assert_eq!((used.memory, used.usage.cpu_s()), (7, 1.5));
        assert_eq!(used.usage.memory_source, MemorySource::Process);
    }
}
