//! The trial's checkpoints on disk: the last one, the one before it, and the best weights.
//!
//! A thread writes, so that the other ranks wait for the copy of the numbers only and not for the disk.
//! Whatever is killed when, either `last` or `previous` is whole: a new one becomes whole under a name
//! of its own, then the names move up.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::{disk, threads};

use super::file::{self, Pieces};

/// The names in the folder.
pub(crate) const LAST: &str = "last.safetensors";
const PREVIOUS: &str = "previous.safetensors";
const NEXT: &str = "next.safetensors";
/// Weights of the best epoch, under PyTorch's names.
pub(crate) const BEST: &str = "best.safetensors";
/// The best module, where the model is a TorchScript.
pub(crate) const BEST_SCRIPT: &str = "best.pt";

/// Reads a checkpoint that is whole and unchanged: the last one, or the one before it if the last is damaged, with a
/// note about that. `None` if there is none.
///
/// # Errors
/// When files are there but none can be used.
pub(crate) fn read(folder: &Path) -> Result<(Option<Vec<u8>>, Vec<String>)> {
    let mut notes = Vec::new();
    for name in [LAST, PREVIOUS] {
        let path = folder.join(name);
        let bytes = match disk::read_bytes_if_there(&path) {
            // An empty file is a torn one; that it is there is all we need to know.
            Ok(bytes) if bytes.is_empty() && !path.exists() => continue,
            Ok(bytes) => bytes,
            Err(error) => {
                notes.push(error.to_string());
                continue;
            }
        };
        match file::decode(&bytes) {
            Ok(_) => {
                if name == PREVIOUS {
                    notes
                        .push(format!("going on from the checkpoint before: `{}`", path.display()));
                }
                return Ok((Some(bytes), notes));
            }
            Err(why) => {
                notes.push(format!("the checkpoint `{}` is damaged: {why}", path.display()));
            }
        }
    }
    match notes.first() {
        None => Ok((None, notes)),
        Some(first) => Err(Fault::machine(first.clone())
            .hint(format!("to start the trial over, remove `{}`", folder.display()))
            .into()),
    }
}

/// Removes what a killed run has left half written.
pub(crate) fn tidy(folder: &Path) -> Result<()> {
    for name in disk::list(folder)? {
        if name == NEXT || (name.starts_with('.') && name.ends_with(".tmp")) {
            disk::remove_if_there(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The requests to the thread that writes.
pub(crate) enum Work {
    /// A checkpoint: its state and tensors.
    Last(String, Pieces),
    /// The best weights, as the bytes of their file.
    Best(Vec<u8>),
    /// A whole module, already in a file aside: its name in the folder, and where it is.
    Module(&'static str, PathBuf),
}

/// Writes into a folder, in the order in which it is asked.
pub(crate) struct Writer {
    asked: mpsc::SyncSender<Work>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    /// A writer for a folder, which is made.
    ///
    /// # Errors
    /// When the folder cannot be made or no thread started.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        disk::make_dir(folder)?;
        tidy(folder)?;
        let folder = folder.to_owned();
        // Two at a time: a slow disk slows the training down, it does not fill the memory.
        let (asked, orders) = mpsc::sync_channel::<Work>(1);
        Ok(Self {
            asked,
            thread: Some(threads::start("checkpoints", move || {
                orders.iter().try_for_each(|work| write(&folder, work))
            })?),
        })
    }

    /// Asks for something to be written; waits while two others are.
    ///
    /// # Errors
    /// What went wrong with an earlier one.
    pub(crate) fn ask(&mut self, work: Work) -> Result<()> {
        if self.asked.send(work).is_ok() {
            return Ok(());
        }
        // The thread ends early only with an error, which `finish` of a replacement cannot see: take it
        // here.
        let (asked, _) = mpsc::sync_channel(1);
        self.asked = asked;
        joined(self.thread.take())
    }

    /// Waits until all is on disk.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.asked);
        joined(self.thread)
    }
}

fn joined(thread: Option<JoinHandle<Result<()>>>) -> Result<()> {
    let Some(thread) = thread else { return Ok(()) };
    thread
        .join()
        .unwrap_or_else(|_| Err(Fault::machine("the checkpoint's thread has ended").into()))
}

fn write(folder: &Path, work: Work) -> Result<()> {
    match work {
        Work::Last(state, pieces) => {
            let next_file = folder.join(NEXT);
            disk::write_whole(&next_file, &file::encode(&state, &pieces)?)?;
            disk::rename_if_there(&folder.join(LAST), &folder.join(PREVIOUS))?;
            disk::rename_if_there(&next_file, &folder.join(LAST))?;
        }
        Work::Best(weights) => disk::write_whole(&folder.join(BEST), &weights)?,
        Work::Module(name, aside) => {
            disk::sync_file(&aside)?;
            disk::rename_if_there(&aside, &folder.join(name))?;
        }
    }
    disk::sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::Dtype;

    use super::*;
    use crate::train::checkpoint::file::Piece;

    fn pieces(byte: u8) -> Pieces {
        let piece = Piece { dtype: Dtype::U8, shape: vec![1], bytes: vec![byte] };
        Pieces::from([("a".into(), piece)])
    }

    fn found(folder: &Path) -> (Option<(String, Pieces)>, usize) {
        let (found, notes) = read(folder).unwrap();
        (found.map(|bytes| file::decode(&bytes).unwrap()), notes.len())
    }

    #[test]
    fn the_last_one_is_read_and_the_one_before_where_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(found(folder), (None, 0));

        let mut writer = Writer::new(folder).unwrap();
        for n in [1, 2, 3] {
            writer.ask(Work::Last(n.to_string(), pieces(n))).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(found(folder), (Some(("3".into(), pieces(3))), 0));
        assert_eq!(disk::list(folder).unwrap(), [LAST, PREVIOUS]);

        let last = folder.join(LAST);
        let whole = std::fs::read(&last).unwrap();
        std::fs::write(&last, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(found(folder), (Some(("2".into(), pieces(2))), 2));
        // Killed between the two renames.
        std::fs::remove_file(&last).unwrap();
        assert_eq!(found(folder), (Some(("2".into(), pieces(2))), 1));
        // Both damaged: nothing is started over in silence.
        std::fs::write(&last, b"").unwrap();
        std::fs::write(folder.join(PREVIOUS), b"{}").unwrap();
        assert!(read(folder).is_err());
    }

    #[test]
    fn leftovers_of_a_killed_run_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in [NEXT, ".last.safetensors.abcdefgh.tmp", BEST] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        Writer::new(folder.path()).unwrap().finish().unwrap();
        assert_eq!(disk::list(folder.path()).unwrap(), [BEST]);
    }

    #[test]
    fn a_disk_that_fails_is_told_at_the_next_ask_or_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let mut writer = Writer::new(&gone).unwrap();
        std::fs::remove_dir(&gone).unwrap();
        let mut told = None;
        for n in 0..4 {
            told = told.or(writer.ask(Work::Best(vec![n])).err());
        }
        let told = told.or(writer.finish().err()).unwrap().to_string();
        assert!(told.contains("best.safetensors"), "{told}");
    }
}
