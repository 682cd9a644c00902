//! The cost of a gather of bytes, and of a map of metrics.

use std::time::Instant;

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::gather::{Flags, mp_sync_map};
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::run::sync::reduce::{How, Measure, Nan, reduce};
use hpcsweep::run::sync::slice::gather_slice_into;
use hpcsweep::run::sync::value::Value;

use super::Orders;
use crate::mpi::World;

/// Metrics of the map.
const METRICS: usize = 20;

/// Carries out orders: what (0 a slice of bytes, 1 a map gathered, 2 a map reduced), how many bytes, how
/// often. Answers with the seconds of one call, the mean.
pub(super) fn run(world: &mut World, orders: &mut Orders) -> Result<(), Fault> {
    let (mut mine, mut all) = (Vec::new(), Vec::new());
    let keys: Vec<Vec<String>> = (0..METRICS).map(|i| vec![format!("metric_{i}")]).collect();
    while let Some(order) = orders.next() {
        let &[what, bytes, calls] = order.as_slice() else { break };
        if mine.len() != bytes {
            // Memory of its own for each size, as the program beside it takes: not what is left of another.
            (mine, all) = (vec![1u8; bytes], vec![1u8; bytes * world.size() as usize]);
        }
        let mut call = || -> Result<(), Fault> {
            match what {
                0 => gather_slice_into(world, &mine, &mut all),
                1 => {
                    let items = keys.iter().zip(0..);
                    let items =
                        items.map(|(key, i)| (key.clone(), Ok(Value::float(f64::from(i) * 0.37))));
                    mp_sync_map(world, items.collect(), Flags::default()).map(drop)
                }
                _ => {
                    let items = keys.iter().zip(0..).map(|(key, i)| Measure {
                        key: key.clone(),
                        value: (f64::from(i) * 0.37).into(),
                        weight: 1.0,
                    });
                    reduce(world, &items.collect::<Vec<_>>(), How::Mean, Nan::default()).map(drop)
                }
            }
        };
        // Ranks do not get the order at the same time.
        for _ in 0..calls.div_ceil(10) {
            call()?;
        }
        let begin = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        let each = begin.elapsed().as_secs_f64() / calls.max(1) as f64;
        orders.answer(&[each]);
    }
    Ok(())
}
