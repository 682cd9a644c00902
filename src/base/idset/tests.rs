//! Sets and job ids as tables, and as sets should behave.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[track_caller]
fn prints(text: &str, expected: &str) {
    assert_eq!(ArraySpec::parse(text).unwrap().to_string(), expected);
}

#[test]
fn a_set_prints_in_its_shortest_form() {
    prints("0-9:2,14%3", "0-8:2,14%3");
    prints("7", "7");
    prints("3,1,2", "1-3");
    prints("1,2", "1-2");
    prints("1,3", "1,3");
    prints("1,3,5", "1-5:2");
    prints("0,2,3,4,5", "0,2-5");
    prints("0,2,4,5,6,7,10,20,30", "0,2,4-7,10-30:10");
    prints("5-5", "5");
    prints("00-03", "0-3");
    prints("1-4,3-9,2", "1-9");
    prints("0-4000000", "0-4000000");
}

#[test]
fn a_wrong_set_is_a_fault() {
    let refused = |text: &str, expected: &str| {
        assert_eq!(ArraySpec::parse(text).unwrap_err().sentence, expected);
    };
    let whole = |text: &str, why: &str| {
        refused(text, &format!("`{text}` is not a set of array indices: {why}"));
    };
    whole("", "`` is not an index or a range");
    whole("1,,2", "`` is not an index or a range");
    whole("-3", "`-3` is not an index or a range");
    whole("+3", "`+3` is not an index or a range");
    whole("1 ", "`1 ` is not an index or a range");
    whole("3-1", "`3-1` runs backwards");
    whole("0-9:0", "the step of `0-9:0` is 0");
    whole("7:2", "the step of `7:2` has no range");
    whole("4000001", "4000001 is too large");
    whole("99999999999", "`99999999999` is not an index or a range");
    refused("0-9%0", "`0-9%0` has a wrong throttle: `%0`");
    refused("0-9%", "`0-9%` has a wrong throttle: `%`");
}

#[test]
fn job_ids_come_in_all_forms() {
    let check = |text: &str, job, part, step: Option<&str>| {
        let expected = JobRef { job, part, step: step.map(str::to_owned) };
        assert_eq!(JobRef::parse(text).unwrap(), expected, "{text}");
    };
    let waiting =
        |ids, throttle, cut| Part::Waiting { ids: IdSet::parse(ids).unwrap(), throttle, cut };
    check("12", 12, Part::Whole, None);
    check("12_7", 12, Part::Task(7), None);
    check("12_[0-10000]", 12, waiting("0-10000", None, false), None);
    check("12_[3-4%2]", 12, waiting("3-4", Some(2), false), None);
    check("12_[3-4%2,8]", 12, waiting("3-4,8", Some(2), false), None);
    check("12_[0-20:4%3]", 12, waiting("0-20:4", Some(3), false), None);
    check("12+1", 12, Part::Component(1), None);
    check("12.batch", 12, Part::Whole, Some("batch"));
    check("12_7.0", 12, Part::Task(7), Some("0"));
    check("12+1.extern", 12, Part::Component(1), Some("extern"));
}

/// `xlate_array_task_str` (slurm_protocol_defs.c) overwrites the last three characters.
#[test]
fn a_shortened_job_id_keeps_only_whole_indices() {
    let check = |text: &str, expected: &str, limit| {
        let ids = IdSet::parse(expected).unwrap();
        let part = Part::Waiting { ids, throttle: limit, cut: true };
        assert_eq!(JobRef::parse(text).unwrap().part, part, "{text}");
    };
    check("12_[1,3,5,1...]", "1,3,5", None);
    check("12_[1,3,5,...%4]", "1,3,5", Some(4));
    check("12_[1,3-5,7-...]", "1,3-5", None);
}

#[test]
fn what_is_no_job_id_is_a_fault() {
    for text in ["", "x", "12_", "12_x", "12_[3", "12_[]", "12+", "12.", "12 ", "12_7x", "-1"] {
        let fault = JobRef::parse(text).unwrap_err();
        assert!(fault.sentence.contains(" is not a "), "{text}: {fault}");
    }
}

fn ids() -> impl Strategy<Value = BTreeSet<u32>> {
    prop_oneof![
        proptest::collection::btree_set(0u32..60, 0..40),
        proptest::collection::btree_set(0u32..=MAX_INDEX, 0..10),
        (0u32..50, 1u32..9, 1usize..30)
            .prop_map(|(a, step, n)| (a..).step_by(step as usize).take(n).collect()),
    ]
}

#[test]
fn a_short_text_that_names_all_indices_again_and_again_is_refused() {
    let text = vec!["0-4000000:2"; 300].join(",");
    let fault = IdSet::parse(&text).unwrap_err();
    assert!(fault.sentence.ends_with("it names them again and again"), "{fault}");
    assert_eq!(
        IdSet::parse("0-4000000:2,1-4000000:2").unwrap(),
        IdSet::parse("0-4000000").unwrap()
    );
}

proptest! {
    #[test]
    fn parse_undoes_print(ids in ids(), throttle in proptest::option::of(1u32..100)) {
        prop_assume!(!ids.is_empty());
        let set: IdSet = ids.iter().copied().collect();
        prop_assert!(set.iter().eq(ids.iter().copied()));
        prop_assert_eq!(set.len(), ids.len());
        let spec = ArraySpec { ids: set, throttle };
        prop_assert_eq!(ArraySpec::parse(&spec.to_string()).unwrap(), spec.clone());
        let id = JobRef {
            job: 9,
            part: Part::Waiting { ids: spec.ids, throttle, cut: false },
            step: None,
        };
        prop_assert_eq!(JobRef::parse(&id.to_string()).unwrap(), id);
    }

    #[test]
    fn sets_behave_as_sets(a in ids(), b in ids(), id in 0u32..70) {
        let (x, y): (IdSet, IdSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        prop_assert_eq!(x.contains(id), a.contains(&id));
        prop_assert!(x.union(&y).iter().eq(a.union(&b).copied()));
    }

    #[test]
    fn no_text_breaks_it(text in "[0-9_+%:,.\\[\\]-]{0,16}") {
        let _ = JobRef::parse(&text);
        let _ = ArraySpec::parse(&text);
    }
}

/// Sweeps have more trials than arrays have elements.
#[test]
fn numbers_of_trials_may_be_larger_than_any_index() {
    let text = "0-4,4000001,9000000-9999999";
    let trials = IdSet::of_numbers(text).unwrap();
    assert_eq!((trials.len(), trials.to_string().as_str()), (1_000_006, text));
    assert!(trials.contains(9_999_999) && !trials.contains(10_000_000));
    assert!(IdSet::parse(text).is_err());
    let fault = IdSet::of_numbers("0-100000000:2").unwrap_err();
    assert!(fault.sentence.ends_with("it names them again and again"), "{fault}");
    assert!(IdSet::of_numbers("0-4294967295").is_err());
}
