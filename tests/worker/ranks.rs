//! Trials of several ranks, run on this machine: plans, and programs in Python that write down what they got.

use serde_json::Value;

use crate::support::world::{ROOT, Ran, World};

/// The Python that Debian's packages are for.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// What programs begin with: `sync`, `ask` write what they got, or the error, as one line of JSON; `raw` sends
/// bytes as they are.
const BEGINNING: &str = r#"
import json, os, socket, struct, sys, time
import hpcsweep
R = int(os.environ["RANK"])
FD = int(os.environ.get("HPCSWEEP_SYNC", -1))
said = open("said.%d" % R, "w", buffering=1)
def say(what):
    print(json.dumps(what), file=said)
def ask(call, *args, **kwargs):
    try:
        say(call(*args, **kwargs))
    except hpcsweep.SyncError as e:
        say("error: " + e.sentence)
def sync(value):
    ask(hpcsweep.mp_sync, value, return_tensor=False)
def raw(data):
    os.write(FD, data)
def answer():
    with socket.socket(fileno=os.dup(FD)) as s, s.makefile("rb") as f:
        length = f.read(4)
        if not length:
            return "the end"
        head = json.loads(f.read(struct.unpack("<I", length)[0]))
        f.read(head["bytes"])
        return head.get("error", head)
def log(**row):
    with open(os.environ["HPCSWEEP_METRICS"], "a") as f:
        f.write(json.dumps(row) + "\n")
def touch(name):
    open(name, "w").close()
def wait_for(*names):
    until = time.monotonic() + 100
    while not all(map(os.path.exists, names)):
        if time.monotonic() > until:
            sys.exit("%s did not come" % (names,))
        time.sleep(0.005)
"#;

/// A plan with one trial of so many ranks that sync over MPI; `rest` begins with keys of `[run]`.
pub(crate) fn plan(ranks: u32, command: &[&str], rest: &str) -> String {
    let metrics = if rest.contains("[metrics]") { "" } else { "[metrics]\nsync = \"mpi\"\n" };
    // What hangs ends as `timeout`, and the test fails.
    format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = {command:?}\n\
         env = {{ PYTHONPATH = \"{ROOT}/site/python:{ROOT}/target/tools/python\", OMP_NUM_THREADS = 1 }}\n\
         {rest}\n{metrics}[resources]\nranks = {ranks}\nwalltime = \"00:03:00\"\n"
    )
}

/// A world with a program in Python, and the command that runs it. Without numpy and torch it starts at once.
pub(crate) fn program(code: &str) -> (World, [&'static str; 4]) {
    let world = World::new();
    world.write("program.py", &format!("{BEGINNING}{code}"));
    (world, [PYTHON, "-S", "-B", "program.py"])
}

/// Runs this code on two ranks to its end, whatever that is.
pub(crate) fn two(code: &str) -> (World, Ran) {
    let (world, command) = program(code);
    let ran = world.local(&plan(2, &command, ""), &[]);
    (world, ran)
}

/// The same, which must succeed; returns what each rank wrote down.
#[track_caller]
pub(crate) fn two_said(code: &str) -> [Vec<Value>; 2] {
    let (world, ran) = two(code);
    assert_eq!(ran.code, 0, "{}{}", ran.whole(), world.run(&["logs", "0"]).whole());
    [said(&world, 0), said(&world, 1)]
}

/// The file that a rank wrote.
#[track_caller]
pub(crate) fn said(world: &World, rank: u32) -> Vec<Value> {
    let text = world.read(&format!("said.{rank}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `failed: why` of the world's one trial, this host's name as `HOST`.
#[track_caller]
pub(crate) fn end_of(world: &World) -> String {
    let status = world.status();
    let trial = &status["trials"][0];
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let word = |name: &str| trial[name].as_str().unwrap_or_default().to_owned();
    format!("{}: {}", word("state"), word("reason").replace(&format!("on {host}"), "on HOST"))
}
