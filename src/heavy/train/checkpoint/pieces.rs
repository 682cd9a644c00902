//! Tensors to bytes and back, without a change of a bit.

use anyhow::Result;
use hpcsweep::base::fault::{Fault, Kind as Whose};
use tch::{Tensor, no_grad};

use super::file::{Piece, Pieces};
use crate::torch::OrFault;
use crate::torch::bytes::{self, KINDS};

/// The numbers of a tensor, wherever it lies.
///
/// # Errors
/// When they are of a kind that no file holds, or libtorch fails.
pub(crate) fn piece(tensor: &Tensor) -> Result<Piece, Fault> {
    let kind = tensor.f_kind().or_fault()?;
    let Some((_, dtype)) = KINDS.iter().find(|(one, _)| *one == kind) else {
        let sentence = format!("a tensor of {kind:?} cannot be written to a checkpoint");
        return Err(Fault::new(Whose::Bug, sentence));
    };
    let bytes = bytes::from_tensor(tensor).or_fault()?;
    let shape = tensor.size().into_iter().map(|length| length as usize).collect();
    Ok(Piece { dtype: *dtype, shape, bytes })
}

/// The tensor of a piece, on the CPU.
///
/// # Errors
/// When the piece is of a kind that libtorch does not know.
pub(crate) fn tensor(piece: &Piece) -> Result<Tensor, Fault> {
    let Some((kind, _)) = KINDS.iter().find(|(_, dtype)| *dtype == piece.dtype) else {
        return Err(Fault::request(format!("libtorch has no numbers of type {:?}", piece.dtype)));
    };
    let shape: Vec<i64> = piece.shape.iter().map(|length| *length as i64).collect();
    Tensor::f_from_data_size(&piece.bytes, &shape, *kind).or_fault()
}

/// Puts the piece called `name` into a tensor of the same shape and kind.
///
/// # Errors
/// When there is none, or it belongs to another one.
pub(crate) fn restore(pieces: &Pieces, name: &str, into: &Tensor) -> Result<(), Fault> {
    let Some(piece) = pieces.get(name) else {
        return Err(Fault::request(format!("the file of weights has no `{name}`")));
    };
    let stored = tensor(piece)?;
    if stored.size() != into.size() || stored.kind() != into.kind() {
        return Err(Fault::request(format!(
            "`{name}` is {:?} of shape {:?} in the file of weights, and {:?} of shape {:?} in the model",
            stored.kind(),
            stored.size(),
            into.kind(),
            into.size()
        )));
    }
    no_grad(|| into.shallow_clone().f_copy_(&stored)).or_fault()
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn numbers_keep_every_bit() {
        let odd = [f32::NAN, -0.0, f32::MIN_POSITIVE / 4.0, f32::INFINITY, 1.0];
        let strided = Tensor::from_slice(&odd).unsqueeze(1).repeat([1, 3]).transpose(0, 1);
        for kind in [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half] {
            let one = strided.to_kind(kind);
            let piece = piece(&one).unwrap();
            let back = tensor(&piece).unwrap();
            assert_eq!((back.kind(), back.size()), (kind, vec![3, 5]));
            assert_eq!(super::piece(&back).unwrap(), piece);
        }
        let scalar = Tensor::from(7_i64);
        assert_eq!(tensor(&piece(&scalar).unwrap()).unwrap(), scalar);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let pieces = Pieces::from([("a".into(), piece(&Tensor::from_slice(&[1.0_f32])).unwrap())]);
        let into = Tensor::zeros([2], (Kind::Float, Device::Cpu));
        assert_eq!(
            restore(&pieces, "a", &into).unwrap_err().sentence,
            "`a` is Float of shape [1] in the file of weights, and Float of shape [2] in the model"
        );
        assert_eq!(
            restore(&pieces, "b", &into).unwrap_err().sentence,
            "the file of weights has no `b`"
        );
    }
}
