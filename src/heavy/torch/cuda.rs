//! libtorch's CUDA half, loaded when the program runs: one program for machines with and without GPUs. A
//! program linked with it would not start where the library is missing.

use std::sync::OnceLock;

pub(crate) use super::shim::choose_deterministic;

/// Loads `libtorch_cuda.so` from where the other half is found (or from `LD_LIBRARY_PATH`). Must come
/// before the first tensor; costs 0.1 to 0.2 s where the library is there.
///
/// # Errors
/// The loader's reason, where it cannot be loaded.
#[expect(unsafe_code, reason = "dlopen(3)")]
pub(crate) fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED
        .get_or_init(|| {
            let flags = nix::libc::RTLD_NOW | nix::libc::RTLD_GLOBAL;
            // SAFETY: a name with its zero. The library's initialisers register its kernels with libtorch,
            // which this program is linked with; it stays loaded.
            let handle = unsafe { nix::libc::dlopen(c"libtorch_cuda.so".as_ptr(), flags) };
            if !handle.is_null() {
                return Ok(());
            }
            // SAFETY: the loader's own text about the call before, on the same thread; copied at once.
            let reason = unsafe {
                let text = nix::libc::dlerror();
                if text.is_null() { c"no reason given" } else { std::ffi::CStr::from_ptr(text) }
            };
            Err(reason.to_string_lossy().into_owned())
        })
        .clone()
}
