//! Why an agent goes before the sweep is over.

use super::slot::Why;

/// Why an agent takes no more.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    /// In words.
    pub reason: String,
    /// The trials that run are asked to end.
    pub stop: Option<Why>,
    /// Whether the machine is why.
    pub is_ill: bool,
    /// Whether it stays after all if the sweep is released.
    pub is_held: bool,
}

impl Leaving {
    /// What runs may end in peace.
    pub(super) fn because(reason: String) -> Self {
        Self { reason, stop: None, is_ill: false, is_held: false }
    }
}
