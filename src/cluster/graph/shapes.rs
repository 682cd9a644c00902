//! Dense numbers for resource requests and for chains, as [`super::plan`] wants them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::plan::{Resources, TaskId, Trial};

use super::Node;

/// Distinct resource requests, numbered in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// The requests by number.
    pub(crate) list: Vec<Arc<Resources>>,
    by_value: HashMap<Arc<Resources>, u32>,
    last: Option<(Arc<Resources>, u32)>,
}

impl Shapes {
    /// The number of a request.
    pub(crate) fn number(&mut self, resources: &Arc<Resources>) -> u32 {
        // Neighbours mostly share the very same request.
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, resources)
        {
            return *number;
        }
        let next_number = self.list.len() as u32;
        let number = *self.by_value.entry(Arc::clone(resources)).or_insert(next_number);
        if number == next_number {
            self.list.push(Arc::clone(resources));
        }
        self.last = Some((Arc::clone(resources), number));
        number
    }
}

/// Numbers of chains: trials that share a task id share one, a trial without gets its own.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// How many there are so far.
    pub(crate) count: u32,
    by_task: HashMap<TaskId, u32>,
}

impl Chains {
    /// The chain of a trial with this task id.
    pub(crate) fn number(&mut self, task: Option<&TaskId>) -> u32 {
        if let Some(task) = task {
            if let Some(&number) = self.by_task.get(task) {
                return number;
            }
            self.by_task.insert(task.clone(), self.count);
        }
        self.count += 1;
        self.count - 1
    }
}

/// The nodes of a whole plan, trials numbered from 0, with its shapes.
pub(crate) fn of_plan(trials: &[Trial]) -> (Vec<Node>, Shapes) {
    let mut shapes = Shapes::default();
    let mut chains = Chains::default();
    let nodes = trials
        .iter()
        .enumerate()
        .map(|(i, t)| Node {
            trial: i as u64,
            chain: chains.number(t.task_id.as_ref()),
            shape: shapes.number(&t.resources),
        })
        .collect();
    (nodes, shapes)
}
