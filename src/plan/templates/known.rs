//! Which names a template may use: the parameters of its trial, and what stands for the trial itself.
//!
//! Pure look-ups; callers report errors.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::fault::Fault;
use crate::base::words;
use crate::plan::templates::engine::Uses;

/// The names of `params` that stand for something else in templates of a command.
pub(crate) const RESERVED_NAMES: &[&str] = &["params", "trial", "sweep"];

/// The name that stands for all parameters of a command (`crate::plan::templates::args`).
pub(crate) const ARGS: &str = "args";

/// The fields of `trial` in templates.
const TRIAL_FIELDS: &[&str] =
    &["id", "task_id", "chain", "link", "attempt", "work_dir", "checkpoint_dir", "gpu_ids_abs"];

/// The fields of `sweep` in templates.
const SWEEP_FIELDS: &[&str] = &["name", "seed", "dir"];

/// The dotted names of a set of parameters.
type Names = Arc<[Arc<str>]>;

/// Whether `trial` and `sweep` can be used.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    Command,
    ParametersOnly,
}

/// Whether a template of this scope may use a name.
pub(crate) fn is_known(name: &str, names: &[Arc<str>], scope: Scope) -> bool {
    let (head, rest) = name.split_once('.').map_or((name, None), |(h, r)| (h, Some(r)));
    let field = rest.map(|rest| rest.split('.').next().unwrap_or(rest));
    match head {
        "params" => match rest {
            Some(rest) => is_parameter(rest, names),
            None => true,
        },
        "trial" if scope == Scope::Command => field.is_none_or(|f| TRIAL_FIELDS.contains(&f)),
        "sweep" if scope == Scope::Command => field.is_none_or(|f| SWEEP_FIELDS.contains(&f)),
        _ => is_parameter(name, names),
    }
}

/// Whether a dotted name is a parameter, a table of parameters, or lies inside a parameter.
fn is_parameter(name: &str, names: &[Arc<str>]) -> bool {
    names.iter().any(|leaf| is_inside(leaf, name) || is_inside(name, leaf))
}

/// Whether a dotted name is another one, or lies in its table.
pub(crate) fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The first name of a command's template that these parameters lack.
pub(crate) fn first_unknown(uses: &Uses, names: &[Arc<str>]) -> Option<String> {
    uses.names.iter().find(|name| !is_known(name, names, Scope::Command)).cloned()
}

/// The first name of a `task_id`'s template that these parameters lack.
pub(crate) fn first_unknown_parameter(uses: &Uses, names: &[Arc<str>]) -> Option<String> {
    uses.names.iter().find(|name| !is_known(name, names, Scope::ParametersOnly)).cloned()
}

/// The first of these names that an expression spells as it is, although its `-` or `/` would calculate there: `lr-decay`.
pub(crate) fn spelled_out<'n>(
    expression: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let outside =
        |text: &str, quote: char| text.split(quote).step_by(2).collect::<Vec<_>>().join("''");
    let code = outside(&outside(expression, '"'), '\'');
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let stands = |name: &str| {
        code.match_indices(name).any(|(at, _)| {
            !code[..at].ends_with(is_part) && !code[at + name.len()..].starts_with(is_part)
        })
    };
    names.into_iter().find(|name| !name.chars().all(is_part) && stands(name))
}

/// The expressions of a template, without the text between them.
pub(crate) fn expressions(source: &str) -> String {
    let source = source.replace("{%", "{{").replace("%}", "}}");
    let inside = source.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    inside.collect::<Vec<_>>().join(" ; ")
}

/// The fault of a name that no trial has, with the nearest of those there are.
pub(crate) fn unknown_name<'n>(name: &str, forms: impl IntoIterator<Item = &'n Names>) -> Fault {
    let head = name.split('.').next().unwrap_or(name);
    let mut known_names: BTreeSet<String> = match head {
        "trial" => TRIAL_FIELDS.iter().map(|field| format!("trial.{field}")).collect(),
        "sweep" => SWEEP_FIELDS.iter().map(|field| format!("sweep.{field}")).collect(),
        _ => ["params", "trial", "sweep"].iter().map(|s| (*s).to_owned()).collect(),
    };
    let is_field = head == "trial" || head == "sweep";
    for names in forms.into_iter().filter(|_| !is_field) {
        known_names.extend(names.iter().map(|name| name.to_string()));
    }
    let known_names: Vec<String> = known_names.into_iter().collect();
    let hint = match head {
        ARGS => "`{{ args }}` stands for all parameters, alone in an item of `[run] command` behind the program".to_owned(),
        _ => words::suggestion(name, &known_names, "known names:"),
    };
    Fault::request(format!("`{name}` is not a name of this plan")).hint(hint)
}
