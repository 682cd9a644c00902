//! `[hooks]`: programs that are called when trials have ended.

use super::argv::{ARGV, Argv};
use crate::plan::document::form::WALLTIME;
use crate::plan::document::{Entry, Reader, Section, section};
use crate::plan::templates::places::Places;

/// Seconds that a hook may take where the plan does not say.
const TIMEOUT_S: u64 = 60;

/// `[hooks]`: the programs that are called, and their time.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Hooks {
    /// Called once for each trial that is done: an argument vector, whose elements may hold Tera
    /// expressions over the parameters. Empty: nothing is called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) finish: Vec<String>,
    /// The same for each trial that has ended without success for good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) error: Vec<String>,
    /// Called once when the last trial of the sweep has ended for good: an argument vector.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sweep_finished: Vec<String>,
    /// The same when the sweep stops before that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sweep_failed: Vec<String>,
    /// Seconds after which a hook is killed.
    pub(crate) timeout_s: u64,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            finish: Vec::new(),
            error: Vec::new(),
            sweep_finished: Vec::new(),
            sweep_failed: Vec::new(),
            timeout_s: TIMEOUT_S,
        }
    }
}

impl Hooks {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a hook is called at the end of the sweep.
    pub(crate) fn has_end(&self) -> bool {
        !(self.sweep_finished.is_empty() && self.sweep_failed.is_empty())
    }

    /// The hooks of trials with their names in messages, `finish` first; one that is not there is empty.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        [("hooks.finish", &*self.finish), ("hooks.error", &*self.error)].into_iter()
    }
}

/// `[hooks]` as written; words of templates have their places, and `timeout_s` has no default yet.
#[derive(Default)]
pub(crate) struct Written {
    finish: Argv,
    error: Argv,
    sweep_finished: Argv,
    sweep_failed: Argv,
    timeout_s: Option<u64>,
}

/// The keys of `[hooks]`.
pub(crate) static HOOKS: Section<Written> = section!("`[hooks]`", Written:
    "finish" => finish: ARGV, "none", "called once for each trial that is done";
    "error" => error: ARGV, "none",
        "called once for each trial that has ended without success for good: its program failed, was killed, ran into its walltime, or could not be started";
    "sweep_finished" => sweep_finished: ARGV, "none",
        "called once when the last trial of the sweep has ended for good; an argument vector without expressions";
    "sweep_failed" => sweep_failed: ARGV, "none",
        "called once when the sweep stops before that: too many of its trials fail ([`breaker`](#pull)), or the [`budget`](#retry) is used up";
    "timeout" => timeout_s: WALLTIME, "`\"60s\"`", "how long a call may take, with its unit";
);

/// Reads `[hooks]`, and keeps the places of its templates in `places`.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>, places: &mut Places) -> Hooks {
    let mut written = Written::default();
    HOOKS.read(reader, Some(entry), &mut written);
    let Written { finish, error, sweep_finished, sweep_failed, timeout_s } = written;
    places.hooks = [finish.places, error.places].concat();
    Hooks {
        finish: finish.words,
        error: error.words,
        sweep_finished: sweep_finished.words,
        sweep_failed: sweep_failed.words,
        timeout_s: timeout_s.unwrap_or(TIMEOUT_S),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{check_faults, plan};

    #[test]
    fn hooks_are_commands_with_a_time() {
        let hooks = |body: &str| plan(body).run.hooks;
        let finish = vec!["notify".to_owned(), "{{ lr }}".to_owned()];
        assert_eq!(
            hooks("[hooks]\nfinish = [\"notify\", \"{{ lr }}\"]\n[defaults]\nlr = 1\n"),
            Hooks { finish: finish.clone(), timeout_s: 60, ..Hooks::default() }
        );
        assert_eq!(
            hooks(
                "[hooks]\ntimeout = \"1m30s\"\nerror = [\"./on-error.sh\"]\n\
                 finish = [\"notify\", \"{{ lr }}\"]\n[defaults]\nlr = 1\n"
            ),
            Hooks {
                finish,
                error: vec!["./on-error.sh".to_owned()],
                timeout_s: 90,
                ..Hooks::default()
            }
        );
        assert!(hooks("").is_default());
    }

    #[test]
    fn what_is_not_there_is_not_written() {
        let json = |body: &str| serde_json::to_string(&plan(body).run).unwrap();
        assert!(!json("").contains("hooks"));
        let text = json("[hooks]\nerror = [\"e\"]\n");
        assert!(text.contains(r#""hooks":{"error":["e"],"timeout_s":60}"#), "{text}");
        let run: crate::plan::Run = serde_json::from_str(&text).unwrap();
        assert_eq!(run.hooks.error, ["e"]);
    }

    #[test]
    fn slips_are_told_with_their_place() {
        check_faults(
            "[hooks]\nfinish = \"notify ok\"\nerror = []\ntimeout = 60\nfinsh = [\"x\"]\nsweep_finished = [\"\"]\nsweep_failed = []\n",
            "`finish` must be a list of strings, not a string
  plan.toml:5: finish = \"notify ok\"
hint: write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; for shell code, `[\"sh\", \"-c\", \"...\"]`
error: `error` names no program
  plan.toml:6: error = []
hint: write it as the first element
error: `timeout = 60` lacks a unit
  plan.toml:7: timeout = 60
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`
error: `[hooks]` has no key `finsh`
  plan.toml:8: finsh = [\"x\"]
hint: did you mean `finish`?
error: `sweep_finished` names no program
  plan.toml:9: sweep_finished = [\"\"]
hint: write it as the first element
error: `sweep_failed` names no program
  plan.toml:10: sweep_failed = []
hint: write it as the first element",
        );
        check_faults(
            "hooks = 1",
            "`hooks` must be a table, not an integer\n  plan.toml:4: hooks = 1",
        );
        check_faults(
            "[hooks]\ntimeout = \"soon\"\nx = 1\n",
            "`timeout` cannot be `soon`
  plan.toml:5: timeout = \"soon\"
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`
error: `[hooks]` has no key `x`
  plan.toml:6: x = 1
hint: known here: `finish`, `error`, `sweep_finished`, `sweep_failed` and `timeout`",
        );
    }

    #[test]
    fn expressions_are_checked_against_the_trials() {
        check_faults(
            "[hooks]\nerror = [\"e\", \"{{ lrr }}\"]\nfinish = [\"f\",\n\"{{ lr | }}\"]\n[grid]\nlr = [1]\n",
            "`hooks.error[1]`: `lrr` is not a name of this plan
  plan.toml:5: error = [\"e\", \"{{ lrr }}\"]
hint: did you mean `lr`?
error: `hooks.finish[1]` is not a template: found `}}` but expected identifier
  plan.toml:7: \"{{ lr | }}\"]
hint: expressions are written `{{ name }}`; for text with braces, `{{ '{{' }}`, or `{{ '{#' }}`",
        );
        // Types come out when they are filled in.
        check_faults(
            "[hooks]\nerror = [\"e\",\n\"{{ name * 2 }}\"]\n[defaults]\nname = \"x\"\n",
            "trial 0: `hooks.error[1]`: math operations can only be done on numbers, found `string`
  plan.toml:6: \"{{ name * 2 }}\"]",
        );
        check_faults(
            "[hooks]\nerror = [\"{% if false %}x{% endif %}\"]\n",
            "trial 0: `hooks.error[0]`: the program is an empty text
  plan.toml:5: error = [\"{% if false %}x{% endif %}\"]",
        );
    }
}
