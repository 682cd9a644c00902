//! PBS: which one it is, and the attributes of its server.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::{Check, Severity, check, launchers};
use crate::base::fault;
use crate::base::host::{Vars, disk};
use crate::base::words;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::pbs::{json, server};
use crate::plan::site::Site;

/// All findings about PBS; none if there is no qstat.
pub(super) fn examine(calls: &mut Calls, profile: &Site, vars: &Vars) -> Option<Vec<Check>> {
    let path = vars.get("PATH").map_or("", String::as_str);
    let program = disk::program_on(path, "qstat")?;
    let answer = calls.make(&["qstat", "--version"].map(str::to_owned));
    let version_words =
        answer.map_or_else(|e| e.to_string(), |o| format!("{}{}", o.stdout, o.stderr));
    let source = disk::read_at(&disk::real(&program), 0, 4096).unwrap_or_default();
    Some(match kind(&String::from_utf8_lossy(&source), &version_words) {
        Kind::Pbs(version) => {
            let mut checks = of_server(calls, &version);
            checks.push(throttle(&version));
            checks.extend(launchers::examine(profile, vars));
            checks
        }
        Kind::Torque(version) => vec![check(
            "scheduler",
            Severity::Bad,
            format!(
                "Torque {version}, which is not supported: its arrays (`-t`, PBS_ARRAYID) and dependencies are other ones than PBS's"
            ),
            "`--local` runs a plan on one host; OpenPBS, PBS Professional and Slurm take it as job arrays",
        )],
        Kind::SlurmWrappers => vec![check(
            "scheduler",
            Severity::Note,
            "qsub and qstat are here, but they are wrappers for Slurm (slurm-wlm-torque), not PBS",
            "submit with `--slurm`: the wrappers lose requests and dependencies",
        )],
        Kind::Other(line) => vec![check(
            "scheduler",
            Severity::Note,
            format!("{} is here, but not PBS's: it says `{line}`", program.display()),
            "only OpenPBS, PBS Professional and Slurm are supported",
        )],
    })
}

/// Whose qstat it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Pbs(Version),
    Torque(String),
    SlurmWrappers,
    Other(String),
}

/// A version of PBS.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    text: String,
    major: u32,
}

impl Version {
    /// The open one counts by year and month since 20.0, the sold one by whole years since 2020.1; before
    /// that both had one name.
    fn name(&self) -> &'static str {
        if (20..2000).contains(&self.major) { "OpenPBS" } else { "PBS Professional" }
    }

    /// Whether `-J 0-9%2` is understood.
    fn has_throttle(&self) -> bool {
        server::can_throttle(&self.text)
    }
}

/// Distinguishes the kinds of qstat by the beginning of the program and its output for `--version`.
fn kind(source: &str, said: &str) -> Kind {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let first_line = lines.clone().next().unwrap_or("nothing").to_owned();
    if let Some(text) = first_line.strip_prefix("pbs_version = ") {
        let major = text.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        return Kind::Pbs(Version { text: text.to_owned(), major });
    }
    // Torque: "Version: 6.1.2", "Commit: 661e...".
    if let Some(version) = lines.find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("version:").map(|v| v.trim().to_owned())
    }) {
        return Kind::Torque(version);
    }
    let is_perl = source.starts_with("#!") && source.lines().any(|l| l.starts_with("use Slurm"));
    if is_perl || first_line == "Unknown option: version" {
        return Kind::SlurmWrappers;
    }
    Kind::Other(first_line)
}

fn of_server(calls: &mut Calls, version: &Version) -> Vec<Check> {
    let mut ask = |what: &str| {
        let text = calls.ask(&["qstat", what, "-f", "-F", "json"].map(str::to_owned))?;
        json::parse(&text).map_err(anyhow::Error::msg)
    };
    let named = format!("{} {}", version.name(), version.text);
    let (server, queues) = match (ask("-B"), ask("-Q")) {
        (Ok(server), Ok(queues)) => (server, queues),
        (Err(error), _) | (_, Err(error)) => {
            return vec![check(
                "scheduler",
                Severity::Bad,
                format!("{named}, but {}", fault::sentence(&error)),
                "run this where jobs can be submitted; does `qstat -B` work there?",
            )];
        }
    };
    let mut checks = server_checks(&named, &server);
    checks.extend(queue_checks(&queues, &text(&first_of(&server, "Server").1, "default_queue")));
    checks
}

/// The one entry of an object `{"Server": {"pbshead": {...}}}`.
fn first_of(answer: &Value, key: &str) -> (String, Value) {
    let entry = answer[key].as_object().and_then(|all| all.iter().next());
    entry.map_or_else(Default::default, |(name, value)| (name.clone(), value.clone()))
}

/// An attribute as text, numbers too; empty without it.
fn text(value: &Value, key: &str) -> String {
    json::text(value, key).unwrap_or_default()
}

fn server_checks(named: &str, answer: &Value) -> Vec<Check> {
    let (name, server) = first_of(answer, "Server");
    let state = text(&server, "server_state");
    let idle = text(&server, "scheduling") == "False";
    let server_words = format!("{named}, server {name} ({state})");
    let mut checks = vec![if idle {
        check(
            "scheduler",
            Severity::Note,
            format!("{server_words}, scheduling is off"),
            "jobs will wait until an administrator turns it on",
        )
    } else {
        check("scheduler", Severity::Ok, server_words, "")
    }];
    checks.push(if text(&server, "job_history_enable") == "True" {
        let history = text(&server, "job_history_duration");
        let history_words = if history.is_empty() { "two weeks".to_owned() } else { history };
        check("history", Severity::Ok, format!("job_history_enable: ended jobs can be asked for during {history_words}"), "")
    } else {
        check(
            "history",
            Severity::Note,
            "job_history_enable is off: a job is forgotten when it ends, and one that never started looks the same",
            "nothing: records keep what trials did; of a job that is gone without one, PBS will not say why",
        )
    });
    let limits = limits(&server);
    let size = &server["max_array_size"];
    let size = size.as_u64().map_or_else(|| "unknown".into(), words::thousands);
    let limit_words = format!(
        "max_array_size {size}{}",
        limits.iter().map(|l| format!("; {l}")).collect::<String>()
    );
    checks.push(check("limits", Severity::Ok, limit_words, ""));
    checks
}

/// Limits on jobs, as PBS writes them: `max_queued [u:PBS_GENERIC=100]` counts every element of an array.
fn limits(of: &Value) -> Vec<String> {
    let names =
        ["max_queued", "queued_jobs_threshold", "max_run", "max_user_run", "max_user_queuable"];
    names
        .into_iter()
        .map(|name| (name, text(of, name)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name} {value}"))
        .collect()
}

/// No site has so many that a person would read them.
const QUEUES_SHOWN: usize = 20;

fn queue_checks(answer: &Value, default: &str) -> Vec<Check> {
    let none = Map::new();
    let queues = answer["Queue"].as_object().unwrap_or(&none);
    let mut checks: Vec<Check> = queues
        .iter()
        .take(QUEUES_SHOWN)
        .map(|(name, queue)| of_queue(name, queue, name == default))
        .collect();
    if queues.len() > QUEUES_SHOWN {
        let further = words::count((queues.len() - QUEUES_SHOWN) as u64, "further queue");
        checks.push(check("queue", Severity::Ok, format!("{further}: `qstat -Q`"), ""));
    }
    checks
}

fn of_queue(name: &str, queue: &Value, is_default: bool) -> Check {
    let mut findings = vec![if is_default { format!("{name} (default)") } else { name.to_owned() }];
    let destinations = text(queue, "route_destinations");
    if !destinations.is_empty() {
        findings.push(format!("hands jobs on to {destinations}"));
    }
    let walltime = text(&queue["resources_max"], "walltime");
    if !walltime.is_empty() {
        findings.push(format!("walltime up to {walltime}"));
    }
    if let Some(size) = queue["max_array_size"].as_u64() {
        findings.push(format!("max_array_size {}", words::thousands(size)));
    }
    findings.extend(limits(queue));
    let (verdict, todo) = match (text(queue, "enabled").as_str(), text(queue, "started").as_str()) {
        ("False", _) => {
            findings.push("takes no jobs".to_owned());
            (
                Severity::Note,
                "name another one: `[scheduler] partition` in the site profile or the plan",
            )
        }
        (_, "False") => {
            findings.push("starts no jobs".to_owned());
            (Severity::Note, "jobs wait there until an administrator starts it")
        }
        _ => (Severity::Ok, ""),
    };
    check("queue", verdict, findings.join(", "), todo)
}

fn throttle(version: &Version) -> Check {
    if version.has_throttle() {
        return check(
            "arrays",
            Severity::Ok,
            "`-J 0-9%2` limits how many elements run at a time",
            "",
        );
    }
    check(
        "arrays",
        Severity::Note,
        format!(
            "{} {} does not know `-J 0-9%2`, which came with 22.05",
            version.name(),
            version.text
        ),
        "a plan that limits how many trials run at a time needs smaller arrays one behind the other, so more calls",
    )
}
