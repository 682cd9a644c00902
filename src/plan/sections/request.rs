//! `[resources]` as written and overridden, and how the whole becomes a request that is consistent.
//!
//! Settling is pure arithmetic on what a person wrote; it never asks what a cluster has.

use crate::base::fault::Fault;
use crate::plan::document::form::{LINE, count_to};
use crate::plan::document::{Section, directives, section};
use crate::plan::sections::auto::{Amount, Learns, MEMORY_OR_AUTO, WALLTIME_OR_AUTO};
use crate::plan::sections::resources::Resources;

/// The most of anything that a trial may ask for: no machine has more nodes, ranks of a job, or cores.
const MOST: u32 = 10_000_000;

macro_rules! wish {
    ($($name:literal => $field:ident: $type:ty = $form:expr, $default:literal, $about:literal;)*) => {
        /// A resource request as written; a value that was not written is `None`.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct Wish {
            $(pub(crate) $field: Option<$type>,)*
        }

        /// The keys of `[resources]`.
        pub(crate) static RESOURCES: Section<Wish> = section!("`[resources]`", Wish:
            $($name => $field: $form, $default, $about;)*);

        impl Wish {
            /// This wish, overridden by everything that `over` sets.
            pub(crate) fn under(&self, over: &Self) -> Self {
                Self { $($field: over.$field.clone().or_else(|| self.$field.clone()),)* }
            }

            /// Whether both wishes say something of the same key.
            pub(crate) fn meets(&self, other: &Self) -> bool {
                $((self.$field.is_some() && other.$field.is_some()))||*
            }
        }
    };
}

wish! {
    "nodes" => nodes: u32 = count_to::<1, MOST>(), "1", "nodes of the trial";
    "ranks" => ranks: u32 = count_to::<1, MOST>(), "one a node", "processes of the trial";
    "ranks_per_node" => ranks_per_node: u32 = count_to::<1, MOST>(), "unset",
        "processes on each node; any two of these three give the third";
    "cpus_per_rank" => cpus_per_rank: u32 = count_to::<1, MOST>(), "1", "cores of each process";
    "gpus_per_rank" => gpus_per_rank: u32 = count_to::<0, MOST>(), "0",
        "GPUs of each process, unless `gpu_ids_abs` counts them";
    "memory" => memory: Amount = MEMORY_OR_AUTO, "the site's",
        "of one node: `\"500M\"`, `\"2G\"`, `\"1T\"`; powers of 1024; or [`\"auto\"`](#auto)";
    "walltime" => walltime: Amount = WALLTIME_OR_AUTO, "the site's",
        "`\"HH:MM:SS\"`, `\"D-HH:MM:SS\"`, `\"MM:SS\"`, `\"90s\"`, `\"30m\"`, `\"2h\"`, `\"1h30m\"`, `\"1d\"`; or [`\"auto\"`](#auto)";
    "partition" => partition: String = LINE, "the site's", "partition of Slurm, queue of PBS";
    "account" => account: String = LINE, "the site's", "account or project to charge";
    "qos" => qos: String = LINE, "the site's", "quality of service of Slurm; [PBS](pbs.md) has none";
    "constraint" => constraint: String = LINE, "none",
        "features of nodes, as the scheduler writes them";
    "directives" => directives: Vec<String> = directives::OF_PLAN, "`[]`",
        "further options of the scheduler, each beginning with `-`: `[\"--exclusive\"]`; those that hpcsweep sets itself (array, job name, dependency, tasks, memory, walltime, output ...) are refused; so are control characters and, at sites with caps, quotes and backslashes, which sbatch and qsub take away";
}

impl Wish {
    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What of it is learnt from trials that have ended.
    pub(crate) fn learns(&self) -> Learns {
        let learn_of = |amount: &Option<Amount>| amount.as_ref().and_then(Amount::learn).cloned();
        Learns { memory: learn_of(&self.memory), walltime: learn_of(&self.walltime) }
    }

    /// The request, its numbers made consistent; `n_gpu_ids` is the length of `gpu_ids_abs`, and
    /// `own` what was written for this trial alone.
    ///
    /// # Errors
    /// Returns a fault without a place when two numbers contradict each other.
    pub(crate) fn settle(&self, n_gpu_ids: Option<u32>, own: &Self) -> Result<Resources, Fault> {
        let (nodes, ranks) = self.nodes_and_ranks()?;
        let gpus = match n_gpu_ids {
            Some(count) => Some(check_gpu_ids(count, nodes, ranks, own.gpus_per_rank)?),
            None => None,
        };
        let gpus_per_rank = if gpus.is_some() { 0 } else { self.gpus_per_rank.unwrap_or(0) };
        Ok(self.with(nodes, ranks, gpus_per_rank, gpus))
    }

    /// The request as written, consistent or not.
    pub(crate) fn unsettled(&self) -> Resources {
        let gpus_per_rank = self.gpus_per_rank.unwrap_or(0);
        self.with(self.nodes.unwrap_or(1), self.ranks.unwrap_or(1), gpus_per_rank, None)
    }

    fn with(&self, nodes: u32, ranks: u32, gpus_per_rank: u32, gpus: Option<u32>) -> Resources {
        Resources {
            nodes,
            ranks,
            ranks_per_node: self.ranks_per_node,
            cpus_per_rank: self.cpus_per_rank.unwrap_or(1),
            gpus_per_rank,
            gpus,
            memory_mib: self.memory.as_ref().and_then(Amount::first),
            walltime_s: self.walltime.as_ref().and_then(Amount::first),
            partition: self.partition.clone(),
            account: self.account.clone(),
            qos: self.qos.clone(),
            constraint: self.constraint.clone(),
            directives: self.directives.clone().unwrap_or_default(),
        }
    }

    fn nodes_and_ranks(&self) -> Result<(u32, u32), Fault> {
        let Some(each) = self.ranks_per_node else {
            let nodes = self.nodes.unwrap_or(1);
            let ranks = self.ranks.unwrap_or(nodes);
            if ranks < nodes {
                let sentence = format!("`ranks = {ranks}` is less than `nodes = {nodes}`");
                return Err(Fault::request(sentence)
                    .hint("every node needs a rank: ask for fewer nodes, or for more ranks"));
            }
            return Ok((nodes, ranks));
        };
        match (self.nodes, self.ranks) {
            (nodes, None) => {
                let nodes = nodes.unwrap_or(1);
                let ranks = nodes.checked_mul(each).ok_or_else(|| {
                    Fault::request(format!("{nodes} nodes of {each} ranks are too many ranks"))
                })?;
                Ok((nodes, ranks))
            }
            (None, Some(ranks)) if ranks.is_multiple_of(each) => Ok((ranks / each, ranks)),
            (None, Some(ranks)) => Err(Fault::request(format!(
                "`ranks = {ranks}` is not a multiple of `ranks_per_node = {each}`"
            ))
            .hint("remove `ranks_per_node` to let the scheduler spread the ranks")),
            (Some(nodes), Some(ranks))
                if u64::from(nodes) * u64::from(each) == u64::from(ranks) =>
            {
                Ok((nodes, ranks))
            }
            (Some(nodes), Some(ranks)) => Err(Fault::request(format!(
                "`ranks = {ranks}` is not `nodes = {nodes}` times `ranks_per_node = {each}`"
            ))
            .hint("remove one of the three: it follows from the other two")),
        }
    }
}

fn check_gpu_ids(count: u32, nodes: u32, ranks: u32, own: Option<u32>) -> Result<u32, Fault> {
    let devices = crate::base::words::count(u64::from(count), "device");
    if let Some(each) = own
        && u64::from(each) * u64::from(ranks) != u64::from(count)
    {
        return Err(Fault::request(format!(
            "`gpu_ids_abs` names {devices}, but `gpus_per_rank = {each}` times `ranks = {ranks}` is {}",
            u64::from(each) * u64::from(ranks)
        ))
        .hint("remove `gpus_per_rank`: the devices are counted"));
    }
    if nodes > 1 && !count.is_multiple_of(nodes) {
        return Err(Fault::request(format!(
            "`gpu_ids_abs` names {devices}, which cannot be shared evenly by `nodes = {nodes}`"
        ))
        .hint("name a multiple of the nodes, or ask for one node"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{check_faults, plan};

    fn wish(nodes: u32, ranks: u32, each: u32) -> Wish {
        let some = |n: u32| (n > 0).then_some(n);
        Wish {
            nodes: some(nodes),
            ranks: some(ranks),
            ranks_per_node: some(each),
            ..Wish::default()
        }
    }

    #[test]
    fn what_is_not_written_follows_from_what_is() {
        let check = |(nodes, ranks, each), expected: (u32, u32)| {
            let settled = wish(nodes, ranks, each).settle(None, &Wish::default()).unwrap();
            assert_eq!((settled.nodes, settled.ranks), expected);
        };
        check((0, 0, 0), (1, 1));
        check((3, 0, 0), (3, 3));
        check((2, 7, 0), (2, 7));
        check((2, 0, 4), (2, 8));
        check((0, 0, 4), (1, 4));
        check((0, 8, 4), (2, 8));
        check((2, 8, 4), (2, 8));
    }

    #[test]
    fn contradictions_are_refused() {
        let check = |(nodes, ranks, each), expected: &str| {
            let fault = wish(nodes, ranks, each).settle(None, &Wish::default()).unwrap_err();
            assert_eq!(fault.to_string(), expected);
        };
        check(
            (4, 2, 0),
            "`ranks = 2` is less than `nodes = 4`\nhint: every node needs a rank: ask for fewer nodes, or for more ranks",
        );
        check(
            (2, 7, 4),
            "`ranks = 7` is not `nodes = 2` times `ranks_per_node = 4`\nhint: remove one of the three: it follows from the other two",
        );
        check(
            (0, 7, 4),
            "`ranks = 7` is not a multiple of `ranks_per_node = 4`\nhint: remove `ranks_per_node` to let the scheduler spread the ranks",
        );
    }

    #[test]
    fn named_devices_become_the_gpu_request() {
        let own = Wish { gpus_per_rank: Some(2), ..Wish::default() };
        let base = Wish { gpus_per_rank: Some(1), ..wish(0, 2, 0) };
        let settled = base.settle(Some(3), &Wish::default()).unwrap();
        assert_eq!((settled.gpus, settled.gpus_per_rank, settled.total_gpus()), (Some(3), 0, 3));
        assert_eq!(base.under(&own).settle(Some(4), &own).unwrap().gpus, Some(4));
        assert_eq!(
            base.under(&own).settle(Some(3), &own).unwrap_err().sentence,
            "`gpu_ids_abs` names 3 devices, but `gpus_per_rank = 2` times `ranks = 2` is 4"
        );
        assert_eq!(
            wish(2, 0, 0).settle(Some(3), &Wish::default()).unwrap_err().sentence,
            "`gpu_ids_abs` names 3 devices, which cannot be shared evenly by `nodes = 2`"
        );
    }

    #[test]
    fn the_table_is_read_whole() {
        let plan = plan(
            "[resources]
nodes = 2
ranks_per_node = 4
cpus_per_rank = 3
gpus_per_rank = 1
memory = \"2G\"
walltime = \"1-00:00:00\"
partition = \"main\"
account = \"me\"
qos = \"high\"
constraint = \"a&b\"
directives = [\"--exclusive\", \"-x n1\"]
",
        );
        let text = |s: &str| Some(s.to_owned());
        let expected = Resources {
            nodes: 2,
            ranks: 8,
            ranks_per_node: Some(4),
            cpus_per_rank: 3,
            gpus_per_rank: 1,
            gpus: None,
            memory_mib: Some(2048),
            walltime_s: Some(86_400),
            partition: text("main"),
            account: text("me"),
            qos: text("high"),
            constraint: text("a&b"),
            directives: vec!["--exclusive".into(), "-x n1".into()],
        };
        assert_eq!(*plan.resources, expected);
        assert_eq!(*plan.trials[0].resources, expected);
    }

    #[test]
    fn control_characters_in_directives_are_refused() {
        let line = r#"directives = ["--comment=a\u000B-t99"]"#;
        check_faults(
            &format!("[resources]\n{line}\n"),
            &format!(
                "`directives` holds a control character\n  plan.toml:5: {line}\nhint: remove it"
            ),
        );
    }

    #[test]
    fn faults_of_resources_are_told_together() {
        check_faults(
            "[resources]
nodes = 0
ranks = -1
memory = 2
walltime = 10
qos = \"a\\nb\"
account = \" \"
directives = [\"exclusive\", \"--x\\u0000\", \"--\"]
cpus_per_rank = 10000001
wall_time = \"1h\"
[[trials]]
resources = { memory = \"2X\", walltime = \"soon\", rank = 1 }
",
            "`nodes` cannot be 0
  plan.toml:5: nodes = 0
hint: write a number from 1 to 10000000
error: `ranks` cannot be -1
  plan.toml:6: ranks = -1
hint: write a number from 1 to 10000000
error: `memory = 2` lacks a unit
  plan.toml:7: memory = 2
hint: write a number with its unit: `500M`, `2G`, `1T`
error: `walltime = 10` lacks a unit
  plan.toml:8: walltime = 10
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`
error: `qos` holds a line break
  plan.toml:9: qos = \"a\\nb\"
hint: it becomes part of one line: remove the break
error: `account` is empty
  plan.toml:10: account = \" \"
hint: give it a value, or remove the key
error: `exclusive` is not an option of a scheduler
  plan.toml:11: directives = [\"exclusive\", \"--x\\u0000\", \"--\"]
hint: begin it with `--` or `-`, as in `--exclusive`
error: `directives` holds a NUL character
  plan.toml:11: directives = [\"exclusive\", \"--x\\u0000\", \"--\"]
hint: no program can be given one: remove it
error: `--` is not an option of a scheduler
  plan.toml:11: directives = [\"exclusive\", \"--x\\u0000\", \"--\"]
hint: begin it with `--` or `-`, as in `--exclusive`
error: `cpus_per_rank` cannot be 10000001
  plan.toml:12: cpus_per_rank = 10000001
hint: write a number from 1 to 10000000
error: `[resources]` has no key `wall_time`
  plan.toml:13: wall_time = \"1h\"
hint: did you mean `walltime`?
error: `memory` cannot be `2X`
  plan.toml:15: resources = { memory = \"2X\", walltime = \"soon\", rank = 1 }
hint: write a number with its unit: `500M`, `2G`, `1T`
error: `walltime` cannot be `soon`
  plan.toml:15: resources = { memory = \"2X\", walltime = \"soon\", rank = 1 }
hint: write `HH:MM:SS`, `D-HH:MM:SS`, `MM:SS`, or a number with its unit: `90s`, `30m`, `2h`, `1d`
error: `resources` has no key `rank`
  plan.toml:15: resources = { memory = \"2X\", walltime = \"soon\", rank = 1 }
hint: did you mean `ranks`?",
        );
    }
}
