//! Causes that the end of a log shows.

use super::{Cause, Why};

/// How much of the end of a log is read for its cause, bytes.
pub(crate) const MOST_BYTES: u64 = 64 << 10;

/// Lines before the last one that may still say why a program has ended.
const NEAR: usize = 20;

/// The longest words that are taken from a log, characters.
const LONGEST: usize = 300;

/// What is added to words from a log: the program has printed them, nothing has measured them.
const MARK: &str = " (from its log)";

/// Words of system, libraries and schedulers, in lower case. PBS writes `exceeded limit` for every resource: the word
/// before decides (`mem 2097152kb exceeded limit 1048576kb`, also vmem and pmem).
const SIGNS: [(Cause, &str, &str); 22] = [
    (Cause::SyncMismatch, "", "the ranks disagree on"),
    (Cause::SyncMismatch, "", "the ranks ask for different things"),
    (Cause::SyncMismatch, "", "the ranks bring different types"),
    (Cause::SyncMismatch, "", "the shapes differ"),
    (Cause::CudaOutOfMemory, "", "cuda out of memory"),
    (Cause::CudaOutOfMemory, "", "hip out of memory"),
    (Cause::CudaOutOfMemory, "", "cuda_error_out_of_memory"),
    (Cause::CudaOutOfMemory, "", "cublas_status_alloc_failed"),
    (Cause::CudaOutOfMemory, "", "cudaerrormemoryallocation"),
    (Cause::OutOfMemory, "", "oom-kill"),
    (Cause::OutOfMemory, "", "oom_kill"),
    (Cause::OutOfMemory, "", "out of memory"),
    (Cause::OutOfMemory, "", "exceeded job memory limit"),
    (Cause::OutOfMemory, "", "exceeded memory limit"),
    (Cause::OutOfMemory, "mem ", "exceeded limit"),
    (Cause::OutOfMemory, "", "memoryerror"),
    (Cause::OutOfMemory, "", "cannot allocate memory"),
    (Cause::OutOfMemory, "", "std::bad_alloc"),
    (Cause::Quota, "", "disk quota exceeded"),
    (Cause::DiskFull, "", "no space left on device"),
    (Cause::Rendezvous, "", "rendezvous"),
    (Cause::Rendezvous, "", "client socket has timed out"),
];

/// Exceptions that only say that a process below has failed, whose own words come before.
const WRAPPERS: [&str; 1] = ["ChildFailedError"];

/// The cause that a line names, by the words of those who kill or refuse.
fn sign(line: &str) -> Option<Cause> {
    let lower = line.to_lowercase();
    let is_in = |(_, of, mark): &&(Cause, &str, &str)| {
        lower.split_once(mark).is_some_and(|(before, _)| before.contains(of))
    };
    SIGNS.iter().find(is_in).map(|(cause, ..)| *cause)
}

/// The last line that a scheduler or the kernel has written about memory into the log of a job.
pub(crate) fn of_memory(text: &str) -> Option<&str> {
    text.split('\n').rfind(|line| sign(line) == Some(Cause::OutOfMemory)).map(str::trim)
}

/// What Slurm writes into the log of a job that it ends: `*** JOB 20 ON n1 CANCELLED AT ... DUE TO PREEMPTION ***`. A job
/// that a person has cancelled has no reason there.
const STOPS: [(Cause, &str); 4] = [
    (Cause::Preempted, " DUE TO PREEMPTION"),
    (Cause::NodeFailure, " DUE TO NODE FAILURE"),
    (Cause::Walltime, " DUE TO TIME LIMIT"),
    (Cause::Cancelled, ""),
];

/// Why Slurm has ended a job, by the last line about it in the log of the job.
pub(crate) fn of_stop(text: &str) -> Option<Cause> {
    let is_stop = |line: &&str| {
        (line.contains("*** JOB ") || line.contains("*** STEP ")) && line.contains(" CANCELLED AT ")
    };
    let line = text.split('\n').rfind(is_stop)?;
    STOPS.iter().find(|(_, mark)| line.contains(mark)).map(|(cause, _)| *cause)
}

/// A rank that a launcher saw end.
#[derive(Clone)]
struct Task {
    rank: u32,
    node: String,
    /// As srun writes it: `Killed`, `Exited with exit code 1`.
    how: String,
}

/// Which rank ended first without success in the last step that srun has reported, in words: it writes
/// `srun: error: n2: task 1: Killed` in the order of time. Each rank ends once in a step, so a rank that is named again belongs
/// to an earlier one.
pub(crate) fn of_lost_rank(text: &str) -> Option<String> {
    let (mut first, mut not_killed) = (None, None);
    let mut seen = Vec::new();
    for line in text.split('\n').rev() {
        if line.contains("*** JOB ") {
            break;
        }
        if line.contains("*** STEP ") && first.is_some() {
            // When a rank vanishes, Slurm may kill the others before it reports that one. Of those that were killed after this
            // line, any may have been the first.
            first = Some(not_killed.take());
        }
        let Some((task, ranks)) = tasks(line) else { continue };
        if ranks.iter().any(|rank| seen.contains(rank)) {
            break;
        }
        seen.extend(ranks);
        if task.how != "Killed" {
            not_killed = Some(task.clone());
        }
        first = Some(Some(task));
    }
    Some(match first? {
        Some(Task { rank, node, how }) => format!("rank {rank} on {node} vanished: {how}"),
        None => "all ranks were killed: one had vanished, or the step was cancelled".to_owned(),
    })
}

/// What a line of srun says: the lowest of the ranks that it names, and all of them.
fn tasks(line: &str) -> Option<(Task, Vec<(u64, u64)>)> {
    let (node, rest) = line.trim().strip_prefix("srun: error: ")?.split_once(": task")?;
    let (ranks, how) = rest.strip_prefix('s').unwrap_or(rest).trim_start().split_once(": ")?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let ranks: Vec<(u64, u64)> = ranks.split(',').map(range).collect::<Option<_>>()?;
    let rank = u32::try_from(ranks.first()?.0).ok()?;
    Some((Task { rank, node: node.to_owned(), how: how.to_owned() }, ranks))
}

/// Why a job ended in which no trial began, by its log: the line that shows it, otherwise the last one that is not the
/// launcher's word about exit codes.
pub(crate) fn of_job(text: &str) -> Option<(Option<Cause>, String)> {
    let says = |line: &&str| !line.is_empty() && tasks(line).is_none();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(says).collect();
    if let Some(why) = of(lines.join("\n").as_bytes(), 127, None) {
        let line = why.words.strip_suffix(MARK).unwrap_or(&why.words);
        return Some((Some(why.cause).filter(|cause| cause.says_more()), line.to_owned()));
    }
    Some((None, crate::base::words::short(lines.last()?, LONGEST)))
}

/// The cause of a program's own reason in one line.
pub(crate) fn of_reason(reason: &str) -> Option<Cause> {
    if reason.starts_with("the set-up failed at: ") {
        return Some(Cause::SetUp);
    }
    let name = reason.split([':', ' ']).next().unwrap_or_default();
    let is_raised =
        ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| name.ends_with(end));
    sign(reason).or_else(|| is_raised.then_some(Cause::Exception))
}

/// Why a program has failed that has left this end of a log, if it shows it: the last exception, otherwise the last words
/// of those who kill or refuse, or of a shell that ended with this `code`. `rank`: only the lines of this rank count,
/// which begin with it.
pub(crate) fn of(bytes: &[u8], code: i32, rank: Option<u32>) -> Option<Why> {
    let text = without_colours(&String::from_utf8_lossy(bytes));
    let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
    let lines: Vec<&str> = text
        .split(['\n', '\r'])
        .filter_map(|line| line.strip_prefix(&*prefix))
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines.len().saturating_sub(NEAR);
    // Programs speak of a rendezvous that went well, too.
    let killed = |line: &str| sign(line).filter(|cause| *cause != Cause::Rendezvous);
    let near = || lines[last..].iter().rev().find_map(|line| Some((killed(line)?, *line)));
    let (cause, line) = match exception(&lines) {
        Some(line) => (sign(line).unwrap_or(Cause::Exception), line),
        None => match near().or_else(|| shell(&lines, code)) {
            Some((cause, line)) => (cause, line),
            None => return other_language(&lines).or_else(|| error_line(&lines[last..])).map(said),
        },
    };
    Some(said((cause, line.trim().to_owned())))
}

fn said((cause, words): (Cause, String)) -> Why {
    Why::new(cause, format!("{}{MARK}", crate::base::words::short(&words, LONGEST)))
}

/// The text without the sequences with which programs colour a terminal (ECMA-48: `ESC [`, parameters, one letter).
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| ('@'..='~').contains(&c));
        plain.push_str(end.map_or("", |end| &piece[end + 1..]));
    }
    plain
}

/// What R and Julia write when a script fails: `Error in f(x) : words`, perhaps with the words in the next line, and then
/// `Execution halted`; `ERROR: words` and then `Stacktrace:`.
fn other_language(lines: &[&str]) -> Option<(Cause, String)> {
    let begins = |with: &str| lines.iter().rposition(|line| line.starts_with(with));
    let of = |first: usize| {
        let line = lines[first].trim();
        let next = lines.get(first + 1).filter(|_| line.ends_with(':'));
        let words = next.map_or(line.to_owned(), |next| format!("{line} {}", next.trim()));
        (Cause::Exception, words)
    };
    let of_r = begins("Execution halted").and_then(|_| begins("Error in ").or(begins("Error: ")));
    let of_julia = || begins("Stacktrace:").and_then(|_| begins("ERROR: "));
    of_r.or_else(of_julia).map(of)
}

/// The last line that calls itself an error, as loggers, argparse, make and solvers write it, from that word on: what stands
/// before it, a time or a place, is another one in each trial.
fn error_line(lines: &[&str]) -> Option<(Cause, String)> {
    let words = |line: &str| {
        if line.starts_with("make") && line.contains("*** ") {
            return Some(line.to_owned());
        }
        let level = ["FATAL", "CRITICAL", "ERROR"].iter().find_map(|level| {
            let (before, after) = line.split_once(level)?;
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let alone = !is_word(before.chars().last()) && !is_word(after.chars().next());
            alone.then(|| after.trim_start_matches(|c: char| " |:-]>".contains(c)).to_owned())
        });
        let of_argparse = || {
            let (program, words) = line.split_once(": error: ")?;
            (!program.contains(' ')).then(|| format!("error: {words}"))
        };
        level.or_else(of_argparse).filter(|words| !words.is_empty())
    };
    let found = lines.iter().rev().find_map(|line| words(line.trim()))?;
    Some((Cause::ExitCode, found))
}

/// The line that names the last uncaught exception: behind the frames of a Python traceback, or as C++ reports one.
fn exception<'a>(lines: &[&'a str]) -> Option<&'a str> {
    // Some libraries draw a box around the frames.
    let is_box = |line: &str| line.starts_with(['│', '╭', '╰', '┃']);
    let is_frame = |line: &str| line.starts_with([' ', '\t']) || is_box(line);
    let is_wrapper = |line: &str| {
        let name = line.split(':').next().unwrap_or_default();
        WRAPPERS.iter().any(|wrapper| name.ends_with(wrapper))
    };
    let is_below_frames = |i: usize| {
        let mut frames = lines[..i].iter().rev().take_while(|line| is_frame(line));
        frames.any(|line| line.trim_start().starts_with("File \"") || is_box(line))
    };
    let python = (1..lines.len()).rev().find(|&i| {
        !is_frame(lines[i]) && is_exception(lines[i]) && !is_wrapper(lines[i]) && is_below_frames(i)
    });
    let cxx = lines.iter().rposition(|line| line.trim_start().starts_with("what():  "));
    match (python, cxx) {
        (Some(python), Some(cxx)) if cxx > python => Some(lines[cxx].trim()),
        (Some(python), _) => Some(lines[python]),
        (None, cxx) => cxx.map(|cxx| lines[cxx].trim()),
    }
}

/// The line with which a shell says that it could not start a command, where its exit code says so.
fn shell<'a>(lines: &[&'a str], code: i32) -> Option<(Cause, &'a str)> {
    let of = |cause, ends: &[&str]| {
        let line = lines.iter().rfind(|line| ends.iter().any(|end| line.trim_end().ends_with(end)));
        line.map(|line| (cause, *line))
    };
    match code {
        126 => of(Cause::Permission, &[": Permission denied"])
            .or_else(|| of(Cause::ExecFormat, &["Exec format error"])),
        127 => of(Cause::CommandNotFound, &["not found", ": No such file or directory"]),
        _ => None,
    }
}

/// Whether a line is the name of an exception, or begins with it: `KeyboardInterrupt`, `a.b.Error: words`.
fn is_exception(line: &str) -> bool {
    let (name, rest) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), "x"));
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    !rest.trim().is_empty()
        && name.split('.').all(is_name)
        && (last.starts_with(char::is_uppercase) || last.ends_with("error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, expected: Option<(Cause, &str)>) {
        let expected = expected.map(|(cause, words)| Why::new(cause, format!("{words}{MARK}")));
        assert_eq!(of(log.as_bytes(), 1, None), expected, "{log}");
    }

    #[test]
    fn the_last_exception_of_a_log_is_why() {
        let import = "epoch 1\nTraceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    import foo\nModuleNotFoundError: No module named 'foo'\n";
        check(import, Some((Cause::Exception, "ModuleNotFoundError: No module named 'foo'")));
        let second = format!(
            "{import}\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'a'\ncleaning up\n"
        );
        check(&second, Some((Cause::Exception, "KeyError: 'a'")));
        // A traceback whose beginning is cut off, of an exception without words.
        check(
            "  File \"a.py\", line 2\n    main()\nsub.module.Stop\n",
            Some((Cause::Exception, "sub.module.Stop")),
        );
        let elastic = format!(
            "{import}Traceback (most recent call last):\n  File \"torchrun\", line 8, in <module>\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        );
        check(&elastic, Some((Cause::Exception, "ModuleNotFoundError: No module named 'foo'")));
        let cxx = "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector\n";
        check(cxx, Some((Cause::Exception, "what():  vector")));
    }

    #[test]
    fn coloured_and_boxed_tracebacks_and_those_of_other_languages_are_read() {
        use Cause::{Exception, ExitCode};
        let coloured = "\u{1b}[1mTraceback (most recent call last):\u{1b}[0m\n  File \"\u{1b}[35mt.py\u{1b}[0m\"\n\u{1b}[1;35mValueError\u{1b}[0m: \u{1b}[35mbad\u{1b}[0m\n";
        check(coloured, Some((Exception, "ValueError: bad")));
        let boxed = "╭── Traceback ──╮\n│ /t.py:7 in <module> │\n╰──╯\nValueError: bad lr\n";
        check(boxed, Some((Exception, "ValueError: bad lr")));
        let r = "Error in read.csv(\"x\") : \n  cannot open the connection\nCalls: main\nExecution halted\n";
        check(r, Some((Exception, "Error in read.csv(\"x\") : cannot open the connection")));
        check("Error: no\nExecution halted\n", Some((Exception, "Error: no")));
        let julia = "ERROR: LoadError: no\nStacktrace:\n [1] main() @ t.jl:3\nin expression starting at t.jl:9\n";
        check(julia, Some((Exception, "ERROR: LoadError: no")));
        let argparse = "usage: t.py [-h]\nt.py: error: unrecognized arguments: --epohcs 3\n";
        check(argparse, Some((ExitCode, "error: unrecognized arguments: --epohcs 3")));
        let logger = "2026-11-27 10:00:00.123 | ERROR    | m:main:12 - no data\nbye\n";
        check(logger, Some((ExitCode, "m:main:12 - no data")));
        check(
            "FATAL ERROR: singular\nMPI_ABORT was invoked\n",
            Some((ExitCode, "ERROR: singular")),
        );
        check(
            "make: *** [Makefile:7: run] Error 1\n",
            Some((ExitCode, "make: *** [Makefile:7: run] Error 1")),
        );
        check(
            "an error of 0.1, TERRORS 3\nERROR:\n*** MPI_ERRORS_ARE_FATAL (processes will abort)\n",
            None,
        );
    }

    #[test]
    fn an_exception_about_memory_or_a_disk_is_that_cause() {
        let raised =
            |words: &str| format!("Traceback (most recent call last):\n  File \"x\"\n{words}\n");
        for (words, cause) in [
            ("torch.OutOfMemoryError: CUDA out of memory. Tried 20 MiB", Cause::CudaOutOfMemory),
            ("MemoryError", Cause::OutOfMemory),
            ("OSError: [Errno 12] Cannot allocate memory", Cause::OutOfMemory),
            ("OSError: [Errno 28] No space left on device: 'a'", Cause::DiskFull),
            ("OSError: [Errno 122] Disk quota exceeded", Cause::Quota),
            ("torch.distributed.DistStoreError: client socket has timed out", Cause::Rendezvous),
        ] {
            check(&raised(words), Some((cause, words)));
        }
    }

    #[test]
    fn without_an_exception_the_last_words_near_the_end_are_why() {
        let full = "cp: error writing 'x': No space left on device";
        check(&format!("{full}\n"), Some((Cause::DiskFull, full)));
        check(&format!("{full}\n{}", "step\n".repeat(NEAR)), None);
        let kill = "slurmstepd: error: Detected 1 oom_kill event in StepId=3.batch.";
        check(&format!("{full}\n{kill}\n"), Some((Cause::OutOfMemory, kill)));
        for quiet in ["", "\n", "loss: 0.5\n", "Error\n", "  indented\nTotal: 3\n", "note: x"] {
            check(quiet, None);
        }
    }

    #[test]
    fn the_log_of_a_job_in_which_no_trial_began_says_why() {
        let check = |text: &str, cause, line: &str| {
            assert_eq!(of_job(text), Some((cause, line.to_owned())), "{text}");
        };
        let moved = "/spool/slurm_script: line 20: /opt/hpcsweep: No such file or directory";
        check(&format!("modules loaded\n{moved}\n"), Some(Cause::CommandNotFound), moved);
        let launched = "slurmstepd: error: execve(): /opt/hpcsweep: No such file or directory";
        let task = "srun: error: n1: task 0: Exited with exit code 2";
        check(&format!("{launched}\n{task}\n"), Some(Cause::CommandNotFound), launched);
        check(&format!("no module foo\n\n{task}\n"), None, "no module foo");
        assert_eq!(of_job(&format!("\n{task}\n")), None);
    }

    #[test]
    fn the_log_of_a_job_says_why_slurm_has_ended_it() {
        let line = |due: &str| {
            format!(
                "x\nslurmstepd-n1: error: *** JOB 20 ON n1 CANCELLED AT 2026-11-24T00:39:02{due} ***\n"
            )
        };
        for (due, cause) in [
            (" DUE TO PREEMPTION", Cause::Preempted),
            (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", Cause::NodeFailure),
            (" DUE TO TIME LIMIT", Cause::Walltime),
            ("", Cause::Cancelled),
        ] {
            assert_eq!(of_stop(&line(due)), Some(cause), "{due}");
        }
        // It was requeued, and a person has cancelled it then.
        let both = line(" DUE TO PREEMPTION") + &line("");
        assert_eq!(of_stop(&both), Some(Cause::Cancelled));
        assert_eq!(of_stop("all CANCELLED AT noon\n"), None);
    }

    #[test]
    fn the_log_of_a_job_names_the_rank_that_ended_first() {
        let of = of_lost_rank;
        let step = "srun: error: n2: task 1: Killed\nslurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-24T05:33:28 ***\nsrun: Job step aborted: Waiting up to 7 seconds for job step to finish.\nsrun: error: n1: task 0: Killed\n";
        assert_eq!(of(step).as_deref(), Some("rank 1 on n2 vanished: Killed"));
        let other = "srun: error: n1: task 0: Exited with exit code 9\nsrun: error: n2: tasks 1-3,7: Terminated\n";
        let said = of(&format!("{step}{other}"));
        assert_eq!(said.as_deref(), Some("rank 0 on n1 vanished: Exited with exit code 9"));
        let requeued = "slurmstepd-n1: error: *** JOB 20 ON n1 CANCELLED AT 2026-11-24T00:39:02 DUE TO JOB REQUEUE ***\n";
        assert_eq!(of(&format!("{step}{requeued}")), None);
        for text in ["", "srun: error: n1: task x: Killed\n", "srun: error: n1: task 0\n"] {
            assert_eq!(of(text), None, "{text}");
        }
        // Slurm 24.11 after a kill -9 of rank 1.
        let cancelled = "slurmstepd-n1: error: *** STEP 542.0 ON n1 CANCELLED AT 2026-11-27T09:26:51 ***\nsrun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n";
        let killed = "srun: error: n1: task 0: Killed\nsrun: Terminating StepId=542.0\nsrun: error: n2: task 1: Killed\n";
        let unknown = "all ranks were killed: one had vanished, or the step was cancelled";
        assert_eq!(of(&format!("{cancelled}{killed}")).as_deref(), Some(unknown));
        let fault = "srun: error: n2: task 1: Segmentation fault\n";
        let said = of(&format!("{cancelled}srun: error: n1: task 0: Killed\n{fault}"));
        assert_eq!(said.as_deref(), Some("rank 1 on n2 vanished: Segmentation fault"));
    }

    #[test]
    fn of_several_ranks_only_the_one_that_failed_counts() {
        let log = b"[rank 0]   File \"x\"\n[rank 1]   File \"y\"\n[rank 1] ValueError: one\n[rank 0] KeyError: 'nought'\n";
        let of = |rank| of(log, 1, Some(rank)).map(|why| why.words);
        assert_eq!(of(1), Some(format!("ValueError: one{MARK}")));
        assert_eq!(of(0), Some(format!("KeyError: 'nought'{MARK}")));
        assert_eq!(of(2), None);
    }

    #[test]
    fn a_shell_says_which_command_it_could_not_start() {
        let of = |log: &str, code| of(log.as_bytes(), code, None).map(|why| why.cause);
        for (log, code, cause) in [
            ("sh: 1: foo: not found\n", 127, Some(Cause::CommandNotFound)),
            ("bash: line 1: foo: command not found\n", 127, Some(Cause::CommandNotFound)),
            ("sh: 1: ./foo: Permission denied\n", 126, Some(Cause::Permission)),
            (
                "./foo: cannot execute binary file: Exec format error\n",
                126,
                Some(Cause::ExecFormat),
            ),
            ("the key was not found\n", 1, None),
            ("foo\n", 127, None),
        ] {
            assert_eq!(of(log, code), cause, "{log}");
        }
    }

    #[test]
    fn the_programs_own_reason_has_a_cause() {
        assert_eq!(of_reason("the set-up failed at: . missing.sh"), Some(Cause::SetUp));
        assert_eq!(of_reason("ValueError: no (fit.py, line 3)"), Some(Cause::Exception));
        assert_eq!(of_reason("MemoryError (fit.py, line 3)"), Some(Cause::OutOfMemory));
        assert_eq!(of_reason("the loss is not a number"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_end_of_a_log_is_read(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4000)) {
            let words = of(&bytes, 1, None).map_or(0, |why| why.words.chars().count());
            proptest::prop_assert!(words <= LONGEST + 3 + MARK.len());
        }
    }
}
