//! Every key of a site profile, one line each: where it lives, its form, how layers meet, what it means.

use serde_json::Value;

use super::Site;
use super::form::{
    self, CAP, DIRECTIVES, FOLDER, KIND, LAUNCHER, LIMIT, Laid, NAME, NUMBER, PROGRAM, READERS,
    SECONDS, SHARED, SWITCH, WALLTIME_CAP, WORDS,
};
use crate::plan::document::{Entry, Reader};

pub(crate) struct Key {
    /// The key, dotted: `scheduler.partition`.
    pub(crate) name: &'static str,
    /// The meaning, in one sentence.
    pub(crate) about: &'static str,
    /// Its value in a profile as people read it.
    pub(crate) show: fn(&Site) -> String,
    /// The JSON schema of its value.
    pub(super) schema: fn() -> Value,
    /// Overrides the values of earlier layers with that of an entry; `None` when it is not of the key's form,
    /// which is reported.
    pub(super) lay: fn(&mut Site, &mut Reader<'_>, &Entry<'_>) -> Option<Laid>,
}

impl Key {
    /// The table it stands in: `scheduler`.
    pub(crate) fn table(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(table, _)| table)
    }

    /// Its name within its table: `partition`.
    pub(crate) fn leaf(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, leaf)| leaf)
    }
}

macro_rules! keys {
    ($($name:literal => $table:ident.$field:ident: $form:ident $laid:ident, $about:literal;)*) => {
        /// Every key, in the order in which profiles and `hpcsweep site show` have them.
        pub(crate) static KEYS: &[Key] = &[$(Key {
            name: $name,
            about: $about,
            show: |site| ($form.show)(&site.$table.$field),
            schema: || ($form.read.schema)(),
            lay: |site, reader, entry| {
                let value = ($form.read.read)(reader, entry)?;
                Some(form::$laid(&mut site.$table.$field, value.into()))
            },
        }),*];
    };
}

keys! {
    "site.name" => site.name: NAME wins,
        "what people call this cluster";
    "scheduler.kind" => scheduler.kind: KIND wins,
        "`slurm`, `pbs`, `local`, or `auto`: this machine, unless a person says `--slurm`";
    "scheduler.partition" => scheduler.partition: NAME wins,
        "partition or queue of a plan that names none";
    "scheduler.account" => scheduler.account: NAME wins,
        "account or project of a plan that names none";
    "scheduler.qos" => scheduler.qos: NAME wins,
        "quality of service of a plan that names none";
    "scheduler.launcher" => scheduler.launcher: LAUNCHER wins,
        "words put before the worker when a trial has several ranks";
    "scheduler.directives" => scheduler.directives: DIRECTIVES wins,
        "further options of every job, each beginning with `-`; those that hpcsweep sets itself are refused";
    "scheduler.single_rank_step" => scheduler.single_rank_step: SWITCH wins,
        "whether trials of one rank start through the launcher as well";
    "pbs.gpu_resource" => pbs.gpu_resource: NAME wins,
        "what PBS calls the GPUs of a chunk; empty where it does not count them";
    "pbs.constraint_resource" => pbs.constraint_resource: NAME wins,
        "the PBS resource that `constraint` asks for, where that is no `name=value` itself";
    "modules.load" => modules.load: WORDS wins,
        "environment modules that every job loads before the plan's own";
    "modules.init" => modules.init: FOLDER wins,
        "shell file that defines `module`, where the shells of jobs lack it";
    "limits.max_array_size" => limits.max_array_size: LIMIT wins,
        "most elements of an array (Slurm: MaxArraySize; PBS: max_array_size)";
    "limits.max_array_tasks" => limits.max_array_tasks: LIMIT wins,
        "most elements of one array (Slurm: max_array_tasks)";
    "limits.max_submit_jobs" => limits.max_submit_jobs: LIMIT wins,
        "most elements one user may have queued or running (Slurm: MaxSubmitJobs; PBS: max_queued)";
    "limits.max_job_count" => limits.max_job_count: LIMIT wins,
        "most elements the whole cluster keeps (Slurm: MaxJobCount)";
    "limits.max_calls" => limits.max_calls: NUMBER wins,
        "calls of qsub that a submission may make for chains, before it fuses them or waits (PBS)";
    "limits.settle_s" => limits.settle_s: SECONDS wins,
        "how long after a call without an answer its job may still appear";
    "limits.call_timeout_s" => limits.call_timeout_s: SECONDS wins,
        "after how long a call of the scheduler is given up";
    "results.shared" => results.shared: SHARED wins,
        "`group`: members of its folder's group may write to a sweep and run it together";
    "results.readable_by" => results.readable_by: READERS wins,
        "who may read a sweep: `owner`, `group`, `all`, whatever the umask of its jobs is";
    "caps.max_running" => caps.max_running: CAP lowers,
        "most elements of a sweep that run at once, over all its arrays; larger wishes are throttled";
    "caps.max_trials" => caps.max_trials: CAP lowers,
        "most trials of a sweep";
    "caps.max_walltime" => caps.max_walltime_s: WALLTIME_CAP lowers,
        "longest walltime of a trial";
    "caps.max_nodes" => caps.max_nodes: CAP lowers,
        "most nodes of a trial";
    "caps.max_array_size" => caps.max_array_size: CAP lowers,
        "largest index of an array plus one; larger arrays are split";
    "caps.forbidden_partitions" => caps.forbidden_partitions: WORDS adds,
        "partitions or queues that no sweep may use";
    "templates.dir" => templates.dir: FOLDER wins,
        "folder of edited job templates, relative to the profile";
    "shell.path" => shell.path: PROGRAM wins,
        "shell in the first line of job scripts";
}
