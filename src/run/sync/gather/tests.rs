//! What gathers promise, over threads. The promised results of whole cases are in
//! `tests/it/python/sync.rs`.

use proptest::prelude::*;

use super::super::peers::Alone;
use super::super::{absent, threads};
use super::*;

const PLAIN: Flags = Flags { double_precision: false, concat: true, return_tensor: true };

fn list(numbers: &[f64]) -> Value {
    Value::from_numbers(Form::List, vec![numbers.len() as u64], numbers)
}

fn ints(numbers: &[i64]) -> Value {
    Value::from_numbers(Form::List, vec![numbers.len() as u64], numbers)
}

/// Syncs one value a rank, then something that must work; returns what all ranks got, which is the same.
fn sync(ranks: &[Result<Value, String>], flags: Flags) -> Result<Synced, Fault> {
    let mut all = threads::run(ranks.len() as u32, |peers| {
        let mine = ranks[peers.rank() as usize].clone();
        let got = mp_sync(peers, mine, flags);
        let after = mp_sync(peers, Ok(Value::int(1)), PLAIN);
        assert_eq!(after, Ok(joined(Form::Tensor, &vec![1i64; ranks.len()])));
        got
    });
    assert!(all.iter().all(|other| *other == all[0]), "{all:?}");
    all.swap_remove(0)
}

fn joined<T: super::super::value::Element>(form: Form, numbers: &[T]) -> Synced {
    Synced::Joined(Value::from_numbers(form, vec![numbers.len() as u64], numbers))
}

#[test]
fn an_empty_list_takes_the_type_of_the_others() {
    let got = sync(&[Ok(list(&[])), Ok(ints(&[1 << 53 | 1])), Ok(list(&[]))], PLAIN);
    assert_eq!(got, Ok(joined(Form::Tensor, &[(1i64 << 53) | 1])));
    let rows = Value::from_numbers(Form::Array, vec![1, 2], &[1.0f64, 2.0]);
    let got = sync(&[Ok(list(&[])), Ok(rows.clone())], Flags { return_tensor: false, ..PLAIN });
    assert_eq!(got, Ok(Synced::Joined(rows)));
    assert_eq!(sync(&[Ok(list(&[])), Ok(list(&[]))], PLAIN), Ok(joined::<f32>(Form::Tensor, &[])));
    // An array has a type, empty or not.
    let none = Value::from_numbers::<f64>(Form::Array, vec![0], &[]);
    assert_eq!(sync(&[Ok(none), Ok(ints(&[1]))], PLAIN), Ok(joined(Form::Tensor, &[1.0f64])));
}

#[test]
fn types_that_differ_become_the_common_one_in_one_step() {
    let got = sync(&[Ok(list(&[1.5])), Ok(ints(&[1, 2]))], PLAIN);
    assert_eq!(got, Ok(joined(Form::Tensor, &[1.5f32, 1.0, 2.0])));
    // A plain float is not rounded to float32 on its way to float64.
    let wide = Value::from_numbers(Form::Tensor, vec![1], &[0.2f64]);
    assert_eq!(
        sync(&[Ok(list(&[0.1])), Ok(wide)], PLAIN),
        Ok(joined(Form::Tensor, &[0.1f64, 0.2]))
    );
    let small = Value::from_numbers(Form::Array, vec![1], &[200u8]);
    let signed = Value::from_numbers(Form::Array, vec![1], &[-1i8]);
    let got = sync(&[Ok(small), Ok(signed)], Flags { return_tensor: false, ..PLAIN });
    assert_eq!(got, Ok(joined(Form::Array, &[200i16, -1])));
}

#[test]
fn apart_every_rank_has_what_it_alone_would_get() {
    let flags = Flags { concat: false, return_tensor: false, ..PLAIN };
    let array = Value::from_numbers(Form::Array, vec![3, 1], &[1i32, 2, 3]);
    let got = sync(&[Ok(array.clone()), Ok(Value::float(0.5)), Ok(list(&[]))], flags);
    let half = Value::from_numbers(Form::List, vec![1], &[0.5f32]);
    let none = Value::from_numbers::<f32>(Form::List, vec![0], &[]);
    assert_eq!(got, Ok(Synced::PerRank(vec![array, half, none])));
}

#[test]
fn more_than_eight_dimensions_work() {
    let value = |x: f64| Value::from_numbers(Form::Array, vec![1; 11], &[x]);
    let mut shape = vec![1; 11];
    shape[0] = 2;
    let whole = Value::from_numbers(Form::Tensor, shape, &[1.0, 2.0]);
    assert_eq!(sync(&[Ok(value(1.0)), Ok(value(2.0))], PLAIN), Ok(Synced::Joined(whole)));
    let sentence = sync(&[Ok(value(1.0)), Ok(list(&[1.0]))], PLAIN).unwrap_err().sentence;
    assert_eq!(
        sentence,
        "the shapes differ beyond the first dimension: \
         [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] on rank 0, [1] on rank 1"
    );
}

#[test]
fn what_cannot_work_is_one_sentence_on_every_rank() {
    let said = |ranks: &[Result<Value, String>]| sync(ranks, PLAIN).unwrap_err().to_string();
    let no = |why: &str| Err(why.to_owned());
    assert_eq!(
        said(&[Ok(list(&[1.0])), no("cannot sync a `str`")]),
        "rank 1: cannot sync a `str`\n\
         hint: numbers, truth values, lists of them, arrays and tensors can be synced"
    );
    assert_eq!(
        said(&[no("a"), no("b"), Ok(list(&[])), no("a")]).lines().next().unwrap(),
        "ranks 0 and 3: a; rank 1: b"
    );
    let shaped =
        |shape: [u64; 2]| Ok(Value::from_numbers(Form::Array, shape.to_vec(), &[0.0f64; 6]));
    assert_eq!(
        said(&[shaped([2, 3]), shaped([3, 2]), shaped([2, 3])]).lines().next().unwrap(),
        "the shapes differ beyond the first dimension: [2, 3] on ranks 0 and 2, [3, 2] on rank 1"
    );
    let short = Value { data: vec![0; 7], ..list(&[1.0]) };
    assert_eq!(
        said(&[Ok(short), Ok(list(&[]))]).lines().next().unwrap(),
        "rank 0: `float64` of the shape [1] takes 8 bytes, and there are 7"
    );
    let complex = Value { form: Form::Array, dtype: Dtype::Complex64, ..list(&[1.0]) };
    assert_eq!(
        said(&[Ok(list(&[])), Ok(complex)]).lines().next().unwrap(),
        "complex numbers cannot be synced: `complex64` on rank 1"
    );
}

#[test]
fn flags_that_differ_are_told() {
    let all = threads::run(3, |peers| {
        let flags = Flags { concat: peers.rank() != 1, ..PLAIN };
        mp_sync(peers, Ok(Value::int(1)), flags).unwrap_err().sentence
    });
    let sentence = "the ranks disagree on `concat`: true on ranks 0 and 2, false on rank 1";
    assert_eq!(all, [sentence; 3]);
}

#[test]
fn maps_meet_by_key() {
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let all = threads::run(2, |peers| {
        let x = 10.0 * f64::from(peers.rank());
        let mut items = vec![
            (path("b"), Ok(list(&[2.0 + x, 3.0][..2 - peers.rank() as usize]))),
            (path("a.deep"), Ok(Value::float(1.0 + x))),
            // Large enough to go alone, between the small ones.
            (path("a.large"), Ok(Value::from_numbers(Form::Tensor, vec![9000], &[x; 9000]))),
        ];
        if peers.rank() == 1 {
            items.reverse();
        }
        mp_sync_map(peers, items, PLAIN).unwrap()
    });
    let large: Vec<f64> = [[0.0; 9000], [10.0; 9000]].concat();
    let expected = vec![
        (path("a.deep"), joined(Form::Tensor, &[1.0f32, 11.0])),
        (path("a.large"), joined(Form::Tensor, &large)),
        (path("b"), joined(Form::Tensor, &[2.0f32, 3.0, 12.0])),
    ];
    assert_eq!(all, [expected.clone(), expected]);
}

#[test]
fn maps_that_do_not_fit_name_key_and_rank() {
    let key = |name: &str| vec!["m".to_owned(), name.to_owned()];
    let no = || Err("cannot sync a `str`".to_owned());
    let all = threads::run(2, |peers| {
        let second = peers.rank() == 1;
        let mut go = |items| mp_sync_map(peers, items, PLAIN).unwrap_err().sentence;
        let both = vec![(key("a"), Ok(Value::int(1))), (key("b"), Ok(Value::int(2)))];
        let last = if second { vec![both[0].clone()] } else { both.clone() };
        let bad = vec![(key("a"), if second { no() } else { Ok(Value::int(1)) })];
        let twice = if second { vec![both[0].clone(), both[0].clone()] } else { both.clone() };
        let none = if second { vec![(Vec::new(), no())] } else { both };
        let one = |value| vec![(key("a"), Ok(value))];
        let shapes = one(Value::from_numbers(
            Form::Array,
            vec![1, 1 + u64::from(second)],
            &[0u8, 0][usize::from(!second)..],
        ));
        [go(last), go(bad), go(twice), go(none), go(shapes)]
    });
    let expected = [
        "the key `m.b` is missing on rank 1",
        "rank 1, key `m.a`: cannot sync a `str`",
        "rank 1 brings the key `m.a` twice",
        // A value that is not a map lacks every key, so no error names the keys.
        "rank 1: cannot sync a `str`",
        "`m.a`: the shapes differ beyond the first dimension: [1, 1] on rank 0, [1, 2] on rank 1",
    ];
    assert_eq!(all, [expected; 2]);
}

#[test]
fn a_rank_that_has_ended_is_an_error_to_the_others_until_all_have() {
    let all = threads::run(3, |peers| {
        let why = "its program has ended";
        if peers.rank() == 2 {
            return (0..3).map(|_| absent(peers, why).unwrap().to_string()).collect::<Vec<_>>();
        }
        let single = mp_sync(peers, Ok(Value::int(1)), PLAIN).unwrap_err().sentence;
        let map = mp_sync_map(peers, Vec::new(), PLAIN).unwrap_err().sentence;
        vec![single, map, absent(peers, why).unwrap().to_string()]
    });
    let told = ["rank 2: its program has ended", "rank 2: its program has ended", "true"];
    assert_eq!(all, [told.to_vec(), told.to_vec(), vec!["false", "false", "true"]]);
}

#[test]
fn one_process_alone_has_its_own_value() {
    let got = |value, flags| mp_sync(&mut Alone, Ok(value), flags).unwrap();
    assert_eq!(got(Value::float(0.1), PLAIN), joined(Form::Tensor, &[0.1f32]));
    let double = Flags { double_precision: true, return_tensor: false, ..PLAIN };
    let truth = Value { dtype: Dtype::Bool, data: vec![1], ..Value::int(0) };
    assert_eq!(got(truth, double), joined(Form::List, &[1.0f64]));
}

/// Any value, right or wrong, as few bytes.
fn any_value() -> impl Strategy<Value = Result<Value, String>> {
    let shape = prop::collection::vec(0u64..3, 0..4);
    (0usize..5, 0usize..12, shape, 0u8..20, any::<u8>()).prop_map(
        |(form, dtype, shape, odd, fill)| {
            let (form, dtype) = (Form::ALL[form], Dtype::ALL[dtype]);
            let shape =
                if matches!(form, Form::Scalar | Form::Number) { Vec::new() } else { shape };
            let count = shape.iter().product::<u64>() as usize;
            match odd {
                0 => Err("cannot sync a `str`".to_owned()),
                1 => Ok(Value { form, dtype, shape, data: vec![fill; 3] }),
                _ => Ok(Value { form, dtype, shape, data: vec![fill; count * dtype.size()] }),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// [`sync`] checks that all ranks get the same, and that the next call works.
    #[test]
    fn nothing_panics_or_differs_between_ranks(
        ranks in prop::collection::vec(any_value(), 1..6),
        code in 0u16..8,
    ) {
        if let Ok(Synced::Joined(value)) = sync(&ranks, Flags::from_code(code)) {
            prop_assert_eq!(value.check(), Ok(()));
        }
    }

    /// Every rank makes some call of its own.
    #[test]
    fn calls_that_meet_by_mistake_end_alike(
        ranks in prop::collection::vec((0u8..4, any_value(), 0u16..8, 0u8..3), 1..6),
    ) {
        let all = threads::run(ranks.len() as u32, |peers| {
            let (call, value, code, keys) = ranks[peers.rank() as usize].clone();
            let flags = Flags::from_code(code);
            let key = |i: u8| vec![i.to_string()];
            let got = match call {
                0 => mp_sync(peers, value, flags).map(|synced| vec![(Vec::new(), synced)]),
                1 | 2 => {
                    let items = (0..keys).rev().map(|i| (key(i), value.clone()));
                    mp_sync_map(peers, items.collect(), flags)
                }
                _ => absent(peers, "gone").map(|_| Vec::new()),
            };
            mp_sync(peers, Ok(Value::int(1)), PLAIN).unwrap();
            (call == 3, got)
        });
        let callers: Vec<_> = all.iter().filter(|(absent, _)| !absent).collect();
        prop_assert!(callers.iter().all(|other| *other == callers[0]), "{all:?}");
        prop_assert!(callers.len() == all.len() || callers.iter().all(|(_, got)| got.is_err()));
    }
}
