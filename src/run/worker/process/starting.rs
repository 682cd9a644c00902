//! Why a program could not be started: the file that is missing may be the program, its interpreter, or a
//! program whose name is a whole command line.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::cause::{Cause, Why};
use crate::base::fault::{Fault, Kind};
use crate::base::host::{Vars, disk, process};

/// Exit codes with which a shell or `env` says that it could not start a program.
const SHELLS: [i32; 2] = [126, 127];

/// The fault of a program that could not be started in its folder, with this environment.
pub(crate) fn start_fault(program: &str, workdir: &Path, env: &Vars, error: &io::Error) -> Fault {
    if !workdir.is_dir() {
        let sentence = format!("the working folder `{}` does not exist here", workdir.display());
        return Fault::machine(sentence).because(Cause::TreeUnreachable);
    }
    let mut fault = process::start_fault(program, error);
    if let Some((why, hint, kind, cause)) = why(program, workdir, env) {
        (fault.sentence, fault.kind) = (format!("cannot start `{program}`: {why}"), kind);
        fault = fault.hint(hint).because(cause);
    } else if is_of_command(error) {
        fault.kind = Kind::Request;
    }
    fault
}

/// Whether an error is about the command itself, on any machine: no permission, no format of programs, too long.
fn is_of_command(error: &io::Error) -> bool {
    use nix::libc::{E2BIG, EACCES, ENOEXEC};
    error.raw_os_error().is_some_and(|number| [E2BIG, EACCES, ENOEXEC].contains(&number))
}

/// Why a set-up script or `env` has ended with this code instead of becoming the program, if the program's
/// file shows it.
pub(crate) fn said_by_shell(code: i32, program: &str, workdir: &Path, env: &Vars) -> Option<Why> {
    let file = find(program, workdir, env);
    if file.is_some_and(|file| is_foreign(&file)) {
        let words = format!("cannot start `{program}`: it is a program for another processor");
        return Some(Why::new(Cause::ExecFormat, words));
    }
    let (why, hint, _, cause) = why(program, workdir, env).filter(|_| SHELLS.contains(&code))?;
    Some(Why::new(cause, format!("cannot start `{program}`: {why}; {hint}")))
}

/// The file of a program.
pub(crate) fn find(program: &str, workdir: &Path, env: &Vars) -> Option<PathBuf> {
    match program.contains('/') {
        true => Some(workdir.join(program)).filter(|file| file.is_file()),
        false => disk::program_on(env.get("PATH").map_or("", String::as_str), program),
    }
}

/// Whether a file is a program for another machine: the system then hands it to a shell, which reads it as a script.
fn is_foreign(file: &Path) -> bool {
    // The kind of machine is two bytes of the head of an ELF file.
    let machine = |file: &Path| {
        let head = disk::read_at(file, 0, 20).ok()?;
        head.starts_with(b"\x7fELF").then(|| head.get(18..20).map(<[u8]>::to_vec))?
    };
    machine(file)
        .is_some_and(|of| machine(Path::new("/proc/self/exe")).is_some_and(|own| own != of))
}

/// Why a program cannot be started, a remedy, who is at fault, and the cause.
fn why(program: &str, workdir: &Path, env: &Vars) -> Option<(String, String, Kind, Cause)> {
    let path = env.get("PATH").map_or("", String::as_str);
    let find = |name: &str| find(name, workdir, env);
    let Some(file) = find(program) else {
        let words: Vec<&str> = program.split_whitespace().collect();
        // With a blank in its name nothing is found; with the first word alone, something is.
        let [first, _, ..] = words.as_slice() else { return None };
        find(first)?;
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let why = "this is one word, and there is no program of that name".to_owned();
        let hint = format!("write each word by itself: `command = [{}, ...]`", quoted.join(", "));
        return Some((why, hint, Kind::Request, Cause::CommandNotFound));
    };
    let line = first_line(&file)?;
    if line.ends_with('\r') {
        let why = "its first line ends with a carriage return, as lines of Windows do".to_owned();
        let hint = format!("take them away: `sed -i 's/\\r$//' {}`", file.display());
        return Some((why, hint, Kind::Request, Cause::BadInterpreter));
    }
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    let missing = if interpreter.ends_with("/env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        disk::program_on(path, name).is_none().then_some(name)?
    } else {
        (!Path::new(interpreter).is_file()).then_some(interpreter)?
    };
    let why = format!("its first line asks for `{missing}`, which does not exist here");
    let hint = format!("install `{missing}`, or change the first line of `{}`", file.display());
    Some((why, hint, Kind::Machine, Cause::BadInterpreter))
}

/// The interpreter after `#!` in the first line of a script.
fn first_line(file: &Path) -> Option<String> {
    let start = disk::read_at(file, 0, 4096).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_cause_is_told_from_the_file() {
        let tmp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = tmp.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("crlf.sh", "#!/bin/sh\r\necho\r\n");
        write("env-crlf.py", "#!/usr/bin/env python3\r\n");
        write("gone.sh", "#!/opt/none/bash -e\n");
        write("env-gone.py", "#!/usr/bin/env -S A=1 python9 -u\n");
        write("fine.sh", "#!/bin/sh\n");
        let path = format!("{}:/usr/bin:/bin", tmp.path().display());
        let env = Vars::from([("PATH".to_owned(), path)]);
        let error = io::Error::from_raw_os_error(nix::libc::ENOENT);
        let said = |program: &str| start_fault(program, tmp.path(), &env, &error).sentence;
        let carriage = "its first line ends with a carriage return, as lines of Windows do";
        for (program, why) in [
            ("crlf.sh", carriage),
            ("./crlf.sh", carriage),
            ("env-crlf.py", carriage),
            ("gone.sh", "its first line asks for `/opt/none/bash`, which does not exist here"),
            ("./env-gone.py", "its first line asks for `python9`, which does not exist here"),
            ("sh fine.sh", "this is one word, and there is no program of that name"),
            ("nothing", "no such file or directory"),
            ("no thing", "no such file or directory"),
            ("./nothing", "no such file or directory"),
        ] {
            assert_eq!(said(program), format!("cannot start `{program}`: {why}"));
        }
        assert_eq!(said_by_shell(1, "crlf.sh", tmp.path(), &env), None);
        assert_eq!(said_by_shell(127, "fine.sh", tmp.path(), &env), None);
        let Why { cause, words } = said_by_shell(127, "sh fine.sh", tmp.path(), &env).unwrap();
        assert!(words.ends_with("`command = [\"sh\", \"fine.sh\", ...]`"), "{words}");
        assert_eq!(cause, Cause::CommandNotFound);
        let of = |program: &str, number| {
            let error = io::Error::from_raw_os_error(number);
            start_fault(program, tmp.path(), &env, &error).cause
        };
        use nix::libc::{EACCES, ENOENT, ENOEXEC};
        for (program, number, cause) in [
            ("nothing", ENOENT, Cause::CommandNotFound),
            ("./crlf.sh", ENOENT, Cause::BadInterpreter),
            ("gone.sh", ENOENT, Cause::BadInterpreter),
            ("fine.sh", EACCES, Cause::Permission),
            ("fine.sh", ENOEXEC, Cause::ExecFormat),
        ] {
            assert_eq!(of(program, number), Some(cause), "{program}");
        }
    }
}
