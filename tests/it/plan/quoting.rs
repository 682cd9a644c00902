//! No value of a plan ever becomes code: what goes in comes out, byte by byte, whatever it holds.

use std::collections::BTreeSet;
use std::io::Write;

use hpcsweep::base::words::sh_quote;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::support::world::World;

/// Values that have broken something somewhere.
const NASTY: [&str; 28] = [
    "",
    " ",
    "a b",
    "  leading and trailing  ",
    "it's",
    "''",
    "'\\''",
    "\"quoted\"",
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME}",
    "$HOME",
    "; touch pwned",
    "| touch pwned",
    "& touch pwned",
    "> pwned",
    "line\nbreak\n",
    "\n",
    "tab\there",
    "back\\slash\\",
    "-n",
    "--help",
    "*",
    "~",
    "!history",
    "{{ 7 * 6 }} {% if %} {# x #}",
    "%s%d%%",
    "\u{1}\u{7f}\u{1b}[31mé\u{1F600}\u{feff}",
];

/// Text without NUL, which no argument can hold, full of what shells care about.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => proptest::sample::select(NASTY.to_vec()).prop_map(str::to_owned),
        2 => proptest::collection::vec(1u8..0x20, 0..4)
            .prop_map(|bytes| String::from_utf8(bytes).unwrap()),
        2 => proptest::sample::select("'\"`$\\ \t\n!#&|;<>()[]{}*?~%=,:-".chars().collect::<Vec<_>>())
            .prop_map(String::from),
        3 => proptest::collection::vec(any::<char>(), 0..6)
            .prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').collect::<String>()),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// The words that a shell reads from the quoted text.
fn through(world: &World, shell: &str, words: &[String]) -> Vec<Vec<u8>> {
    let quoted: Vec<String> = words.iter().map(|word| sh_quote(word)).collect();
    let script = format!("for word in {}; do printf '%s\\0' \"$word\"; done\n", quoted.join(" "));
    let mut child = world.command(shell).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{script}");
    let mut taken: Vec<Vec<u8>> = output.stdout.split(|&b| b == 0).map(<[u8]>::to_vec).collect();
    // The bytes after the last NUL.
    assert_eq!(taken.pop(), Some(Vec::new()));
    taken
}

#[test]
fn a_quoted_word_is_one_word_with_the_same_bytes() {
    let world = World::new();
    proptest!(config(120), |(mut words in proptest::collection::vec(text(), 1..30))| {
        words.extend(NASTY.map(str::to_owned));
        let expected: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
        for shell in ["sh", "bash"] {
            prop_assert_eq!(&through(&world, shell, &words), &expected);
        }
    });
    assert!(!world.exists("pwned"));
}

/// Runs a sweep over these values and compares what its trials were given with what was written.
fn through_a_sweep(world: &World, number: u32, values: &[String], setup: &str) {
    let axis: Vec<String> =
        values.iter().map(|v| toml::Value::String(v.clone()).to_string()).collect();
    let program = "cd \"$HPCSWEEP_WORK_DIR\" && printf %s \"$HPCSWEEP_PARAM_X\" >env && printf %s \"$1\" >arg \
                   && printf %s \"$OWN\" >own && cp \"$HPCSWEEP_PARAMS\" params.json";
    let plan = format!(
        "version = 1\n[sweep]\nname = \"s{number}\"\n[run]\ncommand = [\"sh\", \"-c\", {program}, \"sh\", \
         \"{{{{ x }}}}\"]\nenv = {{ OWN = \"{{{{ x }}}}\" }}\n{setup}\n[grid]\nx = [{axis}]\n",
        program = toml::Value::String(program.to_owned()),
        axis = axis.join(", "),
    );
    world.local(&plan, &["-q"]).ok();
    let sweep = format!("results/s{number}");
    let table = world.table(&[&sweep]);
    assert_eq!(table.len(), values.len());
    for (i, value) in values.iter().enumerate() {
        let file = |name: &str| world.read(&format!("{sweep}/work/000/{i}/{name}"));
        assert_eq!(file("env"), *value, "as environment variable");
        assert_eq!(file("arg"), *value, "as argument");
        assert_eq!(file("own"), *value, "in a variable of the plan's own");
        let params: serde_json::Value = serde_json::from_str(&file("params.json")).unwrap();
        assert_eq!(params, serde_json::json!({ "x": value }), "in the file of parameters");
        assert_eq!(table[i]["x"], **value, "in the table");
    }
}

#[test]
fn every_nasty_value_reaches_the_program_as_it_is() {
    let world = World::new();
    through_a_sweep(&world, 0, &NASTY.map(str::to_owned), "");
    assert_eq!(world.files(".").iter().filter(|f| f.contains("pwned")).count(), 0);
}

#[test]
fn every_nasty_value_passes_through_a_set_up_script_as_it_is() {
    let world = World::new();
    through_a_sweep(&world, 0, &NASTY.map(str::to_owned), "setup = [\"export UNRELATED=1\"]");
    assert_eq!(world.files(".").iter().filter(|f| f.contains("pwned")).count(), 0);
}

#[test]
fn any_value_reaches_the_program_as_it_is() {
    let world = World::new();
    let number = std::cell::Cell::new(0);
    proptest!(config(6), |(values in proptest::collection::vec(text(), 1..12), set_up in any::<bool>())| {
        // An axis may hold a value once.
        let values: BTreeSet<String> = values.into_iter().collect();
        let values: Vec<String> = values.into_iter().collect();
        number.set(number.get() + 1);
        through_a_sweep(&world, number.get(), &values, if set_up { "setup = [\":\"]" } else { "" });
    });
    assert!(number.get() >= 6);
}

#[test]
fn a_nul_is_refused_before_anything_runs() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"nul\"\n[run]\ncommand = [\"echo\", \"{{ x }}\"]\n\
                [grid]\nx = [\"a\", \"b\\u0000c\"]\n";
    let ran = world.local(plan, &[]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    assert!(ran.err.contains("NUL"), "{}", ran.err);
    assert!(!world.exists("results/nul/records"));
}

#[test]
fn values_in_names_and_folders_reach_a_program_as_they_are() {
    let world = World::new();
    let folder = "it's $(touch pwned) `x` \"q\" \\ {{ x }} 100%";
    world.write(
        &format!("{folder}/plan.toml"),
        r#"version = 1
[sweep]
name = "named"
root = "re $(touch pwned) sults"
[run]
command = ["sh", "-c", "pwd; echo \"$HPCSWEEP_TASK_ID\"; cat 'in put'"]
workdir = "work $(touch pwned)"
setup = ["true"]
[[trials]]
task_id = "t's $(touch pwned)"
"#,
    );
    world.write(&format!("{folder}/work $(touch pwned)/in put"), "input\n");
    world.run(&["submit", &format!("{folder}/plan.toml"), "-q"]).ok();
    let sweep = world.text_path(&format!("{folder}/re $(touch pwned) sults/named"));
    let log = world.run(&["logs", "0", &sweep]);
    assert_eq!(
        log.ok(),
        format!("$WORLD/{folder}/work $(touch pwned)\nt's $(touch pwned)\ninput\n")
    );
    let made: Vec<String> = world.files(".").into_iter().filter(|f| f.ends_with("pwned")).collect();
    assert!(made.is_empty(), "{made:?}");
}
