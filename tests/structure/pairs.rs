//! tests/pairs.md: each pair of features, and of a feature and a fault, has a test that is there or a reason.

use std::fs;
use std::path::Path;

use crate::{ROOT, say};

/// The first cells of the rows of a table below a line, up to the next line that is no row, with the rest of each row.
fn rows<'a>(text: &'a str, below: &str) -> Vec<(&'a str, &'a str)> {
    let lines = text.lines().skip_while(|line| *line != below).skip(1);
    let table = lines.skip_while(|line| !line.starts_with('|'));
    let cells = |row: &'a str| row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
    // The heading of the second column is empty.
    table.take_while(|line| line.starts_with('|')).filter_map(cells).collect()
}

/// Errors in a table of pairs, where `is_there` says whether there is a test of a name.
fn faults_of_pairs(table: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let names = |heading: &str| -> Vec<&str> {
        rows(table, heading).into_iter().map(|(name, _)| name).collect()
    };
    let (features, faults) = (names("## Features"), names("## Faults"));
    let mut wrong = Vec::new();
    for (i, feature) in features.iter().enumerate() {
        let mut expected: Vec<&str> = features[i + 1..].iter().chain(&faults).copied().collect();
        for (partners, cell) in rows(table, &format!("### {feature}")) {
            for partner in partners.split(", ") {
                match expected.iter().position(|name| *name == partner) {
                    Some(at) => drop(expected.remove(at)),
                    None => wrong.push(format!("{feature} x {partner}: twice, or no such pair")),
                }
            }
            let is_told = ["never: ", "open: "]
                .iter()
                .any(|word| cell.strip_prefix(word).is_some_and(|why| why.split(' ').count() > 2));
            let names_a_test = cell.starts_with('`') && cell.contains("::");
            if !is_told && !names_a_test {
                wrong.push(format!("{feature} x {partners}: no test, and no reason"));
            }
        }
        wrong.extend(expected.iter().map(|partner| format!("{feature} x {partner}: no row")));
    }
    let quoted = table.split('`').skip(1).step_by(2);
    let is_named = |name: &&str| SUITES.iter().any(|suite| name.starts_with(&format!("{suite}::")));
    let tests = quoted.filter(is_named);
    wrong.extend(tests.filter(|name| !is_there(name)).map(|name| format!("no `{name}`")));
    wrong
}

/// The suites whose tests the table names as `suite::file::test`.
const SUITES: [&str; 4] = ["it", "cluster", "worker", "sweeps"];

/// Whether a test of this name is in the sources.
fn is_test(name: &str) -> bool {
    let Some((file, test)) = name.rsplit_once("::") else { return false };
    let file = file.replace("::", "/");
    let (file, definition) = match file.strip_prefix("sweeps/") {
        Some(file) => (format!("tests/python/sweeps/{file}.py"), format!("def {test}(")),
        None => (format!("tests/{file}.rs"), format!("fn {test}(")),
    };
    let text = fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
    text.contains(&definition)
}

#[test]
fn every_pair_is_in_the_table_with_a_test_that_is_there_or_a_reason() {
    let table = fs::read_to_string(Path::new(ROOT).join("tests/pairs.md")).unwrap();
    let (features, faults) = (rows(&table, "## Features"), rows(&table, "## Faults"));
    assert!(features.len() >= 14 && faults.len() >= 9, "{features:?} {faults:?}");
    say(faults_of_pairs(&table, is_test));
}

#[test]
fn a_table_of_pairs_that_is_not_whole_is_noticed() {
    let whole = "## Features\n\n| feature | |\n|---|---|\n| a | one |\n| b | two |\n\n\
                 ## Faults\n\n| fault | |\n|---|---|\n| x | three |\n| y | four |\n\n\
                 ### a\n\n| with | |\n|---|---|\n| b | `it::f::t` |\n| x, y | never: they do not meet |\n\n\
                 ### b\n\n| with | |\n|---|---|\n| x | `it::f::t`, `it::f::u` |\n| y | open: nobody has tried it |\n";
    let faults = |change: (&str, &str)| {
        let text = whole.replace(change.0, change.1);
        assert!(change.0.is_empty() || text != whole, "{change:?}");
        faults_of_pairs(&text, |name| name.starts_with("it::f::")).join("; ")
    };
    assert_eq!(faults(("", "")), "");
    assert_eq!(faults(("| b | `it::f::t` |\n", "")), "a x b: no row");
    assert_eq!(faults(("| x, y |", "| x |")), "a x y: no row");
    assert_eq!(faults(("| x, y |", "| x, y, y |")), "a x y: twice, or no such pair");
    assert_eq!(
        faults(("| y | open", "| z | open")),
        "b x z: twice, or no such pair; b x y: no row"
    );
    assert_eq!(faults(("open: nobody has tried it", "some day")), "b x y: no test, and no reason");
    assert_eq!(faults(("open: nobody has tried it", "open: no")), "b x y: no test, and no reason");
    assert_eq!(faults(("it::f::u", "it::g::u")), "no `it::g::u`");
    assert_eq!(
        faults(("| y | four |", "| y | four |\n| w | five |")),
        "a x w: no row; b x w: no row"
    );
}
