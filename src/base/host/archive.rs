//! Tar archives as they are written: names, modes and times that do not depend on who writes them, or when.
//!
//! Owners are left out, modes are reduced to what a program needs, and links are stored as links. So the same files make
//! the same bytes, and whoever unpacks an archive owns what is in it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::disk;

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all: `.tar`.
    None,
    /// By gzip, as the name `.tar.gz` says.
    Gzip,
    /// By Zstandard, as the name `.tar.zst` says.
    Zstd,
}

impl Compression {
    /// That of a file of this name; `None` if the name says nothing about it.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        [
            (".tar.zst", Self::Zstd),
            (".tzst", Self::Zstd),
            (".tar.gz", Self::Gzip),
            (".tgz", Self::Gzip),
            (".tar", Self::None),
        ]
        .into_iter()
        .find(|(ending, _)| name.len() > ending.len() && name.ends_with(ending))
        .map(|(_, own)| own)
    }
}

/// A path below a folder, as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Relative to the folder.
    pub(crate) name: PathBuf,
    /// What it is. A link is not followed.
    pub(crate) about: Metadata,
}

impl Found {
    /// Whether it is neither a file, nor a folder, nor a link.
    pub(crate) fn is_special(&self) -> bool {
        let kind = self.about.file_type();
        !(kind.is_file() || kind.is_dir() || kind.is_symlink())
    }
}

/// Adds a path of a folder and everything below it to `found`, as far as `wants` it by its name, which is relative to the
/// folder. What is removed meanwhile is left out.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn walk(
    root: &Path,
    name: &Path,
    wants: &dyn Fn(&Path) -> bool,
    found: &mut Vec<Found>,
) -> Result<()> {
    let path = root.join(name);
    let about = match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(|e| disk::fault("look at", &path, &e))?,
    };
    let is_folder = about.is_dir();
    found.push(Found { name: name.to_owned(), about });
    if !is_folder {
        return Ok(());
    }
    for inner in names(&path)? {
        let inner = name.join(inner);
        if wants(&inner) {
            walk(root, &inner, wants, found)?;
        }
    }
    Ok(())
}

/// The names in a folder, whatever bytes they have, sorted; none if there is no such folder.
///
/// # Errors
/// When it cannot be listed.
pub(crate) fn names(folder: &Path) -> Result<Vec<OsString>> {
    let list = || -> io::Result<Vec<OsString>> {
        let mut names = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    };
    match list() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|e| disk::fault("list", folder, &e).into()),
    }
}

/// Which bytes of a file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those that it has when it is opened.
    All,
    /// Its whole lines among the first bytes, so many of them: what its writer appends meanwhile is left out.
    Lines(u64),
}

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is in the archive.
    Whole,
    /// It became shorter while it was read: zeros stand for what was missing.
    Short,
    /// It was no longer there, or was no regular file any more.
    Gone,
}

/// An archive that is written.
pub(crate) struct Archive<'a> {
    tar: tar::Builder<Packed<'a>>,
    /// Called for each piece of a file that was read, with its length in bytes.
    read: &'a dyn Fn(u64),
    /// Where files that have several names stand in the archive, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl<'a> Archive<'a> {
    /// One that is written to `out`. `read` is called for each piece of a file that was read, with its
    /// length in bytes.
    ///
    /// # Errors
    /// When there is no memory for the compression.
    pub(crate) fn new(
        out: &'a mut dyn Write,
        compression: Compression,
        read: &'a dyn Fn(u64),
    ) -> io::Result<Self> {
        let tar = tar::Builder::new(Packed::new(out, compression)?);
        Ok(Self { tar, read, linked: HashMap::new() })
    }

    /// Adds a folder; `time`: of its last change, whole seconds since 1970.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn folder(&mut self, name: &Path, time: u64) -> io::Result<()> {
        let mut head = head(tar::EntryType::Directory, 0o755, time);
        self.tar.append_data(&mut head, name, io::empty())
    }

    /// Adds a file of these bytes.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub(crate) fn bytes(&mut self, name: &Path, bytes: &[u8], time: u64) -> io::Result<()> {
        let mut head = head(tar::EntryType::Regular, 0o644, time);
        head.set_size(bytes.len() as u64);
        self.tar.append_data(&mut head, name, bytes)
    }

    /// Adds a file or a link under a name. A second name of a file is stored as that.
    ///
    /// # Errors
    /// When it cannot be read, with its path, or the archive not be written.
    pub(crate) fn add(
        &mut self,
        name: &Path,
        path: &Path,
        about: &Metadata,
        part: Part,
    ) -> Result<Stored> {
        let time = u64::try_from(about.mtime()).unwrap_or(0);
        if about.file_type().is_symlink() {
            let Some(target) = unless_gone(fs::read_link(path), path)? else {
                return Ok(Stored::Gone);
            };
            let mut head = head(tar::EntryType::Symlink, 0o777, time);
            self.tar.append_link(&mut head, name, &target)?;
            return Ok(Stored::Whole);
        }
        let inode = (about.dev(), about.ino());
        let mode = if about.mode() & 0o200 == 0 { 0o444 } else { 0o644 };
        let mode = if about.mode() & 0o100 == 0 { mode } else { mode | 0o111 };
        if about.nlink() > 1
            && let Some(first) = self.linked.get(&inode)
        {
            let mut head = head(tar::EntryType::Link, mode, time);
            self.tar.append_link(&mut head, name, first)?;
            return Ok(Stored::Whole);
        }
        let Some(mut file) = unless_gone(disk::open_unlinked(path), path)? else {
            return Ok(Stored::Gone);
        };
        let len = file.metadata().and_then(|about| part.len(&mut file, about.len()));
        let len = len.map_err(|e| disk::fault("read", path, &e))?;
        let mut head = head(tar::EntryType::Regular, mode, time);
        head.set_size(len);
        let mut source = Source { file, left: len, is_short: false, error: None, read: self.read };
        let written = self.tar.append_data(&mut head, name, &mut source);
        if let Some(error) = source.error {
            return Err(disk::fault("read", path, &error).into());
        }
        written?;
        if about.nlink() > 1 {
            self.linked.insert(inode, name.to_owned());
        }
        Ok(if source.is_short { Stored::Short } else { Stored::Whole })
    }

    /// Writes the end of the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.tar.into_inner()?.finish()
    }
}

/// What was opened; `None` if it is no longer there, or has been replaced by something else.
fn unless_gone<T>(opened: io::Result<T>, path: &Path) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::Other) => Ok(None),
        Err(e) => Err(disk::fault("read", path, &e).into()),
    }
}

/// Where a link leads; `None` if it cannot be read.
pub(crate) fn target(path: &Path) -> Option<PathBuf> {
    fs::read_link(path).ok()
}

/// The head of an entry that nobody owns.
fn head(kind: tar::EntryType, mode: u32, time: u64) -> tar::Header {
    let mut head = tar::Header::new_gnu();
    head.set_entry_type(kind);
    head.set_mode(mode);
    head.set_mtime(time);
    head.set_uid(0);
    head.set_gid(0);
    head.set_size(0);
    head
}

impl Part {
    /// How many bytes of a file of this length are stored; the file is at its beginning then.
    fn len(self, file: &mut File, len: u64) -> io::Result<u64> {
        let Self::Lines(most) = self else { return Ok(len) };
        let mut end = len.min(most);
        let mut piece = vec![0; 1 << 16];
        while end > 0 {
            let from = end.saturating_sub(piece.len() as u64);
            let read = &mut piece[..(end - from) as usize];
            file.seek(SeekFrom::Start(from))?;
            file.read_exact(read)?;
            if let Some(at) = read.iter().rposition(|&byte| byte == b'\n') {
                end = from + at as u64 + 1;
                break;
            }
            end = from;
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(end)
    }
}

/// A file of which exactly so many bytes are read.
struct Source<'a> {
    file: File,
    left: u64,
    /// Whether it had fewer.
    is_short: bool,
    /// Why it could not be read.
    error: Option<io::Error>,
    read: &'a dyn Fn(u64),
}

impl Read for Source<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(bytes.len() as u64) as usize;
        if most == 0 {
            return Ok(0);
        }
        let bytes = &mut bytes[..most];
        let read = match self.file.read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
            Err(e) => {
                let again = io::Error::from(e.kind());
                self.error = Some(e);
                return Err(again);
            }
            Ok(0) => {
                self.is_short = true;
                bytes.fill(0);
                most
            }
            Ok(read) => read,
        };
        self.left -= read as u64;
        (self.read)(read as u64);
        Ok(read)
    }
}

/// The level of compression of zstd, its usual one.
const LEVEL: i32 = 3;

/// What an archive is written to.
enum Packed<'a> {
    Plain(&'a mut dyn Write),
    Gzip(flate2::write::GzEncoder<&'a mut dyn Write>),
    Zstd(zstd::stream::write::Encoder<'static, &'a mut dyn Write>),
}

impl<'a> Packed<'a> {
    fn new(out: &'a mut dyn Write, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(out),
            Compression::Gzip => {
                Self::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default()))
            }
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
                // `zstd -d` and `tar` check it.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(gzip) => gzip.finish().map(drop),
            Self::Zstd(zstd) => zstd.finish().map(drop),
        }
    }
}

impl Write for Packed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(gzip) => gzip.write(bytes),
            Self::Zstd(zstd) => zstd.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_a_file_that_grows_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let check = |bytes: &[u8], most: u64, expected: u64| {
            fs::write(&path, bytes).unwrap();
            let mut file = File::open(&path).unwrap();
            let len = Part::Lines(most).len(&mut file, bytes.len() as u64).unwrap();
            assert_eq!(len, expected, "{bytes:?} {most}");
            assert_eq!(file.stream_position().unwrap(), 0);
        };
        check(b"", 9, 0);
        check(b"torn", 9, 0);
        check(b"a\nbc\ntorn", 99, 5);
        check(b"a\nbc\n", 99, 5);
        check(b"a\nbc\n", 4, 2);
        check(b"a\nbc\n", 1, 0);
        let long = [&b"a\n"[..], &vec![b'x'; 200_000]].concat();
        check(&long, u64::MAX, 2);
    }

    #[test]
    fn a_name_says_how_an_archive_is_compressed() {
        let check = |name: &str, expected| {
            assert_eq!(Compression::of(Path::new(name)), expected, "{name}");
        };
        check("a.tar.zst", Some(Compression::Zstd));
        check("/x/a.tgz", Some(Compression::Gzip));
        check("a.b.tar.gz", Some(Compression::Gzip));
        check("a.tar", Some(Compression::None));
        check("a.zip", None);
        check(".tar.gz", None);
        check("tar", None);
        check("/", None);
    }
}
