//! The samples of a run: which data set, which part of it, and which of them this rank takes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::words::count;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::config::{Config, Data, Loss, Precision, Sharding, Source, Validation};
use hpcsweep::train::data::batch::{How, Kind, Width};
use hpcsweep::train::data::dataset::Dataset;
use hpcsweep::train::sampler::{Distributed, Exact, Own, Place, Sampler, Subset};
use hpcsweep::train::shard::{File, Item, Rest, Shards};
use hpcsweep::train::split::{Split, split};

use super::exchange;

/// Samples and the order in which this rank takes them.
#[derive(Debug)]
pub(crate) struct Part {
    /// The data set that the sampler's numbers are places in.
    pub(crate) data: Arc<Dataset>,
    /// Which of them this rank takes, and when.
    pub(crate) sampler: Sampler,
}

/// All samples of a training run.
#[derive(Debug)]
pub(crate) struct Samples {
    /// The samples that the model learns from.
    pub(crate) train: Part,
    /// The samples whose metric decides about weights and stopping; `None` if the plan has no validation.
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
        let rank_place = Place::new(u64::from(peers.rank()), u64::from(peers.size()))?;
        let data = &config.data;
        let batch_options = how(config);
        let (set, items, parts) = open_train(config, base, rank_place)?;
        let set = Arc::new(set);
        let n = parts.as_ref().map_or(items.len(&set), |parts| parts.train.len() as u64);
        let (sampler, len) = match data.sharding {
            Sharding::Files | Sharding::Given(_) => {
                let counts = exchange::counts(peers, n)?;
                let items = parts.as_ref().map_or_else(|| items.list(&set), |p| p.train.clone());
                let sampler = Own::new(items, &counts, rank_place)?
                    .seed(config.seed)
                    .shuffle(data.shuffle)
                    .drop_last(data.drop_last);
                (Sampler::Own(sampler), counts.iter().sum())
            }
            Sharding::Samples => (dealt(config, n, parts.as_ref(), rank_place), n),
        };
        let validation = match (&data.validation, parts) {
            (Some(Validation::Source(source)), _) => {
                let own_set = Arc::new(open(data, source, base, &|_| true)?);
                same_samples(&set, &own_set, "validation")?;
                let sampler = Sampler::Exact(Exact::new(own_set.len(), rank_place));
                Some(Part { data: own_set, sampler })
            }
            (Some(_), Some(parts)) => {
                let validation_place = match data.sharding {
                    // A rank validates the rest of its own files by itself.
                    Sharding::Files | Sharding::Given(_) => Place::ALONE,
                    Sharding::Samples => rank_place,
                };
                let sampler = Sampler::Exact(Exact::from_items(parts.validation, validation_place));
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
        let own_steps =
            validation.as_ref().map_or(0, |v| v.sampler.steps(config.batch_size, false));
        let validation_steps = exchange::counts(peers, own_steps)?.into_iter().max().unwrap_or(0);
        Ok(Self { train, validation, validation_steps, how: batch_options, len })
    }
}

/// The data for the evaluation at the end, by one process that stands for all ranks: the test data, else
/// those of the validation. Each part is read once, from its first sample to its last.
///
/// # Errors
/// When data cannot be used.
pub(crate) fn to_evaluate(config: &Config, base: &Path, world: u64) -> Result<Vec<Part>> {
    let data = &config.data;
    let whole_set = |set: Dataset| {
        let sampler = Sampler::Exact(Exact::new(set.len(), Place::ALONE));
        vec![Part { data: Arc::new(set), sampler }]
    };
    match (&data.test, &data.validation) {
        (Some(source), _) | (None, Some(Validation::Source(source))) => {
            Ok(whole_set(open(data, source, base, &|_| true)?))
        }
        (None, Some(_)) => {
            let ranks = match data.sharding {
                Sharding::Files | Sharding::Given(_) => world,
                Sharding::Samples => 1,
            };
            let mut rank_parts = Vec::new();
            for rank in 0..ranks {
                let (set, _, parts) = open_train(config, base, Place::new(rank, ranks)?)?;
                let items = parts.map(|parts| parts.validation).unwrap_or_default();
                let sampler = Sampler::Exact(Exact::from_items(items, Place::ALONE));
                rank_parts.push(Part { data: Arc::new(set), sampler });
            }
            Ok(rank_parts)
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

/// Which samples of a data set a rank takes.
enum Items {
    All,
    These(Vec<u64>),
}

impl Items {
    fn len(&self, set: &Dataset) -> u64 {
        match self {
            Self::All => set.len(),
            Self::These(items) => items.len() as u64,
        }
    }

    fn list(&self, set: &Dataset) -> Vec<u64> {
        match self {
            Self::All => (0..set.len()).collect(),
            Self::These(items) => items.clone(),
        }
    }
}

/// The training data as a rank sees them, which of them are its own, and the parts of these where
/// validation takes one.
fn open_train(
    config: &Config,
    base: &Path,
    place: Place,
) -> Result<(Dataset, Items, Option<Split>)> {
    let data = &config.data;
    let open = |keep: &dyn Fn(usize) -> bool| open(data, &data.train, base, keep);
    let (set, items) = match &data.sharding {
        Sharding::Samples => (open(&|_| true)?, Items::All),
        Sharding::Files => {
            let (files, ranks) = (data.train.files(base)?.len() as u64, place.world());
            if files < ranks {
                let (files, ranks) = (count(files, "file"), count(ranks, "rank"));
                let sentence =
                    format!("`sharding = \"files\"` with {files} for {ranks}: one has none");
                return Err(Fault::request(sentence)
                    .hint("use fewer ranks, or `sharding = \"samples\"`")
                    .into());
            }
            (open(&|file| file as u64 % place.world() == place.rank())?, Items::All)
        }
        Sharding::Given(map) => given(map, place, &data.train, base, &open)?,
    };
    let parts = match &data.validation {
        Some(how) => split(how, items.len(&set), config.seed)?,
        None => None,
    };
    let parts = parts.map(|parts| match &items {
        Items::All => parts,
        Items::These(all) => {
            let indices_of = |list: Vec<u64>| list.into_iter().map(|i| all[i as usize]).collect();
            Split { train: indices_of(parts.train), validation: indices_of(parts.validation) }
        }
    });
    Ok((set, items, parts))
}

/// Opens the files of a source whose numbers are wanted.
type Opener<'a> = dyn Fn(&dyn Fn(usize) -> bool) -> Result<Dataset> + 'a;

/// The samples that a map assigns to this rank. If the map names only files, no other file is opened.
fn given(
    map: &[Vec<Item>],
    place: Place,
    source: &Source,
    base: &Path,
    open: &Opener<'_>,
) -> Result<(Dataset, Items)> {
    let world = place.world();
    if map.len() as u64 != world {
        return Err(Fault::request(format!(
            "`train.data.sharding` is a map of {}, and there are {world}",
            count(map.len() as u64, "rank")
        ))
        .hint("give each rank its list, in rank order")
        .into());
    }
    let by_rank = (0..).zip(map.iter().cloned()).collect();
    let rank = place.rank() as usize;
    if map.iter().flatten().all(|item| matches!(item, Item::File(_))) {
        // Without opening any: that each is given once is a question of names.
        let names = source.files(base)?;
        let files: Vec<File> = names.into_iter().map(|name| File { name, samples: 1 }).collect();
        let shards = Shards::given(&files, &by_rank, world, Rest::Refuse)?;
        let own_files = &shards.ranks()[rank].files;
        return Ok((open(&|file| own_files.contains(&file))?, Items::All));
    }
    let set = open(&|_| true)?;
    let mut files: Vec<File> = set
        .files()
        .into_iter()
        .zip(source.files(base)?)
        .map(|(of, name)| File { name, samples: of.numbers.end - of.numbers.start })
        .collect();
    if files.is_empty() {
        files.push(File { name: "the field".into(), samples: set.len() });
    }
    let shards = Shards::given(&files, &by_rank, world, Rest::Refuse)?;
    let items = shards.ranks()[rank].indices();
    Ok((set, Items::These(items)))
}

/// Opens a source: those of its files that are to be kept.
fn open(
    data: &Data,
    source: &Source,
    base: &Path,
    keep: &dyn Fn(usize) -> bool,
) -> Result<Dataset> {
    let set = Dataset::open_some(source, &data.inputs, &data.targets, base, keep)?;
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

fn dealt(config: &Config, n: u64, parts: Option<&Split>, place: Place) -> Sampler {
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
