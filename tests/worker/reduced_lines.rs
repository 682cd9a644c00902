//! `[metrics] sync = "mpi"`: the metric lines of all ranks become one while the programs run.

use serde_json::{Map, Value, json};

use crate::ranks::{end_of, plan, program};
use crate::support::world::{World, wait_until};

/// The metric lines in the record, as `collect --steps` prints them.
fn lines(world: &World) -> Vec<Value> {
    let ran = world.run(&["collect", "--steps", "--format", "jsonl", "results/s"]);
    let rows =
        ran.ok().lines().map(|line| serde_json::from_str::<Map<String, Value>>(line).unwrap());
    // The columns that the table has for any trial are left out.
    const OF_TRIAL: [&str; 2] = ["trial", "attempt"];
    rows.map(|mut row| {
        row.retain(|name, value| !OF_TRIAL.contains(&name.as_str()) && !value.is_null());
        Value::Object(row)
    })
    .collect()
}

#[test]
fn lines_are_reduced_while_the_programs_run() {
    let (world, command) = program(
        r#"
log(step=1, loss=1.0 + R, samples=1 + 2 * R, slowest=5 - R, host="h%d" % R)
wait_for("go")
log(step=2, loss=4.0, samples=1, slowest=R)
"#,
    );
    let metrics = "[metrics]\nsync = \"mpi\"\nweight = \"samples\"\n\
                   reduce = { samples = \"sum\", slowest = \"max\" }\n";
    world.write("plan.toml", &plan(2, &command, metrics));
    let running = world.start(&["submit", "plan.toml", "--local"]);
    let first = json!({"step": 1, "loss": 1.75, "samples": 4, "slowest": 5, "host": "h0"});
    wait_until("the first line is in the record", || {
        world.exists("results/s/records/000/0.1.jsonl") && !lines(&world).is_empty()
    });
    assert_eq!(lines(&world), std::slice::from_ref(&first));
    assert_eq!(world.status()["trials"][0]["state"], "running");
    world.write("go", "");
    let ran = running.end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let second = json!({"step": 2, "loss": 4.0, "samples": 2, "slowest": 1});
    assert_eq!(lines(&world), [first, second]);
    assert!(world.files("tmp").is_empty(), "{:?}", world.files("tmp"));
}

/// The worker does not wait for a line of a rank that has ended. A rank without a line does not
/// count.
#[test]
fn ranks_may_differ_in_how_much_they_log() {
    let (world, command) = program(
        r#"
for step in range([3, 1, 0][R]):
    log(step=step, loss=float(step + R))
"#,
    );
    let ran = world.local(&plan(3, &command, ""), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let expected = [
        json!({"step": 0, "loss": 0.5}),
        json!({"step": 1, "loss": 1.0}),
        json!({"step": 2, "loss": 2.0}),
    ];
    assert_eq!(lines(&world), expected);
}

#[test]
fn what_is_no_number_stays_none_and_no_line_is_none() {
    let code = r#"
log(step=1, loss=float("nan") if R else 1.0, best=float("inf"))
log(step=2, loss=2.0 + R)
with open(os.environ["HPCSWEEP_METRICS"], "a") as f:
    f.write('no line of metrics\n{"step": 3, "loss": 7, "last": true}')
"#;
    let (world, command) = program(code);
    let ran = world.local(&plan(2, &command, ""), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let expected = [
        json!({"step": 1, "loss": "nan", "best": "inf"}),
        json!({"step": 2, "loss": 2.5}),
        json!({"step": 3, "loss": 7, "last": true}),
    ];
    assert_eq!(lines(&world), expected);
    let left_out = "1 line of $HPCSWEEP_METRICS left out, no JSON object: no line of metrics";
    assert_eq!(end_of(&world), format!("done: {left_out}"));
    // Those of all ranks are counted.
    assert_eq!(world.status()["unread_lines"], 2);
    let log = world.run(&["logs", "0"]);
    let told = format!("hpcsweep: {left_out}\n[rank 1] hpcsweep: {left_out}\n");
    let other = format!("[rank 1] hpcsweep: {left_out}\nhpcsweep: {left_out}\n");
    assert!([told, other].contains(&log.out), "{}", log.whole());

    let (world, command) = program("");
    let ran = world.local(&plan(2, &command, ""), &[]);
    assert_eq!((ran.code, end_of(&world).as_str()), (0, "done: "), "{}", ran.whole());
    assert_eq!(lines(&world), Vec::<Value>::new());
}

#[test]
fn lines_and_syncs_of_one_program_do_not_wait_for_each_other() {
    let code = r#"
for step in range(200):
    log(step=step, loss=step + R)
    assert hpcsweep.mp_sync(R, return_tensor=False) == [0, 1]
    if R == 0:
        # This rank logs twice as many lines, and is never held up.
        log(step=step, loss=step)
"#;
    let (world, command) = program(code);
    let ran = world.local(&plan(2, &command, ""), &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.whole(), world.run(&["logs", "0"]).whole());
    assert_eq!(lines(&world).len(), 400);
}
