//! The caps of a site: what a sweep may not pass, and the sentences that refuse it.

use serde::Serialize;

use super::Site;
use crate::base::fault::Fault;
use crate::base::units;
use crate::base::words;

/// `[caps]`: `None` means no cap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Caps {
    /// Most elements of a sweep that run at once; a larger wish is throttled, not refused.
    pub(crate) max_running: Option<u64>,
    /// Most trials of a sweep.
    pub(crate) max_trials: Option<u64>,
    /// Longest walltime of a trial, in seconds; a trial that names none asks for this.
    pub(crate) max_walltime_s: Option<u64>,
    /// Most nodes of a trial.
    pub(crate) max_nodes: Option<u64>,
    /// Largest index of an array plus one; larger arrays are split, not refused.
    pub(crate) max_array_size: Option<u64>,
    /// Partitions or queues that no sweep may use.
    pub(crate) forbidden_partitions: Vec<String>,
}

impl Caps {
    /// Most elements of a sweep that run at once, by what is asked for (option or plan) and by the cap.
    pub(crate) fn running(&self, wish: Option<u64>) -> Option<u64> {
        wish.into_iter().chain(self.max_running).min()
    }
}

/// What one sweep, or the trials of one shape, ask for at most.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    /// Trials of the whole sweep.
    pub(crate) trials: u64,
    /// Nodes of one trial.
    pub(crate) nodes: u64,
    /// Walltime of one trial, in seconds.
    pub(crate) walltime_s: Option<u64>,
    /// Partition or queue, the site's default included.
    pub(crate) partition: Option<&'a str>,
    /// The options of the scheduler that would pass a cap.
    pub(crate) ways: Ways,
    /// The plan's own options of the scheduler.
    pub(crate) directives: &'a [String],
    /// The plan author's name of a request; its key by default.
    pub(crate) called: Option<fn(&str) -> String>,
}

impl Ask<'_> {
    fn named(&self, key: &str) -> String {
        self.called.map_or_else(|| format!("`{key}`"), |called| called(key))
    }
}

/// The options of a scheduler by which a directive would pass a cap. The same letter means different things to two
/// schedulers (`-N`, `-p`, `-q`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    /// Options that set a walltime, past `max_walltime`.
    pub(crate) walltime: &'static [&'static str],
    /// Options that set or name nodes, past `max_nodes`.
    pub(crate) nodes: &'static [&'static str],
    /// Options that name a partition or queue, past `forbidden_partitions`.
    pub(crate) partition: &'static [&'static str],
    /// Whether several letters behind one dash are several options.
    pub(crate) bundles: bool,
}

impl Site {
    /// Returns one fault for each cap that `ask` passes, naming the profile that set it.
    pub(crate) fn refusals(&self, ask: &Ask<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut refuse = |key: &str, sentence: String, hint: &str| {
            let cap_place = format!("{key}: {}", self.origin(key));
            faults.push(Fault::request(sentence).at(cap_place).hint(hint));
        };
        if let Some(cap) = self.caps.max_trials.filter(|&cap| ask.trials > cap) {
            let sentence = {
                let [cap, asked] = [cap, ask.trials].map(words::thousands);
                format!("this site allows {cap} trials a sweep, not {asked}")
            };
            refuse("caps.max_trials", sentence, "divide the plan into several sweeps");
        }
        if let Some(cap) = self.caps.max_nodes.filter(|&cap| ask.nodes > cap) {
            let sentence = format!("this site allows {cap} nodes a trial, not {}", ask.nodes);
            refuse("caps.max_nodes", sentence, &format!("ask for fewer {}", ask.named("nodes")));
        }
        if let (Some(cap), Some(asked)) = (self.caps.max_walltime_s, ask.walltime_s)
            && asked > cap
        {
            let [cap, asked] = [cap, asked].map(units::walltime_text);
            let sentence = format!("this site allows {cap} of walltime a trial, not {asked}");
            refuse(
                "caps.max_walltime",
                sentence,
                &format!("ask for less {}", ask.named("walltime")),
            );
        }
        if let Some(name) = ask.partition
            && name.split(',').any(|one| self.caps.forbidden_partitions.iter().any(|p| p == one))
        {
            let sentence = format!("sweeps may not use the partition `{name}` of this site");
            refuse(
                "caps.forbidden_partitions",
                sentence,
                &format!("name another {}", ask.named("partition")),
            );
        }
        // The cap, what to use instead, and the options.
        let ways = [
            ("caps.max_walltime", "walltime", ask.ways.walltime),
            ("caps.max_nodes", "nodes", ask.ways.nodes),
            ("caps.forbidden_partitions", "partition", ask.ways.partition),
        ];
        let has_caps = ways.iter().any(|(key, ..)| self.capped(key));
        for directive in ask.directives {
            // sbatch and qsub take these away before they look at an option: `--ti"me"=99:00:00`.
            if has_caps && directive.contains(['"', '\'', '\\']) {
                let sentence = format!("the directive `{directive}` holds a quote or a backslash");
                refuse("caps.max_walltime", sentence, "sites with caps take plain options only");
                continue;
            }
            // One option a directive, so that none hides behind another.
            let hides = directive.split([' ', '\t']).skip(1).any(|word| word.starts_with('-'));
            let bundle = directive.starts_with('-')
                && !directive.starts_with("--")
                && ask.ways.bundles
                && directive.chars().skip(1).take_while(char::is_ascii_alphabetic).count() > 1;
            if (hides || bundle) && has_caps {
                let sentence = format!("the directive `{directive}` is more than one option");
                refuse("caps.max_walltime", sentence, "write one option a directive, spelt out");
                continue;
            }
            for (key, field, options) in ways {
                if self.capped(key) && options.iter().any(|option| sets(directive, option)) {
                    let sentence = format!("the directive `{directive}` goes round `{key}`");
                    refuse(key, sentence, &format!("use {} instead", ask.named(field)));
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
///
/// sbatch takes unique beginnings of long options, so `--part=x` counts as `--partition`.
fn sets(directive: &str, option: &str) -> bool {
    if option.ends_with('=') {
        let list = directive.strip_prefix("-l").unwrap_or_default();
        return list.split([' ', ':', ',']).any(|item| item.starts_with(option));
    }
    if option.starts_with("--") {
        let name = directive.split(['=', ' ']).next().unwrap_or_default();
        return name.len() > 4 && option.starts_with(name);
    }
    directive.starts_with(option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fault::Faults;
    use crate::cluster::scheduler::of;
    use crate::plan::site::SchedulerKind;

    fn site() -> Site {
        let caps = Caps {
            max_trials: Some(1000),
            max_nodes: Some(4),
            max_walltime_s: Some(86_400),
            forbidden_partitions: vec!["debug".into()],
            ..Caps::default()
        };
        Site { caps, ..Site::default() }
    }

    #[test]
    fn a_sweep_at_the_caps_is_allowed() {
        let ask = Ask {
            trials: 1000,
            nodes: 4,
            walltime_s: Some(86_400),
            partition: Some("main"),
            ways: of(SchedulerKind::Slurm).facts().ways,
            directives: &["--exclusive".into(), "--time-min=5".into(), "-C gpu".into()],
            called: None,
        };
        assert_eq!(site().refusals(&ask), []);
    }

    #[test]
    fn every_cap_that_is_passed_is_named() {
        let ask = Ask {
            trials: 1001,
            nodes: 5,
            walltime_s: Some(86_401),
            partition: Some("main,debug"),
            ways: of(SchedulerKind::Slurm).facts().ways,
            directives: &["--part=debug".into()],
            called: None,
        };
        let expected = "\
this site allows 1,000 trials a sweep, not 1,001
  caps.max_trials: built in
hint: divide the plan into several sweeps
error: this site allows 4 nodes a trial, not 5
  caps.max_nodes: built in
hint: ask for fewer `nodes`
error: this site allows 1-00:00:00 of walltime a trial, not 1-00:00:01
  caps.max_walltime: built in
hint: ask for less `walltime`
error: sweeps may not use the partition `main,debug` of this site
  caps.forbidden_partitions: built in
hint: name another `partition`
error: the directive `--part=debug` goes round `caps.forbidden_partitions`
  caps.forbidden_partitions: built in
hint: use `partition` instead";
        assert_eq!(Faults(site().refusals(&ask)).to_string(), expected);
        let python = Ask {
            walltime_s: Some(90_000),
            called: Some(|key| format!("`{key}` of `run`")),
            ..Ask::default()
        };
        let said = Faults(site().refusals(&python)).to_string();
        assert!(said.ends_with("hint: ask for less `walltime` of `run`"), "{said}");
    }

    #[test]
    fn directives_that_go_round_a_cap_are_found_in_every_spelling() {
        let check = |kind, directive: &str, refused: bool| {
            let directives = [directive.to_owned()];
            let ways = of(kind).facts().ways;
            let ask = Ask { ways, directives: &directives, ..Ask::default() };
            assert_eq!(!site().refusals(&ask).is_empty(), refused, "{directive}");
        };
        for word in [
            "--time=9",
            "--time 9",
            "-t 9",
            "-t9",
            "--nodes=9",
            "-N9",
            "--nodefile=x",
            "--partition=debug",
            "-Q -t9",
            "--hint=x --nodes=9",
            "-HN9",
            "--ti\"me\"=99:00:00",
            "--ti'me'=99:00:00",
            "--ti\\me=99:00:00",
        ] {
            check(SchedulerKind::Slurm, word, true);
        }
        for word in [
            "-l walltime=9",
            "-lselect=9:ncpus=1",
            "-l place=excl,walltime=9",
            "-q debug",
            "-l nodect=9",
            "-lmin_walltime=1,max_walltime=9",
        ] {
            check(SchedulerKind::Pbs, word, true);
        }
        for word in ["-N name", "-p 5", "-l place=excl"] {
            check(SchedulerKind::Pbs, word, false);
        }
        for word in ["-q high", "--time-min=9", "--no-requeue"] {
            check(SchedulerKind::Slurm, word, false);
        }
    }
}
