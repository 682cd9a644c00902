//! The arrays of a file: `.npy`, `.npz`, `.safetensors` by suffix, IDX (also packed with gzip) by its
//! first bytes.

use std::path::Path;

use super::array::{Array, Bytes};
use super::tensors::Tensors;
use super::{idx, npy, npz};
use crate::base::fault::Fault;
use crate::base::host::map::Map;
use crate::base::words;

/// An open file of data.
#[derive(Debug)]
pub struct Arrays {
    bytes: Bytes,
    /// The file, as faults name it: in backticks.
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// One array without a name.
    One(Array),
    Npz(Vec<String>),
    Tensors(Tensors),
}

impl Arrays {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// When it cannot be mapped, is of no known form, or is broken.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let bytes = Bytes::from(Map::open(path)?);
        let suffix = path.extension().map(|s| s.to_string_lossy().to_lowercase());
        Self::read(bytes, suffix.as_deref().unwrap_or_default(), format!("`{}`", path.display()))
    }

    /// Reads the header of a file with this suffix.
    pub fn read(bytes: Bytes, suffix: &str, name: String) -> Result<Self, Fault> {
        let kind = match suffix {
            "npy" => Kind::One(npy::read(&bytes, &name)?),
            "npz" => Kind::Npz(npz::names(&bytes, &name)?),
            "safetensors" => Kind::Tensors(Tensors::read(&bytes, &name)?),
            _ if idx::is_one(&bytes) => Kind::One(idx::read(&bytes, &name)?),
            _ if idx::is_packed(&bytes) => {
                let inside = idx::unpack(&bytes, &name)?;
                if !idx::is_one(&inside) {
                    return Err(Fault::request(format!("{name} holds no IDX file"))
                        .hint("unpack it with gunzip: of packed files IDX alone is read"));
                }
                Kind::One(idx::read(&inside, &name)?)
            }
            _ => {
                return Err(Fault::request(format!("{name} is not a file of arrays"))
                    .hint("known are `.npy`, `.npz`, `.safetensors` and IDX (MNIST)"));
            }
        };
        Ok(Self { bytes, name, kind })
    }

    /// The names of its arrays; `None` for a file of one array, which has none.
    pub fn names(&self) -> Option<Vec<String>> {
        match &self.kind {
            Kind::One(_) => None,
            Kind::Npz(names) => Some(names.clone()),
            Kind::Tensors(tensors) => Some(tensors.names()),
        }
    }

    /// The array called `entry`; that of a file of one array whatever it is called.
    ///
    /// # Errors
    /// When there is none of that name, or it is broken.
    pub fn array(&self, entry: &str) -> Result<Array, Fault> {
        let of_file = || format!("array `{entry}` of {}", self.name);
        match &self.kind {
            Kind::One(array) => Ok(array.clone()),
            Kind::Npz(names) => {
                let entry_index = names.iter().position(|n| n == entry);
                npz::read(&self.bytes, entry_index.ok_or_else(|| self.no_such(entry))?, &of_file())
            }
            Kind::Tensors(tensors) => {
                let has_entry = tensors.names().iter().any(|n| n == entry);
                has_entry.then_some(()).ok_or_else(|| self.no_such(entry))?;
                tensors.array(&self.bytes, entry, &of_file())
            }
        }
    }

    fn no_such(&self, entry: &str) -> Fault {
        let names = self.names().unwrap_or_default();
        let entries_words = match names.as_slice() {
            [] => "it has none at all".to_owned(),
            [first @ .., _] if names.len() > 12 => {
                format!("it has {} and {} more", words::ticked(&first[..12]), names.len() - 12)
            }
            all => format!("it has {}", words::ticked(all)),
        };
        Fault::request(format!("{} has no array `{entry}`; {entries_words}", self.name))
            .hint("name them in the plan: `inputs = \"...\"` and `targets = \"...\"` under `[train.data]`")
    }
}
