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
    // Tests start the programs thousands of times, and moving a program that is not optimised to where it is loaded takes a third
    // of each start.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
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

/// The version of libtorch that tch is made for.
#[cfg(feature = "torch")]
const LIBTORCH: &str = "2.11.0";

/// Compiles the C++ of torch-sys with `torch/shim.cpp`, and links libtorch: that beside the installed program, and where it is now.
///
/// torch-sys would compile its two files by itself, each with all headers of libtorch, which take three quarters of the time. Here
/// they are one file with ours, and read the headers once. The feature `doc-only` keeps torch-sys from it.
#[cfg(feature = "torch")]
fn torch() {
    println!("cargo::rerun-if-changed={WORKER}/torch/shim.cpp");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let libtorch = std::env::var("LIBTORCH").expect("`.cargo/config.toml` sets LIBTORCH");
    let libtorch = std::path::absolute(&libtorch).unwrap_or_else(|e| panic!("{libtorch}: {e}"));
    let read = |name: &str| std::fs::read_to_string(libtorch.join(name)).ok();
    let found = read("build-version").or_else(|| read("version.py")).unwrap_or_else(|| {
        panic!(
            "there is no libtorch in {}: `scripts/setup --for worker` gets one",
            libtorch.display()
        )
    });
    assert!(
        found.contains(LIBTORCH),
        "libtorch in {} is not version {LIBTORCH}",
        libtorch.display()
    );
    let (lib, include) = (libtorch.join("lib"), libtorch.join("include"));
    let libtch = sources_of("torch-sys").join("libtch");
    let shim = std::path::absolute(format!("{WORKER}/torch/shim.cpp")).expect("it has a name");
    let parts = [libtch.join("torch_api.cpp"), libtch.join("torch_api_generated.cpp"), shim];
    let all: String =
        parts.iter().map(|part| format!("#include \"{}\"\n", part.display())).collect();
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let file = Path::new(&out).join("torch.cpp");
    std::fs::write(&file, all).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file(&file)
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        // Not ours: thousands of warnings in libtorch's headers.
        .warnings(false)
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        // It calls libtorch, which does the work: to optimise it takes minutes and gains nothing.
        .opt_level(0)
        .cargo_metadata(false)
        .compile("hpcsweep_torch");
    link(&format!("{out}/libhpcsweep_torch.a"));
    link(&format!("-L{}", lib.display()));
    link("-ltorch_cpu");
    link("-lc10");
    link("-lstdc++");
    link("-Wl,-rpath,$ORIGIN/../lib/hpcsweep/torch/lib");
    link(&format!("-Wl,-rpath,{}", lib.display()));
}

/// Where cargo has the sources of a package of this build.
#[cfg(feature = "torch")]
fn sources_of(package: &str) -> std::path::PathBuf {
    let cargo = std::env::var("CARGO").expect("cargo sets it");
    let told = std::process::Command::new(cargo)
        .args(["metadata", "--format-version=1", "--offline", "--all-features"])
        .args(["--filter-platform", &std::env::var("TARGET").expect("cargo sets it")])
        .output()
        .unwrap_or_else(|e| panic!("cargo metadata: {e}"));
    assert!(told.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&told.stderr));
    let told = String::from_utf8_lossy(&told.stdout);
    let mut paths =
        told.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let of = |path: &&str| path.rsplit('/').nth(1).is_some_and(|name| name.starts_with(package));
    let path = paths.find(of).unwrap_or_else(|| panic!("cargo knows no {package}"));
    Path::new(path).parent().expect("a manifest lies in a folder").to_owned()
}
