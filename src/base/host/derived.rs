//! Files that are made of others, and may be removed at any time: they are written without a wait for the disk, and read
//! only if the owner of a folder alone can have written them.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::libc;
use nix::unistd::Uid;

use super::rename::rename;
use super::{clock, disk};

/// Seconds without a change after which a file that is written aside is left by a process that was killed.
const LEFT_S: f64 = 3600.0;

/// A file that is read in parts.
pub(crate) struct Parts {
    file: File,
    /// Its bytes when it was opened.
    pub(crate) size: u64,
}

impl Parts {
    /// Fills `bytes` with those from `at` on.
    ///
    /// # Errors
    /// When the file has fewer, or cannot be read: on a shared disk also if another host has replaced it.
    pub(crate) fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}

/// The owner of a folder, and who may read what is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    uid: u32,
    /// The rights of a folder below it, without those of writing for others.
    mode: u32,
}

impl Owner {
    /// The owner of a folder; `None` if it cannot be looked at.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let found = fs::metadata(folder).ok()?;
        Some(Self { uid: found.uid(), mode: 0o700 | found.mode() & 0o055 })
    }

    /// Whether this process runs as the owner.
    pub(crate) fn is_this_user(self) -> bool {
        self.uid == Uid::effective().as_raw()
    }

    /// The whole of a file of at most `most` bytes that only the owner can have written, and when it was written, in seconds
    /// since 1970; `None` for any other, and where it cannot be read.
    pub(crate) fn read(self, path: &Path, most: u64) -> Option<(Vec<u8>, f64)> {
        let (mut file, found) = self.found(path).filter(|(_, found)| found.len() <= most)?;
        let mut bytes = Vec::with_capacity(found.len() as usize + 1);
        (&mut file).take(most).read_to_end(&mut bytes).ok()?;
        Some((bytes, found.mtime() as f64 + found.mtime_nsec() as f64 * 1e-9))
    }

    /// A file that only the owner can have written, to be read in parts; `None` for any other, and where it cannot be opened.
    pub(crate) fn open(self, path: &Path) -> Option<Parts> {
        let (file, found) = self.found(path)?;
        Some(Parts { file, size: found.len() })
    }

    fn found(self, path: &Path) -> Option<(File, Metadata)> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let found = file.metadata().ok()?;
        let is_own = found.is_file() && found.uid() == self.uid && found.mode() & 0o022 == 0;
        is_own.then_some((file, found))
    }

    /// Writes a whole file in a folder, which is made if it is missing, so that readers see the old one or the new one.
    ///
    /// # Errors
    /// When the system refuses. The old file then stays.
    pub(crate) fn write(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_with(path, |file| file.write_all(bytes))
    }

    /// As [`Owner::write`]; `with` writes the file.
    ///
    /// # Errors
    /// As [`Owner::write`], and those of `with`.
    pub(crate) fn write_with(
        self,
        path: &Path,
        with: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let aside = disk::aside(path);
        let mode = self.mode & 0o644 | 0o600;
        let open = || File::options().write(true).create_new(true).mode(mode).open(&aside);
        let opened = match open() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make(path.parent().unwrap_or(path))?;
                open()
            }
            opened => opened,
        };
        let file = opened?;
        let mut out = BufWriter::new(&file);
        let written = file
            .set_permissions(Permissions::from_mode(mode))
            .and_then(|()| with(&mut out))
            .and_then(|()| out.flush())
            .and_then(|()| rename(&file, &aside, path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    /// Removes what processes that were killed have left of a file that was written aside: what nobody has written to for an
    /// hour.
    pub(crate) fn clear(path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        let start = format!(".{}.", name.to_string_lossy());
        let is_left = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let written = entry.metadata().map(|about| about.mtime() as f64);
            name.starts_with(&start)
                && name.ends_with(".tmp")
                && written.is_ok_and(|written| written + LEFT_S < clock::now())
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(is_left) {
            let _ = fs::remove_file(entry.path());
        }
    }

    fn make(self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(self.mode).create(folder)?;
        let had = fs::metadata(folder)?.mode() & 0o7000;
        fs::set_permissions(folder, Permissions::from_mode(self.mode | had))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn only_what_the_owner_alone_can_have_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o770)).unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let path = dir.path().join("index/000");
        let read = |path: &Path, most: u64| owner.read(path, most).map(|(bytes, _)| bytes);
        assert_eq!(read(&path, 9), None);
        owner.write(&path, b"one").unwrap();
        owner.write(&path, b"three").unwrap();
        assert_eq!(read(&path, 9).unwrap(), b"three");
        assert_eq!(read(&path, 4), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o750, 0o640));
        let names = || fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(names(), 1);
        let link = dir.path().join("index/001");
        symlink(&path, &link).unwrap();
        assert_eq!(read(&link, 9), None);
        assert_eq!(Owner { uid: owner.uid + 1, ..owner }.read(&path, 9), None);
        for mode in [0o660, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, 9), None);
        }
    }

    #[test]
    fn what_killed_processes_have_left_is_removed_after_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n1-a");
        for (name, age_s) in
            [("n1-a", 9000), (".n1-a.x.tmp", 9000), (".n1-a.y.tmp", 60), (".n1-ab.x.tmp", 9000)]
        {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
        }
        Owner::clear(&path);
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [".n1-a.y.tmp", ".n1-ab.x.tmp", "n1-a"]);
    }
}
