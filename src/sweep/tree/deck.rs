//! Decks: the units that agents take, in the order in which they are to be begun. `pull/0001.json` says how
//! many there are, and commits the deck; `.map` has their trials (see [`super::numbers`]), unit after unit; `.units`
//! has the first entry of each unit in the map, where a unit may have more than one trial.
//!
//! Units are numbered through all decks of a sweep. Finding the trials of some takes two small reads,
//! whatever their number.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::{FORMAT, Tree, document, numbers, write_document};
use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::host::gpus::DeviceId;
use crate::base::idset::IdSet;
use crate::plan::{Learn, MAX_TRIALS, Pull, Resources, Retry};

/// One submission to agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deck {
    /// Format of the tree.
    pub(crate) format: u32,
    /// Number of the deck, from 1.
    pub(crate) deck: u32,
    /// Number of its first unit, counted through all decks from 0.
    pub(crate) first: u64,
    /// How many units it has.
    pub(crate) count: u64,
    pub(crate) trials: u64,
    /// Whether a unit may have more than one trial.
    pub(crate) chains: bool,
    /// Unix seconds.
    pub(crate) created: f64,
    /// How many entries the ledger had: what they say of trials is about earlier units.
    #[serde(default)]
    pub(crate) seq: u64,
    /// Hash of the plan's text: who comes with the same plan has nothing to add.
    pub(crate) plan: String,
    /// Most trials that run at once, over all agents.
    pub(crate) max_running: Option<u32>,
    /// Cores that a slot needs: those of the largest trial.
    pub(crate) cores: u32,
    /// GPUs that a slot needs.
    pub(crate) gpus: u32,
    /// Slots that use a GPU at the same time.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) gpu_share: u32,
    /// Where calls run on exactly the devices that their trials name: all of these. An agent takes devices for each trial
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<Vec<DeviceId>>,
    /// Memory that a slot needs, MiB.
    pub(crate) memory_mib: Option<u64>,
    /// Trials (`0-9,14`) for which the plan asks for something else now than their table says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<(String, Resources)>,
    /// Trials (`0-9,14`) whose requests hold until they have run, whatever the plan asks for: those of `retry`, and of `[retry]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) own_requests: Vec<(String, Resources)>,
    /// Trials (`0-9,14`) that have had too little memory: nothing else runs beside one, for it would have no more now.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) alone: String,
    /// Trials (`0-9,14`) whose memory is learnt, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) memory: Vec<(String, Learn)>,
    /// What agents start that serve no program yet, where the trials call a function; see
    /// [`crate::plan::Run::program`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) program: Vec<String>,
    /// Whether the plan itself asks for agents (`mode = "pull"`), and not the command line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_plan: bool,
    /// How agents share the sweep from now on.
    pub(crate) pull: Pull,
    /// Which of its trials agents repeat; `None` where they decide nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<Retry>,
}

impl Deck {
    /// Whether nothing else may run beside a trial.
    pub(crate) fn has_alone(&self, trial: u64) -> bool {
        !self.alone.is_empty() && IdSet::of_numbers(&self.alone).is_ok_and(|alone| alone.has(trial))
    }
}

fn file(tree: &Tree, deck: u32, ending: &str) -> PathBuf {
    tree.dir().join(format!("pull/{deck:04}.{ending}"))
}

/// Older decks do not say how many slots share a GPU.
fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(share: &u32) -> bool {
    *share == 1
}

/// The content of a deck besides its units; see [`Deck`].
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// How many entries the ledger has.
    pub(crate) seq: u64,
    /// Hash of the plan's text.
    pub(crate) plan: &'a str,
    /// Most trials at once.
    pub(crate) max_running: Option<u32>,
    /// Cores of a slot.
    pub(crate) cores: u32,
    /// GPUs of a slot.
    pub(crate) gpus: u32,
    /// Slots that use a GPU at the same time.
    pub(crate) gpu_share: u32,
    /// Those that trials name.
    pub(crate) devices: Option<&'a [DeviceId]>,
    /// Memory of a slot.
    pub(crate) memory_mib: Option<u64>,
    /// The plan's current requests; see [`Deck::requests`].
    pub(crate) requests: &'a [(String, Resources)],
    /// Requests that hold until their trials have run; see [`Deck::own_requests`].
    pub(crate) own_requests: &'a [(String, Resources)],
    /// The trials beside which nothing else runs; see [`Deck::alone`].
    pub(crate) alone: &'a str,
    /// Whose memory is learnt; see [`Deck::memory`].
    pub(crate) memory: &'a [(String, Learn)],
    /// What agents start that serve no program.
    pub(crate) program: &'a [String],
    /// Whether the plan itself asks for agents.
    pub(crate) by_plan: bool,
    /// How agents share the sweep.
    pub(crate) pull: &'a Pull,
    /// Which trials agents repeat.
    pub(crate) retry: Option<&'a Retry>,
}

impl<'a> Terms<'a> {
    /// Slots of one core for trials that ask for nothing else, without limits.
    pub fn new(pull: &'a Pull) -> Self {
        Self {
            seq: 0,
            plan: "",
            max_running: None,
            cores: 1,
            gpus: 0,
            gpu_share: 1,
            devices: None,
            memory_mib: None,
            requests: &[],
            own_requests: &[],
            alone: "",
            memory: &[],
            program: &[],
            by_plan: false,
            pull,
            retry: None,
        }
    }
}

/// Writes the next deck of a sweep; its head goes last and commits it. The caller holds the lock.
///
/// # Errors
/// When the disk refuses.
pub fn write(tree: &Tree, before: &[Deck], units: &[Vec<u64>], terms: Terms<'_>) -> Result<Deck> {
    let Terms { seq, plan, max_running, cores, gpus, gpu_share, memory_mib, .. } = terms;
    let Terms {
        requests, own_requests, alone, memory, program, by_plan, pull, devices, retry, ..
    } = terms;
    let deck = Deck {
        format: FORMAT,
        deck: before.last().map_or(0, |d| d.deck) + 1,
        first: before.last().map_or(0, |d| d.first + d.count),
        count: units.len() as u64,
        trials: units.iter().map(|unit| unit.len() as u64).sum(),
        chains: units.iter().any(|unit| unit.len() != 1),
        created: crate::base::host::clock::now(),
        seq,
        plan: plan.to_owned(),
        max_running,
        cores,
        gpus,
        gpu_share,
        devices: devices.map(<[DeviceId]>::to_vec),
        memory_mib,
        requests: requests.to_vec(),
        own_requests: own_requests.to_vec(),
        alone: alone.to_owned(),
        memory: memory.to_vec(),
        program: program.to_vec(),
        by_plan,
        pull: pull.clone(),
        retry: retry.cloned(),
    };
    disk::make_dir(&tree.dir().join("pull"))?;
    numbers::write(&file(tree, deck.deck, "map"), units.iter().flatten().copied())?;
    if deck.chains {
        let starts = units.iter().scan(0, |next, unit| {
            let start = *next;
            *next += unit.len() as u64;
            Some(start)
        });
        numbers::write(&file(tree, deck.deck, "units"), starts)?;
    }
    write_document(&file(tree, deck.deck, "json"), &deck)?;
    Ok(deck)
}

/// The decks that are not in `known` yet.
///
/// # Errors
/// When one exists but cannot be read.
pub(crate) fn after(tree: &Tree, known: &[Deck]) -> Result<Vec<Deck>> {
    let mut new = Vec::new();
    loop {
        let number = (known.len() + new.len()) as u32 + 1;
        let path = file(tree, number, "json");
        let Some(bytes) = disk::read_small_if_there(&path)? else { return Ok(new) };
        new.push(sound(&bytes, number, &path)?);
    }
}

/// The deck with this number, if its numbers can be true.
fn sound(bytes: &[u8], number: u32, path: &Path) -> Result<Deck> {
    let deck: Deck = document(bytes, path)?;
    let is_sound = deck.deck == number
        && deck.first < numbers::END
        && [deck.count, deck.trials].iter().all(|n| *n <= MAX_TRIALS);
    if is_sound { Ok(deck) } else { Err(numbers::damaged(path).into()) }
}

/// Adds the decks that are missing: before others, and all of them where agents have `joined`.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn missing(tree: &Tree, joined: bool, damage: &mut Damage) -> Result<()> {
    let all = numbered(tree)?;
    for number in numbers::gaps(&all, joined && all.is_empty()) {
        damage.add(&format!("pull/{number:04}.json"), 1);
    }
    Ok(())
}

fn numbered(tree: &Tree) -> Result<Vec<u32>> {
    let names = disk::list(&tree.dir().join("pull"))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
}

/// Damage of all decks. If a deck's head or list is damaged, no agent can continue.
///
/// # Errors
/// When a file cannot be read.
pub fn damage(tree: &Tree, damage: &mut Damage) -> Result<()> {
    for number in numbered(tree)? {
        let path = file(tree, number, "json");
        let Ok(deck) = sound(&disk::read_small(&path)?, number, &path) else {
            damage.add(&format!("pull/{number:04}.json"), 1);
            continue;
        };
        let lists = [("map", deck.trials), ("units", if deck.chains { deck.count } else { 0 })];
        for (ending, count) in lists.into_iter().filter(|(_, count)| *count > 0) {
            let path = file(tree, number, ending);
            let faulty = numbers::faulty(&numbers::all(&path, count)?, count);
            damage.add(&format!("pull/{number:04}.{ending}"), faulty);
        }
    }
    Ok(())
}

/// All decks of a sweep.
///
/// # Errors
/// When one cannot be read.
pub fn read(tree: &Tree) -> Result<Vec<Deck>> {
    after(tree, &[])
}

/// How many units the decks have.
pub fn total(decks: &[Deck]) -> u64 {
    decks.last().map_or(0, |deck| deck.first.saturating_add(deck.count))
}

/// The deck of a unit.
pub(crate) fn of_unit(decks: &[Deck], unit: u64) -> Option<&Deck> {
    decks.iter().rfind(|deck| deck.first <= unit)
}

/// The newest deck that has a trial.
///
/// # Errors
/// When a deck cannot be read.
pub(crate) fn newest_of<'d>(
    tree: &Tree,
    decks: &'d [Deck],
    trial: u64,
) -> Result<Option<&'d Deck>> {
    for deck in decks.iter().rev() {
        if trials(tree, deck)?.contains(&trial) {
            return Ok(Some(deck));
        }
    }
    Ok(None)
}

/// The trials of a deck, unit after unit.
fn trials(tree: &Tree, deck: &Deck) -> Result<Vec<u64>> {
    numbers::some(&file(tree, deck.deck, "map"), 0, deck.trials)
}

/// All decks of a sweep with their trials.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn with_trials(tree: &Tree) -> Result<Vec<(Deck, Vec<u64>)>> {
    let listed = |deck: Deck| trials(tree, &deck).map(|trials| (deck, trials));
    read(tree)?.into_iter().map(listed).collect()
}

/// The trials of `count` units from `from` on, in order.
///
/// # Errors
/// When there are no such units, or a file cannot be read.
pub fn units(tree: &Tree, decks: &[Deck], from: u64, count: u64) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    let end = from.saturating_add(count);
    for deck in decks {
        let low = from.max(deck.first);
        let high = end.min(deck.first.saturating_add(deck.count));
        if low < high {
            part(tree, deck, low - deck.first, high - deck.first, &mut all)?;
        }
    }
    if all.len() as u64 != count {
        let sentence =
            format!("sweep `{}` has no unit {}", tree.dir().display(), end.saturating_sub(1));
        return Err(Fault::machine(sentence).into());
    }
    Ok(all)
}

fn part(tree: &Tree, deck: &Deck, low: u64, high: u64, all: &mut Vec<Vec<u64>>) -> Result<()> {
    let map = file(tree, deck.deck, "map");
    if !deck.chains {
        let trials = numbers::exactly(&map, low, high - low)?;
        all.extend(trials.into_iter().map(|trial| vec![trial]));
        return Ok(());
    }
    let list = file(tree, deck.deck, "units");
    let mut starts = numbers::some(&list, low, high - low + 1)?;
    if (starts.len() as u64) <= high - low {
        starts.push(deck.trials);
    }
    if starts.contains(&numbers::DAMAGED) || !starts.is_sorted() {
        return Err(numbers::damaged(&list).into());
    }
    let (first, last) = (starts[0], starts[starts.len() - 1]);
    let trials = numbers::exactly(&map, first, last - first)?;
    for pair in starts.windows(2) {
        all.push(trials[(pair[0] - first) as usize..(pair[1] - first) as usize].to_vec());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_numbered_through_all_decks() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        let mut decks = Vec::new();
        let plain = vec![vec![4], vec![2], vec![0]];
        let chains = vec![vec![1, 3], vec![5], vec![6, 7, 8]];
        for units in [&plain, &chains] {
            let pull = &Pull::default();
            let terms = Terms::new(pull);
            let deck = write(&tree, &decks, units, terms).unwrap();
            decks.push(deck);
        }
        assert_eq!(read(&tree).unwrap(), decks);
        assert_eq!(total(&decks), 6);
        let whole = [plain, chains].concat();
        for from in 0..6 {
            for count in 0..=6 - from {
                let expected = &whole[from as usize..(from + count) as usize];
                assert_eq!(units(&tree, &decks, from, count).unwrap(), expected);
            }
        }
        assert!(units(&tree, &decks, 5, 2).is_err());
        // Lists of units that go back, decks and questions that are too large to be true.
        numbers::write(&file(&tree, 2, "units"), [5, 4, 0].into_iter()).unwrap();
        assert!(units(&tree, &decks, 3, 3).is_err());
        let large = Deck { chains: false, count: u64::MAX, ..decks[0].clone() };
        assert_eq!(total(&[Deck { first: 7, ..large.clone() }]), u64::MAX);
        assert!(units(&tree, &[large], 1, u64::MAX).is_err());
        assert_eq!(decks[1].trials, 6);
    }
}
