//! Links the two programs.
//!
//! The light one needs libc and the loader only: the unwinder of gcc goes in statically where the
//! compiler has it. On a login node each library is a search through the folders of a parallel file
//! system. The heavy one, with its features, gets two small files of C and C++ for what the crates `mpi`
//! and `tch` leave out, and the folders in which it looks for libtorch.

use std::path::Path;

/// Where the heavy worker's sources are.
#[cfg(any(feature = "mpi", feature = "torch"))]
const WORKER: &str = "src/heavy";

fn main() {
    println!("cargo::rerun-if-changed=scripts/build.rs");
    let compiler = cc::Build::new().try_get_compiler().ok();
    // zig links an unwinder of its own, statically; the gcc that it finds beside it wants a newer glibc.
    let gcc = compiler.filter(|c| !c.path().to_string_lossy().contains("zig"));
    let found = gcc.and_then(|c| c.to_command().arg("-print-file-name=libgcc_eh.a").output().ok());
    let path =
        found.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    // A compiler that lacks it prints the bare name.
    if Path::new(&path).is_absolute() && Path::new(&path).exists() {
        // The whole archive: defined symbols win over those of the shared library, which then is not
        // needed (`--as-needed` is rustc's default).
        for arg in ["-Wl,--whole-archive", &path, "-Wl,--no-whole-archive"] {
            println!("cargo::rustc-link-arg-bin=hpcsweep={arg}");
        }
    }
    #[cfg(feature = "mpi")]
    mpi();
    #[cfg(feature = "torch")]
    torch();
}

/// This passes an argument to the linker of the heavy worker only. Cargo would pass the link arguments
/// of a library to this package's own library, and so to every program.
#[cfg(any(feature = "mpi", feature = "torch"))]
fn link(arg: &str) {
    println!("cargo::rustc-link-arg-bin=hpcsweep-worker={arg}");
}

/// Compiles `mpi.c` against the MPI that the crate `mpi` has found.
#[cfg(feature = "mpi")]
fn mpi() {
    println!("cargo::rerun-if-changed={WORKER}/mpi.c");
    for variable in ["MPI_PKG_CONFIG", "CRAY_MPICH_DIR", "MPICC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let found = build_probe_mpi::probe().unwrap_or_else(|errors| {
        panic!("no MPI was found: {}", errors.iter().map(|e| format!("{e}; ")).collect::<String>())
    });
    let mut build = cc::Build::new();
    build.file(format!("{WORKER}/mpi.c")).cargo_metadata(false);
    match found.mpicc {
        Some(compiler) => {
            build.compiler(compiler);
        }
        None => {
            build.includes(&found.include_paths);
        }
    }
    build.compile("hpcsweep_mpi");
    link(&format!("{}/libhpcsweep_mpi.a", std::env::var("OUT_DIR").expect("cargo sets it")));
}

/// Compiles `torch/shim.cpp` and names the folders of libtorch: beside the installed program, and where
/// it was found when this was built.
#[cfg(feature = "torch")]
fn torch() {
    println!("cargo::rerun-if-changed={WORKER}/torch/shim.cpp");
    // torch-sys has found libtorch by its own rules (LIBTORCH, LIBTORCH_USE_PYTORCH, /usr) and says
    // where.
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys tells its dependents");
    let lib = std::path::absolute(&lib).unwrap_or_else(|e| panic!("{lib}: {e}"));
    let include = lib.parent().expect("`lib` has a parent").join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file(format!("{WORKER}/torch/shim.cpp"))
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        // Not ours: thousands of warnings in libtorch's headers.
        .warnings(false)
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .cargo_metadata(false)
        .compile("hpcsweep_torch");
    link(&format!("{}/libhpcsweep_torch.a", std::env::var("OUT_DIR").expect("cargo sets it")));
    link("-lstdc++");
    link("-Wl,-rpath,$ORIGIN/../lib/hpcsweep/torch/lib");
    link(&format!("-Wl,-rpath,{}", lib.display()));
}
