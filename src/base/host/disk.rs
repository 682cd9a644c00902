//! Files: whole reads, write-aside-and-rename, exclusive creation, append. Every error names its path.
//!
//! What must be exclusive uses `O_CREAT|O_EXCL`, which is atomic on NFS (v3 and later) and Lustre;
//! what must appear whole is written beside its place and renamed into it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use super::access;
use super::rename::rename;
use crate::base::cause::{self, Cause};
use crate::base::fault::Fault;
use crate::base::words;

/// A fault that names the step that failed and the path, with a hint if there is one.
pub(crate) fn fault(doing: &str, path: &Path, error: &io::Error) -> Fault {
    // Of a file that was refused.
    if let Some(fault) = error.get_ref().and_then(|own| own.downcast_ref::<Fault>()) {
        return fault.clone();
    }
    let fault = Fault::machine(format!("cannot {doing} `{}`: {}", path.display(), reason(error)));
    let fault = Fault { cause: Cause::of_io(error), ..fault };
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => fault
            .hint("free some space (or inodes) and run the same command again; nothing is lost"),
        io::ErrorKind::PermissionDenied if READING.contains(&doing) => {
            let hint = access::how_to_read(path);
            Fault { hint, ..fault }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            fault.hint("choose a results root you may write to: `[sweep] root` in the plan")
        }
        _ => Fault { hint: cause::hint_of_limit(error).map(str::to_owned), ..fault },
    }
}

/// The verbs of steps that only read a path.
const READING: [&str; 4] = ["read", "list", "look at", "look at the age of"];

/// The system's words for an error, without Rust's "(os error N)".
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// Opens a file for reading if it is one: a pipe or a device in its place must not hold a reader up.
///
/// # Errors
/// Errors of the system, and when it is not a regular file.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    plain(path, File::options().read(true).custom_flags(libc::O_NONBLOCK)).map(|(file, _)| file)
}

/// As [`open_plain`], for a file that a program may have replaced. A link is not followed: it may lead to what the reader
/// alone may read.
pub(super) fn open_unlinked(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    plain(path, File::options().read(true).custom_flags(flags)).map(|(file, _)| file)
}

/// Opens a file without waiting, if it is a regular file and none that is refused ([`access::guard`]).
fn plain(path: &Path, how: &OpenOptions) -> io::Result<(File, Metadata)> {
    let file = how.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a symbolic link that is not followed"),
        // A pipe without a reader.
        Some(libc::ENXIO) => io::Error::other(NOT_PLAIN),
        _ => e,
    })?;
    let about = file.metadata()?;
    access::check_opened(path, &about)?;
    if about.is_file() { Ok((file, about)) } else { Err(io::Error::other(NOT_PLAIN)) }
}

/// Whether there is something at a path that is neither a regular file nor a link.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| !about.is_file() && !about.is_symlink())
}

const NOT_PLAIN: &str = "it is not a regular file";

/// As [`open_plain`], with a fault that names the file.
///
/// # Errors
/// As [`open_plain`].
pub(crate) fn open(path: &Path) -> Result<File> {
    open_plain(path).map_err(|e| fault("read", path, &e).into())
}

/// As [`open`], with what [`stamp`] says of the file when it was opened.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_stamped(path: &Path) -> Result<(File, (u64, f64))> {
    let opened = plain(path, File::options().read(true).custom_flags(libc::O_NONBLOCK));
    let (file, about) = opened.map_err(|e| fault("read", path, &e))?;
    Ok((file, stamp_of(&about)))
}

/// Bytes by which a file is recognised that has only grown.
const TAIL: u64 = 4 << 10;

/// What a file was that was read up to a place: it is the same file, and has only grown since, if it has the same mark there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) inode: u64,
    /// The checksum of the last bytes before the place.
    pub(crate) tail: u32,
}

impl Mark {
    /// That of a file at `end`; `None` if it is shorter or cannot be read.
    pub(crate) fn of(file: &File, end: u64) -> Option<Self> {
        let from = end.saturating_sub(TAIL);
        let mut bytes = vec![0; (end - from) as usize];
        file.read_exact_at(&mut bytes, from).ok()?;
        Some(Self { inode: file.metadata().ok()?.ino(), tail: crc32fast::hash(&bytes) })
    }

    /// That of the log of a program, which is not followed if it is a link.
    pub(crate) fn of_log(path: &Path, end: u64) -> Option<Self> {
        Self::of(&open_unlinked(path).ok()?, end)
    }
}

/// Bytes of the largest file that is read whole where files are small by nature.
pub(crate) const SMALL: u64 = 256 << 20;

/// Opens a file that is read whole, of at most `most` bytes and at most half of this machine's memory: a larger file
/// cannot be used here, and may be nothing but a hole.
///
/// # Errors
/// As [`open_plain`], and when it is larger.
pub(crate) fn open_whole(path: &Path, most: u64) -> io::Result<io::Take<File>> {
    let file = open_plain(path)?;
    let most =
        nix::sys::sysinfo::sysinfo().map_or(most, |machine| most.min(machine.ram_total() / 2));
    if file.metadata()?.len() > most {
        return Err(io::Error::other(format!("it has more than {} MiB", most >> 20)));
    }
    // It may grow, and a file of the kernel does not report its length.
    Ok(file.take(most))
}

fn read_plain(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_whole(path, most)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The whole of a small file with what the system says of it, or `None` if there is no such file.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn read_found(path: &Path) -> Result<Option<(Vec<u8>, access::Found)>> {
    let read = || -> io::Result<(Vec<u8>, Metadata)> {
        let mut file = open_whole(path, SMALL)?;
        let about = file.get_ref().metadata()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((bytes, about))
    };
    if_there(path, read())
}

fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read_plain(path, most)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

fn if_there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fault("read", path, &e).into()),
    }
}

/// The whole file as text, which is small by nature.
///
/// # Errors
/// When it cannot be read, is not UTF-8, or is not small.
pub(crate) fn read(path: &Path) -> Result<String> {
    read_text(path, SMALL).map_err(|e| fault("read", path, &e).into())
}

/// The whole file as text, or `None` if there is no such file.
///
/// # Errors
/// When it exists but cannot be read.
pub fn read_if_there(path: &Path) -> Result<Option<String>> {
    if_there(path, read_text(path, SMALL))
}

/// The whole of a small file, with the system's own error.
///
/// # Errors
/// As [`open_plain`], and when it is not small.
pub(crate) fn read_entry(path: &Path) -> io::Result<Vec<u8>> {
    read_plain(path, SMALL)
}

/// The text that a person names, be it in a file or in a pipe (`<(make-a-plan)`), with the system's own error.
///
/// # Errors
/// When it cannot be read, is not UTF-8, or is not small.
pub(crate) fn read_named(path: &Path) -> io::Result<String> {
    String::from_utf8(read_named_bytes(path)?).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")
    })
}

/// As [`read_named`], of bytes that need not be text.
///
/// # Errors
/// When it cannot be read, or is not small.
pub(crate) fn read_named_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_to_end(File::open(path)?)
}

/// All that comes through standard input.
///
/// # Errors
/// As [`read_named_bytes`].
pub(crate) fn read_standard_input() -> io::Result<Vec<u8>> {
    read_to_end(io::stdin().lock())
}

fn read_to_end(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(SMALL + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL {
        return Err(io::Error::other(format!("it has more than {} MiB", SMALL >> 20)));
    }
    Ok(bytes)
}

/// The whole file as bytes, which is small by nature.
///
/// # Errors
/// When it cannot be read, or is not small.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>> {
    read_plain(path, SMALL).map_err(|e| fault("read", path, &e).into())
}

/// As [`read_small`], or `None` if there is no such file.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn read_small_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    if_there(path, read_plain(path, SMALL))
}

/// The whole file as bytes.
///
/// # Errors
/// When it cannot be read.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    read_plain(path, u64::MAX).map_err(|e| fault("read", path, &e).into())
}

/// The whole file as bytes, none if there is no such file.
///
/// # Errors
/// When it exists but cannot be read.
pub fn read_bytes_if_there(path: &Path) -> Result<Vec<u8>> {
    Ok(if_there(path, read_plain(path, u64::MAX))?.unwrap_or_default())
}

/// The first bytes of a file, at most `most`; none if there is no such file.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn read_start_if_there(path: &Path, most: u64) -> Result<Vec<u8>> {
    Ok(if_there(path, part(open_plain(path), 0, most))?.unwrap_or_default())
}

/// The first `count` lines of `len` bytes of a file from `offset`, with their newlines; fewer if it ends before. A file that has
/// grown takes no more memory.
///
/// # Errors
/// When it cannot be opened or read.
pub(crate) fn read_lines_at(path: &Path, offset: u64, len: u64, count: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open_plain(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let (mut file, mut bytes) = (BufReader::new(file.take(len)), Vec::new());
        for _ in 0..count {
            if (&mut file).take(SMALL).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
        }
        Ok(bytes)
    };
    read().map_err(|e| fault("read", path, &e).into())
}

/// `len` bytes of a file from `offset`; fewer if the file ends before.
///
/// # Errors
/// When it cannot be opened or read.
pub(crate) fn read_at(path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    part(open_plain(path), offset, len).map_err(|e| fault("read", path, &e).into())
}

/// As [`read_at`], for the log of a program. A link is not followed.
///
/// # Errors
/// As [`read_at`], and when it is a link.
pub(crate) fn read_log_at(path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    part(open_unlinked(path), offset, len).map_err(|e| fault("read", path, &e).into())
}

fn part(opened: io::Result<File>, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut file = opened?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(len.min(1 << 20) as usize);
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Hands over `len` bytes of a file from `offset`, a piece at a time, for files of any length; fewer if the file ends
/// before, none if there is no such file. Bytes that are appended meanwhile are left out, because their writer may be
/// faster. Returns how many bytes there were. A link is not followed.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn each_piece(
    path: &Path,
    offset: u64,
    len: u64,
    mut with: impl FnMut(&[u8]),
) -> Result<u64> {
    let mut read = || -> io::Result<u64> {
        let mut file = open_unlinked(path)?;
        let mut left = file.metadata()?.len().saturating_sub(offset).min(len);
        if left == 0 {
            return Ok(0);
        }
        file.seek(SeekFrom::Start(offset))?;
        let (mut piece, mut passed) = (vec![0; 1 << 16], 0);
        while left > 0 {
            let most = left.min(piece.len() as u64) as usize;
            let read = match file.read(&mut piece[..most]) {
                Ok(0) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            with(&piece[..read]);
            passed += read as u64;
            left -= read as u64;
        }
        Ok(passed)
    };
    if_there(path, read()).map(Option::unwrap_or_default)
}

/// The last `len` bytes of a file, fewer if it is shorter; none if there is no such file. A link is not followed.
///
/// # Errors
/// When it exists but cannot be read.
pub(crate) fn read_end(path: &Path, len: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open_unlinked(path)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(end.saturating_sub(len)))?;
        let mut bytes = Vec::new();
        file.take(len).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| fault("read", path, &e).into()),
    }
}

/// Length and time of change of a file, the latter in seconds since 1970; `None` if there is no such file.
///
/// # Errors
/// When it cannot be looked at.
pub(crate) fn stamp(path: &Path) -> Result<Option<(u64, f64)>> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(stamp_of(&about))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fault("look at", path, &e).into()),
    }
}

fn stamp_of(about: &fs::Metadata) -> (u64, f64) {
    let modified = about.modified().unwrap_or(std::time::UNIX_EPOCH);
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (about.len(), since.as_secs_f64())
}

/// Makes a folder and its parents.
///
/// # Errors
/// When one of them cannot be made.
pub fn make_dir(path: &Path) -> Result<()> {
    make_dir_for(path, path)
}

/// As [`make_dir`], for a folder that will be called `later`.
///
/// # Errors
/// As [`make_dir`], with that name.
pub(crate) fn make_dir_for(path: &Path, later: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(access::folder_mode()).create(path);
    made.map_err(|e| fault("make the folder", later, &e).into())
}

/// Makes a folder and its parents, for this user alone.
///
/// # Errors
/// When one of them cannot be made.
pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| fault("make the folder", path, &e).into())
}

/// Refuses a folder that [`make_dir`] could not make, and makes nothing.
///
/// # Errors
/// As [`make_dir`].
pub(crate) fn check_make_dir(path: &Path) -> Result<()> {
    let there = path.ancestors().find(|at| fs::symlink_metadata(at).is_ok());
    there.map_or(Ok(()), access::may_write).map_err(|e| fault("make the folder", path, &e).into())
}

/// Gives a folder this mode, if it has another. The set-group-ID bit stays, because quotas may depend on it.
///
/// # Errors
/// When it belongs to another user, or does not exist.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let set = || -> io::Result<()> {
        let now = fs::metadata(path)?.permissions().mode() & 0o7777;
        let mode = mode | now & 0o2000;
        if now == mode { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode)) }
    };
    set().map_err(|e| fault("change the mode of", path, &e).into())
}

/// Makes a folder in one that exists; it may be there already.
///
/// # Errors
/// When it cannot be made, also for want of the folder around it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(access::folder_mode()).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(|e| fault("make the folder", path, &e).into()),
    }
}

/// Writes a whole file so that readers see the old one or the new one, never a part: written beside
/// it, flushed to disk, renamed into place.
///
/// # Errors
/// When the folder cannot be written or the disk is full; the old file then stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole_with(path, |out| out.write_all(bytes))
}

/// Like [`write_whole`], with a function that writes through a buffer.
///
/// # Errors
/// As [`write_whole`], and what `write` returns.
pub(crate) fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    write_new(path, write, access::file_mode())
}

/// Like [`write_whole`], for a file that only its owner may read.
///
/// # Errors
/// As [`write_whole`].
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_new(path, |out| out.write_all(bytes), 0o600)
}

fn write_new(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    mode: u32,
) -> Result<()> {
    write_beside(path, &aside(path), write, mode)
}

/// Writes a whole file to `aside` first, which is beside it.
pub(super) fn write_beside(
    path: &Path,
    aside: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    mode: u32,
) -> Result<()> {
    let attempt = || -> io::Result<()> {
        access::check_folder(path).map_err(io::Error::other)?;
        let file =
            File::options().write(true).create(true).truncate(true).mode(mode).open(aside)?;
        let mut out = io::BufWriter::with_capacity(1 << 16, file);
        write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        rename(&file, aside, path)
    };
    attempt().map_err(|e| {
        let _ = fs::remove_file(aside);
        fault("write", path, &e).into()
    })
}

/// Renames a file; one that is not there is no error.
///
/// # Errors
/// When the system refuses.
pub fn rename_if_there(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|e| fault("rename", from, &e).into()),
    }
}

/// Removes a file; one that is not there is no error.
///
/// # Errors
/// When the system refuses.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|e| fault("remove", path, &e).into()),
    }
}

/// Asks for the names in a folder to be on disk: a renamed file is safe from a power cut only then.
///
/// # Errors
/// When the folder cannot be opened or the disk fails.
pub fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).map_err(|e| fault("flush", path, &e).into())
}

/// Asks for a file that another library has written to be on disk.
///
/// # Errors
/// When it cannot be opened or the disk fails.
pub fn sync_file(path: &Path) -> Result<()> {
    sync_folder(path)
}

/// A name beside `path` that no other process uses.
pub fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.tmp", super::clock::short_token()))
}

/// Whether a folder's disk takes no more, be it full or a quota used up: found out by writing a block.
pub(crate) fn is_full(folder: &Path) -> bool {
    let probe = aside(&folder.join("room"));
    let wrote = File::create_new(&probe).and_then(|mut file| {
        file.write_all(&[b'?'; 4096])?;
        // A server may say so no sooner.
        file.sync_data()
    });
    let _ = fs::remove_file(&probe);
    let full = |e: io::Error| {
        matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    };
    wrote.is_err_and(full)
}

/// For appending. A link is not followed: another user who made it may have chosen a file of this user's.
fn appending() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(access::file_mode()).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Makes a file that was not there, which its owner alone may write to unless the sweep is shared.
///
/// # Errors
/// When it is there, or the disk refuses.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(access::file_mode()).open(path)
}

/// Opens a file for appending. A pipe in its place must not hold a writer up.
fn open_appending(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    plain(path, appending().create(true).custom_flags(flags)).map(|(file, _)| file)
}

/// Opens a file for appending, which is made where it is missing.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn open_to_append(path: &Path) -> Result<File> {
    let open = || -> io::Result<File> {
        let file = open_appending(path)?;
        // Programs get it as their output.
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        Ok(file)
    };
    open().map_err(|e| fault("open", path, &e).into())
}

/// Opens what takes all that is written to it and keeps nothing.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn open_nowhere() -> Result<File> {
    let path = Path::new("/dev/null");
    File::options().write(true).open(path).map_err(|e| fault("open", path, &e).into())
}

/// Appends to a file, which is made where it is missing.
///
/// # Errors
/// When it cannot be written.
pub fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || open_appending(path)?.write_all(bytes);
    write().map_err(|e| fault("append to", path, &e).into())
}

/// Creates a file that must not exist yet, for appending; `None` if it exists.
///
/// # Errors
/// When it cannot be created for another reason.
pub(crate) fn create_exclusive(path: &Path) -> Result<Option<File>> {
    match create_alone(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(e) => Err(fault("create", path, &e).into()),
    }
}

fn create_alone(path: &Path) -> io::Result<File> {
    let file = appending().create_new(true).open(path)?;
    access::check_folder(path).map_err(|fault| {
        let _ = fs::remove_file(path);
        io::Error::other(fault)
    })?;
    Ok(file)
}

/// Like [`create_exclusive`], making the parent folder where it is missing.
///
/// # Errors
/// As [`create_exclusive`].
pub(crate) fn create_exclusive_with_parent(path: &Path) -> Result<Option<File>> {
    match create_alone(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent() {
                make_dir(parent)?;
            }
            create_exclusive(path)
        }
        Err(e) => Err(fault("create", path, &e).into()),
    }
}

/// Removes a folder and all in it; a missing one is not an error, and files that cannot be removed stay.
pub(crate) fn remove_tree(path: &Path) {
    let _ = fs::remove_dir_all(path);
}

/// Removes a folder that is empty; `false` if it stays.
pub(crate) fn remove_empty(path: &Path) -> bool {
    fs::remove_dir(path).is_ok()
}

/// The names in a folder, sorted; empty if there is no such folder.
///
/// # Errors
/// When it exists but cannot be listed.
pub fn list(path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    each_name(path, |name| names.push(name.to_owned()))?;
    names.sort_unstable();
    Ok(names)
}

/// Calls `with` for the names in a folder, in any order; none if there is no such folder.
///
/// # Errors
/// When it exists but cannot be listed.
pub(crate) fn each_name(path: &Path, mut with: impl FnMut(&str)) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fault("list", path, &e).into()),
    };
    access::check_folder(path)?;
    for entry in entries {
        let entry = entry.map_err(|e| fault("list", path, &e))?;
        if let Some(name) = entry.file_name().to_str() {
            with(name);
        }
    }
    Ok(())
}

/// Whether a folder has this entry. One look at the open folder: one that is away is an error.
///
/// # Errors
/// When the folder is not there or cannot be listed.
pub(crate) fn has(folder: &Path, entry: &Path) -> Result<bool> {
    let look = || -> io::Result<bool> {
        for found in fs::read_dir(folder)? {
            if Some(found?.file_name().as_os_str()) == entry.file_name() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    look().map_err(|e| fault("list", folder, &e).into())
}

/// A path as a word of a command to copy: quoted for a shell, and seen from the current folder where it lies below.
pub(crate) fn named(path: &Path) -> String {
    let path = absolute(path);
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    let short = below.filter(|below| !below.as_os_str().is_empty()).unwrap_or(path);
    words::sh_quote(&short.to_string_lossy())
}

/// The absolute form of a path, symbolic links kept (a results tree is often reached through one).
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let joined = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut clean = PathBuf::new();
    for part in joined.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

/// Sets a file's times to now, by the clock of the host that keeps the file: an NFS server stamps it itself.
///
/// # Errors
/// Errors of the system.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let flags = UtimensatFlags::FollowSymlink;
    let now = TimeSpec::UTIME_NOW;
    Ok(utimensat(nix::fcntl::AT_FDCWD, path, &now, &now, flags)?)
}

/// The first program of this name in the folders of a `PATH`.
pub(crate) fn program_on(path: &str, name: &str) -> Option<PathBuf> {
    let found = path.split(':').filter(|dir| dir.starts_with('/')).map(|d| Path::new(d).join(name));
    found.into_iter().find(|file| {
        nix::unistd::access(file.as_path(), nix::unistd::AccessFlags::X_OK).is_ok()
            && file.is_file()
    })
}

/// A path with symbolic links resolved; the path itself where that cannot be done.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether two paths name the same, also if they lead there through two mounts: then number and time of the last change agree.
/// What changes between two looks is looked at again.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let what = |path: &Path| fs::metadata(path).ok();
    let time = |about: &Metadata| (about.ctime(), about.ctime_nsec());
    let mut looks = (0..8).map_while(|_| {
        let (a, b) = (what(a)?, what(b)?);
        (a.ino() == b.ino()).then(|| time(&a) == time(&b))
    });
    real(a) == real(b) || looks.any(|is_same| is_same)
}

/// The path of this executable, symbolic links resolved, without the " (deleted)" that Linux adds
/// when the file has been replaced while we run.
///
/// # Errors
/// When `/proc` does not say.
pub fn own_executable() -> Result<PathBuf> {
    let path = std::env::current_exe()
        .map_err(|e| Fault::machine(format!("cannot find my own path: {}", reason(&e))))?;
    match path.to_str().and_then(|p| p.strip_suffix(" (deleted)")) {
        Some(kept) => Ok(PathBuf::from(kept)),
        None => Ok(path),
    }
}
