//! The GPUs of this host, through NVML (loaded at run time; a host without it has none).

/// One device as NVML sees it.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Gpu {
    /// Physical index on this host.
    pub index: u32,
    /// NVML's unique id.
    pub uuid: String,
    /// Marketing name.
    pub name: String,
    /// Total memory in bytes.
    pub memory: u64,
}

/// All devices of this host.
///
/// # Errors
/// NVML's own words when its library or the driver is missing.
pub fn list() -> Result<Vec<Gpu>, String> {
    let nvml = nvml_wrapper::Nvml::init().map_err(|e| match e {
        nvml_wrapper::error::NvmlError::LibloadingError(_) => {
            "NVIDIA's NVML library is not installed".to_owned()
        }
        other => format!("NVML: {other}"),
    })?;
    let count = nvml.device_count().map_err(|e| e.to_string())?;
    (0..count)
        .map(|index| {
            let device = nvml.device_by_index(index).map_err(|e| e.to_string())?;
            Ok(Gpu {
                index,
                uuid: device.uuid().unwrap_or_default(),
                name: device.name().unwrap_or_default(),
                memory: device.memory_info().map_or(0, |m| m.total),
            })
        })
        .collect()
}
