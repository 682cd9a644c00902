//! Calls of `shim.cpp`, what the crate tch leaves out of libtorch, made safe.

#![expect(unsafe_code, reason = "calls of C++ functions of our own")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use tch::{Device, Kind, TchError, Tensor};

/// A C++ tensor, or module, seen from here.
type Opaque = c_void;

/// The function that a hook calls: with the context it was set with, and the parameter's number.
pub(super) type Ready = extern "C" fn(context: *const c_void, index: usize);

type Take = extern "C" fn(list: *mut c_void, name: *const c_char, tensor: *mut Opaque);

unsafe extern "C" {
    fn hpcsweep_torch_free(text: *mut c_char);
    fn hpcsweep_torch_add(to: *mut Opaque, other: *const Opaque, factor: f64) -> *mut c_char;
    fn hpcsweep_torch_addcmul(
        to: *mut Opaque,
        a: *const Opaque,
        b: *const Opaque,
        factor: f64,
    ) -> *mut c_char;
    fn hpcsweep_torch_addcdiv(
        to: *mut Opaque,
        a: *const Opaque,
        b: *const Opaque,
        factor: f64,
    ) -> *mut c_char;
    fn hpcsweep_torch_plus(
        a: *const Opaque,
        b: *const Opaque,
        factor: f64,
        sum: *mut *mut Opaque,
    ) -> *mut c_char;
    fn hpcsweep_torch_set_grad(tensor: *mut Opaque, grad: *const Opaque) -> *mut c_char;
    fn hpcsweep_torch_on_grad(
        tensor: *mut Opaque,
        ready: Ready,
        context: *const c_void,
        index: usize,
    ) -> *mut c_char;
    fn hpcsweep_torch_no_hook(tensor: *mut Opaque) -> *mut c_char;
    fn hpcsweep_torch_identity(tensor: *const Opaque) -> *const c_void;
    fn hpcsweep_torch_autocast_enter(
        device: c_int,
        is_bfloat: bool,
        was_on: *mut bool,
        was_kind: *mut c_int,
    ) -> *mut c_char;
    fn hpcsweep_torch_autocast_leave(device: c_int, was_on: bool, was_kind: c_int) -> *mut c_char;
    fn hpcsweep_torch_deterministic() -> *mut c_char;
    fn hpcsweep_torch_load(
        path: *const c_char,
        device: c_int,
        module: *mut *mut Opaque,
    ) -> *mut c_char;
    fn hpcsweep_torch_unload(module: *mut Opaque);
    fn hpcsweep_torch_is_traced(module: *const Opaque, is_traced: *mut bool) -> *mut c_char;
    fn hpcsweep_torch_parameters(
        module: *const Opaque,
        list: *mut c_void,
        take: Take,
    ) -> *mut c_char;
    fn hpcsweep_torch_buffers(module: *const Opaque, list: *mut c_void, take: Take) -> *mut c_char;
    fn hpcsweep_torch_train(module: *mut Opaque, on: bool) -> *mut c_char;
    fn hpcsweep_torch_forward(
        module: *mut Opaque,
        x: *const Opaque,
        y: *mut *mut Opaque,
    ) -> *mut c_char;
    fn hpcsweep_torch_save(module: *const Opaque, path: *const c_char) -> *mut c_char;
}

/// Lets libtorch choose algorithms that give the same bits each time, on GPUs, too. It names in a warning on standard
/// error each operation that has none. For cuBLAS, `CUBLAS_WORKSPACE_CONFIG` must be set as well.
///
/// # Errors
/// libtorch's reason.
pub(crate) fn choose_deterministic() -> tch::Result<()> {
    // SAFETY: it sets switches of libtorch and takes nothing.
    check(unsafe { hpcsweep_torch_deterministic() })
}

/// The error that a function of the shim has returned.
fn check(text: *mut c_char) -> tch::Result<()> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: a text of the shim: it ends with a zero and is ours to free.
    let message = unsafe {
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        hpcsweep_torch_free(text);
        message
    };
    Err(TchError::Torch(message))
}

fn pointer(tensor: &Tensor) -> *mut Opaque {
    tensor.as_ptr().cast::<Opaque>().cast_mut()
}

/// `to += factor * other`.
pub(super) fn add(to: &Tensor, other: &Tensor, factor: f64) -> tch::Result<()> {
    // SAFETY: both are tensors that live as long as the call; libtorch checks the rest.
    check(unsafe { hpcsweep_torch_add(pointer(to), pointer(other), factor) })
}

/// `to += factor * a * b`.
pub(super) fn addcmul(to: &Tensor, a: &Tensor, b: &Tensor, factor: f64) -> tch::Result<()> {
    // SAFETY: as in `add`.
    check(unsafe { hpcsweep_torch_addcmul(pointer(to), pointer(a), pointer(b), factor) })
}

/// `to += factor * a / b`.
pub(super) fn addcdiv(to: &Tensor, a: &Tensor, b: &Tensor, factor: f64) -> tch::Result<()> {
    // SAFETY: as in `add`.
    check(unsafe { hpcsweep_torch_addcdiv(pointer(to), pointer(a), pointer(b), factor) })
}

/// `a + factor * b`, a tensor of its own.
pub(super) fn plus(a: &Tensor, b: &Tensor, factor: f64) -> tch::Result<Tensor> {
    let mut sum: *mut Opaque = ptr::null_mut();
    // SAFETY: as in `add`, and a place to write to.
    check(unsafe { hpcsweep_torch_plus(pointer(a), pointer(b), factor, &mut sum) })?;
    // SAFETY: a new tensor of the shim, now ours.
    Ok(unsafe { Tensor::from_ptr(sum.cast()) })
}

/// Makes `grad` the tensor into which the backward pass adds; `None` leaves it without.
pub(super) fn set_grad(tensor: &Tensor, grad: Option<&Tensor>) -> tch::Result<()> {
    // SAFETY: as in `add`; null is allowed.
    check(unsafe {
        hpcsweep_torch_set_grad(pointer(tensor), grad.map_or(ptr::null_mut(), pointer).cast_const())
    })
}

/// Has `ready(context, index)` called whenever the backward pass has added to the tensor's gradient.
///
/// # Safety
/// `context` is what `ready` takes it for until [`no_hook`] was called. `ready` may be called on any
/// thread where the tensor is on a GPU, else on the thread that runs the backward pass.
pub(super) unsafe fn on_grad(
    tensor: &Tensor,
    ready: Ready,
    context: *const c_void,
    index: usize,
) -> tch::Result<()> {
    // SAFETY: passed on.
    check(unsafe { hpcsweep_torch_on_grad(pointer(tensor), ready, context, index) })
}

/// Takes the hook away.
pub(super) fn no_hook(tensor: &Tensor) -> tch::Result<()> {
    // SAFETY: as in `add`.
    check(unsafe { hpcsweep_torch_no_hook(pointer(tensor)) })
}

/// A number that two tensors have in common only if they are the same.
pub(super) fn identity(tensor: &Tensor) -> usize {
    // SAFETY: reads a pointer of the tensor.
    unsafe { hpcsweep_torch_identity(pointer(tensor)) }.addr()
}

/// As tch counts devices in C.
fn number(device: Device) -> c_int {
    match device {
        Device::Cuda(n) => n as c_int,
        _ => -1,
    }
}

/// While it lives, libtorch computes in `kind` what it deems safe there.
#[derive(Debug)]
pub(super) struct Autocast {
    device: c_int,
    was_on: bool,
    was_kind: c_int,
}

impl Autocast {
    /// `kind` is bfloat16 or float16.
    pub(super) fn enter(device: Device, kind: Kind) -> tch::Result<Self> {
        let mut autocast = Self { device: number(device), was_on: false, was_kind: 0 };
        // SAFETY: two places to write to.
        let code = unsafe {
            hpcsweep_torch_autocast_enter(
                autocast.device,
                kind == Kind::BFloat16,
                &mut autocast.was_on,
                &mut autocast.was_kind,
            )
        };
        check(code).map(|()| autocast)
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: numbers that `enter` was given. Nothing in it can fail.
        let _ = check(unsafe {
            hpcsweep_torch_autocast_leave(self.device, self.was_on, self.was_kind)
        });
    }
}

/// A TorchScript module that was loaded from a file; unloaded when it is dropped.
#[derive(Debug)]
pub(super) struct Module(*mut Opaque);

impl Module {
    pub(super) fn load(path: &Path, device: Device) -> tch::Result<Self> {
        let path = c_path(path)?;
        let mut module = ptr::null_mut();
        // SAFETY: a text with its zero, and a place to write to.
        check(unsafe { hpcsweep_torch_load(path.as_ptr(), number(device), &mut module) })?;
        Ok(Self(module))
    }

    /// Whether training and evaluation are the same to it because it was traced.
    pub(super) fn is_traced(&self) -> tch::Result<bool> {
        let mut is_traced = false;
        // SAFETY: our module, and a place to write to.
        check(unsafe { hpcsweep_torch_is_traced(self.0, &mut is_traced) })?;
        Ok(is_traced)
    }

    pub(super) fn parameters(&self) -> tch::Result<Vec<(String, Tensor)>> {
        let mut list = Vec::new();
        // SAFETY: `take` is called before the return only, with this list.
        check(unsafe { hpcsweep_torch_parameters(self.0, (&raw mut list).cast(), take) })?;
        Ok(list)
    }

    pub(super) fn buffers(&self) -> tch::Result<Vec<(String, Tensor)>> {
        let mut list = Vec::new();
        // SAFETY: as in `parameters`.
        check(unsafe { hpcsweep_torch_buffers(self.0, (&raw mut list).cast(), take) })?;
        Ok(list)
    }

    pub(super) fn train(&self, on: bool) -> tch::Result<()> {
        // SAFETY: our module.
        check(unsafe { hpcsweep_torch_train(self.0, on) })
    }

    pub(super) fn forward(&self, x: &Tensor) -> tch::Result<Tensor> {
        let mut y: *mut Opaque = ptr::null_mut();
        // SAFETY: our module, a living tensor, and a place to write to.
        check(unsafe { hpcsweep_torch_forward(self.0, pointer(x), &mut y) })?;
        // SAFETY: a new tensor of the shim, now ours.
        Ok(unsafe { Tensor::from_ptr(y.cast()) })
    }

    pub(super) fn save(&self, path: &Path) -> tch::Result<()> {
        let path = c_path(path)?;
        // SAFETY: our module, and a text with its zero.
        check(unsafe { hpcsweep_torch_save(self.0, path.as_ptr()) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: ours, and unloaded once.
        unsafe { hpcsweep_torch_unload(self.0) }
    }
}

extern "C" fn take(list: *mut c_void, name: *const c_char, tensor: *mut Opaque) {
    // SAFETY: `list` is what `parameters` and `buffers` gave to the shim, `name` ends with a zero, the
    // tensor is new.
    unsafe {
        let list: &mut Vec<(String, Tensor)> = &mut *list.cast();
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        list.push((name, Tensor::from_ptr(tensor.cast())));
    }
}

fn c_path(path: &Path) -> tch::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
