//! What a scheduler says about arrays before they are submitted: whether all have a place in the queue, and when the first
//! would start. Nothing is submitted for it.

use anyhow::Result;

use crate::fault::{self, Fault, Kind};
use crate::host::Vars;
use crate::plan::Resources;
use crate::scheduler::calls::Calls;
use crate::scheduler::{self, Room, Wanted};
use crate::site::{SchedulerKind, Site};
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::arrays::feeder;
use crate::submit::wanted;
use crate::tree::journal::Journal;
use crate::words::{count, thousands};

/// What is to be expected.
#[derive(Debug, Default)]
pub(crate) struct Forecast {
    /// In how many parts the elements would be submitted; `None`: that is not known.
    pub(crate) submissions: Option<u64>,
    /// The places of the queue, if they limit that.
    room: Option<Room>,
    /// When the first element would start, in the scheduler's words.
    pub(crate) start: Option<String>,
    /// What it says instead, where it would not take them.
    pub(crate) refused: Option<String>,
    /// Why the scheduler cannot be asked.
    why: Option<String>,
}

/// What is asked about.
pub(crate) struct About<'a> {
    /// How many elements would be submitted.
    pub(crate) elements: u64,
    /// Those that a feeder may submit, where they are elements of trials: held ones too.
    pub(crate) fed: Option<u64>,
    /// The directives of the first.
    pub(crate) directives: &'a [String],
    /// What pilots ask for, in pull mode.
    pub(crate) pilots: Option<&'a Resources>,
    /// Trials that run again, perhaps with other requests.
    pub(crate) retry: &'a Again,
}

/// Asks the scheduler about elements.
///
/// # Errors
/// When the submission would be refused: the scheduler does not take a request, or the queue never has the places that it
/// needs.
pub(crate) fn of(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    about: &About<'_>,
    environment: &Vars,
) -> Result<Forecast, Fault> {
    asked(source, site, kind, about, environment).unwrap_or_else(|error| {
        match error.downcast_ref::<Fault>().filter(|fault| fault.kind == Kind::Request) {
            Some(fault) => Err(fault.clone()),
            None => Ok(Forecast { why: Some(fault::sentence(&error)), ..Forecast::default() }),
        }
    })
}

fn asked(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    about: &About<'_>,
    environment: &Vars,
) -> Result<Result<Forecast, Fault>> {
    let About { elements, fed, directives, pilots, retry } = *about;
    let mut wanted = wanted(source);
    match pilots {
        Some(request) => wanted = Wanted { requests: vec![request], elements, ..wanted },
        None => wanted.requests.extend(retry.requests()),
    }
    let mut calls = Calls::of_sweep(&Journal::read(&source.tree())?, environment, site);
    let scheduler = scheduler::asked(kind, &mut calls, &wanted, site)?;
    let room = scheduler.room(&mut calls, elements, feeder::charged(source, site))?;
    if let (Some(room), Some(fed)) = (&room, fed)
        && let Err(fault) = feeder::check_places(source, kind, room, fed)
    {
        return Ok(Err(fault));
    }
    let room = room.filter(|room| elements > room.free());
    let later = room.as_ref().map_or(0, |room| room.submissions(elements - now(room)));
    let (start, refused) = match scheduler.would_start(&mut calls, directives) {
        Ok(start) => (start, None),
        Err(error) => (None, Some(fault::sentence(&error))),
    };
    Ok(Ok(Forecast { submissions: Some(1 + later), room, start, refused, why: None }))
}

/// The elements that have a place now, beside the feeder.
fn now(room: &Room) -> u64 {
    room.free().saturating_sub(1)
}

impl Forecast {
    /// In lines; `chain_s`: the walltimes of the longest chain, if all its trials have one.
    pub(crate) fn lines(&self, chain_s: Option<u64>) -> Vec<String> {
        if let Some(why) = &self.why {
            return vec![format!("places in the queue and expected start: unknown ({why})")];
        }
        let mut lines = Vec::new();
        if let (Some(room), Some(submissions)) = (&self.room, self.submissions) {
            let now = thousands(now(room));
            let later = count(submissions - 1, "further submission");
            lines.push(format!("{room}: {now} elements now, the others in about {later}"));
        }
        if let Some(refused) = &self.refused {
            lines.push(format!("would not be taken: {refused}"));
        }
        if let Some(start) = &self.start {
            let most = chain_s.map(|s| {
                format!("; what starts then ends within {}", crate::units::walltime_text(s))
            });
            lines.push(format!("expected start: {start}{}", most.unwrap_or_default()));
        }
        lines
    }
}
