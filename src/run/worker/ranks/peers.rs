//! The ranks of one trial report to their rank 0 over TCP: which exist, what they print, how they end. A rank
//! that dies closes its connection, so rank 0 notices at once, without polling.
//!
//! Rank 0 publishes its addresses in one small file of the sweep (`meet/`), removed at the end; every
//! other rank waits for that file and connects. Lines are JSON; the first must carry the file's token. How rank 0
//! gathers the others is in [`crate::run::worker::ranks::gather`].

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::host::{Vars, disk, threads};
use crate::base::words;
use crate::sweep::tree::records::Used;

/// A message of a rank to rank 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum Up {
    /// The rank joins; the first message of its connection.
    Hello {
        /// Token of the meeting file.
        token: String,
        /// The rank that joins, as the launcher numbers it.
        rank: u32,
        /// World size as it sees it.
        world: u32,
        /// The name of its host.
        host: String,
        /// The data that distinguish its node from the others.
        node: String,
    },
    /// A line its program printed.
    Line {
        /// The line, without its end.
        text: String,
    },
    /// Metric lines of its program.
    Metrics {
        /// One JSON object for each line.
        rows: Vec<Map<String, Value>>,
    },
    /// Its program has ended.
    Ended {
        /// Exit code, or 128 + signal.
        code: i32,
        /// The signal that killed it.
        signal: Option<i32>,
        /// Who asked it to end before it did so by itself.
        stop: Option<Asked>,
        /// Its reason, in its own words.
        reason: Option<String>,
        /// The cause, where that is known.
        #[serde(default)]
        cause: Option<Cause>,
        /// Whether it had a handler for a signal to stop.
        #[serde(default)]
        handler: bool,
        /// How long before this message, seconds.
        ago_s: f64,
        /// What its processes have used.
        used: Used,
    },
    /// Its program could not be started.
    Broken {
        /// Why it could not, in words.
        reason: String,
        /// The cause, where that is known.
        #[serde(default)]
        cause: Option<Cause>,
    },
}

/// Where a rank runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat<'a> {
    /// The name of its host, for people.
    pub(crate) host: &'a str,
    /// The data that distinguish its node from every other node of the job.
    pub(crate) node: &'a str,
}

/// Who asked a rank's program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// Rank 0 did, by a message or by going away.
    Rank0,
    /// A signal to its worker did.
    Signal,
    /// Its time was over.
    Deadline,
    /// No process did; its private folder was removed.
    Robbed,
}

/// A message of rank 0 to a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum Down {
    /// The rank is to begin this attempt.
    Begin {
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Where torch's rendezvous listens: an address of rank 0 that another rank has reached.
        addr: String,
        /// The TCP port at that address.
        port: u16,
        /// The hosts of the trial in the order of their lowest ranks, each with how many it has.
        hosts: Vec<(String, u32)>,
    },
    /// The rank is to ask its program to end.
    Stop,
    /// You cannot take part; the connection ends.
    Refused {
        /// Why the rank is refused, one sentence.
        reason: String,
    },
    /// The trial is over; end with this code if your own is 0.
    Leave {
        /// Exit code of the trial.
        code: i32,
    },
}

/// An event at rank 0.
#[derive(Debug)]
pub(crate) struct FromRank {
    /// The rank that sent it, or that is gone.
    pub(crate) rank: u32,
    /// What; `None`: the connection is gone.
    pub(crate) said: Option<Up>,
    /// When it was read.
    pub(crate) at: Instant,
}

/// The file in `meet/` by which ranks find rank 0. Only its owner may read it: the token proves that a process
/// belongs to this launch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Meeting {
    /// The token that the first line of every rank must carry.
    pub(crate) token: String,
    /// The TCP port on which rank 0 listens.
    pub(crate) port: u16,
    /// Addresses of rank 0's host, the most promising first.
    pub(crate) addrs: Vec<IpAddr>,
}

/// The name under which all ranks of one launch meet, from what the launcher gave all of them alike.
///
/// # Errors
/// When nothing in the environment is common to the ranks of this launch alone.
pub(crate) fn meeting_name(vars: &Vars, trial: u64) -> Result<String, Fault> {
    let get = |name: &str| vars.get(name).filter(|v| !v.is_empty());
    let mut parts: Vec<&String> = Vec::new();
    if let Some(word) = get("HPCSWEEP_MEET") {
        parts.push(word);
    } else {
        for name in
            ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "PALS_APID"]
        {
            parts.extend(get(name));
        }
        // One launch of mpirun inside an allocation: its namespace distinguishes it from the next.
        for name in ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_KVSNAME", "FLUX_JOB_ID"] {
            parts.extend(get(name));
        }
    }
    if parts.is_empty() {
        return Err(Fault::request("the ranks have no name in common under which to meet").hint(
            "set HPCSWEEP_MEET to the same word for all ranks, and another one for every launch",
        ));
    }
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\0");
    }
    Ok(format!("{trial}-{}", &hasher.finalize().to_hex()[..12]))
}

/// Bytes of the longest message that is read. Senders stay far below it.
pub(crate) const LONGEST: u64 = 16 << 20;

/// Calls `with` for each message of a stream, a line of JSON each, until the stream ends, holds something else or a
/// message that is too long, or `with` returns `false`.
pub fn each_message<T: DeserializeOwned>(stream: impl Read, mut with: impl FnMut(T) -> bool) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line);
        let is_whole = read.is_ok() && line.pop_if(|last| *last == b'\n').is_some();
        let message = serde_json::from_slice(&line).ok().filter(|_| is_whole);
        if !message.is_some_and(&mut with) {
            return;
        }
    }
}

/// A rank's line to rank 0.
#[derive(Clone)]
pub(crate) struct Line {
    stream: Arc<Mutex<TcpStream>>,
}

impl Line {
    /// Sends a message; nothing happens when rank 0 is gone (the inbox reports that).
    pub(crate) fn say(&self, message: &Up) {
        let Ok(mut bytes) = serde_json::to_vec(message) else { return };
        bytes.push(b'\n');
        if let Ok(mut stream) = self.stream.lock() {
            let _ = stream.write_all(&bytes);
        }
    }
}

/// News for a rank that waits for rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// There is no news: the rank continues to wait.
    Nothing,
    /// It is to stop.
    Told,
    /// Rank 0 may be waiting too: the time up to now does not count.
    Delayed,
}

/// Joins rank 0: waits for its file, connects, says hello. The receiver yields rank 0's messages and closes
/// when rank 0 is gone. `meanwhile` is called at least four times a second.
///
/// # Errors
/// When rank 0 does not appear within the deadline, or the rank is asked to stop.
pub(crate) fn join(
    dir: &Path,
    name: &str,
    rank: u32,
    world: u32,
    seat: Seat<'_>,
    deadline: Duration,
    mut meanwhile: impl FnMut() -> Meanwhile,
) -> Result<(Line, Receiver<Down>)> {
    let file = dir.join(format!("{name}.json"));
    let mut until = Instant::now() + deadline;
    let mut nap = Duration::from_millis(5);
    let gone = |why: &str| {
        let host = seat.host;
        let sentence = format!(
            "rank {rank} on {host} found no rank 0 within {}",
            words::duration(deadline.as_secs_f64())
        );
        Fault::new(crate::base::fault::Kind::Trials, sentence)
            .at(format!("{}: {why}", file.display()))
            .hint("rank 0 may have ended before the others began: its log says why")
    };
    let mut why = "the file is not there";
    loop {
        match meanwhile() {
            Meanwhile::Nothing => {}
            Meanwhile::Told => return Err(gone("told to stop").into()),
            Meanwhile::Delayed => until = Instant::now() + deadline,
        }
        // Listing first: it makes an NFS client look again instead of remembering that there was none.
        let _ = disk::list(dir);
        if let Some(text) = disk::read_if_there(&file)?
            && let Ok(meeting) = serde_json::from_str::<Meeting>(&text)
        {
            if let Some(stream) = meeting.addrs.iter().find_map(|ip| {
                TcpStream::connect_timeout(
                    &SocketAddr::new(*ip, meeting.port),
                    Duration::from_secs(2),
                )
                .ok()
            }) {
                let reader = stream.try_clone().map_err(|e| disk::fault("read from", &file, &e))?;
                let _ = stream.set_nodelay(true);
                let line = Line { stream: Arc::new(Mutex::new(stream)) };
                let [host, node] = [seat.host, seat.node].map(str::to_owned);
                line.say(&Up::Hello { token: meeting.token, rank, world, host, node });
                let (sender, receiver) = mpsc::channel();
                threads::start("rank 0", move || {
                    each_message(reader, |said| sender.send(said).is_ok());
                })?;
                return Ok((line, receiver));
            }
            why = "none of its addresses can be reached";
        }
        if Instant::now() >= until {
            return Err(gone(why).into());
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(250));
    }
}
