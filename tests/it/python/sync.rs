//! `mp_sync` gives what is promised, in every case of the reference, over threads and through the messages
//! of the sync protocol.
//!
//! `HPCSWEEP_CASES=FOLDER` runs the cases of another file of the same form.

use std::collections::BTreeSet;
use std::path::Path;

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::frame::{Answer, Request};
use hpcsweep::run::sync::serve::serve_one;
use hpcsweep::run::sync::threads;
use hpcsweep::run::sync::value::{Form, Value};

use crate::support::sync_cases::{Case, Expect, cases, cases_in};
use crate::support::world::ROOT;

/// One call after the other, as a program and its worker do it; answers by case and rank.
fn answers(cases: &[&Case], world: usize) -> Vec<Vec<Answer>> {
    let frames: Vec<Vec<Vec<u8>>> = cases.iter().map(|case| case.frames()).collect();
    let by_rank = threads::run(world as u32, |peers| {
        let rank = peers.rank() as usize;
        let one = |frames: &Vec<Vec<u8>>| {
            let request = Request::read(&mut frames[rank].as_slice()).unwrap().unwrap();
            let mut bytes = Vec::new();
            serve_one(peers, request).write(&mut bytes).unwrap();
            Answer::read(&mut bytes.as_slice()).unwrap()
        };
        frames.iter().map(one).collect::<Vec<_>>()
    });
    let of = |case: usize| by_rank.iter().map(|rank| rank[case].clone()).collect();
    (0..cases.len()).map(of).collect()
}

/// Errors and results alternate on the same ranks: a call after an error works.
#[test]
fn every_promise_is_kept() {
    let all = cases();
    assert!(!all.is_empty());
    let worlds: BTreeSet<usize> = all.iter().map(|case| case.requests.len()).collect();
    let mut wrong = Vec::new();
    for world in worlds {
        let here: Vec<&Case> = all.iter().filter(|case| case.requests.len() == world).collect();
        for (case, answers) in here.iter().zip(answers(&here, world)) {
            wrong.extend(case.judge(&answers).err());
        }
    }
    let count = all.len();
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_cases_are_all_there() {
    let all = cases_in(&Path::new(ROOT).join("tests/cases"));
    let count = |is: fn(&Expect) -> bool| all.iter().filter(|case| is(&case.expect)).count();
    // 273 promises of `cases`, 6 maps there that can be joined, 13 uneven rows.
    assert_eq!(count(|expect| matches!(expect, Expect::Result(_))), 292);
    // 61 rows of types that cannot be sent, 2 maps with strings, a missing key and 2 shapes that differ.
    assert_eq!(count(|expect| matches!(expect, Expect::Error(_))), 66);
    assert_eq!(count(|expect| matches!(expect, Expect::Agreement)), 22);
}

#[test]
fn a_wrong_answer_is_noticed() {
    let all = cases_in(&Path::new(ROOT).join("tests/cases"));
    let result = all.iter().find(|case| matches!(case.expect, Expect::Result(_))).unwrap();
    let error = all.iter().find(|case| matches!(case.expect, Expect::Error(_))).unwrap();
    let value = |x: f32| {
        Answer::Joined(vec![(Vec::new(), Value::from_numbers(Form::Tensor, vec![1], &[x]))])
    };
    let no = |why: &str| Answer::Failed(Fault::request(why));
    let world = result.requests.len();
    assert!(result.judge(&vec![value(9e9); world]).is_err());
    assert!(result.judge(&vec![no("no"); world]).is_err());
    let world = error.requests.len();
    assert!(error.judge(&vec![value(0.1); world]).is_err());
    assert_eq!(error.judge(&vec![no("rank 0 and rank 1"); world]), Ok(()));
    let mut answers = vec![no("rank 0 and rank 1"); world];
    answers[1] = no("rank 1");
    assert!(error.judge(&answers).is_err());
    assert!(error.judge(&answers[..1]).is_err());
}
