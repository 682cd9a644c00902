//! The steps of a rank before its first training step, and their times.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use hpcsweep::base::host::disk;
use hpcsweep::run::sync::peers::{Alone, Peers};
use hpcsweep::train::config::Config;
use tch::{Device, Kind};

use crate::mpi::World;
use crate::torch::ddp::{Ddp, DdpOptions, Reduce};
use crate::torch::loss::loss;
use crate::torch::model::Model;
use crate::torch::optim::Optimizer;
use crate::train::device::keep_memory;
use crate::train::feed::Feed;
use crate::train::samples::Samples;

/// Goes to the first step of the configuration in `file`. Prints, on rank 0, how many seconds after
/// `began` (of the clock, since 1970) each part was done: the program runs (mpirun and the loader with
/// libtorch are behind it), MPI, the model, the data, the step.
#[expect(clippy::print_stdout, reason = "a program of its own speaks for itself")]
pub(super) fn run(file: &Path, began: f64) -> Result<()> {
    let mut done = Vec::new();
    let mut mark = || {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        done.push(format!("{:e}", since_epoch.as_secs_f64() - began));
    };
    mark();
    let config: Config = serde_json::from_slice(&disk::read_bytes(file)?)?;
    let is_rank = std::env::var("OMPI_COMM_WORLD_SIZE").is_ok();
    let mut world = if is_rank { Some(World::init()?) } else { None };
    mark();
    let sums: Box<dyn Reduce> = match &world {
        Some(world) => Box::new(world.sums()?),
        None => Box::new(Alone),
    };
    let mut alone = Alone;
    let peers: &mut dyn Peers = match &mut world {
        Some(world) => world,
        None => &mut alone,
    };
    tch::set_num_threads(1);
    keep_memory();
    let samples = Samples::open(&config, Path::new(""), peers)?;
    let batches = samples.train.sampler.batches(0, config.batch_size, false);
    let mut feed = Feed::start(&samples.train, batches, 0, samples.how, Device::Cpu, 1)?;
    mark();
    let shape: Vec<i64> = samples.train.data.sample_shape().iter().map(|n| *n as i64).collect();
    let model = Model::build(&config.model, &shape, Device::Cpu, Kind::Float, 1, Path::new(""))?;
    let mut ddp = Ddp::new(model.parameters(), model.buffers(), sums, DdpOptions::default())?;
    let mut optimizer = Optimizer::new(&config.optimizer, model.parameters())?;
    mark();
    let tensors = feed.take()?;
    let mean_loss = loss(config.loss, &model.forward(&tensors.x, true)?, &tensors.y)?;
    ddp.backward(&mean_loss, 1.0, true)?;
    ddp.finish()?;
    optimizer.step(config.optimizer.lr())?;
    mark();
    if peers.rank() == 0 {
        println!("{}", done.join(" "));
    }
    drop(ddp);
    match world {
        Some(world) => Ok(world.finish()?),
        None => Ok(()),
    }
}
