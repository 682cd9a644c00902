//! Links the light program so that it needs libc and the loader only: the unwinder of gcc goes in
//! statically where the compiler has it. On a login node each library is a search through the folders
//! of a parallel file system.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=scripts/build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let found = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
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
}
