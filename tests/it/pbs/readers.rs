//! PBS: what a real server (OpenPBS 23.06.06, and a client of the generation before it) was seen to print, and what
//! the readers make of it. The outputs in `tests/cases/pbs` are cut, never changed.

use hpcsweep::cluster::scheduler::pbs::jobs::{Job, elements, find, jobs, jobs_from_text};
use hpcsweep::cluster::scheduler::pbs::server::{queues, server, way};

macro_rules! case {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/pbs/", $name))
    };
}

/// The output about each job or element, a line each.
fn said(json: &str) -> Vec<String> {
    let line = |job: &Job| {
        let element = job.element();
        let state = format!("{:?}", element.state);
        let reason =
            if element.reason.is_empty() { String::new() } else { format!(": {}", element.reason) };
        format!("{} {} {state}{reason}", job.id.trim_end_matches(".pbshead"), job.name)
    };
    jobs(json).unwrap().iter().map(line).collect()
}

#[test]
fn jobs_that_wait_and_run() {
    assert_eq!(
        said(case!("jobs-live.json")),
        [
            r#"48[] full1 Running("RUNNING")"#,
            r#"48[0] full1 Ended(Unrun, "it ended before it began")"#,
            r#"48[2] full1 Running("RUNNING")"#,
            r#"49[] full2 Queued("Q")"#,
            r#"49[0] full2 Queued("Q")"#,
            r#"50 rstop Queued("Q"): Not Running: User has reached queue small running job limit"#,
            r#"57 aft Queued("H"): waits for another job"#,
            r#"58 run1 Running("RUNNING")"#,
            r#"59 held Held("H"): held"#,
            r#"60[] heldarr Held("H"): held"#,
            r#"60[0] heldarr Queued("Q")"#,
            r#"61[] thr Running("RUNNING")"#,
            r#"61[0] thr Running("RUNNING")"#,
            r#"61[2] thr Queued("Q")"#,
            r#"63 dep1 Queued("H"): waits for another job"#,
            r#"64[] deparr Queued("H"): waits for another job"#,
            r#"64[0] deparr Queued("Q")"#,
            r#"65 later Queued("W")"#,
            r#"66 never Queued("Q"): Can Never Run: Insufficient amount of resource: ncpus (R: 99 A: 32 T: 32)"#,
            r#"67[] neverarr Queued("Q"): Can Never Run: Insufficient amount of resource: ncpus (R: 99 A: 32 T: 32)"#,
            r#"67[0] neverarr Queued("Q"): Can Never Run: Insufficient amount of resource: ncpus (R: 99 A: 32 T: 32)"#,
        ]
    );
}

#[test]
fn places_of_a_queue_are_taken_by_what_has_not_ended() {
    let mut jobs = jobs(case!("jobs-live.json")).unwrap();
    // As without `-t`: elements are not listed.
    jobs.retain(|job| !job.id.contains('[') || job.id.contains("[]"));
    let places = |queue: &str| {
        let here = jobs.iter().filter(|job| job.owner == "user1" && job.queue == queue);
        here.map(Job::places).sum::<u64>()
    };
    // 48[] with two of four that run, and 50; 49[].
    assert_eq!(["small", "route", "none"].map(places), [3, 4, 0]);
}

#[test]
fn jobs_that_have_ended() {
    assert_eq!(
        said(case!("jobs-finished.json")),
        [
            r#"78[] ffail Ended(Unrun, "it ended before it began")"#,
            r#"78[0] ffail Ended(Failed, "exit status 3")"#,
            r#"79[] fok Ended(Unrun, "it ended before it began")"#,
            "79[0] fok Completed",
            r#"80 fwall Ended(Timeout, "exit status -29: the walltime was reached")"#,
            r#"81 fdel Ended(Cancelled, "exit status 271: deleted")"#,
            r#"82[] fdela Ended(Unrun, "it ended before it began")"#,
            r#"82[0] fdela Ended(Cancelled, "exit status 271: deleted")"#,
            r#"82[2] fdela Ended(Unrun, "it ended before it began")"#,
            r#"83 fdelq Ended(Unrun, "deleted before it began")"#,
            r#"84 fdep Ended(Unrun, "deleted with the job it waited for")"#,
            r#"85[] fdepa Ended(Unrun, "deleted with the job it waited for")"#,
            r#"85[0] fdepa Ended(Unrun, "deleted with the job it waited for")"#,
            r#"87[] fnodir Queued("H"): Job Array Held, too many failed attempts to run subjob 87[1].pbshead"#,
            r#"87[0] fnodir Queued("H"): job held, too many failed attempts to run"#,
            r#"89[] sparse Ended(Unrun, "it ended before it began")"#,
            "89[0] sparse Completed",
            r#"89[1] sparse Ended(Unrun, "it ended before it began")"#,
        ]
    );
}

#[test]
fn elements_of_arrays_are_told_by_their_index_and_by_what_holds_the_array() {
    let all = elements(&[], &jobs(case!("jobs-live.json")).unwrap());
    let of = |job: &str, index| {
        let element = all[&format!("{job}.pbshead")].get(index)?;
        Some(format!("{:?} {}", element.state, element.reason).trim().to_owned())
    };
    let queued = |why: &str| Some(format!("Queued(\"{why}"));
    // One that began: what is not listed is not known.
    assert_eq!(of("61[]", 0).as_deref(), Some("Running(\"RUNNING\")"));
    assert_eq!(of("61[]", 2), queued("Q\")"));
    assert_eq!(of("61[]", 9), None);
    // One that is held, and one behind another job: that holds for elements that are not listed, too.
    assert_eq!(of("60[]", 0).as_deref(), Some("Held(\"H\") held"));
    assert_eq!(of("60[]", 9).as_deref(), Some("Held(\"H\") held"));
    assert_eq!(of("64[]", 0), queued("H\") waits for another job"));
    assert_eq!(of("57", 0), queued("H\") waits for another job"));
}

#[test]
fn text_and_json_say_the_same_of_an_element() {
    let json = jobs(case!("element.json")).unwrap();
    assert_eq!(json, jobs_from_text(case!("element.txt")));
    assert_eq!(
        json,
        [Job {
            id: "5[3].pbshead".into(),
            name: "envtest".into(),
            owner: "user1".into(),
            queue: "workq".into(),
            state: "F".into(),
            substate: Some(92),
            exit: Some(0),
            has_run: true,
            comment: "Job run at Fri Nov 20 at 23:22 on (pbsn1:ncpus=1) and finished".into(),
            ..Job::default()
        }]
    );
}

#[test]
fn no_jobs_is_an_answer() {
    assert_eq!(jobs(case!("jobs-none.json")), Ok(Vec::new()));
}

#[test]
fn a_client_of_the_generation_before_takes_names_for_numbers() {
    let all = jobs(case!("job-old-client.json")).unwrap();
    assert_eq!(all[0].name, "123");
    assert_eq!(all[0].element().reason, "held");
    assert_eq!(find(&all, "123", "/r/jobs/x.sh").as_deref(), Some("243.pbshead"));
    assert_eq!(find(&all, "s123", "/r/jobs/x.sh"), None);
}

#[test]
fn a_server_tells_its_limits() {
    let plain = server(case!("server-plain.json"), "user1").unwrap();
    assert_eq!(plain.version, "23.06.06");
    assert!(plain.history && plain.can_throttle());
    assert_eq!(
        (plain.default_queue.as_deref(), plain.max_array_size),
        (Some("workq"), Some(10_000))
    );
    assert_eq!((plain.max_queued.least(), plain.max_walltime_s), (None, None));
    for text in [case!("server-history-unset.json"), case!("server-history-false.json")] {
        assert!(!server(text, "user1").unwrap().history);
    }
    let one = server(case!("server-max_queued-one.json"), "user1").unwrap();
    assert_eq!(one.max_queued.least(), Some(50));
    // Each limit on a line of its own, under one key. The user's own number counts, else the general one.
    let limits = |user: &str| server(case!("server-limits.json"), user).unwrap();
    assert_eq!(limits("user1").max_queued.least(), Some(50));
    assert_eq!(limits("user2").max_queued.least(), Some(100));
    assert_eq!(limits("user1").max_array_size, Some(5000));
    assert_eq!(limits("user1").max_walltime_s, Some(48 * 3600));
}

#[test]
fn queues_tell_theirs() {
    let own = server(case!("server-limits.json"), "user1").unwrap();
    let all = queues(case!("queue-many.json"), "user1").unwrap();
    let lines: Vec<String> = all
        .iter()
        .map(|queue| {
            let way = way(&own, &all, &queue.name);
            let limit = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let [size, queued, time, width] =
                [way.max_array_size, way.max_queued, way.max_walltime_s, way.width].map(limit);
            let mut words = vec![queue.name.clone(), size, queued, time, width];
            words.extend((!queue.enabled).then(|| "closed".to_owned()));
            words.extend((!queue.started).then(|| "stopped".to_owned()));
            words.extend(queue.is_closed_to_us.then(|| "not ours".to_owned()));
            words.join(" ")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "workq 5000 50 172800 -",
            "small 4 6 3600 -",
            "closed 5000 50 172800 - closed stopped",
            "stopped 5000 50 172800 - stopped",
            "acl 5000 50 172800 - not ours",
            "aclg 5000 50 172800 -",
            "aclok 5000 50 172800 -",
            "route 4 50 3600 6",
            "route2 100 50 172800 -",
            "fromroute 5000 50 172800 -",
            "broken 5000 50 172800 - closed stopped",
        ]
    );
    let limited = queues(case!("queue-res-limits.json"), "user1").unwrap();
    assert_eq!((limited[0].max_queued.least(), limited[0].max_walltime_s), (Some(6), Some(3600)));
    let stopped = queues(case!("queue-route-stopped.json"), "user1").unwrap();
    assert!(stopped[0].enabled && !stopped[0].started);
}
