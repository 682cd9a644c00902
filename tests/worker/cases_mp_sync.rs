//! `mp_sync` gives what is promised, in every case of the reference, between programs of a trial whose
//! workers carry it over MPI.
//!
//! `HPCSWEEP_CASES=FOLDER` runs the cases of another file of the same form.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use hpcsweep::run::sync::frame::{Answer, Request};

use crate::ranks::{PYTHON, plan};
use crate::support::sync_cases::{Case, cases};
use crate::support::world::{ROOT, World, only};

/// Variable of the folder in which the program below finds what it is to ask.
const FOLDER: &str = "SYNC_CLIENT";

/// The socket that the worker has left open for its program under this number.
#[expect(
    unsafe_code,
    reason = "a number becomes a descriptor: nothing else in this program uses it"
)]
fn inherited(number: i32) -> UnixStream {
    // SAFETY: the worker opened it for this program alone.
    unsafe { UnixStream::from_raw_fd(number) }
}

/// The program of the trials below: as one rank, sends the requests of `requests.RANK` one after the other,
/// and keeps the answers in `answers.RANK`.
#[test]
fn client() {
    // Nothing to do among the tests: this one is a program for their trials, too.
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let rank: u32 = variable("RANK").parse().unwrap();
    let mut socket = inherited(variable("HPCSWEEP_SYNC").parse().unwrap());
    let requests = File::open(folder.join(format!("requests.{rank}"))).unwrap();
    let mut requests = BufReader::new(requests);
    let mut answers = Vec::new();
    while let Some(request) = Request::read(&mut requests).unwrap() {
        request.write(&mut socket).unwrap();
        Answer::read(&mut socket).unwrap().write(&mut answers).unwrap();
    }
    fs::write(folder.join(format!("answers.{rank}")), answers).unwrap();
}

/// The answers that the ranks of a trial got, by case and rank.
fn answers(cases: &[&Case], ranks: usize) -> Vec<Vec<Answer>> {
    let world = World::new();
    let frames: Vec<Vec<Vec<u8>>> = cases.iter().map(|case| case.frames()).collect();
    for rank in 0..ranks {
        let mut file = File::create(world.path(&format!("requests.{rank}"))).unwrap();
        frames.iter().for_each(|case| file.write_all(&case[rank]).unwrap());
    }
    let own = std::env::current_exe().unwrap();
    let [client, exact] = only(module_path!(), "client");
    let command = [own.to_str().unwrap(), &client, &exact];
    // The worker hands on what is not its own.
    let shell = format!("{FOLDER}={} exec \"$0\" \"$@\"", world.text_path(""));
    let command = [&["sh", "-c", &shell], &command[..]].concat();
    let ran = world.local(&plan(ranks as u32, &command, ""), &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.whole(), world.run(&["logs", "0"]).whole());
    let of = |rank: usize| {
        let bytes = fs::read(world.path(&format!("answers.{rank}"))).unwrap();
        let mut bytes = bytes.as_slice();
        let all: Vec<Answer> = cases.iter().map(|_| Answer::read(&mut bytes).unwrap()).collect();
        assert_eq!(bytes.read(&mut [0]).unwrap(), 0, "more answers than requests");
        all
    };
    let by_rank: Vec<Vec<Answer>> = (0..ranks).map(of).collect();
    (0..cases.len()).map(|case| by_rank.iter().map(|rank| rank[case].clone()).collect()).collect()
}

/// All cases for so many ranks, in one trial: errors and results alternate.
fn every_promise_is_kept(ranks: usize) {
    let all = cases();
    let here: Vec<&Case> = all.iter().filter(|case| case.requests.len() == ranks).collect();
    let answers = answers(&here, ranks);
    assert_eq!(answers.len(), here.len());
    let wrong = here.iter().zip(answers).filter_map(|(case, answers)| case.judge(&answers).err());
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), here.len(), wrong.join("\n"));
}

#[test]
fn two_ranks_get_what_is_promised() {
    every_promise_is_kept(2);
}

#[test]
fn four_ranks_get_what_is_promised() {
    every_promise_is_kept(4);
}

/// The same cases from Python, with numpy and torch.
fn python_gets_what_is_promised(ranks: usize) {
    let world = World::new();
    let client = Path::new(ROOT).join("tests/python/cases_client.py");
    let folder = std::env::var_os("HPCSWEEP_CASES")
        .map_or(Path::new(ROOT).join("tests/cases"), PathBuf::from);
    let folder = fs::canonicalize(folder).unwrap();
    let command = [PYTHON, "-B", client.to_str().unwrap(), folder.to_str().unwrap()];
    let ran = world.local(&plan(ranks as u32, &command, ""), &[]);
    let log = world.run(&["logs", "0"]);
    assert_eq!(ran.code, 0, "{}{}", ran.whole(), log.whole());
    // Each rank has run all cases for so many ranks, and two more.
    let count = cases().iter().filter(|case| case.requests.len() == ranks).count() + 2;
    let mut lines: Vec<&str> = log.out.lines().collect();
    lines.sort_unstable();
    let told = |rank| format!("[rank {rank}] rank {rank} of {ranks}: {count} cases, 0 failed");
    assert_eq!(lines, (0..ranks).map(told).collect::<Vec<_>>());
}

#[test]
fn two_ranks_in_python_get_what_is_promised() {
    python_gets_what_is_promised(2);
}

#[test]
fn four_ranks_in_python_get_what_is_promised() {
    python_gets_what_is_promised(4);
}
