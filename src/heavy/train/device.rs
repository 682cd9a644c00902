//! Where a rank computes: its threads, its memory, and its GPU or the CPU.

use anyhow::Result;
use hpcsweep::base::fault::Fault;
use hpcsweep::base::host::{Vars, gpus};
use hpcsweep::cluster::rank::visible_devices;
use hpcsweep::train::config::{self, Config};
use hpcsweep::train::job::Job;
use nix::libc;

use crate::torch::cuda;

/// The device that a rank computes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As libtorch calls it.
    pub(crate) device: tch::Device,
    /// The GPU by its UUID, where it is one.
    pub(crate) gpu: Option<String>,
}

/// Sets the number of threads: the configuration's, else the cores the rank asked for. Without this, MKL
/// under mpirun takes one thread, and every rank of a node otherwise takes all cores. Memory is kept.
pub(crate) fn threads(config: &Config, job: &Job) {
    let threads = config.threads.unwrap_or(u64::from(job.cores)).clamp(1, 4096) as i32;
    tch::set_num_threads(threads);
    tch::set_num_interop_threads(1);
    keep_memory();
}

/// Keeps the memory that tensors have left for those to come. Without this, glibc gives it back to the
/// system, and each step faults it in again, page by page: a fifth of the step of a small network.
#[expect(unsafe_code, reason = "settings of the C library's allocator")]
pub(crate) fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers of malloc, which may be done at any time.
    unsafe {
        // Before version 2.35 it took no more than half a heap, 32 MiB, and left it at 128 KiB.
        if libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30) == 1
            || libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20) == 1
        {
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        }
    }
}

/// Chooses the device of this rank and makes libtorch ready for it. Must come before the first tensor.
///
/// # Errors
/// When a GPU is asked for and none can be used.
pub(crate) fn choose(job: &Job, vars: &Vars) -> Result<Place> {
    let wanted = match job.config.device {
        config::Device::Cpu => false,
        config::Device::Gpu => true,
        config::Device::Auto => job.gpus > 0,
    };
    if !wanted {
        return Ok(Place { device: tch::Device::Cpu, gpu: None });
    }
    let blind =
        |why: &str| format!("rank {} on `{}` is to use a GPU, but {why}", job.rank, job.host);
    cuda::load().map_err(|why| {
        Fault::machine(blind(&format!("libtorch's CUDA part cannot be loaded: {why}")))
            .hint("`hpcsweep doctor` shows what is installed; `device = \"cpu\"` trains without")
    })?;
    cuda::choose_deterministic()?;
    let visible = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    if !tch::Cuda::is_available() || visible == 0 {
        let visible_words = match visible_devices(vars) {
            Some(list) if list.is_empty() => "CUDA_VISIBLE_DEVICES hides all of them".to_owned(),
            Some(list) => format!("CUDA_VISIBLE_DEVICES is `{}`", list.join(",")),
            None => match gpus::list(vars) {
                Ok(all) => format!("NVML sees {}", all.len()),
                Err(why) => why.to_string(),
            },
        };
        return Err(Fault::machine(blind(&format!("libtorch sees none: {visible_words}")))
            .hint("`hpcsweep doctor` shows driver and devices; `device = \"cpu\"` trains without")
            .into());
    }
    let index = index(job.local_rank, visible);
    let gpu = Some(uuid(index, vars).unwrap_or_else(|| format!("{index}")));
    Ok(Place { device: tch::Device::Cuda(index), gpu })
}

/// One visible device is ours, whatever the local rank: the launcher has narrowed the list. Otherwise
/// local ranks take turns.
fn index(local_rank: u32, visible: usize) -> usize {
    local_rank as usize % visible
}

/// The UUID of a visible device, which two ranks of a host can compare whatever each may see.
fn uuid(index: usize, vars: &Vars) -> Option<String> {
    let gpus = gpus::list(vars).unwrap_or_default();
    let Some(visible) = visible_devices(vars) else {
        return gpus.get(index).map(|gpu| gpu.uuid.clone());
    };
    let entry = *visible.get(index)?;
    let gpu = match entry.parse::<u32>() {
        Ok(number) => gpus.iter().find(|gpu| gpu.index == number),
        Err(_) => gpus.iter().find(|gpu| gpu.uuid.starts_with(entry)),
    };
    Some(gpu.map_or_else(|| entry.to_owned(), |gpu| gpu.uuid.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_visible_gpu_is_ours_and_several_are_taken_in_turn() {
        assert_eq!((0..3).map(|r| index(r, 1)).collect::<Vec<_>>(), [0, 0, 0]);
        assert_eq!((0..3).map(|r| index(r, 2)).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn a_gpu_is_known_by_what_the_launcher_calls_it_where_nvml_knows_none() {
        let vars = Vars::from([("CUDA_VISIBLE_DEVICES".into(), "MIG-a,GPU-zz".into())]);
        assert_eq!(uuid(1, &vars).as_deref(), Some("GPU-zz"));
        assert_eq!(uuid(2, &vars), None);
    }
}
