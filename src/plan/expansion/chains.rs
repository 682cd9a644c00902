//! The names of chains: templates of `task_id` filled in, and names made from `chain_along`.
//!
//! Equal names share one text. Which trials form a chain follows from the names alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::plan::expansion::axes::Group;
use crate::plan::expansion::trials::Tasks;
use crate::plan::templates::engine::Compiled;
use crate::plan::templates::known;
use crate::plan::trial::TaskId;
use crate::plan::value::Params;

/// Makes the names of chains.
pub(crate) struct Namer<'s> {
    tasks: &'s Tasks,
    along: &'s [bool],
    /// For each axis group that chains do not run along, the labels of its points.
    labels: Vec<Vec<String>>,
    texts: HashSet<Arc<str>>,
    /// The templates, as far as they were needed.
    compiled: HashMap<usize, Result<Compiled, String>>,
    /// For a template the first trial that lacks a name it uses, and that name.
    pub(crate) lacking: BTreeMap<usize, (usize, String)>,
}

impl<'s> Namer<'s> {
    /// A namer; `along` says for each group whether chains run along it, and is empty otherwise.
    pub(crate) fn new(tasks: &'s Tasks, groups: &[Group], along: &'s [bool]) -> Self {
        let label = |(group, along): (&Group, &bool)| match along {
            true => Vec::new(),
            false => group.labels(),
        };
        let labels = groups.iter().zip(along).map(label).collect();
        Self {
            tasks,
            along,
            labels,
            texts: HashSet::new(),
            compiled: HashMap::new(),
            lacking: BTreeMap::new(),
        }
    }

    /// The chain of a point of an entry: the entry's number and all axes it does not run along.
    pub(crate) fn along(&self, entry: usize, point: &[usize]) -> TaskId {
        let mut name = entry.to_string();
        for (g, labels) in self.labels.iter().enumerate().filter(|(g, _)| !self.along[*g]) {
            name.push('/');
            name.push_str(&labels[point[g]]);
        }
        TaskId::Name(Arc::from(name))
    }

    /// The chain that a template names for the parameters of a trial; `None` if it is not a template,
    /// or if the trial lacks a name, which is kept in `lacking`.
    ///
    /// # Errors
    /// Returns the reason, without the trial.
    pub(crate) fn templated(
        &mut self,
        number: usize,
        trial: usize,
        params: &Params,
    ) -> Option<Result<TaskId, String>> {
        let (template, _) = &self.tasks.templates[number];
        let compiled = self.compiled.entry(number);
        // The check of templates reports wrong syntax.
        let compiled = compiled.or_insert_with(|| Compiled::new(&template.source));
        let compiled = compiled.as_ref().ok()?;
        let text = compiled.render(params);
        if text.is_err()
            && let Some(name) = known::first_unknown_parameter(&compiled.uses, &params.names)
        {
            self.lacking.entry(number).or_insert((trial, name));
            return None;
        }
        Some(text.and_then(checked).map(|text| TaskId::Name(self.shared(text))))
    }

    fn shared(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return known.clone();
        }
        let fresh: Arc<str> = Arc::from(text);
        self.texts.insert(fresh.clone());
        fresh
    }
}

fn checked(text: String) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the template gives an empty text".to_owned());
    }
    if text.contains(|c: char| c.is_control()) {
        return Err("the template gives a text with control characters".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, plan, tasks};

    #[test]
    fn a_template_makes_a_chain_of_each_value() {
        let plan = plan(
            "[defaults]\ntask_id = \"fold{{ fold }}\"\n[grid]\nfold = [0, 1]\nlr = [0.1, 1e-5]",
        );
        assert_eq!(tasks(&plan), ["fold0", "fold0", "fold1", "fold1"]);
    }

    #[test]
    fn any_expression_can_name_a_chain() {
        let plan = plan(
            "[defaults]\ntask_id = \"{% if n > 1 %}big{% else %}small{% endif %}{{ o.n }}\"\no.n = 7\n[grid]\nn = [1, 2]",
        );
        assert_eq!(tasks(&plan), ["small7", "big7"]);
    }

    #[test]
    fn chains_along_an_axis_are_named_by_the_others() {
        let along = |axis: &str| {
            tasks(&plan(&format!(
                "schedule.chain_along = {axis}\n[grid]\nlr = [0.1, 0.2]\nepoch = [1, 2]\nnet = [\"a/b\", \"c\"]"
            )))
            .join(" ")
        };
        assert_eq!(
            along("\"epoch\""),
            "0/lr=0.1/net=\"a/b\" 0/lr=0.1/net=c 0/lr=0.1/net=\"a/b\" 0/lr=0.1/net=c \
             0/lr=0.2/net=\"a/b\" 0/lr=0.2/net=c 0/lr=0.2/net=\"a/b\" 0/lr=0.2/net=c"
        );
        assert_eq!(along("[\"lr\", \"epoch\", \"net\"]"), "0 0 0 0 0 0 0 0");
    }

    #[test]
    fn points_with_equal_values_are_different_chains() {
        let plan = plan(
            "schedule.chain_along = \"t\"\n[[trials]]\n[[trials]]\n[grid]\nx = [1, 1]\nt = [1, 2]",
        );
        assert_eq!(
            tasks(&plan),
            ["0/x=1", "0/x=1", "0/x=1#1", "0/x=1#1", "1/x=1", "1/x=1", "1/x=1#1", "1/x=1#1"]
        );
    }

    #[test]
    fn chains_without_a_sound_name_are_refused() {
        check_faults(
            "[defaults]\ntask_id = \"{{ name }}\"\n[grid]\nname = [\"a\", \"\", \"b\\nc\"]",
            "trial 1: `task_id`: the template gives an empty text
  plan.toml:5: task_id = \"{{ name }}\"
error: trial 2: `task_id`: the template gives a text with control characters
  plan.toml:5: task_id = \"{{ name }}\"",
        );
        check_faults(
            "[defaults]\ntask_id = \"{{ foldd }}\"\n[grid]\nfold = [1]",
            "`task_id`: `foldd` is not a name of this plan
  plan.toml:5: task_id = \"{{ foldd }}\"
hint: did you mean `fold`?",
        );
        check_faults(
            "[[trials]]\na = 1\n[[trials]]\ntask_id = \"{{ a }}\"",
            "`task_id` uses `a`, which trial 1 does not have
  plan.toml:7: task_id = \"{{ a }}\"
hint: give `a` a value in `[defaults]`",
        );
        check_faults(
            "[defaults]\ntask_id = \"{{ a | }}\"",
            "`task_id` is not a template: found `}}` but expected identifier
  plan.toml:5: task_id = \"{{ a | }}\"
hint: write it as in `\"fold{{ fold }}\"`",
        );
        check_faults(
            "[[trials]]\ntask_id = 1\n[[trials]]\ntask_id = \"1\"",
            "`task_id` is the number 1 in trial 0 and the text `1` in trial 1
  plan.toml:6: [[trials]]
hint: write it the same way in all trials of a chain",
        );
        check_faults(
            "schedule.chain_along = \"lrr\"\n[grid]\nlr = [1]",
            "`chain_along` names no axis `lrr`
  plan.toml:4: schedule.chain_along = \"lrr\"
hint: did you mean `lr`?",
        );
        check_faults(
            "schedule.chain_along = \"lr\"\ndefaults.task_id = 1\n[grid]\nlr = [1]",
            "`chain_along` and `task_id` are given together
  plan.toml:4: schedule.chain_along = \"lr\"
hint: both make chains: keep `chain_along`, or every `task_id`",
        );
    }
}
