//! `version` and `[sweep]`: what a sweep is called and where its results are.
//!
//! Each key is read and checked by itself; the axes in `[schedule]` are checked elsewhere.

use serde_json::json;

use crate::base::host::access::{Readers, Shared};
use crate::plan::document::form::{INTEGER, LINE, PATH, word};
use crate::plan::document::{Entry, Form, Reader, Section, Word, find, section};
use crate::plan::expansion::leaves::Merge;

/// The version of plans this program reads.
pub(crate) const VERSION: i64 = 1;

/// The longest name of a sweep: it becomes a folder and part of the names of jobs.
const MAX_NAME: usize = 64;

/// `[sweep]` as written, with its defaults; only the name has none.
pub(crate) struct Sweep {
    pub(crate) name: Option<String>,
    pub(crate) root: String,
    pub(crate) seed: i64,
    pub(crate) merge: Merge,
    pub(crate) null: Option<String>,
    pub(crate) shared: Shared,
    pub(crate) readers: Option<Readers>,
}

/// The keys of `[sweep]`.
pub(crate) static SWEEP: Section<Sweep> = section!("`[sweep]`", Sweep:
    "name" => name: NAME, "required",
        "up to 64 letters, digits, `.`, `_`, `-`; the folder under `root`, and part of job names";
    "root" => root: PATH, "`\"results\"`",
        "the folder of all results; must be visible on every node";
    "shared" => shared: word::<Shared>(), "`\"no\"`",
        "`\"group\"`: members of the folder's group may write to the sweep and run it together ([security](security.md))";
    "readable_by" => readers: word::<Readers>(), "as the umask says",
        "`\"owner\"`, `\"group\"` or `\"all\"`: who may read the sweep, whatever the umask of its jobs is ([security](security.md#who-may-read-a-sweep))";
    "seed" => seed: INTEGER, "`1`",
        "an integer: the seed of `[sample]`, the first seed of `[replicates]`, and `{{ sweep.seed }}`";
    "merge" => merge: word::<Merge>(), "`\"deep\"`",
        "how a trial's tables are laid over those of `[defaults]`: `\"deep\"` leaf by leaf, `\"shallow\"` whole tables";
    "null" => null: LINE, "none",
        "a text that is [null](#null) where a parameter of this file has it as its value: `\"none\"`";
);

impl Word for Merge {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deep", Self::Deep), ("shallow", Self::Shallow)];
}

const NAME: Form<String> = Form {
    read: read_name,
    schema: || json!({ "type": "string", "pattern": format!("^[A-Za-z0-9_][A-Za-z0-9._-]{{0,{}}}$", MAX_NAME - 1) }),
};

/// Reads `version`. A plan without it, or of another version than [`VERSION`], is reported.
pub(crate) fn read_version(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) {
    let Some(entry) = entry else {
        let hint = format!("write `version = {VERSION}` at the top of the plan");
        return reader.missing("the plan has no `version`", hint);
    };
    if let Some(version) = reader.integer(entry)
        && version != VERSION
    {
        let sentence = format!("this program does not read plans of version {version}");
        reader.wrong(entry.at, sentence, format!("it reads `version = {VERSION}`"));
    }
}

/// Reads `[sweep]`. A sweep without a name is reported.
pub(crate) fn read_sweep(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) -> Sweep {
    let mut sweep = Sweep {
        name: None,
        root: "results".into(),
        seed: 1,
        merge: Merge::Deep,
        null: None,
        shared: Shared::No,
        readers: None,
    };
    let written = SWEEP.read(reader, entry, &mut sweep);
    if find(&written, "name").is_none() {
        reader.missing("the sweep has no name", "write `name = \"demo\"` under `[sweep]`");
    }
    sweep
}

/// Whether a sweep can be called so.
pub(crate) fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !name.starts_with(['.', '-'])
        && (1..=MAX_NAME).contains(&name.len())
}

fn read_name(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<String> {
    let name = reader.line_of_text(entry)?;
    if !is_name(name) {
        let sentence = format!("the sweep cannot be called `{name}`");
        let hint = format!(
            "it becomes a folder: use up to {MAX_NAME} letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`"
        );
        reader.wrong(entry.at, sentence, hint);
        return None;
    }
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::plan::sections::schedule::Schedule;
    use crate::plan::testing::{check_faults, check_plan_faults, plan};
    use crate::plan::{GpuIds, Mode, Pull};

    #[test]
    fn an_empty_plan_is_told_what_it_needs() {
        check_plan_faults(
            "",
            "the plan has no `version`
  plan.toml
hint: write `version = 1` at the top of the plan
error: the sweep has no name
  plan.toml
hint: write `name = \"demo\"` under `[sweep]`
error: the plan has no command
  plan.toml
hint: write `command = [\"python3\", \"train.py\"]` under `[run]`",
        );
    }

    #[test]
    fn all_faults_of_the_head_are_told_at_once() {
        check_plan_faults(
            "version = 2
[sweep]
name = \"-x\"
nmae = 1
seed = \"1\"
merge = \"depe\"
root = \"\"
[run]
command = [\"a\"]
[schedule]
chain_along = 1
max_running = 0
gpu_ids = true
chains = \"array\"
",
            "this program does not read plans of version 2
  plan.toml:1: version = 2
hint: it reads `version = 1`
error: the sweep cannot be called `-x`
  plan.toml:3: name = \"-x\"
hint: it becomes a folder: use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`
error: `[sweep]` has no key `nmae`
  plan.toml:4: nmae = 1
hint: did you mean `name`?
error: `seed` must be an integer, not a string
  plan.toml:5: seed = \"1\"
error: `merge` has no setting `depe`
  plan.toml:6: merge = \"depe\"
hint: did you mean `deep`?
error: `root` is empty
  plan.toml:7: root = \"\"
hint: give it a value, or remove the key
error: `chain_along` must be the name of an axis or a list of names, not an integer
  plan.toml:11: chain_along = 1
error: `max_running` cannot be 0
  plan.toml:12: max_running = 0
hint: write a number from 1 to 4294967295
error: `gpu_ids` must be a string, not a boolean
  plan.toml:13: gpu_ids = true
error: `chains` has no setting `array`
  plan.toml:14: chains = \"array\"
hint: write one of `jobs`, `barrier` and `fused`",
        );
    }

    #[test]
    fn what_is_not_written_has_a_default() {
        let plan = plan("");
        let schedule = Schedule {
            chain_along: Vec::new(),
            max_running: None,
            gpu_ids: GpuIds::Exact,
            gpu_share: 1,
            chains: None,
            mode: Mode::Array,
            pack: None,
            pull: Pull::default(),
        };
        assert_eq!((&*plan.name, &*plan.root, plan.seed), ("s", "results", 1));
        assert_eq!(plan.schedule, schedule);
    }

    #[test]
    fn a_sweep_needs_the_name_of_a_folder() {
        for name in ["a/b", "..", ".a", "a b", "ä", ""] {
            let text = format!("version = 1\nsweep.name = \"{name}\"\nrun.command = [\"a\"]");
            assert!(crate::plan::parse(&text, "plan.toml").is_err(), "{name}");
        }
        check_faults(
            "sweep.x = 1",
            "`[sweep]` has no key `x`
  plan.toml:4: sweep.x = 1
hint: known here: `name`, `root`, `shared`, `readable_by`, `seed`, `merge` and `null`",
        );
    }
}
