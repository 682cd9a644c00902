//! The beginning of every call: all ranks announce what they are about to do, and continue together or not at
//! all.

use std::borrow::Cow;

use super::header::{self, DIMENSIONS, Header, Op};
use super::items::{self, Entry, Item};
use super::peers::Peers;
use super::say;
use crate::base::fault::{Fault, Kind as Blame};

/// The announcements of all ranks.
pub(super) struct Meeting {
    /// What each rank is about to do, by rank.
    pub(super) headers: Vec<Header>,
    /// By rank; empty for most.
    tails: Vec<Vec<u8>>,
}

impl Meeting {
    /// Announces what this rank is about to do and reads the others' announcements. One message; two if any
    /// rank has more to send than a word, three if that has a tail.
    pub(super) fn hold(
        peers: &mut dyn Peers,
        mut mine: Header,
        tail: &[u8],
    ) -> Result<Self, Fault> {
        mine.tail = tail.len() as u64;
        let headers = match announce(peers, mine.word(), || mine.encode())? {
            Said::Same => vec![mine; peers.size() as usize],
            Said::Headers(headers) => headers,
        };
        Self::with_headers(peers, headers, tail)
    }

    /// Hears the tails that go with these headers.
    pub(super) fn with_headers(
        peers: &mut dyn Peers,
        headers: Vec<Header>,
        tail: &[u8],
    ) -> Result<Self, Fault> {
        let lens: Vec<usize> = headers.iter().map(|header| header.tail as usize).collect();
        let gathered = items::gather_bytes(peers, tail, &lens)?;
        let mut unread = gathered.as_slice();
        let tails = lens.iter().map(|len| unread.split_off(..*len).unwrap_or_default().to_vec());
        Ok(Self { tails: tails.collect(), headers })
    }

    /// Whether all ranks do the same in the same way.
    pub(super) fn agree(&self) -> Result<(), Fault> {
        let ranks_with = |op| (0..self.headers.len()).filter(move |r| self.headers[*r].op == op);
        let texts = |op| {
            let text_groups =
                say::groups(ranks_with(op).map(|r| (r, String::from_utf8_lossy(&self.tails[r]))));
            say::list(
                text_groups.iter().map(|(text, who)| format!("{}: {text}", say::ranks(who))),
                "; ",
            )
        };
        if ranks_with(Op::Broken).next().is_some() {
            return Err(Fault::request(texts(Op::Broken))
                .hint("docs/sync-protocol.md says what a request looks like"));
        }
        if ranks_with(Op::Absent).next().is_some() {
            return Err(Fault::request(texts(Op::Absent))
                .hint("every rank must make the same syncs, as often as the others"));
        }
        let Some(first) = self.headers.first() else { return Ok(()) };
        if self.headers.iter().any(|header| header.op != first.op) {
            let requests =
                say::by_rank(&self.headers.iter().map(|h| h.op).collect::<Vec<_>>(), |op| {
                    format!("`{}`", op.name())
                });
            return Err(Fault::request(format!("the ranks ask for different things: {requests}"))
                .hint("every rank must make the same syncs in the same order"));
        }
        let settings: Vec<Vec<(&str, String)>> =
            self.headers.iter().map(|h| h.op.settings(h.options)).collect();
        for (i, (name, _)) in settings[0].iter().enumerate() {
            let values: Vec<&String> = settings.iter().map(|rank| &rank[i].1).collect();
            if values.iter().any(|value| *value != values[0]) {
                let rank_settings = say::by_rank(&values, |value| (*value).clone());
                return Err(Fault::request(format!(
                    "the ranks disagree on `{name}`: {rank_settings}"
                )));
            }
        }
        Ok(())
    }
}

/// The announcements of the ranks.
pub(super) enum Said {
    /// All of them the same, and there is nothing more to read.
    Same,
    /// A header of each rank, by rank.
    Headers(Vec<Header>),
}

/// Words of so many ranks need no memory of their own.
const FEW: usize = 32;

/// Announces what this rank is about to do, in a word and if need be in a header, and reads the others'
/// announcements, except for their tails.
pub(super) fn announce(
    peers: &mut dyn Peers,
    word: u64,
    header: impl FnOnce() -> [u8; header::SIZE],
) -> Result<Said, Fault> {
    let world = peers.size() as usize;
    let (mut few, mut many) = ([0; 8 * FEW], Vec::new());
    let words = if world <= FEW {
        &mut few[..8 * world]
    } else {
        many.resize(8 * world, 0);
        many.as_mut_slice()
    };
    peers.all_gather(&word.to_le_bytes(), words)?;
    let (words, _) = words.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    if word != header::LONG && words.clone().all(|other| other == word) {
        return Ok(Said::Same);
    }
    if words.clone().any(|word| word == header::LONG) {
        let mut header_bytes = vec![0; world * header::SIZE];
        peers.all_gather(&header(), &mut header_bytes)?;
        let (chunks, _) = header_bytes.as_chunks();
        let headers = chunks.iter().map(Header::decode).collect::<Option<_>>();
        return headers.map(Said::Headers).ok_or_else(garbled);
    }
    let headers = words.map(Header::of_word).collect::<Option<_>>();
    headers.map(Said::Headers).ok_or_else(garbled)
}

/// Meets for a call with these entries, in the order of their keys.
pub(super) fn meet(
    peers: &mut dyn Peers,
    op: Op,
    options: u16,
    mine: &[Entry],
) -> Result<Vec<Item>, Fault> {
    let small = match mine {
        [Entry { key, kind: Ok(kind), .. }] if op == Op::Gather && key.is_empty() => {
            (kind.shape.len() <= DIMENSIONS).then(|| kind.clone())
        }
        _ => None,
    };
    let tail = match small {
        Some(_) => Vec::new(),
        None => serde_json::to_vec(mine).map_err(|_| garbled())?,
    };
    let meeting = Meeting::hold(peers, Header { op, options, kind: small, tail: 0 }, &tail)?;
    meeting.agree()?;
    let mut ranks = Vec::with_capacity(meeting.headers.len());
    for (header, theirs) in meeting.headers.into_iter().zip(&meeting.tails) {
        ranks.push(match header.kind {
            Some(kind) => Cow::Owned(vec![Entry { key: Vec::new(), kind: Ok(kind), weight: 1.0 }]),
            // The usual case costs no reading.
            None if *theirs == tail => Cow::Borrowed(mine),
            None => Cow::Owned(serde_json::from_slice(theirs).map_err(|_| garbled())?),
        });
    }
    items::match_up(&ranks)
}

/// Takes part in one call for a program that will make no more: the others get the error
/// `rank 1: {why}`. Returns whether no rank is left that will.
///
/// # Errors
/// When a rank is gone.
pub fn absent(peers: &mut dyn Peers, why: &str) -> Result<bool, Fault> {
    let mine = Header { op: Op::Absent, options: 0, kind: None, tail: 0 };
    let meeting = Meeting::hold(peers, mine, crate::base::words::short(why, 500).as_bytes())?;
    Ok(meeting.headers.iter().all(|header| header.op == Op::Absent))
}

/// Takes part in one call with a request that cannot be carried out: every rank gets the error
/// `rank 1: {why}`.
pub(super) fn broken(peers: &mut dyn Peers, why: &str) -> Result<(), Fault> {
    let mine = Header { op: Op::Broken, options: 0, kind: None, tail: 0 };
    Meeting::hold(peers, mine, crate::base::words::short(why, 500).as_bytes())?.agree()
}

/// The announcement of another rank cannot be read.
fn garbled() -> Fault {
    Fault::new(Blame::Bug, "what the ranks told each other makes no sense")
        .hint("every rank must run the same build of hpcsweep")
}
