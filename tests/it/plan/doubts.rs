//! What a plan says that it may not mean, and what it cannot mean: refused or warned of before anything runs.

use crate::support::plans::shell;
use crate::support::world::World;

/// The warnings and errors of `plan`.
fn said(plan: &str) -> String {
    let world = World::new();
    world.write("plan.toml", plan);
    world.run(&["plan", "plan.toml"]).err
}

fn of_command(command: &str, rest: &str) -> String {
    said(&format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = {command}\n{rest}"))
}

#[test]
fn what_only_a_shell_fills_in_is_refused_in_folders_and_variables() {
    for (rest, sentence, hint) in [
        (
            "workdir = \"$SCRATCH/x\"\n",
            "error: `workdir` holds `$SCRATCH`, and no shell fills it in",
            "hint: write the path itself; `~/` in front is your home",
        ),
        (
            "[run.env]\nPATH = \"/x:${PATH}\"\n",
            "error: `PATH` holds `${PATH}`, and no shell fills it in",
            "hint: write `export PATH=...` in `setup`, or the value itself; for the text, `{{ '${PATH}' }}`",
        ),
        (
            "[run.env]\nDATA = \"~/data\"\n",
            "error: `DATA` holds `~`, and no shell fills it in",
            "hint: write `export DATA=...` in `setup`, or the value itself; for the text, `{{ '~' }}`",
        ),
    ] {
        let said = of_command("[\"true\"]", rest);
        assert!(said.contains(sentence) && said.contains(hint), "{said}");
    }
    let said = of_command("[\"true\"]", "[run.env]\nA = \"{{ '$HOME' }}\"\nB = \"5$\"\n");
    assert_eq!(said, "");
}

#[test]
fn a_home_in_front_of_root_and_workdir_is_filled_in() {
    let mut world = World::new();
    world.write("home/w/here", "");
    world.set("HOME", &world.text_path("home"));
    let plan = shell("ls >../listed", "workdir = \"~/w\"\n")
        .replace("name = \"s\"\n", "name = \"s\"\nroot = \"~/out\"\n");
    world.local(&plan, &["-q"]).ok();
    assert_eq!(world.read("home/listed"), "here\n");
    assert!(world.exists("home/out/s/sweep.json") && !world.exists("~"));
    assert!(world.run(&["status", "plan.toml"]).ok().contains("1"));
}

#[test]
fn arguments_that_no_shell_reads_flags_and_srun_are_warned_of() {
    let said = of_command(
        "[\"./t\", \"--data=~/d\", \"--flag\", \"{{ flag }}\"]",
        "[grid]\nflag = [true, false]\n",
    );
    let expected = "warning: `command[1]` holds `~`, which the program gets as it stands: no shell fills it in
warning: `command[3]` is the text `true` or `false`, and `type=bool` of argparse takes each text for true: `{% if flag %}--flag{% endif %}` leaves an option out
";
    assert_eq!(said, expected);
    let said = of_command("[\"srun\", \"./t\"]", "[resources]\nranks = 2\n");
    assert!(said.starts_with("warning: each of the 2 ranks would start `srun`"), "{said}");
}

#[test]
fn names_that_would_calculate_are_refused() {
    let grid = "[grid]\nlr = [0.1]\ndecay = [0.5]\nlr-decay = [0.9]\n";
    let said = of_command("[\"echo\", \"--lr-decay={{ lr-decay }}\"]", grid);
    let sentence =
        "error: `command[1]`: `lr-decay` would calculate, and is the name of a parameter";
    assert!(
        said.contains(sentence) && said.contains("hint: write `params[\"lr-decay\"]`"),
        "{said}"
    );
    let of_text = "[\"echo\", \"--lr-decay={{ params[\\\"lr-decay\\\"] }} {{ lr - decay }}\"]";
    assert_eq!(of_command(of_text, grid), "");
}

#[test]
fn conditions_name_what_would_calculate() {
    let world = World::new();
    let code = "echo '{\"val/loss\": 1}' >$HPCSWEEP_RESULT";
    world.local(&shell(code, "[grid]\nlr-decay = [1]\n"), &["-q"]).ok();
    for (condition, hint) in [
        ("lr-decay < 2", "hint: write `params[\"lr-decay\"]`"),
        ("val/loss < 2", "hint: write `metrics[\"val/loss\"]`"),
    ] {
        let ran = world.run(&["collect", "--where", condition]);
        assert!(ran.code == 2 && ran.err.contains(hint), "{}", ran.whole());
        let right = hint.split('`').nth(1).unwrap();
        let ran = world.run(&["collect", "--where", &format!("{right} < 2")]);
        assert_eq!(ran.ok().lines().count(), 2, "{}", ran.whole());
    }
}

#[test]
fn arguments_come_out_as_programs_read_them() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", \"echo \\\"$@\\\"\", \"-\", \
                \"{{ shift }}\", \"--betas\", \"{{ betas }}\", \"{{ none }}\", \"{{ betas | json_encode }}\", \"{% if no %}x{% endif %}\"]\n\
                [defaults]\nbetas = [0.9, -1e-5]\nnone = []\nno = false\n[grid]\nshift = [-0.00001, 1e-5]\n";
    world.local(plan, &["-q"]).ok();
    let logs: Vec<String> =
        (0..2).map(|trial| world.run(&["logs", &trial.to_string()]).out).collect();
    assert_eq!(
        logs,
        [
            "-0.00001 --betas 0.9 -0.00001 [0.9,-0.00001]\n",
            "1e-5 --betas 0.9 -0.00001 [0.9,-0.00001]\n"
        ]
    );
}

#[test]
fn a_list_in_another_file_means_what_it_says() {
    let world = World::new();
    let plan = shell(
        "echo '{{ params | json_encode }}{% if amp %} --amp{% endif %}'",
        "[trials]\nfile = \"t.csv\"\n",
    );
    world.write("plan.toml", &plan);
    world.write("t.csv", "\u{feff}lr, amp,ver\r\n0.1,True,\"3.10\"\r\n1e-05,FALSE,3.9\r\n,,\r\n");
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    let logs: Vec<String> =
        (0..2).map(|trial| world.run(&["logs", &trial.to_string()]).out).collect();
    assert_eq!(
        logs,
        [
            "{\"lr\":0.1,\"amp\":true,\"ver\":\"3.10\"} --amp\n",
            "{\"lr\":0.00001,\"amp\":false,\"ver\":3.9}\n"
        ]
    );
    world.write("t.csv", "lr,sid\n0.1,20241127123456789012\n");
    let ran = world.run(&["plan", "plan.toml"]);
    assert_eq!(
        (ran.code, ran.err),
        (
            2,
            "error: `t.csv:2`: `sid` is `20241127123456789012`, a number that would not come back as it is written
  plan.toml:7: file = \"t.csv\"
hint: write `\"20241127123456789012\"` in quotes for a text
"
            .to_owned()
        )
    );
}

#[test]
fn a_list_without_a_line_is_refused() {
    let world = World::new();
    world.write("plan.toml", &shell("true", "[trials]\nfile = \"t.csv\"\n"));
    for list in ["", "\n\n", "\u{feff}", "lr,amp\n", "lr;amp", "\u{1}\n"] {
        world.write("t.csv", list);
        let ran = world.run(&["plan", "plan.toml"]);
        let why = match list {
            "lr;amp" => "error: `t.csv`: its columns are separated by semicolons\n",
            _ => "error: `t.csv` lists no trials\n",
        };
        assert_eq!((ran.code, ran.err.starts_with(why)), (2, true), "{list:?}: {}", ran.whole());
    }
}

#[test]
fn a_program_of_mpi_with_ranks_is_warned_of_where_each_is_started_alone() {
    let world = World::new();
    world.program("hello", "#!/bin/sh\n# from mpi4py import MPI\n");
    let said = "warning: `./bin/hello` uses MPI, and `--local` starts each of the 2 ranks by itself: each would be rank 0 of 1;";
    for (command, ranks, is_told) in
        [("./bin/hello", 2, true), ("./bin/hello", 1, false), ("true", 2, false)]
    {
        let plan = format!(
            "version = 1\n[sweep]\nname = \"s{ranks}\"\n[run]\ncommand = [\"{command}\"]\n[resources]\nranks = {ranks}\nwalltime = \"1m\"\n"
        );
        world.write("plan.toml", &plan);
        let ran = world.run(&["submit", "plan.toml", "--local", "--dry-run"]);
        assert_eq!(ran.err.contains(said), is_told, "{}", ran.whole());
    }
}

#[test]
fn ends_of_lines_of_another_system_reach_no_shell() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", \"\"\"\nset -e\necho \"$A\"\n\"\"\"]\nsetup = [\"\"\"\nexport A=1\ntrue\n\"\"\"]\n";
    world.local(&plan.replace('\n', "\r\n"), &["-q"]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "1\n");
}
