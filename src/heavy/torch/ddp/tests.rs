//! One rank, and a made-up other one: what hooks, buckets and marks do. What ranks do together is in
//! `selftest` and `tests/worker`.

#![expect(unsafe_code, reason = "a reduction writes to the numbers it was given")]

use tch::Kind::{Double, Float};

use super::*;
use crate::torch::testing::numbers;

/// Two ranks that hold the same numbers, but for the marks of the other one.
#[derive(Clone, Default)]
struct Twin(Rc<RefCell<Seen>>);

#[derive(Default)]
struct Seen {
    /// Numbers of each sum, in the order of their start.
    started: Vec<usize>,
    under_way: Vec<(*mut f64, usize)>,
    /// Marks of the other rank, if not the same.
    marks: Option<Vec<f64>>,
}

impl hpcsweep::run::sync::peers::Peers for Twin {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        2
    }
    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
        all.copy_from_slice(&[mine, mine].concat());
        Ok(())
    }
    fn all_gather_pieces(&mut self, _: &[u8], _: &[usize], _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::new(Kind::Bug, "not here"))
    }
    fn broadcast(&mut self, _: u32, _: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }
}

impl Reduce for Twin {
    unsafe fn start(&mut self, kind: tch::Kind, at: *mut c_void, len: usize) -> Result<(), Fault> {
        assert_eq!(kind, Double);
        let mut seen = self.0.borrow_mut();
        seen.started.push(len);
        seen.under_way.push((at.cast(), len));
        Ok(())
    }
    fn progress(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn wait(&mut self) -> Result<(), Fault> {
        let mut seen = self.0.borrow_mut();
        let marks = seen.marks.take().unwrap_or_default();
        let last = seen.under_way.len() - 1;
        for (i, (at, len)) in std::mem::take(&mut seen.under_way).into_iter().enumerate() {
            // SAFETY: `Bucket::start` has vouched for them.
            let numbers = unsafe { std::slice::from_raw_parts_mut(at, len) };
            let own = len - if i == last { marks.len() } else { 0 };
            for number in &mut numbers[..own] {
                *number *= 2.0;
            }
            if i == last {
                for (number, mark) in numbers[own..].iter_mut().zip(&marks) {
                    *number += mark;
                }
            }
        }
        Ok(())
    }
    fn reads_gpus(&self) -> bool {
        true
    }
}

fn named(lens: &[i64], kind: tch::Kind) -> Vec<Named> {
    let one = |(i, len): (usize, &i64)| Named {
        name: format!("p{i}"),
        tensor: numbers(&[*len], kind).set_requires_grad(true),
    };
    lens.iter().enumerate().map(one).collect()
}

/// A sum of squares: the gradient of a parameter is twice itself.
fn squares(parameters: &[&Named]) -> Tensor {
    let one = |p: &&Named| (&p.tensor * &p.tensor).sum(Double);
    parameters.iter().map(one).reduce(|a, b| a + b).unwrap()
}

fn grad(parameter: &Named) -> Option<Vec<f64>> {
    let grad = parameter.tensor.grad();
    grad.defined().then(|| Vec::try_from(grad).unwrap())
}

fn twice(parameter: &Named) -> Option<Vec<f64>> {
    Some(Vec::<f64>::try_from(&parameter.tensor * 2.0).unwrap())
}

fn twins(parameters: &[Named], overlap: bool) -> (Ddp, Twin) {
    let twin = Twin::default();
    // A bucket is full with 10 numbers, later ones with 20.
    let options = DdpOptions { overlap, limits: [80, 160] };
    (Ddp::new(parameters, &[], Box::new(twin.clone()), options).unwrap(), twin)
}

#[test]
fn buckets_start_in_their_order_while_the_backward_pass_goes_on() {
    let parameters = named(&[4, 12, 6, 5, 9, 3], Double);
    let all: Vec<&Named> = parameters.iter().collect();
    for overlap in [true, false] {
        let (mut ddp, twin) = twins(&parameters, overlap);
        ddp.backward(&squares(&all), 0.5, true).unwrap();
        // [5, 4] are 12 numbers, [3, 2, 1] 23, [0] 4 and a mark for each parameter.
        let before = twin.0.borrow().started.clone();
        assert_eq!(before, if overlap { vec![12, 23, 10] } else { Vec::new() });
        ddp.finish().unwrap();
        assert_eq!(twin.0.borrow().started, [12, 23, 10]);
        for parameter in &parameters {
            assert_eq!(grad(parameter), twice(parameter));
        }
    }
}

#[test]
fn a_parameter_that_no_rank_uses_has_no_gradient() {
    let parameters = named(&[4, 12, 6], Double);
    let (mut ddp, twin) = twins(&parameters, true);
    let [a, b, c] = &parameters[..] else { panic!() };
    ddp.backward(&squares(&[a, c]), 0.5, true).unwrap();
    // The bucket of `c` and `b` waits for `b`.
    assert_eq!(twin.0.borrow().started, [] as [usize; 0]);
    ddp.finish().unwrap();
    assert_eq!([a, b, c].map(grad), [twice(a), None, twice(c)]);

    // Another rank has used it: zeros from here are part of the mean.
    ddp.zero_grad().unwrap();
    assert_eq!(grad(b), Some(vec![0.0; 12]));
    twin.0.borrow_mut().marks = Some(vec![1.0, 1.0, 0.0]);
    ddp.backward(&squares(&[a, c]), 0.5, true).unwrap();
    ddp.finish().unwrap();
    assert_eq!([a, b, c].map(grad), [twice(a), Some(vec![0.0; 12]), twice(c)]);

    // And all at once again.
    ddp.zero_grad().unwrap();
    ddp.backward(&squares(&[a, b, c]), 0.5, true).unwrap();
    ddp.finish().unwrap();
    assert_eq!([a, b, c].map(grad), [a, b, c].map(twice));
}

#[test]
fn a_rank_without_samples_adds_nothing_and_takes_part() {
    let parameters = named(&[4, 12], Double);
    let (mut ddp, twin) = twins(&parameters, true);
    twin.0.borrow_mut().marks = Some(vec![1.0, 1.0]);
    ddp.finish().unwrap();
    assert_eq!(twin.0.borrow().started, [12, 6]);
    assert_eq!(grad(&parameters[0]), Some(vec![0.0; 4]));
}

#[test]
fn micro_batches_are_added_up_and_reduced_once() {
    let parameters = named(&[4, 12], Double);
    let all: Vec<&Named> = parameters.iter().collect();
    let (mut ddp, twin) = twins(&parameters, true);
    for is_last in [false, false, true] {
        assert_eq!(twin.0.borrow().started, [] as [usize; 0]);
        let weight = if is_last { 0.25 } else { 0.125 };
        ddp.backward(&squares(&all), weight, is_last).unwrap();
    }
    ddp.finish().unwrap();
    assert_eq!(twin.0.borrow().started, [12, 6]);
    assert_eq!(all.iter().map(|p| grad(p)).collect::<Vec<_>>(), [twice(all[0]), twice(all[1])]);
}

#[test]
fn a_second_pass_before_the_first_is_finished_is_a_fault() {
    let parameters = named(&[4], Double);
    let (ddp, _) = twins(&parameters, true);
    let loss = || squares(&[&parameters[0]]);
    ddp.backward(&loss(), 0.5, true).unwrap();
    assert_eq!(
        ddp.backward(&loss(), 0.5, true).unwrap_err().sentence,
        "a second backward pass began before the first was finished"
    );
}

#[test]
fn after_its_end_gradients_are_as_before() {
    let parameters = named(&[4], Double);
    drop(twins(&parameters, true));
    let alone = Box::new(hpcsweep::run::sync::peers::Alone);
    let mut ddp = Ddp::new(&parameters, &[], alone, DdpOptions::default()).unwrap();
    assert_eq!(grad(&parameters[0]), None);
    ddp.backward(&squares(&[&parameters[0]]), 1.0, true).unwrap();
    ddp.finish().unwrap();
    assert_eq!(grad(&parameters[0]), twice(&parameters[0]));
    ddp.zero_grad().unwrap();
    assert_eq!(grad(&parameters[0]), None);
}

#[test]
fn buffers_stay_the_same_tensors_in_one_piece() {
    let parameters = named(&[4], Double);
    let buffer = |i: i64, kind| Named { name: format!("b{i}"), tensor: numbers(&[2, i], kind) };
    let buffers = [buffer(3, Double), buffer(1, tch::Kind::Int64), buffer(2, Double)];
    let before: Vec<Tensor> = buffers.iter().map(|b| b.tensor.copy()).collect();
    let ddp = Ddp::new(&parameters, &buffers, Box::new(Twin::default()), DdpOptions::default());
    let ddp = ddp.unwrap();
    assert!(buffers.iter().zip(&before).all(|(b, before)| b.tensor.equal(before)));
    assert_eq!(ddp.buffers.iter().map(Tensor::numel).collect::<Vec<_>>(), [10, 2]);
    let _ = buffers[2].tensor.shallow_clone().fill_(7.0);
    assert_eq!(ddp.buffers[0].double_value(&[6]), 7.0);
}

#[test]
fn numbers_that_mpi_cannot_add_up_are_refused() {
    let parameters = named(&[4], tch::Kind::BFloat16);
    let alone = Box::new(hpcsweep::run::sync::peers::Alone);
    assert_eq!(
        Ddp::new(&parameters, &[], alone, DdpOptions::default()).err().unwrap().to_string(),
        "parameter `p0` is BFloat16; ranks add up Float and Double alone\nhint: keep parameters in 32 \
         bit and use `precision = \"bf16\"`"
    );
    assert!(
        Ddp::new(&named(&[4], Float), &[], Box::new(Twin::default()), DdpOptions::default())
            .is_ok()
    );
}

#[test]
fn the_weights_of_a_step_are_its_parts() {
    assert_eq!([weight(32, 64), weight(64, 64), weight(0, 5), weight(0, 0)], [0.5, 1.0, 0.0, 0.0]);
}
