//! The connections of an MPI process, held until its worker ends.
//!
//! When the connection to the PMIx server of a step is gone and the process did not leave MPI, Slurm considers the
//! whole step lost and kills it with SIGKILL, including the workers (`_errhandler` of its plugin mpi/pmix, from 22.05
//! to 24.11). When the connections to the other ranks are gone, Open MPI 5 calls PMIx_Abort in those ranks, which does
//! the same. With Slurm 24.11 that takes milliseconds: less than a worker needs to record that its trainer failed, and
//! why. So the worker takes copies of the sockets (pidfd_getfd(2), Linux 5.6): the others notice the end when the
//! worker has done its work. Where that is not allowed nothing is held, and the worker must be quicker than Slurm.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::base::host::{Vars, threads};

/// Holds the connections of a child of a Slurm step: with `all` every one, as of a program whose connections are MPI's
/// alone, otherwise only that to the server of its PMIx.
pub(crate) fn hold(child: &Child, env: &Vars, all: bool) {
    let servers = servers(env);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(pid), false, true) = (pid, servers.is_empty(), env.contains_key("SLURM_STEP_ID"))
    else {
        return;
    };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // Without a thread nothing is held.
    let _ = threads::start("lifeline", move || {
        let is_held = |peer: &SocketAddr| all || servers.contains(peer);
        let mut held = HashMap::new();
        // Programs connect when they begin: the longer one runs, the rarer a look is.
        let mut nap = Duration::from_millis(5);
        while look(process.as_fd(), pid, &is_held, &mut held) {
            std::thread::sleep(nap);
            nap = nap.mul_f64(1.02).min(Duration::from_secs(2));
        }
        // The end of this thread would close them.
        std::mem::forget(held);
    });
}

/// Takes copies of what is new, and drops those of what the process has closed itself. `false` when it is gone, or the
/// kernel does not let us.
fn look(
    process: BorrowedFd<'_>,
    pid: Pid,
    is_held: &impl Fn(&SocketAddr) -> bool,
    held: &mut HashMap<OsString, Option<TcpStream>>,
) -> bool {
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let Ok(entries) = Path::new(&folder).read_dir() else { return false };
    let mut open = HashMap::new();
    for entry in entries.flatten() {
        let number = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let target = std::fs::read_link(entry.path()).map(|path| path.into_os_string());
        if let (Some(number), Ok(target)) = (number, target)
            && target.to_string_lossy().starts_with("socket:")
        {
            open.insert(target, number);
        }
    }
    // A process that ends lists no sockets any more: a missing one was not closed by the process itself.
    let has_files = || Path::new(&folder).read_dir().is_ok_and(|mut all| all.next().is_some());
    if held.keys().any(|inode| !open.contains_key(inode)) && !has_files() {
        return false;
    }
    held.retain(|inode, _| open.contains_key(inode));
    for (inode, number) in open {
        if held.get(&inode).is_some_and(Option::is_some) {
            continue;
        }
        match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Ok(copy) => {
                let socket = TcpStream::from(copy);
                let is_wanted = socket.peer_addr().is_ok_and(|peer| is_held(&peer));
                held.insert(inode, is_wanted.then_some(socket));
            }
            // Closed since the folder was read.
            Err(rustix::io::Errno::BADF) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Where the server listens: `PMIX_SERVER_URI41=slurm.pmix.7.0.0;tcp4://127.0.0.1:41753`, under several names.
fn servers(env: &Vars) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = env
        .iter()
        .filter(|(name, _)| name.starts_with("PMIX_SERVER_URI"))
        .filter_map(|(_, uri)| uri.split_once("://")?.1.split(';').next()?.parse().ok())
        .collect();
    servers.sort_unstable();
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vars {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_server_is_where_its_uri_says() {
        let uri = "slurm.pmix.7.0.0;tcp4://127.0.0.1:41753";
        let two = env(&[("PMIX_SERVER_URI41", uri), ("PMIX_SERVER_URI3", uri), ("PMIX_RANK", "0")]);
        assert_eq!(servers(&two), ["127.0.0.1:41753".parse().unwrap()]);
        assert_eq!(servers(&env(&[("PMIX_SERVER_URI2", "x;tcp4://host:1")])), []);
        assert_eq!(servers(&env(&[("PMIX_SERVER_URI2", "garbage")])), []);
    }

    /// A process that is killed while it is connected: the server sees no end before the copy is dropped.
    #[test]
    fn a_held_connection_outlives_its_process_and_no_other_does() {
        let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [own, other] = servers.each_ref().map(|server| server.local_addr().unwrap());
        let open = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{} 4<>/dev/tcp/127.0.0.1/{}; exec cat",
            own.port(),
            other.port()
        );
        let mut child =
            Command::new("bash").args(["-c", &open]).stdin(Stdio::piped()).spawn().unwrap();
        let [mut held_end, mut other_end] = servers.each_ref().map(|s| s.accept().unwrap().0);
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let mut held = HashMap::new();
        let is_held = |peer: &SocketAddr| *peer == own;
        assert!(look(process.as_fd(), pid, &is_held, &mut held));
        assert_eq!(held.values().flatten().count(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(other_end.read(&mut [0]).unwrap(), 0);
        held_end.set_nonblocking(true).unwrap();
        let error = held_end.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(!look(process.as_fd(), pid, &is_held, &mut held));
        drop(held);
        held_end.set_nonblocking(false).unwrap();
        assert_eq!(held_end.read(&mut [0]).unwrap(), 0);
    }
}
