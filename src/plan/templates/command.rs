//! The command of a trial, or of a hook: its arguments and variables with the parameters filled in.
//!
//! The check of a plan, the worker and the calls of hooks all fill templates in here. Nothing is quoted: arguments travel
//! as a vector.

use std::path::Path;

use serde_json::json;
use tera::Context;

use crate::base::fault::Fault;
use crate::plan::run::Run;
use crate::plan::templates::args::{self, Args, is_args, is_taken};
use crate::plan::templates::engine::{self, Parsed};
use crate::plan::templates::known;
use crate::plan::templates::template::Template;
use crate::plan::trial::{TaskId, Trial};
use crate::plan::value::{Params, Value, float_text};

/// `[run] command` and `env`, ready to be filled in for any trial.
pub struct CommandTemplate {
    /// The name of the arguments in messages.
    what: &'static str,
    command: Vec<Template>,
    /// What `{{ args }}` stands for, where the command has it.
    args: Option<Args>,
    env: Vec<(String, Template)>,
    parsed: Parsed,
}

/// What one trial runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Program and arguments, filled in; empty where no command runs.
    pub(crate) argv: Vec<String>,
    /// The variables of `[run] env`.
    pub(crate) env: Vec<(String, String)>,
}

impl CommandTemplate {
    /// The templates of a run.
    ///
    /// # Errors
    /// Returns a fault that names the first argument or variable whose template is invalid.
    pub fn new(run: &Run) -> Result<Self, Fault> {
        let mut own = Self::named("command", &run.command, &run.env)?;
        let has_args = !args::items(&run.command).is_empty();
        own.args = has_args.then(|| Args::of(run.args, &own.command));
        Ok(own)
    }

    /// The templates of an argument vector, called `what` in messages, and of variables.
    ///
    /// # Errors
    /// As [`CommandTemplate::new`].
    pub(crate) fn named(
        what: &'static str,
        argv: &[String],
        env: &[(String, String)],
    ) -> Result<Self, Fault> {
        let command: Vec<Template> = argv.iter().map(|text| Template::new(text)).collect();
        let env: Vec<(String, Template)> =
            env.iter().map(|(name, text)| (name.clone(), Template::new(text))).collect();
        let commands =
            command.iter().enumerate().map(|(i, t)| (argument_name(what, i), &*t.source));
        let sources = commands.chain(env.iter().map(|(name, t)| (variable_name(name), &*t.source)));
        let parsed =
            Parsed::new(sources).map_err(|(name, why)| named(Fault::request(why), &name))?;
        Ok(Self { what, command, args: None, env, parsed })
    }

    /// The command of one trial. `extra` are further names of the templates: `trial` and `sweep`.
    ///
    /// # Errors
    /// Returns a fault that names the argument or variable when its template cannot be filled in,
    /// or gives a text that no program can be given.
    pub fn render(
        &self,
        params: &Params,
        extra: &[(&str, serde_json::Value)],
    ) -> Result<Rendered, Fault> {
        let mut filler = Filler { params, extra, parsed: &self.parsed, context: None };
        let mut argv = Vec::with_capacity(self.command.len());
        for (i, template) in self.command.iter().enumerate() {
            if let Some(args) = &self.args
                && is_args(i, template)
                && !is_taken(params.iter().map(|(name, _)| name))
            {
                argv.extend(args.arguments(params));
                continue;
            }
            match template.name().and_then(|name| params.get(name)) {
                // A list alone is several arguments, as `nargs="+"` wants them.
                Some(Value::List(items)) => {
                    argv.extend(items.iter().map(Value::to_string));
                    continue;
                }
                // The engine writes `-1e-5`, which argparse takes for an option.
                Some(Value::Float(float)) => {
                    argv.push(float_text(*float));
                    continue;
                }
                _ => {}
            }
            let text = filler.fill(template).map_err(|f| named(f, &argument_name(self.what, i)))?;
            // A choice that chose nothing is no argument; a value that is empty is one.
            if i == 0 || !text.is_empty() || !template.has_statements() {
                argv.push(text);
            }
        }
        let mut env = Vec::with_capacity(self.env.len());
        for (name, template) in &self.env {
            let text = filler.fill(template).map_err(|f| named(f, &variable_name(name)))?;
            env.push((name.clone(), text));
        }
        if !self.command.is_empty()
            && !matches!(self.what, "expect" | "file")
            && argv.first().is_none_or(String::is_empty)
        {
            let name = argument_name(self.what, 0);
            return Err(named(Fault::request("the program is an empty text"), &name));
        }
        Ok(Rendered { argv, env })
    }
}

/// The fields of `trial` in expressions.
pub struct TrialNames<'a> {
    /// The trial's number in the sweep, from 0.
    pub id: u64,
    /// Its chain's name as in the plan; null without.
    pub task_id: serde_json::Value,
    /// The number of its chain in the sweep, from 0.
    pub chain: u64,
    /// Its place in that chain, from 0.
    pub link: u64,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The folder that it has for itself, absolute.
    pub work_dir: &'a Path,
    /// Its folder for checkpoints.
    pub checkpoint_dir: &'a Path,
    /// Its devices as in the plan; null without.
    pub gpu_ids_abs: serde_json::Value,
}

/// The names of expressions besides parameters, `trial` and `sweep`: for the check of a plan, for the worker
/// and for hooks. Values that the plan leaves out are empty, so that filters take them.
pub fn names_of(
    trial: TrialNames<'_>,
    sweep: &str,
    seed: i64,
    dir: &Path,
) -> [(&'static str, serde_json::Value); 2] {
    let or_empty = |value: serde_json::Value, empty: serde_json::Value| match value {
        serde_json::Value::Null => empty,
        value => value,
    };
    let fields = json!({
        "id": trial.id, "task_id": or_empty(trial.task_id, json!("")), "chain": trial.chain,
        "link": trial.link, "attempt": trial.attempt, "work_dir": trial.work_dir,
        "checkpoint_dir": trial.checkpoint_dir,
        "gpu_ids_abs": or_empty(trial.gpu_ids_abs, json!([])),
    });
    [("trial", fields), ("sweep", json!({ "name": sweep, "seed": seed, "dir": dir }))]
}

/// The key of an argument, counted from 0 as in the list.
pub(crate) fn argument_name(what: &str, i: usize) -> String {
    format!("{what}[{i}]")
}

/// The key of a variable.
pub(crate) fn variable_name(name: &str) -> String {
    format!("env.{name}")
}

/// The fault as that of a key.
pub(crate) fn named(mut fault: Fault, key: &str) -> Fault {
    fault.sentence = format!("`{key}`: {}", fault.sentence);
    fault.of_key(key)
}

/// Fills templates in for one trial.
pub(crate) struct Filler<'a> {
    pub(crate) params: &'a Params,
    pub(crate) extra: &'a [(&'a str, serde_json::Value)],
    pub(crate) parsed: &'a Parsed,
    pub(crate) context: Option<Context>,
}

impl Filler<'_> {
    pub(crate) fn fill(&mut self, template: &Template) -> Result<String, Fault> {
        let (context, params, extra) = (&mut self.context, self.params, self.extra);
        let rendered = self.parsed.render(&template.source, || match context {
            Some(context) => Ok(&*context),
            None => Ok(&*context.insert(context_of(params, extra)?)),
        });
        let text = rendered.map_err(|error| {
            let uses = template.uses().unwrap_or_default();
            match known::first_unknown(&uses, &params.names) {
                Some(name) if !uses.may_lack => known::unknown_name(&name, [&params.names]),
                _ => Fault::request(engine::sentence(&error)),
            }
        })?;
        if text.contains('\0') {
            return Err(Fault::request(
                "the text holds a NUL character, which no program can take",
            ));
        }
        Ok(text)
    }

    /// A field of `trial` or `sweep`.
    pub(crate) fn field(&self, name: &str) -> Option<&serde_json::Value> {
        let (head, rest) = name.split_once('.')?;
        let (_, value) = self.extra.iter().find(|(name, _)| *name == head)?;
        value.get(rest)
    }
}

/// The parameters and further names as a context of templates.
fn context_of(
    params: &Params,
    extra: &[(&str, serde_json::Value)],
) -> Result<Context, tera::Error> {
    let mut context = engine::context(params)?;
    for (name, value) in extra {
        context.insert((*name).to_owned(), value);
    }
    Ok(context)
}

/// `trial` and `sweep` with values of the right types: no run has given them others yet.
pub(crate) fn stand_ins(id: usize, trial: &Trial) -> [(&'static str, serde_json::Value); 2] {
    let task_id = match &trial.task_id {
        Some(TaskId::Number(number)) => json!(number),
        Some(TaskId::Name(name)) => json!(&**name),
        None => json!(null),
    };
    let fields = TrialNames {
        id: id as u64,
        task_id,
        chain: 0,
        link: 0,
        attempt: 1,
        work_dir: Path::new("work"),
        checkpoint_dir: Path::new("checkpoint"),
        gpu_ids_abs: json!(trial.gpu_ids_abs.as_deref()),
    };
    names_of(fields, "sweep", 1, Path::new("sweep"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::{OnFailure, Value};

    fn run(command: &[&str], env: &[(&str, &str)]) -> Run {
        Run {
            command: command.iter().map(|s| (*s).to_owned()).collect(),
            function: None,
            program: Vec::new(),
            train: None,
            metrics: crate::plan::Metrics::default(),
            hooks: crate::plan::sections::hooks::Hooks::default(),
            container: None,
            workdir: ".".into(),
            setup: Vec::new(),
            modules: Vec::new(),
            env: env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            on_failure: OnFailure::Stop,
            attempts: 1,
            signal: None,
            expect: Vec::new(),
            args: crate::plan::templates::args::Style::default(),
        }
    }

    fn params(pairs: &[(&str, Value)]) -> Params {
        Params::new(
            pairs.iter().map(|(n, _)| Arc::from(*n)).collect(),
            pairs.iter().map(|(_, v)| v.clone()).collect(),
        )
    }

    #[test]
    fn parameters_fill_arguments_and_variables() {
        let run = run(
            &[
                "train",
                "--lr={{ opt.lr }}",
                "{{ name }}",
                "{{ width * 2 }}",
                "{% if amp %}--amp{% endif %}",
                "{{ trial.work_dir }}/out",
                "{{ params.opt.lr }}",
                "{{ trial.link }}",
            ],
            &[("SEED", "{{ sweep.seed }}"), ("PLAIN", "a b")],
        );
        let params = params(&[
            ("opt.lr", Value::Float(1e-5)),
            ("name", Value::text("it's $(x) & <y>")),
            ("width", Value::Int(16)),
            ("amp", Value::Bool(true)),
        ]);
        let extra = [
            ("trial", serde_json::json!({"work_dir": "/w", "link": 2})),
            ("sweep", serde_json::json!({"seed": 7})),
        ];
        let rendered = CommandTemplate::new(&run).unwrap().render(&params, &extra).unwrap();
        let argv = ["train", "--lr=1e-5", "it's $(x) & <y>", "32", "--amp", "/w/out", "1e-5", "2"];
        assert_eq!(rendered.argv, argv);
        let env = [("SEED".to_owned(), "7".to_owned()), ("PLAIN".to_owned(), "a b".to_owned())];
        assert_eq!(rendered.env, env);
    }

    #[test]
    fn what_cannot_be_filled_in_is_named() {
        let check = |command: &[&str], expected: &str| {
            let params = params(&[("lr", Value::Float(0.1)), ("nul", Value::text("a\0"))]);
            let fault =
                CommandTemplate::new(&run(command, &[])).unwrap().render(&params, &[]).unwrap_err();
            assert_eq!(fault.to_string(), expected);
        };
        check(
            &["a", "{{ lrr }}"],
            "`command[1]`: `lrr` is not a name of this plan\nhint: did you mean `lr`?",
        );
        let fault = CommandTemplate::new(&run(&["a", "{{ lr }}", "{{ lr }"], &[])).err().unwrap();
        assert!(fault.to_string().starts_with("`command[2]`: "), "{fault}");
        check(
            &["a{{ nul }}"],
            "`command[0]`: the text holds a NUL character, which no program can take",
        );
        check(&["{% if false %}x{% endif %}"], "`command[0]`: the program is an empty text");
    }
}
