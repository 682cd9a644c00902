//! `hpcsweep-worker selftest WHAT`: claims about ranks that only ranks can show, as numbers that
//! `tests/worker` judges. Started by mpirun or srun; a person may run it on a new machine.

mod exchange;
mod training;

use std::process::ExitCode;

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;

use crate::mpi::World;

/// The findings, by name.
type Seen = Vec<(&'static str, String)>;

/// Runs one of the tests on all ranks and prints what rank 0 has seen.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own speaks for itself"
)]
pub(crate) fn main(what: &str) -> ExitCode {
    let run = || {
        let mut world = World::init()?;
        let results = match what {
            "mpi" => exchange::run(&mut world)?,
            "ddp" => training::run(&mut world)?,
            _ => return Err(Fault::request(format!("no self-test is called `{what}`"))),
        };
        if world.rank() == 0 {
            for (name, value) in results {
                println!("{name}: {value}");
            }
        }
        world.finish()
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            crate::mpi::abort_all(1);
            ExitCode::FAILURE
        }
    }
}

/// The largest of every rank's numbers.
fn largest(peers: &mut dyn Peers, mine: f64) -> Result<f64, Fault> {
    let mut gathered = vec![0; 8 * peers.size() as usize];
    peers.all_gather(&mine.to_le_bytes(), &mut gathered)?;
    // NaN is larger than anything.
    Ok(gathered
        .chunks(8)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        .fold(0.0, |a, b| if b.is_nan() || b > a { b } else { a }))
}

/// A text that is the same on every rank, or the word `differs`.
fn common(peers: &mut dyn Peers, mine: &str) -> Result<String, Fault> {
    let hash = blake3::hash(mine.as_bytes());
    let mut hashes = vec![0; blake3::OUT_LEN * peers.size() as usize];
    peers.all_gather(hash.as_bytes(), &mut hashes)?;
    let is_same = hashes.chunks(blake3::OUT_LEN).all(|other| other == hash.as_bytes());
    Ok(if is_same { mine.to_owned() } else { "differs".to_owned() })
}
