//! A program's request, carried out by its worker together with the workers of the other ranks.

use super::frame::{Answer, Request};
use super::gather::{mp_sync, mp_sync_map};
use super::meeting;
use super::peers::Peers;
use super::reduce::reduce_values;
use crate::base::fault::Fault;

/// Carries a request out and returns its answer. [`Answer::Failed`] with a fault of the request is the same
/// on every rank and leaves all of them ready for the next one; with a fault of the machine a rank is gone
/// and nothing more can be synced.
pub fn serve_one(peers: &mut dyn Peers, request: Request) -> Answer {
    answer(peers, request).unwrap_or_else(Answer::Failed)
}

fn answer(peers: &mut dyn Peers, request: Request) -> Result<Answer, Fault> {
    Ok(match request {
        Request::Hello => Answer::Hello {
            rank: peers.rank(),
            world: peers.size(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        Request::Gather(value, flags) => {
            Answer::from_gathered(vec![(Vec::new(), mp_sync(peers, value, flags)?)], flags)
        }
        Request::GatherMap(leaves, flags) => {
            Answer::from_gathered(mp_sync_map(peers, leaves, flags)?, flags)
        }
        Request::Reduce(shares, how, nan) => {
            Answer::Joined(reduce_values(peers, shares, how, nan)?)
        }
        Request::Broken(why) => {
            meeting::broken(peers, &why)?;
            Answer::Failed(Fault::request(why))
        }
    })
}
