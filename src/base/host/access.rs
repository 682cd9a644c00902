//! Who else may write where this program reads what it will run.
//!
//! A user who can write to a sweep's folder decides what its owner's jobs run. So hpcsweep makes files for their owner
//! to write, whatever the umask says, and refuses files that another user has made or may change, as `ssh` does with
//! its keys (`StrictModes`, sshd_config(5)). A group that works on one sweep says so in the plan.
//!
//! The plan of a sweep also says who may read it. Then this process makes its files for these readers, whatever the
//! umask says. The programs that it starts have the user's own umask, because their files are the user's.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, Gid, Uid, User, faccessat};
use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;
use crate::base::words;

/// What the system says of a file.
pub(crate) type Found = Metadata;

/// Which users may write to a sweep besides its owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shared {
    /// No other user may write to it.
    #[default]
    No,
    /// The group of its folder.
    Group,
}

/// Which users may read a sweep besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readers {
    /// No other user may read it.
    Owner,
    /// The group of its folder.
    Group,
    /// Every user who can reach its folder.
    All,
}

impl Readers {
    /// Their rights to a file or folder that they may read.
    pub(crate) fn rights(self) -> u32 {
        match self {
            Self::Owner => 0,
            Self::Group => 0o050,
            Self::All => 0o055,
        }
    }
}

/// The users who share a sweep with its owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Which users may write to it.
    pub(crate) shared: Shared,
    /// Which users may read it; `None`: as the umask says.
    pub(crate) readers: Option<Readers>,
}

static GROUP_WRITES: AtomicBool = AtomicBool::new(false);

/// The readers of the files that this process makes, and the umask of the programs that it starts, if that is not
/// its own.
static OPENED: Mutex<Option<(Readers, Mode)>> = Mutex::new(None);

/// From now on this process makes files and folders that all users who share the sweep may read and write.
pub(crate) fn make_for(access: Access) {
    if access.shared == Shared::Group {
        share_with_group();
    }
    if let Some(readers) = access.readers {
        open_to(readers);
    }
}

/// From now on this process, and the programs it starts, make files that their group may write to.
pub(crate) fn share_with_group() {
    GROUP_WRITES.store(true, Ordering::Relaxed);
    take_from_umask(Mode::S_IRWXG);
    if let Some((_, of_programs)) = &mut *opened() {
        of_programs.remove(Mode::S_IRWXG);
    }
}

/// From now on this process makes files and folders that these users may read. The programs it starts keep the earlier
/// umask.
pub fn open_to(readers: Readers) {
    let mut opened = opened();
    let before = take_from_umask(Mode::from_bits_truncate(readers.rights()));
    *opened = Some((readers, opened.map_or(before, |(_, of_programs)| of_programs)));
}

/// The readers of the files that this process makes, unless its umask decides.
pub(crate) fn opened_to() -> Option<Readers> {
    opened().map(|(readers, _)| readers)
}

/// The umask of the programs that this process starts, where that is not its own.
pub(super) fn umask_of_programs() -> Option<Mode> {
    opened().map(|(_, of_programs)| of_programs)
}

/// From now on this thread has an umask of its own; `false` if the system does not allow it.
pub(crate) fn part_umask() -> bool {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok()
}

/// Runs a function of this process's caller under the umask of the programs that this process starts. Threads that make
/// files for the readers meanwhile must have an umask of their own ([`part_umask`]).
pub(crate) fn with_umask_of_programs<T>(call: impl FnOnce() -> T) -> T {
    /// Also when the function panics.
    struct Back;

    impl Drop for Back {
        fn drop(&mut self) {
            // Another thread may have opened the sweep meanwhile.
            if let Some((readers, of_programs)) = *opened() {
                umask(of_programs & !Mode::from_bits_truncate(readers.rights()));
            }
        }
    }

    let _back = Back;
    if let Some(own) = umask_of_programs() {
        umask(own);
    }
    call()
}

fn opened() -> std::sync::MutexGuard<'static, Option<(Readers, Mode)>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the umask of before.
fn take_from_umask(bits: Mode) -> Mode {
    // It cannot be read without being set: what another thread makes meanwhile is closed.
    let before = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    umask(before & !bits);
    before
}

/// The option by which a process tells the workers and agents it starts that the sweep is shared; none where it is not.
pub(crate) fn shared_option() -> Option<String> {
    is_shared().then(|| "--shared".to_owned())
}

/// Whether [`share_with_group`] was called.
pub(crate) fn is_shared() -> bool {
    GROUP_WRITES.load(Ordering::Relaxed)
}

/// The mode of new folders, before the umask.
pub(crate) fn folder_mode() -> u32 {
    if is_shared() { 0o775 } else { 0o755 }
}

/// The mode of new files, before the umask.
pub(crate) fn file_mode() -> u32 {
    if is_shared() { 0o664 } else { 0o644 }
}

/// The mode of the folder of a sweep.
pub(crate) fn top_mode(access: Access) -> Option<u32> {
    match (access.shared, access.readers) {
        (Shared::No, None) => None,
        (Shared::No, Some(Readers::Owner)) => Some(0o700),
        // Files and folders that are made in it belong to its group, here and below.
        (Shared::No, Some(Readers::Group)) => Some(0o2750),
        (Shared::No, Some(Readers::All)) => Some(0o755),
        (Shared::Group, None | Some(Readers::All)) => Some(0o2775),
        (Shared::Group, Some(Readers::Owner | Readers::Group)) => Some(0o2770),
    }
}

/// Whether a file is there and belongs to this user.
pub(crate) fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == Uid::effective().as_raw())
}

/// The name of the user whom a file belongs to.
pub(crate) fn owner_of(path: &Path) -> Option<String> {
    fs::metadata(path).ok().map(|found| name_of(found.uid()))
}

/// Whether this user has made a file, or root has and nobody else may change it.
pub(crate) fn is_trusted(found: &Metadata) -> bool {
    found.uid() == Uid::effective().as_raw() || objection(found, Shared::No).is_none()
}

/// Refuses a file or folder that another user has made or may change. A missing one is allowed.
///
/// # Errors
/// With the path, what is wrong with it, and what can be done.
pub(crate) fn check(path: &Path, shared: Shared) -> Result<(), Fault> {
    // The link itself, not what it points to: its owner decides where it leads.
    fs::symlink_metadata(path).map_or(Ok(()), |found| judge(path, &found, shared))
}

/// As [`check`], of a file or folder that was looked at.
///
/// # Errors
/// As [`check`].
pub(crate) fn judge(path: &Path, found: &Metadata, shared: Shared) -> Result<(), Fault> {
    let Some(why) = objection(found, shared) else { return Ok(()) };
    let is_own = found.uid() == Uid::effective().as_raw();
    let hint = match (is_own, shared) {
        (false, Shared::No) if found.mode() & 0o020 != 0 => format!(
            "{}: a member of the group names the plan that says so, not the folder",
            only(&name_of(found.uid()))
        ),
        (false, _) => only(&name_of(found.uid())),
        (true, Shared::Group) => OPEN.to_owned(),
        (true, Shared::No) => {
            format!(
                "{OPEN}; `shared = \"group\"` under `[sweep]` is for a group that works on one sweep"
            )
        }
    };
    let fault = Fault::machine(format!("`{}` {why}", path.display())).hint(hint);
    // The mode of an own file is soon put right.
    Err(Fault { is_lasting: !is_own, ..fault })
}

/// What lies in a guarded folder, by the first name of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A file.
    File(&'static str),
    /// A folder.
    Folder(&'static str),
    /// A folder whose files are looked at, too, when they are opened.
    FolderOfFiles(&'static str),
}

/// A folder whose contents decide what this process runs.
struct Guarded {
    root: PathBuf,
    shared: Shared,
    parts: &'static [Part],
    /// The folders in it that were looked at.
    seen: BTreeSet<PathBuf>,
}

static GUARDED: Mutex<Vec<Guarded>> = Mutex::new(Vec::new());

/// From now on [`super::disk`] opens nothing in these parts of a folder that another user has made or may change, but for those
/// who share it. Who may write to a folder decides what is in it: each one that is used is looked at once. Each file is looked
/// at when it is opened, by its descriptor: where others may write to a folder above, they can put a copy in the place of
/// the whole sweep at any time, and its files are theirs.
pub(crate) fn guard(root: &Path, shared: Shared, parts: &'static [Part]) {
    let mut all = guarded();
    all.retain(|one| one.root != root);
    all.push(Guarded { root: root.to_owned(), shared, parts, seen: BTreeSet::new() });
}

fn guarded() -> std::sync::MutexGuard<'static, Vec<Guarded>> {
    GUARDED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guarded {
    /// The part in which a path lies, if this folder is guarded with it.
    fn part(&self, path: &Path) -> Option<Part> {
        let first = path.strip_prefix(&self.root).ok()?.components().next()?;
        let name = first.as_os_str().to_str()?;
        self.parts.iter().copied().find(|part| match part {
            Part::File(own) | Part::Folder(own) | Part::FolderOfFiles(own) => *own == name,
        })
    }

    /// Looks at the folder of the part in which a path lies.
    fn check_folder(&mut self, path: &Path) -> Result<(), Fault> {
        let Some(Part::Folder(name) | Part::FolderOfFiles(name)) = self.part(path) else {
            return Ok(());
        };
        let folder = self.root.join(name);
        if self.seen.contains(&folder) {
            return Ok(());
        }
        // One that is not there yet may be made by anybody who may write to the root.
        let Ok(found) = fs::symlink_metadata(&folder) else { return Ok(()) };
        judge(&folder, &found, self.shared)?;
        self.seen.insert(folder);
        Ok(())
    }

    fn check_file(&self, path: &Path, found: &Metadata) -> Result<(), Fault> {
        match self.part(path) {
            Some(Part::File(_) | Part::FolderOfFiles(_)) => judge(path, found, self.shared),
            _ => Ok(()),
        }
    }
}

/// Refuses a path in a guarded folder that others may change. Of a folder that is missing, nothing can be opened.
///
/// # Errors
/// As [`check`].
pub(super) fn check_folder(path: &Path) -> Result<(), Fault> {
    guarded().iter_mut().try_for_each(|one| one.check_folder(path))
}

/// Refuses a file or folder that a program is about to use, as if this process opened it; `false` if it is not there.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_use(path: &Path) -> Result<bool, Fault> {
    let mut all = guarded();
    if all.iter().any(|one| one.seen.contains(path)) {
        return Ok(true);
    }
    all.iter_mut().try_for_each(|one| one.check_folder(path))?;
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(false) };
    for one in all.iter_mut().filter(|one| one.part(path).is_some()) {
        one.check_file(path, &found)?;
        if found.is_dir() {
            one.seen.insert(path.to_owned());
        }
    }
    Ok(true)
}

/// Refuses a file that was opened, as [`check_folder`] does, and if it is a guarded one that others have made or may change.
///
/// # Errors
/// As [`check`]; [`super::disk::fault`] has it back.
pub(super) fn check_opened(path: &Path, found: &Metadata) -> std::io::Result<()> {
    let check = |one: &mut Guarded| {
        one.check_folder(path)?;
        one.check_file(path, found)
    };
    guarded().iter_mut().try_for_each(check).map_err(std::io::Error::other)
}

/// Whether files can be made in a folder.
///
/// # Errors
/// Those of making one.
pub(crate) fn may_write(dir: &Path) -> std::io::Result<()> {
    if !dir.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, dir, wanted, AtFlags::AT_EACCESS)?)
}

/// As [`check`], of the folder of a sweep; refuses also one that another user has closed for this one to write to.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_top(dir: &Path, shared: Shared) -> Result<(), Fault> {
    let Ok(found) = fs::symlink_metadata(dir) else { return Ok(()) };
    judge(dir, &found, shared)?;
    let owner = match found.is_symlink() {
        true => fs::metadata(dir).map_or(found.uid(), |behind| behind.uid()),
        false => found.uid(),
    };
    let is_closed =
        || may_write(dir).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    if owner == Uid::effective().as_raw() || !is_closed() {
        return Ok(());
    }
    let owner = name_of(owner);
    let sentence = format!("`{}` belongs to {owner}", dir.display());
    Err(Fault::machine(sentence).hint(only(&owner)))
}

/// What an owner does about a sweep that others can write to.
const OPEN: &str =
    "take the right away (`chmod -R go-w` on the sweep's folder) after a look at what is in it";

/// The users who can change a sweep that belongs to this user.
fn only(owner: &str) -> String {
    format!(
        "only {owner} can submit, run, hold or cancel this sweep, and with `shared = \"group\"` under `[sweep]` in the \
         plan its group"
    )
}

/// Refuses to change a sweep that another user has closed.
///
/// # Errors
/// When this user may not read it.
pub(crate) fn check_open(path: &Path) -> Result<(), Fault> {
    match closed(path) {
        Some((at, owner)) if owner != Uid::effective().as_raw() => {
            let owner = name_of(owner);
            let sentence = format!("`{}` belongs to {owner} and is closed to you", at.display());
            Err(Fault::machine(sentence).hint(only(&owner)))
        }
        _ => Ok(()),
    }
}

/// A hint for a user who may not read a plan.
pub(crate) fn how_to_read_plan(path: &Path) -> Option<String> {
    let (closed, owner) = closed(path)?;
    if owner == Uid::effective().as_raw() {
        return how_to_read(path);
    }
    let (shown, owner) = (closed.display(), name_of(owner));
    Some(format!(
        "`{shown}` belongs to {owner}: only the owner can submit this plan; to see its results, name the sweep's folder"
    ))
}

/// A hint for a user who may not read a file of a sweep: ask its owner. `None` if the file is open.
pub(crate) fn how_to_read(path: &Path) -> Option<String> {
    let (closed, owner) = closed(path)?;
    let shown = closed.display();
    if owner == Uid::effective().as_raw() {
        return Some(format!("it is yours: `chmod -R u+rX {}` opens it", quoted(&closed)));
    }
    let owner = name_of(owner);
    // The folder above it is open to readers: most often the umask has closed the file.
    if let Some(dir) = closed.ancestors().skip(1).find(|dir| dir.join("sweep.json").exists()) {
        return Some(format!(
            "`{shown}` belongs to {owner}, and is closed to you: ask the owner to open what is in the \
             sweep's folder (`find {} -mindepth 1 -name meet -prune -o ! -type l ! -name 'env-*.sh' -exec chmod {} {{}} +`)",
            quoted(dir),
            opening(dir),
        ));
    }
    // `readable_by` opens no folder that existed before the sweep.
    if path.ends_with("sweep.json") && path.ancestors().skip(2).any(|above| above == closed) {
        let dir = quoted(&closed);
        return Some(format!(
            "`{shown}` belongs to {owner}, and is closed to you: ask the owner to let you through (`chmod a+x {dir}`, or \
             `g+x` for the group)"
        ));
    }
    Some(format!(
        "`{shown}` belongs to {owner}: ask the owner to let you read it (`readable_by = \"group\"` or `\"all\"` under \
         `[sweep]` in the plan, and the same `submit` again)"
    ))
}

/// The mode that lets those read what is in a folder who may read the folder.
fn opening(dir: &Path) -> &'static str {
    match fs::metadata(dir) {
        Ok(found) if found.mode() & 0o005 != 0o005 => "g+rX",
        _ => "a+rX",
    }
}

/// Whom a sweep belongs to that this user may not read, in words.
pub(crate) fn closed_by(path: &Path) -> Option<String> {
    closed(path).map(|(_, owner)| name_of(owner))
}

/// The file or folder at or above a path that this user may not read, and its owner.
fn closed(path: &Path) -> Option<(PathBuf, u32)> {
    let found = path.ancestors().find_map(|at| Some((at, fs::metadata(at).ok()?)));
    let (at, found) = found?;
    let wanted = match found.is_dir() {
        true => AccessFlags::R_OK | AccessFlags::X_OK,
        false => AccessFlags::R_OK,
    };
    let is_open = faccessat(AT_FDCWD, at, wanted, AtFlags::AT_EACCESS).is_ok();
    (!is_open).then(|| (at.to_owned(), found.uid()))
}

fn quoted(path: &Path) -> String {
    words::sh_quote(&path.to_string_lossy())
}

fn objection(found: &Metadata, shared: Shared) -> Option<String> {
    let owner = found.uid();
    let is_foreign = owner != Uid::effective().as_raw() && owner != 0;
    if found.is_symlink() {
        return is_foreign.then(|| format!("is a link that {} has made", name_of(owner)));
    }
    if found.mode() & 0o002 != 0 {
        return Some("can be written by every user".to_owned());
    }
    if shared == Shared::Group {
        return (is_foreign && !is_in_group(found.gid()))
            .then(|| format!("belongs to {}, and to a group that you are not in", name_of(owner)));
    }
    if is_foreign {
        return Some(format!("belongs to {}", name_of(owner)));
    }
    (found.mode() & 0o020 != 0).then(|| "can be written by its group".to_owned())
}

fn is_in_group(gid: u32) -> bool {
    let gid = Gid::from_raw(gid);
    gid == Gid::effective() || nix::unistd::getgroups().is_ok_and(|all| all.contains(&gid))
}

/// The name of this user.
pub(crate) fn own_name() -> String {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    user.map_or_else(|| Uid::effective().to_string(), |user| user.name)
}

fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("user {uid}"), |user| format!("the user `{}`", user.name))
}
