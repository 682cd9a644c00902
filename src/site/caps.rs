//! The caps of a site: what a sweep may not pass, and the sentences that refuse it.

use serde::Serialize;

use super::Site;
use crate::fault::Fault;

/// `[caps]`: `None` means no cap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// Most elements of a sweep that run at once; a larger wish is throttled, not refused.
    pub max_running: Option<u64>,
    /// Most trials of a sweep.
    pub max_trials: Option<u64>,
    /// Longest walltime of a trial, in seconds; a trial that names none asks for this.
    pub max_walltime_s: Option<u64>,
    /// Most nodes of a trial.
    pub max_nodes: Option<u64>,
    /// Largest index of an array plus one; larger arrays are split, not refused.
    pub max_array_size: Option<u64>,
    /// Partitions or queues that no sweep may use.
    pub forbidden_partitions: Vec<String>,
}

/// What one sweep, or the trials of one shape, ask for at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// Trials of the whole sweep.
    pub trials: u64,
    /// Nodes of one trial.
    pub nodes: u64,
    /// Walltime of one trial, in seconds.
    pub walltime_s: Option<u64>,
    /// Partition or queue, the site's default included.
    pub partition: Option<&'a str>,
    /// The plan's own options of the scheduler.
    pub directives: &'a [String],
}

/// The options by which a directive would pass a cap, for Slurm and PBS.
const WAYS_ROUND: &[(&str, &[&str], &str)] = &[
    ("caps.max_walltime", &["--time", "-t", "walltime="], "walltime"),
    ("caps.max_nodes", &["--nodes", "-N", "select=", "nodes="], "nodes"),
    ("caps.forbidden_partitions", &["--partition", "-p", "-q"], "partition"),
];

impl Site {
    /// Returns one fault for each cap that `ask` passes, naming the profile that set it.
    pub fn refusals(&self, ask: &Ask<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut refuse = |key: &str, sentence: String, hint: &str| {
            faults.push(Fault::request(sentence).at(self.origin(key).to_string()).hint(hint));
        };
        if let Some(cap) = self.caps.max_trials.filter(|&cap| ask.trials > cap) {
            let sentence = format!("this site allows {cap} trials a sweep, not {}", ask.trials);
            refuse("caps.max_trials", sentence, "divide the plan into several sweeps");
        }
        if let Some(cap) = self.caps.max_nodes.filter(|&cap| ask.nodes > cap) {
            let sentence = format!("this site allows {cap} nodes a trial, not {}", ask.nodes);
            refuse("caps.max_nodes", sentence, "ask for fewer `nodes`");
        }
        if let (Some(cap), Some(asked)) = (self.caps.max_walltime_s, ask.walltime_s)
            && asked > cap
        {
            let sentence = format!("this site allows {cap} s of walltime a trial, not {asked} s");
            refuse("caps.max_walltime", sentence, "ask for less `walltime`");
        }
        if let Some(name) = ask.partition
            && name.split(',').any(|one| self.caps.forbidden_partitions.iter().any(|p| p == one))
        {
            let sentence = format!("sweeps may not use the partition `{name}` of this site");
            refuse("caps.forbidden_partitions", sentence, "name another `partition`");
        }
        for directive in ask.directives {
            for (key, options, field) in WAYS_ROUND {
                if self.capped(key) && options.iter().any(|option| sets(directive, option)) {
                    let sentence = format!("the directive `{directive}` goes round `{key}`");
                    refuse(key, sentence, &format!("use `{field}` instead"));
                }
            }
        }
        faults
    }

    fn capped(&self, key: &str) -> bool {
        match key {
            "caps.max_walltime" => self.caps.max_walltime_s.is_some(),
            "caps.max_nodes" => self.caps.max_nodes.is_some(),
            _ => !self.caps.forbidden_partitions.is_empty(),
        }
    }
}

/// Whether a directive sets the option: `--time=1`, `--time 1`, `-t1`, `-l select=1:walltime=2`.
fn sets(directive: &str, option: &str) -> bool {
    if option.ends_with('=') {
        let list = directive.strip_prefix("-l").unwrap_or_default();
        return list.split([' ', ':', ',']).any(|item| item.starts_with(option));
    }
    match directive.strip_prefix(option) {
        Some(rest) if option.starts_with("--") => rest.is_empty() || rest.starts_with(['=', ' ']),
        found => found.is_some(),
    }
}
