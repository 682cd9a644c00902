//! Which options of a scheduler a plan may not set by itself: those that hpcsweep sets, and those that change
//! what a submission is. Options are those of sbatch(1) and qsub(1B), long ones by any beginning.

use crate::words::sh_quote;

/// A long option that is taken, its short form, and what to write instead. `PLAN` stands for
/// the plan.
const TAKEN: &[(&str, &str, &str)] = &[
    ("array", "-a", "the trials of the plan are the array; `--max-running` throttles it"),
    (
        "job-name",
        "-J",
        "the name is the token by which a job is found again; `[sweep] name` begins it",
    ),
    ("dependency", "-d", "chains make the dependencies: trials that share a `task_id`"),
    ("wrap", "", "`[run] command` is what runs"),
    ("wait", "-W", "`hpcsweep status PLAN` shows when it is over"),
    ("test-only", "", "`hpcsweep plan PLAN` shows what would be done"),
    ("parsable", "", "hpcsweep reads the job id itself"),
    ("clusters", "-M", "set SLURM_CLUSTERS before you submit"),
    ("nodes", "-N", "use `nodes`"),
    ("ntasks", "-n", "use `ranks`"),
    ("ntasks-per-node", "", "use `ranks_per_node`"),
    ("cpus-per-task", "-c", "use `cpus_per_rank`"),
    (
        "output",
        "-o",
        "`hpcsweep logs` shows what trials print, and job logs are in `logs/jobs` of the results",
    ),
    (
        "error",
        "-e",
        "`hpcsweep logs` shows what trials print, and job logs are in `logs/jobs` of the results",
    ),
    ("help", "-h", "it submits nothing"),
    ("usage", "", "it submits nothing"),
    ("version", "", "it submits nothing"),
];

/// What to write instead of a directive that is taken, in a plan with this name; `None` if it may be used.
pub(crate) fn instead(directive: &str, plan: &str) -> Option<String> {
    let word = directive.split(['=', ' ', '\t']).next().unwrap_or_default();
    let (_, _, hint) = TAKEN.iter().find(|(long, short, _)| match word.strip_prefix("--") {
        // sbatch takes any beginning of a long option that is unique; two letters never are.
        Some(name) => *long == name || (name.len() > 2 && long.starts_with(name)),
        // PBS has a `-W` and a `-h` of its own, with an argument.
        None if matches!(*short, "-W" | "-h") => directive.trim() == *short,
        None => !short.is_empty() && word.starts_with(short),
    })?;
    Some(hint.replace("PLAN", &sh_quote(plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_hpcsweep_sets_are_taken_however_they_are_spelt() {
        for taken in [
            "--array=1-4",
            "--arr 1",
            "-a1-3",
            "--job-name=x",
            "-J x",
            "--wrap=true",
            "-W",
            "--ntasks=4",
            "-o out.txt",
            "--err=/dev/null",
        ] {
            assert!(instead(taken, "plan.toml").is_some(), "{taken}");
        }
        let hint = "`hpcsweep status 'my plan.toml'` shows when it is over";
        assert_eq!(instead("--wait", "my plan.toml").as_deref(), Some(hint));
        for free in [
            "--exclusive",
            "--mail-type=END",
            "--nodelist=n1",
            "--wait-all-nodes=1",
            "--gres=gpu:1",
            "-x n1",
        ] {
            assert_eq!(instead(free, "plan.toml"), None, "{free}");
        }
    }
}
