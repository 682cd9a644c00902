//! GPUs in a world: a file in place of NVML.

use crate::support::world::World;

pub(crate) fn with(devices: &str) -> World {
    let mut world = World::new();
    world.write("nvml.json", devices);
    world.set("HPCSWEEP_NVML_FILE", &world.text_path("nvml.json"));
    world
}

/// Idle GPUs, all the same.
pub(crate) fn idle(count: u32) -> World {
    with(&idle_devices(count))
}

/// NVML's answers about them.
pub(crate) fn idle_devices(count: u32) -> String {
    let device = |n| {
        format!(
            r#"{{"index": {n}, "uuid": "GPU-{n}", "name": "NVIDIA T4", "memory_total": 1073741824,
                "memory_used": 0, "utilization": 0, "processes": []}}"#
        )
    };
    let all: Vec<String> = (0..count).map(device).collect();
    format!(r#"{{"devices": [{}]}}"#, all.join(","))
}
