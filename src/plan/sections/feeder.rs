//! `[feeder]`: what the job asks for that submits the rest of a sweep where not all of it has a place in the queue.

use crate::plan::document::form::LINE;
use crate::plan::document::{Entry, Reader, Section, directives, section};
use crate::plan::sections::auto::{Amount, FIXED_MEMORY, FIXED_WALLTIME};
use crate::plan::sections::request::Wish;
use crate::plan::sections::resources::Resources;

/// The keys of `[feeder]`.
pub(crate) static FEEDER: Section<Wish> = section!("`[feeder]`", Wish:
    "partition" => partition: LINE, "that of `[resources]`", "partition of Slurm, queue of PBS";
    "account" => account: LINE, "that of `[resources]`", "account or project to charge";
    "qos" => qos: LINE, "that of `[resources]`", "quality of service of Slurm";
    "constraint" => constraint: LINE, "none", "features of nodes, as the scheduler writes them";
    "memory" => memory: FIXED_MEMORY, "`\"1G\"` where `[resources]` asks for memory, else the site's",
        "a sweep of a million trials takes some 1G";
    "walltime" => walltime: FIXED_WALLTIME, "5 to 30 minutes, within the longest walltime of the trials",
        "two thirds of it the job waits for places, where other jobs have all of them";
    "directives" => directives: directives::OF_PLAN, "`[]`", "further options of the scheduler, as those of `[resources]`";
);

/// Reads `[feeder]`. What cannot be read is reported and left out.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Wish {
    let mut wish = Wish::default();
    FEEDER.read(reader, Some(entry), &mut wish);
    wish
}

/// The shortest and the longest walltime of a feeder that names none, in seconds.
const WALLTIMES_S: (u64, u64) = (300, 1800);

/// The memory of a feeder that names none, in MiB.
const MEMORY_MIB: u64 = 1024;

/// The request of a feeder of a plan with these `[resources]`, whose longest trial takes so long.
pub(crate) fn request(wish: &Wish, trials: &Resources, longest_s: Option<u64>) -> Resources {
    let (least, most) = WALLTIMES_S;
    let first_amount = |amount: &Option<Amount>| amount.as_ref().and_then(Amount::first);
    let or = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
    Resources {
        memory_mib: first_amount(&wish.memory).or_else(|| trials.memory_mib.map(|_| MEMORY_MIB)),
        walltime_s: first_amount(&wish.walltime)
            .or(Some(longest_s.map_or(most, |s| s.clamp(least, most)))),
        partition: or(&wish.partition, &trials.partition),
        account: or(&wish.account, &trials.account),
        qos: or(&wish.qos, &trials.qos),
        constraint: wish.constraint.clone(),
        directives: wish.directives.clone().unwrap_or_default(),
        ..Resources::default()
    }
}
