//! `[run]` as written.
//!
//! Reads and checks each key by itself; templates are checked against the trials elsewhere.

use toml::de::DeValue;

use super::check::Places;
use super::reader::{Entry, Reader, entries};
use super::value::{Value, float_text};
use super::{Hooks, Metrics, OnFailure, Run, train};

const KEYS: &[&str] = &[
    "command",
    "function",
    "program",
    "workdir",
    "setup",
    "modules",
    "env",
    "on_failure",
    "attempts",
];
/// What prepares a command, and cannot prepare a function: its program runs already.
const OF_COMMANDS: [&str; 4] = ["workdir", "setup", "modules", "env"];

/// Reads `[run]` and `[train]`; `None` if neither says what runs.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: Option<&Entry<'_>>,
    train: Option<&Entry<'_>>,
    places: &mut Places,
) -> Option<Run> {
    let mut run = Run {
        command: Vec::new(),
        function: None,
        program: Vec::new(),
        train: None,
        metrics: Metrics::default(),
        hooks: Hooks::default(),
        workdir: ".".to_owned(),
        setup: Vec::new(),
        modules: Vec::new(),
        env: Vec::new(),
        on_failure: OnFailure::Stop,
        attempts: 1,
    };
    let mut has_command = false;
    let table = entry.and_then(|entry| reader.table(entry));
    let written = table.map(entries).unwrap_or_default();
    for entry in &written {
        match entry.key {
            "command" => {
                has_command = true;
                (run.command, places.command) = read_argv(reader, entry).unwrap_or_default();
            }
            "function" => run.function = reader.line_of_text(entry).map(str::to_owned),
            "program" => {
                run.program = read_argv(reader, entry).map(|(argv, _)| argv).unwrap_or_default();
            }
            "workdir" => {
                if let Some(folder) = reader.line_of_text(entry) {
                    run.workdir = folder.to_owned();
                }
            }
            "setup" => {
                let lines = reader.texts(entry, |r, e| r.text(e).map(str::to_owned));
                run.setup = lines.unwrap_or_default();
            }
            "modules" => {
                let names = reader.texts(entry, |r, e| r.line_of_text(e).map(str::to_owned));
                run.modules = names.unwrap_or_default();
            }
            "env" => read_env(reader, entry, &mut run, places),
            "on_failure" => {
                let words = [("stop", OnFailure::Stop), ("continue", OnFailure::Continue)];
                run.on_failure = reader.word(entry, &words).unwrap_or(OnFailure::Stop);
            }
            "attempts" => run.attempts = reader.count(entry, 1).unwrap_or(1),
            _ => reader.unknown(entry, "`[run]`", KEYS),
        }
    }
    let of_function = run.function.is_some();
    for entry in written.iter().filter(|e| of_function && OF_COMMANDS.contains(&e.key)) {
        let sentence = format!("`{}` prepares a command, and the plan has a function", entry.key);
        let hint = "the program that calls the function is started before: prepare it there";
        reader.wrong(entry.at, sentence, hint);
    }
    if let Some(entry) = written.iter().find(|e| !of_function && e.key == "program") {
        let sentence = "`program` is what calls a function, and the plan has none";
        reader.wrong(
            entry.at,
            sentence,
            "write `command`, or name the function: `function = \"fit\"`",
        );
    }
    if let Some(entry) = written.iter().find(|e| of_function && e.key == "command") {
        let hint = "keep one of them: a function is called by the program that starts the agent";
        reader.wrong(entry.at, "the plan has a command and a function", hint);
    }
    if let Some(train) = train {
        if of_function {
            let hint = "keep one of them";
            reader.wrong(train.at, "the plan has a function and `[train]`", hint);
        }
        if has_command {
            let hint = "keep one of them: a command trains by itself, `[train]` inside the worker";
            reader.wrong(train.at, "the plan has a command and `[train]`", hint);
        }
        run.train = train::read(reader, train, places);
        return run.train.is_some().then_some(run);
    }
    if of_function {
        return Some(run);
    }
    if !has_command {
        let hint = "write `command = [\"python3\", \"train.py\"]` under `[run]`";
        reader.missing("the plan has no command", hint);
    }
    (!run.command.is_empty()).then_some(run)
}

/// An argument vector with the place of each argument.
pub(super) fn read_argv(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
) -> Option<(Vec<String>, Vec<usize>)> {
    let key = entry.key;
    if let DeValue::String(_) = entry.item.get_ref() {
        let hint = "write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; \
                    for shell code, `[\"sh\", \"-c\", \"...\"]`";
        let sentence = format!("`{key}` must be a list of strings, not a string");
        reader.wrong(entry.at, sentence, hint);
        return None;
    }
    let argv = reader.texts(entry, |r, e| r.text(e).map(str::to_owned))?;
    if argv.first().is_none_or(|program| program.trim().is_empty()) {
        let sentence = format!("`{key}` names no program");
        reader.wrong(entry.at, sentence, "write it as the first element");
        return None;
    }
    let items = reader.list(entry, "a list of strings")?;
    Some((argv, items.iter().map(|item| item.span().start).collect()))
}

fn read_env(reader: &mut Reader<'_>, entry: &Entry<'_>, run: &mut Run, places: &mut Places) {
    let Some(table) = reader.table(entry) else { return };
    for entry in entries(table) {
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
                match reader.value(name, entry.item) {
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
            run.env.push((name.to_owned(), text));
            places.env.push(entry.item.span().start);
        }
    }
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
