//! Requests and answers as bytes, the wrong ones too.

use proptest::prelude::*;

use super::super::serve::serve_one;
use super::super::threads;
use super::super::value::{Dtype, Form};
use super::*;

/// A message with this head and these numbers.
fn message(head: &str, numbers: &[u8]) -> Vec<u8> {
    [&(head.len() as u32).to_le_bytes(), head.as_bytes(), numbers].concat()
}

fn request(head: &str, numbers: &[u8]) -> Request {
    let bytes = [message(head, numbers), message(r#"{"op": "hello"}"#, &[])].concat();
    let mut stream = bytes.as_slice();
    let request = Request::read(&mut stream).unwrap().unwrap();
    assert_eq!(Request::read(&mut stream).unwrap(), Some(Request::Hello), "the end was not found");
    assert_eq!(Request::read(&mut stream).unwrap(), None);
    request
}

#[test]
fn the_requests_of_the_document_are_read() {
    let flags = r#"{"double_precision": false, "concat": true, "return_tensor": true}"#;
    let item = r#""form": "scalar", "dtype": "float64", "shape": [], "bytes": 8"#;
    let gather = format!(
        r#"{{"op": "gather", "flags": {flags}, "items": [{{"key": [], {item}}}], "bytes": 8}}"#
    );
    let half = 0.5f64.to_le_bytes();
    let expected = Request::Gather(Ok(Value::float(0.5)), Flags::default());
    assert_eq!(request(&gather, &half), expected);

    let reduce = format!(
        r#"{{"op": "reduce", "how": "mean", "nan": "propagate", "bytes": 8,
             "items": [{{"key": ["loss"], {item}, "weight": 32}}]}}"#
    );
    let share = Share { key: vec!["loss".to_owned()], value: Ok(Value::float(0.5)), weight: 32.0 };
    assert_eq!(request(&reduce, &half), Request::Reduce(vec![share], How::Mean, Nan::Propagate));

    let error = r#"{"op": "gather_map", "flags": {"concat": false}, "items":
        [{"key": ["a", "b"], "error": "cannot sync a `str`"}], "bytes": 0}"#;
    let leaf = (vec!["a".to_owned(), "b".to_owned()], Err("cannot sync a `str`".to_owned()));
    let flags = Flags { concat: false, ..Flags::default() };
    assert_eq!(request(error, &[]), Request::GatherMap(vec![leaf], flags));
}

#[test]
fn a_message_that_makes_no_sense_is_read_to_its_end() {
    let broken = |head: &str, numbers: &[u8], expected: &str| match request(head, numbers) {
        Request::Broken(why) => assert!(why.contains(expected), "{why}"),
        Request::Gather(Err(why), _) => assert_eq!(why, expected),
        other => panic!("{head}: {other:?}"),
    };
    broken(r#"{"op": "scatter", "bytes": 3}"#, &[1, 2, 3], "unknown variant `scatter`");
    broken(r#"{"bytes": 3}"#, &[1, 2, 3], "missing field `op`");
    broken(r#"{"op": "reduce", "how": "median"}"#, &[], "unknown variant `median`");
    broken(r#"{"op": "reduce"}"#, &[], "`reduce` needs `how`");
    broken(r#"{"op": "gather"}"#, &[], "`gather` takes one item");
    broken(
        r#"{"op": "gather", "items": [{"bytes": 2}], "bytes": 3}"#,
        &[1, 2, 3],
        "the items do not have the 3 bytes of their sum",
    );
    broken(
        r#"{"op": "gather", "items": [{"bytes": 3}], "bytes": 3}"#,
        &[1, 2, 3],
        "an item needs `form`, `dtype` and `shape`, or `error`",
    );
    broken(
        r#"{"op": "gather", "bytes": 3, "items":
            [{"form": "list", "dtype": "int16", "shape": [2], "bytes": 3}]}"#,
        &[1, 2, 3],
        "`int16` of the shape [2] takes 4 bytes, and there are 3",
    );
    broken(
        r#"{"op": "gather", "bytes": 0, "items":
            [{"form": "list", "dtype": "int16", "shape": [4294967296, 4294967296], "bytes": 0}]}"#,
        &[],
        "`int16` of the shape [4294967296, 4294967296] is larger than any memory",
    );
}

#[test]
fn a_stream_that_cannot_be_followed_is_given_up() {
    let lost = |bytes: &[u8], expected: &str| {
        let fault = Request::read(&mut &*bytes).unwrap_err();
        let prefix = "the sync connection is of no more use: ";
        assert_eq!(fault.sentence.strip_prefix(prefix).unwrap(), expected);
    };
    let ends = "the stream ends within a message";
    lost(&[1, 0], ends);
    lost(&[9, 0, 0, 0, b'{'], ends);
    lost(&message(r#"{"op": "scatter", "bytes": 3}"#, &[1]), ends);
    let item = r#"{"form": "list", "dtype": "uint8", "shape": [3], "bytes": 3}"#;
    let head = format!(r#"{{"op": "gather", "items": [{item}], "bytes": 3}}"#);
    lost(&message(&head, &[1]), ends);
    lost(&[0xff; 8], "a head of 4294967295 bytes; at most 16777216 are taken");
    lost(
        &message("nonsense", &[]),
        "the head is not as it should be: expected ident at line 1 column 2",
    );
    let vast = "{\"op\": \"gather\", \"bytes\": 9223372036854775808, \"items\": [{\"form\": \"list\", \
        \"dtype\": \"uint8\", \"shape\": [9223372036854775808], \"bytes\": 9223372036854775808}]}";
    lost(&message(vast, &[]), "there is no memory for 9223372036854775808 bytes");
}

#[test]
fn a_broken_request_is_an_error_on_every_rank_and_the_next_one_works() {
    let answers = threads::run(3, |peers| {
        let first = match peers.rank() {
            1 => Request::Broken("`reduce` needs `how`".to_owned()),
            _ => Request::Gather(Ok(Value::int(1)), Flags::default()),
        };
        let first = serve_one(peers, first);
        let next = serve_one(peers, Request::Gather(Ok(Value::int(2)), Flags::default()));
        [first, next, serve_one(peers, Request::Hello)]
    });
    let fault = Fault::request("rank 1: `reduce` needs `how`")
        .hint("docs/sync-protocol.md says what a request looks like");
    let twos = Value::from_numbers(Form::Tensor, vec![3], &[2i64; 3]);
    for (rank, answers) in answers.into_iter().enumerate() {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let expected = [
            Answer::Failed(fault.clone()),
            Answer::Joined(vec![(Vec::new(), twos.clone())]),
            Answer::Hello { rank: rank as u32, world: 3, version },
        ];
        assert_eq!(answers, expected);
    }
}

#[test]
fn answers_are_read_back() {
    let key = |name: &str| vec!["m".to_owned(), name.to_owned()];
    let value = |n: usize| Value::from_numbers(Form::Array, vec![n as u64], &vec![0.5f32; n]);
    for answer in [
        Answer::Hello { rank: 3, world: 4, version: "0.1.0".to_owned() },
        Answer::Joined(Vec::new()),
        Answer::Joined(vec![(key("a"), value(0)), (key("b"), value(3)), (key("c"), value(5000))]),
        Answer::PerRank(vec![
            (key("a"), vec![value(1), value(2)]),
            (key("b"), vec![value(3), value(0)]),
        ]),
        Answer::Failed(Fault::request("rank 1: no").hint("do not")),
    ] {
        let mut bytes = Vec::new();
        answer.write(&mut bytes).unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(Answer::read(&mut stream).unwrap(), answer);
        assert!(stream.is_empty());
    }
}

proptest! {
    #[test]
    fn requests_are_read_back(
        rows in prop::collection::vec((".{0,4}", 0usize..5, 0u64..4, prop::option::of(".{1,9}")), 0..4),
        code in 0u16..8,
    ) {
        let leaf = |(key, form, n, error): (String, usize, u64, Option<String>)| {
            let form = Form::ALL[form];
            let (shape, n) = match form {
                Form::Scalar | Form::Number => (Vec::new(), 1),
                _ => (vec![n], n),
            };
            let value = Value { form, dtype: Dtype::Int16, shape, data: vec![7; 2 * n as usize] };
            (vec![key], error.map_or(Ok(value), Err))
        };
        let leaves: Vec<Leaf> = rows.into_iter().map(leaf).collect();
        let flags = Flags::from_code(code);
        let shares = leaves.iter().cloned().map(|(key, value)| Share { key, value, weight: 0.1 });
        let mut all = vec![
            Request::Hello,
            Request::Reduce(shares.collect(), How::Variance, Nan::Ignore),
        ];
        all.extend(leaves.first().map(|(_, value)| Request::Gather(value.clone(), flags)));
        all.push(Request::GatherMap(leaves, flags));
        let mut bytes = Vec::new();
        all.iter().for_each(|request| request.write(&mut bytes).unwrap());
        let mut stream = bytes.as_slice();
        for request in all {
            prop_assert_eq!(Request::read(&mut stream).unwrap(), Some(request));
        }
        prop_assert_eq!(Request::read(&mut stream).unwrap(), None);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), head in any::<bool>()) {
        let mut bytes = bytes;
        if head {
            bytes = message(&String::from_utf8_lossy(&bytes), &[]);
        }
        let mut stream = bytes.as_slice();
        while let Ok(Some(_)) = Request::read(&mut stream) {}
        let _ = Answer::read(&mut bytes.as_slice());
    }
}
