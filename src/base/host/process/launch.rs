//! Starting a program without copying this process. fork(2) copies the page tables of an agent and makes it pay again for each
//! page that it then writes to: a third of what a short trial costs. Here the child borrows our memory until it becomes the
//! program, as posix_spawn(3) does, which can set neither the folder (before glibc 2.29) nor the signal on our death.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::libc::{self, c_char};
use nix::sched::CloneFlags;
use nix::unistd::Pid;

use super::ChildSetup;
use crate::base::host::Vars;

/// Bytes of the stack on which the child runs until it becomes the program.
const STACK: usize = 16 << 10;

/// Starts a program in a folder and in a process group of its own, with exactly this environment, in which the program is
/// looked for as execvp(3) does. `streams` become its standard input, output and error. Returns its process id.
///
/// # Errors
/// When it cannot be started.
#[expect(unsafe_code, reason = "the child shares our memory until it becomes the program")]
pub(super) fn start(
    argv: &[String],
    env: &Vars,
    folder: &Path,
    streams: [BorrowedFd<'_>; 3],
    setup: &ChildSetup,
) -> io::Result<u32> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let program = Program::new(argv, env)?;
    let streams = streams.map(|stream| stream.as_raw_fd());
    let failure = AtomicI32::new(0);
    let mut stack = vec![0; STACK];
    let child = || {
        let error = match prepare(&folder, streams, setup) {
            Ok(()) => program.become_it(),
            Err(error) => error as i32,
        };
        failure.store(error, Ordering::Relaxed);
        // SAFETY: ends the child alone, without what this process does at its own end.
        unsafe { libc::_exit(127) }
    };
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    // SAFETY: this thread waits until the child has become the program or is gone, and all that the child reads lives as
    // long. The child calls async-signal-safe functions alone and takes no memory: other threads go on meanwhile.
    let pid =
        unsafe { nix::sched::clone(Box::new(child), &mut stack, flags, Some(libc::SIGCHLD))? };
    match failure.into_inner() {
        0 => Ok(pid.as_raw().cast_unsigned()),
        error => {
            let _ = nix::sys::wait::waitpid(pid, None);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// What the child does for itself before it becomes the program.
#[expect(unsafe_code, reason = "the default action of SIGPIPE, and numbers of descriptors")]
fn prepare(folder: &CStr, streams: [RawFd; 3], setup: &ChildSetup) -> nix::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    nix::unistd::chdir(folder)?;
    for (number, stream) in (0..).zip(streams) {
        // SAFETY: dup2(2) replaces a stream of this child alone.
        nix::errno::Errno::result(unsafe { libc::dup2(stream, number) })?;
    }
    // SAFETY: no handler. Rust ignores this signal, which programs do not expect.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
    setup.apply()
}

const SHELL: &CStr = c"/bin/sh";

/// A program with its arguments and environment in the form of execve(2).
struct Program {
    /// Where it may be, in the order of the search.
    files: Vec<CString>,
    /// Owns what `args` and `vars` point to.
    _texts: Vec<CString>,
    args: Vec<*const c_char>,
    /// For each file, the arguments of a shell that runs it: a script without a first line that names its interpreter.
    of_shell: Vec<Vec<*const c_char>>,
    vars: Vec<*const c_char>,
}

impl Program {
    fn new(argv: &[String], env: &Vars) -> io::Result<Self> {
        let mut texts = Vec::with_capacity(argv.len() + env.len());
        for arg in argv {
            texts.push(CString::new(arg.as_str())?);
        }
        for (name, value) in env {
            let mut text = Vec::with_capacity(name.len() + value.len() + 2);
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            texts.push(CString::new(text)?);
        }
        let end = std::iter::once(std::ptr::null());
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ptr()).chain(end.clone()).collect()
        };
        let (args, vars) = (pointers(&texts[..argv.len()]), pointers(&texts[argv.len()..]));
        let files = files(&argv[0], env)?;
        let by_shell = |file: &CString| {
            [SHELL.as_ptr(), file.as_ptr()].into_iter().chain(args[1..].iter().copied()).collect()
        };
        let of_shell = files.iter().map(by_shell).collect();
        Ok(Self { files, _texts: texts, args, of_shell, vars })
    }

    /// Returns the number of the error if no file can be executed.
    #[expect(unsafe_code, reason = "execve(2) with pointers that were made before")]
    fn become_it(&self) -> i32 {
        let execute = |file: &CStr, args: &[*const c_char]| {
            // SAFETY: the file and each text end with a NUL, both lists with a null pointer.
            unsafe { libc::execve(file.as_ptr(), args.as_ptr(), self.vars.as_ptr()) };
            nix::errno::Errno::last_raw()
        };
        let mut error = libc::ENOENT;
        for (file, of_shell) in self.files.iter().zip(&self.of_shell) {
            match execute(file, &self.args) {
                libc::ENOEXEC => return execute(SHELL, of_shell),
                libc::EACCES => error = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                other => return other,
            }
        }
        error
    }
}

/// Where a program may be: its own path, or a file of its name in each folder of this environment's PATH.
fn files(program: &str, env: &Vars) -> io::Result<Vec<CString>> {
    if program.is_empty() || program.contains('/') {
        return Ok(vec![CString::new(program)?]);
    }
    let path = env.get("PATH").map_or("/bin:/usr/bin", String::as_str);
    let of = |folder: &str| match folder {
        "" => CString::new(program),
        folder => CString::new(format!("{folder}/{program}")),
    };
    Ok(path.split(':').map(of).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::signal::Signal;

    use super::*;
    use crate::base::host::process::reap;

    /// Runs this in a folder to its end: the exit code, and what was printed.
    fn run(folder: &Path, argv: &[&str], path: Option<&str>) -> io::Result<(i32, String)> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let mut env = Vars::from([("WORD".to_owned(), "a b".to_owned())]);
        env.extend(path.map(|path| ("PATH".to_owned(), path.to_owned())));
        let (nothing, out) = (File::open("/dev/null")?, File::create(folder.join("out"))?);
        let streams = [nothing.as_fd(), out.as_fd(), out.as_fd()];
        let setup = ChildSetup::new(Signal::SIGKILL, &[]);
        let pid = start(&argv, &env, folder, streams, &setup)?;
        let status = loop {
            match reap(pid)? {
                Some((status, _)) => break status,
                None => std::thread::yield_now(),
            }
        };
        let mut text = String::new();
        File::open(folder.join("out"))?.read_to_string(&mut text)?;
        Ok((status.code().unwrap_or(-1), text))
    }

    #[test]
    fn a_program_gets_its_arguments_its_environment_its_folder_and_a_group_of_its_own() {
        let tmp = tempfile::tempdir().unwrap();
        let folder = tmp.path().canonicalize().unwrap();
        let script = "echo $# \"$1\" $WORD; pwd; ps -o pgid= -p $$ | tr -d ' '; echo $$; echo no >&2; exit 7";
        let (code, text) =
            run(&folder, &["sh", "-c", script, "sh", "x y", ""], Some("/nowhere:/usr/bin:/bin"))
                .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((code, lines[0], lines[1]), (7, "2 x y a b", folder.to_str().unwrap()));
        assert_eq!((lines[2], lines[4]), (lines[3], "no"));
        // Without a PATH as execvp(3) does.
        assert_eq!(run(&folder, &["true"], None).unwrap(), (0, String::new()));
    }

    #[test]
    fn what_is_ignored_or_blocked_here_is_not_in_the_program() {
        let tmp = tempfile::tempdir().unwrap();
        let argv = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"];
        let (_, text) = run(tmp.path(), &argv, Some("/usr/bin:/bin")).unwrap();
        // What was ignored when this process began stays ignored; Rust has added SIGPIPE.
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = own.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        let pipe = 1 << (libc::SIGPIPE - 1);
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert!(ignored & pipe != 0);
        let expected = format!("SigBlk:\t{:016x}\nSigIgn:\t{:016x}\n", 0, ignored & !pipe);
        assert_eq!(text, expected);
    }

    #[test]
    fn scripts_without_an_interpreter_run_and_errors_are_those_of_execvp() {
        let tmp = tempfile::tempdir().unwrap();
        let script = tmp.path().join("plain");
        fs::write(&script, "echo $0 $1\n").unwrap();
        let number = |argv: &[&str], path| {
            run(tmp.path(), argv, path).map_err(|error| error.raw_os_error().unwrap_or(0))
        };
        let here = tmp.path().to_str();
        assert_eq!(number(&["plain", "x"], here), Err(libc::EACCES));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let said = format!("{} x\n", script.display());
        assert_eq!(number(&["plain", "x"], here), Ok((0, said)));
        assert_eq!(number(&["./plain", "x"], None), Ok((0, "./plain x\n".to_owned())));
        for missing in ["no-such-program", "./no-such-program", ""] {
            assert_eq!(number(&[missing], here), Err(libc::ENOENT), "{missing}");
        }
        let long = "x".repeat(1 << 20);
        assert_eq!(number(&["true", &long], Some("/bin")), Err(libc::E2BIG));
        assert_eq!(number(&["true", "a\0b"], Some("/bin")), Err(0));
        let setup = ChildSetup::new(Signal::SIGKILL, &[]);
        let null = File::open("/dev/null").unwrap();
        let streams = [null.as_fd(), null.as_fd(), null.as_fd()];
        let argv = ["/bin/true".to_owned()];
        let gone = start(&argv, &Vars::new(), &tmp.path().join("gone"), streams, &setup);
        assert_eq!(gone.map_err(|error| error.raw_os_error()), Err(Some(libc::ENOENT)));
    }
}
