//! `shard.json`: which part of its plan a sweep has, where several clusters share the plan.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::{FORMAT, Tree, document, numbers, write_document};
use crate::base::host::disk;

/// The file, in a sweep's folder.
const FILE: &str = "shard.json";

/// Most parts of a plan.
const MOST: u32 = 10_000;

/// One of the equal parts of a plan: `2/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Which part it is, from 1 to `of`.
    number: u32,
    /// How many there are.
    of: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let numbers = parts.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) && of <= MOST => {
                Ok(Self { number, of })
            }
            Some((_, 0)) | None => Err("write it as `2/3`: the second of three parts".to_owned()),
            Some((_, of)) if of > MOST => Err(format!("a plan has at most {MOST} parts")),
            Some((_, 1)) => Err("the only part is `1/1`".to_owned()),
            Some((_, of)) => Err(format!("the parts are `1/{of}` to `{of}/{of}`")),
        }
    }
}

/// The parts of a plan that a sweep has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shards {
    /// Format of the tree.
    format: u32,
    /// The numbers of the parts, from 1.
    shards: BTreeSet<u32>,
    /// How many parts the plan has.
    of: u32,
}

impl Shards {
    /// The set of this part alone.
    pub(crate) fn one(shard: Shard) -> Self {
        Self { format: FORMAT, shards: BTreeSet::from([shard.number]), of: shard.of }
    }

    /// These and one more; `None` if the plan was divided in another way. The whole plan takes in every part.
    pub(crate) fn with(&self, shard: Shard) -> Option<Self> {
        if shard.of == 1 {
            return Some(Self::one(shard));
        }
        let mut all = self.clone();
        all.shards.insert(shard.number);
        (self.of == shard.of).then_some(all)
    }

    /// Whether they are the whole plan.
    pub(crate) fn is_whole(&self) -> bool {
        self.shards.len() == self.of as usize
    }

    /// Whether a trial with this hash is in one of them.
    pub(crate) fn has(&self, hash: u64) -> bool {
        let number = hash % u64::from(self.of) + 1;
        self.shards.iter().any(|own| u64::from(*own) == number)
    }

    /// In words: `shard 2 of 3`, `shards 1, 2 of 3`.
    pub(crate) fn words(&self) -> String {
        let numbers: Vec<String> = self.shards.iter().map(u32::to_string).collect();
        let s = if numbers.len() == 1 { "" } else { "s" };
        format!("shard{s} {} of {}", numbers.join(", "), self.of)
    }

    /// As a member of a document: `{"shards": [2], "of": 3}`.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "shards": self.shards, "of": self.of })
    }

    /// Those of a sweep; `None` if it has its plan's trials whatever they are.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub(crate) fn read(tree: &Tree) -> Result<Option<Self>> {
        let path = tree.dir().join(FILE);
        let Some(bytes) = disk::read_small_if_there(&path)? else { return Ok(None) };
        let own: Self = document(&bytes, &path)?;
        let is_sound =
            !own.shards.is_empty() && own.shards.iter().all(|n| (1..=own.of).contains(n));
        if is_sound { Ok(Some(own)) } else { Err(numbers::damaged(&path).into()) }
    }

    /// As [`Self::read`], for a reader. A damaged file is ignored and reported.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub(crate) fn readable(tree: &Tree, damage: &mut Damage) -> Option<Self> {
        Self::read(tree).unwrap_or_else(|_| {
            damage.add(FILE, 1);
            None
        })
    }

    /// Keeps them in a sweep. The caller holds the lock.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn keep(&self, tree: &Tree) -> Result<()> {
        if Self::read(tree)?.as_ref() == Some(self) {
            return Ok(());
        }
        write_document(&tree.dir().join(FILE), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(text: &str) -> Shard {
        text.parse().unwrap()
    }

    #[test]
    fn parts_are_disjoint_and_their_union_is_the_whole() {
        for of in 1..8 {
            let parts: Vec<Shards> =
                (1..=of).map(|number| Shards::one(Shard { number, of })).collect();
            for hash in (0..100_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                assert_eq!(parts.iter().filter(|part| part.has(hash)).count(), 1);
            }
            let all = (1..=of)
                .fold(parts[0].clone(), |all, number| all.with(Shard { number, of }).unwrap());
            assert!(all.is_whole());
        }
    }

    #[test]
    fn parts_that_do_not_exist_are_refused() {
        let check = |text: &str, why: &str| assert_eq!(text.parse::<Shard>().unwrap_err(), why);
        check("0/3", "the parts are `1/3` to `3/3`");
        check("4/3", "the parts are `1/3` to `3/3`");
        check("2/1", "the only part is `1/1`");
        check("1/0", "write it as `2/3`: the second of three parts");
        check("1/99999", "a plan has at most 10000 parts");
        for text in ["x", "", "1", "1/", "/3", "-1/3", "1/3/5", "1.0/3"] {
            check(text, "write it as `2/3`: the second of three parts");
        }
    }

    #[test]
    fn a_sweep_keeps_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        assert_eq!(Shards::read(&tree).unwrap(), None);
        let one = Shards::one(shard("2/3"));
        one.keep(&tree).unwrap();
        assert_eq!(Shards::read(&tree).unwrap(), Some(one.clone()));
        assert_eq!(one.words(), "shard 2 of 3");
        assert_eq!(one.with(shard("1/3")).unwrap().words(), "shards 1, 2 of 3");
        assert_eq!(one.with(shard("1/2")), None);
        assert!(one.with(shard("1/1")).unwrap().is_whole());
        for text in
            ["{", "{\"format\":2,\"shards\":[],\"of\":3}", "{\"format\":2,\"shards\":[4],\"of\":3}"]
        {
            disk::write_whole(&dir.path().join(FILE), text.as_bytes()).unwrap();
            let mut damage = Damage::default();
            assert_eq!(Shards::readable(&tree, &mut damage), None);
            assert_eq!(damage.settle(|_| false)[0].to_string(), "1 damaged line in shard.json");
        }
    }
}
