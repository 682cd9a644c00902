//! `hpcsweep`: parse, run, print the fault, exit. Nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    hpcsweep::cli::main()
}

/// The functions of the C mathematics library that our crates call, from the crate `libm`: the
/// program then needs no libm.so, one search through the file system less at every start.
#[expect(unsafe_code, reason = "exporting a symbol under its C name is unsafe by declaration")]
mod mathematics {
    #[unsafe(no_mangle)]
    extern "C" fn exp(x: f64) -> f64 {
        libm::exp(x)
    }

    #[unsafe(no_mangle)]
    extern "C" fn log(x: f64) -> f64 {
        libm::log(x)
    }

    #[unsafe(no_mangle)]
    extern "C" fn log10(x: f64) -> f64 {
        libm::log10(x)
    }

    #[unsafe(no_mangle)]
    extern "C" fn pow(x: f64, y: f64) -> f64 {
        libm::pow(x, y)
    }

    #[unsafe(no_mangle)]
    extern "C" fn hypot(x: f64, y: f64) -> f64 {
        libm::hypot(x, y)
    }

    #[unsafe(no_mangle)]
    extern "C" fn sin(x: f64) -> f64 {
        libm::sin(x)
    }
}
