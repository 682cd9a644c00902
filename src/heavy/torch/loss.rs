//! Losses: the mean over a batch of what PyTorch's modules of these names compute.

use hpcsweep::base::fault::Fault;
use hpcsweep::train::config::Loss;
use tch::{Kind, Reduction, TchError, Tensor};

use super::OrFault;

/// The loss of a batch: a number with a graph behind it.
///
/// Targets of [`Loss::CrossEntropy`] are the classes' numbers. Others have as many numbers as the
/// outputs; where their shapes differ they are taken in the same order, never stretched.
///
/// # Errors
/// When the targets do not fit the outputs.
pub(crate) fn loss(kind: Loss, outputs: &Tensor, targets: &Tensor) -> Result<Tensor, Fault> {
    let reduction = Reduction::Mean;
    match kind {
        Loss::CrossEntropy => classes(outputs, targets).and_then(|targets| {
            outputs.f_cross_entropy_loss(&targets, None::<&Tensor>, reduction, -100, 0.0)
        }),
        Loss::Mse => like(outputs, targets).and_then(|t| outputs.f_mse_loss(&t, reduction)),
        Loss::L1 => like(outputs, targets).and_then(|t| outputs.f_l1_loss(&t, reduction)),
        Loss::SmoothL1 => {
            like(outputs, targets).and_then(|t| outputs.f_smooth_l1_loss(&t, reduction, 1.0))
        }
        Loss::BceWithLogits => like(outputs, targets).and_then(|targets| {
            let none = None::<&Tensor>;
            outputs.f_binary_cross_entropy_with_logits(&targets, none, none, reduction)
        }),
    }
    .or_fault()
    .map_err(|fault| beyond(kind, outputs, targets).unwrap_or(fault))
}

/// The fault of a class that the model has no output for, if that is what is wrong.
fn beyond(kind: Loss, outputs: &Tensor, targets: &Tensor) -> Option<Fault> {
    if kind != Loss::CrossEntropy {
        return None;
    }
    let largest = classes(outputs, targets).ok()?.f_max().ok()?.f_int64_value(&[]).ok()?;
    let classes = *outputs.size().get(1)?;
    (largest >= classes).then(|| {
        Fault::request(format!(
            "a target is of class {largest}, and the model has {classes} outputs"
        ))
        .hint("classes are numbered from 0; set `outputs` of `[train] model` to their number")
    })
}

/// How many samples of a batch are classified rightly; `None` for losses of values. Of several logits of
/// [`Loss::BceWithLogits`] all must be on the right side.
///
/// # Errors
/// When the targets do not fit the outputs.
pub(crate) fn correct(
    kind: Loss,
    outputs: &Tensor,
    targets: &Tensor,
) -> Result<Option<i64>, Fault> {
    let hits = match kind {
        Loss::CrossEntropy => classes(outputs, targets)
            .and_then(|targets| outputs.f_argmax(1, false)?.f_eq_tensor(&targets)),
        Loss::BceWithLogits => like(outputs, targets).and_then(|targets| {
            let hits = outputs.f_gt(0.0)?.f_eq_tensor(&targets.f_gt(0.5)?)?;
            hits.f_view([hits.size()[0], -1])?.f_all_dim(1, false)
        }),
        Loss::Mse | Loss::L1 | Loss::SmoothL1 => return Ok(None),
    };
    let count = hits.and_then(|hits| hits.f_sum(Kind::Int64)?.f_int64_value(&[])).or_fault()?;
    Ok(Some(count))
}

/// Numbers of classes, one a sample (or one a point of it).
fn classes(outputs: &Tensor, targets: &Tensor) -> tch::Result<Tensor> {
    let (have, want) = (targets.size(), outputs.size());
    if want.len() < 2 {
        return Err(TchError::Shape(format!(
            "cross entropy needs one output a class, but the model returns {want:?}"
        )));
    }
    let mut shape = want.clone();
    shape.remove(1);
    if have.iter().product::<i64>() != shape.iter().product::<i64>() {
        return Err(TchError::Shape(format!(
            "cross entropy needs the number of a class for each sample: targets are {have:?}, outputs \
             {want:?}"
        )));
    }
    targets.f_to_kind(Kind::Int64)?.f_view(shape.as_slice())
}

/// The targets in the shape and kind of the outputs.
fn like(outputs: &Tensor, targets: &Tensor) -> tch::Result<Tensor> {
    let (have, want) = (targets.size(), outputs.size());
    if have.first() != want.first() || targets.numel() != outputs.numel() {
        return Err(TchError::Shape(format!(
            "targets {have:?} do not fit the model's outputs {want:?}"
        )));
    }
    // Autocast computes losses in 32 bit whatever the outputs are.
    let kind = match outputs.kind() {
        Kind::Half | Kind::BFloat16 => Kind::Float,
        kind => kind,
    };
    targets.f_to_kind(kind)?.f_reshape(want.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Loss, outputs: &Tensor, targets: &Tensor) -> f64 {
        loss(kind, outputs, targets).unwrap().double_value(&[])
    }

    #[test]
    fn losses_are_those_of_pytorch() {
        let outputs = Tensor::from_slice(&[0.5, -1.25, 2.0, 0.1, 3.0, -0.7]).view([2, 3]);
        let values = Tensor::from_slice(&[0.0, 1.0, 1.0, 0.0, 0.25, 1.0]).view([2, 3]);
        let classes = Tensor::from_slice(&[2, 0]);
        // torch 2.11: F.cross_entropy(o, c).item() and so on, in float64.
        assert_eq!(value(Loss::CrossEntropy, &outputs, &classes), 1.604674251391719);
        assert_eq!(value(Loss::Mse, &outputs, &values), 2.795833333333334);
        assert_eq!(value(Loss::L1, &outputs, &values), 1.383333333333333);
        assert_eq!(value(Loss::SmoothL1, &outputs, &values), 0.9716666666666667);
        assert_eq!(value(Loss::BceWithLogits, &outputs, &values), 1.1248506895168704);
        assert_eq!(correct(Loss::CrossEntropy, &outputs, &classes).unwrap(), Some(1));
        let right = Tensor::from_slice(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).view([2, 3]);
        assert_eq!(correct(Loss::BceWithLogits, &outputs, &right).unwrap(), Some(1));
        assert_eq!(correct(Loss::Mse, &outputs, &values).unwrap(), None);
    }

    #[test]
    fn targets_are_never_stretched() {
        let outputs = Tensor::from_slice(&[1.0, 2.0, 3.0]).view([3, 1]);
        // PyTorch would compare 3 x 3 pairs and warn.
        let flat = Tensor::from_slice(&[1.0, 2.0, 3.0]);
        assert_eq!(value(Loss::Mse, &outputs, &flat), 0.0);
        let one = Tensor::from_slice(&[1.0]);
        assert_eq!(
            loss(Loss::Mse, &outputs, &one).unwrap_err().to_string(),
            "targets [1] do not fit the model's outputs [3, 1]"
        );
        assert_eq!(
            loss(Loss::CrossEntropy, &outputs, &one).unwrap_err().to_string(),
            "cross entropy needs the number of a class for each sample: targets are [1], outputs [3, 1]"
        );
    }

    #[test]
    fn a_class_without_an_output_is_named() {
        let outputs = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0]).view([2, 2]);
        let targets = Tensor::from_slice(&[1, 2]);
        assert_eq!(
            loss(Loss::CrossEntropy, &outputs, &targets).unwrap_err().to_string(),
            "a target is of class 2, and the model has 2 outputs\nhint: classes are numbered from 0; \
             set `outputs` of `[train] model` to their number"
        );
    }
}
