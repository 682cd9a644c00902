//! A place of its own for one test: a temporary folder, a home, an environment without anything of the
//! person who runs the tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");

/// The folder of the sources.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// How long an event is waited for. Far more than any takes: reaching it means it does not happen.
const PATIENCE: Duration = Duration::from_secs(240);

/// The outcome of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Exit code; 128 + signal when it was killed.
    pub(crate) code: i32,
    /// Standard output, the world's folder as `$WORLD`.
    pub(crate) out: String,
    /// Standard error, likewise.
    pub(crate) err: String,
}

impl Ran {
    /// Its whole output and its exit code, for comparing in one piece.
    pub(crate) fn whole(&self) -> String {
        format!("{}{}exit code {}\n", self.out, self.err, self.code)
    }

    /// Fails the test unless the program succeeded, and returns its standard output.
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "{}", self.whole());
        &self.out
    }
}

/// A temporary folder with a home in it.
pub(crate) struct World {
    folder: tempfile::TempDir,
    vars: BTreeMap<String, String>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::named("hpcsweep-it-")
    }

    /// A world whose path holds these characters.
    pub(crate) fn named(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let vars = BTreeMap::from([
            ("PATH".to_owned(), format!("{}:/usr/local/bin:/usr/bin:/bin", at("bin"))),
            ("HOME".to_owned(), at("home")),
            ("TMPDIR".to_owned(), at("tmp")),
            ("XDG_CONFIG_HOME".to_owned(), at("home/config")),
            ("XDG_STATE_HOME".to_owned(), at("home/state")),
            ("XDG_CACHE_HOME".to_owned(), at("home/cache")),
            ("XDG_DATA_HOME".to_owned(), at("home/data")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
        ]);
        Self { folder, vars }
    }

    /// Sets a variable for everything that is started in this world.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.vars.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, making its folders.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a program that is found through PATH.
    pub(crate) fn program(&self, name: &str, text: &str) {
        self.write(&format!("bin/{name}"), text);
        let path = self.path(&format!("bin/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// All journals of a sweep, one after the other.
    pub(crate) fn journal(&self, sweep: &str) -> String {
        let folder = format!("results/{sweep}/journal");
        self.files(&folder).iter().map(|name| self.read(&format!("{folder}/{name}"))).collect()
    }

    /// The entries of a sweep's ledger. Agents remove what they no longer need at any moment.
    pub(crate) fn ledger(&self, sweep: &str) -> Vec<String> {
        let folder = format!("{sweep}/claims");
        let files = self.files(&folder);
        let whole = files.iter().filter(|name| name.ends_with(".json") && !name.contains("/."));
        whole.filter_map(|name| fs::read_to_string(self.path(&folder).join(name)).ok()).collect()
    }

    /// How many entries of a sweep's ledger have this in them.
    pub(crate) fn entries(&self, sweep: &str, text: &str) -> usize {
        self.ledger(sweep).iter().filter(|entry| entry.contains(text)).count()
    }

    /// Every file under a folder, relative to it, sorted.
    pub(crate) fn files(&self, folder: &str) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            // A folder that an agent has just removed is empty.
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    walk(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut found = Vec::new();
        if self.exists(folder) {
            walk(&self.path(folder), &self.path(folder), &mut found);
        }
        found.sort();
        found
    }

    /// A program with this world's environment and nothing else.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.vars).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs any program to its end.
    pub(crate) fn call(&self, program: &str, args: &[&str]) -> Ran {
        let output = self.command(program).args(args).output();
        let output = output.unwrap_or_else(|e| panic!("{}", missing(program, &e)));
        Ran {
            code: code_of(output.status),
            out: self.shown(&output.stdout),
            err: self.shown(&output.stderr),
        }
    }

    /// Runs hpcsweep to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.call(PROGRAM, args)
    }

    /// Runs hpcsweep in a folder of this world.
    pub(crate) fn run_in(&self, folder: &str, args: &[&str]) -> Ran {
        let output = self.command(PROGRAM).args(args).current_dir(self.path(folder)).output();
        let output = output.unwrap();
        Ran {
            code: code_of(output.status),
            out: self.shown(&output.stdout),
            err: self.shown(&output.stderr),
        }
    }

    /// Runs hpcsweep as another user, which only root can; `None` for other users. The world is open to that user.
    pub(crate) fn run_as(&self, uid: u32, args: &[&str]) -> Option<Ran> {
        self.run_as_after(uid, ":", ".", args)
    }

    /// As [`World::run_as`], in a folder, behind a line of bash that sets limits.
    pub(crate) fn run_as_after(
        &self,
        uid: u32,
        line: &str,
        folder: &str,
        args: &[&str],
    ) -> Option<Ran> {
        if !nix::unistd::getuid().is_root() {
            return None;
        }
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), everybody).unwrap();
        // The build may lie where only this user can reach it.
        let program = self.path("bin/hpcsweep-of-all");
        if !program.exists() {
            fs::hard_link(PROGRAM, &program)
                .or_else(|_| fs::copy(PROGRAM, &program).map(|_| ()))
                .unwrap();
        }
        let mut command = self.command("bash");
        command.args(["-c", &format!("{line}; exec \"$0\" \"$@\""), program.to_str().unwrap()]);
        command.current_dir(self.path(folder));
        let output = command.args(args).uid(uid).gid(uid).output().unwrap();
        Some(Ran {
            code: code_of(output.status),
            out: self.shown(&output.stdout),
            err: self.shown(&output.stderr),
        })
    }

    /// Makes a folder of another user with a plan in it. Only root can do this; `false` for other users.
    pub(crate) fn give(&self, uid: u32, folder: &str, plan: &str) -> bool {
        self.write(&format!("{folder}/plan.toml"), plan);
        let paths = [self.path(folder), self.path(folder).join("plan.toml")];
        if paths.iter().any(|path| chown(path, Some(uid), Some(uid)).is_err()) {
            return false;
        }
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(self.path("tmp"), everybody).unwrap();
        true
    }

    /// Writes `plan.toml` and runs it here.
    pub(crate) fn local(&self, plan: &str, args: &[&str]) -> Ran {
        self.write("plan.toml", plan);
        self.run(&[&["submit", "plan.toml", "--local"], args].concat())
    }

    /// Starts hpcsweep; it is killed when the handle is dropped.
    pub(crate) fn start(&self, args: &[&str]) -> Started {
        let child = self.command(PROGRAM).args(args).spawn().unwrap();
        Started { child }
    }

    /// Text for comparing: the world's folder is `$WORLD`.
    pub(crate) fn shown(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).replace(self.folder.path().to_str().unwrap(), "$WORLD")
    }

    /// The table of results of this world's sweeps: a row a trial, by column name.
    #[track_caller]
    pub(crate) fn table(&self, sweeps: &[&str]) -> Vec<BTreeMap<String, serde_json::Value>> {
        let ran = self.run(&[&["collect", "--format", "jsonl"], sweeps].concat());
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// One column of the table of results, as JSON.
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> Vec<String> {
        self.table(&[]).iter().map(|row| row[name].to_string()).collect()
    }

    /// The lines of this event that the agents of a sweep have written, in the order of their names.
    pub(crate) fn written_by_agents(&self, sweep: &str, event: &str) -> Vec<serde_json::Value> {
        let folder = format!("results/{sweep}/agents");
        let bundles = self.files(&folder).into_iter().filter(|file| file.ends_with(".jsonl"));
        let text: String = bundles.map(|file| self.read(&format!("{folder}/{file}"))).collect();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.filter(|line: &serde_json::Value| line["event"] == event).collect()
    }

    /// `hpcsweep status --json` of the one sweep here.
    #[track_caller]
    pub(crate) fn status(&self) -> serde_json::Value {
        let ran = self.run(&["status", "--json"]);
        assert!(ran.code <= 1, "{}", ran.whole());
        serde_json::from_str(&ran.out).unwrap()
    }
}

/// A program under way.
pub(crate) struct Started {
    pub(crate) child: Child,
}

impl Started {
    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self, world: &World) -> Ran {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let stdout = self.child.stdout.take().unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut stdout = stdout;
            stdout.read_to_end(&mut out).unwrap();
            out
        });
        stderr.read_to_end(&mut err).unwrap();
        let status = self.child.wait().unwrap();
        let out = reader.join().unwrap();
        Ran { code: code_of(status), out: world.shown(&out), err: world.shown(&err) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments by which this test program runs one of its tests and no other: that of this name in the module whose
/// `module_path!()` is given.
pub(crate) fn only(module: &str, test: &str) -> [String; 2] {
    let (_, folders) = module.split_once("::").unwrap();
    [format!("{folders}::{test}"), "--exact".to_owned()]
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "waited for ever until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The sentence for a program that a test needs and does not find.
pub(crate) fn missing(program: &str, error: &std::io::Error) -> String {
    format!("{program}: {error}: run `scripts/setup --for test`")
}

/// Exit code; 128 + signal when it was killed.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Text without what differs from run to run: every `0.123 s` becomes `_ s`.
pub(crate) fn timeless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" in ") {
        let (before, after) = rest.split_at(at + 4);
        out.push_str(before);
        let digits = after.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let tail = &after[digits..];
        if digits > 0 && tail.starts_with(" s") {
            out.push('_');
            rest = tail;
        } else {
            rest = after;
        }
    }
    out.push_str(rest);
    out
}
