//! Optimizers and clipping against PyTorch's.

use hpcsweep::train::config::Optimizer as Config;
use tch::Kind;

use super::*;
use crate::torch::shim;
use crate::torch::testing::{assert_near, numbers, weighted};

fn parameters(kind: Kind) -> Vec<Named> {
    let shapes: [&[i64]; 3] = [&[37], &[5, 7], &[3]];
    let named = |(i, shape): (usize, &&[i64])| Named {
        name: format!("p{i}"),
        tensor: numbers(shape, kind).set_requires_grad(true),
    };
    shapes.iter().enumerate().map(named).collect()
}

/// The gradients of a step in reference.py: the last parameter has one at every other step alone.
fn set_grads(parameters: &[Named], step: i64) {
    for (i, Named { tensor, .. }) in parameters.iter().enumerate() {
        let count = tensor.numel() as i64;
        let grad = numbers(&[count + step], tensor.kind()).narrow(0, step, count);
        let grad = grad.view_as(tensor).copy() * (step - 1);
        let has_one = i != 2 || step % 2 == 0;
        shim::set_grad(tensor, has_one.then_some(&grad)).unwrap();
    }
}

fn sum_after(config: &Config, kind: Kind, steps: std::ops::Range<i64>, with: &mut Run) -> f64 {
    let (parameters, optimizer) = with.get_or_insert_with(|| {
        let parameters = parameters(kind);
        let optimizer = Optimizer::new(config, &parameters).unwrap();
        (parameters, optimizer)
    });
    for step in steps {
        set_grads(parameters, step);
        optimizer.step(config.lr()).unwrap();
    }
    weighted(parameters.iter().map(|p| &p.tensor))
}

type Run = Option<(Vec<Named>, Optimizer)>;

fn sgd(momentum: f64, dampening: f64, weight_decay: f64, nesterov: bool) -> Config {
    Config::Sgd { lr: 0.1, momentum, dampening, nesterov, weight_decay }
}

fn configs() -> Vec<(Config, [f64; 2])> {
    let betas = [0.9, 0.999];
    vec![
        (sgd(0.0, 0.0, 0.0, false), [3.252099265150525, 3.2521019663978805]),
        (sgd(0.9, 0.1, 0.01, false), [1.5696054656460738, 1.5696030772830891]),
        (sgd(0.9, 0.0, 0.01, true), [-19.873459067279576, -19.87345970721693]),
        (
            Config::Adam { lr: 1e-3, betas, eps: 1e-8, weight_decay: 0.0 },
            [23.58683088351289, 23.586832409420598],
        ),
        (
            Config::Adam { lr: 2e-3, betas: [0.8, 0.95], eps: 1e-6, weight_decay: 0.01 },
            [23.61296249410374, 23.612966273667325],
        ),
        (
            Config::AdamW { lr: 1e-3, betas, eps: 1e-8, weight_decay: 0.05 },
            [23.580294575524917, 23.580296763904194],
        ),
        (
            Config::RmsProp {
                lr: 1e-2,
                alpha: 0.99,
                eps: 1e-8,
                momentum: 0.0,
                centered: false,
                weight_decay: 0.0,
            },
            [15.320297192954612, 15.320298133169235],
        ),
        (
            Config::RmsProp {
                lr: 1e-2,
                alpha: 0.9,
                eps: 1e-6,
                momentum: 0.9,
                centered: true,
                weight_decay: 0.01,
            },
            [22.998072432228952, 22.998070010567428],
        ),
    ]
}

fn rounding(kind: Kind) -> f64 {
    if kind == Kind::Float { 1e-5 } else { 1e-13 }
}

#[test]
fn five_steps_are_pytorchs() {
    for (config, expected) in configs() {
        for (kind, expected) in [Kind::Float, Kind::Double].into_iter().zip(expected) {
            println!("{config:?} {kind:?}");
            let is = sum_after(&config, kind, 0..5, &mut None);
            assert_near(&[is], &[expected], rounding(kind));
        }
    }
}

#[test]
fn a_resumed_optimizer_goes_on_as_if_nothing_had_happened() {
    for (config, [_, expected]) in configs() {
        let mut run = None;
        sum_after(&config, Kind::Double, 0..3, &mut run);
        let (old, optimizer) = run.unwrap();
        // Copies: the state is shared with an optimizer that continues.
        let state: Vec<(String, Tensor)> =
            optimizer.state().into_iter().map(|(n, t)| (n, t.copy())).collect();
        let parameters = parameters(Kind::Double);
        for (new, old) in parameters.iter().zip(&old) {
            no_grad(|| new.tensor.shallow_clone().copy_(&old.tensor));
        }
        let mut optimizer = Optimizer::new(&config, &parameters).unwrap();
        optimizer.load_state(state).unwrap();
        let is = sum_after(&config, Kind::Double, 3..5, &mut Some((parameters, optimizer)));
        println!("{config:?}");
        assert_near(&[is], &[expected], rounding(Kind::Double));
    }
}

#[test]
fn the_state_of_another_optimizer_is_refused() {
    let [adam, sgd] = [3, 1].map(|i| configs().swap_remove(i).0);
    let mut run = None;
    sum_after(&adam, Kind::Float, 0..1, &mut run);
    let (parameters, optimizer) = run.unwrap();
    let names: Vec<String> = optimizer.state().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            ["step.p0", "exp_avg.p0", "exp_avg_sq.p0"],
            ["step.p1", "exp_avg.p1", "exp_avg_sq.p1"],
            ["step.p2", "exp_avg.p2", "exp_avg_sq.p2"]
        ]
        .concat()
    );
    let mut other = Optimizer::new(&sgd, &parameters).unwrap();
    let fault = other.load_state(optimizer.state()).unwrap_err();
    assert_eq!(fault.sentence, "the saved state of the optimizer lacks `momentum_buffer.p0`");
    let mut one = Optimizer::new(&adam, &parameters[..1]).unwrap();
    let fault = one.load_state(optimizer.state()).unwrap_err();
    assert_eq!(
        fault.sentence,
        "the saved state of the optimizer has `exp_avg.p1`, which this one has not"
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    let say = |config: &Config| Optimizer::new(config, &[]).err().map(|fault| fault.sentence);
    assert_eq!(
        say(&sgd(-0.1, 0.0, 0.0, false)).unwrap(),
        "`momentum` of the optimizer cannot be -0.1"
    );
    assert_eq!(
        say(&sgd(0.9, 0.1, 0.0, true)).unwrap(),
        "`nesterov` needs a momentum above 0 and no dampening"
    );
    let adam = |lr, betas| Config::Adam { lr, betas, eps: 1e-8, weight_decay: 0.0 };
    assert_eq!(say(&adam(1e-3, [0.9, 1.0])).unwrap(), "`betas` of the optimizer cannot be 1");
    assert_eq!(say(&adam(f64::NAN, [0.9, 0.9])).unwrap(), "`lr` of the optimizer cannot be NaN");
    assert_eq!(say(&adam(0.0, [0.0, 0.9999])), None);
}

#[test]
fn clipping_is_pytorchs() {
    let cases = [
        (Kind::Float, 0.5, 4.939947128295898, 3.0268973663218635),
        (Kind::Float, 100.0, 4.939947128295898, 29.905431450903816),
        (Kind::Double, 0.5, 4.939946980674489, 3.0268974053873134),
        (Kind::Double, 100.0, 4.939946980674489, 29.905431450903816),
    ];
    for (kind, most, norm, expected) in cases {
        let parameters = parameters(kind);
        for Named { tensor, .. } in &parameters[..2] {
            shim::set_grad(tensor, Some(&numbers(&tensor.size(), kind))).unwrap();
        }
        let total = clip_grad_norm(&parameters, most).unwrap();
        let grads: Vec<Tensor> = parameters[..2].iter().map(|p| p.tensor.grad()).collect();
        println!("{kind:?} {most}");
        assert_near(&[total, weighted(&grads)], &[norm, expected], rounding(kind));
    }
    assert_eq!(clip_grad_norm(&parameters(Kind::Float), 1.0).unwrap(), 0.0);
}
