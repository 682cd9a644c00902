//! Files of data: read-only memory maps, and files by pattern.
//!
//! A map costs address space and no memory: the kernel reads the pages that are touched, keeps them as
//! long as it likes, and shares them among all ranks of a node.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::disk;
use crate::base::fault::Fault;

/// A file in memory, as a slice of bytes.
pub(crate) struct Map {
    bytes: Mmap,
    path: PathBuf,
}

impl Map {
    /// Maps a whole file.
    ///
    /// # Errors
    /// When there is no such file, it is no plain file, it is empty, or it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let name = path.display();
        let refused = |error: &io::Error| match error.kind() {
            io::ErrorKind::NotFound => Fault::request(format!("there is no file `{name}`")),
            _ => Fault::machine(format!("cannot read the file `{name}`: {}", disk::reason(error))),
        };
        // Asked before it is opened: opening a pipe waits for a writer.
        let about = fs::metadata(path).map_err(|e| refused(&e))?;
        if about.is_dir() {
            return Err(Fault::request(format!("`{name}` is a folder, not a file"))
                .hint(format!("for all files in it write a pattern: `{name}/*.npz`")));
        }
        if !about.is_file() {
            return Err(Fault::request(format!("`{name}` is not a plain file")));
        }
        if about.len() == 0 {
            return Err(Fault::request(format!("the file `{name}` is empty")));
        }
        let file = File::open(path).map_err(|e| refused(&e))?;
        // SAFETY: the bytes of a shared slice must not change while it lives. No process of ours writes
        // to a file of data, and files of a data set are not changed while they are read: that is asked
        // of users, as every reader that maps files asks it. Nothing here takes the bytes for more than
        // numbers (no text, no references), so other bytes are other numbers; a file that is cut off
        // below us ends the process with SIGBUS.
        #[expect(
            unsafe_code,
            reason = "memory maps: data sets larger than memory, one copy a node"
        )]
        let bytes = unsafe { Mmap::map(&file) }.map_err(|e| refused(&e))?;
        Ok(Self { bytes, path: path.to_owned() })
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({}, {} bytes)", self.path.display(), self.bytes.len())
    }
}

/// The files that `name` stands for, seen from the folder `base`: itself where it exists or has none of
/// the signs `*`, `?` and `[`, otherwise those that match it, sorted by name.
///
/// # Errors
/// When it is a wrong pattern, or one that no file matches.
pub(crate) fn matching(base: &Path, name: &str) -> Result<Vec<PathBuf>, Fault> {
    let path = base.join(name);
    if !name.contains(['*', '?', '[']) || path.exists() {
        return Ok(vec![path]);
    }
    // The folder is a name, whatever signs are in it.
    let folder = glob::Pattern::escape(&base.to_string_lossy());
    let pattern = Path::new(&folder).join(name);
    let found = glob::glob(&pattern.to_string_lossy())
        .map_err(|e| Fault::request(format!("`{name}` is not a pattern of files: {}", e.msg)))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|e| {
            Fault::machine(format!(
                "cannot look for files at `{}`: {}",
                e.path().display(),
                disk::reason(e.error())
            ))
        })?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Fault::request(format!("no file matches `{}`", path.display())));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"numbers").unwrap();
        let map = Map::open(&path).unwrap();
        assert_eq!(&map[..], b"numbers");
    }

    #[test]
    fn what_cannot_be_mapped_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let told = |name: &str| {
            let fault = Map::open(&folder.path().join(name)).unwrap_err();
            fault.sentence.replace(root, "ROOT")
        };
        assert_eq!(told("none"), "there is no file `ROOT/none`");
        assert_eq!(told(""), "`ROOT/` is a folder, not a file");
        fs::write(folder.path().join("empty"), b"").unwrap();
        assert_eq!(told("empty"), "the file `ROOT/empty` is empty");
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(told("pipe"), "`ROOT/pipe` is not a plain file");
        assert_eq!(told("empty/a"), "cannot read the file `ROOT/empty/a`: not a directory");
    }

    #[test]
    fn patterns_are_sorted_and_folders_are_names() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("a[b]*");
        fs::create_dir_all(base.join("x-3.npz")).unwrap();
        for name in ["x-2.npz", "x-1.npz", "y-1.npz", "[z].npz"] {
            fs::write(base.join(name), b"1").unwrap();
        }
        let found = |name: &str| -> Result<Vec<String>, String> {
            match matching(&base, name) {
                Ok(paths) => Ok(paths
                    .iter()
                    .map(|p| p.strip_prefix(&base).unwrap().to_str().unwrap().to_owned())
                    .collect()),
                Err(fault) => Err(fault.sentence.replace(folder.path().to_str().unwrap(), "ROOT")),
            }
        };
        assert_eq!(found("x-*.npz"), Ok(vec!["x-1.npz".into(), "x-2.npz".into()]));
        assert_eq!(found("[z].npz"), Ok(vec!["[z].npz".into()]));
        assert_eq!(found("none.npz"), Ok(vec!["none.npz".into()]));
        assert_eq!(found("q*"), Err("no file matches `ROOT/a[b]*/q*`".into()));
        assert!(found("***").unwrap_err().starts_with("`***` is not a pattern of files: "));
    }
}
