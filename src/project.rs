//! A new project: a plan, a program to train with, and its own copy of the job scripts.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::fault::Fault;
use crate::host::disk;
use crate::render;

const PLAN: &str = include_str!("../templates/project/plan.toml");
const TRAIN: &str = include_str!("../templates/project/train.sh");

/// Makes a project folder: written aside, then renamed, so that it is there whole or not at all.
///
/// # Errors
/// When the folder exists, its name cannot be a sweep's name, or the disk refuses.
pub fn create(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.exists() {
        return Err(Fault::request(format!("`{}` is there already", folder.display()))
            .hint("choose another name; nothing was changed")
            .into());
    }
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let plan = PLAN.replace("@NAME@", &name);
    // The plan itself knows which names it takes.
    if crate::plan::parse(&plan, "plan.toml").is_err() {
        return Err(Fault::request(format!("`{name}` cannot be the name of a sweep"))
            .hint("use letters, digits, `.`, `_` and `-`; at most 64 of them, the first a letter or digit")
            .into());
    }
    let aside = disk::aside(&disk::absolute(folder));
    let write = || -> Result<Vec<PathBuf>> {
        disk::make_dir(&aside)?;
        disk::write_whole(&aside.join("plan.toml"), plan.as_bytes())?;
        disk::write_whole(&aside.join("train.sh"), TRAIN.as_bytes())?;
        render::export(&aside.join("templates"))?;
        std::fs::rename(&aside, folder).map_err(|e| disk::fault("make the folder", folder, &e))?;
        let mut files = vec![folder.join("plan.toml"), folder.join("train.sh")];
        files.extend(render::EMBEDDED.iter().map(|(name, _)| folder.join("templates").join(name)));
        Ok(files)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_dir_all(&aside);
    })
}
