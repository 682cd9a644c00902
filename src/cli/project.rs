//! A new project: a plan, a program to train with, and its own copy of the job scripts.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::cluster::render;
use crate::plan;

/// A project to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Template {
    /// A program in any language, one process a trial
    Command,
    /// A Python function, without a plan
    Python,
    /// PyTorch DDP, several ranks a trial
    Ddp,
    /// Training by hpcsweep itself: no program
    Train,
    /// The same training as a PyTorch script, to be edited
    TrainPytorch,
    /// A program of MPI
    Mpi,
    /// Trials that run one after the other, each from the weights of the one before
    Chains,
}

macro_rules! files {
    ($folder:literal: $($name:literal),+) => {
        &[$(($name, include_bytes!(concat!("../../templates/project/", $folder, "/", $name)).as_slice())),+]
    };
}

const DIGITS: (&str, &[u8]) = ("digits.npz", include_bytes!("../../examples/data/digits.npz"));

impl Template {
    /// Whether a plan lies in the folder, with job scripts beside it.
    fn has_plan(self) -> bool {
        self != Self::Python
    }

    /// Its files, that of the plan or script which is submitted first; `@NAME@` stands for the sweep's name.
    fn files(self) -> Vec<(&'static str, &'static [u8])> {
        let own: &[(&str, &[u8])] = match self {
            Self::Command => files!("command": "plan.toml", "train.sh"),
            Self::Python => files!("python": "fit.py"),
            Self::Ddp => files!("ddp": "plan.toml", "train.py"),
            Self::Train => files!("train": "plan.toml"),
            Self::TrainPytorch => files!("train-pytorch": "plan.toml", "train.py"),
            Self::Mpi => files!("mpi": "plan.toml", "pi.c"),
            Self::Chains => files!("chains": "plan.toml", "train.sh"),
        };
        // The example's own.
        let data = matches!(self, Self::Train | Self::TrainPytorch).then_some(DIGITS);
        own.iter().copied().chain(data).collect()
    }
}

/// What editors complete and check a plan by; the first line of a plan names it.
const SCHEMA: &str = "plan.schema.json";

/// Makes a project folder: written aside, then renamed, so that it is there whole or not at all. Its files, the one
/// that is submitted first.
///
/// # Errors
/// When the folder exists, its name cannot be a sweep's name, or the disk refuses.
pub(crate) fn create(folder: &Path, template: Template) -> Result<Vec<PathBuf>> {
    if folder.exists() {
        return Err(Fault::request(format!("`{}` is there already", folder.display()))
            .hint("choose another name; nothing was changed")
            .into());
    }
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    // A plan itself knows which names it takes.
    let text = include_str!("../../templates/project/command/plan.toml").replace("@NAME@", &name);
    if plan::parse(&text, "plan.toml").is_err() {
        return Err(Fault::request(format!("`{name}` cannot be the name of a sweep"))
            .hint("use letters, digits, `.`, `_` and `-`; at most 64 of them, the first a letter or digit")
            .into());
    }
    let aside = disk::aside(&disk::absolute(folder));
    let write = || -> Result<Vec<PathBuf>> {
        disk::make_dir(&aside)?;
        for (file, bytes) in template.files() {
            let named = std::str::from_utf8(bytes).map(|text| text.replace("@NAME@", &name));
            let bytes = named.as_ref().map_or(bytes, |text| text.as_bytes());
            disk::write_whole(&aside.join(file), bytes)?;
        }
        if template.has_plan() {
            let schema = format!("{:#}\n", plan::schema());
            disk::write_whole(&aside.join(SCHEMA), schema.as_bytes())?;
            render::export(&aside.join("templates"))?;
        }
        std::fs::rename(&aside, folder).map_err(|e| disk::fault("make the folder", folder, &e))?;
        let own = template.files().into_iter().map(|(file, _)| folder.join(file));
        let mut files: Vec<PathBuf> = own.collect();
        if template.has_plan() {
            files.push(folder.join(SCHEMA));
            let scripts = render::EMBEDDED.iter();
            files.extend(scripts.map(|(name, _)| folder.join("templates").join(name)));
        }
        Ok(files)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_dir_all(&aside);
    })
}
