//! How rank 0 gathers the other ranks of its trial.
//!
//! Every host on the network can connect to rank 0's port, so a connection is not trusted until its first line has
//! carried the token of this launch. Rank 0 polls all connections at once. Each may send 4 KiB and has ten seconds for
//! them, so that strangers neither delay the ranks nor take memory.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::base::cause::Cause;
use crate::base::fault::{Fault, Kind};
use crate::base::host::{clock, disk, threads};
use crate::base::words;
use crate::run::worker::ranks::addresses;
use crate::run::worker::ranks::peers::{self, Down, FromRank, Meeting, Seat, Up};

/// The most bytes of a rank's first line.
const HELLO_BYTES: usize = 4096;

/// How long a connection may take for its first line.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// The most connections that have not identified themselves; the oldest gives way to a new one.
const MOST_UNIDENTIFIED: usize = 256;

/// How many messages wait until they are read; ranks that send more wait themselves.
const UNHEARD: usize = 256;

/// How often rank 0 looks whether it has been asked to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Rank 0's side: everyone's connection.
pub(crate) struct Crew {
    file: PathBuf,
    streams: BTreeMap<u32, TcpStream>,
    /// The messages of the ranks.
    pub(crate) inbox: Receiver<FromRank>,
    /// The host of each rank that has joined, rank 0 included.
    pub(crate) hosts: BTreeMap<u32, String>,
    /// The data that distinguish nodes, by rank.
    nodes: BTreeMap<u32, String>,
    /// An address of this process that another host's rank has reached.
    pub(crate) addr: IpAddr,
}

impl Drop for Crew {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Crew {
    /// Waits for ranks `1..world`. `stop` is asked some fifty times a second whether to give up.
    ///
    /// # Errors
    /// When rank 0 cannot listen, is asked to stop, or misses a rank at the deadline. The fault names the missing ranks
    /// and the connections that were closed, with the reason.
    pub(crate) fn gather(
        dir: &Path,
        name: &str,
        world: u32,
        seat: Seat<'_>,
        deadline: Duration,
        mut stop: impl FnMut() -> bool,
    ) -> Result<Self> {
        let fail =
            |e: std::io::Error| Fault::machine(format!("cannot listen: {}", disk::reason(&e)));
        let listener = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)));
        let listener = listener.map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let token = clock::secret().map_err(fail)?;
        let mut unidentified = Unidentified::new(&token);
        disk::make_dir(dir)?;
        let file = dir.join(format!("{name}.json"));
        let meeting = Meeting { token, port, addrs: addresses::own() };
        disk::write_private(&file, &crate::sweep::tree::to_json_line(&meeting)?)?;

        let (sender, inbox) = mpsc::sync_channel(UNHEARD);
        let mut crew = Self {
            file,
            streams: BTreeMap::new(),
            inbox,
            hosts: BTreeMap::from([(0, seat.host.to_owned())]),
            nodes: BTreeMap::from([(0, seat.node.to_owned())]),
            addr: IpAddr::from([127, 0, 0, 1]),
        };
        let until = Instant::now() + deadline;
        while crew.streams.len() + 1 < world as usize {
            if stop() {
                let fault = Fault::new(Kind::Trials, "told to stop while ranks gathered");
                return Err(unidentified.account_for(fault).into());
            }
            if Instant::now() >= until {
                return Err(unidentified.account_for(crew.missing(world, deadline)).into());
            }
            unidentified.wait(&listener);
            unidentified.open(&listener);
            for hello in unidentified.hear() {
                if let Err(why) = crew.admit(hello, world, &sender) {
                    unidentified.refused.push(why);
                }
            }
        }
        Ok(crew)
    }

    fn missing(&self, world: u32, deadline: Duration) -> Fault {
        let missing: Vec<String> =
            (1..world).filter(|r| !self.streams.contains_key(r)).map(|r| r.to_string()).collect();
        let here: Vec<String> =
            self.hosts.iter().map(|(r, h)| format!("rank {r} on {h}")).collect();
        let who = match missing.as_slice() {
            [one] => format!("rank {one}"),
            several => format!("ranks {}", several.join(", ")),
        };
        let patience = words::duration(deadline.as_secs_f64());
        Fault::new(Kind::Trials, format!("{who} did not arrive within {patience}"))
            .because(Cause::Rendezvous)
            .at(format!("here: {}", here.join(", ")))
            .hint(
                "look for the missing hosts in the job's own log; can their nodes reach this one?",
            )
    }

    /// Takes in a rank that has proved to be of this launch, or reports why it cannot be one of them. A process that
    /// contradicts known facts only loses its connection: it may be a stranger who has seen the token.
    fn admit(
        &mut self,
        hello: Hello,
        world: u32,
        sender: &SyncSender<FromRank>,
    ) -> Result<(), String> {
        let Hello { mut stream, rest, rank, world: seen, host, node } = hello;
        let contradiction = if seen != world {
            Some(format!("rank {rank} on {host} sees {seen} ranks, rank 0 sees {world}"))
        } else if rank == 0 || rank >= world {
            Some(format!("a process on {host} says it is rank {rank} of {world}"))
        } else {
            let other = self.hosts.get(&rank);
            other.map(|other| format!("two processes say they are rank {rank}: {other} and {host}"))
        };
        if let Some(reason) = contradiction {
            let _ = stream.write_all(&line_of(&Down::Refused { reason: reason.clone() }));
            return Err(reason);
        }
        let lost = |_| format!("rank {rank} on {host} has hung up");
        stream.set_nonblocking(false).map_err(lost)?;
        let copy = stream.try_clone().map_err(lost)?;
        let _ = stream.set_nodelay(true);
        if let Ok(local) = stream.local_addr()
            && self.addr.is_loopback()
        {
            self.addr = local.ip().to_canonical();
        }
        let sender = sender.clone();
        let reader = threads::start("rank", move || {
            let say = |said| sender.send(FromRank { rank, said, at: Instant::now() }).is_ok();
            peers::each_message(Cursor::new(rest).chain(copy), |said| say(Some(said)));
            say(None);
        });
        if let Err(fault) = reader {
            let reason = fault.sentence;
            let _ = stream.write_all(&line_of(&Down::Refused { reason: reason.clone() }));
            return Err(format!("rank {rank} on {host} cannot be read from: {reason}"));
        }
        self.hosts.insert(rank, host);
        self.nodes.insert(rank, node);
        self.streams.insert(rank, stream);
        Ok(())
    }

    /// The node of a rank.
    pub(crate) fn node_of(&self, rank: u32) -> &str {
        self.nodes.get(&rank).map_or("", String::as_str)
    }

    /// The hosts in the order of their lowest ranks, each with how many ranks it has.
    pub(crate) fn ranks_by_host(&self) -> Vec<(String, u32)> {
        let mut all: Vec<(String, u32)> = Vec::new();
        for host in self.hosts.values() {
            match all.iter_mut().find(|(known, _)| known == host) {
                Some((_, ranks)) => *ranks += 1,
                None => all.push((host.clone(), 1)),
            }
        }
        all
    }

    /// The nodes in the order of their lowest ranks: the host of each, and how many ranks it has.
    pub(crate) fn ranks_by_node(&self) -> Vec<(String, u32)> {
        let mut all: Vec<(&String, String, u32)> = Vec::new();
        for (rank, node) in &self.nodes {
            match all.iter_mut().find(|(known, ..)| *known == node) {
                Some((.., ranks)) => *ranks += 1,
                None => all.push((node, self.hosts[rank].clone(), 1)),
            }
        }
        all.into_iter().map(|(_, host, ranks)| (host, ranks)).collect()
    }

    /// Sends a message to every other rank that is still connected.
    pub(crate) fn tell(&mut self, message: &Down) {
        let bytes = line_of(message);
        for stream in self.streams.values_mut() {
            // A rank that is gone is noticed by its reader.
            let _ = stream.write_all(&bytes);
        }
    }
}

fn line_of(message: &Down) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// A rank that has named itself with the token of this launch.
struct Hello {
    stream: TcpStream,
    /// What came behind its first line.
    rest: Vec<u8>,
    rank: u32,
    world: u32,
    host: String,
    node: String,
}

/// A connection that has not identified itself yet.
struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    heard: Vec<u8>,
    until: Instant,
}

/// What became of the bytes of a connection.
enum Identity {
    /// No whole line yet: more may come.
    Waiting,
    /// It is a rank of this launch.
    Hello { rest: Vec<u8>, rank: u32, world: u32, host: String, node: String },
    /// It is no rank of this launch, or its connection has ended.
    Nonsense,
}

/// Where connections wait until they have named themselves.
struct Unidentified {
    /// The hash of the token: hashes are compared in constant time.
    token: blake3::Hash,
    connections: Vec<Connection>,
    /// How many connections of each address were closed because they did not name themselves.
    closed: BTreeMap<IpAddr, u32>,
    /// Why ranks with the right token were refused.
    refused: Vec<String>,
}

impl Unidentified {
    fn new(token: &str) -> Self {
        Self {
            token: blake3::hash(token.as_bytes()),
            connections: Vec::new(),
            closed: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Sleeps until a connection or a message arrives, at most [`LOOK`].
    fn wait(&self, listener: &TcpListener) {
        let connections = self.connections.iter().map(|connection| connection.stream.as_fd());
        let all = std::iter::once(listener.as_fd()).chain(connections);
        let mut all: Vec<PollFd> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let limit = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
        if poll(&mut all, limit).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Accepts the connections that wait.
    fn open(&mut self, listener: &TcpListener) {
        // Bounded, so that a flood of connections does not keep rank 0 from reading those it has.
        for _ in 0..MOST_UNIDENTIFIED {
            let Ok((stream, from)) = listener.accept() else { return };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() == MOST_UNIDENTIFIED {
                let oldest = self.connections.remove(0);
                self.close(oldest.from);
            }
            let until = Instant::now() + HELLO_TIME;
            self.connections.push(Connection { stream, from, heard: Vec::new(), until });
        }
    }

    /// Reads what the connections have sent, and returns those that are ranks of this launch.
    fn hear(&mut self) -> Vec<Hello> {
        let mut hellos = Vec::new();
        for mut connection in std::mem::take(&mut self.connections) {
            match connection.hear(&self.token) {
                Identity::Waiting if Instant::now() < connection.until => {
                    self.connections.push(connection)
                }
                Identity::Waiting | Identity::Nonsense => self.close(connection.from),
                Identity::Hello { rest, rank, world, host, node } => {
                    hellos.push(Hello { stream: connection.stream, rest, rank, world, host, node });
                }
            }
        }
        hellos
    }

    fn close(&mut self, from: SocketAddr) {
        *self.closed.entry(from.ip().to_canonical()).or_default() += 1;
    }

    /// Adds to a fault what was closed and refused before they were identified.
    fn account_for(&self, fault: Fault) -> Fault {
        let mut places: Vec<String> = fault.place.clone().into_iter().collect();
        places.extend(self.refused.iter().map(|why| format!("refused: {why}")));
        if !self.closed.is_empty() {
            let from: Vec<String> =
                self.closed.iter().map(|(ip, n)| format!("{n} from {ip}")).collect();
            let number = self.closed.values().map(|n| u64::from(*n)).sum();
            let connections = words::count(number, "connection");
            places.push(format!(
                "closed {connections} that did not say which rank they are: {}",
                from.join(", ")
            ));
        }
        if places.is_empty() { fault } else { fault.at(places.join("\n")) }
    }
}

impl Connection {
    fn hear(&mut self, token: &blake3::Hash) -> Identity {
        let mut bytes = [0; HELLO_BYTES];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Identity::Nonsense,
                Ok(n) => self.heard.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Identity::Waiting,
                Err(_) => return Identity::Nonsense,
            }
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                return said(&self.heard[..end], &self.heard[end + 1..], token);
            }
            if self.heard.len() >= HELLO_BYTES {
                return Identity::Nonsense;
            }
        }
    }
}

/// The content of a first line.
fn said(line: &[u8], rest: &[u8], token: &blake3::Hash) -> Identity {
    match serde_json::from_slice(line) {
        Ok(Up::Hello { token: theirs, rank, world, host, node })
            if blake3::hash(theirs.as_bytes()) == *token =>
        {
            Identity::Hello { rest: rest.to_vec(), rank, world, host, node }
        }
        _ => Identity::Nonsense,
    }
}

#[cfg(test)]
mod tests;
