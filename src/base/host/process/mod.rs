//! Programs: running one to its end with a bound on the time, and starting one in a process group of
//! its own that dies with us.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sched::CpuSet;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

mod launch;
mod look;
mod spent;
pub(crate) mod tree;

use super::{Vars, access, signal, threads};
use crate::base::cause::{self, Cause};
use crate::base::fault::Fault;

pub(crate) use look::{has_children, has_ended, name, started, text_of};
pub use spent::{Spent, reap};
pub(crate) use spent::{peak_memory, so_far as spent_so_far, time_of_thread};

/// The result of a finished program.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Its exit code; 128 + signal when it was killed; `None` when the time was over.
    pub(crate) code: Option<i32>,
    /// Its standard output, not UTF-8 parts replaced.
    pub(crate) stdout: String,
    /// Its standard error, not UTF-8 parts replaced.
    pub(crate) stderr: String,
}

/// Gives a program the umask of the user, where this process has made another its own ([`access::open_to`]), and what SIGXFSZ
/// did when this process began.
#[expect(unsafe_code, reason = "pre_exec is unsafe; what is called is async-signal-safe")]
fn with_own_umask(command: &mut Command) -> &mut Command {
    let own = access::umask_of_programs();
    // SAFETY: between fork and exec only umask(2) and sigaction(2) are called.
    unsafe {
        command.pre_exec(move || {
            own.map(nix::sys::stat::umask);
            signal::restore_file_size();
            Ok(())
        })
    }
}

/// What a child does for itself before it becomes a program.
struct ChildSetup {
    parent: Pid,
    /// The umask of the user, where this process has made another its own ([`access::open_to`]).
    umask: Option<Mode>,
    /// The cores on which the program may run; `None`: as this process.
    cores: Option<CpuSet>,
    /// A descriptor that the program inherits.
    keep: Option<RawFd>,
    /// The signals that stay blocked: our own mask blocks those that we read from a descriptor.
    held: SigSet,
    /// What it gets when the thread that starts it dies, so that no child outlives a `kill -9`.
    on_parent_death: Signal,
}

impl ChildSetup {
    fn new(on_parent_death: Signal, held: &[Signal]) -> Self {
        let (parent, umask) = (nix::unistd::getpid(), access::umask_of_programs());
        let held = held.iter().copied().collect();
        Self { parent, umask, cores: None, keep: None, held, on_parent_death }
    }

    /// On these cores alone; all, where there are none.
    fn on(self, cores: &[u32]) -> Self {
        let mut set = CpuSet::new();
        for &core in cores {
            // A number beyond what the kernel's mask holds is left out.
            let _ = set.set(core as usize);
        }
        Self { cores: (!cores.is_empty()).then_some(set), ..self }
    }

    /// Calls async-signal-safe functions alone.
    #[expect(unsafe_code, reason = "the descriptor is a number in the child")]
    fn apply(&self) -> nix::Result<()> {
        if let Some(cores) = &self.cores {
            // A core that was taken away meanwhile: better anywhere than nowhere.
            let _ = nix::sched::sched_setaffinity(Pid::from_raw(0), cores);
        }
        if let Some(own) = self.umask {
            nix::sys::stat::umask(own);
        }
        signal::restore_file_size();
        if let Some(fd) = self.keep {
            // SAFETY: it is open in the child, as its owner outlives the start.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        // What `Signals` blocks here would stay blocked in the program, which then could not be asked to end
        // (Rust 1.66 and newer leave the mask as it is).
        self.held.thread_set_mask()?;
        nix::sys::prctl::set_pdeathsig(self.on_parent_death)?;
        // A parent that died before the call above would never be noticed.
        if nix::unistd::getppid() == self.parent { Ok(()) } else { Err(nix::Error::ESRCH) }
    }
}

/// Has the child of a command set itself up.
#[expect(unsafe_code, reason = "pre_exec is unsafe; what is called is async-signal-safe")]
fn set_up(command: &mut Command, setup: ChildSetup) {
    // SAFETY: between fork and exec only `apply` is called, which says what it calls.
    unsafe { command.pre_exec(move || Ok(setup.apply()?)) };
}

/// Runs a program to its end, with exactly the given environment, for at most `limit`. A program that
/// takes longer is killed and its code is `None`: it may have done its work all the same.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(argv: &[String], env: &Vars, limit: Duration) -> anyhow::Result<Output> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(env).stdin(Stdio::null());
    set_up(&mut command, ChildSetup::new(Signal::SIGKILL, &[]));
    // The reader is started before the program: without a reader the program is not started, whatever it
    // would have done.
    let (open, are_closed) = mpsc::channel::<()>();
    let piped = || -> anyhow::Result<_> {
        let (mut from, to) = std::io::pipe().map_err(|e| start_fault(&argv[0], &e))?;
        // A long answer is handed over in fewer parts, if the system has the memory.
        let _ = nix::fcntl::fcntl(&from, nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20));
        let open = open.clone();
        let reader = threads::start("output", move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            drop(open);
            String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        })?;
        Ok((reader, to))
    };
    let ((stdout, out), (stderr, err)) = (piped()?, piped()?);
    command.stdout(out).stderr(err).process_group(0);
    let mut child = command.spawn().map_err(|e| start_fault(&argv[0], &e))?;
    // It holds our ends of the pipes.
    drop(command);
    drop(open);
    // A program that has closed its streams is about to end. Naps would be too long for one that answers soon.
    let began = Instant::now();
    let _ = are_closed.recv_timeout(limit);
    let status = wait_for(&mut child, limit.saturating_sub(began.elapsed()));
    if status.is_none() {
        kill_group(&child, Signal::SIGKILL);
        let _ = child.wait();
    }
    Ok(Output {
        code: status.map(code_of),
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// Runs a program to its end, that shares our streams but the standard output, which is `out`; its exit code.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run_aside(argv: &[String], env: &Vars, out: OwnedFd) -> Result<i32, Fault> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(env).stdout(out);
    let status = with_own_umask(&mut command).status().map_err(|e| start_fault(&argv[0], &e))?;
    Ok(code_of(status))
}

/// Waits for the end of a program, at most this long, without a busy loop: short naps that grow, so that
/// a quick program costs no delay. `None`: it still runs.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    let mut nap = Duration::from_micros(200);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

/// The fault of a program that could not be started.
pub fn start_fault(program: &str, error: &std::io::Error) -> Fault {
    let fault = Fault::machine(format!("cannot start `{program}`: {}", super::disk::reason(error)));
    let fault = Fault { cause: Cause::of_io(error), ..fault };
    if error.raw_os_error() == Some(nix::libc::ENOEXEC) {
        return fault.because(Cause::ExecFormat);
    }
    if error.kind() == std::io::ErrorKind::NotFound {
        return fault
            .because(Cause::CommandNotFound)
            .hint(format!("is `{program}` installed, and its folder in PATH here?"));
    }
    if error.raw_os_error() == Some(nix::Error::E2BIG as i32) {
        return fault.hint("read large values from the JSON file $HPCSWEEP_PARAMS");
    }
    Fault { hint: cause::hint_of_limit(error).map(str::to_owned), ..fault }
}

/// A shell's view of an exit status: the code, or 128 + signal.
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Where a started program's output goes.
pub enum Sink {
    /// Both streams into this file.
    File(std::fs::File),
    /// Both streams into pipes that the caller reads.
    Pipes,
    /// Where our own go.
    Inherit,
    /// Where our own go; the program's standard input is this socket.
    Serve(OwnedFd),
}

/// Starts a program in a process group of its own, to be killed by `on_parent_death` if we die. It
/// inherits the descriptor `keep` besides its three streams. Signals `held` wait until it asks for them.
///
/// # Errors
/// When it cannot be started.
pub fn start(
    argv: &[String],
    env: &Vars,
    folder: &Path,
    sink: Sink,
    on_parent_death: Signal,
    keep: Option<BorrowedFd<'_>>,
    held: &[Signal],
) -> Result<Child, std::io::Error> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(env).current_dir(folder);
    command.stdin(Stdio::null()).process_group(0);
    match sink {
        Sink::File(file) => {
            command.stdout(file.try_clone()?).stderr(file);
        }
        Sink::Pipes => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Sink::Inherit => {}
        Sink::Serve(socket) => {
            command.stdin(socket);
        }
    }
    let keep = keep.map(|fd| fd.as_raw_fd());
    set_up(&mut command, ChildSetup { keep, ..ChildSetup::new(on_parent_death, held) });
    command.spawn()
}

/// Starts a program as [`start`] does, many a second, on these cores alone (all, where there are none), with its output in
/// a file. It is waited for by [`reap`]. Returns its process id.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start_on(
    argv: &[String],
    env: &Vars,
    folder: &Path,
    output: &std::fs::File,
    cores: &[u32],
) -> Result<u32, std::io::Error> {
    let input = std::fs::File::open("/dev/null")?;
    let streams = [input.as_fd(), output.as_fd(), output.as_fd()];
    launch::start(argv, env, folder, streams, &ChildSetup::new(Signal::SIGKILL, &[]).on(cores))
}

/// Starts a program that reads from this process and prints nothing: the end of its input shows it our end. It is in a
/// process group of its own: a signal to ours is not meant for it.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start_beside(program: &Path, args: &[&str]) -> std::io::Result<(u32, ChildStdin)> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = with_own_umask(&mut command).process_group(0).spawn()?;
    let input =
        child.stdin.take().ok_or_else(|| std::io::Error::other("no pipe to the program"))?;
    Ok((child.id(), input))
}

/// Sends a signal to the process group that a program started by [`start_on`] leads.
pub(crate) fn signal_group(pid: u32, signal: Signal) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(pid.cast_signed()), signal);
}

/// Kills a process, which need not be a child.
pub(crate) fn kill(pid: u32) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

/// Kills and buries children of this process, but those in `keep`, whose environment has this variable with
/// this value: what a program has left behind, wherever in sessions and groups. Returns what they have used.
pub(crate) fn end_marked(keep: &[u32], name: &str, value: &str) -> Spent {
    let mut spent = Spent::default();
    let mark = format!("{name}={value}").into_bytes();
    for pid in adopted() {
        let number = pid.as_raw().cast_unsigned();
        if keep.contains(&number) {
            continue;
        }
        if started(pid.as_raw()).is_none() || has_mark(pid, &mark) {
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
            spent = spent.and(spent::bury(pid));
        }
    }
    spent
}

/// Kills processes whose environment has this variable with a value that begins so: processes whose parent is
/// gone. Only those that this user may look at.
pub(crate) fn end_orphans(name: &str, value: &str) {
    let mark = format!("{name}={value}").into_bytes();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let env = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if env.split(|&b| b == 0).any(|entry| entry.starts_with(&mark)) {
            let _ = nix::sys::signal::kill(Pid::from_raw(number), Signal::SIGKILL);
        }
    }
}

/// The cores that this process may run on.
pub(crate) fn own_cores() -> Vec<u32> {
    let Ok(set) = nix::sched::sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    (0..nix::sched::CpuSet::count())
        .filter(|&core| set.is_set(core).unwrap_or(false))
        .map(|c| c as u32)
        .collect()
}

/// How many cores this machine has.
pub(crate) fn cores_of_machine() -> Option<u32> {
    let cores = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok()??;
    u32::try_from(cores).ok()
}

/// Becomes another program, with these variables besides our own; process id and start time stay.
/// Returns only if that fails.
pub(crate) fn become_program(argv: &[String], vars: &[(&str, &str)]) -> Fault {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).envs(vars.iter().copied());
    let error = with_own_umask(&mut command).exec();
    start_fault(&argv[0], &error)
}

/// Becomes another program as this process is. Returns only if that fails: the number of the error.
pub(crate) fn try_to_become(argv: &[String]) -> i32 {
    let Some((program, args)) = argv.split_first() else { return nix::libc::ENOENT };
    signal::restore_file_size();
    Command::new(program).args(args).exec().raw_os_error().unwrap_or(nix::libc::EINVAL)
}

/// Blocks a signal in this thread, and in the program that it becomes.
pub(crate) fn block(signal: Signal) {
    let _ = SigSet::from_iter([signal]).thread_block();
}

/// Makes this process a group of its own, so that it outlives a kill of the group that it was started in. It
/// may still write to the terminal.
pub(crate) fn stand_apart() {
    block(Signal::SIGTTOU);
    let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
}

/// Sends a signal to the child's process group; a group that is gone is not an error.
pub fn kill_group(child: &Child, signal: Signal) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(child.id().cast_signed()), signal);
}

/// How long what a program has printed is filtered after its end.
const FILTERING: Duration = Duration::from_secs(1);

/// Lets the filters end that a program has left, as `tee` in `exec > >(tee log)`: processes that read a pipe. They end when
/// they have written what they got, once everything else that the program has left is killed, which may hold the other
/// end of the pipe. `keep` are other children of this process; with a `mark` only processes count whose environment has it.
pub(crate) fn end_but_filters(keep: &[u32], mark: Option<(&str, &str)>) {
    let mark = mark.map(|(name, value)| format!("{name}={value}").into_bytes());
    let is_left = |pid: &Pid| {
        !keep.contains(&pid.as_raw().cast_unsigned())
            && mark.as_ref().is_none_or(|mark| has_mark(*pid, mark))
    };
    let reads_pipe = |pid: &Pid| {
        let input = std::fs::read_link(format!("/proc/{pid}/fd/0"));
        input.is_ok_and(|input| input.to_string_lossy().starts_with("pipe:"))
    };
    let until = std::time::Instant::now() + FILTERING;
    loop {
        let left = adopted().into_iter().filter(is_left);
        let (filters, others): (Vec<Pid>, Vec<Pid>) = left.partition(reads_pipe);
        others.iter().for_each(|pid| kill(pid.as_raw().cast_unsigned()));
        if filters.is_empty() || std::time::Instant::now() >= until {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the environment of a process has this entry.
fn has_mark(pid: Pid, mark: &[u8]) -> bool {
    let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    env.split(|&b| b == 0).any(|entry| entry == mark)
}

/// Makes this process the parent of all processes that its children leave behind, in any session or group.
pub(crate) fn adopt_orphans() {
    // Older kernels than 3.4 do not know it; then what leaves its group is not found.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Kills and buries all children of this process but `keep`, and theirs as they become ours. Returns what they have used.
pub(crate) fn end_strays(keep: Option<u32>) -> Spent {
    let mut spent = Spent::default();
    // A process that starts others as fast as they are killed is not chased for ever.
    for _ in 0..1000 {
        let mut any = false;
        for pid in children() {
            if Some(pid.as_raw().cast_unsigned()) == keep {
                continue;
            }
            any = true;
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
            if let Ok(Some((_, of_one))) = reap(pid.as_raw().cast_unsigned()) {
                spent = spent.and(of_one);
            }
        }
        if !any {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    spent
}

/// The children of this process; none if the kernel does not report them.
fn children() -> Vec<Pid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks.flatten().flat_map(|task| children_of(&task.path())).collect()
}

/// The children of this process's first thread, among which are all that it has adopted: the kernel hands them to the
/// first thread that lives.
fn adopted() -> Vec<Pid> {
    children_of(Path::new(&format!("/proc/self/task/{}", std::process::id())))
}

fn children_of(task: &Path) -> Vec<Pid> {
    let list = text_of(task.join("children"));
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// Sends a signal to the child alone.
pub(crate) fn tell(child: &Child, signal: Signal) {
    let _ = nix::sys::signal::kill(Pid::from_raw(child.id().cast_signed()), signal);
}

/// A connected pair of stream sockets, closed on exec unless a program is started with one of them.
///
/// # Errors
/// When the kernel gives none.
pub(crate) fn socket_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

/// The socket that is this process's standard input ([`Sink::Serve`]). Standard input is `/dev/null` from now on, so that
/// no program that this process starts keeps the socket open.
///
/// # Errors
/// When standard input cannot be duplicated or replaced.
pub fn take_stdin_socket() -> std::io::Result<UnixStream> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}
