//! The scheduler's reports about jobs: states, and the elements of arrays.

use std::collections::BTreeMap;

use crate::base::cause::Cause;
use crate::base::idset::IdSet;

/// A scheduler's state of one array element, as far as hpcsweep distinguishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits in the queue, or its nodes are being set up; with the scheduler's word.
    Queued(String),
    /// Waiting until it is released: by its user, an administrator, or both after too many requeues. A job that waits
    /// for another job, or for room, is not held.
    Held(String),
    /// It runs, is suspended, or is about to end; with the scheduler's word.
    Running(String),
    /// Ended with exit code 0, according to the scheduler.
    Completed,
    /// Ended otherwise, with the scheduler's state: `FAILED`, `TIMEOUT`, `exit status 271` ...
    Ended(End, String),
    /// A word not in our table.
    Other(String),
}

impl State {
    /// The reason of a job that still runs and was deleted: it ends, and nothing more begins in it.
    pub(crate) const STOPPING: &str = "stopping";

    /// Why it ended without success, as far as the scheduler's word says it.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self {
            Self::Ended(End::Timeout, _) => Some(Cause::Walltime),
            Self::Ended(End::Memory, _) => Some(Cause::OutOfMemory),
            Self::Ended(End::Cancelled | End::Unrun, _) => Some(Cause::Cancelled),
            Self::Ended(End::Preempted, _) => Some(Cause::Preempted),
            Self::Ended(End::Node, _) => Some(Cause::NodeFailure),
            _ => None,
        }
    }

    /// Whether it has not begun.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Queued(_) | Self::Held(_))
    }

    /// Whether its job waits or runs, and is not about to end.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self, Self::Completed | Self::Ended(..)) && !self.is_ending()
    }

    /// Whether its job was deleted and has not ended yet.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Running(word) if word == Self::STOPPING)
    }

    /// Whether its job is about to end, or to go back into the queue.
    pub(crate) fn is_ending(&self) -> bool {
        let ending = |word: &str| ["COMPLETING", "exiting"].contains(&word);
        self.is_stopping() || matches!(self, Self::Running(word) if ending(word))
    }
}

/// What kind of an end a scheduler speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The job ended without success by itself: an exit code, or an error that has no kind of its own here.
    Failed,
    /// Its node failed or did not start it.
    Node,
    /// Its time was over.
    Timeout,
    /// It used more memory than it had.
    Memory,
    /// A user or the scheduler has cancelled it.
    Cancelled,
    /// The scheduler needed its place.
    Preempted,
    /// It is over, and the scheduler does not say that it ever ran.
    Unrun,
}

/// The scheduler's report about one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its state, with the scheduler's word.
    pub state: State,
    /// Why it waits or ended, in the scheduler's words; empty without one.
    pub reason: String,
}

/// The known elements of one array, or of one plain job.
#[derive(Debug, Clone, Default)]
pub struct Elements {
    /// Those that are listed singly: by the first of each run of indices that share a state and a reason, its last one and
    /// these.
    single: BTreeMap<u64, (u64, Element)>,
    sets: Vec<(IdSet, Element)>,
    whole: Option<Element>,
}

impl Elements {
    /// Learns of one element; later words win.
    pub(crate) fn say_of(&mut self, index: u64, element: &Element) {
        let mut before = None;
        if let Some((first, (last, known))) = self.single.range_mut(..=index).next_back() {
            let is_same = known == element;
            if is_same && *last + 1 >= index {
                *last = index.max(*last);
                return;
            }
            if *last >= index {
                before = Some((*first, *last, known.clone()));
            }
        }
        if let Some((first, last, known)) = before {
            if last > index {
                self.single.insert(index + 1, (last, known.clone()));
            }
            if first < index {
                self.single.insert(first, (index - 1, known));
            }
        }
        self.single.insert(index, (index, element.clone()));
    }

    /// Learns of a set of elements that nothing singles out.
    pub(crate) fn say_of_all(&mut self, ids: IdSet, element: Element) {
        self.sets.push((ids, element));
    }

    /// Sets the state of every element without one of its own.
    pub(crate) fn say_of_the_rest(&mut self, element: Element) {
        self.whole = Some(element);
    }

    /// Says of every element that waits why it does.
    pub(crate) fn hold(&mut self, element: &Element) {
        let all = self.single.values_mut().map(|(_, known)| known);
        for known in all.filter(|known| known.state.waits()) {
            known.clone_from(element);
        }
    }

    /// The element of an index.
    pub fn get(&self, index: u64) -> Option<&Element> {
        let run = self.single.range(..=index).next_back();
        let single = run.filter(|(_, (last, _))| *last >= index).map(|(_, (_, known))| known);
        single.or_else(|| {
            let index = u32::try_from(index).ok()?;
            let waiting = self.sets.iter().rfind(|(ids, _)| ids.contains(index));
            waiting.map(|(_, element)| element).or(self.whole.as_ref())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Element, Elements, State};

    proptest! {
        /// As if each element were kept by itself.
        #[test]
        fn the_last_words_about_an_element_count(said in prop::collection::vec((0..24_u64, 0..3_u8), 0..80)) {
            let element = |kind: u8| Element { state: State::Queued(kind.to_string()), reason: String::new() };
            let (mut elements, mut each) = (Elements::default(), HashMap::new());
            for (index, kind) in said {
                elements.say_of(index, &element(kind));
                each.insert(index, element(kind));
            }
            for index in 0..26 {
                prop_assert_eq!(elements.get(index), each.get(&index));
            }
        }
    }
}
