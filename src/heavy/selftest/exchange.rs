//! Exchanges of bytes, and sums, whatever one call of MPI can carry.

#![expect(unsafe_code, reason = "sums are made where the numbers lie")]

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;

use super::{Seen, common};
use crate::mpi::{World, library};

pub(super) fn run(world: &mut World) -> Result<Seen, Fault> {
    let mut results = vec![
        ("library", library().lines().next().unwrap_or_default().to_owned()),
        ("threads", world.thread_level().to_owned()),
    ];
    let usual = all(world)?;
    // Seven bytes a call: every exchange needs several.
    world.limit(7);
    let cut = all(world)?;
    results.push(("cut", common(world, if cut == usual { "the same" } else { "others" })?));
    results.push(("exchanged", common(world, &usual)?));
    Ok(results)
}

/// One exchange of each kind, in words.
fn all(world: &mut World) -> Result<String, Fault> {
    let (rank, size) = (world.rank() as u8, world.size() as usize);
    let mut gathered = vec![0; 3 * size];
    world.all_gather(&[rank, 10 + rank, 20 + rank], &mut gathered)?;

    // Rank r has 5 r bytes.
    let lens: Vec<usize> = (0..size).map(|r| 5 * r).collect();
    let mut pieces = vec![0; lens.iter().sum()];
    world.all_gather_pieces(&vec![rank; lens[rank as usize]], &lens, &mut pieces)?;

    let mut broadcast: Vec<u8> = (0..20).map(|i| i * (rank + 1)).collect();
    world.broadcast(1, &mut broadcast)?;

    let mut sums = world.sums()?;
    let mut single: Vec<f32> = (0..5).map(|i| f32::from(i + rank)).collect();
    let mut double: Vec<f64> = (0..5).map(|i| f64::from(i * rank)).collect();
    // SAFETY: both live and are left alone until `wait` has returned.
    unsafe {
        sums.start_f32(single.as_mut_ptr(), single.len())?;
        sums.start_f64(double.as_mut_ptr(), double.len())?;
    }
    sums.progress()?;
    sums.wait()?;
    Ok(format!("{gathered:?} {pieces:?} {broadcast:?} {single:?} {double:?}"))
}
