//! A PBS for one test: the scheduler of `tests/pbs`, in a world of its own.
//!
//! It really runs the jobs that are submitted to it, and answers as a real OpenPBS was observed to answer. None
//! of its processes outlives the test, however the test ends: it serves until its standard input closes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value, json};

use crate::support::world::{ROOT, Ran, World, missing, wait_until};

/// Shell code that starts a server, which serves until the shell ends, and waits until it does.
pub(crate) fn server() -> String {
    format!(
        "exec 3> >(exec '{ROOT}/tests/pbs/server' >served); until grep -qs ready served; do sleep 0.01; done"
    )
}

/// A running PBS, and the world that submits to it.
pub(crate) struct Pbs {
    pub(crate) world: World,
    server: Child,
    config: Map<String, Value>,
}

impl Pbs {
    /// Starts one that is as quick as a test wants it.
    pub(crate) fn start() -> Self {
        let (world, config) = Self::place();
        let home = world.text_path("pbs");
        let program = format!("{ROOT}/tests/pbs/server");
        let mut server = Command::new(&program)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TEST_PBS_HOME", &home)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}", missing(&program, &e)));
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the test scheduler did not start");
        Self { world, server, config }
    }

    /// A world with all of it but the server, which a test starts itself with [`server`].
    pub(crate) fn place() -> (World, Map<String, Value>) {
        let mut world = World::new();
        let home = world.text_path("pbs");
        world.set("TEST_PBS_HOME", &home);
        let path =
            format!("{}:{ROOT}/tests/pbs/bin:/usr/local/bin:/usr/bin:/bin", world.text_path("bin"));
        world.set("PATH", &path);
        fs::create_dir(&home).unwrap();
        let config = json!({
            "kill_delay": 0.5, "walltime_poll": 0.05, "cycle": 0.01,
        });
        let Value::Object(config) = config else { unreachable!() };
        write_config(&world, &config);
        (world, config)
    }

    /// Changes its configuration, which it reads again before each request: the keys are in `tests/pbs/pbs/config.py`.
    pub(crate) fn config(&mut self, change: impl FnOnce(&mut Map<String, Value>)) {
        change(&mut self.config);
        write_config(&self.world, &self.config);
    }

    /// Sets one key of its configuration.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.config(|c| {
            c.insert(key.to_owned(), value);
        });
    }

    /// Writes `plan.toml` and submits it here.
    pub(crate) fn submit(&self, plan: &str, args: &[&str]) -> Ran {
        self.world.write("plan.toml", plan);
        self.again(args)
    }

    /// Submits what is in `plan.toml`.
    pub(crate) fn again(&self, args: &[&str]) -> Ran {
        self.world.run(&[&["submit", "plan.toml", "--pbs"], args].concat())
    }

    /// Writes the site profile.
    pub(crate) fn site(&self, text: &str) {
        self.world.write("home/config/hpcsweep/site.toml", &format!("version = 1\n{text}"));
    }

    /// The states of all trials of the one sweep here, in their order, each with its reason.
    #[track_caller]
    pub(crate) fn standings(&self) -> Vec<String> {
        let status = self.world.status();
        let trials = status["trials"].as_array().unwrap().iter();
        let word = |trial: &Value, name: &str| trial[name].as_str().unwrap().to_owned();
        trials
            .map(|t| format!("{}: {}", word(t, "state"), word(t, "reason")))
            .map(|t| t.trim_end_matches([' ', ':']).to_owned())
            .collect()
    }

    /// The rows of the table of results, without what differs from run to run and from place to place.
    #[track_caller]
    pub(crate) fn results(world: &World) -> Vec<BTreeMap<String, Value>> {
        let mut rows = world.table(&[]);
        for row in &mut rows {
            for name in ["duration_s", "last_duration_s", "host", "peak_memory", "job"] {
                assert!(row.remove(name).is_some(), "no column {name}");
            }
            row.retain(|name, _| {
                !matches!(name.as_str(), "cpu_s" | "read_bytes" | "written_bytes")
            });
        }
        rows
    }

    /// The names of all jobs that it was ever given, in the order of their submission.
    pub(crate) fn names(&self) -> Vec<String> {
        let jobs = self.jobs();
        let name = |(id, _): &(String, String)| jobs[id]["Job_Name"].as_str().unwrap().to_owned();
        self.states().iter().map(name).collect()
    }

    /// All jobs and elements that it knows, by their identifiers, history included, without any lie of JSON.
    pub(crate) fn jobs(&self) -> BTreeMap<String, Value> {
        let mut stream = UnixStream::connect(self.world.path("pbs/socket")).unwrap();
        stream.write_all(b"_jobs\0/\x000").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once('\n').unwrap();
        assert!(head.starts_with("0 "), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    /// Waits until no job is queued, held, running or begun.
    #[track_caller]
    pub(crate) fn wait_idle(&self) {
        wait_until("PBS is idle", || self.jobs().values().all(|job| job["job_state"] == "F"));
    }

    /// Waits until no job is queued, running or begun. A submission that was killed leaves jobs held.
    #[track_caller]
    pub(crate) fn wait_quiet(&self) {
        let is_quiet = |(_, state): &(String, String)| matches!(state.as_str(), "F" | "H");
        wait_until("PBS runs nothing", || self.states().iter().all(is_quiet));
    }

    /// The states of all jobs in the order of their submission, without their elements.
    pub(crate) fn states(&self) -> Vec<(String, String)> {
        let whole = |id: &&String| {
            let bracket = id.find('[');
            bracket.is_none_or(|at| id[at..].starts_with("[]"))
        };
        let jobs = self.jobs();
        let state = |id: &String| jobs[id]["job_state"].as_str().unwrap().to_owned();
        let mut found: Vec<_> =
            jobs.keys().filter(whole).map(|id| (id.clone(), state(id))).collect();
        found.sort_by_key(|(id, _)| sequence(id));
        found
    }
}

impl Drop for Pbs {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// The number of a job.
fn sequence(id: &str) -> u64 {
    id.split(['.', '[']).next().unwrap().parse().unwrap()
}

/// Replaced in one step: it is read at any moment.
fn write_config(world: &World, config: &Map<String, Value>) {
    world.write("pbs/config.json.new", &Value::Object(config.clone()).to_string());
    fs::rename(world.path("pbs/config.json.new"), world.path("pbs/config.json")).unwrap();
}

/// The folder of the scheduler's own tests.
pub(crate) fn folder() -> std::path::PathBuf {
    Path::new(ROOT).join("tests/pbs")
}
