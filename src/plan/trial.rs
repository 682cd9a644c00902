//! One trial of a plan.

use std::sync::Arc;

use super::sections::auto::Learns;
use super::sections::resources::Resources;
use super::value::Params;
use crate::base::host::gpus::DeviceId;

/// The name of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TaskId {
    /// An integer, as in `task_id = 1`.
    Number(i64),
    /// A text, as in `task_id = "fold2"`, with its template filled in.
    Name(Arc<str>),
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Name(s) => f.write_str(s),
        }
    }
}

/// One trial, in plan order.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The chain it belongs to; `None`: a chain of its own.
    pub(crate) task_id: Option<TaskId>,
    /// Its parameters, defaults included.
    pub params: Params,
    /// Physical devices, if the plan names them; an empty list means no device.
    pub(crate) gpu_ids_abs: Option<Arc<[DeviceId]>>,
    /// Its request to a scheduler; equal requests share one allocation of memory.
    pub resources: Arc<Resources>,
    /// What of the request is learnt; `None`: nothing.
    pub(crate) learns: Option<Arc<Learns>>,
    /// Line of the plan (from 1) of the `[[trials]]` entry it came from; 0 if there is none.
    pub(crate) line: u32,
}
