//! From a plan to a sweep in its results tree, and on to a scheduler or to processes of this machine.
//!
//! The first step is the same for every target ([`grow`]): trials the sweep does not have yet are added to its
//! table. Then either waves of job arrays are made and submitted exactly once ([`arrays`]), or the trials are
//! enqueued for agents, for which pilots are submitted ([`pilots`]), or they run here ([`local`]).

pub mod again;
pub(crate) mod arrays;
pub(crate) mod auto;
pub(crate) mod control;
pub(crate) mod forecast;
pub(crate) mod grow;
pub(crate) mod last;
pub(crate) mod learn;
pub(crate) mod local;
pub(crate) mod merge;
pub mod pilots;
pub(crate) mod preview;
pub(crate) mod rehearsal;
pub(crate) mod reproduce;
pub(crate) mod retry;
mod shard;
pub(crate) mod snapshot;
pub(crate) mod todo;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use crate::base::fault::{Fault, Faults};
use crate::base::host::access::{self, Access, Shared};
use crate::base::host::{disk, vars};
use crate::cluster::render::Templates;
use crate::cluster::scheduler::{self, Wanted};
use crate::plan::author::Author;
use crate::plan::site::{Ask, SchedulerKind, Site};
use crate::plan::{self, Files, Plan, Resources};
use crate::sweep::tree::Tree;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::memo::Memo;
pub(crate) use local::gpus::refuse_share;

/// A plan as read from its file.
pub struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The checked plan, as far as its sweep has it.
    pub(crate) plan: Plan,
    /// The part that the sweep has, if it is one of several.
    pub(crate) part: Option<shard::Part>,
    /// The folder of its sweep, if that was moved or copied to another place than the plan names.
    pub(crate) moved: Option<PathBuf>,
    /// What was read of the tables of its sweep.
    memo: Memo,
    /// Writes the file, where it is not written yet.
    draft: Option<Draft>,
}

/// Writes a plan that was made on the command line.
pub(crate) type Draft = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// The fault that a folder is no plan, with the plan of the sweep that is in it.
fn of_folder(path: &Path) -> Fault {
    let tree = Tree::at(path);
    let name = path.display();
    if !path.join("sweep.json").is_file() {
        let fault = Fault::request(format!("`{name}` is a folder, and no plan"));
        return fault.hint("name a plan's file; `hpcsweep init NAME` makes a project with one");
    }
    let fault = Fault::request(format!("`{name}` is the folder of a sweep, and no plan"));
    let journal = Journal::read(&tree).ok().filter(|journal| journal.is_of_here);
    match journal.and_then(|journal| journal.plan).filter(|plan| plan.is_file()) {
        Some(plan) => fault.hint(format!("its plan is the file `{}`", disk::named(&plan))),
        None => fault.hint("name the file of its plan"),
    }
}

impl Source {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// When it cannot be read, or with all of its faults at once.
    pub fn read(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(of_folder(path).into());
        }
        let text = disk::read_named(path).map_err(|e| {
            let reason = disk::reason(&e);
            let fault =
                Fault::request(format!("cannot read the plan `{}`: {reason}", path.display()));
            match access::how_to_read_plan(path) {
                Some(hint) if e.kind() == ErrorKind::PermissionDenied => fault.hint(hint),
                _ => fault.hint("`hpcsweep init NAME` makes a project with a plan to begin with"),
            }
        })?;
        Self::of_text(path, text)
    }

    fn of_text(path: &Path, text: String) -> Result<Self> {
        let plan = plan::parse_with(&text, &path.display().to_string(), &reader_beside(path))?;
        Self::new(path.to_owned(), text, plan)
    }

    /// Checks a plan that is not written yet; `files` gives the texts of the files that it names.
    ///
    /// # Errors
    /// With all of its faults at once.
    pub(crate) fn of_new(path: &Path, text: String, files: Files<'_>) -> Result<Self> {
        let name = format!("{}, not written yet", path.display());
        let plan = plan::parse_with(&text, &name, files)?;
        Self::new(path.to_owned(), text, plan)
    }

    /// A checked plan, of which the trials of other shards are left out.
    ///
    /// # Errors
    /// When the sweep's record of its part is damaged.
    pub(crate) fn new(path: PathBuf, text: String, plan: Plan) -> Result<Self> {
        let mut source =
            Self { path, text, plan, part: None, moved: None, memo: Memo::default(), draft: None };
        for dir in [&source.folder(), source.tree().dir()] {
            if dir.to_str().is_none() {
                let sentence =
                    format!("the folder `{}` has a name that is not UTF-8", dir.display());
                return Err(Fault::request(sentence)
                    .hint("plans and results lie in folders whose names are UTF-8: rename it")
                    .into());
            }
        }
        source.narrow()?;
        Ok(source)
    }

    /// Has the plan written when its submission goes on, under the lock of the sweep: one that is refused changes no file.
    pub(crate) fn write_with(&mut self, draft: Draft) {
        self.draft = Some(draft);
    }

    /// Writes the plan, if it is not written yet.
    ///
    /// # Errors
    /// Those of the draft.
    fn write_draft(&self) -> Result<()> {
        self.draft.as_ref().map_or(Ok(()), |draft| draft())
    }

    pub(crate) fn author(&self) -> Author {
        Author::from_text(&self.text)
    }

    /// The folder the plan lies in, absolute.
    pub(crate) fn folder(&self) -> PathBuf {
        disk::absolute(&self.path).parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
    }

    /// A path of the plan: as written, or below the plan's folder.
    pub(crate) fn beside(&self, path: &str) -> PathBuf {
        self.folder().join(vars::at_home(path))
    }

    /// The tree of its sweep.
    pub(crate) fn tree(&self) -> Tree {
        let named = || self.beside(&self.plan.root).join(&self.plan.name);
        Tree::at(&self.moved.clone().unwrap_or_else(named)).with(&self.memo)
    }

    /// The templates to render with: the folder named on the command line, else the project's own
    /// `templates/` beside the plan, else the site's, else the embedded ones.
    ///
    /// # Errors
    /// When a template is not valid.
    pub fn templates(&self, named: Option<&Path>, site: &Site) -> Result<Templates> {
        let own = self.folder().join("templates");
        let is_own =
            crate::cluster::render::EMBEDDED.iter().any(|(name, _)| own.join(name).is_file());
        let folder = named.map(Path::to_owned).or_else(|| is_own.then_some(own));
        Templates::load(folder.as_deref().or(site.templates.dir.as_deref()))
    }
}

/// Reads files that a plan names beside itself.
fn reader_beside(plan: &Path) -> impl Fn(&str) -> std::result::Result<String, Fault> {
    move |name| {
        let file = plan.parent().unwrap_or(Path::new("")).join(name);
        disk::read_named(&file).map_err(|e| {
            let why = disk::reason(&e);
            Fault::request(format!("cannot read `{}`: {why}", file.display()))
                .hint("a relative path starts from the folder of the plan")
        })
    }
}

/// The requests of a plan's trials; neighbours that share a request are one.
fn wanted(source: &Source) -> Wanted<'_> {
    let plan = &source.plan;
    let mut last: Option<&Arc<Resources>> = None;
    let own = plan.trials.iter().filter_map(|trial| {
        let is_new = last.is_none_or(|seen| !Arc::ptr_eq(seen, &trial.resources));
        last = Some(&trial.resources);
        is_new.then_some(&*trial.resources)
    });
    let trials = plan.trials.len() as u64;
    let pack = plan.schedule.pack.map_or(1, u64::from);
    let elements = trials.div_ceil(pack);
    Wanted { requests: own.collect(), elements, plan: disk::named(&source.path) }
}

/// Makes the folder of a plan's sweep, or refuses one that others may change. Returns the users who share it.
fn secure(tree: &Tree, plan: &Plan, site: &Site) -> Result<Access> {
    let readers = plan.readers.or(site.results.readable_by);
    let access = Access { shared: shared(plan, site), readers };
    tree.secure(access)?;
    Ok(access)
}

/// Refuses what [`secure`] refuses, and a folder that this user cannot write to. Writes nothing.
fn check_writable(tree: &Tree, plan: &Plan, site: &Site) -> Result<()> {
    match tree.dir().is_dir() {
        true => tree.check_change(shared(plan, site)),
        false => disk::check_make_dir(tree.dir()),
    }
}

/// The users who share a sweep: by its plan, else by the site.
pub(crate) fn shared(plan: &Plan, site: &Site) -> Shared {
    if plan.shared == Shared::No { site.results.shared } else { plan.shared }
}

/// Refuses a plan that breaks the site's hard caps, all of them at once.
///
/// # Errors
/// When it does.
pub(crate) fn check_caps(source: &Source, site: &Site, kind: SchedulerKind) -> Result<()> {
    check_requests(source, &wanted(source).requests, site, kind)
}

/// Refuses requests on behalf of a plan that break the site's hard caps.
fn check_requests(
    source: &Source,
    requests: &[&Resources],
    site: &Site,
    kind: SchedulerKind,
) -> Result<()> {
    let mut faults: Vec<Fault> = Vec::new();
    for r in requests {
        let ask = Ask {
            trials: source.plan.trials.len() as u64,
            nodes: u64::from(r.nodes),
            walltime_s: r.walltime_s,
            partition: r.partition.as_deref().or(site.scheduler.partition.as_deref()),
            ways: scheduler::of(kind).facts().ways,
            directives: &r.directives,
            called: (source.author() == Author::Python)
                .then_some(|key| Author::Python.key("resources", key)),
        };
        for fault in site.refusals(&ask) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    Faults(faults).or(|| Ok(()))
}

/// Refuses a growth that takes the sweep, with what it had before, beyond the site's cap on trials.
///
/// # Errors
/// When it does.
pub(crate) fn check_growth(plan: &Plan, site: &Site, diff: &grow::Diff) -> Result<()> {
    let trials = diff.known + diff.added();
    if trials == plan.trials.len() as u64 {
        return Ok(());
    }
    let faults = site.refusals(&Ask { trials, ..Ask::default() });
    Faults(faults).or(|| Ok(()))
}
