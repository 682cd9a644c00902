//! Tests of pure functions and of single hooks; whole sweeps are in `tests/it/local/hooks.rs`.

use super::*;
use crate::sweep::tree::records::Start;

/// A call of shell code that may take so many seconds.
fn call(code: &str, seconds: u64) -> Call {
    let vars = Vars::new();
    Call {
        name: "finish",
        argv: ["sh", "-c", code].map(str::to_owned).to_vec(),
        env: Vars::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        workdir: PathBuf::from("/"),
        limit: Duration::from_secs(seconds),
        wants: Vec::new(),
        _folder: Some(Folder(private_folder(&vars, Path::new("/sweep"), 0).unwrap())),
    }
}

fn end_of(mut running: RunningHook) -> Result<(), String> {
    loop {
        if let Some(ended) = running.poll() {
            return ended;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_hook_under_way_is_looked_at_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.1.log");
    let said = |code: &str, seconds| end_of(RunningHook::start(call(code, seconds), &log)?);
    let wrong = |what: &str| Err(format!("hook finish: {what}"));
    assert_eq!(said("true", 60), Ok(()));
    assert_eq!(said("exit 3", 60), wrong("exit code 3"));
    assert_eq!(said("kill -9 $$", 60), wrong("signal 9 (SIGKILL)"));
    assert_eq!(said("sleep 600", 1), wrong("killed after 1 s"));
    let mut waits = RunningHook::start(call("sleep 600", 60), &log).unwrap();
    assert_eq!(waits.poll(), None);
    assert_eq!(waits.kill("no longer wanted"), "hook finish: no longer wanted");
    let lost = Call { workdir: PathBuf::from("/nowhere"), ..call("true", 60) };
    let wanted = "hook finish: the working folder `/nowhere` does not exist here";
    assert_eq!(RunningHook::start(lost, &log).unwrap_err(), wanted);
    // Where nothing can be made, the hook is called all the same.
    let printed = dir.path().join("called");
    let code = format!("echo said; : >{}", printed.display());
    let away = log.join("no folder");
    disk::append(&log, b"").unwrap();
    let said = end_of(RunningHook::start(call(&code, 60), &away).unwrap()).unwrap_err();
    assert!(said.starts_with("hook finish: what it printed is lost: cannot "), "{said}");
    assert!(printed.exists());
}

#[test]
fn launches_are_counted_by_the_failures_of_their_job() {
    let attempt = |(job, state, ran): (Option<&str>, Option<Outcome>, bool)| {
        let start = Start {
            trial: 0,
            attempt: 1,
            pid: 1,
            job: job.map(str::to_owned),
            ranks: 2,
            ..Start::default()
        };
        let end = state.map(|state| End {
            trial: 0,
            attempt: 1,
            time: 0.0,
            state,
            exit_code: ran.then_some(1),
            signal: None,
            cause: None,
            reason: None,
            duration_s: 0.0,
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: false,
            seq: None,
        });
        Attempt { end, ..Attempt::begun(start, 1, None) }
    };
    let failed = |job| (job, Some(Outcome::Failed), true);
    let check = |attempts: &[(Option<&str>, Option<Outcome>, bool)], job, expected| {
        let attempts = attempts.iter().copied().map(attempt).collect();
        let record = Record { attempts, ..Record::default() };
        assert_eq!(failures_in_a_row(&record, job), expected);
    };
    check(&[], None, 0);
    check(&[failed(None), failed(None)], None, 2);
    // Another job, an interruption, a killed worker and a program that never began start anew.
    check(&[failed(Some("1")), failed(Some("2"))], Some("2"), 1);
    check(&[failed(None), (None, Some(Outcome::Interrupted), true), failed(None)], None, 1);
    check(&[failed(None), (None, None, true)], None, 0);
    check(&[failed(None), (None, Some(Outcome::Failed), false)], None, 0);
}
