//! `hpcsweep`: parse, run, print the fault, exit. Nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    hpcsweep::cli::main()
}
