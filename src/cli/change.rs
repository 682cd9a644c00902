//! The options that say what trials ask for: of retried trials for once, of `run` in the plan that it writes.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::units;
use crate::plan::toml_text;
use crate::submit::again;

/// What trials ask for, in place of what a plan says.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Change {
    /// Memory of each node: `4G`
    #[arg(long, visible_alias = "mem", value_name = "SIZE")]
    memory: Option<String>,
    /// Time: `2h`, `90m`, `1-12:00:00`
    #[arg(long, visible_alias = "time", value_name = "TIME")]
    walltime: Option<String>,
    /// Cores of each rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,
    /// GPUs of each rank
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Partition of Slurm, queue of PBS
    #[arg(long, visible_alias = "queue", value_name = "NAME")]
    partition: Option<String>,
    /// Account or project
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Quality of service of Slurm
    #[arg(long, value_name = "NAME")]
    qos: Option<String>,
    /// Features of nodes, as the scheduler writes them
    #[arg(long, value_name = "FEATURES")]
    constraint: Option<String>,
}

impl Change {
    /// The changes; `None` without any.
    ///
    /// # Errors
    /// When a value cannot be read.
    pub(super) fn read(&self) -> Result<Option<again::Change>> {
        let number = |option: &str, text: &Option<String>, read: fn(&str) -> Option<u64>, forms| {
            let read = |text: &String| {
                read(text).ok_or_else(|| {
                    Fault::request(format!("`{option}` cannot be `{text}`")).hint(forms)
                })
            };
            text.as_ref().map(read).transpose()
        };
        let line = |option: &str, text: &Option<String>| match text {
            Some(text) if text.trim().is_empty() || text.chars().any(char::is_control) => {
                let sentence = format!("`{option}` must be a name on one line");
                Err(Fault::request(sentence).hint("write it as in the plan's `[resources]`"))
            }
            text => Ok(text.clone()),
        };
        let change = again::Change {
            memory_mib: number("--memory", &self.memory, units::parse_memory, units::MEMORY_FORMS)?,
            walltime_s: number(
                "--walltime",
                &self.walltime,
                units::parse_walltime,
                units::WALLTIME_FORMS,
            )?,
            cpus_per_rank: self.cpus,
            gpus_per_rank: self.gpus,
            partition: line("--partition", &self.partition)?,
            account: line("--account", &self.account)?,
            qos: line("--qos", &self.qos)?,
            constraint: line("--constraint", &self.constraint)?,
        };
        Ok((change != again::Change::default()).then_some(change))
    }

    /// The keys of `[resources]` that ask for the same, each with its value in TOML.
    ///
    /// # Errors
    /// As [`Change::read`].
    pub(super) fn keys(&self) -> Result<Vec<(&'static str, String)>> {
        self.read()?;
        let text = |text: &Option<String>| text.as_deref().map(toml_text);
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let keys = [
            ("cpus_per_rank", number(self.cpus)),
            ("gpus_per_rank", number(self.gpus)),
            ("memory", text(&self.memory)),
            ("walltime", text(&self.walltime)),
            ("partition", text(&self.partition)),
            ("account", text(&self.account)),
            ("qos", text(&self.qos)),
            ("constraint", text(&self.constraint)),
        ];
        Ok(keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }
}
