//! What a scheduler says about arrays before they are submitted: whether all have a place in the queue, and when the first
//! would start. Nothing is submitted for it.

use anyhow::Result;

use crate::base::fault::{self, Fault, Kind};
use crate::base::host::Vars;
use crate::base::words::{count, thousands};
use crate::cluster::scheduler::Wanted;
use crate::plan::site::{SchedulerKind, Site};
use crate::submit::Source;
use crate::submit::arrays::batch::Asked;
use crate::submit::arrays::feeder;

/// What is to be expected.
#[derive(Debug, Default)]
pub(crate) struct Forecast {
    /// In how many parts the elements would be submitted; `None`: that is not known.
    pub(crate) submissions: Option<u64>,
    /// What has a place in the queue now, in words; `None` where all has.
    pub(crate) places: Option<String>,
    /// When the first element would start, in the scheduler's words.
    pub(crate) start: Option<String>,
    /// What it says instead, where it would not take them.
    pub(crate) refused: Option<String>,
    /// Why the scheduler cannot be asked.
    pub(crate) why: Option<String>,
}

/// Asks for the limits of the scheduler, as a submission does.
///
/// # Errors
/// As [`told`].
pub(crate) fn limits(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    wanted: &Wanted<'_>,
    environment: &Vars,
) -> Result<Result<Asked, String>> {
    match Asked::new(&source.tree(), kind, wanted, site, environment) {
        Ok(asked) => Ok(Ok(asked)),
        Err(error) => told(error).map(Err),
    }
}

/// What a scheduler says that does not answer.
///
/// # Errors
/// When the submission would be refused: the scheduler does not take a request, or the queue never has the places that it
/// needs.
pub(crate) fn told(error: anyhow::Error) -> Result<String> {
    match error.downcast_ref::<Fault>().filter(|fault| fault.kind == Kind::Request) {
        Some(_) => Err(error),
        None => Ok(fault::sentence(&error)),
    }
}

/// The places of a queue for so many pilots.
///
/// # Errors
/// As [`told`].
pub(crate) fn of_pilots(
    source: &Source,
    site: &Site,
    asked: &mut Asked,
    pilots: u64,
) -> Result<Forecast> {
    let charged = feeder::charged(source, site);
    let room = match asked.scheduler.room(&mut asked.calls, pilots, charged) {
        Ok(room) => room.filter(|room| pilots > room.free()),
        Err(error) => return Ok(Forecast { why: Some(told(error)?), ..Forecast::default() }),
    };
    let Some(room) = room else {
        return Ok(Forecast { submissions: Some(1), ..Forecast::default() });
    };
    let now = room.free().saturating_sub(1);
    let later = room.submissions(pilots - now);
    let (now, words) = (thousands(now), count(later, "further submission"));
    let places = format!("{room}: {now} elements now, the others in about {words}");
    Ok(Forecast { submissions: Some(1 + later), places: Some(places), ..Forecast::default() })
}

impl Forecast {
    /// Asks when a job with these directives would start.
    pub(crate) fn ask_start(&mut self, asked: &mut Asked, directives: &[String]) {
        match asked.scheduler.would_start(&mut asked.calls, directives) {
            Ok(start) => self.start = start,
            Err(error) => self.refused = Some(fault::sentence(&error)),
        }
    }

    /// In lines; `chain_s`: the walltimes of the longest chain, if all its trials have one.
    pub(crate) fn lines(&self, chain_s: Option<u64>) -> Vec<String> {
        if let Some(why) = &self.why {
            return vec![format!("places in the queue and expected start: unknown ({why})")];
        }
        let mut lines: Vec<String> = self.places.iter().cloned().collect();
        if let Some(refused) = &self.refused {
            lines.push(format!("would not be taken: {refused}"));
        }
        if let Some(start) = &self.start {
            let most = chain_s.map(|s| {
                format!("; what starts then ends within {}", crate::base::units::walltime_text(s))
            });
            lines.push(format!("expected start: {start}{}", most.unwrap_or_default()));
        }
        lines
    }
}
