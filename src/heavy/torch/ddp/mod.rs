//! Data-parallel training: every rank computes the gradients of its own samples, all take the same step.
//!
//! ```text
//! let mut ddp = Ddp::new(model.parameters(), model.buffers(), Box::new(world.sums()?), DdpOptions::default())?;
//! for each step:
//!     ddp.zero_grad()?;
//!     for each micro-batch:
//!         loss = ...                                       // mean over the micro-batch
//!         ddp.backward(&loss, weight(samples, total), is_the_last)?;
//!     ddp.finish()?;                                       // gradients of the mean over all samples
//!     optimizer.step(lr)?;
//! ```
//!
//! `total` is the number of samples of the step over all ranks and micro-batches: with it the sum over ranks
//! is the gradient of the mean over all samples, however unequally they are divided. A rank without samples
//! leaves `backward` out.
//!
//! Gradients are views of flat buckets. A hook behind each of them starts a bucket's reduction once all its
//! gradients are there, while the backward pass continues; buckets start in their order, which is the same on
//! all ranks. After the last bucket's gradients comes one number a parameter: whether it was used. A
//! parameter that no rank has used is left without a gradient, so that the optimizer leaves it alone. If only
//! some ranks have used it, the others add zeros.

mod bucket;
mod layout;
mod reduce;

use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use hpcsweep::base::fault::{Fault, Kind};
use hpcsweep::train::bucket::{LIMITS, Parameter, by_arrival};
use tch::{Device, Tensor, no_grad};

use super::model::Named;
use super::{OrFault, bytes, shim};
use bucket::Bucket;
pub(crate) use reduce::Reduce;

/// How gradients are reduced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DdpOptions {
    /// Reduce while the backward pass continues. On a GPU the reduction always comes after the pass, because
    /// another thread runs the hooks there.
    pub(crate) overlap: bool,
    /// Bytes after which the first bucket, and a later one, is full.
    pub(crate) limits: [u64; 2],
}

impl Default for DdpOptions {
    fn default() -> Self {
        Self { overlap: true, limits: LIMITS }
    }
}

/// The factor of a mean loss of `samples` in the mean over `total`.
pub(crate) fn weight(samples: u64, total: u64) -> f64 {
    samples as f64 / total.max(1) as f64
}

/// The gradients of one model on all ranks.
pub(crate) struct Ddp {
    parameters: Vec<Named>,
    /// One for each kind of buffer: they are views of it.
    buffers: Vec<Tensor>,
    shared: Rc<Shared>,
    /// The views, by parameter; none where there is one rank.
    views: Vec<Tensor>,
    is_detached: Vec<bool>,
    waited: Duration,
}

/// What [`Ddp`] shares with the hooks of its parameters' gradients.
struct Shared {
    owner: ThreadId,
    overlap: bool,
    /// By parameter: the number of its bucket, from 0.
    bucket_of: Vec<usize>,
    /// By parameter: whether the backward pass has reached it since the gradients were zeroed. On a GPU
    /// another thread sets this.
    is_used: Vec<AtomicBool>,
    has_strayed: AtomicBool,
    engine: RefCell<Engine>,
}

/// Data that only the owner of MPI touches.
struct Engine {
    reduce: Box<dyn Reduce>,
    buckets: Vec<Bucket>,
    /// By bucket: how many gradients are still to come.
    missing: Vec<usize>,
    full: Vec<usize>,
    /// By parameter: whether its gradient of this step is complete.
    is_ready: Vec<bool>,
    /// Buckets that are under way.
    started: usize,
    /// Whether the backward pass that runs is the step's last.
    is_last: bool,
    fault: Option<Fault>,
}

impl Ddp {
    /// Checks that all ranks have the same model, gives them the weights and buffers of rank 0 and makes
    /// the buckets. Collective; it replaces the storage of buffers, which stay the same tensors.
    ///
    /// # Errors
    /// The same one on every rank when their models differ.
    pub(crate) fn new(
        parameters: &[Named],
        buffers: &[Named],
        mut reduce: Box<dyn Reduce>,
        options: DdpOptions,
    ) -> Result<Self, Fault> {
        layout::agree(reduce.as_mut(), parameters, buffers)?;
        let is_alone = reduce.size() == 1;
        for Named { name, tensor } in parameters {
            reduce::check(tensor.kind(), name)?;
        }
        let mut flat_buffers = Vec::new();
        if !is_alone {
            for named in parameters {
                broadcast(reduce.as_mut(), &mut named.tensor.shallow_clone())?;
            }
            flat_buffers = flatten(buffers).or_fault()?;
        }
        let plan = if is_alone { Vec::new() } else { plan(parameters, &options.limits) };
        let mut bucket_of = vec![0; parameters.len()];
        let mut views: Vec<Option<Tensor>> = parameters.iter().map(|_| None).collect();
        let mut made = Vec::with_capacity(plan.len());
        for (i, bucket) in plan.iter().enumerate() {
            let marks = if i + 1 == plan.len() { parameters.len() } else { 0 };
            let (made_one, own) =
                Bucket::new(bucket, parameters, marks, reduce.reads_gpus()).or_fault()?;
            made.push(made_one);
            for (slot, view) in bucket.slots.iter().zip(own) {
                bucket_of[slot.parameter] = i;
                views[slot.parameter] = Some(view);
            }
        }
        let is_on_cpu = parameters.iter().all(|p| p.tensor.device() == Device::Cpu);
        let full: Vec<usize> = plan.iter().map(|bucket| bucket.slots.len()).collect();
        let shared = Rc::new(Shared {
            owner: std::thread::current().id(),
            overlap: options.overlap && is_on_cpu,
            bucket_of,
            is_used: parameters.iter().map(|_| AtomicBool::new(false)).collect(),
            has_strayed: AtomicBool::new(false),
            engine: RefCell::new(Engine {
                reduce,
                buckets: made,
                missing: full.clone(),
                full,
                is_ready: vec![false; parameters.len()],
                started: 0,
                is_last: true,
                fault: None,
            }),
        });
        let parameters: Vec<Named> = parameters
            .iter()
            .map(|p| Named { name: p.name.clone(), tensor: p.tensor.shallow_clone() })
            .collect();
        let mut ddp = Self {
            // Hooks go in with the gradients, in `zero_grad`.
            is_detached: vec![!is_alone; parameters.len()],
            parameters,
            buffers: flat_buffers,
            shared,
            views: views.into_iter().flatten().collect(),
            waited: Duration::ZERO,
        };
        ddp.hook()?;
        ddp.sync_buffers()?;
        ddp.zero_grad()?;
        Ok(ddp)
    }

    #[expect(unsafe_code, reason = "a hook of C++ cannot borrow")]
    fn hook(&self) -> Result<(), Fault> {
        if self.views.is_empty() {
            return Ok(());
        }
        let context = Rc::as_ptr(&self.shared).cast::<c_void>();
        for (i, parameter) in self.parameters.iter().enumerate() {
            // SAFETY: `shared` stays where it is and lives until `drop` has taken the hooks away. Another
            // thread than ours touches its atomics alone.
            unsafe { shim::on_grad(&parameter.tensor, ready, context, i) }.or_fault()?;
        }
        Ok(())
    }

    /// Begins a step.
    ///
    /// # Errors
    /// When libtorch fails.
    pub(crate) fn zero_grad(&mut self) -> Result<(), Fault> {
        if self.views.is_empty() {
            let mut parameters = self.parameters.iter();
            return parameters.try_for_each(|p| shim::set_grad(&p.tensor, None)).or_fault();
        }
        let mut engine = self.shared.engine.borrow_mut();
        engine.buckets.iter_mut().try_for_each(Bucket::zero).or_fault()?;
        for (i, is_detached) in self.is_detached.iter_mut().enumerate() {
            if std::mem::take(is_detached) {
                shim::set_grad(&self.parameters[i].tensor, Some(&self.views[i])).or_fault()?;
            }
            self.shared.is_used[i].store(false, Relaxed);
        }
        Ok(())
    }

    /// Adds `weight` times the gradients of `loss`; those of the step's last micro-batch are reduced as
    /// they come.
    ///
    /// # Errors
    /// When libtorch fails or a rank is gone.
    pub(crate) fn backward(&self, loss: &Tensor, weight: f64, is_last: bool) -> Result<(), Fault> {
        self.shared.engine.borrow_mut().is_last = is_last;
        if weight == 1.0 {
            loss.f_backward().or_fault()?;
        } else {
            loss.f_mul_scalar(weight).and_then(|loss| loss.f_backward()).or_fault()?;
        }
        match self.shared.engine.borrow_mut().fault.take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Waits until every gradient is the sum over all ranks. The parameters' gradients are then those of
    /// the mean over all samples; those of parameters that no rank has used are undefined.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        if self.views.is_empty() {
            return Ok(());
        }
        if self.shared.has_strayed.load(Relaxed) {
            let sentence =
                "a gradient became ready outside the backward pass of the thread that owns MPI";
            return Err(Fault::new(Kind::Bug, sentence));
        }
        let begin = Instant::now();
        let mut engine = self.shared.engine.borrow_mut();
        let engine = &mut *engine;
        while engine.started < engine.buckets.len() {
            engine.start_next(&self.shared.is_used)?;
        }
        engine.reduce.wait()?;
        self.waited += begin.elapsed();
        engine.started = 0;
        engine.missing.clone_from(&engine.full);
        engine.is_ready.fill(false);
        engine.buckets.iter_mut().try_for_each(Bucket::finish).or_fault()?;
        let is_used = match engine.buckets.last() {
            Some(bucket) => bucket.marked().or_fault()?,
            None => Vec::new(),
        };
        for (i, _) in is_used.iter().enumerate().filter(|(_, is_used)| !**is_used) {
            shim::set_grad(&self.parameters[i].tensor, None).or_fault()?;
            self.is_detached[i] = true;
        }
        Ok(())
    }

    /// Gives all ranks the buffers of rank 0, as it has them after its own batches. Collective. The
    /// forward pass of training does not read the buffers of batch normalisation: for built-in models it
    /// is enough to call this before evaluations and checkpoints; before each forward pass of training
    /// where [`super::model::Model::reads_buffers`] says so.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn sync_buffers(&mut self) -> Result<(), Fault> {
        let mut engine = self.shared.engine.borrow_mut();
        for flat in &mut self.buffers {
            broadcast(engine.reduce.as_mut(), flat)?;
        }
        Ok(())
    }

    /// The time spent in [`Self::finish`] since the last call of this.
    pub(crate) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}

impl Drop for Ddp {
    fn drop(&mut self) {
        if self.views.is_empty() {
            return;
        }
        for parameter in &self.parameters {
            // A hook that stays would call into memory that is gone: leak it instead.
            if shim::no_hook(&parameter.tensor).is_err() {
                std::mem::forget(Rc::clone(&self.shared));
            }
        }
        // After an error a reduction may still be under way, and must find its numbers.
        if self.shared.engine.try_borrow().is_ok_and(|engine| engine.started > 0) {
            std::mem::forget(Rc::clone(&self.shared));
        }
    }
}

impl Engine {
    /// Starts the next bucket.
    fn start_next(&mut self, is_used: &[AtomicBool]) -> Result<(), Fault> {
        let next_bucket = self.started;
        if next_bucket + 1 == self.buckets.len() {
            let marks: Vec<bool> = is_used.iter().map(|used| used.load(Relaxed)).collect();
            self.buckets[next_bucket].mark(&marks).or_fault()?;
        }
        self.buckets[next_bucket].start(self.reduce.as_mut())?;
        self.started += 1;
        Ok(())
    }

    /// The gradient of a parameter is there.
    fn take(&mut self, shared: &Shared, parameter: usize) -> Result<(), Fault> {
        if std::mem::replace(&mut self.is_ready[parameter], true) {
            let sentence = "a second backward pass began before the first was finished";
            return Err(Fault::new(Kind::Bug, sentence));
        }
        self.missing[shared.bucket_of[parameter]] -= 1;
        while self.missing.get(self.started) == Some(&0) {
            self.start_next(&shared.is_used)?;
        }
        self.reduce.progress()
    }
}

/// The hook behind each gradient.
#[expect(unsafe_code, reason = "C++ hands back the address that it was given")]
extern "C" fn ready(context: *const c_void, parameter: usize) {
    // SAFETY: the address that `Ddp::hook` gave, of what lives until the hooks are gone.
    let shared = unsafe { &*context.cast::<Shared>() };
    shared.is_used[parameter].store(true, Relaxed);
    if !shared.overlap {
        return;
    }
    if std::thread::current().id() != shared.owner {
        shared.has_strayed.store(true, Relaxed);
        return;
    }
    let Ok(mut engine) = shared.engine.try_borrow_mut() else {
        shared.has_strayed.store(true, Relaxed);
        return;
    };
    if engine.is_last
        && engine.fault.is_none()
        && let Err(fault) = engine.take(shared, parameter)
    {
        engine.fault = Some(fault);
    }
}

/// The kinds of these tensors, each once, in the order of their first.
fn kinds(tensors: &[Named]) -> Vec<tch::Kind> {
    let mut kinds = Vec::new();
    for named in tensors {
        if !kinds.contains(&named.tensor.kind()) {
            kinds.push(named.tensor.kind());
        }
    }
    kinds
}

/// Buckets in the order in which gradients become ready: the backward pass meets the last parameter
/// first.
fn plan(parameters: &[Named], limits: &[u64]) -> Vec<hpcsweep::train::bucket::Bucket<tch::Kind>> {
    let arrival: Vec<usize> = (0..parameters.len()).rev().collect();
    by_arrival(
        &parameters
            .iter()
            .map(|named| Parameter {
                elements: named.tensor.numel() as u64,
                width: named.tensor.kind().elt_size_in_bytes() as u64,
                kind: named.tensor.kind(),
            })
            .collect::<Vec<_>>(),
        &arrival,
        limits,
    )
}

/// Makes buffers views of one tensor for each kind.
fn flatten(buffers: &[Named]) -> tch::Result<Vec<Tensor>> {
    let mut flat_tensors = Vec::new();
    for kind in kinds(buffers) {
        let same_kind: Vec<&Named> = buffers.iter().filter(|b| b.tensor.kind() == kind).collect();
        let count = same_kind.iter().map(|b| b.tensor.numel() as i64).sum::<i64>();
        let flat = Tensor::f_empty([count], (kind, same_kind[0].tensor.device()))?;
        let mut start = 0;
        for named in same_kind {
            let count = named.tensor.numel() as i64;
            let mut view = flat.f_narrow(0, start, count)?.f_view_as(&named.tensor)?;
            view.f_copy_(&named.tensor)?;
            named.tensor.shallow_clone().f_set_data(&view)?;
            start += count;
        }
        flat_tensors.push(flat);
    }
    Ok(flat_tensors)
}

/// Gives a tensor the numbers that it has on rank 0.
fn broadcast(reduce: &mut dyn Reduce, tensor: &mut Tensor) -> Result<(), Fault> {
    if tensor.device() == Device::Cpu && tensor.is_contiguous() {
        return bytes::in_place(tensor, |bytes| reduce.broadcast(0, bytes)).or_fault()?;
    }
    let mut copy = tensor.detach().f_to_device(Device::Cpu).or_fault()?;
    copy = copy.f_contiguous().or_fault()?;
    bytes::in_place(&mut copy, |bytes| reduce.broadcast(0, bytes)).or_fault()??;
    no_grad(|| tensor.f_copy_(&copy)).or_fault()
}

#[cfg(test)]
mod tests;
