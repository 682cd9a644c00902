//! Checks of a site or an installation: each check reports what it found and, if something is wrong, what to
//! do.

mod devices;
mod launchers;
mod pbs;
mod programs;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::base::host::{Vars, clock, disk, vars};
use crate::base::words;
use crate::cluster::scheduler::Limits;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::slurm::commands as slurm;
use crate::plan::site::Site;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Something is missing that only some users need.
    Note,
    /// Something will go wrong.
    Bad,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    /// The thing that was checked.
    pub(crate) about: &'static str,
    /// Whether what was found is in order.
    pub(crate) verdict: Severity,
    /// What was found, in words.
    pub(crate) seen: String,
    /// What to do; empty when there is nothing to do.
    pub(crate) todo: String,
}

fn check(about: &'static str, verdict: Severity, seen: impl Into<String>, todo: &str) -> Check {
    Check { about, verdict, seen: seen.into(), todo: todo.to_owned() }
}

/// All checks. `tree` is the folder under which results are to lie.
pub(crate) fn examine(site: &Site, vars: &Vars, tree: &Path) -> Vec<Check> {
    let mut checks = programs::installation(vars);
    let mut calls = Calls::new(vars, Duration::from_secs(site.limits.call_timeout_s.min(20)));
    let pbs = pbs::examine(&mut calls, site, vars);
    let (said, limits) = scheduler(&mut calls);
    // A site with PBS does not need Slurm.
    if pbs.is_none() || limits.is_some() {
        checks.extend(said);
        checks.extend(programs::srun(&mut calls, limits.as_ref()));
        checks.extend(limits.as_ref().and_then(programs::fence));
        checks.push(programs::mpirun(&mut calls));
    }
    checks.extend(pbs.unwrap_or_default());
    checks.extend(shared_tree(tree));
    checks.extend(devices::examine(vars));
    checks
}

fn scheduler(calls: &mut Calls) -> (Vec<Check>, Option<Limits>) {
    let text = match calls.ask(&slurm::config()) {
        Ok(text) => text,
        Err(error) => {
            let reason = error.to_string();
            let none = check(
                "scheduler",
                Severity::Note,
                format!("no Slurm here: {}", reason.lines().next().unwrap_or_default()),
                "`--local` works without; on a cluster, run this on a login node",
            );
            return (vec![none], None);
        }
    };
    let limits = slurm::limits(&text);
    let mut checks = vec![check(
        "scheduler",
        Severity::Ok,
        format!("Slurm {}", limits.version.as_deref().unwrap_or("of unknown version")),
        "",
    )];
    // slurmctld prints the time of its host on the first line; the sweep's records carry ours.
    if let Some(skew) = text.lines().next().and_then(controller_skew) {
        let skew_words = format!("the controller's clock differs by {:.0} s", skew.abs());
        let verdict = if skew.abs() > 60.0 { Severity::Bad } else { Severity::Ok };
        let todo =
            if verdict == Severity::Bad { "let the hosts keep time (chrony, ntp)" } else { "" };
        checks.push(check("clock", verdict, skew_words, todo));
    }
    let size = limits.max_array_size.map_or_else(|| "unknown".into(), words::thousands);
    let jobs = limits.max_job_count.map_or_else(|| "unknown".into(), words::thousands);
    let tasks = limits.max_array_tasks.map_or_else(|| "no limit".into(), words::thousands);
    checks.push(check(
        "limits",
        Severity::Ok,
        format!("MaxArraySize {size}, max_array_tasks {tasks}, MaxJobCount {jobs}"),
        "",
    ));
    checks.push(if limits.accounting {
        check("accounting", Severity::Ok, "slurmdbd: finished jobs can be asked for", "")
    } else {
        check(
            "accounting",
            Severity::Note,
            "none: the scheduler forgets finished jobs (MinJobAge)",
            "nothing: the results tree keeps what matters",
        )
    });
    (checks, Some(limits))
}

/// "Configuration data as of 2026-03-01T12:00:00": seconds by which the controller is ahead of us, when
/// both use UTC; otherwise whole quarters of an hour are the time zone.
fn controller_skew(line: &str) -> Option<f64> {
    let stamp = line.strip_prefix("Configuration data as of ")?.trim();
    let (date, time) = stamp.split_once('T')?;
    let mut date = date.split('-').map(|n| n.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':').map(|n| n.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // Days from civil date (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + doe - 719_468;
    let theirs = days * 86_400 + hour * 3600 + minute * 60 + second;
    let apart = theirs as f64 - clock::now();
    let zone = (apart / 900.0).round() * 900.0;
    Some(apart - zone)
}

/// Tries on the tree what the tool relies on: rename over a file, exclusive creation, links, space.
fn shared_tree(tree: &Path) -> Vec<Check> {
    // A root that is not there yet will be made below the nearest folder that is.
    let absolute = disk::absolute(tree);
    let tree = absolute.ancestors().find(|folder| folder.exists()).unwrap_or(&absolute);
    let dir = disk::aside(&tree.join("doctor"));
    if let Err(error) = disk::make_dir(&dir) {
        let reason = error.to_string();
        return vec![check(
            "results tree",
            Severity::Bad,
            reason.lines().next().unwrap_or_default(),
            "choose a root you may write to: `hpcsweep doctor --root DIR`, `[sweep] root` in the plan",
        )];
    }
    let mut checks = vec![semantics(&dir)];
    if let Ok(stat) = nix::sys::statvfs::statvfs(&dir) {
        let bytes = stat.blocks_available() * stat.fragment_size();
        let inodes = stat.files_available();
        let unlimited = stat.files() == 0;
        let free_words = format!(
            "{} MiB and {} inodes free for you under {}",
            words::thousands(bytes >> 20),
            if unlimited { "unlimited".to_owned() } else { words::thousands(inodes) },
            tree.display()
        );
        let short = bytes < 100 << 20 || (!unlimited && inodes < 10_000);
        checks.push(check(
            "space",
            if short { Severity::Bad } else { Severity::Ok },
            free_words,
            if short { "free some: a trial needs two files and what it writes itself" } else { "" },
        ));
    }
    let probe = dir.join("clock");
    if std::fs::write(&probe, b"?").is_ok()
        && let Ok(stamp) = std::fs::metadata(&probe).and_then(|m| m.modified())
        && let Ok(since) = stamp.duration_since(std::time::UNIX_EPOCH)
    {
        let skew = since.as_secs_f64() - clock::now();
        let bad = skew.abs() > 60.0;
        checks.push(check(
            "file clock",
            if bad { Severity::Bad } else { Severity::Ok },
            format!(
                "the file server's clock differs by {:.1} s from {}'s",
                skew.abs(),
                vars::hostname()
            ),
            if bad { "let server and hosts keep time (chrony, ntp)" } else { "" },
        ));
    }
    let _ = std::fs::remove_dir_all(&dir);
    checks
}

fn semantics(dir: &Path) -> Check {
    let attempt = || -> std::io::Result<Vec<&'static str>> {
        let mut broken = Vec::new();
        let (a, b, c) = (dir.join("a"), dir.join("b"), dir.join("c"));
        std::fs::write(&a, b"new")?;
        std::fs::write(&b, b"old")?;
        std::fs::rename(&a, &b)?;
        if std::fs::read(&b)? != b"new" || a.exists() {
            broken.push("rename does not replace");
        }
        if std::fs::File::create_new(&b).is_ok() {
            broken.push("exclusive creation is not exclusive");
        }
        if std::fs::hard_link(&b, &c).is_err() {
            broken.push("hard links are refused");
        }
        Ok(broken)
    };
    match attempt() {
        Ok(broken) if broken.is_empty() => {
            check("results tree", Severity::Ok, "rename, exclusive creation and links work", "")
        }
        Ok(broken) => check(
            "results tree",
            Severity::Bad,
            broken.join(", "),
            "use another file system for the results root; this one cannot keep what it is given",
        ),
        Err(e) => check(
            "results tree",
            Severity::Bad,
            disk::reason(&e),
            "choose a root you may write to: `[sweep] root` in the plan",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_clock_is_read_from_its_configuration() {
        assert_eq!(controller_skew("no"), None);
        let skew = controller_skew("Configuration data as of 2026-03-01T12:00:07").unwrap();
        assert!(skew.abs() <= 450.0, "{skew}");
    }
}
