//! `hpcsweep-worker bench WHAT ...`: a rank that `benches/training` times.
//!
//! It waits for orders on a socket, one line of whole numbers each, and answers with a line of seconds.
//! Between two orders it sleeps, so that the cores are free for what it is compared with.

mod exchange;
mod start;
mod step;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::disk;

use crate::mpi::World;

/// Runs one of the verbs on all ranks.
#[expect(clippy::print_stderr, reason = "a program of its own speaks for itself")]
pub(crate) fn main(args: &[&str]) -> ExitCode {
    let run = || -> anyhow::Result<()> {
        match *args {
            ["step", socket, model, overlap] => {
                let world = World::init()?;
                step::run(&world, &mut Orders::from(socket)?, model, overlap == "overlap")?;
                Ok(world.finish()?)
            }
            ["exchange", socket] => {
                let mut world = World::init()?;
                exchange::run(&mut world, &mut Orders::from(socket)?)?;
                Ok(world.finish()?)
            }
            ["start", file, began] => start::run(std::path::Path::new(file), began.parse()?),
            _ => Err(Fault::request("no such bench: see benches/training").into()),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            crate::mpi::abort_all(1);
            ExitCode::FAILURE
        }
    }
}

/// The other end of the bench.
struct Orders {
    lines: BufReader<UnixStream>,
}

impl Orders {
    fn from(socket: &str) -> Result<Self, Fault> {
        let stream = UnixStream::connect(socket)
            .map_err(|e| Fault::machine(format!("no socket to the bench: {}", disk::reason(&e))))?;
        Ok(Self { lines: BufReader::new(stream) })
    }

    /// The next order; none when the bench has seen enough.
    fn next(&mut self) -> Option<Vec<usize>> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => line.split_whitespace().map(|word| word.parse().ok()).collect(),
        }
    }

    /// Seconds. A bench that has gone away needs none.
    fn answer(&mut self, seconds: &[f64]) {
        let words: Vec<String> = seconds.iter().map(|s| format!("{s:e}")).collect();
        let _ = writeln!(self.lines.get_mut(), "{}", words.join(" "));
    }
}
