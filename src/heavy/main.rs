//! `hpcsweep-worker`: the heavy half of the worker, for trials that need MPI or libtorch.
//!
//! `hpcsweep worker` starts it beside or as a trial's program, `hpcsweep collect` becomes it to write Parquet and Arrow, and
//! `hpcsweep plot` to draw pictures; both must be of one version. The one place that may name the crates `mpi` and `tch`; a build without these features has neither.

mod about;
#[cfg(all(feature = "mpi", feature = "torch"))]
mod bench;
#[cfg(feature = "mpi")]
mod end;
#[cfg(feature = "mpi")]
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(all(feature = "mpi", feature = "torch"))]
mod selftest;
#[cfg(feature = "mpi")]
mod serve;
#[cfg(feature = "torch")]
mod torch;
#[cfg(all(feature = "mpi", feature = "torch"))]
mod train;

use std::process::ExitCode;

use hpcsweep::run::worker::process::launch::VERSION_VARIABLE;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own speaks for itself"
)]
fn main() -> ExitCode {
    hpcsweep::base::host::signal::ignore_file_size();
    let own_version = env!("CARGO_PKG_VERSION");
    if let Ok(theirs) = std::env::var(VERSION_VARIABLE)
        && theirs != own_version
    {
        return refuse(
            &format!("this is hpcsweep-worker {own_version}, but hpcsweep is {theirs}"),
            "install both programs of one version together",
        );
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--version" | "-V"] => {
            println!("hpcsweep-worker {own_version}");
            ExitCode::SUCCESS
        }
        ["about"] => {
            print!("{}", about::text());
            ExitCode::SUCCESS
        }
        #[cfg(feature = "mpi")]
        ["sync", file] => serve::main(std::path::Path::new(file)),
        #[cfg(all(feature = "mpi", feature = "torch"))]
        ["train", file] => train::main(std::path::Path::new(file)),
        #[cfg(all(feature = "mpi", feature = "torch"))]
        ["evaluate", file, answer] => {
            train::evaluate(std::path::Path::new(file), std::path::Path::new(answer))
        }
        #[cfg(all(feature = "mpi", feature = "torch"))]
        ["selftest", what] => selftest::main(what),
        #[cfg(all(feature = "mpi", feature = "torch"))]
        ["bench", args @ ..] => bench::main(args),
        #[cfg(feature = "tables")]
        ["table", args @ ..] => hpcsweep::cli::main_as_worker(args),
        #[cfg(feature = "pictures")]
        ["picture", args @ ..] => hpcsweep::cli::main_as_worker(args),
        #[cfg(not(feature = "pictures"))]
        ["picture", ..] => refuse(
            "this hpcsweep-worker was built without pictures",
            "build it with `cargo build --release --features pictures`, or draw in the terminal: `--term`",
        ),
        #[cfg(not(feature = "tables"))]
        ["table", ..] => refuse(
            "this hpcsweep-worker was built without Parquet, Arrow and SQLite",
            "build it with `cargo build --release --features tables`, or write another format: `--format csv`",
        ),
        ["train" | "evaluate" | "sync", ..] => refuse(
            "this hpcsweep-worker was built without MPI or libtorch",
            "build it with `cargo build --release --features mpi,torch`",
        ),
        _ => {
            eprintln!("error: hpcsweep-worker is started by `hpcsweep worker`");
            eprintln!("hint: `hpcsweep-worker about` says what it was built with");
            ExitCode::from(2)
        }
    }
}

/// Says why this program cannot do what it is asked: to people, and to the worker that started it.
fn refuse(sentence: &str, hint: &str) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "error: {sentence}\nhint: {hint}");
    if let Some(reason) = std::env::var_os("HPCSWEEP_REASON") {
        let _ = hpcsweep::base::host::disk::append(
            std::path::Path::new(&reason),
            format!("{sentence}; hint: {hint}\n").as_bytes(),
        );
    }
    ExitCode::from(4)
}
