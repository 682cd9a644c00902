//! A hash of the files of a data set: a run that resumes from a checkpoint must learn from the same data.

use std::path::{Path, PathBuf};

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::host::map::{self, Map};
use crate::train::config::Source;

/// Bytes of a page.
const PAGE: usize = 4096;

/// How much is read.
#[derive(Clone, Copy)]
struct Limits {
    /// Data up to so many bytes are read whole; of more, pages that lie evenly in it.
    whole: u64,
    /// So many of them, over all files.
    pages: u64,
}

const LIMITS: Limits = Limits { whole: 256 << 20, pages: 16_384 };

/// A word for the content of a source's files, in their order; their names and dates do not matter, so that
/// data may be copied to a node's own disk. Of data larger than 256 MiB their sizes and 64 MiB of their content
/// count.
///
/// # Errors
/// When a file cannot be read.
pub fn fingerprint(source: &Source, base: &Path) -> Result<String, Fault> {
    let names: Vec<&String> = match source {
        Source::File(name) => vec![name],
        Source::Files(names) => names.iter().collect(),
        Source::Pair { inputs, targets } => vec![inputs, targets],
        // The configuration says all of it.
        Source::Synthetic(_) => Vec::new(),
    };
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    for name in names {
        for path in map::matching(base, name)? {
            let metadata = path.metadata().map_err(|e| disk::fault("look at", &path, &e))?;
            files.push((path, metadata.len()));
        }
    }
    of_files(&files, LIMITS)
}

fn of_files(files: &[(PathBuf, u64)], limits: Limits) -> Result<String, Fault> {
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let mut hasher = blake3::Hasher::new();
    for (path, size) in files {
        let share = match total <= limits.whole {
            true => None,
            false => {
                Some((u128::from(limits.pages) * u128::from(*size) / u128::from(total)) as u64)
            }
        };
        take(path, *size, share, &mut hasher)?;
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Takes a file in: all of it, or so many pages.
fn take(
    path: &Path,
    size: u64,
    share: Option<u64>,
    hasher: &mut blake3::Hasher,
) -> Result<(), Fault> {
    hasher.update(&size.to_le_bytes());
    if size == 0 {
        return Ok(());
    }
    let bytes = Map::open(path)?;
    let Some(wanted) = share else {
        hasher.update(&bytes);
        return Ok(());
    };
    let pages = bytes.chunks(PAGE);
    let last_page = pages.len() - 1;
    let wanted = (wanted as usize).clamp(1, pages.len());
    for n in 0..wanted {
        // The first page and the last are among them.
        let page = (n as u128 * last_page as u128 / (wanted - 1).max(1) as u128) as usize;
        hasher.update(&bytes[page * PAGE..bytes.len().min((page + 1) * PAGE)]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn content_and_order_count_and_names_do_not() {
        let tmp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(tmp.path().join(name), text).unwrap();
        let of = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            fingerprint(&Source::Files(names), tmp.path()).unwrap()
        };
        for (name, text) in [("a", "one"), ("b", "two"), ("c", "one"), ("d", "onetwo")] {
            write(name, text);
        }
        let own = of(&["a", "b"]);
        assert_eq!(of(&["c", "b"]), own);
        assert_ne!(of(&["b", "a"]), own);
        assert_ne!(of(&["d"]), own);
        write("b", "twp");
        assert_ne!(of(&["a", "b"]), own);
    }

    #[test]
    fn of_large_files_the_ends_count_and_what_lies_between() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("large");
        let size = 40 * PAGE as u64 + 123;
        fs::File::create(&path).unwrap().set_len(size).unwrap();
        let limits = Limits { whole: 10 * PAGE as u64, pages: 8 };
        let of = || of_files(&[(path.clone(), size)], limits).unwrap();
        let own = of();
        for at in [0, size - 1] {
            use std::os::unix::fs::FileExt;
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"x", at).unwrap();
            assert_ne!(of(), own, "{at}");
            file.write_all_at(b"\0", at).unwrap();
            assert_eq!(of(), own);
        }
    }
}
