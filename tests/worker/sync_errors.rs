//! Syncs over MPI that cannot work: equal errors on all ranks, no hang, and the next sync works.

use serde_json::{Value, json};

use crate::ranks::{end_of, plan, program, said, two, two_said};

/// Sentences as [`crate::ranks`] writes them down.
fn errors(sentences: &[&str]) -> Vec<Value> {
    sentences.iter().map(|sentence| json!(format!("error: {sentence}"))).collect()
}

#[test]
fn what_cannot_be_synced_is_the_same_error_on_all_ranks_and_the_next_sync_works() {
    let all = two_said(
        r#"
sync("words" if R == 1 else 1.0)
sync(R)
ask(hpcsweep.mp_sync_dict, {"a": 1.0} if R else {"b": 2.0, "a": 1.0})
ask(hpcsweep.mp_sync_dict, "words" if R else {"a": 1.0})
ask(hpcsweep.mp_sync_dict, {"a": {"b": None}, "c": R})
sync(R) if R else ask(hpcsweep.reduce, {"a": 1.0})
ask(hpcsweep.reduce, {"a": 1.0}, how="sum" if R else "max")
ask(hpcsweep.mp_sync, R, double_precision=R == 0, return_tensor=False)
sync([[1.0] * (R + 2)])
sync(1j)
sync([R])
ask(hpcsweep.mp_sync_dict, {"b": 10 + R, "a": R} if R else {"a": R, "b": 10 + R})
"#,
    );
    let [no_str, no_key, no_map, no_none, ops, how, flags, shapes, complex] = [
        "rank 1: cannot sync a `str`",
        "the key `b` is missing on rank 1",
        "rank 1: cannot sync a `str` as a dict",
        "ranks 0 and 1, key `a.b`: cannot sync a `NoneType`",
        "the ranks ask for different things: `reduce` on rank 0, `gather` on rank 1",
        "the ranks disagree on `how`: `max` on rank 0, `sum` on rank 1",
        "the ranks disagree on `double_precision`: true on rank 0, false on rank 1",
        "the shapes differ beyond the first dimension: [1, 2] on rank 0, [1, 3] on rank 1",
        "ranks 0 and 1: cannot sync a `complex`",
    ];
    let mut expected = errors(&[no_str]);
    expected.push(json!([0, 1]));
    expected.extend(errors(&[no_key, no_map, no_none, ops, how, flags, shapes, complex]));
    expected.extend([json!([0, 1]), json!({"a": [0, 1], "b": [10, 11]})]);
    assert_eq!(all, [expected.clone(), expected]);
}

#[test]
fn a_rank_that_has_ended_is_an_error_to_each_sync_of_the_others() {
    let all =
        two_said("sync(R)\nif R == 0:\n    sync(1.0)\n    ask(hpcsweep.reduce, {})\n    sync(2)");
    let gone = "rank 1: its program has ended or closed the socket";
    let rank_0: Vec<Value> =
        [vec![json!([0, 1])], errors(&[gone, gone, gone])].into_iter().flatten().collect();
    assert_eq!(all, [rank_0, vec![json!([0, 1])]]);
}

#[test]
fn a_rank_that_is_killed_while_another_waits_for_it_ends_the_trial() {
    for (killed, reason) in [
        (0, "failed: signal 9 (SIGKILL): rank 0 failed"),
        (1, "failed: rank 1 on HOST: signal 9 (SIGKILL)"),
    ] {
        let (world, ran) = two(&format!(
            "sync(R)\nsay(os.getpid())\nif R == {killed}:\n    os.kill(os.getpid(), 9)\nhpcsweep.mp_sync(R, return_tensor=False)"
        ));
        assert_eq!((ran.code, end_of(&world).as_str()), (1, reason), "{}", ran.whole());
        // Nor does mpirun wait for ranks that are gone, or talk about it.
        assert!(!ran.err.contains("mpirun"), "{}", ran.whole());
        for rank in 0..2 {
            let said = said(&world, rank);
            let is_error = |line: &Value| line.to_string().starts_with("\"error: ");
            assert!(said[0] == json!([0, 1]) && said[2..].iter().all(is_error), "{said:?}");
            let process = format!("/proc/{}", said[1]);
            assert!(!std::path::Path::new(&process).exists(), "{process} is still there");
        }
    }
}

/// The process that carries the syncs is killed, as by a node that runs out of memory.
#[test]
fn a_helper_that_is_killed_ends_the_trial() {
    for killed in [0, 1] {
        let (world, ran) = two(&format!(
            r#"
sync(R)
if R == {killed}:
    worker = os.getppid()
    with open("/proc/%d/task/%d/children" % (worker, worker)) as f:
        helper = [int(pid) for pid in f.read().split() if int(pid) != os.getpid()]
    say(len(helper))
    os.kill(helper[0], 9)
time.sleep(100)
"#
        ));
        assert_eq!(ran.code, 1, "{}", ran.whole());
        let end = end_of(&world);
        let place = if killed == 0 { "" } else { "rank 1 on HOST: " };
        assert_eq!(end, format!("failed: exit code 1: {place}syncs over MPI: the helper failed"));
        assert_eq!(said(&world, killed), [json!([0, 1]), json!(1)]);
    }
}

#[test]
fn a_request_that_makes_no_sense_is_an_error_on_all_ranks() {
    let all = two_said(
        r#"
def send(text):
    raw(struct.pack("<I", len(text)) + text)
    say(answer())
def on_rank_1(text):
    send(text) if R == 1 else sync(1)
on_rank_1(b'{"op": "dance"}')
on_rank_1(b'{"op": "gather", "items": []}')
on_rank_1(b'{"op": "reduce", "items": []}')
send(b'{"op": "hello"}')
sync(R)
"#,
    );
    let wrong = [
        "rank 1: the request makes no sense: unknown variant `dance`, expected one of `hello`, `gather`, \
         `gather_map`, `reduce` at line 1 column 14",
        "rank 1: `gather` takes one item, whose key is []; `gather_map` takes more",
        "rank 1: `reduce` needs `how`",
    ];
    let hello = |rank: u32| json!({"ok": true, "rank": rank, "world": 2, "version": env!("CARGO_PKG_VERSION"), "bytes": 0});
    let end = |rank| [hello(rank), json!([0, 1])];
    let of_1 = wrong.iter().map(|sentence| json!(sentence)).chain(end(1)).collect();
    assert_eq!(all, [errors(&wrong).into_iter().chain(end(0)).collect::<Vec<_>>(), of_1]);
}

#[test]
fn garbage_on_the_socket_ends_the_syncs_of_its_rank_and_nothing_else() {
    for (garbage, why) in [
        (r"b'\xff' * 64", "a head of 4294967295 bytes"),
        (r"struct.pack('<I', 5) + b'words'", "the head is not"),
    ] {
        let all = two_said(&format!(
            r#"
sync(R)
if R == 1:
    raw({garbage})
    say(answer())
    say(answer())
    wait_for("done")
else:
    sync(1)
    sync(2)
    touch("done")
"#
        ));
        let [of_0, of_1] = all;
        let sentence = of_1[1].as_str().unwrap();
        assert!(sentence.starts_with("rank 1: ") && sentence.contains(why), "{sentence}");
        assert_eq!(of_1[2..], [json!("the end")]);
        let expected = errors(&[sentence, "rank 1: its program has ended or closed the socket"]);
        assert_eq!(of_0[1..], expected);
    }
}

#[test]
fn a_program_may_close_the_socket_and_go_on_without() {
    let all = two_said(
        "if R == 1:\n    os.close(FD)\n    wait_for('done')\nelse:\n    sync(1)\n    sync(2)\n    touch('done')",
    );
    let gone = "rank 1: its program has ended or closed the socket";
    assert_eq!(all, [errors(&[gone, gone]), Vec::new()]);
}

#[test]
fn a_shell_in_between_hands_the_socket_on() {
    let (world, _) = program("sync(R)\nsys.exit(3 if os.path.exists('fail') else 0)");
    let command = ["sh", "-c", "/usr/bin/python3 -S -B program.py; code=$?; exit $code"];
    // A set-up script is one more.
    let plan = plan(2, &command, "setup = [\"true\"]");
    let ran = world.local(&plan, &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.whole(), world.run(&["logs", "0"]).whole());
    assert_eq!([said(&world, 0), said(&world, 1)], [[json!([0, 1])], [json!([0, 1])]]);
}
