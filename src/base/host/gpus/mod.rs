//! The GPUs of this host: which exist, how busy each is, and which process has taken which.
//!
//! They are queried through NVML, which is loaded at run time; a host without it has none. The file named by
//! `HPCSWEEP_NVML_FILE` takes its place, for tests without a GPU.

pub(crate) mod file;
pub(crate) mod holds;
mod id;
mod nvml;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Vars;
pub(crate) use id::DeviceId;

/// The variable that names a file to be read instead of asking NVML.
pub(crate) const FILE_VARIABLE: &str = "HPCSWEEP_NVML_FILE";

/// Which processes may open contexts on a device (`nvmlComputeMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    ExclusiveProcess,
    /// No process at all.
    Prohibited,
}

/// One device: a GPU, or a MIG device, a part of one. A value that it does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// NVML's index of the GPU on this host; of a MIG device, that of the GPU it is a part of.
    pub index: u32,
    /// `GPU-...` or `MIG-...`; empty when the device cannot be asked.
    pub uuid: String,
    /// The product's name, `NVIDIA A100-SXM4-40GB`; empty if NVML does not tell it.
    pub(crate) name: String,
    /// Of a MIG device: the UUID of its GPU.
    pub(crate) parent: Option<String>,
    /// Whether this GPU is divided into MIG devices.
    pub(crate) mig_enabled: bool,
    /// Bytes of memory that it has in all.
    pub(crate) memory_total: Option<u64>,
    /// Bytes of memory in use.
    pub(crate) memory_used: Option<u64>,
    /// Percent of the last moments during which a kernel ran. MIG devices do not report it.
    pub(crate) utilization: Option<u32>,
    /// The processes that compute on it.
    pub(crate) processes: Option<Vec<u32>>,
    /// Which processes may use it.
    pub(crate) compute_mode: Option<ComputeMode>,
    /// Memory errors that ECC could not correct since the driver was loaded.
    pub(crate) ecc_errors: Option<u64>,
    /// Why its clocks are reduced, in words; idleness does not count.
    pub(crate) throttle: Vec<String>,
    /// Why it cannot be asked: it fell off the bus, say.
    pub(crate) trouble: Option<String>,
}

/// The devices of this host and the driver they run with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Version of the driver.
    pub(crate) driver: Option<String>,
    /// The newest CUDA that the driver runs.
    pub(crate) cuda: Option<String>,
    /// GPUs by index, each followed by its MIG devices.
    pub(crate) devices: Vec<Device>,
}

/// The values of a device at one moment; a value that it does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    /// Percent of the last moments during which a kernel ran.
    pub(crate) utilization: Option<u32>,
    /// The most of the moments since the last sample, of those that the driver keeps.
    pub(crate) busiest: Option<u32>,
    /// Bytes of memory in use.
    pub(crate) memory_used: Option<u64>,
    /// Bytes of memory that it has in all.
    pub(crate) memory_total: Option<u64>,
    /// Watts.
    pub(crate) power_w: Option<f64>,
    /// Joules since the driver was loaded.
    pub(crate) energy_j: Option<f64>,
    /// Degrees Celsius of the chip.
    pub(crate) temperature_c: Option<u32>,
    /// Why the clocks are reduced, in words; idleness does not count.
    pub(crate) throttle: Option<Vec<String>>,
    /// Clock of the multiprocessors, MHz.
    pub(crate) sm_clock_mhz: Option<u32>,
}

/// Why GPUs cannot be queried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// No NVML library on this host.
    Library,
    /// The library is here, the kernel's driver is not loaded.
    Driver,
    /// The library is of another version than the loaded driver.
    Mismatch,
    /// Another error, in NVML's own words.
    Other(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("NVIDIA's NVML library is not installed"),
            Self::Driver => f.write_str("NVIDIA's driver is not loaded"),
            Self::Mismatch => {
                f.write_str("NVIDIA's driver and its libraries are of different versions")
            }
            Self::Other(words) => write!(f, "NVML: {words}"),
        }
    }
}

/// A source of information about this host's GPUs.
pub(crate) trait Source: Send {
    /// What there is now.
    ///
    /// # Errors
    /// When nothing can be queried any more; an error of one device is in the device's data.
    fn machine(&mut self) -> Result<Machine, Missing>;

    /// How a device of this UUID is now; nothing is known of one that cannot be asked.
    fn sample(&mut self, uuid: &str) -> Sample;
}

/// NVML, or the file in its place.
///
/// # Errors
/// When there is neither.
pub(crate) fn open(vars: &Vars) -> Result<Box<dyn Source>, Missing> {
    match vars.get(FILE_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(Box::new(file::File::open(Path::new(path))?)),
        None => Ok(Box::new(nvml::Library::open()?)),
    }
}

/// What there is now.
///
/// # Errors
/// When there is no source.
pub(crate) fn machine(vars: &Vars) -> Result<Machine, Missing> {
    open(vars)?.machine()
}

/// The GPUs of this host; parts of them are left out.
///
/// # Errors
/// When there is no source.
pub fn list(vars: &Vars) -> Result<Vec<Device>, Missing> {
    let mut devices = machine(vars)?.devices;
    devices.retain(|device| device.parent.is_none());
    Ok(devices)
}

/// Whether there could be a source, without loading a library: one look at the kernel's files.
pub(crate) fn perhaps(vars: &Vars) -> bool {
    // The last is where Linux under Windows has its GPU.
    let kernel = ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"];
    vars.contains_key(FILE_VARIABLE) || kernel.iter().any(|path| Path::new(path).exists())
}
