//! `[run]` as written.
//!
//! Reads and checks each key by itself; templates are checked against the trials elsewhere.

use serde_json::json;
use toml::de::DeValue;

use super::argv::{ARGV, Argv};
use crate::plan::document::form::{LINE, LINES, PATH, TEXTS, count, for_shells, word};
use crate::plan::document::{Entry, Form, Reader, Section, Word, entries, find, section};
use crate::plan::run::{Notice, OnFailure, Run};
use crate::plan::sections::hooks::Hooks;
use crate::plan::sections::metrics::Metrics;
use crate::plan::sections::train;
use crate::plan::templates::args::{self, Style};
use crate::plan::templates::places::Places;
use crate::plan::value::{Value, float_text, read_value};

/// What prepares a command, and cannot prepare a function: its program runs already.
const OF_COMMANDS: [&str; 5] = ["workdir", "setup", "modules", "env", "expect"];

/// `[run]` as written, with its defaults; whether its keys go together is not checked yet.
pub(crate) struct Written {
    command: Argv,
    function: Option<String>,
    program: Argv,
    workdir: String,
    setup: Vec<String>,
    modules: Vec<String>,
    env: Env,
    on_failure: OnFailure,
    attempts: u32,
    expect: Argv,
    signal: Option<Notice>,
    args: Style,
}

/// The keys of `[run]`.
pub(crate) static RUN: Section<Written> = section!("`[run]`", Written:
    "command" => command: ARGV, "required without `function` and `[train]`",
        "program and arguments, one string each; no shell reads them";
    "function" => function: LINE, "none",
        "instead of a command: the name of a function of the program that starts agents ([Python](python.md#sweeps), [others](serve.md))";
    "program" => program: ARGV, "none",
        "the program that has the function: jobs of `submit` and agents without `--serve` [start it](serve.md#jobs), one each";
    "args" => args: word::<Style>(), "`\"flags\"`",
        "how [`{{ args }}`](#args), all parameters of a trial, is written: `\"flags\"` (`--lr 0.1`), `\"equals\"` (`--lr=0.1`), `\"hydra\"` (`lr=0.1`)";
    "workdir" => workdir: PATH, "`\".\"`",
        "the folder in which the command runs; must be there on the node";
    "setup" => setup: TEXTS, "`[]`",
        "lines of shell run before the command, in `workdir`: activate an environment, set a limit; the first that fails, or ends the shell, ends the attempt and is named; see below";
    "modules" => modules: LINES, "`[]`",
        "environment modules loaded before `setup`, after those of the site profile";
    "env" => env: ENV, "`{}`",
        "variables of the command: strings, numbers or booleans; names beginning `HPCSWEEP_` are refused";
    "on_failure" => on_failure: word::<OnFailure>(), "`\"stop\"`",
        "what a failed trial does to the rest of its chain: `\"stop\"` skips it, `\"continue\"` goes on";
    "attempts" => attempts: count::<1>(), "`1`",
        "how often a trial is tried before it counts as failed, in its job; several ranks over MPI are launched anew for each attempt. Another number reaches trials that the sweep has when the plan is submitted again: those that wait or run at once, those that have failed with `--retry`";
    "expect" => expect: EXPECT, "`[]`",
        "what a trial must have left when it ends with 0, otherwise it has failed: names of metrics, and files, which begin with `/` or `./`: `[\"loss\", \"{{ trial.work_dir }}/model.pt\"]`; not with `function`";
    "signal" => signal: SIGNAL, "none",
        "a signal that the program gets some seconds before its [deadline](#time), once in each attempt: `\"USR1@120\"`; not with `function` or `[train]`";
);

const EXPECT: Form<Argv> = Form {
    read: |reader, entry| {
        let words = (LINES.read)(reader, entry)?;
        let items = reader.list(entry, "a list of strings")?;
        Some(Argv { words, places: items.iter().map(|item| item.span().start).collect() })
    },
    schema: LINES.schema,
};

const SIGNAL: Form<Option<Notice>> = Form {
    read: |reader, entry| {
        let text = reader.line_of_text(entry)?;
        match text.parse() {
            Ok(notice) => Some(Some(notice)),
            Err(why) => {
                let sentence = format!("`{}` {why}", text.escape_debug());
                let hint =
                    "write a signal and seconds before the deadline: `signal = \"USR1@120\"`";
                reader.wrong(entry.at, sentence, hint);
                None
            }
        }
    },
    schema: || json!({ "type": "string", "pattern": "^[A-Za-z0-9]+@[0-9]{1,5}$", "examples": ["USR1@120"] }),
};

impl Word for OnFailure {
    const WORDS: &'static [(&'static str, Self)] =
        &[("stop", Self::Stop), ("continue", Self::Continue)];
}

impl Word for Style {
    const WORDS: &'static [(&'static str, Self)] =
        &[("flags", Self::Flags), ("equals", Self::Equals), ("hydra", Self::Hydra)];
}

/// Variables of the environment.
#[derive(Default)]
struct Env {
    pairs: Vec<(String, String)>,
    /// The byte offset of each value.
    places: Vec<usize>,
}

const ENV: Form<Env> = Form {
    read: read_env,
    schema: || {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^(?!HPCSWEEP_)[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        })
    },
};

/// Reads `[run]` and `[train]`; `None` if neither says what runs.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    entry: Option<&Entry<'_>>,
    train: Option<&Entry<'_>>,
    places: &mut Places,
) -> Option<Run> {
    let mut form = Written {
        command: Argv::default(),
        function: None,
        program: Argv::default(),
        workdir: ".".to_owned(),
        setup: Vec::new(),
        modules: Vec::new(),
        env: Env::default(),
        on_failure: OnFailure::Stop,
        attempts: 1,
        expect: Argv::default(),
        signal: None,
        args: Style::default(),
    };
    let written = RUN.read(reader, entry, &mut form);
    (places.command, places.env) = (form.command.places, form.env.places);
    places.expect = form.expect.places;
    places.signal = find(&written, "signal").map_or(0, |entry| entry.at);
    let mut run = Run {
        command: form.command.words,
        function: form.function,
        program: form.program.words,
        train: None,
        metrics: Metrics::default(),
        hooks: Hooks::default(),
        container: None,
        workdir: form.workdir,
        setup: form.setup,
        modules: form.modules,
        env: form.env.pairs,
        on_failure: form.on_failure,
        attempts: form.attempts,
        expect: form.expect.words,
        signal: form.signal,
        args: form.args,
    };
    check_keys(reader, &written, run.function.is_some(), train);
    if let Some(entry) = find(&written, "args").filter(|_| args::items(&run.command).is_empty()) {
        let sentence = "`args` says how `{{ args }}` is written, and `command` does not have it";
        let hint = "add `\"{{ args }}\"` to `command`, or leave this out";
        reader.wrong(entry.at, sentence, hint);
    }
    if let Some(train) = train {
        run.train = train::read(reader, train, places);
        return run.train.is_some().then_some(run);
    }
    if run.function.is_some() {
        return Some(run);
    }
    if find(&written, "command").is_none() {
        let hint = "write `command = [\"python3\", \"train.py\"]` under `[run]`";
        reader.missing("the plan has no command", hint);
    }
    (!run.command.is_empty()).then_some(run)
}

/// Refuses keys that do not go together.
fn check_keys(
    reader: &mut Reader<'_>,
    written: &[Entry<'_>],
    of_function: bool,
    train: Option<&Entry<'_>>,
) {
    for entry in written.iter().filter(|e| of_function && OF_COMMANDS.contains(&e.key)) {
        let sentence = format!("`{}` prepares a command, and the plan has a function", entry.key);
        let hint = "the program that calls the function is started before: prepare it there";
        reader.wrong(entry.at, sentence, hint);
    }
    if let (Some(entry), false) = (find(written, "program"), of_function) {
        let sentence = "`program` is what calls a function, and the plan has none";
        let hint = "write `command`, or name the function: `function = \"fit\"`";
        reader.wrong(entry.at, sentence, hint);
    }
    if let (Some(entry), true) = (find(written, "signal"), of_function || train.is_some()) {
        let what_runs = if of_function { "a function" } else { "`[train]`" };
        let sentence = format!("`signal` is for a command, and the plan has {what_runs}");
        let hint = match of_function {
            true => "a function can ask how much time is left: `hpcsweep.time_left()`",
            false => "remove it: training saves a checkpoint when its time is over",
        };
        reader.wrong(entry.at, sentence, hint);
    }
    let command = find(written, "command");
    if let (Some(entry), true) = (command, of_function) {
        let hint = "keep one of them: a function is called by the program that starts the agent";
        reader.wrong(entry.at, "the plan has a command and a function", hint);
    }
    let Some(train) = train else { return };
    if of_function {
        reader.wrong(train.at, "the plan has a function and `[train]`", "keep one of them");
    }
    if command.is_some() {
        let hint = "keep one of them: a command trains by itself, `[train]` inside the worker";
        reader.wrong(train.at, "the plan has a command and `[train]`", hint);
    }
}

fn read_env(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Env> {
    let mut env = Env::default();
    for entry in entries(reader.table(entry)?) {
        let name = entry.key;
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            let sentence = format!("`{}` cannot be an environment variable", name.escape_debug());
            let hint = "use letters, digits and `_`, and begin with no digit";
            reader.wrong(entry.at, sentence, hint);
            continue;
        }
        if name.starts_with("HPCSWEEP_") {
            let sentence = format!("`{name}` is set by hpcsweep itself");
            reader.wrong(entry.at, sentence, "choose a name that does not begin with `HPCSWEEP_`");
            continue;
        }
        let text = match entry.item.get_ref() {
            DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                match read_value(reader, name, entry.item) {
                    Some(Value::Float(f)) => Some(float_text(f)),
                    other => other.map(|value| value.to_string()),
                }
            }
            _ => {
                reader.expected(&entry, "a string, a number or a boolean");
                None
            }
        };
        if let Some(text) = text {
            if let Some(found) = for_shells(&text) {
                let sentence = format!("`{name}` holds `{found}`, and no shell fills it in");
                let hint = format!(
                    "write `export {name}=...` in `setup`, or the value itself; for the text, `{{{{ '{found}' }}}}`"
                );
                reader.wrong(entry.at, sentence, hint);
                continue;
            }
            env.pairs.push((name.to_owned(), text));
            env.places.push(entry.item.span().start);
        }
    }
    Some(env)
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_plan_faults, plan};
    use crate::plan::{OnFailure, parse};

    #[test]
    fn all_of_run_is_read() {
        let text = "version = 1
sweep.name = \"s\"
[run]
command = [\"python3\", \"train.py\"]
workdir = \"/w\"
setup = [\"source a\", \"export B=1\\nexport C=2\"]
modules = [\"cuda/12.4\"]
env = { A = \"4\", B = 2, C = 1e-5, D = true, E = \"x\\ny\" }
on_failure = \"continue\"
attempts = 3
";
        let run = parse(text, "plan.toml").unwrap().run;
        assert_eq!(run.command, ["python3", "train.py"]);
        assert_eq!((&*run.workdir, run.attempts), ("/w", 3));
        assert_eq!(run.setup, ["source a", "export B=1\nexport C=2"]);
        assert_eq!(run.modules, ["cuda/12.4"]);
        let env: Vec<String> = run.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(env, ["A=4", "B=2", "C=1e-5", "D=true", "E=x\ny"]);
        assert_eq!(run.on_failure, OnFailure::Continue);
    }

    #[test]
    fn what_is_not_written_has_a_default() {
        let run = plan("").run;
        assert_eq!((&*run.workdir, run.attempts, run.on_failure), (".", 1, OnFailure::Stop));
        assert!(run.setup.is_empty() && run.modules.is_empty() && run.env.is_empty());
    }

    #[test]
    fn a_function_stands_for_a_command() {
        let text = |run: &str| format!("version = 1\nsweep.name = \"s\"\n[run]\n{run}");
        let key = |run: &str| {
            let plan = parse(&text(run), "plan.toml").unwrap();
            plan.content_key(&plan.trials[0])
        };
        let one = parse(&text("function = \"train:fit\"\nattempts = 2"), "plan.toml").unwrap().run;
        assert_eq!((one.function.as_deref(), one.attempts), (Some("train:fit"), 2));
        assert!(one.command.is_empty());
        let key_of_one = key("function = \"train:fit\"");
        let program = "function = \"train:fit\"\nprogram = [\"python3\", \"fit.py\"]";
        let named = parse(&text(program), "plan.toml").unwrap().run;
        assert_eq!(named.program, ["python3", "fit.py"]);
        assert_eq!(key_of_one, key(program));
        check_plan_faults(
            &text("command = [\"a\"]\nprogram = [\"b\"]"),
            "`program` is what calls a function, and the plan has none
  plan.toml:5: program = [\"b\"]
hint: write `command`, or name the function: `function = \"fit\"`",
        );
        assert_eq!(key_of_one, key("function = \"train:fit\"\nattempts = 2"));
        assert_ne!(key_of_one, key("function = \"train:other\""));
        check_plan_faults(
            &text("function = \"f\"\ncommand = [\"a\"]\nenv = { A = 1 }\n[train]\n"),
            "the plan has a command and a function
  plan.toml:5: command = [\"a\"]
hint: keep one of them: a function is called by the program that starts the agent
error: `env` prepares a command, and the plan has a function
  plan.toml:6: env = { A = 1 }
hint: the program that calls the function is started before: prepare it there
error: the plan has a function and `[train]`
  plan.toml:7: [train]
hint: keep one of them
error: the plan has a command and `[train]`
  plan.toml:7: [train]
hint: keep one of them: a command trains by itself, `[train]` inside the worker",
        );
    }

    #[test]
    fn a_signal_is_named_with_and_without_sig() {
        let text = |run: &str| format!("version = 1\nsweep.name = \"s\"\n[run]\n{run}");
        for (written, read) in [
            ("USR1@120", "USR1@120"),
            ("SIGUSR2@1", "USR2@1"),
            ("sigterm@65535", "TERM@65535"),
            ("hup@060", "HUP@60"),
        ] {
            let text = text(&format!("command = [\"a\"]\nsignal = \"{written}\""));
            let signal = parse(&text, "plan.toml").unwrap().run.signal.unwrap();
            assert_eq!(String::from(signal), read);
            assert_eq!(serde_json::from_value::<crate::plan::Notice>(read.into()).unwrap(), signal);
        }
        for (written, why) in [
            ("USR1", "is not a signal, `@` and seconds"),
            ("FOO@3", "names no signal of Linux"),
            ("10@120", "names no signal of Linux"),
            ("B:USR1@120", "names no signal of Linux"),
            ("KILL@60", "names a signal that no program can handle"),
            ("USR1@0", "does not have 1 to 65535 whole seconds after `@`"),
            ("USR1@+5", "does not have 1 to 65535 whole seconds after `@`"),
            ("USR1@2m", "does not have 1 to 65535 whole seconds after `@`"),
            ("USR1@65536", "does not have 1 to 65535 whole seconds after `@`"),
        ] {
            check_plan_faults(
                &text(&format!("command = [\"a\"]\nsignal = \"{written}\"")),
                &format!(
                    "`{written}` {why}
  plan.toml:5: signal = \"{written}\"
hint: write a signal and seconds before the deadline: `signal = \"USR1@120\"`"
                ),
            );
        }
        let short = |seconds: u32, walltime: &str| {
            text(&format!(
                "command = [\"a\"]\nsignal = \"USR1@{seconds}\"\n[resources]\nwalltime = \"{walltime}\""
            ))
        };
        // In a job of 127 seconds the deadline is 6.35 seconds before its end.
        for walltime in ["60s", "2m", "126s"] {
            let shown = crate::base::units::walltime_text(
                crate::base::units::parse_walltime(walltime).unwrap(),
            );
            check_plan_faults(
                &short(120, walltime),
                &format!(
                    "`signal` would come before a trial with the walltime {shown} begins
  plan.toml:5: signal = \"USR1@120\"
hint: set fewer seconds or a longer `walltime`; in a job, the deadline is 5 % before its end, 2 to 30 s"
                ),
            );
        }
        assert!(parse(&short(120, "127s"), "plan.toml").is_ok());
        check_plan_faults(
            &text("function = \"f\"\nsignal = \"USR1@5\""),
            "`signal` is for a command, and the plan has a function
  plan.toml:5: signal = \"USR1@5\"
hint: a function can ask how much time is left: `hpcsweep.time_left()`",
        );
    }

    #[test]
    fn faults_of_run_are_told_together() {
        check_plan_faults(
            "version = 1
sweep.name = \"s\"
[run]
command = \"python x\"
setup = \"source a\"
modules = [\"a\\nb\", 1]
on_failure = \"halt\"
attempts = 0
comand = []
[run.env]
\"A B\" = 1
HPCSWEEP_X = \"1\"
OK = [1]
",
            "`command` must be a list of strings, not a string
  plan.toml:4: command = \"python x\"
hint: write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; for shell code, `[\"sh\", \"-c\", \"...\"]`
error: `setup` must be a list of strings, not a string
  plan.toml:5: setup = \"source a\"
error: `modules` holds a line break
  plan.toml:6: modules = [\"a\\nb\", 1]
hint: it becomes part of one line: remove the break
error: `modules` must be a list of strings; this is an integer
  plan.toml:6: modules = [\"a\\nb\", 1]
error: `on_failure` has no setting `halt`
  plan.toml:7: on_failure = \"halt\"
hint: write one of `stop` and `continue`
error: `attempts` cannot be 0
  plan.toml:8: attempts = 0
hint: write a number from 1 to 4294967295
error: `[run]` has no key `comand`
  plan.toml:9: comand = []
hint: did you mean `command`?
error: `A B` cannot be an environment variable
  plan.toml:11: \"A B\" = 1
hint: use letters, digits and `_`, and begin with no digit
error: `HPCSWEEP_X` is set by hpcsweep itself
  plan.toml:12: HPCSWEEP_X = \"1\"
hint: choose a name that does not begin with `HPCSWEEP_`
error: `OK` must be a string, a number or a boolean, not a list
  plan.toml:13: OK = [1]",
        );
        for command in ["[]", "[\"\"]"] {
            check_plan_faults(
                &format!("version = 1\nsweep.name = \"s\"\nrun.command = {command}"),
                &format!(
                    "`command` names no program
  plan.toml:3: run.command = {command}
hint: write it as the first element"
                ),
            );
        }
    }
}
