//! The interface of the crate zip 0.6 as far as tch and torch-sys use it, from the crate zip 9.

use std::io::{self, Read, Seek};
use std::path::PathBuf;

pub use zip9::{CompressionMethod, ZipWriter, result};

use result::ZipResult;

/// Options of files in an archive.
pub mod write {
    pub use zip9::write::SimpleFileOptions as FileOptions;
}

/// An archive that is read.
pub struct ZipArchive<R>(zip9::ZipArchive<R>);

/// A file of an archive.
pub struct ZipFile<'a, R: Read> {
    file: zip9::read::ZipFile<'a, R>,
    name: String,
    path: PathBuf,
}

#[expect(clippy::len_without_is_empty, reason = "nothing asks")]
impl<R: Read + Seek> ZipArchive<R> {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// When it has none.
    pub fn new(reader: R) -> ZipResult<Self> {
        zip9::ZipArchive::new(reader).map(Self)
    }

    /// How many files it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One of its files.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be unpacked.
    pub fn by_index(&mut self, index: usize) -> ZipResult<ZipFile<'_, R>> {
        let file = self.0.by_index(index)?;
        let (name, path) = (file.name()?.into_owned(), file.mangled_name()?);
        Ok(ZipFile { file, name, path })
    }
}

impl<R: Read> ZipFile<'_, R> {
    /// Its name as the archive has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, which does not lead out of the folder that it is unpacked to.
    pub fn mangled_name(&self) -> PathBuf {
        self.path.clone()
    }

    /// Bytes of its contents.
    pub fn size(&self) -> u64 {
        self.file.size()
    }
}

impl<R: Read> Read for ZipFile<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}
