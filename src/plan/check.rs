//! Whether the templates of a plan can be filled in for every trial.
//!
//! Names are compared with every set of parameters the trials have, and each template is rendered
//! once for the first trial of each. Never runs anything.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::fault::Fault;
use crate::base::units;
use crate::base::words;
use crate::plan::document::Reader;
use crate::plan::expansion::exclude::Rule;
use crate::plan::expansion::expand::Expanded;
use crate::plan::expansion::layout::Form;
use crate::plan::expansion::trials::Tasks;
use crate::plan::run::Run;
use crate::plan::sections::auto::Learn;
use crate::plan::sections::container::Runtime;
use crate::plan::templates::args::{self, is_taken};
use crate::plan::templates::command::{argument_name, stand_ins, variable_name};
use crate::plan::templates::engine::Uses;
use crate::plan::templates::known::{Scope, expressions, is_known, spelled_out, unknown_name};
use crate::plan::templates::places::Places;
use crate::plan::templates::template::Template;
use crate::plan::trial::{TaskId, Trial};
use crate::plan::value::variable_of;

pub(crate) use crate::plan::templates::command::CommandTemplate;

/// At most this many sets of names are rendered: a plan may have as many as trials.
const MAX_FORMS: usize = 1000;

/// Checks the syntax of the templates of `[run]` and `[hooks]`.
pub(super) fn check_syntax(reader: &mut Reader<'_>, run: &Run, places: &Places) {
    for (what, template, at) in templates(run, places) {
        if let Err(reason) = template.uses() {
            let hint = "expressions are written `{{ name }}`; for text with braces, `{{ '{{' }}`, or `{{ '{#' }}`";
            reader.wrong(at, format!("`{what}` is not a template: {reason}"), hint);
        }
    }
}

/// Checks `[run]` and `[hooks]` against the trials; `places` are the byte offsets of its templates.
pub(super) fn check_command(
    reader: &mut Reader<'_>,
    run: &Run,
    places: &Places,
    expanded: &Expanded,
) {
    let n_before = reader.n_faults();
    let mut is_readable = true;
    let names = || expanded.forms.iter().flat_map(|form| form.names.iter().map(|name| &**name));
    let items = if is_taken(names()) { Vec::new() } else { args::items(&run.command) };
    let all_args: Vec<String> = items.iter().map(|i| argument_name("command", *i)).collect();
    for (what, template, at) in templates(run, places) {
        if all_args.contains(&what) {
            continue;
        }
        if let Some(name) = spelled_out(&expressions(&template.source), names()) {
            let sentence =
                format!("`{what}`: `{name}` would calculate, and is the name of a parameter");
            reader.wrong(at, sentence, format!("write `params[\"{name}\"]`"));
        }
        match template.uses() {
            Ok(uses) => check_names(reader, &uses, &what, at, &expanded.forms),
            // Told before.
            Err(_) => is_readable = false,
        }
    }
    if reader.n_faults() > n_before || !is_readable {
        return;
    }
    // The remaining errors are types: `lr * 2` of a text, an index that does not exist.
    let others = [("expect", &run.expect[..]), ("file", &run.metrics.file[..])];
    let others =
        run.hooks.all().chain(others).map(|(what, argv)| CommandTemplate::named(what, argv, &[]));
    let parsed: Result<Vec<_>, _> =
        std::iter::once(CommandTemplate::new(run)).chain(others).collect();
    let templates = match parsed {
        Ok(templates) => templates,
        Err(mut fault) => {
            let template_at = place_of(run, places, fault.key.as_deref());
            fault.place = Some(reader.place(template_at));
            return reader.report(template_at, fault);
        }
    };
    for form in expanded.forms.iter().take(MAX_FORMS) {
        let Some(first) = form.first else { continue };
        let extra = stand_ins(first, &expanded.trials[first]);
        let params = &expanded.trials[first].params;
        let rendered = templates.iter().try_for_each(|t| t.render(params, &extra).map(|_| ()));
        if let Err(mut fault) = rendered {
            let template_at = place_of(run, places, fault.key.as_deref());
            fault.sentence = format!("trial {first}: {}", fault.sentence);
            fault.place = Some(reader.place(template_at));
            reader.report(template_at, fault);
            return;
        }
    }
}

/// The templates of `[run]`, `[metrics]`, `[hooks]` and `[train]` with their keys and their places.
fn templates(run: &Run, places: &Places) -> Vec<(String, Template, usize)> {
    let commands =
        run.command.iter().enumerate().map(|(i, text)| (argument_name("command", i), text));
    let env = run.env.iter().map(|(name, text)| (variable_name(name), text));
    let hooks = run.hooks.all().flat_map(|(what, argv)| {
        argv.iter().enumerate().map(move |(i, text)| (argument_name(what, i), text))
    });
    let expect = run.expect.iter().enumerate().map(|(i, text)| (argument_name("expect", i), text));
    let files = run.metrics.file.iter().enumerate();
    let files = files.map(|(i, text)| (argument_name("file", i), text));
    let texts =
        commands.chain(env).chain(expect).chain(files).chain(hooks).zip(places.of_commands());
    let named_templates = texts.map(|((what, text), at)| (what, Template::new(text), at));
    named_templates.chain(crate::plan::sections::train::templates(run, places)).collect()
}

/// The place of the template of a key; that of the command for any other key.
fn place_of(run: &Run, places: &Places, key: Option<&str>) -> usize {
    let template = templates(run, places).into_iter().find(|(own, ..)| Some(own.as_str()) == key);
    template.map_or_else(|| places.command.first().copied().unwrap_or(0), |(.., at)| at)
}

fn check_names(reader: &mut Reader<'_>, uses: &Uses, what: &str, at: usize, forms: &[Form]) {
    let used = || forms.iter().filter(|form| form.first.is_some());
    for name in &uses.names {
        let lacking = used().find(|form| !is_known(name, &form.names, Scope::Command));
        let Some(lacking) = lacking else { continue };
        if !used().any(|form| is_known(name, &form.names, Scope::Command)) {
            unknown(reader, at, what, unknown_name(name, used().map(|form| &form.names)));
        } else if !uses.may_lack {
            lacks(reader, at, what, name, lacking.first.unwrap_or(0));
        }
    }
}

/// Checks the templates among the `task_id`s.
pub(super) fn check_tasks(reader: &mut Reader<'_>, tasks: &Tasks, expanded: &Expanded) {
    for (number, (template, at)) in tasks.templates.iter().enumerate() {
        if let Err(reason) = template.uses() {
            let sentence = format!("`task_id` is not a template: {reason}");
            reader.wrong(*at, sentence, "write it as in `\"fold{{ fold }}\"`");
        } else if let Some((trial, name)) = expanded.lacking.get(&number) {
            if expanded.forms.iter().any(|form| is_known(name, &form.names, Scope::ParametersOnly))
            {
                lacks(reader, *at, "task_id", name, *trial);
            } else {
                let names = expanded.forms.iter().map(|form| &form.names);
                unknown(reader, *at, "task_id", unknown_name(name, names));
            }
        }
    }
}

/// Reports a template that uses a name which one trial does not have, but others do.
fn lacks(reader: &mut Reader<'_>, at: usize, what: &str, name: &str, trial: usize) {
    let sentence = format!("`{what}` uses `{name}`, which trial {trial} does not have");
    reader.wrong(at, sentence, format!("give `{name}` a value in `[defaults]`"));
}

/// Reports the fault of a name that no trial has.
fn unknown(reader: &mut Reader<'_>, at: usize, what: &str, fault: Fault) {
    let fault = Fault { sentence: format!("`{what}`: {}", fault.sentence), ..fault };
    let placed = fault.at(reader.place(at));
    reader.report(at, placed);
}

/// Checks the names that exclusions use.
pub(super) fn check_rules(
    reader: &mut Reader<'_>,
    rules: &[Rule],
    forms: &[Form],
    specials: &[Arc<str>],
) {
    let is_parameter = |name: &str| {
        forms.iter().any(|form| form.names.iter().any(|n| **n == *name))
            || specials.iter().any(|n| **n == *name)
    };
    for rule in rules {
        for (name, at, _) in &rule.conditions {
            if !is_parameter(name) {
                let names = forms.iter().map(|form| &form.names);
                unknown(reader, *at, "[[exclude]]", unknown_name(name, names));
            }
        }
        if let Some(when) = &rule.when {
            let lacking = when.compiled.uses.names.iter().find(|name| {
                !forms.iter().any(|form| is_known(name, &form.names, Scope::ParametersOnly))
            });
            if let Some(name) = lacking {
                let names = forms.iter().map(|form| &form.names);
                unknown(reader, when.at, "when", unknown_name(name, names));
            }
        }
    }
}

/// Refuses syncs of programs that cannot inherit the socket to their worker.
pub(super) fn check_sync(reader: &mut Reader<'_>, run: &Run, at: usize) {
    let is_podman = run.container.as_ref().is_some_and(|own| own.runtime == Runtime::Podman);
    if is_podman && run.metrics.mpi {
        let sentence = "Podman does not pass the socket for `[metrics] sync = \"mpi\"` to programs";
        let hint =
            "choose another `runtime`, or leave out `sync`: each rank then logs its own lines";
        reader.wrong(at, sentence, hint);
    }
}

/// Refuses a signal that would come before a trial begins.
pub(super) fn check_signal(reader: &mut Reader<'_>, run: &Run, places: &Places, trials: &[Trial]) {
    let Some(notice) = run.signal else { return };
    let walltimes = trials.iter().filter_map(|trial| trial.resources.walltime_s);
    if let Some(walltime) = walltimes.min().filter(|shortest| !notice.comes_within(*shortest)) {
        let walltime = units::walltime_text(walltime);
        let sentence =
            format!("`signal` would come before a trial with the walltime {walltime} begins");
        let hint = "set fewer seconds or a longer `walltime`; in a job, the deadline is 5 % before its end, 2 to 30 s";
        reader.wrong(places.signal, sentence, hint);
    }
}

/// Refuses two parameters of one trial that would be the same environment variable.
pub(super) fn check_variables(reader: &mut Reader<'_>, at: usize, forms: &[Form]) {
    for form in forms.iter().take(MAX_FORMS) {
        let mut names_by_variable: HashMap<String, &str> = HashMap::new();
        for name in form.names.iter() {
            let variable = variable_of(name);
            if let Some(other) = names_by_variable.insert(variable.clone(), name) {
                let sentence = format!(
                    "the parameters `{other}` and `{name}` would both be the variable `{variable}`"
                );
                reader.wrong(at, sentence, "name one of them otherwise");
                return;
            }
        }
    }
}

/// Refuses a chain `1` beside a chain `"1"`: tables and variables show them alike.
pub(super) fn check_chains(reader: &mut Reader<'_>, at: usize, trials: &[Trial]) {
    let mut numbers: HashMap<i64, usize> = HashMap::new();
    let mut names: HashMap<i64, usize> = HashMap::new();
    for (i, trial) in trials.iter().enumerate() {
        match &trial.task_id {
            Some(TaskId::Number(number)) => {
                numbers.entry(*number).or_insert(i);
            }
            Some(TaskId::Name(name))
                if name.starts_with(|c: char| c == '-' || c.is_ascii_digit()) =>
            {
                if let Some(number) = name.parse::<i64>().ok().filter(|n| n.to_string() == **name) {
                    names.entry(number).or_insert(i);
                }
            }
            _ => {}
        }
    }
    let mixed = names.iter().filter_map(|(n, i)| Some((*i, *n, *numbers.get(n)?))).min();
    if let Some((text, number, first)) = mixed {
        let sentence = format!(
            "`task_id` is the number {number} in trial {first} and the text `{number}` in trial {text}"
        );
        let text_at = reader.start_of(trials[text].line).unwrap_or(at);
        reader.wrong(text_at, sentence, "write it the same way in all trials of a chain");
    }
}

/// Reports names in `by` that no trial has as a parameter.
pub(super) fn check_learnt(reader: &mut Reader<'_>, trials: &[Trial]) {
    let mut checked: Vec<*const Learn> = Vec::new();
    for learn in trials.iter().filter_map(|trial| trial.learns.as_ref()).flat_map(|l| l.all()) {
        if checked.contains(&Arc::as_ptr(learn)) {
            continue;
        }
        checked.push(Arc::as_ptr(learn));
        let has_parameter =
            |name: &str| trials.iter().any(|trial| trial.params.get(name).is_some());
        for name in learn.by.iter().filter(|name| !has_parameter(name)) {
            let parameter_names =
                trials.first().into_iter().flat_map(|t| t.params.iter()).map(|(n, _)| n);
            let hint = match words::nearest(name, parameter_names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "name parameters that the trials have".to_owned(),
            };
            reader.wrong(learn.at, format!("`by` names `{name}`, which no trial has"), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, check_plan_faults, plan};

    fn check_element(element: &str, body: &str, expected: &str) {
        let text = format!(
            "version = 1\nsweep.name = \"s\"\n[run]\ncommand = [\"a\",\n\"{element}\"]\n{body}"
        );
        check_plan_faults(&text, expected);
    }

    #[test]
    fn names_that_no_trial_has_are_told_with_the_nearest() {
        check_element(
            "{{ lrr }}",
            "[grid]\nlr = [1]",
            "`command[1]`: `lrr` is not a name of this plan
  plan.toml:5: \"{{ lrr }}\"]
hint: did you mean `lr`?",
        );
        check_element(
            "{{ opt.lrr * 2 }}",
            "[defaults]\nopt.lr = 1",
            "`command[1]`: `opt.lrr` is not a name of this plan
  plan.toml:5: \"{{ opt.lrr * 2 }}\"]
hint: did you mean `opt.lr`?",
        );
        check_element(
            "{{ trial.workdir }}",
            "",
            "`command[1]`: `trial.workdir` is not a name of this plan
  plan.toml:5: \"{{ trial.workdir }}\"]
hint: did you mean `trial.work_dir`?",
        );
        check_element(
            "{% if false %}{{ hidden }}{% endif %}",
            "",
            "`command[1]`: `hidden` is not a name of this plan
  plan.toml:5: \"{% if false %}{{ hidden }}{% endif %}\"]
hint: known names: `params`, `sweep` and `trial`",
        );
    }

    #[test]
    fn names_that_one_trial_lacks_are_told_with_its_number() {
        let body = "[[trials]]\nlr = 1\n[[trials]]\nx = 1";
        check_element(
            "{{ lr }}",
            body,
            "`command[1]` uses `lr`, which trial 1 does not have
  plan.toml:5: \"{{ lr }}\"]
hint: give `lr` a value in `[defaults]`",
        );
        plan(&format!("run.env.A = \"{{{{ lr | default(value=1) }}}}\"\n{body}"));
    }

    #[test]
    fn wrong_syntax_and_wrong_types_are_told() {
        check_element(
            "{{ lr | }}",
            "[defaults]\nlr = 1",
            "`command[1]` is not a template: found `}}` but expected identifier
  plan.toml:5: \"{{ lr | }}\"]
hint: expressions are written `{{ name }}`; for text with braces, `{{ '{{' }}`, or `{{ '{#' }}`",
        );
        check_element(
            "{{ name * 2 }}",
            "[defaults]\nname = \"x\"",
            "trial 0: `command[1]`: math operations can only be done on numbers, found `string`
  plan.toml:5: \"{{ name * 2 }}\"]",
        );
        check_faults(
            "run.env.A = \"{{ nope }}\"\nrun.env.B = \"{{ 1 + }}\"",
            "`env.A`: `nope` is not a name of this plan
  plan.toml:4: run.env.A = \"{{ nope }}\"
hint: known names: `params`, `sweep` and `trial`
error: `env.B` is not a template: found `}}` but expected one of: integer, float, string, bool, ident, `-`, `not`, `<`, `{`, `[` or `(`
  plan.toml:5: run.env.B = \"{{ 1 + }}\"
hint: expressions are written `{{ name }}`; for text with braces, `{{ '{{' }}`, or `{{ '{#' }}`",
        );
    }

    #[test]
    fn all_that_a_command_may_use_is_known() {
        plan(
            "run.env.A = \"{{ trial.id }}{{ trial.gpu_ids_abs }}{{ sweep.dir }}{{ params.opt.lr }}{{ params['a-b'] }}{{ opt }}{{ betas[0] }}{{ opt.lr }}\"
[defaults]
opt.lr = 1
a-b = 2
betas = [0.9]
",
        );
    }
}
