//! The samples of a run: which data set, which part of it, and which of them this rank takes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use hpcsweep::fault::Fault;
use hpcsweep::sync::peers::Peers;
use hpcsweep::train::config::{Config, Data, Loss, Precision, Sharding, Source, Validation};
use hpcsweep::train::data::batch::{How, Kind, Width};
use hpcsweep::train::data::dataset::Dataset;
use hpcsweep::train::sampler::{Distributed, Exact, Own, Place, Sampler, Subset};
use hpcsweep::train::split::split;

use super::exchange;

/// Samples and the order in which this rank takes them.
#[derive(Debug)]
pub(crate) struct Part {
    /// Where they are.
    pub(crate) data: Arc<Dataset>,
    /// Which of them this rank takes, and when.
    pub(crate) sampler: Sampler,
}

/// All samples of a training run.
#[derive(Debug)]
pub(crate) struct Samples {
    /// To learn from.
    pub(crate) train: Part,
    /// That decide.
    pub(crate) validation: Option<Part>,
    /// Batches of the validation on the rank with the most.
    pub(crate) validation_steps: u64,
    /// How they become batches.
    pub(crate) how: How,
    /// How many samples there are to learn from, over all ranks.
    pub(crate) len: u64,
}

impl Samples {
    /// Opens what this rank needs. Collective where each rank reads its own files.
    ///
    /// # Errors
    /// When data cannot be used, or a rank is gone.
    pub(crate) fn open(config: &Config, base: &Path, peers: &mut dyn Peers) -> Result<Self> {
        let place = Place::new(u64::from(peers.rank()), u64::from(peers.size()))?;
        let data = &config.data;
        let how = how(config);
        let (set, parts) = open_train(config, base, place)?;
        let set = Arc::new(set);
        let n = parts.as_ref().map_or(set.len(), |parts| parts.train.len() as u64);
        let (sampler, len) = match data.sharding {
            Sharding::Files => {
                let counts = exchange::counts(peers, n)?;
                let items = parts.as_ref().map_or_else(|| (0..n).collect(), |p| p.train.clone());
                let sampler = Own::new(items, &counts, place)?
                    .seed(config.seed)
                    .shuffle(data.shuffle)
                    .drop_last(data.drop_last);
                (Sampler::Own(sampler), counts.iter().sum())
            }
            Sharding::Samples => (dealt(config, n, parts.as_ref(), place), n),
        };
        let validation = match (&data.validation, parts) {
            (Some(Validation::Source(source)), _) => {
                let own = Arc::new(open(data, source, base, None)?);
                same_samples(&set, &own, "validation")?;
                let sampler = Sampler::Exact(Exact::new(own.len(), place));
                Some(Part { data: own, sampler })
            }
            (Some(_), Some(parts)) => {
                let place = match data.sharding {
                    // What a rank has left over of its own files is its own to validate.
                    Sharding::Files => Place::ALONE,
                    Sharding::Samples => place,
                };
                let sampler = Sampler::Exact(Exact::of(parts.validation, place));
                Some(Part { data: Arc::clone(&set), sampler })
            }
            _ => None,
        };
        let train = Part { data: set, sampler };
        if train.sampler.steps(config.batch_size, data.drop_last) == 0 {
            return Err(Fault::request(format!(
                "{len} samples do not fill one batch of {} on each of {} ranks",
                config.batch_size,
                peers.size()
            ))
            .hint("make `batch_size` smaller, or `drop_last = false`")
            .into());
        }
        let own = validation.as_ref().map_or(0, |v| v.sampler.steps(config.batch_size, false));
        let validation_steps = exchange::counts(peers, own)?.into_iter().max().unwrap_or(0);
        Ok(Self { train, validation, validation_steps, how, len })
    }
}

/// What is evaluated at the end, by one process that stands for all ranks: the test data, else those of
/// the validation. Each part is to be read once, from its first sample to its last.
///
/// # Errors
/// When data cannot be used.
pub(crate) fn to_evaluate(config: &Config, base: &Path, world: u64) -> Result<Vec<Part>> {
    let data = &config.data;
    let whole = |set: Dataset| {
        let sampler = Sampler::Exact(Exact::new(set.len(), Place::ALONE));
        vec![Part { data: Arc::new(set), sampler }]
    };
    match (&data.test, &data.validation) {
        (Some(source), _) | (None, Some(Validation::Source(source))) => {
            Ok(whole(open(data, source, base, None)?))
        }
        (None, Some(_)) => {
            let ranks = match data.sharding {
                Sharding::Files => world,
                Sharding::Samples => 1,
            };
            let mut all = Vec::new();
            for rank in 0..ranks {
                let (set, parts) = open_train(config, base, Place::new(rank, ranks)?)?;
                let items = parts.map(|parts| parts.validation).unwrap_or_default();
                let sampler = Sampler::Exact(Exact::of(items, Place::ALONE));
                all.push(Part { data: Arc::new(set), sampler });
            }
            Ok(all)
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// How samples become batches for this loss and precision.
pub(crate) fn how(config: &Config) -> How {
    How {
        width: match config.precision {
            Precision::F64 => Width::F64,
            Precision::F32 | Precision::Bf16 | Precision::F16 => Width::F32,
        },
        targets: match config.loss {
            Loss::CrossEntropy => Kind::Classes,
            Loss::Mse | Loss::L1 | Loss::SmoothL1 | Loss::BceWithLogits => Kind::Values,
        },
        scale: config.data.scale,
        offset: config.data.offset,
    }
}

/// The training data as a rank sees them, and the parts of them where validation takes one.
fn open_train(
    config: &Config,
    base: &Path,
    place: Place,
) -> Result<(Dataset, Option<hpcsweep::train::split::Split>)> {
    let data = &config.data;
    let own = match data.sharding {
        Sharding::Samples => None,
        Sharding::Files => Some(place),
    };
    let set = open(data, &data.train, base, own)?;
    let parts = match &data.validation {
        Some(how) => split(how, set.len(), config.seed)?,
        None => None,
    };
    Ok((set, parts))
}

/// Opens a source: all of its files, or those of one rank.
fn open(data: &Data, source: &Source, base: &Path, own: Option<Place>) -> Result<Dataset> {
    let set = match own {
        None => Dataset::open(source, &data.inputs, &data.targets, base)?,
        Some(place) => {
            let keep = |file: usize| file as u64 % place.world() == place.rank();
            Dataset::open_some(source, &data.inputs, &data.targets, base, &keep).map_err(
                |fault| match &fault.hint {
                    Some(_) => fault,
                    None => fault.hint("`sharding = \"files\"` needs a file for each rank"),
                },
            )?
        }
    };
    match &data.shape {
        Some(shape) => Ok(set.with_shape(shape)?),
        None => Ok(set),
    }
}

/// Two data sets of one run must have samples of one shape.
fn same_samples(train: &Dataset, other: &Dataset, what: &str) -> Result<(), Fault> {
    if train.sample_shape() == other.sample_shape() {
        return Ok(());
    }
    Err(Fault::request(format!(
        "samples of `{what}` have the shape {:?}, those of `train` {:?}",
        other.sample_shape(),
        train.sample_shape()
    )))
}

fn dealt(
    config: &Config,
    n: u64,
    parts: Option<&hpcsweep::train::split::Split>,
    place: Place,
) -> Sampler {
    let data = &config.data;
    match parts {
        Some(parts) => Sampler::Subset(
            Subset::new(parts.train.as_slice(), place)
                .seed(config.seed)
                .shuffle(data.shuffle)
                .drop_last(data.drop_last),
        ),
        None => Sampler::Distributed(
            Distributed::new(n, place)
                .seed(config.seed)
                .shuffle(data.shuffle)
                .drop_last(data.drop_last),
        ),
    }
}
