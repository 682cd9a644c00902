//! The light program needs the C library and nothing that a login node may lack.

use goblin::elf::Elf;

use crate::support::world::PROGRAM;

#[test]
fn the_light_program_needs_only_the_c_library_and_the_loader() {
    let bytes = std::fs::read(PROGRAM).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let mut needed: Vec<&str> = elf.libraries.clone();
    needed.sort_unstable();
    // The linker names the loader too where thread-local storage is not optimised away.
    needed.retain(|name| !name.starts_with("ld-linux-"));
    assert_eq!(needed, ["libc.so.6"]);
    // No folder of the machine that built it is searched for libraries.
    assert_eq!((elf.rpaths, elf.runpaths), (Vec::new(), Vec::new()));
}
