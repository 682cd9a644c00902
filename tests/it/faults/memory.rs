//! Programs, files and other users' sweeps cannot fill the memory of a process that reads them, or block it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flate2::write::{DeflateEncoder, GzEncoder};
use hpcsweep::base::host::process;
use hpcsweep::train::data::files::Arrays;

use crate::support::agents::SHORT;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, ROOT, World, only, wait_until};

/// Names what [`the_process_that_measures`] runs, and the file to which it says what it has measured.
const MEASURED: [&str; 2] = ["HPCSWEEP_TEST_RUNS", "HPCSWEEP_TEST_MEMORY"];

/// Runs a program to its end: its exit code, and the largest memory that it, or a process below it, had resident, MiB.
///
/// Linux counts as a program's own what the process had that became it. So a small process starts it, and not this one.
fn measured(command: &Command) -> (i32, u64) {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut argv = vec![command.get_program().to_str().unwrap()];
    argv.extend(command.get_args().map(|word| word.to_str().unwrap()));
    let mut measurer = Command::new(std::env::current_exe().unwrap());
    measurer.args(only(module_path!(), "the_process_that_measures")).stdout(Stdio::null());
    measurer.env_clear();
    measurer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    measurer.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    measurer.env(MEASURED[0], argv.join("\x1f")).env(MEASURED[1], said.path());
    assert!(measurer.status().unwrap().success());
    let text = fs::read_to_string(said.path()).unwrap();
    let (code, memory) = text.split_once(' ').unwrap();
    (code.parse().unwrap(), memory.parse::<u64>().unwrap() >> 20)
}

/// No test of its own: see [`measured`].
#[test]
fn the_process_that_measures() {
    let [Ok(argv), Ok(to)] = MEASURED.map(std::env::var) else { return };
    let said = fs::File::create("said").unwrap();
    let mut words = argv.split('\x1f');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_remove(MEASURED[0]).env_remove(MEASURED[1]).stdin(Stdio::null());
    command.stdout(said.try_clone().unwrap()).stderr(said);
    #[expect(clippy::zombie_processes, reason = "reaped below, with what it used")]
    let child = command.spawn().unwrap();
    // As long as it takes: on a busy machine, a million lines take minutes.
    let (status, spent) = loop {
        match process::reap(child.id()).unwrap() {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    fs::write(to, format!("{} {}", process::code_of(status), spent.memory)).unwrap();
}

/// As [`measured`], of hpcsweep; its output on both streams, and its exit code.
fn hpcsweep(world: &World, args: &[&str]) -> (String, i32, u64) {
    let mut command = world.command(PROGRAM);
    let (code, memory) = measured(command.args(args));
    (world.read("said"), code, memory)
}

/// A program that writes so many metric lines, as awk prints them.
fn logs(lines: u32, line: &str) -> String {
    format!(
        "awk 'BEGIN {{ for (i = 0; i < {lines}; i++) printf \"{line}\\n\", i, i }}' >$HPCSWEEP_METRICS"
    )
}

#[test]
fn a_hundred_thousand_lines_of_one_key_each_are_a_table_of_steps() {
    let world = World::new();
    world.local(&shell(&logs(100_000, "{\\\"k%d\\\": %d}"), ""), &["-q"]).ok();
    let args = ["collect", "--steps", "--format", "jsonl", "-o", "steps.jsonl"];
    let (said, code, memory) = hpcsweep(&world, &args);
    assert_eq!(code, 0, "{said}");
    let steps = world.read("steps.jsonl");
    assert_eq!(steps.lines().count(), 100_000);
    assert!(steps.lines().nth(70_000).unwrap().contains("\"k70000\":70000"));
    assert!(memory < 300, "{memory} MiB");
    // As CSV it would be ten thousand million cells, most of them empty.
    let (said, code, memory) = hpcsweep(&world, &["collect", "--steps", "--format", "csv"]);
    assert!(code == 2 && said.contains("a table of 100,002 columns"), "{said}");
    assert!(memory < 300, "{memory} MiB");
}

#[test]
fn a_million_metric_lines_of_one_trial_cost_its_worker_and_readers_no_memory() {
    let world = World::new();
    world.write("plan.toml", &shell(&logs(1_000_000, "{\\\"s\\\":%d}"), ""));
    // Also where they are written all at once and the program ends.
    let (said, code, memory) = hpcsweep(&world, &["submit", "plan.toml", "--local", "-q"]);
    assert_eq!((said.as_str(), code), ("", 0));
    assert!(memory < 200, "the worker: {memory} MiB");
    let (said, code, memory) = hpcsweep(&world, &["status", "--json"]);
    assert!(code == 0 && said.contains("\"unread_lines\":0"), "{said}");
    assert!(memory < 100, "status: {memory} MiB");
    let (said, code, memory) = hpcsweep(&world, &["collect", "--format", "jsonl"]);
    assert!(code == 0 && said.contains("\"s\":999999"), "{said}");
    assert!(memory < 150, "collect: {memory} MiB");
}

#[test]
fn a_hundred_thousand_trials_of_agents_cost_readers_little_memory() {
    let world = World::new();
    crate::support::agents::made_up(&world, 100_000, 4);
    let (said, code, status) = hpcsweep(&world, &["status", "--json"]);
    assert!(code == 0 && said.contains("\"done\":89636"), "{code}: {said:.100}");
    let args = ["collect", "--format", "jsonl"];
    let (said, code, collect) = hpcsweep(&world, &args);
    assert_eq!((code, said.lines().count()), (0, 100_000));
    assert!(status < 250 && collect < 300, "status: {status} MiB, collect: {collect} MiB");
}

#[test]
fn an_agent_takes_all_metric_lines_of_a_short_trial_a_piece_at_a_time() {
    let world = World::new();
    world.write(
        "plan.toml",
        &shell(&logs(200_000, "{\\\"loss of step\\\": %d, \\\"twice\\\": %d}"), ""),
    );
    let (said, code, memory) = hpcsweep(&world, &["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(code, 0, "{said}");
    assert!(memory < 150, "{memory} MiB");
    let (said, ..) = hpcsweep(&world, &["collect", "--steps", "--format", "jsonl"]);
    assert_eq!(said.lines().count(), 200_000);
}

#[test]
fn ranks_that_never_end_a_line_fill_no_memory() {
    let world = World::new();
    let mib = 64;
    let code = format!("yes x | tr -d '\\n' | head -c {mib}M; echo; echo end");
    world.write("plan.toml", &shell(&code, "[resources]\nranks = 2\n"));
    let (said, code, memory) = hpcsweep(&world, &["submit", "plan.toml", "--local", "-q"]);
    assert_eq!((said.as_str(), code), ("", 0));
    assert!(memory < mib, "{memory} MiB for lines of {mib}");
    let log = world.read("results/s/logs/000/0.1.log");
    for rank in ["[rank 0] ", "[rank 1] "] {
        let own = log.lines().filter_map(|line| line.strip_prefix(rank));
        let (xs, others): (Vec<&str>, Vec<&str>) = own.partition(|line| line.starts_with('x'));
        assert_eq!(xs.iter().map(|line| line.len()).sum::<usize>(), (mib as usize) << 20);
        assert_eq!(others, ["end"]);
    }
}

#[test]
fn a_log_of_any_length_is_printed_a_piece_at_a_time() {
    let world = World::new();
    // Holes: no disk is filled. What reads them has to hold them, or pass them on.
    let long = |file: &str| shell(&format!("echo begin; truncate -s 1G {file}"), "");
    let printed = |args: &str| {
        let counts = format!("{{ {PROGRAM} {args}; echo $? >code; }} 2>err | wc -c");
        let mut command = world.command("sh");
        let (_, memory) = measured(command.args(["-c", &counts]));
        assert_eq!(world.read("code"), "0\n", "{}", world.read("err"));
        assert!(memory < 100, "{args}: {memory} MiB");
        world.read("said").trim().parse::<u64>().unwrap()
    };
    // Of a run on this machine, which goes the way of all that a worker has run.
    let own = "\"$HPCSWEEP_SWEEP_DIR\"/logs/000/0.1.log";
    world.local(&long(own), &["-q"]).ok();
    assert_eq!(printed("logs 0"), 1 << 30);
    // Of an agent: one that has ended, and one that runs.
    let world_of_agents = "name = \"pulled\"";
    let slot = "\"$HPCSWEEP_SWEEP_DIR\"/agents/*/*.0.log";
    let wait = "until [ -e go ]; do sleep 0.01; done";
    let plan = shell(&format!("echo begin; truncate -s 1G {slot}; >ready; {wait}"), "");
    world.write("plan.toml", &plan.replace("name = \"s\"", world_of_agents));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("the trial has printed", || world.exists("ready"));
    assert_eq!(printed("logs 0 results/pulled"), 1 << 30);
    world.write("go", "");
    agent.end(&world).ok();
    assert_eq!(printed("logs 0 results/pulled"), 1 << 30);
    // Of a trial that is only tried out.
    world.write("plan.toml", &long(own));
    assert_eq!(printed("submit plan.toml --smoke"), 1 << 30);
}

#[test]
fn an_agent_that_takes_over_reads_no_metrics_of_the_dead_one_into_its_memory() {
    let world = World::new();
    // The first run logs so many lines; its agent is killed when it has taken them.
    let code = format!(
        "[ -e first ] && exit; >first; {}; >logged; while :; do sleep 0.01; done",
        logs(400_000, "{\\\"s\\\":%d}")
    );
    world.write("plan.toml", &shell(&code, SHORT));
    let agent = ["worker", "--pull", "plan.toml", "--slots", "1"];
    let dead = world.start(&agent);
    let is_there = |file: &str| file.ends_with(".jsonl");
    let taken = || {
        let files = world.files("results/s/agents");
        let bundle = files.iter().find(|file| is_there(file)).expect("it has joined");
        world.read(&format!("results/s/agents/{bundle}")).contains("{\"s\":399999}")
    };
    wait_until("the lines are there", || world.exists("logged"));
    wait_until("the agent has taken them", taken);
    dead.signal(nix::sys::signal::Signal::SIGKILL);
    let (said, code, memory) = hpcsweep(&world, &agent);
    assert_eq!(code, 0, "{said}");
    assert!(memory < 100, "{memory} MiB");
    let (said, ..) = hpcsweep(&world, &["collect", "--format", "jsonl"]);
    assert!(said.contains("\"s\":399999"), "{said}");
}

/// Replaces a file by something that is not a file.
fn replace(path: &Path, kind: &str) {
    fs::remove_file(path).unwrap();
    match kind {
        "a pipe" => nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        "a hole" => fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
        // Of a size that is read.
        "a small hole" => fs::File::create(path).unwrap().set_len(2 << 30).unwrap(),
        device => std::os::unix::fs::symlink(device, path).unwrap(),
    }
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_any_file_holds_no_reader_up() {
    let world = World::new();
    let source = Path::new(ROOT).join("tests/cases/tree-2");
    for sweep in ["given", "pulled"] {
        let to = world.text_path(sweep);
        world.call("cp", &["-r", source.join(sweep).to_str().unwrap(), &to]).ok();
        for file in world.files(sweep) {
            let path = world.path(sweep).join(&file);
            let whole = fs::read(&path).unwrap();
            for kind in ["a pipe", "/dev/zero", "a hole", "a small hole"] {
                replace(&path, kind);
                for verb in ["status", "collect"] {
                    // It ends: with its file left out, or with one sentence that names it.
                    let (said, code, memory) = hpcsweep(&world, &[verb, "--offline", &to]);
                    let is_read = !file.contains("logs/") && !file.ends_with(".log");
                    assert!(
                        code != 0 || !is_read || file == "plan.toml",
                        "{verb}: {kind} as {file}: {said}"
                    );
                    assert!([0, 1, 4].contains(&code), "{verb}: {kind} as {file}: {code}: {said}");
                    assert!(memory < 100, "{verb}: {kind} as {file}: {memory} MiB");
                }
                fs::remove_file(&path).unwrap();
                fs::write(&path, &whole).unwrap();
            }
        }
    }
}

/// Zeros, packed a thousandfold: a piece of so many MiB again and again. `pack` ends it where a piece may follow.
fn zeros(pack: impl Fn(&[u8]) -> Vec<u8>, mib: usize) -> Vec<u8> {
    pack(&vec![0; 1 << 20]).repeat(mib)
}

/// An `.npz` of one array, packed by deflate: its bytes when packed, and how many the archive says there are unpacked.
fn npz(packed: &[u8], size: u32) -> Vec<u8> {
    let name = b"x.npy";
    let mut common = Vec::new();
    common.extend([20, 0, 0, 0, 8, 0, 0, 0, 0, 0]); // version, flags, deflate, time and date
    common.extend([0; 4]); // a checksum that nobody gets to
    common.extend((packed.len() as u32).to_le_bytes());
    common.extend(size.to_le_bytes());
    common.extend((name.len() as u16).to_le_bytes());
    common.extend([0, 0]);
    let mut file = [b"PK\x03\x04", &common[..], name, packed].concat();
    let at = file.len() as u32;
    file.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 14], name].concat().iter());
    let length = file.len() as u32 - at;
    file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    file.extend(length.to_le_bytes());
    file.extend(at.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// The header of an `.npy` file.
fn npy(shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape},), }}\n");
    [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    // On a byte's boundary, and without an end.
    out.flush().unwrap();
    out.get_ref().clone()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A reader's error about a bomb. This process reads it: the test below measures its memory.
fn told(bytes: Vec<u8>, suffix: &str) -> String {
    let arrays = Arrays::read(bytes.into(), suffix, "`f`".into());
    arrays.and_then(|arrays| arrays.array("x")).unwrap_err().sentence
}

/// Set in the process whose memory is measured.
const HERE: &str = "HPCSWEEP_TEST_BOMBS";

#[test]
fn a_small_file_that_unpacks_to_gigabytes_is_refused() {
    if std::env::var_os(HERE).is_none() {
        let world = World::new();
        let mut command = world.command(std::env::current_exe().unwrap().to_str().unwrap());
        let name = "a_small_file_that_unpacks_to_gigabytes_is_refused";
        let (code, memory) = measured(command.args(only(module_path!(), name)).env(HERE, "1"));
        assert_eq!(code, 0, "{}", world.read("said"));
        assert!(memory < 300, "{memory} MiB");
        return;
    }
    // Four gigabytes, and a header that says so.
    let head = [0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff];
    let honest = [gzipped(&head), zeros(gzipped, 4096)].concat();
    let said = told(honest, "gz");
    assert!(said.starts_with("`f` says that it unpacks from "), "{said}");
    assert!(said.ends_with(" to 4,294,967,303 bytes"), "{said}");
    let packed = [deflated(&npy("4294967000")), zeros(deflated, 4096)].concat();
    let said = told(npz(&packed, u32::MAX), "npz");
    assert!(said.starts_with("array `x` of `f` says that it unpacks from "), "{said}");
    // The same behind a header that states four bytes.
    let lying = [gzipped(&[0, 0, 8, 1, 0, 0, 0, 4]), zeros(gzipped, 4096)].concat();
    assert_eq!(told(lying, "gz"), "`f` holds more than the 12 bytes that its header tells of");
    let packed = [deflated(&npy("4")), zeros(deflated, 4096)].concat();
    let said = told(npz(&packed, 64), "npz");
    assert!(said.starts_with("array `x` of `f` "), "{said}");
    // Bytes without a header.
    assert_eq!(told(zeros(gzipped, 4096), "gz"), "`f` holds no IDX file");
    let said = told(npz(&zeros(deflated, 4096), u32::MAX), "npz");
    assert!(said.ends_with("is not a `.npy` file: it does not begin as one"), "{said}");
}
