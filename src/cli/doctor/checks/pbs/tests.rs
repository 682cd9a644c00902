//! PBS's answers, read.

use super::*;

fn pbs(text: &str) -> Kind {
    kind("\u{7f}ELF", &format!("pbs_version = {text}\n"))
}

#[test]
fn every_qstat_is_told_by_what_it_says() {
    let check = |text: &str, name: &str, throttle: bool| {
        let Kind::Pbs(version) = pbs(text) else { panic!("{text}") };
        let got = (version.name(), version.text.as_str(), version.has_throttle());
        assert_eq!(got, (name, text, throttle));
    };
    check("23.06.06", "OpenPBS", true);
    check("22.05.11", "OpenPBS", true);
    check("20.0.1", "OpenPBS", false);
    check("19.1.3", "PBS Professional", false);
    check("2021.1.3.20220217134230", "PBS Professional", false);
    check("2020.1.4", "PBS Professional", false);
    let torque = "Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e\n";
    assert_eq!(kind("\u{7f}ELF", torque), Kind::Torque("6.1.2".to_owned()));
    assert_eq!(kind("", "version: 4.2.10\n"), Kind::Torque("4.2.10".to_owned()));
    let usage =
        "Unknown option: version\nUsage:\n    qstat [-f] [-a|-i|-r] [-n [-1]] [job_id...]\n";
    assert_eq!(kind("", usage), Kind::SlurmWrappers);
    // Its libraries speak first where Slurm's configuration is missing.
    let perl = "#! /usr/bin/perl -w\nuse strict;\nuse Slurm ':all';\n";
    assert_eq!(kind(perl, "perl: error: fetch_config: x\n"), Kind::SlurmWrappers);
    assert_eq!(kind("", "SGE 8.1.9\n"), Kind::Other("SGE 8.1.9".to_owned()));
    assert_eq!(kind("", ""), Kind::Other("nothing".to_owned()));
}

fn read(text: &str) -> Value {
    json::parse(text).unwrap()
}

/// Checks as the doctor prints them.
fn shown(checks: &[Check]) -> Vec<String> {
    let show = |c: &Check| format!("{:?} {}: {} | {}", c.verdict, c.about, c.seen, c.todo);
    checks.iter().map(show).collect()
}

#[test]
fn a_key_that_comes_again_is_a_list() {
    let text = r#"{"a": "x", "a": "y", "b": [1, {"c": null, "c": true}], "n": -1, "f": 1.5}"#;
    let expected = serde_json::json!({"a": "x,y", "b": [1, {"c": true}], "n": -1, "f": 1.5});
    assert_eq!(read(text), expected);
}

/// Cut from the answer of OpenPBS 23.06.06.
const SERVER: &str = r#"{
    "timestamp": 1795245708, "pbs_version": "23.06.06", "pbs_server": "pbshead",
    "Server": {"pbshead": {
        "server_state": "Active", "server_host": "pbshead", "scheduling": "True",
        "max_queued": "[o:PBS_ALL=300]",
        "max_queued": "[u:PBS_GENERIC=100]",
        "max_run": "[u:PBS_GENERIC=20]",
        "default_queue": "workq", "max_array_size": 5000, "job_history_enable": "True",
        "queued_jobs_threshold": "[u:PBS_GENERIC=200]"}}}"#;

#[test]
fn the_server_tells_history_and_limits() {
    assert_eq!(
        shown(&server_checks("OpenPBS 23.06.06", &read(SERVER))),
        [
            "Ok scheduler: OpenPBS 23.06.06, server pbshead (Active) | ",
            "Ok history: job_history_enable: ended jobs can be asked for during two weeks | ",
            "Ok limits: max_array_size 5,000; max_queued [o:PBS_ALL=300],[u:PBS_GENERIC=100]; \
             queued_jobs_threshold [u:PBS_GENERIC=200]; max_run [u:PBS_GENERIC=20] | ",
        ]
    );
    // A server does not report the attribute if its history was never turned on.
    let bare = r#"{"Server": {"s": {"server_state": "Idle", "scheduling": "False"}}}"#;
    assert_eq!(
        shown(&server_checks("OpenPBS 20.0.1", &read(bare))),
        [
            "Note scheduler: OpenPBS 20.0.1, server s (Idle), scheduling is off | jobs will wait until an \
             administrator turns it on",
            "Note history: job_history_enable is off: a job is forgotten when it ends, and one that never \
             started looks the same | nothing: records keep what trials did; of a job that is gone without \
             one, PBS will not say why",
            "Ok limits: max_array_size unknown | ",
        ]
    );
}

#[test]
fn every_queue_tells_what_it_takes() {
    let queues = r#"{"Queue": {
        "workq": {"queue_type": "Execution", "enabled": "True", "started": "True"},
        "small": {"queue_type": "Execution", "resources_max": {"ncpus": 8, "walltime": "01:00:00"},
            "max_array_size": 4, "enabled": "True", "started": "True",
            "max_queued": "[o:PBS_ALL=12],[u:PBS_GENERIC=6]"},
        "closed": {"queue_type": "Execution", "enabled": "False", "started": "False"},
        "stopped": {"queue_type": "Execution", "enabled": "True", "started": "False"},
        "route": {"queue_type": "Route", "route_destinations": "small,workq", "enabled": "True",
            "started": "True"}}}"#;
    assert_eq!(
        shown(&queue_checks(&read(queues), "workq")),
        [
            "Ok queue: workq (default) | ",
            "Ok queue: small, walltime up to 01:00:00, max_array_size 4, max_queued \
             [o:PBS_ALL=12],[u:PBS_GENERIC=6] | ",
            "Note queue: closed, takes no jobs | name another one: `[scheduler] partition` in the site \
             profile or the plan",
            "Note queue: stopped, starts no jobs | jobs wait there until an administrator starts it",
            "Ok queue: route, hands jobs on to small,workq | ",
        ]
    );
    let many: Map<String, Value> =
        (0..23).map(|n| (format!("q{n}"), serde_json::json!({}))).collect();
    let all = shown(&queue_checks(&serde_json::json!({"Queue": many}), ""));
    assert_eq!((all.len(), all[20].as_str()), (21, "Ok queue: 3 further queues: `qstat -Q` | "));
}
