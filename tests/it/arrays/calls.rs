//! The calls of a scheduler that each verb makes: docs/calls.md has the table.

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::slurm_sweep::{answer, element};
use crate::support::world::{ROOT, World};

/// The rows of the table: a command line, and the programs that it calls.
fn table() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/calls.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `hpcsweep "));
    let row = |row: &str| {
        let (command, rest) = row.split_once("` | ").unwrap();
        let calls = rest.split(" | ").next().unwrap().trim_end_matches(" |");
        (command.to_owned(), calls.replace('`', ""))
    };
    rows.map(row).collect()
}

/// The programs that a command calls, with their first words.
fn calls(world: &World, args: &[&str]) -> String {
    world.write("calls", "");
    let ran = world.run(args);
    assert!(ran.code < 3, "{args:?}: {}", ran.whole());
    let text = world.read("calls");
    let programs: Vec<String> = text
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let program = words.next().unwrap_or_default();
            let what = words.find(|word| {
                ["--test-only", "config", "partition", "--start", "hold", "release"].contains(word)
            });
            format!("{program} {}", what.unwrap_or_default()).trim_end().to_owned()
        })
        .collect();
    if programs.is_empty() { "none".to_owned() } else { programs.join(", ") }
}

#[test]
fn each_verb_makes_the_calls_of_the_table_and_no_more() {
    let world = slurm();
    world.program("scancel", &world.read("bin/squeue"));
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2, 3]\n"));
    let mut found = Vec::new();
    for (command, expected) in table() {
        let second = match command.split(' ').next() {
            Some("retry") => "FAILED|NonZeroExitCode",
            Some("release") => "PENDING|JobHeldUser",
            _ => "PENDING|Priority",
        };
        let queue = format!("101_0|RUNNING|None|x\n101_1|{second}|x\n101_2|PENDING|Priority|x\n");
        answer(&world, "squeue", &queue);
        let args: Vec<&str> = command.split(' ').collect();
        found.push((command.clone(), expected, calls(&world, &args)));
    }
    let wrong: Vec<_> = found.iter().filter(|(_, expected, made)| expected != made).collect();
    assert!(wrong.is_empty(), "command, page, calls: {wrong:#?}");
}

/// Its answer may contradict a record that says `done`.
#[test]
fn with_accounting_a_sweep_that_has_ended_costs_one_call_of_sacct() {
    let world = slurm();
    let scontrol = world.read("bin/scontrol").replace("/none", "/slurmdbd");
    world.program("scontrol", &scontrol);
    for program in ["sacct", "sacctmgr"] {
        answer(&world, program, "");
    }
    world.write("plan.toml", &shell("true", "[grid]\na = [1]\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "sacct", "101_0|COMPLETED|None|x\n");
    assert_eq!(calls(&world, &["status"]), "squeue, sacct");
    element(&world, 0);
    for verb in ["status", "collect"] {
        assert_eq!(calls(&world, &[verb]), "sacct", "{verb}");
    }
}
