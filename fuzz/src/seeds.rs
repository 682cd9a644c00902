//! Inputs to begin with, made of the project's own examples and test cases, and the words in them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::targets::{TARGETS, Target};

/// The folder of the sources.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Words of a dictionary; libFuzzer tries each of them at random.
const MOST_WORDS: usize = 400;

/// Writes `FOLDER/TARGET/`, a file a seed, and `FOLDER/TARGET.dict` for every target.
pub(crate) fn write(folder: &Path) {
    for target in TARGETS {
        let own = folder.join(target.name);
        fs::create_dir_all(&own).expect("a folder for seeds");
        let seeds = of(target);
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(own.join(format!("seed-{number:03}")), seed).expect("a seed");
        }
        fs::write(folder.join(format!("{}.dict", target.name)), dictionary(&seeds)).expect("words");
    }
}

/// The seeds of a target: texts, and the files that match an `@pattern`, seen from the folder of the sources.
pub(crate) fn of(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for seed in target.seeds {
        let Some(pattern) = seed.strip_prefix('@') else {
            seeds.push(seed.as_bytes().to_vec());
            continue;
        };
        // A number in front chooses which file of a tree the text stands for.
        let (first, pattern) = match pattern.split_once('@') {
            Some((number, pattern)) => (Some(number.parse::<u8>().expect("a number")), pattern),
            None => (None, pattern),
        };
        let found = glob::glob(&format!("{ROOT}/{pattern}")).expect("a pattern of files");
        let files: Vec<Vec<u8>> = found
            .map(|file| {
                first
                    .into_iter()
                    .chain(fs::read(file.expect("a file")).expect("its bytes"))
                    .collect()
            })
            .collect();
        assert!(!files.is_empty(), "{}: no file matches {pattern}", target.name);
        seeds.extend(files);
    }
    seeds
}

/// The words of seeds in the form of libFuzzer's dictionaries.
fn dictionary(seeds: &[Vec<u8>]) -> String {
    let mut words = BTreeSet::new();
    for seed in seeds {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        words
            .extend(seed.split(|byte| !is_part(byte)).filter(|word| (2..24).contains(&word.len())));
    }
    let every = words.len().div_ceil(MOST_WORDS).max(1);
    // libFuzzer takes no empty one.
    words.iter().step_by(every).fold("\"a\"\n".to_owned(), |mut text, word| {
        let _ = writeln!(text, "\"{}\"", String::from_utf8_lossy(word));
        text
    })
}
