//! `{{ args }}`: all parameters of a trial as arguments of its command.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::plan::templates::engine;
use crate::plan::templates::known::{ARGS, is_inside};
use crate::plan::templates::template::Template;
use crate::plan::value::{Params, Value};

/// How a program wants its parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    /// `--lr 0.1`, as for argparse and click.
    #[default]
    Flags,
    /// `--lr=0.1`, as for absl and Fire.
    Equals,
    /// `lr=0.1`, as for Hydra and OmegaConf.
    Hydra,
}

impl Style {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether an item of a command is `{{ args }}`. The program itself cannot be.
pub(crate) fn is_args(i: usize, template: &Template) -> bool {
    i > 0 && template.name() == Some(ARGS)
}

/// The items of a command that are `{{ args }}`, by their places in it.
pub(crate) fn items(command: &[String]) -> Vec<usize> {
    let items = command.iter().map(|word| Template::new(word)).enumerate();
    items.filter(|(i, item)| is_args(*i, item)).map(|(i, _)| i).collect()
}

/// Whether a parameter of this name, or a table of parameters, is in the way of `{{ args }}`.
pub(crate) fn is_taken<'n>(names: impl IntoIterator<Item = &'n str>) -> bool {
    names.into_iter().any(|name| is_inside(name, ARGS))
}

/// What `{{ args }}` stands for in one command.
#[derive(Debug)]
pub(crate) struct Args {
    style: Style,
    /// The parameters, or tables of them, that stand elsewhere in the command.
    elsewhere: BTreeSet<String>,
}

impl Args {
    /// What `{{ args }}` stands for beside the other items of a command.
    pub(crate) fn of(style: Style, command: &[Template]) -> Self {
        let others = command.iter().enumerate().filter(|(i, template)| !is_args(*i, template));
        let names = others.flat_map(|(_, template)| engine::whole_paths(&template.source));
        let elsewhere = names.map(|name| match name.strip_prefix("params.") {
            Some(parameter) => parameter.to_owned(),
            None => name,
        });
        Self { style, elsewhere: elsewhere.collect() }
    }

    /// The arguments of one trial, in plan order.
    pub(crate) fn arguments(&self, params: &Params) -> Vec<String> {
        let is_elsewhere = |name: &str| {
            self.elsewhere.iter().any(|path| is_inside(name, path) || is_inside(path, name))
        };
        let mut arguments = Vec::new();
        for (name, value) in params.iter().filter(|(name, _)| !is_elsewhere(name)) {
            match (self.style, value) {
                (_, Value::Null) => {}
                (Style::Flags, value) => flag(name, value, &mut arguments),
                (Style::Equals, value) => arguments.push(format!("--{name}={value}")),
                (Style::Hydra, value) => arguments.push(format!("{name}={}", hydra(value))),
            }
        }
        arguments
    }
}

fn flag(name: &str, value: &Value, arguments: &mut Vec<String>) {
    match value {
        Value::Bool(is_set) => arguments.extend(is_set.then(|| format!("--{name}"))),
        Value::List(items) => {
            arguments.push(format!("--{name}"));
            arguments.extend(items.iter().map(Value::to_string));
        }
        value => match value.to_string() {
            // Alone it would be read as an option.
            text if text.starts_with('-') => arguments.push(format!("--{name}={text}")),
            text => arguments.extend([format!("--{name}"), text]),
        },
    }
}

/// A value in the grammar of Hydra's overrides.
fn hydra(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Str(text) => hydra_text(text),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(hydra).collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| format!("{name}:{}", hydra(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        }
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => value.to_string(),
    }
}

/// A text for Hydra: in quotes where it would be a number, a list or a sweep.
fn hydra_text(text: &str) -> String {
    const OTHERS: [&str; 5] = ["true", "false", "null", "inf", "nan"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || "/_".contains(c))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_/.+@-".contains(c))
        && !OTHERS.iter().any(|other| text.eq_ignore_ascii_case(other));
    if is_plain {
        return text.to_owned();
    }
    // Backslashes count only where a quote follows.
    let (mut quoted, mut n_backslashes) = (String::from("'"), 0);
    for c in text.chars() {
        if c == '\'' {
            quoted.extend(std::iter::repeat_n('\\', n_backslashes + 1));
        }
        n_backslashes = if c == '\\' { n_backslashes + 1 } else { 0 };
        quoted.push(c);
    }
    quoted.extend(std::iter::repeat_n('\\', n_backslashes));
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, check_plan_faults, plan};
    use crate::plan::{CommandTemplate, parse};

    /// A plan with such items behind its program.
    fn text(items: &str, style: &str, params: &str) -> String {
        format!(
            "version = 1\nsweep.name = \"s\"\nrun.command = [\"p\", {items}]\n{style}\n[defaults]\n{params}"
        )
    }

    fn arguments(items: &str, style: &str, params: &str) -> Vec<String> {
        let plan = parse(&text(items, style, params), "plan.toml").unwrap();
        let template = CommandTemplate::new(&plan.run).unwrap();
        template.render(&plan.trials[0].params, &[]).unwrap().argv.split_off(1)
    }

    const PARAMS: &str = "lr = 0.1
batch_size = 16
opt.lr-decay = -1e-5
amp = true
debug = false
betas = [0.9, -1]
name = \"it's a\"
shift = -3
mark = \"-x\"
none = \"\"
";

    #[test]
    fn each_style_writes_every_kind_of_value() {
        let all = "\"{{ args }}\"";
        let flags = [
            "--lr",
            "0.1",
            "--batch_size",
            "16",
            "--opt.lr-decay=-0.00001",
            "--amp",
            "--betas",
            "0.9",
            "-1",
            "--name",
            "it's a",
            "--shift=-3",
            "--mark=-x",
            "--none",
            "",
        ];
        assert_eq!(arguments(all, "", PARAMS), flags);
        assert_eq!(arguments("\"{{args}}\"", "run.args = \"flags\"", PARAMS), flags);
        let equals = [
            "--lr=0.1",
            "--batch_size=16",
            "--opt.lr-decay=-0.00001",
            "--amp=true",
            "--debug=false",
            "--betas=[0.9,-1]",
            "--name=it's a",
            "--shift=-3",
            "--mark=-x",
            "--none=",
        ];
        assert_eq!(arguments(all, "run.args = \"equals\"", PARAMS), equals);
        let hydra = [
            "lr=0.1",
            "batch_size=16",
            "opt.lr-decay=-0.00001",
            "amp=true",
            "debug=false",
            "betas=[0.9,-1]",
            "name='it\\'s a'",
            "shift=-3",
            "mark='-x'",
            "none=''",
        ];
        assert_eq!(arguments(all, "run.args = \"hydra\"", PARAMS), hydra);
    }

    #[test]
    fn texts_stay_texts_for_hydra() {
        for (text, expected) in [
            ("adam", "adam"),
            ("/data/a-b.nii", "/data/a-b.nii"),
            ("1e5", "'1e5'"),
            ("True", "'True'"),
            ("a,b", "'a,b'"),
            ("[a]", "'[a]'"),
            ("${x}", "'${x}'"),
            (r"a\b c", r"'a\b c'"),
            (r"a\'b\", r"'a\\\'b\\'"),
        ] {
            assert_eq!(super::hydra_text(text), expected);
        }
        let nested = "l = [\"a b\", { k = \"1\", m = [true] }]\n";
        let all = "\"{{ args }}\"";
        assert_eq!(arguments(all, "run.args = \"hydra\"", nested), ["l=['a b',{k:'1',m:[true]}]"]);
    }

    #[test]
    fn what_stands_elsewhere_in_the_command_is_left_out() {
        let left = |items: &str| arguments(items, "", PARAMS).join(" ");
        let whole = left("\"{{ args }}\"");
        for (item, gone) in [
            ("--rate={{ lr }}", "--lr 0.1 "),
            ("{{ params.lr }}", "--lr 0.1 "),
            ("{{ params['lr'] }}", "--lr 0.1 "),
            ("{{ opt['lr-decay'] }}", "--opt.lr-decay=-0.00001 "),
            ("{{ opt | json_encode }}", "--opt.lr-decay=-0.00001 "),
            ("{{ betas[0] }}", "--betas 0.9 -1 "),
            ("{% if amp %}--fast{% endif %}", "--amp "),
            ("{{ params | json_encode }}", ""),
            ("lr {{ 'lr' }}", ""),
        ] {
            let all = left(&format!("\"{item}\", \"{{{{ args }}}}\""));
            assert!(all.ends_with(&whole.replacen(gone, "", 1)), "{item}: {all}");
        }
    }

    #[test]
    fn a_parameter_of_that_name_keeps_its_place() {
        assert_eq!(arguments("\"{{ args }}\"", "", "args = [\"a\", \"b\"]\nlr = 1"), ["a", "b"]);
    }

    #[test]
    fn a_trial_without_parameters_or_with_null_has_no_argument() {
        assert_eq!(arguments("\"{{ args }}\", \"x\"", "", ""), ["x"]);
        let read = |_: &str| Ok("[{\"a\": null, \"b\": 1}]".to_owned());
        let text = "version = 1\nsweep.name = \"s\"\nrun.command = [\"p\", \"{{ args }}\"]\ntrials.file = \"t.json\"\n";
        let plan = crate::plan::parse_with(text, "plan.toml", &read).unwrap();
        let template = CommandTemplate::new(&plan.run).unwrap();
        assert_eq!(template.render(&plan.trials[0].params, &[]).unwrap().argv, ["p", "--b", "1"]);
    }

    #[test]
    fn the_style_is_part_of_the_key_where_it_is_not_the_default() {
        let key = |style: &str| {
            let plan = parse(&text("\"{{ args }}\"", style, "lr = 1"), "plan.toml").unwrap();
            plan.content_key(&plan.trials[0])
        };
        assert_eq!(key(""), key("run.args = \"flags\""));
        assert_ne!(key(""), key("run.args = \"hydra\""));
        assert_ne!(key("run.args = \"equals\""), key("run.args = \"hydra\""));
    }

    #[test]
    fn args_that_stand_elsewhere_are_refused() {
        let hint = "hint: `{{ args }}` stands for all parameters, alone in an item of `[run] command` behind the program";
        for (item, name) in
            [("\"--x={{ args }}\"", "command[1]"), ("\"{{ args | json_encode }}\"", "command[1]")]
        {
            check_plan_faults(
                &text(item, "", "lr = 1"),
                &format!(
                    "`{name}`: `args` is not a name of this plan
  plan.toml:3: run.command = [\"p\", {item}]
{hint}"
                ),
            );
        }
        check_faults(
            "run.env.A = \"{{ args }}\"",
            &format!(
                "`env.A`: `args` is not a name of this plan
  plan.toml:4: run.env.A = \"{{{{ args }}}}\"
{hint}"
            ),
        );
        check_faults(
            "run.args = \"hydra\"",
            "`args` says how `{{ args }}` is written, and `command` does not have it
  plan.toml:4: run.args = \"hydra\"
hint: add `\"{{ args }}\"` to `command`, or leave this out",
        );
        plan("run.env.A = \"x\"");
    }
}
