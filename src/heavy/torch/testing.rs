//! Helpers of the tests of the numerics: PyTorch's values are those that `tests/worker/reference.py` prints.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::{Device, Kind, Tensor};

use super::bytes;

/// libtorch's random numbers belong to the process, and tests are threads of one. So does the number of
/// its threads, on which the last bits of sums depend.
pub(crate) fn random_numbers() -> MutexGuard<'static, ()> {
    static OWNER: Mutex<()> = Mutex::new(());
    let owner = OWNER.lock().unwrap_or_else(PoisonError::into_inner);
    tch::set_num_threads(1);
    owner
}

/// As `numbers` of reference.py: multiples of 1/64 from -1 to 1, the same in every run.
pub(crate) fn numbers(shape: &[i64], kind: Kind) -> Tensor {
    let count = shape.iter().product::<i64>();
    let whole = (Tensor::arange(count, (Kind::Int64, Device::Cpu)) * 37 + 11).remainder(129) - 64;
    (whole.to_kind(kind) / 64).view(shape)
}

/// `crc` of reference.py: of copies and of drawn numbers, whose bits are the same everywhere.
pub(crate) fn crc<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    for tensor in tensors {
        hash.update(&bytes::from_tensor(tensor).unwrap());
    }
    hash.finalize()
}

/// `weighted` of reference.py: a sum in which every place has another weight, for what was computed. The last
/// bits of that are those of the processor's kernels.
pub(crate) fn weighted<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> f64 {
    let flat: Vec<Tensor> =
        tensors.into_iter().map(|t| t.detach().flatten(0, -1).to_kind(Kind::Double)).collect();
    let all = Tensor::cat(&flat, 0);
    let places = Tensor::arange(all.numel() as i64, (Kind::Double, Device::Cpu)) + 1.0;
    all.dot(&places.sqrt()).double_value(&[])
}

/// The first numbers of a tensor in C order.
pub(crate) fn first(tensor: &Tensor, count: i64) -> Vec<f64> {
    Vec::try_from(tensor.flatten(0, -1).narrow(0, 0, count).to_kind(Kind::Double)).unwrap()
}

/// Equal but for rounding in another order.
pub(crate) fn assert_close(is: &[f64], must: &[f64]) {
    assert_near(is, must, 1e-12);
}

/// Equal but for rounding, `relative` to the number or to 1.
pub(crate) fn assert_near(is: &[f64], must: &[f64], relative: f64) {
    assert_eq!(is.len(), must.len());
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= relative * b.abs().max(1.0);
    assert!(is.iter().zip(must).all(is_close), "{is:?} instead of {must:?}");
}
