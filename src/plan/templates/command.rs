//! The command of a trial, or of a hook: its arguments and variables with the parameters filled in.
//!
//! Plain text is copied and simple templates are filled in without the engine, so that a worker of
//! a plain command never builds one. Nothing is quoted: arguments travel as a vector.

use std::path::Path;

use serde_json::json;
use tera::{Context, Tera};

use crate::fault::Fault;
use crate::plan::run::Run;
use crate::plan::templates::template::{Piece, Template, write_value};
use crate::plan::templates::{engine, known};
use crate::plan::trial::{TaskId, Trial};
use crate::plan::value::Params;

/// `[run] command` and `env`, ready to be filled in for any trial.
pub struct CommandTemplate {
    /// What the arguments are called in messages.
    what: &'static str,
    command: Vec<Template>,
    env: Vec<(String, Template)>,
    /// Knows the templates that are more than text and names, by their source.
    engine: Option<Tera>,
}

/// What one trial runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The argument vector.
    pub argv: Vec<String>,
    /// The variables of `[run] env`.
    pub env: Vec<(String, String)>,
}

impl CommandTemplate {
    /// The templates of a run.
    ///
    /// # Errors
    /// Returns a fault that names the first argument or variable whose template is none.
    pub fn new(run: &Run) -> Result<Self, Fault> {
        Self::of("command", &run.command, &run.env)
    }

    /// The templates of an argument vector, called `what` in messages, and of variables.
    ///
    /// # Errors
    /// As [`CommandTemplate::new`].
    pub fn of(
        what: &'static str,
        argv: &[String],
        env: &[(String, String)],
    ) -> Result<Self, Fault> {
        let command: Vec<Template> = argv.iter().map(|text| Template::new(text)).collect();
        let env: Vec<(String, Template)> =
            env.iter().map(|(name, text)| (name.clone(), Template::new(text))).collect();
        let mut engine = None;
        let commands = command.iter().enumerate().map(|(i, t)| (argument_name(what, i), t));
        let all = commands.chain(env.iter().map(|(name, t)| (variable_name(name), t)));
        for (name, template) in all.filter(|(_, template)| template.needs_engine()) {
            let engine = engine.get_or_insert_with(engine::engine);
            engine
                .add_raw_template(&template.source, &template.source)
                .map_err(|e| named(Fault::request(engine::sentence(&e)), &name))?;
        }
        Ok(Self { what, command, env, engine })
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
        let mut filler = Filler { params, extra, engine: self.engine.as_ref(), context: None };
        let mut argv = Vec::with_capacity(self.command.len());
        for (i, template) in self.command.iter().enumerate() {
            argv.push(filler.fill(template).map_err(|f| named(f, &argument_name(self.what, i)))?);
        }
        let mut env = Vec::with_capacity(self.env.len());
        for (name, template) in &self.env {
            let text = filler.fill(template).map_err(|f| named(f, &variable_name(name)))?;
            env.push((name.clone(), text));
        }
        if !self.command.is_empty() && argv[0].is_empty() {
            let name = argument_name(self.what, 0);
            return Err(named(Fault::request("the program is an empty text"), &name));
        }
        Ok(Rendered { argv, env })
    }
}

/// The fields of `trial` in expressions.
pub struct TrialNames<'a> {
    /// Its number.
    pub id: u64,
    /// Its chain's name as in the plan; null without.
    pub task_id: serde_json::Value,
    /// Its chain.
    pub chain: u64,
    /// Its place there.
    pub link: u64,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Its own folder.
    pub work_dir: &'a Path,
    /// Its folder for checkpoints.
    pub checkpoint_dir: &'a Path,
    /// Its devices as in the plan; null without.
    pub gpu_ids_abs: serde_json::Value,
}

/// The names of expressions besides parameters, `trial` and `sweep`: for the check of a plan, for the worker
/// and for hooks. What the plan leaves out is empty, so that filters take it.
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
    pub(crate) engine: Option<&'a Tera>,
    pub(crate) context: Option<Context>,
}

impl Filler<'_> {
    pub(crate) fn fill(&mut self, template: &Template) -> Result<String, Fault> {
        let text = match template.pieces().and_then(|pieces| self.filled(pieces)) {
            Some(text) => text,
            None if template.is_plain() => template.source.to_string(),
            None => self.rendered(template)?,
        };
        if text.contains('\0') {
            return Err(Fault::request(
                "the text holds a NUL character, which no program can take",
            ));
        }
        Ok(text)
    }

    /// The text of pieces that are all parameters or plain fields; otherwise the engine decides.
    fn filled(&self, pieces: &[Piece]) -> Option<String> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Name(name) => match self.params.get(name) {
                    Some(value) => write_value(&mut text, value),
                    None => match self.field(name)? {
                        serde_json::Value::String(field) => text.push_str(field),
                        serde_json::Value::Number(number) if !number.is_f64() => {
                            text.push_str(&number.to_string());
                        }
                        _ => return None,
                    },
                },
            }
        }
        Some(text)
    }

    /// A field of `trial` or `sweep`.
    pub(crate) fn field(&self, name: &str) -> Option<&serde_json::Value> {
        let (head, rest) = name.split_once('.')?;
        let (_, value) = self.extra.iter().find(|(name, _)| *name == head)?;
        value.get(rest)
    }

    fn rendered(&mut self, template: &Template) -> Result<String, Fault> {
        if self.context.is_none() {
            self.context = Some(self.new_context()?);
        }
        let context = self.context.get_or_insert_with(Context::new);
        let rendered = match self.engine {
            Some(engine) if template.needs_engine() => engine.render(&template.source, context),
            _ => engine::engine().render_str(&template.source, context, false),
        };
        rendered.map_err(|error| {
            let uses = template.uses().unwrap_or_default();
            match known::first_unknown(&uses, &self.params.names) {
                Some(name) if !uses.may_lack => known::unknown_name(&name, [&self.params.names]),
                _ => Fault::request(engine::sentence(&error)),
            }
        })
    }

    fn new_context(&self) -> Result<Context, Fault> {
        let mut context =
            engine::context(self.params).map_err(|e| Fault::request(engine::sentence(&e)))?;
        for (name, value) in self.extra {
            context.insert((*name).to_owned(), value);
        }
        Ok(context)
    }
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
            hooks: crate::plan::Hooks::default(),
            workdir: ".".into(),
            setup: Vec::new(),
            modules: Vec::new(),
            env: env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            on_failure: OnFailure::Stop,
            attempts: 1,
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
        check(
            &["a{{ nul }}"],
            "`command[0]`: the text holds a NUL character, which no program can take",
        );
        check(&["{% if false %}x{% endif %}"], "`command[0]`: the program is an empty text");
    }
}
