//! What reductions promise, over threads.

use proptest::prelude::*;

use super::super::peers::Alone;
use super::super::threads;
use super::super::value::Form;
use super::*;

fn key(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn measure(name: &str, value: impl Into<Number>, weight: f64) -> Measure {
    Measure { key: key(name), value: value.into(), weight }
}

/// Reduces one number a rank, checks that all ranks get the same bits, and returns it or the error.
fn one(ranks: &[(Number, f64)], how: How, nan: Nan) -> Result<Number, String> {
    let all = threads::run(ranks.len() as u32, |peers| {
        let (value, weight) = ranks[peers.rank() as usize];
        let result = reduce(peers, &[measure("x", value, weight)], how, nan);
        let after = reduce(peers, &[measure("y", 1, 1.0)], How::Sum, Nan::Propagate);
        assert_eq!(after.unwrap(), [(key("y"), Number::Int(ranks.len() as i64))]);
        result
    });
    let show = |r: &Result<Vec<(Vec<String>, Number)>, Fault>| match r {
        Ok(items) => match items[0].1 {
            Number::Int(n) => format!("{n}"),
            Number::Float(x) => format!("{:x}", x.to_bits()),
        },
        Err(fault) => fault.to_string(),
    };
    assert!(all.iter().all(|other| show(other) == show(&all[0])), "{all:?}");
    match &all[0] {
        Ok(items) => Ok(items[0].1),
        Err(fault) => Err(fault.sentence.clone()),
    }
}

fn floats(ranks: &[(f64, f64)], how: How, nan: Nan) -> Result<f64, String> {
    let ranks: Vec<(Number, f64)> = ranks.iter().map(|(x, w)| (Number::Float(*x), *w)).collect();
    one(&ranks, how, nan).map(|number| match number {
        Number::Float(x) => x,
        Number::Int(n) => panic!("{n} is whole"),
    })
}

#[test]
fn the_five_reductions() {
    let ranks = [(1.5, 10.0), (-2.0, 30.0), (4.0, 0.0), (0.25, 20.0)];
    let of = |how| floats(&ranks, how, Nan::Propagate).unwrap();
    assert_eq!(of(How::Sum), -0.25);
    assert_eq!(of(How::Min), -2.0);
    assert_eq!(of(How::Max), 1.5);
    // (15 - 60 + 5) / 60
    assert_eq!(of(How::Mean), -2.0 / 3.0);
    // Second moment minus squared mean: (22.5 + 120 + 1.25) / 60 - 4/9.
    assert!((of(How::Variance) - (143.75 / 60.0 - 4.0 / 9.0)).abs() < 1e-15);
}

#[test]
fn whole_numbers_are_added_exactly() {
    let int = |n: i64| (Number::Int(n), 1.0);
    let big = (1 << 53) + 1;
    let sum = |ranks: &[(Number, f64)]| one(ranks, How::Sum, Nan::Propagate);
    assert_eq!(sum(&[int(big), int(2), int(-1)]), Ok(Number::Int(big + 1)));
    // Sums on the way may exceed 64 bits; the final sum may not.
    assert_eq!(sum(&[int(i64::MAX), int(1), int(-5)]), Ok(Number::Int(i64::MAX - 4)));
    assert_eq!(
        sum(&[int(i64::MAX), int(1)]).unwrap_err(),
        "`x`: the sum of the whole numbers does not fit into 64 bits"
    );
    assert_eq!(one(&[int(big), int(big - 1)], How::Min, Nan::Propagate), Ok(Number::Int(big - 1)));
    assert_eq!(one(&[int(7), int(4)], How::Mean, Nan::Propagate), Ok(Number::Float(5.5)));
    // One real number makes all real; one without weight does not.
    assert_eq!(sum(&[int(1), (Number::Float(0.5), 1.0)]), Ok(Number::Float(1.5)));
    assert_eq!(sum(&[int(1), (Number::Float(f64::NAN), 0.0)]), Ok(Number::Int(1)));
}

#[test]
fn a_rank_without_weight_says_nothing_and_nobody_is_nan() {
    let nobody = [(1.0, 0.0), (f64::NAN, 0.0)];
    for how in How::ALL {
        let result = floats(&nobody, how, Nan::Error).unwrap();
        let expected = if how == How::Sum { "0.0" } else { "NaN" };
        assert_eq!(format!("{result:?}"), expected, "{how:?}");
    }
    let ints = [(Number::Int(3), 0.0), (Number::Int(4), 0.0)];
    assert_eq!(one(&ints, How::Sum, Nan::Propagate), Ok(Number::Int(0)));
    let least = one(&ints, How::Min, Nan::Propagate).unwrap();
    assert!(matches!(least, Number::Float(x) if x.is_nan()), "{least:?}");
    assert_eq!(floats(&[(f64::NAN, 0.0), (2.0, 1.0)], How::Mean, Nan::Error), Ok(2.0));
}

#[test]
fn what_a_nan_does_is_said_and_done() {
    let ranks = [(1.0, 1.0), (f64::NAN, 1.0), (3.0, 2.0), (-f64::NAN, 1.0)];
    for how in How::ALL {
        assert!(floats(&ranks, how, Nan::Propagate).unwrap().is_nan(), "{how:?}");
        assert_eq!(floats(&ranks, how, Nan::Error).unwrap_err(), "`x`: NaN on ranks 1 and 3");
    }
    assert_eq!(floats(&ranks, How::Mean, Nan::Ignore), Ok(7.0 / 3.0));
    assert_eq!(floats(&ranks, How::Max, Nan::Ignore), Ok(3.0));
    let vast = [(1e308, 32.0), (-1e308, 96.0)];
    assert_eq!(floats(&vast, How::Mean, Nan::Error), Ok(-5e307));
    let infinite = [(f64::INFINITY, 1.0), (1.0, 1.0)];
    assert_eq!(floats(&infinite, How::Mean, Nan::Error), Ok(f64::INFINITY));
    assert_eq!(floats(&infinite, How::Min, Nan::Error), Ok(1.0));
}

#[test]
fn ranks_that_do_not_fit_get_one_sentence() {
    assert_eq!(
        floats(&[(1.0, 1.0), (1.0, -1.0), (1.0, f64::NAN)], How::Sum, Nan::Propagate).unwrap_err(),
        "rank 1, key `x`: a weight is a number of at least 0, and this is -1; \
         rank 2, key `x`: a weight is a number of at least 0, and this is NaN"
    );
    let all = threads::run(2, |peers| {
        let how = [How::Sum, How::Mean][peers.rank() as usize];
        let names = [["a", "b"], ["b", "c"]][peers.rank() as usize];
        let items = names.map(|name| measure(name, 1.0, 1.0));
        let keys = reduce(peers, &items, How::Sum, Nan::Propagate).unwrap_err();
        let hows = reduce(peers, &items, how, Nan::Propagate).unwrap_err();
        (keys.sentence, hows.sentence)
    });
    let keys = "the key `a` is missing on rank 1; the key `c` is missing on rank 0";
    let hows = "the ranks disagree on `how`: `sum` on rank 0, `mean` on rank 1";
    assert_eq!(all, vec![(keys.to_owned(), hows.to_owned()); 2]);
}

#[test]
fn arrays_are_reduced_number_by_number() {
    let share = |value, weight| Share { key: Vec::new(), value: Ok(value), weight };
    let all = threads::run(3, |peers| {
        let r = peers.rank();
        let x = f64::from(r);
        let mut go = |value, how| {
            let weight = x + 1.0;
            let mut all =
                reduce_values(peers, vec![share(value, weight)], how, Nan::Propagate).unwrap();
            all.pop().unwrap().1
        };
        let tensor = Value::from_numbers(Form::Tensor, vec![2, 1], &[x as f32, 10.0 * x as f32]);
        let bytes = Value::from_numbers(Form::Array, vec![2], &[200u8, r as u8]);
        let truths = Value {
            form: Form::List,
            dtype: Dtype::Bool,
            shape: vec![2],
            data: vec![1, r as u8 & 1],
        };
        [
            go(tensor.clone(), How::Mean),
            go(tensor, How::Variance),
            go(bytes.clone(), How::Sum),
            go(bytes.clone(), How::Max),
            go(bytes, How::Mean),
            go(truths.clone(), How::Sum),
            go(truths, How::Min),
        ]
    });
    // Weights 1, 2, 3 over 0, 1, 2: mean 8/6, variance 14/6 - (8/6)^2.
    let mean = (8.0f64 / 6.0) as f32;
    let variance = 5.0f64 / 9.0;
    let tensor = |a: f32, b: f32| Value::from_numbers(Form::Tensor, vec![2, 1], &[a, b]);
    let expected = [
        tensor(mean, (80.0f64 / 6.0) as f32),
        tensor(variance as f32, (variance * 100.0) as f32),
        Value::from_numbers(Form::Array, vec![2], &[600i64, 3]),
        Value::from_numbers(Form::Array, vec![2], &[200u8, 2]),
        Value::from_numbers(Form::Array, vec![2], &[200.0, 8.0 / 6.0]),
        Value::from_numbers(Form::List, vec![2], &[3i64, 1]),
        Value { form: Form::List, dtype: Dtype::Bool, shape: vec![2], data: vec![1, 0] },
    ];
    assert_eq!(all, vec![expected; 3]);
}

#[test]
fn one_process_alone_reduces_to_itself() {
    let items = [measure("loss", 0.1, 7.0), measure("n", 3, 1.0)];
    let expected = [(key("loss"), Number::Float(0.1)), (key("n"), Number::Int(3))];
    assert_eq!(reduce(&mut Alone, &items, How::Mean, Nan::Propagate).unwrap()[0], expected[0]);
    assert_eq!(reduce(&mut Alone, &items, How::Sum, Nan::Propagate).unwrap(), expected);
    assert_eq!(reduce(&mut Alone, &[], How::Sum, Nan::Propagate).unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// [`one`] compares the bits of the ranks.
    #[test]
    fn all_ranks_have_the_same_bits(
        ranks in prop::collection::vec((prop::num::f64::ANY, 0.0..9.0f64), 1..6),
        how in 0usize..5,
        nan in 0usize..3,
    ) {
        let _ = floats(&ranks, How::ALL[how], Nan::ALL[nan]);
    }

    #[test]
    fn the_mean_of_equal_numbers_is_that_number(
        x in -1e3..1e3f64,
        weights in prop::collection::vec(0.1..99.0f64, 1..6),
    ) {
        let ranks: Vec<(f64, f64)> = weights.into_iter().map(|weight| (x, weight)).collect();
        prop_assert_eq!(floats(&ranks, How::Mean, Nan::Propagate), Ok(x));
        prop_assert_eq!(floats(&ranks, How::Variance, Nan::Propagate), Ok(0.0));
    }

    #[test]
    fn mean_and_variance_are_near_those_of_the_textbook(
        ranks in prop::collection::vec((-1e3..1e3f64, 0.5..9.0f64), 1..6),
    ) {
        let all: f64 = ranks.iter().map(|(_, w)| w).sum();
        let mean = ranks.iter().map(|(x, w)| x * w).sum::<f64>() / all;
        let variance = ranks.iter().map(|(x, w)| w * (x - mean).powi(2)).sum::<f64>() / all;
        prop_assert!((floats(&ranks, How::Mean, Nan::Propagate).unwrap() - mean).abs() < 1e-9);
        let ours = floats(&ranks, How::Variance, Nan::Propagate).unwrap();
        prop_assert!((ours - variance).abs() <= 1e-9 * variance.max(1.0));
    }
}
