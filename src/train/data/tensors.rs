//! `.safetensors`: a header in JSON, then tensors in C order, little-endian; they stay in the map.

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Theirs, Metadata};

use super::array::{Array, Bytes, Dtype};
use crate::base::fault::Fault;

/// The header of a file, and where it ends.
#[derive(Debug)]
pub(super) struct Tensors {
    header: Metadata,
    start: usize,
}

impl Tensors {
    /// Reads the header, which must fit the length of the file.
    pub(super) fn read(bytes: &[u8], name: &str) -> Result<Self, Fault> {
        let (length, header) = SafeTensors::read_metadata(bytes).map_err(|e| {
            Fault::request(format!("{name} is not a whole `.safetensors` file: {e}"))
                .hint("copy it again from where it came from")
        })?;
        Ok(Self { header, start: length + 8 })
    }

    /// The names of the tensors, in the order of the file.
    pub(super) fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// A tensor of the names above; `name` is what faults call it, with backticks.
    pub(super) fn array(&self, bytes: &Bytes, entry: &str, name: &str) -> Result<Array, Fault> {
        let broken = || Fault::request(format!("{name} lies beyond the end of the file"));
        let tensor = self.header.info(entry).ok_or_else(broken)?;
        let dtype = dtype(tensor.dtype).ok_or_else(|| {
            Fault::request(format!(
                "{name} holds {}, which are not numbers to train with",
                tensor.dtype
            ))
            .hint("save it as F32, F64, or as integers")
        })?;
        let (first, end) = tensor.data_offsets;
        let numbers = bytes.piece(self.start + first..self.start + end).ok_or_else(broken)?;
        Array::new(dtype, tensor.shape.iter().map(|n| *n as u64).collect(), numbers, name)
    }
}

fn dtype(theirs: Theirs) -> Option<Dtype> {
    match theirs {
        Theirs::BOOL => Some(Dtype::Bool),
        Theirs::U8 => Some(Dtype::Uint8),
        Theirs::I8 => Some(Dtype::Int8),
        Theirs::U16 => Some(Dtype::Uint16),
        Theirs::I16 => Some(Dtype::Int16),
        Theirs::U32 => Some(Dtype::Uint32),
        Theirs::I32 => Some(Dtype::Int32),
        Theirs::U64 => Some(Dtype::Uint64),
        Theirs::I64 => Some(Dtype::Int64),
        Theirs::F16 => Some(Dtype::Float16),
        Theirs::BF16 => Some(Dtype::Bfloat16),
        Theirs::F32 => Some(Dtype::Float32),
        Theirs::F64 => Some(Dtype::Float64),
        _ => None,
    }
}
