//! The connection of an MPI process to the PMIx server of its step, held until the worker ends.
//!
//! When such a connection is gone and the process did not leave MPI, Slurm takes the whole step for lost and has it
//! killed by SIGKILL, the workers too (`_errhandler` of its plugin mpi/pmix, up to 26.05 the same). With Slurm 24.11
//! and PMIx 5 that comes within milliseconds: before a worker has written down that its trainer failed, and why. So the
//! worker takes a copy of the socket (pidfd_getfd(2), Linux 5.6): the server hears of the end when the worker has
//! done its work. Where that is not allowed nothing is held, and the worker must be quicker than Slurm.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::host::Vars;

/// Holds the connection that a child of a Slurm step makes to the server of its PMIx, as soon as there is one.
pub(super) fn hold(child: &Child, env: &Vars) {
    let servers = servers(env);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(pid), false, true) = (pid, servers.is_empty(), env.contains_key("SLURM_STEP_ID"))
    else {
        return;
    };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The thread ends with the process, which is what drops the socket.
    std::thread::spawn(move || {
        if let Some(socket) = wait(process.as_fd(), pid, &servers) {
            std::mem::forget(socket);
        }
    });
}

/// Looks for the connection while the process lives. Programs connect when they begin, or never: the longer there is
/// none, the rarer a look is.
fn wait(process: BorrowedFd<'_>, pid: Pid, servers: &[SocketAddr]) -> Option<TcpStream> {
    let mut nap = Duration::from_millis(5);
    loop {
        match look(process, pid, servers) {
            Look::Found(socket) => return Some(socket),
            Look::Refused => return None,
            Look::Nothing => {
                std::thread::sleep(nap);
                nap = nap.mul_f64(1.02).min(Duration::from_secs(2));
            }
        }
    }
}

enum Look {
    Found(TcpStream),
    Nothing,
    /// The process is gone, or the kernel does not let us.
    Refused,
}

fn look(process: BorrowedFd<'_>, pid: Pid, servers: &[SocketAddr]) -> Look {
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let Ok(entries) = Path::new(&folder).read_dir() else { return Look::Refused };
    for entry in entries.flatten() {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_string_lossy().parse().ok();
        let (true, Some(number)) = (is_socket, number) else { continue };
        let copy: OwnedFd = match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Ok(copy) => copy,
            // Closed since the folder was read.
            Err(rustix::io::Errno::BADF) => continue,
            Err(_) => return Look::Refused,
        };
        let socket = TcpStream::from(copy);
        if socket.peer_addr().is_ok_and(|peer| servers.contains(&peer)) {
            return Look::Found(socket);
        }
    }
    Look::Nothing
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
    fn a_held_connection_outlives_its_process() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; exec cat", address.port());
        let mut child =
            Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let (mut end, _) = server.accept().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let held = wait(process.as_fd(), pid, &[address]).expect("found");
        child.kill().unwrap();
        child.wait().unwrap();
        end.set_nonblocking(true).unwrap();
        let error = end.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(matches!(look(process.as_fd(), pid, &[address]), Look::Refused));
        drop(held);
        end.set_nonblocking(false).unwrap();
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
    }
}
