//! `[pull]`: how agents share a sweep (`[schedule] mode = "pull"`, or `hpcsweep worker --pull`).

use serde::{Deserialize, Serialize};
use serde_json::json;
use toml::de::DeValue;

use crate::base::units::{WALLTIME_FORMS, parse_walltime};
use crate::plan::document::form::{FLAG, WALLTIME, count, count_to};
use crate::plan::document::{Entry, Form, Reader, Section, find, section};

/// How agents share a sweep. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pull {
    /// Pilot jobs that `submit` asks a scheduler for; each runs one agent.
    pub(crate) workers: u32,
    /// Trials that an agent runs at once; `None`: as many as its cores and GPUs allow.
    pub(crate) slots: Option<u32>,
    /// Slots on each GPU of an agent, whatever its cores; then that many trials share a GPU.
    pub(crate) slots_per_gpu: Option<u32>,
    /// Wall-clock time of a pilot job; `None`: the trials' own.
    pub(crate) walltime_s: Option<u64>,
    /// An agent that has not renewed its lease for so long is considered dead.
    pub(crate) lease_s: f64,
    /// Pause before the second attempt of a trial; it doubles with each further one.
    pub(crate) backoff_s: f64,
    /// Faults of the machine after which an agent leaves.
    pub(crate) max_errors: u32,
    /// Share of the trials ended last that must have failed for the sweep to halt; `None`: never.
    pub(crate) breaker: Option<f64>,
    /// Whether a trial may run twice at the same time without harm.
    pub(crate) repeatable: bool,
    /// An idle slot runs a copy of a trial that has taken more than this times the median.
    pub(crate) straggler: f64,
    /// Time that must be left of an allocation for a trial to begin; `None`: learnt.
    pub(crate) time_request_s: Option<u64>,
    /// Whether every trial gets its own folder, also if its command does not name it.
    pub(crate) folders: bool,
    /// Whether slots are bound to cores.
    pub(crate) bind: bool,
}

impl Default for Pull {
    fn default() -> Self {
        Self {
            workers: 1,
            slots: None,
            slots_per_gpu: None,
            walltime_s: None,
            lease_s: 60.0,
            backoff_s: 1.0,
            max_errors: 5,
            breaker: Some(0.95),
            repeatable: false,
            straggler: 2.0,
            time_request_s: None,
            folders: false,
            bind: true,
        }
    }
}

impl Pull {
    /// How long an agent may be silent before commands report it, seconds. Clocks of hosts differ a little. Only
    /// agents, which compare heartbeats without clocks, decide which agent is dead.
    pub(crate) fn patience_s(&self) -> f64 {
        self.lease_s * 1.25 + 2.0
    }
}

/// The most trials that an agent runs at once.
pub(crate) const MOST_SLOTS: u32 = 4096;

/// The keys of `[pull]`.
pub(crate) static PULL: Section<Pull> = section!("`[pull]`", Pull:
    "workers" => workers: count::<1>(), "1",
        "most pilots, also `submit --workers N`; never more than there is work for: units (chains) divided by `slots`";
    "slots" => slots: count_to::<1, MOST_SLOTS>(), "1 in the request",
        "trials that a pilot runs at once, also `submit --slots N`; a pilot without it counts the cores and GPUs that it was granted, so that with `directives = [\"--exclusive\"]` it uses its node";
    "slots_per_gpu" => slots_per_gpu: count_to::<1, MOST_SLOTS>(), "none",
        "slots on each GPU of an agent, whatever its cores; a pilot without `slots` has as many";
    "walltime" => walltime_s: WALLTIME, "the longest of the trials", "of a pilot";
    "lease" => lease_s: LEASE, "`\"60s\"`",
        "an agent that has not renewed its [lease](pull.md#what-is-guaranteed) for so long counts as dead";
    "backoff" => backoff_s: PAUSE, "`\"1s\"`",
        "the pause before the second attempt of a trial; it doubles with each further one";
    "max_errors" => max_errors: count::<1>(), "5", "faults of the machine after which an agent leaves";
    "breaker" => breaker: SHARE, "0.95",
        "the share of the trials that ended last which must have failed for the sweep to halt; `false`: it never halts";
    "repeatable" => repeatable: FLAG, "`false`",
        "whether a trial may run twice at the same time without harm: then idle slots run copies of slow trials. Not together with `[train]`";
    "straggler" => straggler: TIMES, "2",
        "a trial that has taken more than this times the median is slow";
    "time_request" => time_request_s: WALLTIME, "learnt from trials that have ended",
        "the time that must be left of an allocation for a trial to begin";
    "folders" => folders: FLAG, "`false`",
        "whether every trial gets folders of its own, also if its command does not name them";
    "bind" => bind: FLAG, "`true`", "whether slots are bound to cores";
);

/// Reads `[pull]`; `trains`: of a plan with `[train]`.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>, trains: bool) -> Pull {
    let mut pull = Pull::default();
    let written = PULL.read(reader, Some(entry), &mut pull);
    if let (Some(entry), true, true) = (find(&written, "repeatable"), pull.repeatable, trains) {
        let sentence = "`repeatable` cannot be true beside `[train]`: two runs of a trial would write the same checkpoints";
        reader.wrong(entry.at, sentence, "leave `repeatable` out");
    }
    pull
}

/// How long a lease lasts, in seconds.
const LEASE: Form<f64> = Form {
    read: |reader, entry| time(reader, entry, 0.5, "a time from half a second to a day"),
    schema: time_schema,
};

/// A pause, in seconds.
const PAUSE: Form<f64> = Form {
    read: |reader, entry| time(reader, entry, 0.0, "a time of at most a day"),
    schema: time_schema,
};

/// How many times the median is too long.
const TIMES: Form<f64> = Form {
    read: |reader, entry| {
        let expected = "a number of at least 1: how many times the median is too long";
        number(reader, entry, 1.0, expected)
    },
    schema: || json!({ "type": "number", "minimum": 1 }),
};

/// A share, or `false` for none.
const SHARE: Form<Option<f64>> = Form {
    read: |reader, entry| {
        if let DeValue::Boolean(false) = entry.item.get_ref() {
            return Some(None);
        }
        let expected = "a share between 0 and 1, or `false`";
        let share = number(reader, entry, f64::MIN_POSITIVE, expected)?;
        in_range(reader, entry, share, 0.0..=1.0, expected).map(Some)
    },
    schema: || json!({ "anyOf": [{ "const": false }, { "type": "number", "exclusiveMinimum": 0, "maximum": 1 }] }),
};

fn time_schema() -> serde_json::Value {
    json!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": DAY_S }, { "type": "string", "examples": ["30s", "1.5s", "2m"] }] })
}

/// The longest lease or pause, in seconds.
const DAY_S: f64 = 86_400.0;

/// A number of seconds, or a text like `30s` or `1.5s`, from `least` to a day.
fn time(reader: &mut Reader<'_>, entry: &Entry<'_>, least: f64, what: &str) -> Option<f64> {
    let DeValue::String(text) = entry.item.get_ref() else {
        return number_in(reader, entry, least..=DAY_S, what);
    };
    let seconds = decimal(text).or_else(|| parse_walltime(text).map(|s| s as f64));
    let Some(seconds) = seconds else {
        reader.wrong(entry.at, format!("`{text}` is not a time"), WALLTIME_FORMS);
        return None;
    };
    in_range(reader, entry, seconds, least..=DAY_S, what)
}

/// A number that is at least `least`.
pub(super) fn number(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    least: f64,
    what: &str,
) -> Option<f64> {
    number_in(reader, entry, least..=f64::MAX, what)
}

/// A number within a range, which `what` describes.
pub(super) fn number_in(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    range: std::ops::RangeInclusive<f64>,
    what: &str,
) -> Option<f64> {
    let value = match entry.item.get_ref() {
        DeValue::Integer(n) => n.as_str().parse::<f64>().ok(),
        DeValue::Float(n) => n.as_str().parse::<f64>().ok(),
        _ => None,
    };
    let Some(value) = value else {
        reader.expected(entry, what);
        return None;
    };
    in_range(reader, entry, value, range, what)
}

/// A value of the right type, but for its size.
fn in_range(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    what: &str,
) -> Option<f64> {
    if range.contains(&value) {
        return Some(value);
    }
    reader.wrong(entry.at, format!("`{}` cannot be {value}", entry.key), format!("write {what}"));
    None
}

/// Seconds of a decimal number with its unit; unlike a walltime it may be nothing, and part of a second.
fn decimal(text: &str) -> Option<f64> {
    let unit = text.trim().chars().next_back()?;
    let each = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86400.0)];
    let each = each.iter().find(|(name, _)| *name == unit)?.1;
    let number = text.trim().strip_suffix(unit)?.trim_end();
    let is_plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = number.parse::<f64>().ok().filter(|_| is_plain)?;
    Some(number * each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;
    use crate::plan::testing::{check_faults, check_plan_faults, plan};

    #[test]
    fn agents_are_told_what_is_written_and_defaults_otherwise() {
        let plan = plan(
            "schedule.mode = \"pull\"\n[pull]\nworkers = 3\nslots = 8\nlease = \"30s\"\nbackoff = \"0s\"\nbreaker = false\nrepeatable = true\ntime_request = \"5m\"\n",
        );
        let expected = Pull {
            workers: 3,
            slots: Some(8),
            lease_s: 30.0,
            backoff_s: 0.0,
            breaker: None,
            repeatable: true,
            time_request_s: Some(300),
            ..Pull::default()
        };
        assert_eq!(plan.schedule.pull, expected);
        assert_eq!(plan.schedule.mode, Mode::Pull);
    }

    #[test]
    fn training_runs_once_at_a_time() {
        check_plan_faults(
            "version = 1\nsweep.name = \"s\"\n[train]\nmodel = { kind = \"mlp\", hidden = [8], outputs = 10 }\n\
             data = { train = \"digits.npz\" }\n[pull]\nrepeatable = true\n",
            "`repeatable` cannot be true beside `[train]`: two runs of a trial would write the same checkpoints
  plan.toml:7: repeatable = true
hint: leave `repeatable` out",
        );
    }

    #[test]
    fn times_may_be_parts_of_a_second() {
        let of = |lease: &str| {
            plan(&format!("pull.lease = {lease}\npull.backoff = {lease}\n")).schedule.pull
        };
        for (lease, seconds) in [
            ("\"1.5s\"", 1.5),
            ("\"0.5m\"", 30.0),
            ("1.5", 1.5),
            ("\"90s\"", 90.0),
            ("\"00:02:00\"", 120.0),
        ] {
            let pull = of(lease);
            assert_eq!((pull.lease_s, pull.backoff_s), (seconds, seconds), "{lease}");
        }
        check_faults(
            "pull.lease = \"1.5.2s\"\n",
            "`1.5.2s` is not a time
  plan.toml:4: pull.lease = \"1.5.2s\"
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`",
        );
    }

    #[test]
    fn a_pack_is_of_arrays_and_of_whole_chains() {
        check_faults(
            "schedule.pack = 5\nschedule.mode = \"pull\"\nschedule.chains = \"jobs\"\n",
            "agents take trials one by one: `pack` belongs to arrays
  plan.toml:4: schedule.pack = 5
hint: leave `pack` out, or `mode`
error: a packed element runs whole chains, link by link
  plan.toml:4: schedule.pack = 5
hint: leave `chains` out, or write `chains = \"fused\"`",
        );
    }

    #[test]
    fn slips_are_named() {
        check_faults(
            "schedule.pack = 0\nschedule.mode = \"push\"\n[pull]\nlease = 0.1\nbackoff = \"2d\"\nslots = 5000\nbreaker = 2\nfolders = 1\nwalltime = \"soon\"\nslot = 3\n",
            "`pack` cannot be 0
  plan.toml:4: schedule.pack = 0
hint: write a number from 1 to 4294967295
error: `mode` has no setting `push`
  plan.toml:5: schedule.mode = \"push\"
hint: write one of `array` and `pull`
error: `lease` cannot be 0.1
  plan.toml:7: lease = 0.1
hint: write a time from half a second to a day
error: `backoff` cannot be 172800
  plan.toml:8: backoff = \"2d\"
hint: write a time of at most a day
error: `slots` cannot be 5000
  plan.toml:9: slots = 5000
hint: write a number from 1 to 4096
error: `breaker` cannot be 2
  plan.toml:10: breaker = 2
hint: write a share between 0 and 1, or `false`
error: `folders` must be `true` or `false`, not an integer
  plan.toml:11: folders = 1
error: `walltime` cannot be `soon`
  plan.toml:12: walltime = \"soon\"
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`
error: `[pull]` has no key `slot`
  plan.toml:13: slot = 3
hint: did you mean `slots`?",
        );
    }
}
