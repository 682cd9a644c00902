//! NVML itself. Every question is asked by itself: an old driver or a MIG device answers some and not
//! others.

use std::collections::HashMap;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode as Mode, EccCounter, MemoryError, Sampling, TemperatureSensor,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use super::{ComputeMode, Device, Machine, Missing, Sample, Source};

/// NVIDIA's library, which was loaded at run time and initialised.
pub(super) struct Library {
    nvml: Nvml,
    /// The time of the newest utilization that was taken from the driver, by device.
    seen: HashMap<String, u64>,
}

impl Library {
    /// Loads and starts it.
    ///
    /// # Errors
    /// When there is no library or no driver.
    pub(super) fn open() -> Result<Self, Missing> {
        let nvml = Nvml::init().map_err(|error| missing(&error))?;
        Ok(Self { nvml, seen: HashMap::new() })
    }
}

fn missing(error: &NvmlError) -> Missing {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Missing::Library,
        NvmlError::DriverNotLoaded => Missing::Driver,
        NvmlError::LibRmVersionMismatch => Missing::Mismatch,
        other => Missing::Other(other.to_string()),
    }
}

impl Source for Library {
    fn machine(&mut self) -> Result<Machine, Missing> {
        let nvml = &self.nvml;
        let count = nvml.device_count().map_err(|error| missing(&error))?;
        let mut devices = Vec::new();
        for index in 0..count {
            match nvml.device_by_index(index) {
                Ok(gpu) => {
                    let own = look(index, None, &gpu);
                    let parts = if own.mig_enabled { parts(&own, &gpu) } else { Vec::new() };
                    devices.push(own);
                    devices.extend(parts);
                }
                // Counted, but shut off from this process: another job's.
                Err(NvmlError::NoPermission | NvmlError::OperatingSystem) => {}
                Err(error) => devices.push(Device {
                    index,
                    trouble: Some(error.to_string()),
                    ..Device::default()
                }),
            }
        }
        let cuda = nvml.sys_cuda_driver_version().ok().map(|version| {
            format!("{}.{}", cuda_driver_version_major(version), cuda_driver_version_minor(version))
        });
        Ok(Machine { driver: nvml.sys_driver_version().ok(), cuda, devices })
    }

    fn sample(&mut self, uuid: &str) -> Sample {
        let Ok(device) = self.nvml.device_by_uuid(uuid) else { return Sample::default() };
        let memory = device.memory_info().ok();
        let seen = self.seen.entry(uuid.to_owned()).or_default();
        Sample {
            busiest: busiest(&device, seen),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory_used: memory.as_ref().map(|memory| memory.used),
            memory_total: memory.as_ref().map(|memory| memory.total),
            // NVML counts in milliwatts and millijoules.
            power_w: device.power_usage().ok().map(|milli| f64::from(milli) / 1e3),
            energy_j: device.total_energy_consumption().ok().map(|milli| milli as f64 / 1e3),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            throttle: device.current_throttle_reasons().ok().map(words),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        }
    }
}

/// The most of the utilizations that the driver has measured since `seen`.
fn busiest(device: &nvml_wrapper::Device<'_>, seen: &mut u64) -> Option<u32> {
    let samples = device.samples(Sampling::GpuUtilization, *seen).ok()?;
    *seen = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(*seen);
    let percent = |sample: nvml_wrapper::struct_wrappers::device::Sample| match sample.value {
        SampleValue::U32(percent) => Some(percent),
        _ => None,
    };
    samples.into_iter().filter_map(percent).max()
}

fn look(index: u32, parent: Option<&Device>, device: &nvml_wrapper::Device<'_>) -> Device {
    let memory = device.memory_info().ok();
    let uuid = device.uuid();
    Device {
        index,
        trouble: uuid.as_ref().err().map(ToString::to_string),
        uuid: uuid.unwrap_or_default(),
        name: device.name().unwrap_or_default(),
        parent: parent.map(|gpu| gpu.uuid.clone()),
        mig_enabled: parent.is_none() && device.mig_mode().is_ok_and(|mode| mode.current == 1),
        memory_total: memory.as_ref().map(|memory| memory.total),
        memory_used: memory.as_ref().map(|memory| memory.used),
        utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
        processes: device
            .running_compute_processes()
            .ok()
            .map(|all| all.into_iter().map(|process| process.pid).collect()),
        compute_mode: device.compute_mode().ok().map(|mode| match mode {
            Mode::Default => ComputeMode::Shared,
            Mode::ExclusiveThread | Mode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
            Mode::Prohibited => ComputeMode::Prohibited,
        }),
        ecc_errors: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        throttle: device.current_throttle_reasons().ok().map(words).unwrap_or_default(),
    }
}

/// The MIG devices of a GPU: the library has a place for the most there can be, and some are empty.
fn parts(own: &Device, gpu: &nvml_wrapper::Device<'_>) -> Vec<Device> {
    let places = gpu.mig_device_count().unwrap_or(0);
    (0..places)
        .filter_map(|place| gpu.mig_device_by_index(place).ok())
        .map(|part| Device {
            // A part has no mode of its own.
            compute_mode: own.compute_mode,
            ..look(own.index, Some(own), &part)
        })
        .collect()
}

fn words(reasons: ThrottleReasons) -> Vec<String> {
    [
        (ThrottleReasons::SW_POWER_CAP, "power cap"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware thermal slowdown"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync boost"),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "application clocks"),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clocks"),
    ]
    .into_iter()
    .filter(|(flag, _)| reasons.contains(*flag))
    .map(|(_, word)| word.to_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_no_reason_and_several_reasons_are_several_words() {
        assert_eq!(words(ThrottleReasons::GPU_IDLE), Vec::<String>::new());
        let both = ThrottleReasons::HW_SLOWDOWN
            | ThrottleReasons::HW_THERMAL_SLOWDOWN
            | ThrottleReasons::GPU_IDLE;
        assert_eq!(words(both), ["hardware slowdown", "hardware thermal slowdown"]);
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        assert_eq!(missing(&NvmlError::DriverNotLoaded), Missing::Driver);
        assert_eq!(missing(&NvmlError::LibRmVersionMismatch), Missing::Mismatch);
        assert_eq!(
            missing(&NvmlError::Timeout),
            Missing::Other("the provided timeout was reached".into())
        );
    }
}
