//! Programs of one or several ranks that are timed in turn: they start once, and sleep on a socket while
//! it is not their turn.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program under test.
pub(crate) struct Contest {
    children: Vec<Child>,
    ranks: Vec<BufReader<UnixStream>>,
}

/// How ranks are bound to cores.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Bind {
    /// Not at all.
    Free,
    /// Each to a core of its own.
    Apart,
}

/// `mpirun -n RANKS PROGRAM`.
pub(crate) fn mpirun(ranks: usize, bind: Bind, program: &str) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "-n", &ranks.to_string()]);
    let to = if bind == Bind::Free { "none" } else { "core" };
    command.args(["--bind-to", to, program]);
    // As the worker sets it: a rank is one thread, whatever MPI has set for the libraries.
    command.env("OMP_NUM_THREADS", "1");
    // Large buffers on huge pages: with small ones, where they happen to lie is a fifth of a copy.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command
}

/// The Python program, one process a rank.
pub(crate) fn python(ranks: usize, bind: Bind, args: &[&str]) -> Vec<Command> {
    let port = free_port();
    let start = |rank: usize| {
        let mut command = Command::new(if bind == Bind::Free { "python3" } else { "taskset" });
        if bind == Bind::Apart {
            command.args(["--cpu-list", &cores()[rank].to_string(), "python3"]);
        }
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/training/peer.py")).args(args);
        let torch = std::env::var("HPCSWEEP_BENCH_TORCH").unwrap_or_default();
        command.env("PYTHONPATH", torch);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("GLOO_SOCKET_IFNAME", "lo").env("OMP_NUM_THREADS", "1");
        command
    };
    (0..ranks).map(start).collect()
}

impl Contest {
    /// Starts the commands, which get the socket's path as their last-but-some argument by `{socket}`.
    pub(crate) fn start(commands: Vec<Command>, socket: &Socket, ranks: usize) -> Self {
        let mut children = Vec::new();
        for mut command in commands {
            command.stdin(Stdio::null()).stdout(Stdio::null());
            children.push(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")));
        }
        let deadline = Instant::now() + Duration::from_secs(180);
        let mut found = Vec::new();
        while found.len() < ranks {
            match socket.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
                    found.push(BufReader::new(stream));
                }
                Err(_) => {
                    for child in &mut children {
                        let status = child.try_wait().unwrap();
                        assert!(
                            status.is_none(),
                            "a program has ended before its turn: {status:?}"
                        );
                    }
                    assert!(Instant::now() < deadline, "a program has not come up in 3 minutes");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        Self { children, ranks: found }
    }

    /// Gives all ranks an order; their answers.
    pub(crate) fn ask(&mut self, order: &str) -> Vec<Vec<f64>> {
        for rank in &mut self.ranks {
            writeln!(rank.get_mut(), "{order}").unwrap();
        }
        let answer = |rank: &mut BufReader<UnixStream>| {
            let mut line = String::new();
            rank.read_line(&mut line).unwrap();
            let numbers: Vec<f64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
            assert!(!numbers.is_empty(), "a program has ended in its turn");
            numbers
        };
        self.ranks.iter_mut().map(answer).collect()
    }

    /// The largest first number of all ranks.
    pub(crate) fn slowest(&mut self, order: &str) -> f64 {
        self.ask(order).iter().map(|rank| rank[0]).fold(0.0, f64::max)
    }
}

impl Drop for Contest {
    fn drop(&mut self) {
        self.ranks.clear();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Where programs ask for orders.
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    pub(crate) fn in_folder(folder: &std::path::Path) -> Self {
        let path = folder.join("orders");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, path }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// The cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    (0..nix::sched::CpuSet::count()).filter(|core| set.is_set(*core).unwrap()).collect()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
