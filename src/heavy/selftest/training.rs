//! Training on several ranks against the same training on one.

use std::path::Path;

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::{Alone, Peers};
use hpcsweep::train::config::{self, Loss};
use tch::{Device, Kind, Tensor, no_grad};

use super::{Seen, common, largest};
use crate::mpi::World;
use crate::torch::ddp::{Ddp, DdpOptions, Reduce, weight};
use crate::torch::loss::loss;
use crate::torch::model::{Model, Named};
use crate::torch::optim::{Optimizer, clip_grad_norm};
use crate::torch::{OrFault, bytes};

/// Classes of the made-up samples.
const CLASSES: i64 = 10;
/// Channels, height and width of a sample.
const SAMPLE: [i64; 3] = [1, 12, 12];
/// Bytes of buckets: few, so that there are several.
const OPTIONS: DdpOptions = DdpOptions { overlap: true, limits: [2048, 4096] };

/// A training: for each rank the samples of each micro-batch of a step.
#[derive(Clone, Copy)]
struct Case<'a> {
    kind: Kind,
    steps: i64,
    clip: Option<f64>,
    batches: &'a [&'a [i64]],
    options: DdpOptions,
}

const F64: Case =
    Case { kind: Kind::Double, steps: 20, clip: None, batches: &[&[32], &[32]], options: OPTIONS };

pub(super) fn run(world: &mut World) -> Result<Seen, Fault> {
    if world.size() != 2 {
        return Err(Fault::request("this self-test is for 2 ranks"));
    }
    tch::set_num_threads(1);
    let mut results: Seen = Vec::new();
    let cases: [(&str, Case); 7] = [
        ("f64, 20 steps", F64),
        ("f32, 1 step", Case { kind: Kind::Float, steps: 1, ..F64 }),
        ("unequal batches", Case { batches: &[&[37], &[11]], ..F64 }),
        ("a rank without samples", Case { batches: &[&[], &[48]], ..F64 }),
        ("accumulated", Case { batches: &[&[8, 8, 8, 8], &[8, 8, 8, 3]], ..F64 }),
        ("clipped", Case { clip: Some(0.05), ..F64 }),
        (
            "after the backward pass",
            Case { options: DdpOptions { overlap: false, ..OPTIONS }, ..F64 },
        ),
    ];
    for (name, case) in cases {
        let total: i64 = case.batches.concat().iter().sum();
        let one_batch = Case { batches: &[&[total]], ..case };
        let alone = train(&one_batch, 0, Box::new(Alone))?;
        let together = train(&case, world.rank(), Box::new(world.sums()?))?;
        let difference = largest(world, difference(&alone, &together)?)?;
        results.push((name, format!("{difference:e}")));
    }
    let uncut = digest(&train(&F64, world.rank(), Box::new(world.sums()?))?)?;
    world.limit(1000);
    let cut = digest(&train(&F64, world.rank(), Box::new(world.sums()?))?)?;
    results.push(("cut", if cut == uncut { "the same" } else { "others" }.to_owned()));
    results.push(("weights", common(world, &uncut)?));
    results.push(("unused", unused(world)?));
    results.push(("buffers", buffers(world)?));
    results.push(("another model", another_model(world)?));
    Ok(results)
}

/// Trains a small network and returns its parameters.
fn train(case: &Case, rank: u32, reduce: Box<dyn Reduce>) -> Result<Vec<Tensor>, Fault> {
    let config =
        config::Model::Cnn { channels: vec![8, 16], outputs: CLASSES as u64, dropout: 0.0 };
    // Another seed on each rank: rank 0's weights count.
    let seed = 1 + i64::from(rank);
    let model = Model::build(&config, &SAMPLE, Device::Cpu, case.kind, seed, Path::new(""))?;
    let mut ddp = Ddp::new(model.parameters(), model.buffers(), reduce, case.options)?;
    let lr = 0.003;
    let config = config::Optimizer::Sgd {
        lr,
        momentum: 0.9,
        dampening: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    };
    let mut optimizer = Optimizer::new(&config, model.parameters())?;
    let total: i64 = case.batches.concat().iter().sum();
    let own_batches = case.batches[rank as usize];
    let first_sample: i64 = case.batches[..rank as usize].concat().iter().sum();
    for step in 0..case.steps {
        let (x, y) = samples(step, total, case.kind).or_fault()?;
        ddp.zero_grad()?;
        let mut start = first_sample;
        for (i, count) in own_batches.iter().enumerate() {
            let batch_of = |t: &Tensor| t.f_narrow(0, start, *count).or_fault();
            let loss =
                loss(Loss::CrossEntropy, &model.forward(&batch_of(&x)?, true)?, &batch_of(&y)?)?;
            ddp.backward(&loss, weight(*count as u64, total as u64), i + 1 == own_batches.len())?;
            start += count;
        }
        ddp.finish()?;
        if let Some(most) = case.clip {
            clip_grad_norm(model.parameters(), most)?;
        }
        optimizer.step(lr)?;
    }
    Ok(model.parameters().iter().map(|p| p.tensor.shallow_clone()).collect())
}

/// The samples of a step, the same on every rank.
fn samples(step: i64, total: i64, kind: Kind) -> tch::Result<(Tensor, Tensor)> {
    tch::manual_seed(1000 + step);
    let shape = [&[total], &SAMPLE[..]].concat();
    let x = Tensor::f_randn(shape, (Kind::Double, Device::Cpu))?.f_to_kind(kind)?;
    Ok((x, Tensor::f_randint(CLASSES, [total], (Kind::Int64, Device::Cpu))?))
}

fn difference(a: &[Tensor], b: &[Tensor]) -> Result<f64, Fault> {
    let mut largest = 0f64;
    for (a, b) in a.iter().zip(b) {
        let difference =
            a.f_sub(b).and_then(|d| d.f_abs()?.f_max()?.f_double_value(&[])).or_fault()?;
        largest = if difference.is_nan() { difference } else { largest.max(difference) };
    }
    Ok(largest)
}

fn digest(tensors: &[Tensor]) -> Result<String, Fault> {
    let mut hasher = blake3::Hasher::new();
    for tensor in tensors {
        hasher.update(&bytes::from_tensor(tensor).or_fault()?);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Rank 0 uses `a` and `b`, rank 1 `a` alone, and no rank uses `c`. The weights of unused parameters decay,
/// except `c`, which the optimizer must not see.
fn unused(world: &mut World) -> Result<String, Fault> {
    let named = |name: &str| {
        let tensor = Tensor::f_ones([3], (Kind::Double, Device::Cpu))?.f_set_requires_grad(true)?;
        Ok(Named { name: name.to_owned(), tensor })
    };
    let parameters =
        ["a", "b", "c"].map(named).into_iter().collect::<tch::Result<Vec<_>>>().or_fault()?;
    let sums = Box::new(world.sums()?);
    let mut ddp = Ddp::new(&parameters, &[], sums, DdpOptions { limits: [1, 1], ..OPTIONS })?;
    let config = config::Optimizer::Sgd {
        lr: 0.5,
        momentum: 0.0,
        dampening: 0.0,
        nesterov: false,
        weight_decay: 0.5,
    };
    let mut optimizer = Optimizer::new(&config, &parameters)?;
    for _ in 0..2 {
        ddp.zero_grad()?;
        let used = if world.rank() == 0 { 2 } else { 1 };
        let mut loss = Tensor::f_zeros([1], (Kind::Double, Device::Cpu)).or_fault()?;
        for named in &parameters[..used] {
            loss = loss.f_add(&named.tensor.f_sum(Kind::Double).or_fault()?).or_fault()?;
        }
        ddp.backward(&loss, weight(1, 2), true)?;
        ddp.finish()?;
        optimizer.step(0.5)?;
    }
    let values =
        parameters.iter().map(|p| p.tensor.f_double_value(&[0])).collect::<tch::Result<Vec<_>>>();
    common(world, &format!("{:?}", values.or_fault()?))
}

/// Batch normalisation follows each rank's own batches until buffers are averaged.
fn buffers(world: &mut World) -> Result<String, Fault> {
    let config = config::Model::Mlp { hidden: vec![3], outputs: 2, dropout: 0.0, batch_norm: true };
    let model = Model::build(&config, &[2], Device::Cpu, Kind::Double, 1, Path::new(""))?;
    let sums = Box::new(world.sums()?);
    let mut ddp = Ddp::new(model.parameters(), model.buffers(), sums, OPTIONS)?;
    let scale = f64::from(world.rank() + 1);
    let x = Tensor::f_randn([4, 2], (Kind::Double, Device::Cpu))
        .and_then(|x| x.f_mul_scalar(scale))
        .or_fault()?;
    let _ = no_grad(|| model.forward(&x, true))?;
    let list: Vec<Tensor> = model.buffers().iter().map(|b| b.tensor.shallow_clone()).collect();
    let own_digest = digest(&list)?;
    let common_before = common(world, &own_digest)?;
    ddp.sync_buffers()?;
    let digest_after = digest(&list)?;
    let is_rank_0s = world.rank() != 0 || own_digest == digest_after;
    let is_same = common(world, &digest_after)? == digest_after;
    let words = |is: bool| if is { "the same" } else { "others" };
    Ok(format!(
        "{}, then {} as on rank 0",
        words(common_before == own_digest),
        words(is_same && is_rank_0s)
    ))
}

/// Rank 1 has one parameter more.
fn another_model(world: &mut World) -> Result<String, Fault> {
    let hidden = if world.rank() == 0 { vec![3] } else { vec![3, 3] };
    let config = config::Model::Mlp { hidden, outputs: 2, dropout: 0.0, batch_norm: false };
    let model = Model::build(&config, &[2], Device::Cpu, Kind::Double, 1, Path::new(""))?;
    let ddp = Ddp::new(model.parameters(), &[], Box::new(world.sums()?), OPTIONS);
    let sentence = ddp.err().map_or("no fault".to_owned(), |fault| fault.sentence);
    common(world, &sentence)
}
