//! The command of a pilot: an agent that may end before the sweep does.

use std::path::Path;

use anyhow::Result;

use crate::base::host::{access, disk};
use crate::plan::Resources;
use crate::plan::site::Site;
use crate::sweep::tree::waves::Pilot;

/// The argument vector of an agent that is a pilot of the sweep in `dir`.
pub(crate) fn argv(
    dir: &Path,
    request: &Resources,
    pilot: Pilot,
    site: &Site,
) -> Result<Vec<String>> {
    let mut argv = vec![
        disk::own_executable()?.to_string_lossy().into_owned(),
        "worker".to_owned(),
        "--pull".to_owned(),
        dir.to_string_lossy().into_owned(),
        "--may-go".to_owned(),
    ];
    argv.extend(access::shared_option());
    // Not every scheduler tells a job when it ends.
    if let Some(seconds) = request.walltime_s.or(site.caps.max_walltime_s) {
        argv.extend(["--time-left".to_owned(), format!("{seconds}s")]);
    }
    if let Some(slots) = pilot.slots {
        argv.extend(["--slots".to_owned(), slots.to_string()]);
    }
    Ok(argv)
}
