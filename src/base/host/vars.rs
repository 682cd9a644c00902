//! A snapshot of the environment, taken once in `main` and passed down.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Environment variables by name. Names or values that are not UTF-8 are left out.
pub type Vars = BTreeMap<String, String>;

/// The environment of this process.
pub fn snapshot() -> Vars {
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect()
}

/// A path whose first part can be `~`: the home of this user, of the environment or of the system's list of users.
pub(crate) fn at_home(path: &str) -> PathBuf {
    let Some(rest) = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
    else {
        return PathBuf::from(path);
    };
    let known = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let listed = || nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??.dir.into();
    let home = known.or_else(listed).unwrap_or_else(|| PathBuf::from("/"));
    home.join(rest.trim_start_matches('/'))
}

/// The name of this host, without its domain.
pub fn hostname() -> String {
    let full = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "localhost".into());
    full.split('.').next().unwrap_or("localhost").to_owned()
}

/// The node name: Slurm's own name of it where there is one (several nodes may share a host),
/// otherwise the host name.
pub(crate) fn node_name(vars: &Vars) -> String {
    vars.get("SLURMD_NODENAME").filter(|n| !n.is_empty()).cloned().unwrap_or_else(hostname)
}

/// The data that distinguish this node from every other node of its job: host name, Slurm's node name, PBS's
/// node number. Some launchers pass the variables of the first node to all; several nodes of a scheduler may
/// share a host.
pub(crate) fn node_identity(vars: &Vars) -> String {
    let of = |name: &str| vars.get(name).cloned().unwrap_or_default();
    [hostname(), of("SLURMD_NODENAME"), of("PBS_NODENUM")].join("/")
}

/// The name of the user, as a scheduler knows it; the number if there is no name.
pub fn user_name() -> String {
    let uid = nix::unistd::getuid();
    nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// The shell that the system starts for this user at a login.
pub(crate) fn login_shell() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten()?;
    user.shell.into_os_string().into_string().ok()
}
