//! Options of a scheduler that a plan or a site profile adds to jobs: all but those that hpcsweep sets itself, and those
//! that change what a submission is. Options are those of sbatch(1) and qsub(1B), long ones by any beginning.

use serde_json::json;

use super::{Entry, Form, Reader};
use crate::base::words::sh_quote;

/// Options that a plan adds to the jobs of a request.
pub(crate) const OF_PLAN: Form<Vec<String>> = Form {
    read: |reader, entry| reader.texts(entry, |r, e| free(r, e, instead)),
    schema: || json!({ "type": "array", "items": { "type": "string", "pattern": "^-" } }),
};

/// Options that a site adds to every job.
pub(crate) const OF_SITE: Form<Vec<String>> = Form {
    read: |reader, entry| {
        reader.texts(entry, |r, e| free(r, e, |option, _| instead_at_site(option)))
    },
    schema: OF_PLAN.schema,
};

/// Reads an option for which there is nothing to write instead.
fn free(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    instead: fn(&str, &str) -> Option<String>,
) -> Option<String> {
    let text = reader.line_of_text(entry)?;
    // A bare `--` would end the options.
    if !text.starts_with('-') || text.trim().chars().all(|c| c == '-') {
        let sentence = format!("`{text}` is not an option of a scheduler");
        reader.wrong(entry.at, sentence, "begin it with `--` or `-`, as in `--exclusive`");
        return None;
    }
    if let Some(hint) = instead(text, reader.name()) {
        let sentence = format!("the directive `{text}` would overwrite what hpcsweep sets itself");
        reader.wrong(entry.at, sentence, &hint);
        return None;
    }
    Some(text.to_owned())
}

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
    ("quiet", "-Q", "hpcsweep reads the job id itself"),
    ("clusters", "-M", "set SLURM_CLUSTERS before you submit"),
    ("nodes", "-N", "use `nodes`"),
    ("ntasks", "-n", "use `ranks`"),
    ("ntasks-per-node", "", "use `ranks_per_node`"),
    ("cpus-per-task", "-c", "use `cpus_per_rank`"),
    ("mem", "", "use `memory`, which is that of one node"),
    ("mem-per-cpu", "", "use `memory`, which is that of one node"),
    ("mem-per-gpu", "", "use `memory`, which is that of one node"),
    ("time", "-t", "use `walltime`"),
    ("partition", "-p", "use `partition`"),
    ("account", "-A", "use `account`"),
    ("qos", "-q", "use `qos` with Slurm, `partition` with PBS"),
    ("constraint", "-C", "use `constraint`"),
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
fn instead(directive: &str, plan: &str) -> Option<String> {
    let (_, hint) = taken(directive)?;
    Some(hint.replace("PLAN", &sh_quote(plan)))
}

/// The same in a site profile: what a plan sets has no place there, and features of nodes have no other.
fn instead_at_site(directive: &str) -> Option<String> {
    let hint = match taken(directive)?.0 {
        "partition" | "qos" => "use `scheduler.partition` or `scheduler.qos`",
        "account" => "use `scheduler.account`",
        "constraint" => return None,
        _ => "remove it: it would hold for every job of every sweep",
    };
    Some(hint.to_owned())
}

/// The option that a directive sets, if hpcsweep sets it, and what to write instead.
fn taken(directive: &str) -> Option<(&'static str, &'static str)> {
    let (word, rest) = directive.split_once(['=', ' ', '\t']).unwrap_or((directive, ""));
    let (long, _, hint) = TAKEN.iter().find(|(long, short, _)| match word.strip_prefix("--") {
        // sbatch takes any beginning of a long option that is unique; two letters never are.
        Some(name) => *long == name || (name.len() > 2 && long.starts_with(name)),
        // PBS has a `-W` and a `-h` of its own, with an argument, and a priority.
        None if matches!(*short, "-W" | "-h") => directive.trim() == *short,
        None if *short == "-p" => {
            word.starts_with("-p") && !is_number(&word[2..]) && !is_number(rest)
        }
        None if word.starts_with(short) && is_of_qsub(short, directive) => false,
        None => !short.is_empty() && word.starts_with(short),
    })?;
    Some((long, hint))
}

/// Whether a directive of one letter has a value that only qsub takes: users to mail to, a date, when to write checkpoints, or
/// the prefix of directives.
fn is_of_qsub(option: &str, directive: &str) -> bool {
    let value = directive[option.len()..].trim();
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    match option {
        "-M" => value.contains('@'),
        // [[CC]YY]MMDDhhmm[.SS]: no index of an array has so many digits.
        "-a" => digits >= 8 && value.bytes().all(|b| b.is_ascii_digit() || b == b'.'),
        "-c" => matches!(value.split('=').next(), Some("n" | "s" | "c" | "w" | "u")),
        "-C" => value.trim_matches(['"', '\'']).starts_with('#'),
        _ => false,
    }
}

/// Whether this is a whole number, with its sign or without.
fn is_number(text: &str) -> bool {
    text.trim().parse::<i32>().is_ok()
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
            "--time=1",
            "-t 10",
            "--mem=1G",
            "--mem-per-cpu=1G",
            "-p long",
            "-plong",
            "-M beta",
            "-a 1000",
            "-c 4",
            "-C gpu",
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
            "--time-min=10",
            "--mem-bind=local",
            "--hold",
            "-p 100",
            "-p -5",
            "-M ada@site.org,bob@site.org",
            "-a 202612241800.30",
            "-a12241800",
            "-c c=10",
            "-c n",
            "-C \"#PBS\"",
        ] {
            assert_eq!(instead(free, "plan.toml"), None, "{free}");
            assert_eq!(instead_at_site(free), None, "{free}");
        }
    }

    #[test]
    fn what_a_site_writes_instead_are_its_own_keys() {
        for (taken, hint) in [
            ("--array=1", Some("remove it: it would hold for every job of every sweep")),
            ("--time=10", Some("remove it: it would hold for every job of every sweep")),
            ("-p short", Some("use `scheduler.partition` or `scheduler.qos`")),
            ("--constraint=ib", None),
        ] {
            assert_eq!(instead_at_site(taken).as_deref(), hint, "{taken}");
        }
    }
}
