//! Data sets: samples by number, whatever files they lie in.
//!
//! Files are put one behind the other without copying: a sample is found by its number among the first
//! numbers of the files, and is a slice of a map. Nothing is kept for a single sample.

use std::ops::Range;
use std::path::Path;

use super::array::{self, Array, Dtype, Shape};
use super::batch::{Batch, How, Kind, Targets};
use super::convert::{self, Scaling};
use super::files::Arrays;
use super::turbulence::Turbulence;
use crate::base::fault::{self, Fault};
use crate::base::host::map;
use crate::base::words;
use crate::train::config::Source;

/// Samples: inputs, and the targets that belong to them.
#[derive(Debug)]
pub struct Dataset {
    origin: Origin,
    inputs: Side,
    targets: Side,
    len: u64,
}

#[derive(Debug)]
enum Origin {
    Files(Vec<Part>),
    Turbulence(Turbulence),
}

/// What all samples have in common, for inputs or targets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Side {
    dtype: Dtype,
    /// Lengths of one sample's dimensions.
    shape: Vec<u64>,
    /// Bytes of one sample.
    bytes: usize,
}

/// One file, or two that belong together.
#[derive(Debug)]
struct Part {
    /// Its name in messages, with backticks.
    name: String,
    /// Number of its first sample.
    first: u64,
    len: u64,
    inputs: Array,
    targets: Array,
}

/// A file of a data set and the numbers of its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// The file, in backticks; of two that belong together the one with the inputs.
    pub(crate) file: String,
    /// The numbers of its samples.
    pub numbers: Range<u64>,
}

impl Source {
    /// The files of a source as a map of ranks names them: relative to `base` where they lie in it, of
    /// pairs those of the inputs; none of a made-up field.
    ///
    /// # Errors
    /// When a pattern matches none.
    pub fn files(&self, base: &Path) -> Result<Vec<String>, Fault> {
        let names = match self {
            Self::File(name) => std::slice::from_ref(name),
            Self::Pair { inputs, .. } => std::slice::from_ref(inputs),
            Self::Files(names) => names,
            Self::Synthetic(_) => return Ok(Vec::new()),
        };
        let mut files = Vec::new();
        for name in names {
            files.extend(map::matching(base, name)?.into_iter().map(|path| {
                path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned()
            }));
        }
        Ok(files)
    }
}

impl Dataset {
    /// Opens the files of a source that are to be kept, by their number among all; no other one is touched. Of a made-up
    /// field, which has no files, there are all samples. Names are relative to `base`; `inputs` and `targets` are the names
    /// of arrays in files that name them.
    ///
    /// # Errors
    /// When a file cannot be read or lacks an array, when inputs and targets are not of equal number, when
    /// the samples of two files differ in shape or type, or there is no sample at all.
    pub fn open_some(
        source: &Source,
        inputs: &str,
        targets: &str,
        base: &Path,
        keep: &dyn Fn(usize) -> bool,
    ) -> Result<Self, Fault> {
        let names = match source {
            Source::File(name) => std::slice::from_ref(name),
            Source::Files(names) => names,
            Source::Pair { inputs: first, targets: second } => {
                let (firsts, seconds) = (map::matching(base, first)?, map::matching(base, second)?);
                if firsts.len() != seconds.len() {
                    return Err(Fault::request(format!(
                        "{} of `{first}` and {} of `{second}` are not pairs",
                        words::count(firsts.len() as u64, "file"),
                        words::count(seconds.len() as u64, "file")
                    )));
                }
                let pairs = firsts.iter().zip(&seconds).enumerate().filter(|(n, _)| keep(*n));
                let parts =
                    pairs.map(|(_, (first, second))| Part::of_pair(first, second, inputs, targets));
                return Self::of_parts(parts.collect::<Result<_, _>>()?);
            }
            Source::Synthetic(synthetic) => return Self::of_field(Turbulence::new(synthetic)?),
        };
        let mut paths = Vec::new();
        for name in names {
            paths.extend(map::matching(base, name)?);
        }
        let kept_paths = paths.iter().enumerate().filter(|(n, _)| keep(*n));
        let parts = kept_paths
            .map(|(_, path)| Part::of_file(path, inputs, targets))
            .collect::<Result<_, _>>()?;
        Self::of_parts(parts)
    }

    fn of_field(field: Turbulence) -> Result<Self, Fault> {
        let edge = field.size();
        let side = |shape: Vec<u64>| Side::new(Dtype::Float32, shape, "the field");
        Ok(Self {
            len: field.samples(),
            inputs: side(vec![3, edge, edge, edge])?,
            targets: side(vec![3 * edge * edge * edge])?,
            origin: Origin::Turbulence(field),
        })
    }

    fn of_parts(mut parts: Vec<Part>) -> Result<Self, Fault> {
        let Some(first) = parts.first() else {
            return Err(Fault::request("a data set without files").hint("name at least one"));
        };
        let inputs = Side::from_array(&first.inputs, &first.name)?;
        let targets = Side::from_array(&first.targets, &first.name)?;
        let mut len = 0;
        for part in &parts {
            for (side, array, what) in
                [(&inputs, &part.inputs, "inputs"), (&targets, &part.targets, "targets")]
            {
                let side_of_part = Side::from_array(array, &part.name)?;
                if side_of_part != *side {
                    return Err(Fault::request(format!(
                        "{what} of {} are {} of shape {}, those of {} are {} of shape {}",
                        first.name,
                        side.dtype,
                        Shape(&side.shape),
                        part.name,
                        side_of_part.dtype,
                        Shape(&side_of_part.shape)
                    ))
                    .hint("samples of one data set have one type and one shape"));
                }
            }
        }
        for part in &mut parts {
            part.first = len;
            len += part.len;
        }
        if len == 0 {
            return Err(Fault::request(format!("{} has no samples", parts[0].name)));
        }
        Ok(Self { origin: Origin::Files(parts), inputs, targets, len })
    }

    /// The same samples with inputs of another shape, of as many numbers.
    ///
    /// # Errors
    /// When it is of more or fewer numbers.
    pub fn with_shape(mut self, shape: &[u64]) -> Result<Self, Fault> {
        if array::size(self.inputs.dtype, shape) != Some(self.inputs.bytes as u64) {
            return Err(Fault::request(format!(
                "samples of shape {} cannot be seen as {}",
                Shape(&self.inputs.shape),
                Shape(shape)
            ))
            .hint("`shape` in `[train.data]` is that of one sample, with as many numbers"));
        }
        shape.clone_into(&mut self.inputs.shape);
        Ok(self)
    }

    /// How many samples there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none; never so for an open one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Dimensions of the inputs of one sample.
    pub fn sample_shape(&self) -> &[u64] {
        &self.inputs.shape
    }

    /// The files in their order, with the numbers of their samples; none for a made-up field.
    pub fn files(&self) -> Vec<Samples> {
        let Origin::Files(parts) = &self.origin else { return Vec::new() };
        parts
            .iter()
            .map(|part| Samples {
                file: part.name.clone(),
                numbers: part.first..part.first + part.len,
            })
            .collect()
    }

    /// The numbers of some samples, as a model takes them. `spare` is a batch no longer needed, whose
    /// memory is used again.
    ///
    /// # Errors
    /// When a number is not that of a sample, or a target that should be a class is not one.
    pub(crate) fn batch(
        &self,
        indices: &[u64],
        how: &How,
        spare: Option<Batch>,
    ) -> Result<Batch, Fault> {
        let mut batch = spare.unwrap_or_else(|| Batch::new(how));
        batch.inputs.clear(how.width);
        batch.targets.clear(how);
        let scaling = Scaling { factor: how.scale, offset: how.offset };
        self.each(indices, |index, x, y| {
            batch.inputs.append(self.inputs.dtype, x, scaling);
            match &mut batch.targets {
                Targets::Values(values) => values.append(self.targets.dtype, y, Scaling::NONE),
                Targets::Classes(classes) => convert::classes(self.targets.dtype, y, classes)
                    .map_err(|found| self.not_a_class(index, &found))?,
            }
            Ok(())
        })?;
        // A column of classes, one a sample, is what losses take as a plain list.
        let one_class =
            how.targets == Kind::Classes && array::count(&self.targets.shape) == Some(1);
        let of_target = if one_class { &[] } else { self.targets.shape.as_slice() };
        let shape = |of_sample: &[u64], out: &mut Vec<i64>| {
            out.clear();
            out.push(indices.len() as i64);
            out.extend(of_sample.iter().map(|n| *n as i64));
        };
        shape(&self.inputs.shape, &mut batch.input_shape);
        shape(of_target, &mut batch.target_shape);
        Ok(batch)
    }

    fn not_a_class(&self, index: u64, found: &str) -> Fault {
        let sample_words = match &self.origin {
            Origin::Files(parts) => {
                let file_part = &parts[part_of(parts, index)];
                format!("sample {} of {}", index - file_part.first, file_part.name)
            }
            Origin::Turbulence(_) => format!("sample {index} of a made-up field"),
        };
        Fault::request(format!("{sample_words} has the target {found}, which is not a class")).hint(
            "classes are whole numbers from 0; for other targets choose a loss of values: `mse`",
        )
    }

    /// Calls `f` with number, inputs and targets of each sample.
    fn each(
        &self,
        indices: &[u64],
        mut f: impl FnMut(u64, &[u8], &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut made = Vec::new();
        for &index in indices {
            if index >= self.len {
                let sentence = format!("sample {index} of a data set of {}", self.len);
                return Err(Fault::new(fault::Kind::Bug, sentence));
            }
            match &self.origin {
                Origin::Files(parts) => {
                    let file_part = &parts[part_of(parts, index)];
                    let sample = (index - file_part.first) as usize;
                    let x = &file_part.inputs.bytes()[sample * self.inputs.bytes..]
                        [..self.inputs.bytes];
                    let y = &file_part.targets.bytes()[sample * self.targets.bytes..]
                        [..self.targets.bytes];
                    f(index, x, y)?;
                }
                Origin::Turbulence(field) => {
                    made.clear();
                    for x in field.sample(index) {
                        made.extend_from_slice(&x.to_le_bytes());
                    }
                    f(index, &made, &made)?;
                }
            }
        }
        Ok(())
    }
}

/// The part that holds a sample. Of parts with an equal first number all but the last are empty.
fn part_of(parts: &[Part], index: u64) -> usize {
    parts.partition_point(|part| part.first <= index) - 1
}

impl Side {
    fn new(dtype: Dtype, shape: Vec<u64>, name: &str) -> Result<Self, Fault> {
        let bytes = array::size(dtype, &shape).and_then(|bytes| usize::try_from(bytes).ok());
        match bytes {
            Some(bytes @ 1..) => Ok(Self { dtype, shape, bytes }),
            _ => {
                let shape = Shape(&shape);
                Err(Fault::request(format!("{name} has samples of shape {shape}: no numbers")))
            }
        }
    }

    /// That of an array whose first dimension counts samples.
    fn from_array(array: &Array, name: &str) -> Result<Self, Fault> {
        Self::new(array.dtype(), array.shape().get(1..).unwrap_or_default().to_vec(), name)
    }
}

impl Part {
    /// A file with both arrays.
    fn of_file(path: &Path, inputs: &str, targets: &str) -> Result<Self, Fault> {
        let arrays = Arrays::open(path)?;
        let name = format!("`{}`", path.display());
        if arrays.names().is_none() {
            return Err(Fault::request(format!("{name} holds one array: inputs or targets"))
                .hint("name both: `train = { inputs = \"x.npy\", targets = \"y.npy\" }`"));
        }
        Self::new(name, arrays.array(inputs)?, arrays.array(targets)?)
    }

    /// Two files with one array each, or with several of which one is meant.
    fn of_pair(first: &Path, second: &Path, inputs: &str, targets: &str) -> Result<Self, Fault> {
        let x = Arrays::open(first)?.array(inputs)?;
        let y = Arrays::open(second)?.array(targets)?;
        Self::new(format!("`{}`", first.display()), x, y)
    }

    fn new(name: String, inputs: Array, targets: Array) -> Result<Self, Fault> {
        let (Some(&len), Some(&others)) = (inputs.shape().first(), targets.shape().first()) else {
            return Err(Fault::request(format!(
                "{name} holds a single number where samples should be"
            ))
            .hint("the first dimension of an array counts samples"));
        };
        if len != others {
            return Err(Fault::request(format!(
                "{name} has inputs for {} and targets for {}",
                words::count(len, "sample"),
                words::thousands(others)
            ))
            .hint("the first dimension of inputs and targets counts samples"));
        }
        Ok(Self { name, first: 0, len, inputs, targets })
    }
}

#[cfg(test)]
mod tests;
