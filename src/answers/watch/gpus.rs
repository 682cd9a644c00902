//! What GPUs of a running trial did of late, from the samples among its metric lines.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The newest sample of a GPU; a value that it does not report is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Gpu {
    /// Percent of the last moments during which a kernel ran.
    pub(crate) utilization: Option<f64>,
    /// Bytes of memory in use.
    pub(crate) memory_used: Option<f64>,
    /// Watts.
    pub(crate) power_w: Option<f64>,
    /// Degrees Celsius.
    pub(crate) temperature_c: Option<f64>,
}

/// The GPUs of a trial by their place among them.
pub(super) type Gpus = BTreeMap<u32, Gpu>;

/// Takes metric lines into account, the oldest first. Columns are named `gpu.N.utilization` and the like.
pub(super) fn take(gpus: &mut Gpus, rows: &[Map<String, Value>]) {
    for (name, value) in rows.iter().flatten() {
        let Some((number, column)) = name.strip_prefix("gpu.").and_then(|n| n.split_once('.'))
        else {
            continue;
        };
        let (Ok(number), Some(value)) = (number.parse(), value.as_f64()) else { continue };
        let field: fn(&mut Gpu) -> &mut Option<f64> = match column {
            "utilization" => |gpu| &mut gpu.utilization,
            "memory_used" => |gpu| &mut gpu.memory_used,
            "power_w" => |gpu| &mut gpu.power_w,
            "temperature_c" => |gpu| &mut gpu.temperature_c,
            _ => continue,
        };
        *field(gpus.entry(number).or_default()) = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sample_of_each_gpu_stays() {
        let row = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let mut gpus = Gpus::new();
        take(
            &mut gpus,
            &[
                row(r#"{"loss": 1, "gpu.energy_j": 5, "gpu.note": "none", "gpu.1.power_w": 70}"#),
                row(
                    r#"{"gpu.0.utilization": 30, "gpu.0.memory_used": 1e9, "gpu.0.throttle": "none"}"#,
                ),
                row(r#"{"gpu.0.utilization": 90, "gpu.x.power_w": 1, "gpu.2.memory_total": 5}"#),
            ],
        );
        let first = Gpu { utilization: Some(90.0), memory_used: Some(1e9), ..Gpu::default() };
        let second = Gpu { power_w: Some(70.0), ..Gpu::default() };
        assert_eq!(gpus, Gpus::from([(0, first), (1, second)]));
    }
}
