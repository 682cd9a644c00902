//! Files that are made of others, and may be removed at any time: they are written without a wait for the disk, and read
//! only if the owner of a folder alone can have written them.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::libc;
use nix::unistd::Uid;

use super::disk;

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
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let mut file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let found = file.metadata().ok()?;
        let is_own = found.is_file() && found.uid() == self.uid && found.mode() & 0o022 == 0;
        if !is_own || found.len() > most {
            return None;
        }
        let mut bytes = Vec::with_capacity(found.len() as usize + 1);
        (&mut file).take(most).read_to_end(&mut bytes).ok()?;
        Some((bytes, found.mtime() as f64 + found.mtime_nsec() as f64 * 1e-9))
    }

    /// Writes a whole file in a folder, which is made if it is missing, so that readers see the old one or the new one.
    ///
    /// # Errors
    /// When the system refuses. The old file then stays.
    pub(crate) fn write(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
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
        let mut file = opened?;
        let written = file
            .set_permissions(Permissions::from_mode(mode))
            .and_then(|()| file.write_all(bytes))
            .and_then(|()| fs::rename(&aside, path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
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
}
