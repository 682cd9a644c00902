//! What people write: plans, profiles, templates, and the small languages in them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::fs;
use std::path::Path;

use hpcsweep::base::fault::Fault;
use hpcsweep::base::hostlist;
use hpcsweep::base::idset::{ArraySpec, IdSet, JobRef, Part};
use hpcsweep::base::units;
use hpcsweep::cluster::rank;
use hpcsweep::cluster::render::Templates;
use hpcsweep::plan::site;
use hpcsweep::plan::{self, CommandTemplate, Plan};

/// Calls `with` where the bytes are text.
pub(crate) fn text(bytes: &[u8], with: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        with(text);
    }
}

/// A value that was read, printed and read again is the same value.
fn printed<T: PartialEq + Debug + Display>(read: impl Fn(&str) -> Result<T, Fault>, text: &str) {
    if let Ok(value) = read(text) {
        let shown = value.to_string();
        assert_eq!(read(&shown).ok().as_ref(), Some(&value), "`{text}` is shown as `{shown}`");
    }
}

pub(crate) fn id_sets(bytes: &[u8]) {
    text(bytes, |text| {
        printed(IdSet::parse, text);
        printed(ArraySpec::parse, text);
        // Of a list that squeue has cut off, what was cut is shown as dots.
        let is_cut = |job: &JobRef| matches!(job.part, Part::Waiting { cut: true, .. });
        if JobRef::parse(text).is_ok_and(|job| !is_cut(&job)) {
            printed(JobRef::parse, text);
        }
    });
}

pub(crate) fn host_lists(bytes: &[u8]) {
    text(bytes, |text| {
        let _ = hostlist::tasks_per_node(text);
        let _ = hostlist::expand(text);
    });
}

pub(crate) fn units_of(bytes: &[u8]) {
    text(bytes, |text| {
        if let Some(seconds) = units::parse_walltime(text) {
            let shown = units::walltime_text(seconds);
            assert_eq!(units::parse_walltime(&shown), Some(seconds), "{text}: {shown}");
            let _ = units::hours_text(seconds);
        }
        if let Some(mib) = units::parse_memory(text) {
            let shown = units::memory_text(mib);
            assert_eq!(units::parse_memory(&shown), Some(mib), "{text}: {shown}");
        }
    });
}

/// A plan, and the commands of its first trials.
pub(crate) fn plans(bytes: &[u8]) {
    text(bytes, |text| {
        // Ten million trials are allowed, and take their time: not here.
        if let Ok(plan) = plan::parse(text, "plan.toml") {
            commands(&plan);
        }
    });
}

fn commands(plan: &Plan) {
    let template = CommandTemplate::new(&plan.run).expect("the plan was checked");
    let names = |id: usize| {
        plan::names_of(
            plan::TrialNames {
                id: id as u64,
                task_id: serde_json::Value::Null,
                chain: 0,
                link: 0,
                attempt: 1,
                work_dir: Path::new("/w"),
                checkpoint_dir: Path::new("/c"),
                gpu_ids_abs: serde_json::Value::Null,
            },
            &plan.name,
            plan.seed,
            Path::new("/s"),
        )
    };
    for (id, trial) in plan.trials.iter().enumerate().take(4) {
        let _ = template.render(&trial.params, &names(id));
        plan.content_key(trial);
    }
}

/// Lists of trials in a file beside the plan; the first byte gives its kind.
pub(crate) fn trial_lists(bytes: &[u8]) {
    let [kind, rest @ ..] = bytes else { return };
    text(rest, |text| {
        let name = if kind % 2 == 0 { "t.json" } else { "t.csv" };
        let plan = format!(
            "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"a\"]\n[trials]\nfile = \"{name}\"\n"
        );
        let _ = plan::parse_with(&plan, "plan.toml", &|_| Ok(text.to_owned()));
    });
}

pub(crate) fn profiles(bytes: &[u8]) {
    text(bytes, |text| {
        let vars = BTreeMap::from([("HPCSWEEP_SITE".to_owned(), "/s/site.toml".to_owned())]);
        let read = |path: &Path| Ok(path.starts_with("/s").then(|| text.to_owned()));
        if let Ok(site) = site::load(&vars, &read, None) {
            site.rows().iter().for_each(|row| drop(format!("{row:?}")));
            serde_json::to_string(&site).expect("a profile is JSON");
        }
    });
}

/// An edited job script. It is not rendered: a template is a program, and may loop.
pub(crate) fn templates(bytes: &[u8]) {
    thread_local! {
        static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
    }
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a folder"));
        fs::write(folder.path().join("slurm.sh.tera"), bytes).expect("a template");
        let _ = Templates::load(Some(folder.path()));
    });
}

/// The environment of a rank, a variable a line.
pub(crate) fn environments(bytes: &[u8]) {
    text(bytes, |text| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let vars: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let all = [rank::derive(&vars, "n1"), rank::derive_in_pbs(&vars, "n1", "n1\nn2\nn2\n")];
        for rank in all.into_iter().flatten() {
            rank::explain(&rank);
        }
        let _ = rank::head_host(&vars);
        let _ = rank::visible_devices(&vars);
    });
}
