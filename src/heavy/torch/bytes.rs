//! Tensors as bytes: safetensors, and the memory that goes to other ranks.

use hpcsweep::base::fault::Fault;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, TchError, Tensor};

use super::OrFault;

/// Kinds that have a name in safetensors.
pub(crate) const KINDS: [(Kind, Dtype); 10] = [
    (Kind::Bool, Dtype::BOOL),
    (Kind::Uint8, Dtype::U8),
    (Kind::Int8, Dtype::I8),
    (Kind::Int16, Dtype::I16),
    (Kind::Int, Dtype::I32),
    (Kind::Int64, Dtype::I64),
    (Kind::Half, Dtype::F16),
    (Kind::BFloat16, Dtype::BF16),
    (Kind::Float, Dtype::F32),
    (Kind::Double, Dtype::F64),
];

/// The numbers of a tensor in C order.
pub(crate) fn from_tensor(tensor: &Tensor) -> tch::Result<Vec<u8>> {
    let tensor = tensor.detach().f_to_device(Device::Cpu)?.f_contiguous()?;
    let count = tensor.numel();
    let mut bytes = vec![0; count * tensor.kind().elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, count)?;
    Ok(bytes)
}

/// Lets `work` read and write the numbers of a tensor where they lie.
///
/// # Errors
/// When they do not lie in one piece in the memory of this computer.
#[expect(unsafe_code, reason = "tch shows the address of a tensor's numbers and no slice of them")]
pub(super) fn in_place<R>(
    tensor: &mut Tensor,
    work: impl FnOnce(&mut [u8]) -> R,
) -> tch::Result<R> {
    if tensor.device() != Device::Cpu || !tensor.is_contiguous() {
        return Err(TchError::Shape("the numbers do not lie in one piece in memory".into()));
    }
    let len = tensor.numel() * tensor.kind().elt_size_in_bytes();
    if len == 0 {
        return Ok(work(&mut []));
    }
    // SAFETY: a contiguous tensor of the CPU has its numbers in one piece at this address. No other thread
    // touches them meanwhile: one thread owns tensors, and it is here.
    let bytes = unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<u8>(), len) };
    Ok(work(bytes))
}

/// Named tensors as the bytes of a `.safetensors` file.
///
/// # Errors
/// When a tensor is of a kind that safetensors does not know.
pub(crate) fn encode<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<Vec<u8>, Fault> {
    let mut encoded = Vec::new();
    for (name, tensor) in tensors {
        let kind = tensor.kind();
        let Some((_, dtype)) = KINDS.iter().find(|(k, _)| *k == kind) else {
            return Err(Fault::request(format!("`{name}` is {kind:?}, which cannot be saved")));
        };
        let shape: Vec<usize> = tensor.size().iter().map(|n| *n as usize).collect();
        encoded.push((name, *dtype, shape, from_tensor(tensor).or_fault()?));
    }
    let views = encoded.iter().map(|(name, dtype, shape, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (*name, view))
    });
    let views = views.collect::<Result<Vec<_>, _>>().map_err(|e| cannot("write", &e))?;
    safetensors::serialize(views, None).map_err(|e| cannot("write", &e))
}

/// The tensors of a `.safetensors` file, on the CPU.
///
/// # Errors
/// When it is no such file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<(String, Tensor)>, Fault> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| cannot("read", &e))?;
    file.iter()
        .map(|(name, view)| {
            let Some((kind, _)) = KINDS.iter().find(|(_, dtype)| *dtype == view.dtype()) else {
                return Err(Fault::request(format!(
                    "`{name}` is {:?}, which is unknown",
                    view.dtype()
                )));
            };
            let shape: Vec<i64> = view.shape().iter().map(|n| *n as i64).collect();
            Ok((name.to_owned(), Tensor::f_from_data_size(view.data(), &shape, *kind).or_fault()?))
        })
        .collect()
}

fn cannot(what: &str, error: &safetensors::SafeTensorError) -> Fault {
    Fault::machine(format!("cannot {what} safetensors: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let cpu = Device::Cpu;
        for (kind, _) in KINDS {
            let numbers = Tensor::f_arange(6, (Kind::Int64, cpu)).unwrap().to_kind(kind);
            let tensor = numbers.view([2, 3]).transpose(0, 1);
            let scalar = Tensor::f_zeros([] as [i64; 0], (kind, cpu)).unwrap();
            let empty = Tensor::f_zeros([0, 2], (kind, cpu)).unwrap();
            let bytes = encode([("a.b", &tensor), ("s", &scalar), ("e", &empty)]).unwrap();
            let mut all = decode(&bytes).unwrap();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["a.b", "e", "s"]);
            for ((_, read), written) in all.iter().zip([&tensor, &empty, &scalar]) {
                assert_eq!((read.size(), read.kind()), (written.size(), kind));
                assert!(read.equal(written));
            }
        }
    }

    #[test]
    fn a_torn_file_is_a_fault() {
        let one = Tensor::f_ones([4], (Kind::Float, Device::Cpu)).unwrap();
        let bytes = encode([("a", &one)]).unwrap();
        for end in [0, 7, 20, bytes.len() - 1] {
            let fault = decode(&bytes[..end]).unwrap_err();
            assert!(fault.sentence.starts_with("cannot read safetensors: "), "{fault}");
        }
    }
}
