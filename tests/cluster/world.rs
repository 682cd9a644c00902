//! A place of its own for each test: a folder that all nodes see, a home, a sweep, and programs that
//! stand in for the scheduler's. Long because every test of the clusters is written in its words.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Which of the two clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// No accounting; what has ended is forgotten after 2 s; MaxJobCount 1500.
    Plain,
    /// slurmdbd; MaxArraySize 20, MaxSubmitJobs 300.
    Accounting,
}

pub(crate) const BOTH: [Cluster; 2] = [Cluster::Plain, Cluster::Accounting];

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct World {
    folder: tempfile::TempDir,
    conf: PathBuf,
    pub(crate) cluster: Cluster,
    /// The sweep's name; names of its jobs begin with it and a dot.
    pub(crate) name: String,
    /// More variables for every command.
    vars: RefCell<BTreeMap<String, String>>,
}

impl World {
    pub(crate) fn new(cluster: Cluster, name: &str) -> Self {
        let variable = match cluster {
            Cluster::Plain => "HPCSWEEP_TEST_CLUSTER",
            Cluster::Accounting => "HPCSWEEP_TEST_CLUSTER_ACCOUNTING",
        };
        let Some(dir) = std::env::var_os(variable) else {
            panic!(
                "{variable} is not set: these tests need a Slurm of their own, and scripts/test starts it"
            );
        };
        let there = Path::new(&dir).join("slurm.conf").is_file();
        assert!(there, "{variable}: no cluster in {}: scripts/test starts one", dir.display());
        Self::on(Path::new(&dir), cluster, name)
    }

    /// On a cluster in this folder that is like one of the two.
    pub(crate) fn on(dir: &Path, cluster: Cluster, name: &str) -> Self {
        let conf = dir.join("slurm.conf");
        let folder = tempfile::Builder::new().prefix("hpcsweep-cluster-").tempdir().unwrap();
        let world = Self {
            folder,
            conf,
            cluster,
            name: name.to_owned(),
            vars: RefCell::new(BTreeMap::new()),
        };
        for dir in ["bin", "home", "tmp"] {
            fs::create_dir(world.path(dir)).unwrap();
        }
        world.site("");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn conf(&self) -> &Path {
        &self.conf
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        self.vars.borrow_mut().insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn program(&self, name: &str, text: &str) {
        // Renamed into place: a program that is being written cannot be started.
        let aside = format!("{name}.new");
        self.write(&aside, text);
        fs::set_permissions(self.path(&aside), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(self.path(&aside), self.path(name)).unwrap();
    }

    /// The text of a file; empty if the file does not exist yet.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The lines of a file, sorted as numbers where they are.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.read(name).lines().map(str::to_owned).collect();
        lines.sort_by_key(|line| (line.parse::<u64>().unwrap_or(u64::MAX), line.clone()));
        lines
    }

    /// Names of all files under a folder of the sweep, sorted.
    pub(crate) fn files(&self, under: &str) -> Vec<String> {
        fn walk(dir: &Path, out: &mut Vec<String>) {
            for entry in fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, out) } else { out.push(path.display().to_string()) }
            }
        }
        let mut out = Vec::new();
        walk(&self.sweep().join(under), &mut out);
        let base = format!("{}/", self.sweep().display());
        let mut names: Vec<String> = out.iter().map(|p| p.replacen(&base, "", 1)).collect();
        names.sort();
        names
    }

    pub(crate) fn sweep(&self) -> PathBuf {
        self.path("results").join(&self.name)
    }

    /// The user's site profile.
    pub(crate) fn site(&self, text: &str) {
        let settle = if text.contains("settle_s") { "" } else { "limits.settle_s = 2\n" };
        self.write("home/.config/hpcsweep/site.toml", &format!("version = 1\n{settle}{text}"));
    }

    /// The plan: head and small resources, then `run`, a script of sh with `$HERE` for this place, then
    /// the rest, which begins with keys of `[run]`.
    pub(crate) fn plan(&self, script: &str, rest: &str) {
        let resources = if rest.contains("[resources]") {
            String::new()
        } else {
            "\n[resources]\nmemory = \"50M\"\nwalltime = \"00:10:00\"\n".to_owned()
        };
        let script = format!("HERE={}\n{script}", self.folder.path().display());
        let script = toml::Value::String(script);
        self.write(
            "plan.toml",
            &format!(
                "version = 1\nsweep = {{ name = \"{}\", root = \"results\" }}\n\n\
                 [run]\ncommand = [\"sh\", \"-c\", {script}]\n{rest}\n{resources}",
                self.name
            ),
        );
    }

    /// Puts a shell script in the place of a program of the scheduler; `$REAL` is the real one.
    pub(crate) fn fake(&self, program: &str, script: &str) {
        let here = self.folder.path().display();
        let real = format!("/usr/bin/{program}");
        assert!(Path::new(&real).exists(), "{real} is missing: run `scripts/setup --for test`");
        let text = format!("#!/bin/sh\nREAL={real}\nHERE={here}\n{script}\n");
        self.program(&format!("bin/{program}"), &text);
    }

    /// Takes a stand-in away.
    pub(crate) fn real(&self, program: &str) {
        fs::remove_file(self.path("bin").join(program)).unwrap();
    }

    /// Counts the calls of sbatch from now on.
    pub(crate) fn count_calls(&self) {
        self.fake("sbatch", "echo call >>$HERE/calls\nexec $REAL \"$@\"");
    }

    pub(crate) fn calls(&self) -> usize {
        self.lines("calls").len()
    }

    /// A command in this place, with nothing in its environment but what a login shell would have.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display()))
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", self.path("tmp"))
            .env("SLURM_CONF", &self.conf)
            .envs(self.vars.borrow().iter())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn hpcsweep(&self, args: &[&str]) -> Ran {
        let output = self.command(env!("CARGO_BIN_EXE_hpcsweep")).args(args).output().unwrap();
        self.ran(&output)
    }

    /// `hpcsweep submit plan.toml --slurm`, still running.
    pub(crate) fn submitting(&self) -> Child {
        self.command(env!("CARGO_BIN_EXE_hpcsweep"))
            .args(["submit", "plan.toml", "--slurm"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(crate) fn submit(&self) -> Ran {
        self.hpcsweep(&["submit", "plan.toml", "--slurm"])
    }

    pub(crate) fn ran(&self, output: &Output) -> Ran {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(self.folder.path().to_str().unwrap(), "HERE")
        };
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// A real command of the scheduler, or any other, that must succeed.
    pub(crate) fn call(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until something is there.
    pub(crate) fn until<T>(&self, what: &str, mut there: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = there() {
                return found;
            }
            assert!(Instant::now() < end, "{}: still not {what}", self.name);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a file has this many lines.
    pub(crate) fn until_lines(&self, name: &str, count: usize) {
        self.until(&format!("{count} lines in {name}"), || {
            (self.lines(name).len() >= count).then_some(())
        });
    }

    pub(crate) fn status(&self) -> Status {
        let sweep = format!("results/{}", self.name);
        let ran = self.hpcsweep(&["status", "--json", &sweep]);
        assert!(ran.code == 0 || ran.code == 1, "status: {ran:?}");
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        let status = Status { json, code: ran.code };
        let sum: u64 = status.counts().values().sum();
        assert_eq!(Some(sum), status.json["trials_total"].as_u64(), "{}", status.json);
        assert_eq!(Some(sum as usize), status.json["trials"].as_array().map(Vec::len));
        status
    }

    /// Submits what failed again. While Slurm is still ending its job, a trial is left alone.
    pub(crate) fn retry(&self) {
        self.until("submitted again", || {
            let ran = self.hpcsweep(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
            (!ran.stderr.contains("still queued or running")).then_some(())
        });
    }

    /// Waits until nothing of the sweep runs or waits; each look on the way must add up.
    pub(crate) fn finished(&self) -> Status {
        self.until("finished", || {
            let status = self.status();
            status.is_final().then_some(status)
        })
    }

    /// The job ids of the sweep's arrays, as `hpcsweep` knows them.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let jobs = self.status().json["jobs"].clone();
        serde_json::from_value(jobs).unwrap()
    }

    /// The elements whose job name has this sweep's token, in the queue (as long as it knows ended ones)
    /// and in the accounts.
    pub(crate) fn elements(&self) -> Vec<String> {
        let identity = self.read(&format!("results/{}/sweep.json", self.name));
        let identity: Value = serde_json::from_str(&identity).unwrap();
        let prefix = format!("{}.{}.", self.name, identity["token"].as_str().unwrap());
        let ours = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.split_once('|'));
            lines
                .filter(|(_, name)| name.starts_with(&prefix))
                .map(|(id, _)| id.to_owned())
                .collect()
        };
        let squeue = ["--noheader", "--array", "--states=all", "--format=%i|%j"];
        let mut ids = ours(&self.call("/usr/bin/squeue", &squeue));
        if self.cluster == Cluster::Accounting {
            let sacct = ["--noheader", "--parsable2", "--allocations", "--format=JobID,JobName"];
            let accounts = ours(&self.call("/usr/bin/sacct", &sacct));
            // sacct lists elements that have not begun on one line. squeue has listed them one by
            // one.
            ids.extend(accounts.into_iter().filter(|id| id.contains('_') && !id.contains('[')));
        }
        ids.sort();
        ids.dedup();
        ids
    }

    /// Waits until Slurm has forgotten every job of the sweep.
    pub(crate) fn forgotten(&self) {
        assert_eq!(self.cluster, Cluster::Plain);
        self.until("forgotten by Slurm", || self.elements().is_empty().then_some(()));
    }

    /// The sweep's table, as `collect` writes it.
    pub(crate) fn table(&self, columns: &[&str]) -> Vec<String> {
        let sweep = format!("results/{}", self.name);
        let ran = self.hpcsweep(&["collect", "--format", "csv", &sweep]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let mut reader = csv::Reader::from_reader(ran.stdout.as_bytes());
        let head: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let place = |name: &&str| {
            head.iter()
                .position(|h| h == name)
                .unwrap_or_else(|| panic!("no column {name}: {head:?}"))
        };
        let places: Vec<usize> = columns.iter().map(place).collect();
        reader
            .records()
            .map(|row| {
                let row = row.unwrap();
                let cells: Vec<&str> = places.iter().map(|&i| &row[i]).collect();
                cells.join(" ").trim_end().to_owned()
            })
            .collect()
    }

    /// That each of `n` trials has run exactly once and is done. Trials must append their number to `ran`.
    pub(crate) fn assert_each_ran_once(&self, n: u64) {
        let status = self.finished();
        assert_eq!(status.counts(), BTreeMap::from([("done".to_owned(), n)]), "{}", self.report());
        let numbers: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        assert_eq!(self.lines("ran"), numbers, "{}", self.report());
        assert!(status.trials().iter().all(|t| t["attempts"] == 1), "{}", status.json);
        assert_eq!(self.files("records").len() as u64, n);
        if self.cluster == Cluster::Accounting {
            // The accounting learns of jobs late; more than `n` of them would be one too many.
            self.until("known to the accounts", || {
                (self.elements().len() as u64 >= n).then_some(())
            });
            let all = self.elements();
            assert_eq!(all.len() as u64, n, "{all:?}");
        }
    }

    /// What helps to understand a failure.
    pub(crate) fn report(&self) -> String {
        let sweep = format!("results/{}", self.name);
        let status = self.hpcsweep(&["status", "--trials", &sweep]);
        let mut text = format!("{}{}", status.stdout, status.stderr);
        for name in self.files("journal").iter().chain(&self.files("logs")) {
            let said = self.read(&format!("{sweep}/{name}"));
            text.push_str(&format!("--- {name}\n{said}"));
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("=== {} on {:?}:\n{}", self.name, self.cluster, self.report());
        }
        let squeue = self
            .command("/usr/bin/squeue")
            .args(["--noheader", "--array", "--format=%i %j"])
            .output();
        let text =
            squeue.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        let prefix = format!("{}.", self.name);
        let left = text.lines().filter_map(|line| line.split_once(' '));
        let left: Vec<&str> =
            left.filter(|(_, name)| name.starts_with(&prefix)).map(|(id, _)| id).collect();
        if !left.is_empty() {
            let _ = self.command("/usr/bin/scancel").args(left).status();
        }
    }
}

/// The output of a run of `hpcsweep`.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    /// It failed with this code and printed exactly this.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, said: &str) {
        assert_eq!((self.code, self.stderr.as_str(), self.stdout.as_str()), (code, said, ""));
    }
}

/// An answer of `hpcsweep status --json`.
pub(crate) struct Status {
    pub(crate) json: Value,
    pub(crate) code: i32,
}

impl Status {
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        serde_json::from_value(self.json["counts"].clone()).unwrap()
    }

    pub(crate) fn trials(&self) -> &[Value] {
        self.json["trials"].as_array().unwrap()
    }

    /// `state` or `state: reason` of each trial.
    pub(crate) fn standings(&self) -> Vec<String> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.trials()
            .iter()
            .map(|t| match word(&t["reason"]) {
                reason if reason.is_empty() => word(&t["state"]),
                reason => format!("{}: {reason}", word(&t["state"])),
            })
            .collect()
    }

    pub(crate) fn states(&self) -> Vec<String> {
        self.trials().iter().map(|t| t["state"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn is_final(&self) -> bool {
        const ENDS: [&str; 8] = [
            "done",
            "failed",
            "timeout",
            "interrupted",
            "skipped",
            "cancelled",
            "lost",
            "doubtful",
        ];
        self.states().iter().all(|state| ENDS.contains(&state.as_str()))
    }
}
