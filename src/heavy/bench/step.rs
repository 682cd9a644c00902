//! The cost of a step of training: the trainer's, on one batch of made-up images that stays the same.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::{Alone, Peers};
use hpcsweep::train::config::{Loss, Model as ModelConfig, Optimizer as OptimizerConfig};
use tch::{Device, Kind, Tensor, no_grad};

use super::Orders;
use crate::mpi::World;
use crate::torch::OrFault;
use crate::torch::ddp::{Ddp, DdpOptions, Reduce, weight};
use crate::torch::loss::{correct, loss};
use crate::torch::model::Model;
use crate::torch::optim::Optimizer;
use crate::train::device::keep_memory;
use crate::train::exchange::Word;

/// Samples of a rank in a step.
const BATCH: i64 = 32;
/// Channels, height and width of a sample.
const SAMPLE: [i64; 3] = [3, 32, 32];
/// The number of classes.
const CLASSES: i64 = 10;
const RATE: f64 = 1e-3;

/// Carries out orders: how many steps. Answers with the seconds of each, and of each those spent waiting
/// for sums behind the backward pass.
pub(super) fn run(world: &World, orders: &mut Orders, model: &str, overlap: bool) -> Result<()> {
    tch::set_num_threads(1);
    tch::set_num_interop_threads(1);
    keep_memory();
    let config: ModelConfig = serde_json::from_str(model)?;
    let model = Model::build(&config, &SAMPLE, Device::Cpu, Kind::Float, 1, Path::new(""))?;
    let sums = || -> Result<Box<dyn Reduce>, Fault> {
        // One rank trains without MPI.
        Ok(if world.size() == 1 { Box::new(Alone) } else { Box::new(world.sums()?) })
    };
    let options = DdpOptions { overlap, ..DdpOptions::default() };
    let mut ddp = Ddp::new(model.parameters(), model.buffers(), sums()?, options)?;
    let config = OptimizerConfig::Sgd {
        lr: RATE,
        momentum: 0.9,
        dampening: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    };
    let mut optimizer = Optimizer::new(&config, model.parameters())?;
    let mut peers = sums()?;
    let shape = [&[BATCH], &SAMPLE[..]].concat();
    let x = Tensor::f_randn(shape, (Kind::Float, Device::Cpu)).or_fault()?;
    let y = Tensor::f_randint(CLASSES, [BATCH], (Kind::Int64, Device::Cpu)).or_fault()?;
    let mut step = || -> Result<f64> {
        ddp.zero_grad()?;
        let outputs = model.forward(&x, true)?;
        let mean_loss = loss(Loss::CrossEntropy, &outputs, &y)?;
        let _ = mean_loss.f_double_value(&[]).or_fault()?;
        no_grad(|| correct(Loss::CrossEntropy, &outputs.detach(), &y))?;
        let word = Word { samples: BATCH as u64, ..Word::default() };
        let heard = word.exchange(&mut *peers)?;
        ddp.backward(&mean_loss, weight(word.samples, heard.samples), true)?;
        ddp.finish()?;
        optimizer.step(RATE)?;
        Ok(ddp.take_waited().as_secs_f64())
    };
    while let Some(order) = orders.next() {
        // Ranks do not get the order at the same time.
        step()?;
        let (mut seconds, mut waited) = (Vec::new(), Vec::new());
        for _ in 0..order.first().copied().unwrap_or(1) {
            let begin = Instant::now();
            waited.push(step()?);
            seconds.push(begin.elapsed().as_secs_f64());
        }
        seconds.append(&mut waited);
        orders.answer(&seconds);
    }
    Ok(())
}
