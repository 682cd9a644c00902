//! `hpcsweep-worker about`: what this build can do here; `hpcsweep doctor` shows it.

use std::fmt::Write;

/// Lines of a name and its value.
pub(crate) fn text() -> String {
    let mut text = format!("hpcsweep-worker {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "mpi: {}", mpi());
    let _ = writeln!(text, "libtorch: {}", libtorch());
    text
}

#[cfg(feature = "mpi")]
fn mpi() -> String {
    let name = crate::mpi::library();
    let name = name.lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
    let name = name.trim().to_owned();
    match crate::mpi::World::init() {
        Ok(world) => {
            let cuda = match crate::mpi::cuda_aware() {
                Some(true) => "reads GPU memory",
                Some(false) => "does not read GPU memory",
                None => "does not say whether it reads GPU memory",
            };
            let text = format!("{name} (thread level {}, {cuda})", world.thread_level());
            let _ = world.finish();
            text
        }
        Err(fault) => format!("{name}: {}", fault.sentence),
    }
}

#[cfg(not(feature = "mpi"))]
fn mpi() -> String {
    "not built in".to_owned()
}

#[cfg(feature = "torch")]
fn libtorch() -> String {
    let cuda = match crate::torch::cuda::load() {
        Ok(()) if tch::Cuda::is_available() => {
            format!("{} GPUs", tch::Cuda::device_count())
        }
        Ok(()) => "its library is there, but no GPU can be used".to_owned(),
        Err(why) => format!("no ({why})"),
    };
    format!("2.11.0, CUDA: {cuda}")
}

#[cfg(not(feature = "torch"))]
fn libtorch() -> String {
    "not built in".to_owned()
}
