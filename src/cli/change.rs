//! The options that change for once what trials ask for.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::units;
use crate::submit::again;

/// What retried trials ask for this time, in place of what the plan says.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Requests of the retried trials, this time")]
pub(super) struct Change {
    /// Memory of each node: `4G`
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Time: `2h`, `90m`, `1-12:00:00`
    #[arg(long, value_name = "TIME")]
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
}
