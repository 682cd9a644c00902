//! Sweeps that have parts of one run, merged.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::answers::collect;
use crate::base::host::clock;
use crate::plan::site::Site;
use crate::submit::Source;
use crate::sweep::tree::line::Writer;
use crate::sweep::tree::records::{Event, Whole};

/// Trials that are equal, alone and in chains, and trials that are equal but for their chain.
const TRIALS: [&str; 9] = [
    "a = 0",
    "a = 1",
    "a = 1",
    "a = 2",
    "task_id = \"c\"\nb = 0",
    "task_id = \"c\"\nb = 0",
    "task_id = \"c\"\nb = 1",
    "task_id = \"d\"\nb = 0",
    "task_id = \"d\"\nb = 1",
];

/// Trials that no shard divides: equal ones, and those of a chain.
const GROUPS: [&[usize]; 5] = [&[0], &[1, 2], &[3], &[4, 5, 6], &[7, 8]];

fn plan(trials: &[&str]) -> String {
    let trials: String = trials.iter().map(|trial| format!("[[trials]]\n{trial}\n")).collect();
    format!(
        "version = 1\n[sweep]\nname = \"s\"\nroot = \".\"\n[run]\ncommand = [\"true\"]\nattempts = 2\n{trials}"
    )
}

/// An attempt of a trial: the number of its metric lines, and how it ended, if it did.
type Made = (u8, Option<bool>);

/// Makes a sweep of some trials of the plan; `record` gives the bytes of the records of each run of a trial.
fn sweep(folder: &Path, groups: &[usize], record: impl Fn(usize, u64) -> Vec<Vec<u8>>) -> Tree {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("plan.toml");
    fs::write(&path, plan(&TRIALS)).unwrap();
    let mut source = Source::read(&path).unwrap();
    let mut own: Vec<usize> = groups.iter().flat_map(|group| GROUPS[*group]).copied().collect();
    own.sort_unstable();
    let all = std::mem::take(&mut source.plan.trials);
    source.plan.trials = own.iter().map(|place| all[*place].clone()).collect();
    let tree = source.tree();
    disk::make_dir(tree.dir()).unwrap();
    tree.create("s", crate::base::host::access::Access::default()).unwrap();
    let site = Site::default();
    let templates = source.templates(None, &site).unwrap();
    let diff = grow::diff(&tree, &source).unwrap();
    grow::grow(&tree, &source, &diff, &templates, &site).unwrap();
    for (place, id) in own.iter().zip(0..) {
        for (bytes, run) in record(*place, id).iter().zip(1..) {
            let path = tree.record(id, run);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    tree
}

/// The records of the runs of a trial, one attempt each.
fn runs(folder: &Path, place: usize, id: u64, made: &[Made]) -> Vec<Vec<u8>> {
    let path = folder.join(format!("lines-{}", clock::short_token()));
    let mut earlier = 0;
    let run = |(number, (lines, end)): (u32, &Made)| {
        let _ = fs::remove_file(&path);
        let mut writer = Writer::new(disk::create_new(&path).unwrap(), path.clone(), earlier);
        let time = 1000.0 * place as f64 + 10.0 * f64::from(number);
        let event = |value: Value| serde_json::from_value::<Event>(value).unwrap();
        let base = json!({"trial": id, "attempt": number, "time": time});
        let with = |more: Value| {
            let mut all = base.as_object().unwrap().clone();
            all.extend(more.as_object().unwrap().clone());
            event(Value::Object(all))
        };
        let mut events =
            vec![with(json!({"event": "start", "host": "n1", "pid": 7, "version": "1"}))];
        for line in 0..*lines {
            let rows = json!([{"epoch": line, "loss": f64::from(line) + time}]);
            events.push(with(json!({"event": "metrics", "rows": rows})));
        }
        if let Some(is_done) = end {
            let state = if *is_done { "done" } else { "failed" };
            let code = i32::from(!is_done);
            events.push(with(json!({
                "event": "end", "state": state, "exit_code": code, "duration_s": 2.5, "peak_memory": 9,
            })));
        }
        events.iter().for_each(|event| writer.push(&Whole(event)).unwrap());
        writer.flush().unwrap();
        earlier += events.len() as u64;
        fs::read(&path).unwrap()
    };
    let all = (1..).zip(made).map(run).collect();
    let _ = fs::remove_file(&path);
    all
}

fn status(tree: &Tree) -> Status {
    let (tree, identity) = Tree::open(tree.dir()).unwrap();
    crate::sweep::status::read(tree, identity, None).unwrap()
}

/// The table of a sweep and the learning curves of its trials, as text.
fn table(tree: &Tree) -> String {
    let own = status(tree);
    assert_eq!(own.damage, []);
    let mut text = String::new();
    for row in &own.rows {
        text.push_str(&format!("{} {} {:?}\n", row.id, row.task_text(), row.after));
        collect::each_step(&own, row.id, |values| text.push_str(&format!("{values:?}\n"))).unwrap();
    }
    let table = collect::collect(vec![own]).unwrap();
    text.push_str(&format!("{:?}\n", table.columns));
    table
        .rows
        .iter()
        .for_each(|row| text.push_str(&format!("{} {:?}\n", row.trial, table.cells(row))));
    text
}

/// The files of the records of a sweep.
fn files(tree: &Tree) -> Vec<(String, Vec<u8>)> {
    let folder = tree.dir().join("records/000");
    let names = disk::list(&folder).unwrap();
    names.into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}

fn merged(trees: &[&Tree], to: &Path) -> Tree {
    let all: Vec<Status> = trees.iter().map(|tree| status(tree)).collect();
    merge(&all, None, &[], to).unwrap();
    Tree::at(to)
}

/// What a copy of a run has lost: nothing, all from a byte on, or a byte that is another one.
#[derive(Debug, Clone, Copy)]
enum Lost {
    Nothing,
    From(usize),
    Byte(usize),
    All,
}

impl Lost {
    fn of(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match self {
            Self::Nothing => {}
            Self::From(at) => bytes.truncate(at % (bytes.len() + 1)),
            Self::Byte(at) => {
                let at = at % bytes.len();
                bytes[at] ^= 1;
            }
            Self::All => return None,
        }
        Some(bytes)
    }
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![
        2 => Just(Lost::Nothing),
        2 => any::<usize>().prop_map(Lost::From),
        2 => any::<usize>().prop_map(Lost::Byte),
        1 => Just(Lost::All),
    ]
}

/// Failures, and then perhaps a success or an attempt that left no end.
fn made() -> impl Strategy<Value = Vec<Made>> {
    let last = prop_oneof![Just(Some(true)), Just(None), Just(Some(false))];
    (proptest::collection::vec((0..3u8, Just(Some(false))), 0..3), 0..4u8, last, any::<bool>())
        .prop_map(|(mut all, lines, end, is_there)| {
            all.extend(is_there.then_some((lines, end)));
            all
        })
}

const SWEEPS: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Whatever parts of one run several sweeps have, one of them each part whole.
    #[test]
    fn shards_overlaps_parts_and_damage_make_the_table_of_one_run(
        all in proptest::collection::vec(made(), TRIALS.len()),
        owners in proptest::collection::vec(0..SWEEPS, GROUPS.len()),
        others in proptest::collection::vec(proptest::collection::vec(any::<bool>(), GROUPS.len()), SWEEPS),
        losses in proptest::collection::vec(lost(), SWEEPS * TRIALS.len() * 3),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let one = sweep(&at("one"), &[0, 1, 2, 3, 4], |place, id| runs(dir.path(), place, id, &all[place]));
        let group_of = |place: usize| GROUPS.iter().position(|group| group.contains(&place)).unwrap();
        let trees: Vec<Tree> = (0..SWEEPS).map(|n| {
            let has = |group: &usize| owners[*group] == n || others[n][*group];
            let own: Vec<usize> = (0..GROUPS.len()).filter(has).collect();
            let own = if own.is_empty() { vec![0] } else { own };
            sweep(&at(&format!("part{n}")), &own, |place, id| {
                let whole = runs(dir.path(), place, id, &all[place]);
                if owners[group_of(place)] == n {
                    return whole;
                }
                let loss = |run: usize| losses[(n * TRIALS.len() + place) * 3 + run];
                // A run has no gap before it.
                whole.iter().enumerate().map_while(|(run, bytes)| loss(run).of(bytes)).collect()
            })
        }).collect();
        let trees: Vec<&Tree> = trees.iter().collect();
        let merged_once = merged(&trees, &at("m1"));
        let expected = table(&one);
        prop_assert_eq!(&table(&merged_once), &expected);
        // Once more, with any of them, and in another order: nothing changes.
        for (n, part) in trees.iter().enumerate() {
            let again = merged(&[&merged_once, part], &at(&format!("again{n}")));
            prop_assert_eq!(files(&again), files(&merged_once));
            let turned = merged(&[part, &merged_once], &at(&format!("turned{n}")));
            prop_assert_eq!(&table(&turned), &expected);
        }
        let reversed: Vec<&Tree> = trees.iter().rev().copied().collect();
        prop_assert_eq!(&table(&merged(&reversed, &at("reversed"))), &expected);
    }
}

#[test]
fn a_trial_that_is_done_in_one_sweep_and_failed_in_another_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let failed = |place: usize, id: u64| runs(dir.path(), place, id, &[(1, Some(false))]);
    // Its second attempt was elsewhere, and came later.
    let done = |place: usize, id: u64| {
        let mut all = runs(dir.path(), place, id, &[(1, Some(false)), (2, Some(true))]);
        vec![all.remove(1)]
    };
    let a = sweep(&dir.path().join("a"), &[0], failed);
    let b = sweep(&dir.path().join("b"), &[0], done);
    for (n, order) in [[&a, &b], [&b, &a]].iter().enumerate() {
        let one = merged(order, &dir.path().join(format!("m{n}")));
        let own = status(&one);
        assert_eq!(own.standings[0].state.word(), "done");
        let numbers: Vec<(u32, u32)> =
            own.records[&0].attempts.iter().map(|a| (a.run, a.start.attempt)).collect();
        assert_eq!(numbers, [(1, 1), (2, 2)]);
    }
}

#[test]
fn what_a_failed_attempt_saved_is_not_paired_with_the_result_of_another() {
    let dir = tempfile::tempdir().unwrap();
    // The last of these attempts.
    let last = |made: Vec<Made>| {
        let folder = dir.path();
        move |place: usize, id: u64| vec![runs(folder, place, id, &made).pop().unwrap()]
    };
    let (bad, good) = ((1, Some(false)), (1, Some(true)));
    let failed = sweep(&dir.path().join("failed"), &[0], last(vec![bad]));
    let done = sweep(&dir.path().join("done"), &[0], last(vec![bad, good]));
    let copied = dir.path().join("copied");
    copy::folder(done.dir(), &copied, &|_| true).unwrap();
    let copied = Tree::at(&copied);
    let save = |tree: &Tree, text: &str| {
        fs::create_dir_all(tree.work(0)).unwrap();
        fs::write(tree.work(0).join("saved"), text).unwrap();
    };
    save(&failed, "by the failed attempt");
    let saved = |trees: &[&Tree], name: &str| {
        let one = merged(trees, &dir.path().join(name));
        fs::read_to_string(one.work(0).join("saved")).ok()
    };
    assert_eq!(saved(&[&failed, &done], "m0"), None);
    // A copy with the attempt that counts has its files.
    save(&copied, "by the attempt that is done");
    let by_done = Some("by the attempt that is done".to_owned());
    assert_eq!(saved(&[&failed, &done, &copied], "m1"), by_done);
    // What no attempt has finished goes on from what there is.
    assert_eq!(saved(&[&failed], "m2").as_deref(), Some("by the failed attempt"));
}
