//! `[retry]`: which trials run again by themselves after they ended without success, and with which requests.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::de::DeValue;

use super::pull::number;
use crate::plan::document::form::{FLAG, MEMORY, WALLTIME, count};
use crate::plan::document::{Entry, Form, Reader, Section, entries, section};

/// `[retry]`: which ends are repeated, how often, and with which requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Retry {
    /// Whether trials run again without a person.
    pub(crate) auto: bool,
    /// How often a trial does.
    pub(crate) max: u32,
    /// How its memory grows after too little of it, MiB.
    pub(crate) oom: Option<Growth>,
    /// How its walltime grows after it ran into it, seconds.
    pub(crate) timeout: Option<Growth>,
    /// What happens after a node failed.
    pub(crate) node: Node,
    /// What happens after the scheduler needed its place.
    pub(crate) preempted: Preempted,
    /// The exit codes after which it runs again.
    pub(crate) exit_codes: Vec<i32>,
    /// The core-hours of the sweep's attempts beyond which nothing does.
    pub(crate) budget: Option<f64>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            auto: false,
            max: 3,
            oom: None,
            timeout: None,
            node: Node::default(),
            preempted: Preempted::default(),
            exit_codes: Vec::new(),
            budget: None,
        }
    }
}

/// How a request grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Growth {
    /// By this factor each time.
    pub(crate) factor: f64,
    /// The largest request, in the unit of the request (MiB or seconds); `None`: no limit.
    pub(crate) up_to: Option<u64>,
}

impl Growth {
    /// The request that follows this one; `None` where it may not grow.
    pub(crate) fn raise(self, before: u64) -> Option<u64> {
        let grown = (before as f64 * self.factor).ceil() as u64;
        let limited = self.up_to.map_or(grown, |most| grown.min(most));
        (limited > before).then_some(limited)
    }

    /// The request that has grown so often.
    pub(crate) fn times(self, before: u64, times: u32) -> u64 {
        (0..times).try_fold(before, |now, _| self.raise(now).ok_or(now)).unwrap_or_else(|most| most)
    }
}

/// `[retry] node`: what follows if a node failed or a job left no end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    /// Whether the trial stays away from the node that failed.
    pub(crate) exclude: bool,
}

/// `[retry] preempted`: what follows if the scheduler took the job's place away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Preempted {
    /// Whether such ends do not count towards `max`.
    pub(crate) unlimited: bool,
}

/// The keys of `[retry]`.
pub(crate) static RETRY: Section<Retry> = section!("`[retry]`", Retry:
    "auto" => auto: FLAG, "`false`", "whether trials run again without a person";
    "max" => max: count::<1>(), "3", "how often a trial runs again at most";
    "oom" => oom: OOM, "not repeated",
        "after too little memory: `{ memory = \"x2\", up_to = \"64G\" }` repeats the trial with twice the memory that it had, up to 64G";
    "timeout" => timeout: TIMEOUT, "not repeated",
        "after the walltime: `{ walltime = \"x1.5\", up_to = \"24h\" }`; only if the attempt wrote a checkpoint or its metrics advanced. With `x1` the trial continues with the same walltime";
    "node" => node: NODE, "`{ exclude = false }`",
        "after a node failed, or a job left no end: the trial runs again; with `exclude = true` not on that node, where the scheduler can exclude nodes (Slurm)";
    "preempted" => preempted: PREEMPTED, "`{ unlimited = false }`",
        "after preemption: the trial runs again; with `unlimited = true` that does not count towards `max`";
    "exit_codes" => exit_codes: EXIT_CODES, "none",
        "`{ 75 = \"again\" }`: exit codes after which a trial runs again. Other failures of programs are not repeated";
    "budget" => budget: CORE_HOURS, "none",
        "core-hours: once the attempts of the sweep have used so many, nothing is repeated; each counts with the cores that it requested, until its end or now";
);

/// Growth as written: the factor may be missing.
#[derive(Default)]
struct Grows {
    factor: Option<f64>,
    up_to: Option<u64>,
}

static MORE_MEMORY: Section<Grows> = section!("`oom`", Grows:
    "memory" => factor: MORE, "required", "how much more memory: `\"x2\"`";
    "up_to" => up_to: MEMORY, "none", "the most memory";
);

static MORE_TIME: Section<Grows> = section!("`timeout`", Grows:
    "walltime" => factor: FACTOR, "required", "how much more walltime: `\"x1.5\"`";
    "up_to" => up_to: WALLTIME, "none", "the longest walltime";
);

static AT_NODE: Section<Node> = section!("`node`", Node:
    "exclude" => exclude: FLAG, "`false`", "whether the trial stays away from the node";
);

static WHEN_PREEMPTED: Section<Preempted> = section!("`preempted`", Preempted:
    "unlimited" => unlimited: FLAG, "`false`", "whether preemption does not count towards `max`";
);

const OOM: Form<Growth> = Form {
    read: |reader, entry| growth(reader, entry, &MORE_MEMORY, "memory = \"x2\""),
    schema: || required(MORE_MEMORY.schema(), "memory"),
};

const TIMEOUT: Form<Growth> = Form {
    read: |reader, entry| growth(reader, entry, &MORE_TIME, "walltime = \"x1.5\""),
    schema: || required(MORE_TIME.schema(), "walltime"),
};

const NODE: Form<Node> = Form {
    read: |reader, entry| Some(table(reader, entry, &AT_NODE)),
    schema: || AT_NODE.schema(),
};

const PREEMPTED: Form<Preempted> = Form {
    read: |reader, entry| Some(table(reader, entry, &WHEN_PREEMPTED)),
    schema: || WHEN_PREEMPTED.schema(),
};

/// `x2`: a factor of at least 1.
const FACTOR: Form<f64> = Form {
    read: |reader, entry| factor(reader, entry, 1.0),
    schema: || json!({ "type": "string", "pattern": "^x[0-9]+(\\.[0-9]+)?$", "examples": ["x1.5", "x2"] }),
};

/// `x2`: a factor above 1.
const MORE: Form<f64> =
    Form { read: |reader, entry| factor(reader, entry, 1.0 + f64::EPSILON), schema: FACTOR.schema };

/// The greatest factor by which a request may grow at a time.
const MOST: f64 = 100.0;

const CORE_HOURS: Form<f64> = Form {
    read: |reader, entry| number(reader, entry, f64::MIN_POSITIVE, "a number of core-hours"),
    schema: || json!({ "type": "number", "exclusiveMinimum": 0 }),
};

const EXIT_CODES: Form<Vec<i32>> = Form {
    read: |reader, entry| {
        let table = reader.table(entry)?;
        Some(entries(table).iter().filter_map(|code| exit_code(reader, code)).collect())
    },
    schema: || {
        json!({ "type": "object", "patternProperties": { "^[0-9]+$": { "const": "again" } },
                "additionalProperties": false })
    },
};

fn exit_code(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<i32> {
    reader.word(entry, &[("again", ())])?;
    let code = entry.key.parse().ok().filter(|code| (1..=255).contains(code));
    if code.is_none() {
        let sentence = format!("`{}` is no exit code of a failure", entry.key);
        reader.wrong(entry.at, sentence, "write a number from 1 to 255, as in `75 = \"again\"`");
    }
    code
}

fn table<S: Default>(reader: &mut Reader<'_>, entry: &Entry<'_>, section: &Section<S>) -> S {
    let mut read = S::default();
    section.read(reader, Some(entry), &mut read);
    read
}

fn growth(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    section: &Section<Grows>,
    example: &str,
) -> Option<Growth> {
    let n_faults_before = reader.n_faults();
    let Grows { factor, up_to } = table(reader, entry, section);
    if factor.is_none() && reader.n_faults() == n_faults_before {
        let sentence = format!("`{}` does not say how much more", entry.key);
        reader.wrong(entry.at, sentence, format!("write `{} = {{ {example} }}`", entry.key));
    }
    Some(Growth { factor: factor?, up_to })
}

fn factor(reader: &mut Reader<'_>, entry: &Entry<'_>, least: f64) -> Option<f64> {
    let DeValue::String(text) = entry.item.get_ref() else {
        reader.expected(entry, "a factor such as `\"x2\"`");
        return None;
    };
    let factor = text.strip_prefix('x').and_then(|number| number.parse::<f64>().ok());
    let factor = factor.filter(|factor| (least..=MOST).contains(factor));
    if factor.is_none() {
        let sentence = format!("`{}` cannot be `{text}`", entry.key);
        let lower_bound = if least > 1.0 { "above" } else { "from" };
        let hint = format!("write a factor {lower_bound} 1 and up to {MOST}, as `\"x2\"`");
        reader.wrong(entry.at, sentence, hint);
    }
    factor
}

fn required(mut schema: Value, key: &str) -> Value {
    schema["required"] = json!([key]);
    schema
}

/// Reads `[retry]`. What cannot be read is reported and keeps its default.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Retry {
    let mut retry = Retry::default();
    RETRY.read(reader, Some(entry), &mut retry);
    retry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{check_faults, plan};

    #[test]
    fn what_is_repeated_is_named() {
        let text = "[retry]\nauto = true\nmax = 5\noom = { memory = \"x2\", up_to = \"64G\" }\n\
            timeout = { walltime = \"x1.5\" }\nnode = { exclude = true }\npreempted = { unlimited = true }\n\
            exit_codes = { 75 = \"again\" }\nbudget = 0.5\n";
        let retry = Retry {
            auto: true,
            max: 5,
            oom: Some(Growth { factor: 2.0, up_to: Some(65536) }),
            timeout: Some(Growth { factor: 1.5, up_to: None }),
            node: Node { exclude: true },
            preempted: Preempted { unlimited: true },
            exit_codes: vec![75],
            budget: Some(0.5),
        };
        assert_eq!(plan(text).retry, retry);
        assert_eq!(plan("").retry, Retry::default());
    }

    #[test]
    fn a_request_grows_up_to_its_limit() {
        let growth = Growth { factor: 2.0, up_to: Some(6000) };
        assert_eq!(
            [1000, 2999, 3000, 5000, 6000, 9000].map(|mib| growth.raise(mib)),
            [Some(2000), Some(5998), Some(6000), Some(6000), None, None]
        );
        assert_eq!(Growth { factor: 1.5, up_to: None }.raise(3), Some(5));
        assert_eq!(Growth { factor: 1.0, up_to: None }.raise(3), None);
    }

    #[test]
    fn slips_are_told_with_the_place() {
        check_faults(
            "[retry]\noom = { memory = \"2\" }\n",
            "`memory` cannot be `2`
  plan.toml:5: oom = { memory = \"2\" }
hint: write a factor above 1 and up to 100, as `\"x2\"`",
        );
        check_faults(
            "[retry]\noom = { memory = \"x1\" }\n",
            "`memory` cannot be `x1`
  plan.toml:5: oom = { memory = \"x1\" }
hint: write a factor above 1 and up to 100, as `\"x2\"`",
        );
        check_faults(
            "[retry]\ntimeout = { up_to = \"2h\" }\n",
            "`timeout` does not say how much more
  plan.toml:5: timeout = { up_to = \"2h\" }
hint: write `timeout = { walltime = \"x1.5\" }`",
        );
        check_faults(
            "[retry]\nexit_codes = { 0 = \"again\" }\n",
            "`0` is no exit code of a failure
  plan.toml:5: exit_codes = { 0 = \"again\" }
hint: write a number from 1 to 255, as in `75 = \"again\"`",
        );
        check_faults(
            "[retry]\nexit_codes = { 75 = \"agian\" }\n",
            "`75` has no setting `agian`
  plan.toml:5: exit_codes = { 75 = \"agian\" }
hint: did you mean `again`?",
        );
    }
}
