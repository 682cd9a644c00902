//! What a trial has used: the memory of all of its processes, processor time, bytes, wherever it runs. The programs know what
//! they use and say it.

use hpcsweep::base::cause::Cause;
use hpcsweep::sweep::tree::line;
use hpcsweep::sweep::tree::records::{End, Event, Outcome, Usage};
use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

/// Programs in Python that use memory in a known way; `n` MiB at most, and then they stay until they have been seen.
const MEMORY: &str = r#"
import mmap, os, sys, threading, time
mode, n = sys.argv[1], int(sys.argv[2])

def fill(mib):
    return bytearray(b"\1") * (mib << 20)

def stay():
    # Samples cost a hundredth of a core at most: one of several processes costs tens of milliseconds on a loaded machine.
    time.sleep(8 if mode in ("forks", "leaves", "shared") else 1)

if mode == "none":
    stay()
elif mode in ("one", "again"):
    block = fill(n)
    stay()
elif mode == "forks":
    # What the parent has is also its children's, until they change it.
    block = fill(n // 2)
    filled, fills = os.pipe()
    stays, may_end = os.pipe()
    for _ in range(2):
        if os.fork() == 0:
            own = fill(n // 4)
            os.close(may_end)
            os.write(fills, b"1")
            os.read(stays, 1)
            os._exit(0)
    os.read(filled, 1), os.read(filled, 1)
    stay()
    os.close(may_end)
    os.wait(), os.wait()
elif mode == "leaves":
    # Nothing but the kernel knows that the processes belong together: the parent is gone, the session is another one.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            block = fill(n // 2)
            open("left", "w").close()
            while not os.path.exists("may-end"):
                time.sleep(0.01)
            os._exit(0)
        os._exit(0)
    own = fill(n // 2)
    while not os.path.exists("left"):
        time.sleep(0.01)
    stay()
    open("may-end", "w").close()
elif mode == "threads":
    blocks = []
    all = [threading.Thread(target=lambda: (blocks.append(fill(n // 4)), stay())) for _ in range(4)]
    [thread.start() for thread in all]
    [thread.join() for thread in all]
elif mode == "shared":
    block = mmap.mmap(-1, n << 20)
    for _ in range(3):
        if os.fork() == 0:
            for at in range(0, n << 20, 4096):
                block[at] = 1
            stay()
            os._exit(0)
    for _ in range(3):
        os.wait()
elif mode == "frees":
    block = fill(n)
    del block
    stay()
"#;

const MODES: [&str; 7] = ["none", "one", "forks", "leaves", "threads", "shared", "frees"];

/// MiB that each of [`MEMORY`] uses.
const SIZE: u64 = 160;

fn plan(program: &str, rest: &str) -> String {
    let code = Value::from(program).to_string();
    format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"python3\", \"-c\", {code}{rest}"
    )
}

/// The ends that the workers of a sweep have recorded, by trial.
fn ends(world: &World) -> Vec<Value> {
    let mut ends = Vec::new();
    for trial in 0.. {
        let name = format!("results/s/records/000/{trial}.1.jsonl");
        if !world.exists(&name) {
            break;
        }
        let text = world.read(&name);
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        ends.extend(lines.filter(|line| line["event"] == "end"));
    }
    ends
}

/// The memory of each mode beyond that of the interpreter is the known one, within 5 %. The ends are in the order of
/// [`MODES`].
fn check_memory(ends: &[Value]) {
    assert_eq!(ends.len(), MODES.len());
    let base = &ends[0];
    for (mode, full) in MODES.iter().zip(ends).skip(1) {
        assert_eq!(full["state"], "done", "{full}");
        let own = |end: &Value| end["peak_memory"].as_f64().unwrap() / f64::from(1 << 20);
        let used = own(full) - own(base);
        let expected = SIZE as f64;
        assert!((used / expected - 1.0).abs() < 0.05, "{mode}: {used} MiB: {base} {full}");
        // What one process has had, the kernel itself reports.
        let source = &full["usage"]["memory_source"];
        assert!(*mode != "forks" || *source == "pss", "{full}");
        assert!(!matches!(*mode, "one" | "threads" | "frees") || *source == "rusage", "{full}");
    }
    let of = |mode: &str, name: &str| {
        let at = MODES.iter().position(|known| *known == mode).unwrap();
        ends[at]["usage"][name].as_u64()
    };
    assert_eq!(of("forks", "processes"), Some(3));
    assert_eq!(of("shared", "processes"), Some(4));
    assert_eq!((of("threads", "processes"), of("threads", "threads")), (Some(1), Some(5)));
}

fn memory_plan() -> String {
    let modes: Vec<String> = MODES.iter().map(|mode| format!("\"{mode}\"")).collect();
    let rest =
        format!(", \"{{{{ mode }}}}\", \"{SIZE}\"]\n[grid]\nmode = [{}]\n", modes.join(", "));
    plan(MEMORY, &rest)
}

#[test]
fn memory_is_that_of_the_whole_process_tree() {
    let world = World::new();
    world.local(&memory_plan(), &["-j", "1"]).ok();
    check_memory(&ends(&world));
}

/// The kernel's peak of an agent is also that of the process that it was before, and says nothing of the agent's programs.
#[test]
fn the_size_of_what_has_started_an_agent_does_not_count() {
    let world = World::new();
    let plan =
        memory_plan().replace(&MODES.map(|mode| format!("\"{mode}\"")).join(", "), "\"one\"");
    world.write("plan.toml", &plan);
    let become_agent = "import os, sys\nblock = b'x' * (2 * int(sys.argv[2]) << 20)\n\
        os.execv(sys.argv[1], ['hpcsweep', 'worker', '--pull', 'plan.toml'])";
    world.call("python3", &["-c", become_agent, PROGRAM, &SIZE.to_string()]).ok();
    let ends = world.written_by_agents("s", "end");
    assert_eq!(ends[0]["usage"]["memory_source"], "rusage", "{ends:?}");
}

#[test]
fn agents_measure_memory_as_workers_do() {
    let world = World::new();
    // Orphans are the agent's children, and an agent does not know of which trial.
    let without_orphans = memory_plan().replace("\"leaves\"", "\"again\"");
    world.write("plan.toml", &without_orphans.replace("[grid]", "[pull]\nslots = 1\n[grid]"));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    let mut ends = world.written_by_agents("s", "end");
    ends.sort_by_key(|end| end["trial"].as_u64());
    check_memory(&ends);
}

/// Says what the kernel knows of it and of the children that it has waited for.
const TIME: &str = r#"
import json, os, sys
def burn(seconds):
    while sum(os.times()[:2]) < seconds:
        sum(range(10000))
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
burn(0.2)
with open("out." + os.environ["HPCSWEEP_TRIAL"] + os.environ.get("RANK", ""), "wb") as file:
    file.write(b"\1" * (8 << 20))
    os.fsync(file.fileno())
io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
t = os.times()
known = {"user": t.user + t.children_user, "system": t.system + t.children_system, "written": int(io["write_bytes"])}
with open(os.environ["HPCSWEEP_RESULT"], "w") as file:
    json.dump(known, file)
"#;

/// What is recorded is what the program has said, or a little more: the end of the interpreter.
#[track_caller]
fn check_time(end: &Value, known: &Value, ranks: f64) {
    let usage = &end["usage"];
    let of = |name: &str| usage[name].as_f64().unwrap_or(0.0);
    let is_near = |got: f64, known: f64, slack: f64| {
        got >= known * 0.95 - slack && got <= known * 1.05 + slack * ranks
    };
    let known = |name: &str| known[name].as_f64().unwrap() * ranks;
    let cpu = of("cpu_user_s") + of("cpu_system_s");
    assert!(is_near(cpu, known("user") + known("system"), 0.1), "{end}");
    assert!(is_near(of("written_bytes"), known("written"), 65536.0), "{end}");
    assert!(of("written_bytes") >= 8e6 * ranks, "{end}");
}

#[test]
fn processor_time_and_bytes_are_those_of_all_processes() {
    let world = World::new();
    world.local(&plan(TIME, "]\n"), &[]).ok();
    let end = &ends(&world)[0];
    check_time(end, &end["result"], 1.0);

    let world = World::new();
    world.write("plan.toml", &plan(TIME, "]\n[pull]\nslots = 1\n"));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    let end = &world.written_by_agents("s", "end")[0];
    check_time(end, &end["result"], 1.0);
}

#[test]
fn the_usage_of_all_ranks_is_added_up() {
    let world = World::new();
    world.local(&plan(TIME, "]\n[resources]\nranks = 2\n"), &[]).ok();
    let end = &ends(&world)[0];
    check_time(end, &end["result"], 2.0);
    let memory = |name: &str| end["usage"][name].as_u64();
    let (all, rank) = (end["peak_memory"].as_u64().unwrap(), memory("rank_memory").unwrap());
    assert!(rank < all && all <= 2 * rank, "{end}");
    assert_eq!(memory("node_memory"), None, "{end}");
}

#[test]
fn an_attempt_has_the_memory_of_its_own_processes() {
    let world = World::new();
    // The first attempt needs more than the second.
    let code = "import os, sys; first = os.environ['HPCSWEEP_ATTEMPT'] == '1'; \
                block = bytearray(b'1') * ((64 << 20) if first else 1); sys.exit(1 if first else 0)";
    world.local(&plan(code, "]\nattempts = 2\n"), &[]).ok();
    let memory: Vec<u64> =
        ends(&world).iter().map(|end| end["peak_memory"].as_u64().unwrap()).collect();
    assert_eq!(memory.len(), 2);
    assert!(memory[0] > memory[1] + (60 << 20), "{memory:?}");
}

#[test]
fn a_short_trial_is_measured_by_its_end_alone() {
    let world = World::new();
    let axis = "[grid]\ni = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
    let plan = format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n{axis}");
    world.local(&plan, &["-q"]).ok();
    // On a busy machine one may take long enough for a sample.
    let is_short = |end: &&Value| end["duration_s"].as_f64().unwrap() < 0.02;
    for end in ends(&world).iter().filter(is_short) {
        let measured = (&end["usage"]["memory_source"], &end["usage"]["processes"]);
        assert_eq!(measured, (&json!("rusage"), &json!(null)), "{end}");
    }
}

/// An end of trial `i` that has used this much.
fn end(i: u64, state: Outcome, seconds: f64, mib: u64, cpu_s: f64) -> Event {
    let usage: Usage = serde_json::from_value(json!({
        "memory_source": "pss", "cpu_user_s": cpu_s, "cpu_system_s": 0.0,
        "gpus": [{ "gpu": 0, "utilization": 50.0, "energy_j": 900_000.0 }],
    }))
    .unwrap();
    Event::End(End {
        trial: i,
        attempt: 1,
        time: 2.0,
        state,
        exit_code: Some(0),
        signal: None,
        reason: None,
        cause: (state == Outcome::Failed).then_some(Cause::OutOfMemory),
        duration_s: seconds,
        peak_memory: mib << 20,
        usage: Some(Box::new(usage)),
        result: None,
        log: None,
        last: false,
        seq: None,
    })
}

/// A sweep of two requests, the ends of which are these.
fn recorded(ends: &[Event]) -> World {
    let world = crate::support::gpus::idle(1);
    let rest = "]\n[resources]\nmemory = \"1G\"\nwalltime = \"2h\"\ngpus_per_rank = 1\ncpus_per_rank = 4\n\
                [[trials]]\ni = 0\n[[trials]]\ni = 1\n[[trials]]\ni = 2\n[[trials]]\ni = 3\n\
                [trials.resources]\nmemory = \"8G\"\ncpus_per_rank = 2\n";
    world.local(&plan("", rest), &["-q"]).ok();
    for (i, end) in ends.iter().enumerate() {
        let file = format!("results/s/records/000/{i}.1.jsonl");
        let text = world.read(&file);
        let start = text.lines().next().unwrap();
        let end = String::from_utf8(line::seal(end).unwrap()).unwrap();
        world.write(&file, &format!("{start}\n{end}"));
    }
    world
}

#[test]
fn usage_shows_what_was_asked_for_and_what_would_have_been_enough() {
    use Outcome::{Done, Timeout};
    let world = recorded(&[
        end(0, Done, 1800.0, 200, 3600.0),
        end(1, Done, 3600.0, 300, 3600.0),
        end(2, Timeout, 7200.0, 250, 3600.0),
        end(3, Done, 360.0, 7900, 180.0),
    ]);
    let page = r#"s: 4 attempts that ended, in $WORLD/results/s

4 cores, 1 GPU, 1G, 02:00:00: 3 trials, 2 done
            requested  median    p95       largest
  cores     4          1.00      2.00      2.00
  memory    1G         200M      300M      300M
  walltime  02:00:00   00:30:00  01:00:00  01:00:00
  GPUs      1          0.50      0.50      0.50
  hours  requested  used  wasted
  core        14.0  3.00  11.0 (79 %)
  GB          3.50  0.88  2.62 (75 %)
  GPU         3.50  1.75  1.75 (50 %)
  1 attempt reached the walltime: what they need is more
  would have been enough, with a margin of 1.2:
    [resources]
    cpus_per_rank = 3
    gpus_per_rank = 1
    memory = "384M"

2 cores, 1 GPU, 8G, 02:00:00: 1 trial, 1 done
            requested  median    p95       largest
  cores     2          0.50      0.50      0.50
  memory    8G         7900M     7900M     7900M
  walltime  02:00:00   00:06:00  00:06:00  00:06:00
  GPUs      1          0.50      0.50      0.50
  hours  requested   used  wasted
  core        0.20  0.050  0.15 (75 %)
  GB          0.80   0.77  0.029 (4 %)
  GPU         0.10  0.050  0.050 (50 %)
  would have been enough, with a margin of 1.2:
    [resources]
    cpus_per_rank = 1
    gpus_per_rank = 1
    memory = "8G"
    walltime = "00:08:00"

all together
  hours  requested  used  wasted
  core        14.2  3.05  11.2 (79 %)
  GB          4.30  1.65  2.65 (62 %)
  GPU         3.60  1.80  1.80 (50 %)
energy of GPUs: 1.00 kWh
"#;
    let ran = world.run(&["usage"]);
    assert_eq!(world.shown(ran.ok().as_bytes()), page);

    let json = |args: &[&str]| -> Value {
        serde_json::from_str(world.run(&[&["usage", "--json"], args].concat()).ok()).unwrap()
    };
    let all = json(&["--margin", "2"]);
    assert_eq!((&all["sweep"], &all["margin"]), (&json!("s"), &json!(2.0)));
    let shape = &all["shapes"][0];
    let expected = json!({ "median": 200.0, "p95": 300.0, "largest": 300.0 });
    assert_eq!((&shape["memory_mib"], &shape["out_of_time"]), (&expected, &json!(1)));
    let enough =
        json!({ "cpus_per_rank": 4, "gpus_per_rank": 1, "memory_mib": 608, "walltime_s": null });
    assert_eq!(shape["enough"], enough);
    // Sets of trials, as everywhere.
    let one = json(&["3"]);
    assert_eq!(one["shapes"].as_array().unwrap().len(), 1);
    assert_eq!(one["hours"]["core"]["requested"], json!(0.2));

    assert_eq!(
        world.run(&["usage", "--margin", "0.5"]).whole(),
        "error: `--margin 0.5` is not from 1 to 100\n\
         hint: 1.2 asks for a fifth more than the most that was used\nexit code 2\n"
    );
}

#[test]
fn an_attempt_is_compared_with_what_its_own_job_asked_for() {
    let pbs = crate::support::pbs_once::pbs();
    let code = "[ $HPCSWEEP_ATTEMPT = 2 ]";
    let plan = |memory: &str| shell(code, &format!("[resources]\nmemory = \"{memory}\"\n"));
    pbs.submit(&plan("1G"), &["-q"]).ok();
    pbs.wait_idle();
    pbs.submit(&plan("2G"), &["--retry", "-q"]).ok();
    pbs.wait_idle();
    let told: Value = serde_json::from_str(pbs.world.run(&["usage", "--json"]).ok()).unwrap();
    let mut shapes: Vec<String> = told["shapes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shape| format!("{} {}", shape["request"]["memory_mib"], shape["done"]))
        .collect();
    shapes.sort();
    assert_eq!(shapes, ["1024 0", "2048 1"]);
}

#[test]
fn status_names_gpus_that_a_running_trial_does_not_use() {
    let mut world = crate::support::gpus::idle(1);
    world.set("HPCSWEEP_GPU_SAMPLE_S", "0");
    // What a sampler would have logged in ten minutes.
    let idle = |seconds: u32| {
        format!(
            "{{\"gpu.0.utilization\": 0, \"gpu.0.idle_s\": {seconds}, \"gpu.1.utilization\": 9}}"
        )
    };
    let code = format!(
        "echo '{}' >>$HPCSWEEP_METRICS; until [ -e more ]; do sleep 0.01; done
        echo '{}' >>$HPCSWEEP_METRICS; until [ -e go ]; do sleep 0.01; done",
        idle(599),
        idle(725)
    );
    world.write("plan.toml", &shell(&code, "[resources]\ngpus_per_rank = 1\n"));
    let run = world.start(&["submit", "plan.toml", "--local", "-q"]);
    let record = "results/s/records/000/0.1.jsonl";
    wait_until("a sample is recorded", || {
        world.exists(record) && world.read(record).contains("idle_s\":599")
    });
    assert!(!world.run(&["status"]).out.contains("unused"));
    world.write("more", "");
    let line = "unused: GPU 0 of trial 0 has done nothing for 12 min 05 s\n";
    wait_until("status says so", || world.run(&["status"]).out.contains(line));
    let told: Value = serde_json::from_str(&world.run(&["status", "--json"]).out).unwrap();
    assert_eq!(told["idle_gpus"], json!([{ "trial": 0, "gpu": 0, "idle_s": 725.0 }]));
    world.write("go", "");
    run.end(&world).ok();
    assert!(!world.run(&["status"]).out.contains("unused"));
}
