//! Functions of this process as trials.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use crate::base::host::vars;
use crate::plan::site::Site;
use crate::submit::{self, Source};
use crate::sweep::tree::bundle;
use crate::sweep::tree::records::{self, Outcome};

/// A sweep that calls `f` for each `i` below `n`.
fn sweep(dir: &Path, n: usize, more: &str) -> Tree {
    deal(&dir.join("plan.toml"), &plan(n, more))
}

fn plan(n: usize, more: &str) -> String {
    let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!(
        "version = 1\n[sweep]\nname = \"s\"\nroot = \".\"\n[run]\nfunction = \"f\"\n{more}\n[grid]\ni = [{}]\n",
        values.join(", ")
    )
}

fn deal(path: &Path, text: &str) -> Tree {
    std::fs::write(path, text).unwrap();
    let (source, site) = (Source::read(path).unwrap(), Site::default());
    let templates = source.templates(None, &site).unwrap();
    let asked = submit::pilots::deal::DealOptions {
        serves: true,
        ..submit::pilots::deal::DealOptions::default()
    };
    submit::pilots::deal::deal(&source, &site, &templates, &asked, &Vars::new(), || false)
        .unwrap()
        .tree
}

fn call_all(tree: &Tree, function: impl FnMut(&Trial) -> Result<Value, Failure>) -> Report {
    run(tree, Options::default(), &vars::snapshot(), None, |_| {}, function).unwrap()
}

/// Of each trial its attempts: how they ended, and why or with what.
fn ends(tree: &Tree) -> BTreeMap<u64, Vec<String>> {
    let all = records::all(tree).unwrap();
    let ends = |record: &records::Record| {
        let words = |end: &records::End| match end.state {
            Outcome::Done => end.result.clone().unwrap_or_default().to_string(),
            _ => format!("{} {}", end.exit_code.unwrap(), end.reason.clone().unwrap_or_default()),
        };
        record.attempts.iter().map(|a| words(a.end.as_ref().unwrap())).collect()
    };
    all.iter().map(|(trial, record)| (*trial, ends(record))).collect()
}

#[test]
fn a_function_is_called_for_each_trial_and_what_comes_of_it_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), 4, "attempts = 2\n[pull]\nbackoff = 0");
    let mut calls = Vec::new();
    let report = call_all(&tree, |trial| {
        let i = trial.row.params.get("i").unwrap().to_json().as_u64().unwrap();
        calls.push((i, trial.attempt));
        let attempt = trial.attempt;
        match i {
            1 if attempt == 1 => Err(Failure { reason: "no".into(), ..Failure::default() }),
            2 => panic!("trial {i} panics"),
            3 => Err(Failure { exit_code: Some(0), ..Failure::default() }),
            _ => Ok(json!({ "square": i * i })),
        }
    });
    // Failed trials run after those that have not run yet.
    assert_eq!(calls, [(0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)]);
    let expected = [
        vec![r#"{"square":0}"#],
        vec!["1 no", r#"{"square":1}"#],
        vec!["101 panicked: trial 2 panics"; 2],
        vec!["1 "; 2],
    ];
    let found: Vec<Vec<String>> = ends(&tree).into_values().collect();
    assert_eq!(found, expected);
    assert_eq!(report.ended, [(Outcome::Done, 2), (Outcome::Failed, 2)].into());
    assert_eq!((report.reason.as_str(), report.signal), ("", None));
}

#[test]
fn functions_of_several_threads_share_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), 500, "");
    let calls: Vec<AtomicU32> = (0..500).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                call_all(&tree, |trial| {
                    calls[trial.row.id as usize].fetch_add(1, Ordering::Relaxed);
                    Ok(Value::Null)
                })
            });
        }
    });
    assert!(calls.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    assert_eq!(ends(&tree).len(), 500);
}

#[test]
fn a_lease_is_kept_while_the_function_works() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), 2, "[pull]\nlease = 0.6");
    let begun = Mutex::new(0);
    let work = |trial: &Trial| {
        *begun.lock().unwrap() += 1;
        let path = tree.dir().join("agents");
        let stamp = || {
            let shards = std::fs::read_dir(&path).unwrap();
            let files = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
            files.map(|f| f.unwrap().metadata().unwrap().modified().unwrap()).min().unwrap()
        };
        // Longer than a lease, for all that live: then the others would have taken over.
        for _ in 0..if trial.row.id == 0 { 16 } else { 0 } {
            let before = stamp();
            while stamp() == before {
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(Value::Null)
    };
    thread::scope(|scope| {
        scope.spawn(|| call_all(&tree, work));
        while *begun.lock().unwrap() == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        call_all(&tree, work);
    });
    assert_eq!(*begun.lock().unwrap(), 2);
    assert_eq!(ends(&tree).values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_function_that_allocations_cut_off_and_that_saves_nothing_is_called_a_few_times_only() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), 1, "");
    let mut calls = 0;
    for _ in 0..4 {
        let options = Options { time_left_s: Some(15.5), ..Options::default() };
        let function = |trial: &Trial| {
            calls += 1;
            while !trial.stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Failure::default())
        };
        run(&tree, options, &Vars::new(), None, |_| {}, function).unwrap();
    }
    assert_eq!(calls, 3);
    let ends = &ends(&tree)[&0];
    assert_eq!(ends[..2], ["1 the agent's allocation ends"; 2]);
    assert!(ends[2].starts_with("1 3 allocations in a row ended before it"), "{ends:?}");
}

/// Set in the process that has an umask of its own.
const CLOSED: &str = "HPCSWEEP_TEST_UMASK";

#[test]
fn a_function_has_the_umask_of_before_also_where_the_plan_opens_the_sweep() {
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::stat::{Mode, umask};

    if std::env::var_os(CLOSED).is_none() {
        let name = "pull::solo::tests::a_function_has_the_umask_of_before_also_where_the_plan_opens_the_sweep";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = again.args(["--exact", name, "--nocapture"]).env(CLOSED, "1").output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    umask(Mode::from_bits_truncate(0o077));
    let tree = deal(
        &dir.path().join("plan.toml"),
        &plan(2, "").replace("root", "readable_by = \"all\"\nroot"),
    );
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    call_all(&tree, |trial| {
        let own = dir.path().join(format!("own.{}", trial.row.id));
        std::fs::write(&own, "").unwrap();
        assert_eq!(mode(&own), 0o600);
        if trial.row.id == 0 { panic!("as functions do") } else { Ok(Value::Null) }
    });
    assert_eq!(
        ends(&tree).values().flatten().collect::<Vec<_>>(),
        ["101 panicked: as functions do", "null"]
    );
    let agent = bundle::agents(&tree).unwrap().pop().unwrap();
    assert_eq!(mode(&tree.agent_file(&agent, "jsonl")), 0o644);
}
