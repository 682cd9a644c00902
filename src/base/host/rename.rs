//! Renames that may have happened although the system says that there is nothing to rename.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Renames what `moved` is open at, a file or a folder.
///
/// Over NFS a rename is asked for again if its answer was lost. The server has renamed already and finds nothing: whether
/// the new name is that of `moved` decides then.
///
/// # Errors
/// When the system refuses.
pub(crate) fn rename(moved: &File, from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_at(moved, to) => Ok(()),
        renamed => renamed,
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_that_has_happened_before_its_answer_is_none_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        let makes: [fn(&Path); 2] =
            [|path| fs::write(path, "new").unwrap(), |path| fs::create_dir(path).unwrap()];
        for make in makes {
            make(&from);
            let moved = File::open(&from).unwrap();
            rename(&moved, &from, &to).unwrap();
            // As the client of NFS asks again.
            rename(&moved, &from, &to).unwrap();
            let _ = fs::remove_file(&to);
            let _ = fs::remove_dir(&to);
            // Neither is there, or another file is at the new name.
            let kind = |renamed: io::Result<()>| renamed.unwrap_err().kind();
            assert_eq!(kind(rename(&moved, &from, &to)), io::ErrorKind::NotFound);
            fs::write(&to, "old").unwrap();
            assert_eq!(kind(rename(&moved, &from, &to)), io::ErrorKind::NotFound);
            assert_eq!(fs::read_to_string(&to).unwrap(), "old");
            fs::remove_file(&to).unwrap();
        }
    }
}
