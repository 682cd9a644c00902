//! Which physical GPUs a trial's program may see.

use crate::fault::Fault;
use crate::host::Vars;
use crate::plan::GpuIds;
use crate::words;

/// The devices this process was granted, as physical ids, and the variable that says so; `None` when
/// nobody said (then every id is taken as it is).
pub fn granted(vars: &Vars) -> Option<(Vec<String>, &'static str)> {
    // SLURM_JOB_GPUS has the node's own ids even where a cgroup renumbers CUDA_VISIBLE_DEVICES.
    for name in ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"] {
        if let Some(text) = vars.get(name) {
            let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
            return Some((ids.map(str::to_owned).collect(), name));
        }
    }
    None
}

/// The variable by which `submit --local`, which hands out the devices itself, tells a worker that
/// `CUDA_VISIBLE_DEVICES` is what its trial may see.
pub const CHOSEN: &str = "HPCSWEEP_DEVICES";

/// Granted devices as CUDA calls them. Where a cgroup hides the others of the node, CUDA counts those that
/// are left from 0 on: then Slurm's own `CUDA_VISIBLE_DEVICES` has other numbers for the same devices, in
/// the same order.
pub fn for_cuda(ids: &[String], vars: &Vars) -> String {
    let all = granted(vars).map(|(all, _)| all).unwrap_or_default();
    let shown = vars.get("CUDA_VISIBLE_DEVICES").map(String::as_str).unwrap_or_default();
    let shown: Vec<&str> = shown.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    let name = |id: &String| {
        let place = all.iter().position(|granted| granted == id);
        place
            .filter(|_| shown.len() == all.len())
            .map_or_else(|| id.clone(), |i| shown[i].to_owned())
    };
    ids.iter().map(name).collect::<Vec<_>>().join(",")
}

/// The value of `CUDA_VISIBLE_DEVICES` for a trial that names its devices; `None` leaves it alone.
///
/// # Errors
/// When a named device was not granted, with the trial's number.
pub fn visible(
    trial: u64,
    named: Option<&[u32]>,
    how: GpuIds,
    vars: &Vars,
) -> Result<Option<String>, Fault> {
    let Some(named) = named else { return Ok(None) };
    if let Some(chosen) = vars.get(CHOSEN) {
        return Ok(Some(chosen.clone()));
    }
    if named.is_empty() {
        return Ok(Some(String::new()));
    }
    let join = |ids: &[String]| ids.join(",");
    let wanted: Vec<String> = named.iter().map(u32::to_string).collect();
    let Some((granted, variable)) = granted(vars) else { return Ok(Some(join(&wanted))) };
    if how == GpuIds::Count {
        if granted.len() < wanted.len() {
            let sentence = format!(
                "trial {trial} asks for {}, but {} granted here",
                words::count(wanted.len() as u64, "device"),
                match granted.len() {
                    0 => "none was".to_owned(),
                    1 => "only 1 was".to_owned(),
                    n => format!("only {n} were"),
                }
            );
            return Err(Fault::request(sentence).at(format!("{variable}={}", join(&granted))));
        }
        return Ok(Some(for_cuda(&granted[..wanted.len()], vars)));
    }
    let missing: Vec<String> = wanted.iter().filter(|id| !granted.contains(id)).cloned().collect();
    if missing.is_empty() {
        return Ok(Some(for_cuda(&wanted, vars)));
    }
    let sentence = format!(
        "trial {trial} names device {} in `gpu_ids_abs`, which {} not granted here",
        missing.join(" and "),
        if missing.len() == 1 { "was" } else { "were" }
    );
    Err(Fault::request(sentence).at(format!("{variable}={}", join(&granted))).hint(
        "a scheduler chooses the devices itself: with `gpu_ids = \"count\"` under [schedule] only their number counts",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(named: &[u32], how: GpuIds, vars: &[(&str, &str)], expected: Result<&str, &str>) {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let got = visible(7, Some(named), how, &vars).map(Option::unwrap_or_default);
        let got = got.map_err(|fault| fault.sentence);
        assert_eq!(got.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn named_devices_are_intersected_with_what_was_granted() {
        let allocation = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3")];
        // A cgroup shows CUDA the four that were granted, from 0 on.
        check(&[5], GpuIds::Exact, &allocation, Ok("1"));
        let open = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "4,5,6,7")];
        check(&[7, 5], GpuIds::Exact, &open, Ok("7,5"));
        // What a task has of the job's devices says nothing of their order.
        let bound = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "0")];
        check(&[5], GpuIds::Exact, &bound, Ok("5"));
        let refusal = "trial 7 names device 2 in `gpu_ids_abs`, which was not granted here";
        check(&[2], GpuIds::Exact, &allocation, Err(refusal));
        check(&[], GpuIds::Exact, &allocation, Ok(""));
        check(&[2, 3], GpuIds::Exact, &[], Ok("2,3"));
        check(&[2, 3], GpuIds::Count, &allocation, Ok("0,1"));
        // `submit --local` has chosen already.
        check(
            &[5],
            GpuIds::Exact,
            &[("HPCSWEEP_DEVICES", "1"), ("SLURM_JOB_GPUS", "4,5")],
            Ok("1"),
        );
        check(
            &[0, 1],
            GpuIds::Count,
            &[("CUDA_VISIBLE_DEVICES", "3")],
            Err("trial 7 asks for 2 devices, but only 1 was granted here"),
        );
        check(
            &[0],
            GpuIds::Count,
            &[("CUDA_VISIBLE_DEVICES", "")],
            Err("trial 7 asks for 1 device, but none was granted here"),
        );
    }
}
