//! Laying a plan down: which of its trials the sweep does not have yet, and writing them to its table.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use std::path::PathBuf;

use anyhow::Result;

use super::Source;
use crate::base::host::disk;
use crate::base::host::gpus::DeviceId;
use crate::base::words::{self, count};
use crate::cluster::graph::shapes::Chains;
use crate::cluster::render::{Templates, context};
use crate::plan::author::Author;
use crate::plan::site::Site;
use crate::plan::{Learns, OnFailure, Params, Resources, TaskId, Trial, Value, key};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::table::{self, Head, Row, RowOut};
use crate::sweep::tree::terms::{self, Dropped};
use crate::sweep::tree::{FORMAT, Tree, whole};

/// A trial that a wave or the executor may have to run.
#[derive(Debug, Clone)]
pub(crate) struct Todo {
    /// Number in the sweep.
    pub(crate) id: u64,
    pub(crate) chain: u64,
    /// The trial before it in its chain.
    pub(crate) after: Option<u64>,
    /// The request with which it would run.
    pub(crate) resources: Arc<Resources>,
}

/// A trial's current request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// What the plan asks for; what the table says, if the plan no longer has the trial.
    pub resources: Arc<Resources>,
    /// Whether its worker finds the same in the table.
    pub(crate) is_in_table: bool,
}

/// The difference between a plan and its sweep, before anything is written.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    /// Trials the sweep has already.
    pub(crate) known: u64,
    /// Those of them that the plan still has, with what it asks for each of them now.
    kept: HashMap<u64, Arc<Resources>>,
    /// Those for which that is not what the table says.
    changed: HashSet<u64>,
    /// What of the requests of the plan's trials is learnt, by their numbers in the sweep.
    learns: HashMap<u64, Arc<Learns>>,
    /// Places in the plan of the trials the sweep does not have, with their keys.
    new: Vec<(usize, String)>,
    /// The trials of the sweep, in the order of the plan; `None` where it does not have one.
    pub(crate) places: Vec<Option<u64>>,
    /// Why all trials of the plan are new, as far as that is known: what changed.
    changed_by: Vec<String>,
    /// The author of the plan.
    author: Author,
    /// By place in the plan: the table's devices of trials, where these differ from the plan's.
    devices: HashMap<usize, Option<Vec<DeviceId>>>,
}

impl Diff {
    /// The same for a job that submits the rest of a sweep: no trial is new, and each that the last submission has kept
    /// is kept, whatever has changed since in files that the plan names.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn without_growth(mut self, tree: &Tree) -> Result<Self> {
        self.new.clear();
        let dropped = terms::dropped(tree)?;
        let lost = |trial: &u64| !self.has(*trial) && !dropped.has(*trial);
        let lost: Vec<u64> = (0..self.known).filter(lost).collect();
        if !lost.is_empty() {
            let mut table = earlier(tree)?;
            let requests = lost.into_iter().filter_map(|id| Some((id, table.remove(&id)?.0)));
            self.kept.extend(requests);
        }
        Ok(self)
    }

    /// How many trials are new.
    pub(crate) fn added(&self) -> u64 {
        self.new.len() as u64
    }

    /// How many trials of the sweep the plan no longer has.
    pub(crate) fn dropped(&self) -> u64 {
        self.known - self.kept.len() as u64
    }

    /// The trials that [`Self::dropped`] counts.
    fn dropped_trials(&self) -> Dropped {
        (0..self.known).filter(|trial| !self.has(*trial)).collect()
    }

    /// The note about trials that earlier plans added and this one does not have; `None` if there are none. They stay
    /// in the sweep and do not run any more.
    pub(crate) fn left_alone(&self) -> Option<String> {
        let dropped = self.dropped();
        if dropped == 0 {
            return None;
        }
        let old = format!("{} of earlier plans", count(dropped, "trial"));
        if self.changed_by.is_empty() {
            let are = if dropped == 1 { "is" } else { "are" };
            return Some(format!("{old} {are} not in this one: left alone"));
        }
        let new = match self.added() {
            1 => "its trial is new".to_owned(),
            n => format!("all {} are new", count(n, "trial")),
        };
        let parts = match self.changed_by.as_slice() {
            [one] => one.clone(),
            [init @ .., last] => format!("{} and {last}", init.join(", ")),
            [] => String::new(),
        };
        Some(format!(
            "{parts} changed: {new}; {old} left alone\n\
             hint: to keep both apart, {}; to go on with the earlier trials, take the change back",
            self.author.name()
        ))
    }

    /// The number in the sweep of each trial of the plan, in its order, and whether it is new.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let mut next = self.known;
        self.places.iter().map(move |id| match id {
            Some(trial) => (*trial, false),
            None => {
                next += 1;
                (next - 1, true)
            }
        })
    }

    /// The place in the plan of each of its trials, by their numbers in the sweep.
    pub(crate) fn by_number(&self) -> HashMap<u64, usize> {
        self.numbers().enumerate().map(|(place, (trial, _))| (trial, place)).collect()
    }

    /// The devices that a trial of the plan names: those with which it came into the sweep.
    pub(crate) fn devices<'a>(&'a self, place: usize, trial: &'a Trial) -> Option<&'a [DeviceId]> {
        let by_table = self.devices.get(&place).map(Option::as_deref);
        by_table.unwrap_or(trial.gpu_ids_abs.as_deref())
    }

    /// Whether the current plan has this trial of the sweep.
    pub(crate) fn has(&self, trial: u64) -> bool {
        trial >= self.known || self.kept.contains_key(&trial)
    }

    /// The plan's request for a trial that the sweep has had before; `None` if the plan has no such trial.
    pub(crate) fn request(&self, trial: u64) -> Option<&Arc<Resources>> {
        self.kept.get(&trial)
    }

    /// The plan's request for one of its trials; for a new trial it is in the table.
    pub(crate) fn now(
        &self,
        row: &Row,
        heads: &[Head],
        shared: &mut HashMap<u64, Arc<Resources>>,
    ) -> Request {
        let kept = self.request(row.id).map(Arc::clone);
        let resources = kept.unwrap_or_else(|| resources_of(row, heads, shared));
        Request { resources, is_in_table: !self.is_changed(row.id) }
    }

    /// A trial asks for this, whatever the plan says.
    pub(crate) fn ask_for(&mut self, trial: u64, request: &Arc<Resources>) {
        if let Some(kept) = self.kept.get_mut(&trial).filter(|kept| *kept != request) {
            *kept = Arc::clone(request);
            self.changed.insert(trial);
        }
    }

    /// Whether any of a trial's request is learnt from trials that have ended.
    pub(crate) fn learns(&self, trial: u64) -> bool {
        self.learns.contains_key(&trial)
    }

    /// Whether the plan asks for this for a trial of the sweep; what is learnt may be anything.
    pub(crate) fn is_asked(&self, trial: u64, request: &Resources) -> bool {
        let Some(now) = self.request(trial) else { return false };
        let Some(learns) = self.learns.get(&trial) else { return **now == *request };
        let mut now = Resources::clone(now);
        if learns.memory.is_some() {
            now.memory_mib = request.memory_mib;
        }
        if learns.walltime.is_some() {
            now.walltime_s = request.walltime_s;
        }
        now == *request
    }

    /// Leaves out the trials that the sweep does not have.
    pub(crate) fn leave_out_new(&mut self) {
        self.new.clear();
    }

    /// Whether that differs from the table.
    pub(crate) fn is_changed(&self, trial: u64) -> bool {
        self.changed.contains(&trial)
    }
}

/// Where a chain of the sweep ends.
struct Tail {
    /// Links it has had.
    links: u64,
    /// The last of its trials that the plan still has: what a new link comes after.
    last: Option<u64>,
}

/// Compares a plan with its sweep.
///
/// A trial is identified by its key: the hash of what it runs. The second of two equal trials of a plan is a
/// trial of its own. A known trial has the plan's current request, whatever the table says. Only the devices
/// are those of the table, because its worker insists on them, so their number stays.
///
/// # Errors
/// When the tree cannot be read, or has lost a table.
pub(crate) fn diff(tree: &Tree, source: &Source) -> Result<Diff> {
    whole::check(tree)?;
    let mut had: HashMap<String, VecDeque<u64>> = HashMap::new();
    let mut diff = Diff { author: source.author(), ..Diff::default() };
    for key in table::keys(tree)? {
        had.entry(key).or_default().push_back(diff.known);
        diff.known += 1;
    }
    let trials = &source.plan.trials;
    let mut maker = source.plan.keys();
    let keys: Vec<String> = trials.iter().map(|trial| hex(&maker.key_of(&trial.params))).collect();
    let mut matched: Vec<Option<u64>> = vec![None; trials.len()];
    let table = if diff.known > 0 { earlier(tree)? } else { HashMap::new() };
    if diff.known > 0 {
        // Equal trials that ask for different resources are distinguished by them.
        for (i, key) in keys.iter().enumerate() {
            if let Some(ids) = had.get_mut(key)
                && let Some(at) = ids.iter().position(|id| table[id].0 == trials[i].resources)
            {
                matched[i] = ids.remove(at);
            }
        }
    }
    for (i, key) in keys.into_iter().enumerate() {
        let id = matched[i].or_else(|| had.get_mut(&key).and_then(VecDeque::pop_front));
        diff.places.push(id);
        let Some(id) = id else {
            diff.new.push((i, key));
            continue;
        };
        let (before, devices) = &table[&id];
        if devices.as_deref() != trials[i].gpu_ids_abs.as_deref() {
            diff.devices.insert(i, devices.clone());
        }
        let wanted = &trials[i].resources;
        let now = match devices {
            Some(own) if Some(&own[..]) != trials[i].gpu_ids_abs.as_deref() => {
                Arc::new(Resources { gpus: before.gpus, gpus_per_rank: 0, ..(**wanted).clone() })
            }
            _ => Arc::clone(wanted),
        };
        if now != *before {
            diff.changed.insert(id);
        }
        diff.kept.insert(id, now);
    }
    let learns = diff.numbers().zip(trials).filter_map(|((trial, _), plan)| {
        let learns = plan.learns.as_ref()?;
        Some((trial, Arc::clone(learns)))
    });
    diff.learns = learns.collect();
    if diff.known > 0 && diff.kept.is_empty() {
        diff.changed_by = changed_by(tree, source)?;
    }
    Ok(diff)
}

/// If a sweep has none of a plan's trials: what of the plan has changed since the sweep grew last.
fn changed_by(tree: &Tree, source: &Source) -> Result<Vec<String>> {
    let plan = &source.plan;
    let Some(head) = table::heads(tree)?.pop() else { return Ok(Vec::new()) };
    let parts = key::changed(
        key::Seeded { run: &head.run, seed: head.seed },
        key::Seeded { run: &plan.run, seed: plan.seed },
    );
    if !parts.is_empty() {
        return Ok(parts.into_iter().map(|part| format!("`{part}`")).collect());
    }
    let names = |params: &Params| -> BTreeSet<String> {
        params.iter().map(|(name, _)| name.to_owned()).collect()
    };
    let (_, before) = table::find(tree, head.first)?;
    let first = &before.params;
    let old = names(first);
    let all = plan.trials.iter().map(|trial| names(&trial.params));
    let has_old = plan.trials.iter().any(|trial| names(&trial.params) == old);
    if has_old {
        let mut trials = plan.trials.iter();
        return Ok(trials.find_map(|trial| other_forms(first, &trial.params)).unwrap_or_default());
    }
    let new = all.reduce(|a, b| &a & &b).unwrap_or_default();
    let differ: Vec<&String> = old.symmetric_difference(&new).collect();
    let is_one = differ.len() == 1;
    let parts = words::ticked(&differ);
    Ok(vec![format!("the {} {parts}", if is_one { "parameter" } else { "parameters" })])
}

/// Which values of two trials mean the same and are written in another form, in words, if all others are equal: `1` and `1.0`.
fn other_forms(old: &Params, new: &Params) -> Option<Vec<String>> {
    let number = |value: &Value| value.to_string().parse::<f64>().ok();
    let mut forms = Vec::new();
    for (name, was) in old.iter() {
        let is = new.get(name)?;
        if is == was {
            continue;
        }
        let is_alike =
            was.to_string() == is.to_string() || number(was).is_some() && number(was) == number(is);
        let words = || format!("the form of `{name}` ({} and {})", was.to_json(), is.to_json());
        forms.push(is_alike.then(words)?);
    }
    (!forms.is_empty()).then_some(forms)
}

/// A trial's data in the table: its request and its devices.
type Earlier = (Arc<Resources>, Option<Vec<DeviceId>>);

/// The tables' data about all trials of the sweep.
fn earlier(tree: &Tree) -> Result<HashMap<u64, Earlier>> {
    let heads = table::heads(tree)?;
    let mut shared = HashMap::new();
    let mut all = HashMap::new();
    table::each(tree, |row| {
        all.insert(row.id, (resources_of(&row, &heads, &mut shared), row.gpu_ids_abs.clone()));
    })?;
    Ok(all)
}

/// Adds the new trials of a plan to its sweep, and keeps the plan. The caller holds the lock.
///
/// # Errors
/// When the tree cannot be read or written, or the set-up template cannot be rendered.
pub(crate) fn grow(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    templates: &Templates,
    site: &Site,
) -> Result<()> {
    source.write_draft()?;
    let plan = &source.plan;
    let first = diff.known;
    let head = Head {
        format: FORMAT,
        first,
        count: diff.added(),
        sweep: plan.name.clone(),
        seed: plan.seed,
        run: plan.run.clone(),
        workdir: disk::absolute(&source.beside(&plan.run.workdir)),
        site_modules: site.modules.load.clone(),
        resources: (*plan.resources).clone(),
        gpu_ids: plan.schedule.gpu_ids,
        setup: match diff.new.is_empty() {
            true => None,
            false => setup(tree, first, source, templates, site)?,
        },
        keys_crc: None,
        plan_crc: None,
    };
    lay(tree, source, diff, head)
}

/// As [`grow`], with what the new trials share. Its numbers and checksums are set here.
///
/// # Errors
/// As [`grow`].
pub(super) fn lay(tree: &Tree, source: &Source, diff: &Diff, head: Head) -> Result<()> {
    let plan = &source.plan;
    let (known, new) = (diff.known, &diff.new);
    tree.write_plan(&source.text)?;
    if let Some(part) = &source.part {
        part.shards.keep(tree)?;
    }
    terms::keep(tree, &table::heads(tree)?, plan.run.attempts, diff.dropped_trials())?;
    if new.is_empty() {
        return Ok(());
    }
    disk::make_dir(&tree.dir().join("plans"))?;
    disk::write_whole(&tree.plan_of(known), source.text.as_bytes())?;

    let (added, places) = added(tree, source, diff)?;
    let plan_crc = Some(crc32fast::hash(source.text.as_bytes()));
    let count = diff.added();
    let head = Head { format: FORMAT, first: known, count, keys_crc: None, plan_crc, ..head };
    let rows = new.iter().zip(&added).zip(&places).map(|(((i, key), todo), (chain, link))| {
        let trial = &plan.trials[*i];
        let own = trial.resources != plan.resources;
        RowOut {
            id: todo.id,
            chain: *chain,
            link: *link,
            after: todo.after,
            task_id: trial.task_id.as_ref().map(task_json),
            key,
            gpu_ids_abs: trial.gpu_ids_abs.as_deref(),
            params: &trial.params,
            resources: own.then_some(&*trial.resources),
        }
    });
    table::write(tree, &head, rows)
}

/// The tables of a sweep that was moved, copied or merged, and the folders in which their trials are to run: the plan's, where
/// they name that of an earlier submission, which is another one or gone.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn moved(tree: &Tree, source: &Source) -> Result<Vec<(Head, PathBuf)>> {
    let journal = Journal::read(tree)?;
    let is_elsewhere = match (&journal.plan, &journal.dir) {
        (None, _) => true,
        (Some(_), dir) => dir.as_ref().is_some_and(|dir| !disk::is_same(dir, tree.dir())),
    };
    // The plan that a sweep keeps is not where its program is.
    if source.folder().join("sweep.json").is_file() {
        return Ok(Vec::new());
    }
    let own = |head: Head| {
        let now = disk::absolute(&source.beside(&head.run.workdir));
        let is_moved = head.workdir != now && now.is_dir();
        (is_moved && (is_elsewhere || !head.workdir.is_dir())).then_some((head, now))
    };
    Ok(table::heads(tree)?.into_iter().filter_map(own).collect())
}

/// Lets the trials of [`moved`] tables run in the folder of the plan. The caller holds the lock. Returns what to say of it.
///
/// # Errors
/// When the tree cannot be read or written.
pub(crate) fn follow(tree: &Tree, source: &Source) -> Result<Option<String>> {
    let mut said = None;
    for (head, now) in moved(tree, source)? {
        let (old, new) = (head.workdir.display(), now.display());
        said = Some(format!("its earlier trials run in `{new}` from now on, not in `{old}`"));
        table::move_to(tree, head, now)?;
    }
    Ok(said)
}

/// Trials that a plan adds to its sweep, and the chain of each with its place there.
pub(crate) type Added = (Vec<Todo>, Vec<(u64, u64)>);

/// The trials that a plan adds to its sweep. Writes nothing.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn added(tree: &Tree, source: &Source, diff: &Diff) -> Result<Added> {
    let (mut tails, mut next_chain) = tails(tree, diff)?;
    let mut fresh = Chains::default();
    let mut numbers: HashMap<u32, u64> = HashMap::new();
    let mut places: Vec<(u64, u64)> = Vec::with_capacity(diff.new.len());
    let mut added = Vec::with_capacity(diff.new.len());
    for (offset, (i, _)) in diff.new.iter().enumerate() {
        let trial = &source.plan.trials[*i];
        let id = diff.known + offset as u64;
        let name = trial.task_id.as_ref();
        let local = fresh.number(name);
        // A chain keeps its number and its length when the plan grows.
        let chain = *numbers.entry(local).or_insert_with(|| {
            name.and_then(|t| tails.old.get(&t.to_string())).copied().unwrap_or_else(|| {
                next_chain += 1;
                next_chain - 1
            })
        });
        let tail = tails.ends.get_mut(&chain);
        let (link, after) = match tail {
            Some(tail) => {
                let place = (tail.links, tail.last);
                tail.links += 1;
                tail.last = Some(id);
                place
            }
            None => {
                if name.is_some() {
                    tails.ends.insert(chain, Tail { links: 1, last: Some(id) });
                }
                (0, None)
            }
        };
        places.push((chain, link));
        added.push(Todo { id, chain, after, resources: Arc::clone(&trial.resources) });
    }
    Ok((added, places))
}

fn task_json(task: &TaskId) -> serde_json::Value {
    match task {
        TaskId::Number(n) => (*n).into(),
        TaskId::Name(s) => (**s).into(),
    }
}

/// The chains of the sweep so far.
struct Tails {
    old: HashMap<String, u64>,
    ends: HashMap<u64, Tail>,
}

fn tails(tree: &Tree, diff: &Diff) -> Result<(Tails, u64)> {
    let mut tails = Tails { old: HashMap::new(), ends: HashMap::new() };
    if diff.known == 0 {
        return Ok((tails, 0));
    }
    let mut next = 0;
    table::each(tree, |row| {
        next = next.max(row.chain + 1);
        if row.task_id.is_none() {
            return;
        }
        tails.old.insert(row.task_text(), row.chain);
        let tail = tails.ends.entry(row.chain).or_insert(Tail { links: 0, last: None });
        tail.links = tail.links.max(row.link + 1);
        if diff.has(row.id) {
            tail.last = tail.last.max(Some(row.id));
        }
    })?;
    Ok((tails, next))
}

/// Writes the set-up script, if there is anything to set up or the template is the user's own.
fn setup(
    tree: &Tree,
    first: u64,
    source: &Source,
    templates: &Templates,
    site: &Site,
) -> Result<Option<(std::path::PathBuf, std::path::PathBuf)>> {
    let plan = &source.plan;
    let modules: Vec<String> = site.modules.load.iter().chain(&plan.run.modules).cloned().collect();
    if modules.is_empty() && plan.run.setup.is_empty() && !templates.is_edited("setup.sh.tera") {
        return Ok(None);
    }
    let names = context::SetupScript {
        shell: site.shell.path.clone(),
        sweep: plan.name.clone(),
        modules,
        module_init: site.modules.init.clone(),
        setup: plan.run.setup.clone(),
    };
    let text = templates.render("setup.sh.tera", &context::from_names(&names)?)?;
    let path = tree.setup_script(first);
    disk::make_dir(&tree.dir().join("jobs"))?;
    disk::write_whole(&path, text.as_bytes())?;
    Ok(Some((site.shell.path.clone(), path)))
}

/// The request of a row, from the table.
pub(crate) fn resources_of(
    row: &Row,
    heads: &[Head],
    shared: &mut HashMap<u64, Arc<Resources>>,
) -> Arc<Resources> {
    if let Some(own) = &row.resources {
        return Arc::new((**own).clone());
    }
    let Some(head) = heads.iter().rfind(|head| head.first <= row.id) else { return Arc::default() };
    Arc::clone(shared.entry(head.first).or_insert_with(|| Arc::new(head.resources.clone())))
}

/// The effect of a failure on the rest of a chain, as the sweep's last plan says.
pub(crate) fn on_failure(heads: &[Head]) -> OnFailure {
    heads.last().map_or(OnFailure::Stop, |h| h.run.on_failure)
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        text.push(char::from(DIGITS[usize::from(b >> 4)]));
        text.push(char::from(DIGITS[usize::from(b & 15)]));
    }
    text
}
