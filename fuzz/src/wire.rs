//! What processes say to each other, and lines of running programs.

use std::io::Cursor;
use std::path::Path;

use hpcsweep::run::sync::frame::{Answer, Request};
use hpcsweep::run::sync::peers::Alone;
use hpcsweep::run::sync::serve::serve_one;
use hpcsweep::run::worker::process::lines::parse_lenient;
use hpcsweep::run::worker::process::written::parse;
use hpcsweep::run::worker::ranks::peers::{self, Down, Up};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message of the bytes: the head is what stands before the first newline, and gets its length in front.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (head, data) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    [&(head.len() as u32).to_le_bytes(), head, data].concat()
}

/// The requests of a program, one after the other, as they are and with the length of their head put right.
pub(crate) fn requests(bytes: &[u8]) {
    carry_out(bytes);
    carry_out(&framed(bytes));
}

/// Each request is carried out, and comes back as it was written.
fn carry_out(bytes: &[u8]) {
    let mut stream = Cursor::new(bytes);
    while let Ok(Some(request)) = Request::read(&mut stream) {
        // What makes no sense has no form to be written in.
        if !matches!(request, Request::Broken(_)) {
            let mut written = Vec::new();
            request.write(&mut written).expect("memory takes it");
            let again = Request::read(&mut Cursor::new(&written)).ok().flatten();
            assert_eq!(format!("{again:?}"), format!("{:?}", Some(&request)));
        }
        let answer = serve_one(&mut Alone, request);
        let mut written = Vec::new();
        if answer.write(&mut written).is_ok() {
            assert!(Answer::read(&mut Cursor::new(&written)).is_ok(), "{answer:?}");
        }
    }
}

/// The answers to a program.
pub(crate) fn answers(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), framed(bytes)] {
        let mut stream = Cursor::new(bytes);
        while Answer::read(&mut stream).is_ok() {}
    }
}

/// What ranks and their rank 0 say to each other.
pub(crate) fn meeting(bytes: &[u8]) {
    messages::<Up>(bytes);
    messages::<Down>(bytes);
    let _ = serde_json::from_slice::<peers::Meeting>(bytes);
}

fn messages<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    peers::each_message(bytes, |message: T| {
        let text = serde_json::to_string(&message).expect("a message is JSON");
        let again: T = serde_json::from_str(&text).expect("a message can be read again");
        assert_eq!(serde_json::to_string(&again).expect("as before"), text);
        true
    });
}

/// Metric lines and results of programs.
pub(crate) fn metrics(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(value) = parse_lenient(line) else { continue };
        let strict: Option<serde_json::Value> = serde_json::from_slice(line).ok();
        if let Some(strict) = strict {
            assert_eq!(value, strict, "what is JSON is read as JSON");
        }
        let text = serde_json::to_vec(&value).expect("it is JSON");
        assert_eq!(parse_lenient(&text), Some(value));
    }
}

/// Files of metrics that programs leave.
pub(crate) fn metric_files(bytes: &[u8]) {
    for name in ["a.json", "a.csv", "a.tsv"] {
        let found = parse(bytes, Path::new(name));
        assert!(found.n_odd <= 1 + bytes.len() as u64);
    }
}

/// What a browser sends.
pub(crate) fn web(bytes: &[u8]) {
    if let Some(request) = hpcsweep::base::host::http::request(bytes) {
        assert!(request.path.starts_with('/') && !request.path.contains(['?', ' ', '\r', '\n']));
    }
}
