//! Ends the programs of an agent that was killed. The guard is a process beside the agent that waits for its end and
//! kills all processes that carry its mark. A signal on the death of a parent reaches the program alone, not the
//! processes that it has started.

use std::io::{BufRead, Write};
use std::process::ChildStdin;
use std::time::Duration;

use crate::base::host::{disk, process};

/// The variable that marks what a slot's program has started.
pub(crate) const MARK: &str = "HPCSWEEP_SLOT";

/// The agent's end of it: the guard acts when this is gone, however that came.
#[derive(Debug)]
pub(crate) struct Guard(Option<(u32, ChildStdin)>);

impl Guard {
    /// Starts it. Where it cannot be started, what is left is ended by the agent that takes over.
    pub(crate) fn start() -> Self {
        let own = disk::own_executable().ok();
        Self(own.and_then(|own| process::start_beside(&own, &["worker", "--guard"]).ok()))
    }

    /// The agent has this name from now on.
    pub(crate) fn note(&mut self, agent: &str) {
        if let Some((_, pipe)) = &mut self.0 {
            let _ = writeln!(pipe, "{agent}");
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.0.as_ref().map(|(pid, _)| *pid)
    }
}

/// The life of a guard: until the agent is gone.
pub(crate) fn stand() {
    let names: Vec<String> = std::io::stdin().lock().lines().map_while(Result::ok).collect();
    // Repeats, because programs may start processes while others are killed.
    for _ in 0..3 {
        names.iter().for_each(|name| process::end_orphans(MARK, &format!("{name}.")));
        std::thread::sleep(Duration::from_millis(20));
    }
}
