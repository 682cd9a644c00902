//! The environment a job was submitted from, as a file, for schedulers that do not pass it on.
//!
//! PBS gives a job the variables of a login shell; its own `-V` takes quotes apart and loses PATH. So the
//! script reads this file: shell text that exports each variable, every value quoted. Given words, it
//! becomes that command afterwards, which is how the ranks on other hosts get the same environment.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;

use crate::base::host::{Vars, disk};
use crate::base::words::sh_quote;
use crate::cluster::rank::is_launcher_variable;
use crate::sweep::tree::Tree;

/// Variables that belong to the shell, the session or the job itself, not to what is to be run.
const OWN: &[&str] = &[
    "_",
    "DISPLAY",
    "ENVIRONMENT",
    "HOME",
    "HOSTNAME",
    "LOGNAME",
    "MAIL",
    "NCPUS",
    "OLDPWD",
    "OMP_NUM_THREADS",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM",
    "TMPDIR",
    "USER",
];

/// Beginnings of the names of further such variables.
const OWN_FAMILIES: &[&str] = &["BASH_FUNC_", "DBUS_", "SSH_", "XDG_", "VSCODE_", "TMUX"];

/// Writes the environment into the sweep's folder, readable by its owner alone; equal ones share a file.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write(tree: &Tree, vars: &Vars) -> Result<PathBuf> {
    let text = text(vars);
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let path = tree.dir().join(format!("jobs/env-{}.sh", &hash[..12]));
    if disk::read_if_there(&path)?.as_deref() != Some(&*text) {
        disk::write_private(&path, text.as_bytes())?;
    }
    Ok(path)
}

fn text(vars: &Vars) -> String {
    let mut text =
        "# The variables of the submission. With words behind it, becomes that command.\n"
            .to_owned();
    for (name, value) in vars {
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        let is_own = OWN.contains(&name.as_str())
            || OWN_FAMILIES.iter().any(|family| name.starts_with(family));
        if is_name && !is_own && !is_launcher_variable(name) {
            let _ = writeln!(text, "export {name}={}", sh_quote(value));
        }
    }
    text.push_str("[ $# -eq 0 ] || exec \"$@\"\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_run_keeps_its_variables_and_nothing_of_another_job() {
        let vars: Vars = [
            ("PATH", "/opt/a b/bin:/usr/bin"),
            ("QUOTES", "it's \"so\" $HOME `id` \\ \n end"),
            ("PBS_JOBID", "7.s"),
            ("SLURM_JOB_ID", "7"),
            ("TMPDIR", "/tmp/x"),
            ("BASH_FUNC_module%%", "() { :; }"),
            ("HPCSWEEP_SITE", "pbs"),
            ("1x", "y"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        assert_eq!(
            text(&vars),
            "# The variables of the submission. With words behind it, becomes that command.\n\
             export HPCSWEEP_SITE=pbs\n\
             export PATH='/opt/a b/bin:/usr/bin'\n\
             export QUOTES='it'\\''s \"so\" $HOME `id` \\ \n end'\n\
             [ $# -eq 0 ] || exec \"$@\"\n"
        );
    }
}
