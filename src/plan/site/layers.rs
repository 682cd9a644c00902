//! Which profiles are read, and in which order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Site, read};
use crate::base::fault::{Fault, Faults};
use crate::base::words;

/// The profiles that come with the program, by the name `$HPCSWEEP_SITE` may give.
pub const SHIPPED: &[(&str, &str)] = &[
    ("slurm", include_str!("../../../site/slurm.toml")),
    ("pbs", include_str!("../../../site/pbs.toml")),
    ("local", include_str!("../../../site/local.toml")),
];

/// Returns the profile of the site, all layers applied.
///
/// `vars` is the environment; `read` returns the text of a file, or `None` where there is none;
/// `prefix_share` is `share/hpcsweep` of the installation, where the program runs from one.
///
/// # Errors
/// All faults of all profiles at once as [`Faults`], a profile named by `$HPCSWEEP_SITE` that does
/// not exist, or the error of `read`.
pub fn load(
    vars: &BTreeMap<String, String>,
    read: &dyn Fn(&Path) -> io::Result<Option<String>>,
    prefix_share: Option<&Path>,
) -> anyhow::Result<Site> {
    let read = |path: &Path| {
        read(path).with_context(|| format!("reading the site profile {}", path.display()))
    };
    let mut layers: Vec<(PathBuf, String)> = Vec::new();
    let mut add = |path: PathBuf, text: String| {
        // The same file under two names of this list is one layer, at its first place.
        if !layers.iter().any(|(known, _)| *known == path) {
            layers.push((path, text));
        }
    };

    let fixed = [
        Some(PathBuf::from("/etc/hpcsweep/site.toml")),
        prefix_share.map(|share| share.join("site/site.toml")),
    ];
    for path in fixed.into_iter().flatten() {
        if let Some(text) = read(&path)? {
            add(path, text);
        }
    }
    if let Some(asked) = vars.get("HPCSWEEP_SITE").filter(|asked| !asked.is_empty()) {
        let (path, text) = named(asked, &read, prefix_share)?;
        add(path, text);
    }
    if let Some(path) = own(vars)
        && let Some(text) = read(&path)?
    {
        add(path, text);
    }

    let mut site = Site::default();
    let mut faults = Vec::new();
    for (path, text) in &layers {
        faults.extend(read::lay(&mut site, path, text));
    }
    if faults.is_empty() { Ok(site) } else { Err(Faults(faults).into()) }
}

/// What `$HPCSWEEP_SITE` names: a file, or a profile of the installation, or one that came with the
/// program.
fn named(
    asked: &str,
    read: &dyn Fn(&Path) -> anyhow::Result<Option<String>>,
    prefix_share: Option<&Path>,
) -> anyhow::Result<(PathBuf, String)> {
    if asked.contains('/') || asked.ends_with(".toml") {
        let path = PathBuf::from(asked);
        return match read(&path)? {
            Some(text) => Ok((path, text)),
            None => Err(Fault::request(format!("the site profile `{asked}` does not exist"))
                .hint("correct `HPCSWEEP_SITE`, or unset it")
                .into()),
        };
    }
    if let Some(path) = prefix_share.map(|share| share.join(format!("site/{asked}.toml")))
        && let Some(text) = read(&path)?
    {
        return Ok((path, text));
    }
    match SHIPPED.iter().find(|(name, _)| *name == asked) {
        // Not a file of this machine: the name shows that wherever the origin is shown.
        Some((name, text)) => {
            Ok((PathBuf::from(format!("shipped/{name}.toml")), (*text).to_owned()))
        }
        None => {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let hint = match words::nearest(asked, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    format!("known are {}; a file is given with its path", words::ticked(&names))
                }
            };
            Err(Fault::request(format!("`HPCSWEEP_SITE` names no site profile: `{asked}`"))
                .hint(hint)
                .into())
        }
    }
}

/// The user's own profile. A relative `$XDG_CONFIG_HOME` is to be ignored (XDG Base Directory 0.8).
fn own(vars: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute =
        |name: &str| vars.get(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("hpcsweep/site.toml"))
}
