//! The calls of Slurm's commands and what their answers mean. Manual pages: sbatch(1), squeue(1), sacct(1),
//! scontrol(1), slurm.conf(5).

use std::collections::HashMap;

use super::super::{After, Element, Elements, JobTime, Limits};
use super::versions;
use crate::base::idset::{JobRef, Part};

/// The call that submits a script. `after` is the array followed element by element, `wait` jobs that
/// must have ended.
pub(crate) fn submit(script: &str, after: &After) -> Vec<String> {
    let After { follow, wait, any, .. } = after;
    let mut argv = vec!["sbatch".to_owned(), "--parsable".to_owned()];
    let mut dependencies = Vec::new();
    if let Some(job) = follow {
        dependencies.push(format!("aftercorr:{job}"));
    }
    if !wait.is_empty() {
        dependencies.push(format!("afterany:{}", wait.join(":")));
    }
    if !any.is_empty() {
        // Either all dependencies must hold, or one of them.
        let any: Vec<String> = any.iter().map(|element| format!("afterany:{element}")).collect();
        dependencies = vec![any.join("?")];
    }
    if !dependencies.is_empty() {
        argv.push(format!("--dependency={}", dependencies.join(",")));
    }
    if follow.is_some() {
        // Without it an element whose predecessor failed would wait for ever.
        argv.push("--kill-on-invalid-dep=yes".to_owned());
    }
    argv.push(script.to_owned());
    argv
}

/// The job id in what sbatch printed, banners around it ignored: the last line that is `123` or
/// `123;cluster`, or "Submitted batch job 123".
pub fn submitted(stdout: &str) -> Option<String> {
    stdout.lines().rev().find_map(|line| {
        let line = line.trim();
        let id = line.strip_prefix("Submitted batch job ").unwrap_or(line);
        let id = id.split([';', ' ']).next()?;
        (!id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())).then(|| id.to_owned())
    })
}

/// The cluster in what sbatch printed: `123;cluster`.
pub(crate) fn cluster(stdout: &str) -> Option<String> {
    let line = stdout.lines().rev().find(|line| submitted(line).is_some())?;
    let (_, name) = line.trim().split_once(';')?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The call that lists the jobs of users (`a,b`) in the queue, one line a job or element: a line for all
/// that wait of an array would give them one reason, though one may be held and the others not.
pub(crate) fn queue(users: &str) -> Vec<String> {
    ["squeue", "--noheader", "--array", "--user", users, "--states=all", "--format=%i|%T|%r|%j"]
        .map(str::to_owned)
        .to_vec()
}

/// The call that asks how much time a running job has left.
pub(crate) fn time_left(job: &str) -> Vec<String> {
    ["squeue", "--noheader", "--format=%L", "--jobs", job].map(str::to_owned).to_vec()
}

/// The call that asks for all that Slurm knows of a job.
pub(crate) fn about(job: &str) -> Vec<String> {
    ["scontrol", "show", "job", job].map(str::to_owned).to_vec()
}

/// Whether the job in its answer is being preempted: it still runs, for the GraceTime of its partition or QOS.
pub fn read_preempted(stdout: &str) -> bool {
    let time = stdout.split_whitespace().find_map(|word| word.strip_prefix("PreemptTime="));
    time.is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit()))
}

/// The call that asks when Slurm expects an element to start.
pub(crate) fn start(element: &str) -> Vec<String> {
    ["squeue", "--start", "--noheader", "--format=%S", "--jobs", element]
        .map(str::to_owned)
        .to_vec()
}

/// The time in its answer, as Slurm prints it; `None` where it does not know.
pub(crate) fn read_start(stdout: &str) -> Option<String> {
    // Where there are several clusters, a line names the one that answers.
    let mut lines = stdout.lines().filter(|line| !line.starts_with("CLUSTER:"));
    let word = lines.find_map(|line| line.split_whitespace().next())?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.replace('T', " "))
}

/// The call that asks when a job with these directives would start. Directives that name files, or more than an element,
/// are left out, and those that a shell would have to read.
pub(crate) fn test(directives: &[String]) -> Vec<String> {
    const OTHERS: [&str; 5] = ["--array", "--output", "--error", "--job-name", "--open-mode"];
    let is_kept = |directive: &&str| {
        let name = directive.split('=').next().unwrap_or_default();
        directive.starts_with("--")
            && !OTHERS.contains(&name)
            && !directive.contains([' ', '\'', '"', '\\'])
    };
    let own = directives.iter().map(|directive| directive.trim()).filter(is_kept);
    let mut argv = vec!["sbatch".to_owned(), "--test-only".to_owned()];
    argv.extend(own.map(str::to_owned));
    argv.push("--wrap=true".to_owned());
    argv
}

/// The time in what that call prints: `sbatch: Job 7 to start at 2026-11-24T01:00:00 using 1 processors on ...`.
pub(crate) fn read_test(stderr: &str) -> Option<String> {
    let (_, rest) = stderr.split_once(" to start at ")?;
    read_start(rest)
}

/// Its seconds; `None` for words such as UNLIMITED.
pub fn read_time_left(stdout: &str) -> Option<u64> {
    crate::base::units::parse_walltime(stdout)
}

/// The call that asks the accounting for jobs by id, finished ones included.
pub(crate) fn accounts(jobs: &[String]) -> Vec<String> {
    vec![
        "sacct".to_owned(),
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        "--allocations".to_owned(),
        "--format=JobID,State,Reason,JobName".to_owned(),
        format!("--jobs={}", jobs.join(",")),
    ]
}

/// The call that asks the accounting for jobs by name since a time (unix seconds).
pub(crate) fn accounts_by_name(name: &str, since: f64) -> Vec<String> {
    let start = (since as i64) - 3600;
    vec![
        "sacct".to_owned(),
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        "--allocations".to_owned(),
        "--format=JobID,State,Reason,JobName".to_owned(),
        format!("--name={name}"),
        // sacct takes seconds since the epoch as well as dates.
        format!("--starttime=uts{start}"),
    ]
}

/// One line of [`queue`] or [`accounts`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The number of the job or array.
    pub(crate) job: u32,
    /// Which of its elements.
    pub(crate) part: Part,
    /// Slurm's word for its state.
    pub(crate) word: &'a str,
    /// Why it waits or ended, in Slurm's words.
    pub(crate) reason: &'a str,
    /// The job's name, by which a call is found whose answer was lost.
    pub(crate) name: &'a str,
}

/// Reads the answer of [`queue`], [`accounts`] or [`accounts_by_name`]; other lines are skipped.
pub fn lines(stdout: &str) -> impl Iterator<Item = Line<'_>> {
    stdout.lines().filter_map(|line| {
        let mut fields = line.trim().splitn(4, '|');
        let JobRef { job, part, .. } = JobRef::parse(fields.next()?).ok()?;
        Some(Line { job, part, word: fields.next()?, reason: fields.next()?, name: fields.next()? })
    })
}

/// The elements of arrays, by array id and index. Later lines win: a requeued element is listed anew.
pub fn elements<'a>(lines: impl Iterator<Item = Line<'a>>) -> HashMap<String, Elements> {
    let mut all: HashMap<u32, Elements> = HashMap::new();
    // Most of an array's elements wait for one reason.
    let mut latest: Option<(&str, &str, Element)> = None;
    for Line { job, part, word, reason, .. } in lines {
        let element = match latest.take() {
            Some((as_word, as_reason, element)) if (as_word, as_reason) == (word, reason) => {
                element
            }
            _ => versions::element(word, reason),
        };
        let elements = all.entry(job).or_default();
        match part {
            Part::Task(index) => elements.say_of(u64::from(index), &element),
            // A list that was cut short may hold any index that is not listed singly.
            Part::Waiting { ids, cut: false, .. } => elements.say_of_all(ids, element.clone()),
            // A line without indices shows only that an element may wait, or that elements that had not begun
            // were cancelled: for a moment sacct shows an array in the state of its first ended element.
            Part::Waiting { .. } | Part::Whole | Part::Component(_) => {
                let is_cancelled = element.state == versions::state("CANCELLED");
                if is_cancelled || element.state.waits() {
                    elements.say_of_the_rest(element.clone());
                }
            }
        }
        latest = Some((word, reason, element));
    }
    all.into_iter().map(|(job, elements)| (job.to_string(), elements)).collect()
}

/// The call that ends jobs, arrays or elements.
pub(crate) fn cancel(ids: &[String]) -> Vec<String> {
    std::iter::once("scancel".to_owned()).chain(ids.iter().cloned()).collect()
}

/// The call that keeps what has not begun from beginning.
pub(crate) fn hold(ids: &[String]) -> Vec<String> {
    vec!["scontrol".to_owned(), "hold".to_owned(), ids.join(",")]
}

/// The call that lets go what was held.
pub(crate) fn release(ids: &[String]) -> Vec<String> {
    vec!["scontrol".to_owned(), "release".to_owned(), ids.join(",")]
}

/// The call that shows the cluster's configuration.
pub(crate) fn config() -> Vec<String> {
    ["scontrol", "show", "config"].map(str::to_owned).to_vec()
}

/// Reads `scontrol show config`: `Key = value` lines.
pub fn limits(stdout: &str) -> Limits {
    let mut limits = Limits::default();
    for line in stdout.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "MaxArraySize" => limits.max_array_size = value.parse().ok(),
            "MaxJobCount" => limits.max_job_count = value.parse().ok(),
            "AccountingStorageType" => limits.accounting = value == "accounting_storage/slurmdbd",
            "SLURM_VERSION" => limits.version = Some(value.to_owned()),
            "MpiDefault" => limits.mpi_default = Some(value.to_owned()),
            "PMIxCollFence" => limits.pmix_fence = Some(value.to_owned()),
            "SchedulerParameters" => {
                let tasks =
                    value.split(',').find_map(|p| p.trim().strip_prefix("max_array_tasks="));
                limits.max_array_tasks = tasks.and_then(|n| n.parse().ok());
            }
            _ => {}
        }
    }
    limits
}

/// The call that shows all partitions.
pub(crate) fn partitions() -> Vec<String> {
    ["scontrol", "--oneliner", "show", "partition"].map(str::to_owned).to_vec()
}

/// A partition, as far as a plan can break its rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition {
    pub(crate) name: String,
    /// Whether jobs that name none go here.
    pub(crate) default: bool,
    /// Longest walltime in seconds.
    pub(crate) max_time_s: Option<u64>,
    /// Walltime of a job that asks for none, in seconds; `None`: the longest.
    pub(crate) default_time_s: Option<u64>,
    /// Most nodes of a job.
    pub(crate) max_nodes: Option<u64>,
    /// Nodes that it has in all.
    pub(crate) total_nodes: Option<u64>,
    /// `UP`, `DOWN`, `DRAIN`, `INACTIVE`.
    pub(crate) state: String,
}

/// How long a job may run that asks for no walltime, in one of these partitions (`None`: the default one); `None` where
/// that depends on which one Slurm chooses.
pub(crate) fn default_time(partitions: &[Partition], named: Option<&str>) -> Option<JobTime> {
    let is_meant = |p: &&Partition| match named {
        Some(list) => list.split(',').any(|name| name == p.name),
        None => p.default,
    };
    let time = |p: &Partition| match p.default_time_s.or(p.max_time_s) {
        Some(seconds) => JobTime::Seconds(seconds),
        None => JobTime::Unlimited,
    };
    let mut times: Vec<JobTime> = partitions.iter().filter(is_meant).map(time).collect();
    times.dedup();
    match times[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Whether this version of Slurm tells a job when it ends (`SLURM_JOB_END_TIME`, since 23.02).
pub(crate) fn tells_end(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(23), Some(2))
}

/// Reads `scontrol --oneliner show partition`.
pub fn read_partitions(stdout: &str) -> Vec<Partition> {
    stdout
        .lines()
        .filter(|line| line.starts_with("PartitionName="))
        .map(|line| {
            let mut p = Partition::default();
            for word in line.split_whitespace() {
                let Some((key, value)) = word.split_once('=') else { continue };
                match key {
                    "PartitionName" => value.clone_into(&mut p.name),
                    "Default" => p.default = value == "YES",
                    "DefaultTime" => p.default_time_s = crate::base::units::parse_walltime(value),
                    "MaxTime" => p.max_time_s = crate::base::units::parse_walltime(value),
                    "MaxNodes" => p.max_nodes = value.parse().ok(),
                    "TotalNodes" => p.total_nodes = value.parse().ok(),
                    "State" => value.clone_into(&mut p.state),
                    _ => {}
                }
            }
            p
        })
        .collect()
}

/// The call that lists what a user has waiting or running: a line an element, with its account and quality of service.
pub(crate) fn queue_of(user: &str) -> Vec<String> {
    ["squeue", "--noheader", "--array", "--user", user, "--format=%a|%q"]
        .map(str::to_owned)
        .to_vec()
}

/// The call that shows a user's default account, and of all of the user's associations the submit limit and the default
/// quality of service.
pub(crate) fn associations(user: &str) -> Vec<String> {
    vec![
        "sacctmgr".to_owned(),
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        "show".to_owned(),
        "user".to_owned(),
        user.to_owned(),
        "withassoc".to_owned(),
        "format=DefaultAccount,Account,Partition,MaxSubmitJobs,DefaultQOS".to_owned(),
    ]
}

/// The association that a job will use, as far as it limits what may be queued.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Association {
    /// The account that will be charged; `None` if the answer has no line for it.
    pub(crate) account: Option<String>,
    /// Its MaxSubmitJobs; the least, if several partitions have one.
    pub(crate) max_submit_jobs: Option<u64>,
    /// Its default quality of service.
    pub(crate) qos: Option<String>,
}

/// Reads the answer of [`associations`], for a job of this account (or the default one).
pub fn associations_of(stdout: &str, account: Option<&str>) -> Association {
    let mut found = Association::default();
    for line in stdout.lines() {
        let fields: Vec<&str> = line.trim().split('|').collect();
        let [default, own, _, limit, rest @ ..] = fields.as_slice() else { continue };
        if *own != account.unwrap_or(default) {
            continue;
        }
        found.account = Some((*own).to_owned());
        let limits = found.max_submit_jobs.into_iter().chain(limit.parse().ok());
        found.max_submit_jobs = limits.min();
        let qos = rest.first().filter(|qos| !qos.is_empty());
        found.qos = found.qos.or_else(|| qos.map(|qos| (*qos).to_owned()));
    }
    found
}

/// The call that shows the submit limit of each quality of service.
pub(crate) fn qualities() -> Vec<String> {
    ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,MaxSubmitJobsPerUser"]
        .map(str::to_owned)
        .to_vec()
}

/// The limit of one of them.
pub fn max_submit_jobs_of(stdout: &str, qos: &str) -> Option<u64> {
    let limit = |line: &str| line.trim().split_once('|').map(|(a, b)| (a.to_owned(), b.to_owned()));
    let (_, limit) = stdout.lines().filter_map(limit).find(|(name, _)| name == qos)?;
    limit.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scheduler::{End, State};

    #[test]
    fn a_job_that_is_preempted_says_when() {
        let answer = |time: &str| {
            format!(
                "JobId=11 JobName=wrap\n   PreemptEligibleTime=2026-11-24T08:58:33 PreemptTime={time}\n"
            )
        };
        assert!(read_preempted(&answer("2026-11-24T08:58:35")));
        for time in ["None", "Unknown", ""] {
            assert!(!read_preempted(&answer(time)), "{time}");
        }
        assert!(!read_preempted("slurm_load_jobs error: Invalid job id specified\n"));
    }

    #[test]
    fn a_job_id_is_found_among_banners() {
        let check =
            |text: &str, id: Option<&str>| assert_eq!(submitted(text).as_deref(), id, "{text}");
        check("123\n", Some("123"));
        check("123;alpha\n", Some("123"));
        check("*** Welcome to 2026! ***\n123\n\nproject: 12 h left\n", Some("123"));
        check("Submitted batch job 77\n", Some("77"));
        check("sbatch: error: nope\n", None);
    }

    #[test]
    fn a_job_is_tested_without_what_names_files() {
        let directives = [
            " --job-name='s.<token>.1'",
            " --array=0-9%2",
            " --output=/results/s/%a.log",
            " --nodes=1",
            " --time=01:00:00",
            " -p x",
            " --comment='a b'",
        ];
        assert_eq!(
            test(&directives.map(str::to_owned)).join(" "),
            "sbatch --test-only --nodes=1 --time=01:00:00 --wrap=true"
        );
        let said = "sbatch: Job 4 to start at 2026-11-24T01:00:00 using 1 processors on nodes n1 in partition p\n";
        assert_eq!(read_test(said).as_deref(), Some("2026-11-24 01:00:00"));
        assert_eq!(
            read_test("allocation failure: Requested node configuration is not available\n"),
            None
        );
    }

    #[test]
    fn a_start_that_slurm_expects_is_read() {
        assert_eq!(read_start("2026-11-24T01:00:00\n").as_deref(), Some("2026-11-24 01:00:00"));
        assert_eq!(read_start("N/A\n"), None);
        assert_eq!(read_start(""), None);
    }

    #[test]
    fn a_job_without_a_walltime_has_that_of_its_partition() {
        let partitions = read_partitions(
            "PartitionName=a Default=YES DefaultTime=01:00:00 MaxTime=1-00:00:00\n\
             PartitionName=b Default=NO DefaultTime=NONE MaxTime=02:00:00\n\
             PartitionName=c Default=NO DefaultTime=NONE MaxTime=UNLIMITED\n\
             PartitionName=d Default=NO DefaultTime=NONE MaxTime=01:00:00\n",
        );
        let check = |named, expected| assert_eq!(default_time(&partitions, named), expected);
        check(None, Some(JobTime::Seconds(3600)));
        check(Some("b"), Some(JobTime::Seconds(7200)));
        check(Some("c"), Some(JobTime::Unlimited));
        check(Some("a,d"), Some(JobTime::Seconds(3600)));
        check(Some("a,b"), None);
        check(Some("x"), None);
        for (version, tells) in [
            ("22.05.8", false),
            ("23.02.0", true),
            ("22.11", false),
            ("24.11.5", true),
            ("", false),
        ] {
            assert_eq!(tells_end(version), tells, "{version}");
        }
    }

    #[test]
    fn dependencies_are_options_of_the_call() {
        let own = ["3".to_owned(), "4".to_owned()].to_vec();
        let after = After { follow: Some("12".into()), wait: own, ..After::default() };
        assert_eq!(
            submit("jobs/0002.sh", &after),
            [
                "sbatch",
                "--parsable",
                "--dependency=aftercorr:12,afterany:3:4",
                "--kill-on-invalid-dep=yes",
                "jobs/0002.sh"
            ]
        );
        assert_eq!(submit("a", &After::default()), ["sbatch", "--parsable", "a"]);
        let any = ["3_7".to_owned(), "3_8".to_owned()].to_vec();
        let dependency = "--dependency=afterany:3_7?afterany:3_8";
        let after = After { any, ..After::default() };
        assert_eq!(submit("a", &after), ["sbatch", "--parsable", dependency, "a"]);
    }

    #[test]
    fn the_cluster_of_a_job_is_behind_its_id() {
        let check = |said: &str, name: Option<&str>| {
            assert_eq!(cluster(said).as_deref(), name, "{said}");
        };
        check("welcome; see news\n30;beta\n", Some("beta"));
        check("30\n", None);
        check("30;\n", None);
        assert_eq!(
            read_start("CLUSTER: beta\n2026-01-02T03:04:05\n"),
            Some("2026-01-02 03:04:05".into())
        );
    }

    #[test]
    fn elements_are_found_in_ranges_and_singly() {
        let text = "12_[4-1000%8]|PENDING|Resources|demo\n12_3|RUNNING|None|demo\n\
                    12_2|CANCELLED by 1001|None|demo\n13_[0,5]|HIBERNATING|x|demo\nbanner\n";
        let all = elements(lines(text));
        let of = |job: &str, i| all.get(job).and_then(|e| e.get(i)).map(|e| e.state.clone());
        assert_eq!(of("12", 999), Some(State::Queued("PENDING".into())));
        assert_eq!(of("12", 3), Some(State::Running("RUNNING".into())));
        assert_eq!(of("12", 2), Some(State::Ended(End::Cancelled, "CANCELLED".into())));
        assert_eq!(of("12", 1), None);
        assert_eq!(of("13", 5), Some(State::Other("HIBERNATING".into())));
        assert_eq!(of("14", 0), None);
    }

    #[test]
    fn limits_come_from_the_configuration() {
        let text = "MaxArraySize            = 1001\nMaxJobCount             = 10000\n\
                    SchedulerParameters     = bf_interval=2,max_array_tasks=500\n\
                    AccountingStorageType   = accounting_storage/none\nSLURM_VERSION           = 22.05.8\n";
        let limits = limits(text);
        assert_eq!(limits.max_array_size, Some(1001));
        assert_eq!(limits.max_array_tasks, Some(500));
        assert_eq!(limits.max_job_count, Some(10_000));
        assert!(!limits.accounting);
        assert_eq!(limits.version.as_deref(), Some("22.05.8"));
    }

    /// Lines of `scontrol show config` that Slurm 24.11 prints and 22.05 does not.
    #[test]
    fn a_configuration_of_slurm_24_11_is_read() {
        let text = "AccountingStorageType   = (null)\nMaxArraySize            = 1001\n\
                    MaxBatchRequeue         = 5\nMpiDefault              = pmix\n\
                    SLURM_VERSION           = 24.11.5\n\nMPI Plugins Configuration:\n\
                    PMIxCliTmpDirBase       = (null)\nPMIxCollFence           = ring\n";
        let limits = limits(text);
        assert!(!limits.accounting);
        assert_eq!(limits.version.as_deref(), Some("24.11.5"));
        assert_eq!(limits.pmix_fence.as_deref(), Some("ring"));
    }

    #[test]
    fn the_submit_limit_is_that_of_the_account_the_job_will_use() {
        let text = "dev|dev||300|\ndev|root|||long\ndev|big|long|50|\ndev|big|short|20|\n";
        let check = |account, own: &str, max_submit_jobs, qos: Option<&str>| {
            let (account_of_it, qos) = (Some(own.to_owned()), qos.map(str::to_owned));
            let expected = Association { account: account_of_it, max_submit_jobs, qos };
            assert_eq!(associations_of(text, account), expected);
        };
        check(None, "dev", Some(300), None);
        check(Some("root"), "root", None, Some("long"));
        check(Some("big"), "big", Some(20), None);
        assert_eq!(associations_of("", None), Association::default());
        // Slurm 22.05 has no default there.
        assert_eq!(associations_of("dev|dev||300\n", None).max_submit_jobs, Some(300));
        let text = "normal|\nshort|4\n";
        assert_eq!(
            ["normal", "short", "x"].map(|qos| max_submit_jobs_of(text, qos)),
            [None, Some(4), None]
        );
    }
}
