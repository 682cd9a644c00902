//! The job scripts of a plan, as far as they are known before its sweep is there.

use anyhow::Result;
use serde::Serialize;

use crate::cluster::render::Templates;
use crate::cluster::render::context::{self as names, SiteWords};
use crate::cluster::scheduler::Scheduler;
use crate::plan::site::Site;
use crate::submit::Source;
use crate::submit::arrays::job_script::job_script;
use crate::sweep::tree::Tree;
use crate::sweep::tree::waves::Array;

/// Renders job scripts, with placeholders for what is known only once the sweep is there.
pub(crate) struct Scripts<'a> {
    source: &'a Source,
    templates: &'a Templates,
    tree: Tree,
    words: SiteWords<'a>,
    max_running: Option<u64>,
}

/// A planned array as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    /// Number of the array in its sweep, from 1.
    pub(crate) array: u32,
    /// Number of its block in the submission, from 0.
    pub(crate) block: u32,
    /// Number of its link in the block, from 0.
    pub(crate) link: u32,
    /// How many elements it has.
    pub(crate) count: u64,
    /// Trials that each element runs one after the other.
    pub(crate) links: u64,
    /// The array it follows: element by element where the scheduler can, else as a whole.
    pub(crate) after: Option<u32>,
    /// Arrays that must have ended before it begins, to keep to `max_running`.
    pub(crate) wait: Vec<u32>,
    /// Its directives, as the template renders them.
    pub(crate) directives: Vec<String>,
}

impl<'a> Scripts<'a> {
    /// Those of a plan for a scheduler.
    pub(crate) fn new(
        source: &'a Source,
        site: &Site,
        templates: &'a Templates,
        scheduler: &'a dyn Scheduler,
    ) -> Self {
        let tree = source.tree();
        let words = SiteWords {
            environment: Some(tree.dir().join("jobs/env.sh")),
            ..SiteWords::from_site(site, scheduler, &source.plan.run)
        };
        let wish = source.plan.schedule.max_running.map(u64::from);
        let max_running = site.caps.running(wish);
        Self { source, templates, tree, words, max_running }
    }

    /// An array with its directives.
    ///
    /// # Errors
    /// When its script cannot be rendered.
    pub(crate) fn shown(&self, array: &Array) -> Result<Shown> {
        Ok(Shown {
            array: array.array,
            block: array.block,
            link: array.link,
            count: array.count,
            links: array.links,
            after: array.after,
            wait: array.wait.clone(),
            directives: self.directives(array)?,
        })
    }

    fn directives(&self, array: &Array) -> Result<Vec<String>> {
        let facts = self.words.scheduler.facts();
        let sweep = &self.source.plan.name;
        let script = job_script(
            sweep,
            self.tree.dir(),
            format!("{sweep}.<token>.{}", array.array),
            array,
            self.max_running,
            &self.words,
            vec!["hpcsweep".to_owned(), "worker".to_owned()],
        );
        let text = self.templates.render(facts.template, &names::from_names(&script)?)?;
        let directives = text.lines().filter_map(|l| l.strip_prefix(facts.directive));
        Ok(directives.map(str::to_owned).collect())
    }
}
