//! One checkpoint as one file: safetensors, with the state as JSON in its metadata and a BLAKE3 of both.
//!
//! Everything a run needs to resume is in one file, so that no crash can leave a model of one step beside
//! moments of another. The checksum detects what a rename cannot: a disk that lost or changed bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use safetensors::tensor::{Dtype, SafeTensors, View};

const STATE: &str = "hpcsweep";
const SUM: &str = "blake3";

/// The numbers of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Type of the numbers.
    pub(crate) dtype: Dtype,
    /// Lengths of the dimensions.
    pub(crate) shape: Vec<usize>,
    /// The numbers, little-endian, in C order.
    pub(crate) bytes: Vec<u8>,
}

impl View for &Piece {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The tensors of a checkpoint, by their names in its file.
pub(crate) type Pieces = BTreeMap<String, Piece>;

fn sum(state: &str, pieces: &Pieces) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add_part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add_part(state.as_bytes());
    for (name, piece) in pieces {
        add_part(name.as_bytes());
        add_part(format!("{:?} {:?}", piece.dtype, piece.shape).as_bytes());
        add_part(&piece.bytes);
    }
    hasher.finalize().to_hex().to_string()
}

/// A checkpoint as the bytes of its file.
///
/// # Errors
/// When a tensor does not fit its shape (our bug).
pub(crate) fn encode(state: &str, pieces: &Pieces) -> Result<Vec<u8>> {
    let metadata =
        HashMap::from([(STATE.to_owned(), state.to_owned()), (SUM.to_owned(), sum(state, pieces))]);
    safetensors::serialize(pieces.iter(), Some(metadata)).context("writing a checkpoint")
}

/// The tensors of a file.
fn tensors(bytes: &[u8]) -> Result<Pieces, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let piece = |name: &str, view: safetensors::tensor::TensorView<'_>| {
        let read_piece = Piece {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        (name.to_owned(), read_piece)
    };
    Ok(file.iter().map(|(name, view)| piece(name, view)).collect())
}

/// State and tensors of a checkpoint.
///
/// # Errors
/// The error in the bytes: torn, changed, or not a checkpoint.
pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Pieces), String> {
    if bytes.is_empty() {
        return Err("it is empty".into());
    }
    let (_, head) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let metadata = |key: &str| head.metadata().as_ref().and_then(|all| all.get(key)).cloned();
    let (Some(state), Some(expected)) = (metadata(STATE), metadata(SUM)) else {
        return Err("it is not a checkpoint of hpcsweep".into());
    };
    let pieces = tensors(bytes)?;
    if sum(&state, &pieces) != expected {
        return Err("its checksum is wrong".into());
    }
    Ok((state, pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let piece = |bytes: &[u8]| Piece {
            dtype: Dtype::U8,
            shape: vec![bytes.len()],
            bytes: bytes.into(),
        };
        Pieces::from([("a".into(), piece(b"one")), ("b".into(), piece(b"two more"))])
    }

    #[test]
    fn a_checkpoint_comes_back_as_it_went() {
        let bytes = encode(r#"{"epoch":3}"#, &pieces()).unwrap();
        assert_eq!(decode(&bytes), Ok((r#"{"epoch":3}"#.to_owned(), pieces())));
    }

    #[test]
    fn a_torn_or_changed_one_is_found_wherever_it_is_hurt() {
        let whole = encode(r#"{"epoch":3}"#, &pieces()).unwrap();
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for place in 0..whole.len() {
            let mut hurt = whole.clone();
            hurt[place] ^= 1;
            // The head is padded with spaces, which carry nothing.
            let read = decode(&hurt);
            assert!(read.is_err(), "changed at {place}: {read:?}");
        }
    }

    #[test]
    fn foreign_files_are_no_checkpoints() {
        let foreign = safetensors::serialize(pieces().iter(), None).unwrap();
        assert_eq!(decode(&foreign), Err("it is not a checkpoint of hpcsweep".into()));
        assert_eq!(decode(b""), Err("it is empty".into()));
    }
}
