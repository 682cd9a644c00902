//! The plan that several sweeps have in common.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::words::count;
use crate::plan::{self, Plan, key};
use crate::submit::{Source, grow, reader_beside};
use crate::sweep::status::Status;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::memo::Memo;
use crate::sweep::tree::table::{self, Head};
use anyhow::Result;

/// Trials of a plan that are named.
const MOST: usize = 3;

/// The plan of one of the sweeps.
pub(super) struct Own {
    pub(super) source: Source,
    /// The head of the table that was added last.
    pub(super) head: Head,
    /// Which of the sweeps has it.
    pub(super) of: usize,
}

/// The plan that has the trials of all sweeps, from the one that has most trials. `named`: a file with the plan, for one
/// that reads others beside it.
///
/// # Errors
/// When a plan cannot be read, or the sweeps are of different plans.
pub(super) fn common(sweeps: &[Status], named: Option<&Path>) -> Result<Own> {
    let mut all: Vec<Own> = Vec::new();
    let mut fault = None;
    for (of, status) in sweeps.iter().enumerate() {
        match read(status, of, named) {
            Ok(own) => all.push(own),
            // Another one may have it.
            Err(error) if is_damage(status) => fault = fault.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    let Some(most) = all.iter().map(|own| own.source.plan.trials.len()).max() else {
        let none = || Fault::request("no plan of these sweeps can be read").into();
        return Err(fault.unwrap_or_else(none));
    };
    let base = all.iter().position(|own| own.source.plan.trials.len() == most).unwrap_or(0);
    let base = all.swap_remove(base);
    for own in &all {
        if own.source.text != base.source.text {
            compare(&base.source.plan, &own.source.plan).map_err(|why| {
                let dir = |of: usize| disk::named(sweeps[of].tree.dir());
                let (dir, other) = (dir(own.of), dir(base.of));
                Fault::request(format!("`{dir}` is of another plan than `{other}`"))
                    .at(why)
                    .hint(format!(
                        "`merge` joins results of one plan; a table of both: `hpcsweep collect {other} {dir}`"
                    ))
            })?;
        }
    }
    Ok(base)
}

/// Whether the plan of a sweep is damaged, or its tables are.
fn is_damage(status: &Status) -> bool {
    let is_of_plan = |file: &str| file.starts_with("plan") || file.starts_with("trials/");
    status.damage.iter().any(|damaged| is_of_plan(&damaged.file))
}

fn read(status: &Status, of: usize, named: Option<&Path>) -> Result<Own> {
    let tree = &status.tree;
    let heads = table::readable(tree, &mut Damage::default())?.heads;
    let head = heads.into_iter().next_back().ok_or_else(|| {
        let sentence = format!("`{}` has no trials", tree.dir().display());
        Fault::request(sentence).hint("leave it out")
    })?;
    let (path, text) = match named {
        Some(path) => {
            let text = disk::read_named(path).map_err(|e| disk::fault("read", path, &e))?;
            (path.to_owned(), text)
        }
        None => {
            // Each table has the plan that added it.
            let kept = || disk::read(&tree.plan_of(head.first));
            let is_whole = |text: &String| head.plan_crc == Some(crc32fast::hash(text.as_bytes()));
            let text =
                tree.stored_plan().or_else(|error| kept().ok().filter(is_whole).ok_or(error))?;
            (tree.plan(), text)
        }
    };
    let plan = plan::parse_with(&text, &path.display().to_string(), &reader_beside(&path));
    let plan = plan.map_err(|error| match named {
        Some(_) => error,
        None => error.context(format!(
            "the plan of `{}` cannot be read without what is beside it: name its file with `--plan`",
            tree.dir().display()
        )),
    })?;
    let (part, moved, memo) = (None, None, Memo::default());
    Ok(Own { source: Source { path, text, plan, part, moved, memo, draft: None }, head, of })
}

/// Says in what a plan is another one than `base`; one that has fewer trials is not.
fn compare(base: &Plan, other: &Plan) -> Result<(), String> {
    if base.name != other.name {
        return Err(format!("the sweeps have the names `{}` and `{}`", other.name, base.name));
    }
    let parts = key::changed(
        key::Seeded { run: &base.run, seed: base.seed },
        key::Seeded { run: &other.run, seed: other.seed },
    );
    if !parts.is_empty() {
        let parts: Vec<String> = parts.iter().map(|part| format!("`{part}`")).collect();
        return Err(format!("they differ in {}", parts.join(", ")));
    }
    let mut has: HashMap<String, u64> = HashMap::new();
    let mut keys = base.keys();
    for trial in &base.trials {
        *has.entry(grow::hex(&keys.key_of(&trial.params))).or_default() += 1;
    }
    let mut keys = other.keys();
    let missing: Vec<String> = other
        .trials
        .iter()
        .filter(|trial| {
            let known = has.get_mut(&grow::hex(&keys.key_of(&trial.params))).filter(|n| **n > 0);
            known.map(|n| *n -= 1).is_none()
        })
        .map(|trial| {
            let params: Vec<String> = trial
                .params
                .iter()
                .map(|(name, value)| format!("{name}={}", value.to_json()))
                .collect();
            params.join(" ")
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let more = if missing.len() > MOST { ", ..." } else { "" };
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let some = missing[..missing.len().min(MOST)].join(", ");
    let trials = count(other.trials.len() as u64, "trial");
    Err(format!("{} of its {trials} {verb} not in the other plan: {some}{more}", missing.len()))
}

/// The trials of a plan by key and chain, in order, each with its number.
pub(super) struct Places {
    exact: HashMap<(String, String), Vec<u64>>,
    by_key: HashMap<String, Vec<u64>>,
}

impl Places {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut keys = plan.keys();
        let (mut exact, mut by_key) =
            (HashMap::<_, Vec<u64>>::new(), HashMap::<_, Vec<u64>>::new());
        for (trial, number) in plan.trials.iter().zip(0..) {
            let key = grow::hex(&keys.key_of(&trial.params));
            let task = trial.task_id.as_ref().map(ToString::to_string).unwrap_or_default();
            exact.entry((key.clone(), task)).or_default().push(number);
            by_key.entry(key).or_default().push(number);
        }
        Self { exact, by_key }
    }

    /// The number in the plan of each trial of a sweep, by its number there. The second of two equal trials is the second
    /// one in the plan. Trials that the plan does not have are left out.
    pub(super) fn find(&self, status: &Status) -> BTreeMap<u64, u64> {
        // Of a damaged row, the list of keys may be whole.
        let keys = table::keys(&status.tree).unwrap_or_default();
        let key = |id: u64, key: &str| match key {
            "" => keys.get(id as usize).cloned().unwrap_or_default(),
            key => key.to_owned(),
        };
        let mut found = BTreeMap::new();
        let mut taken = std::collections::HashSet::new();
        let mut next: HashMap<(String, String), usize> = HashMap::new();
        let mut rest = Vec::new();
        for row in &status.rows {
            let own = (key(row.id, &row.key), row.task_text());
            let at = next.entry(own.clone()).or_default();
            match self.exact.get(&own).and_then(|places| places.get(*at)) {
                Some(place) => {
                    *at += 1;
                    taken.insert(*place);
                    found.insert(row.id, *place);
                }
                None => rest.push((row.id, own.0)),
            }
        }
        for (id, key) in rest {
            let places = self.by_key.get(&key);
            if let Some(place) =
                places.and_then(|all| all.iter().find(|place| !taken.contains(*place)))
            {
                taken.insert(*place);
                found.insert(id, *place);
            }
        }
        found
    }
}
