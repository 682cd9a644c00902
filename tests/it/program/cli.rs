//! The command line: help, wrong requests, what is generated from it, and where its words go.

use std::io::{BufRead, BufReader, Read};

use crate::support::world::{PROGRAM, World, missing};

/// The verbs in the order of the help, each with what its help says that it does.
const VERBS: [(&str, &str); 29] = [
    (
        "init",
        "Make a project that runs at once: a plan, a small program, and its own copy of the job scripts",
    ),
    ("run", "Run a sweep in one line: write its plan, and submit it or run it on this machine"),
    (
        "plan",
        "Show what a plan would do: trials, chains, arrays, directives, calls, hours; writes nothing",
    ),
    ("submit", "Submit a plan to Slurm or PBS as job arrays, or run it on this machine"),
    ("retry", "Run trials again that ended without success, with other requests if need be"),
    ("status", "Show how a sweep stands: counts by state, what failed and why"),
    (
        "watch",
        "Watch a sweep: counts, pace, the best trial, agents, failures, the slowest trials, GPUs",
    ),
    ("why", "Show why trials stand as they do; without trials, what has happened to the sweep"),
    (
        "collect",
        "Make one table of all results: a row a trial with its state, parameters and metrics",
    ),
    ("best", "Show the best settings by a metric, averaged over seeds and folds, with intervals"),
    (
        "compare",
        "Compare two settings, sweeps or sets of trials by a metric, and in what they cost",
    ),
    ("effects", "Show which parameters matter for a metric, and which value of each is best"),
    ("plot", "Draw a picture for a paper: curves, heat map, effects, scaling or box plot"),
    ("export", "Write a sweep as one archive: results tree, plan, code, table and report"),
    (
        "merge",
        "Join the results of one plan from several clusters, shards or copies into one sweep",
    ),
    ("report", "Write a sweep as one HTML file: summary, charts, failures, cost, and the table"),
    ("logs", "Print what a trial printed"),
    (
        "usage",
        "Show what trials asked for and what they used, and which request would have been enough",
    ),
    ("verify", "Check that all files of a sweep are whole and fit together"),
    ("cancel", "Cancel the trials of a sweep that have not ended"),
    ("hold", "Hold the trials of a sweep that have not begun"),
    ("release", "Release the held trials of a sweep"),
    ("worker", "Run one trial as one of its ranks (job scripts call this)"),
    ("launch", "Start a command once a rank of this PBS job (job scripts call this)"),
    ("templates", "Write the templates of the job scripts, for editing"),
    ("site", "Show the site profile"),
    ("gpu", "Show the GPUs of this host, or choose the best ones and hold them for a program"),
    ("schema", "Print the JSON schema of plans or of site profiles, for editors"),
    ("doctor", "Check an installation: scheduler, limits, MPI plugins, results tree, GPUs, clocks"),
];

#[test]
fn the_help_names_every_verb_and_every_exit_code() {
    let world = World::new();
    let ran = world.run(&["-h"]);
    assert_eq!(
        ran.whole(),
        "\
Parameter sweeps on HPC batch systems: one plan, native job arrays, one results tree

Usage: hpcsweep [OPTIONS] <COMMAND>

Begin:
  init       Make a project that runs at once: a plan, a small program, and its own copy of the job
             scripts
  run        Run a sweep in one line: write its plan, and submit it or run it on this machine
  plan       Show what a plan would do: trials, chains, arrays, directives, calls, hours; writes
             nothing
  submit     Submit a plan to Slurm or PBS as job arrays, or run it on this machine
  retry      Run trials again that ended without success, with other requests if need be

Look:
  status     Show how a sweep stands: counts by state, what failed and why
  watch      Watch a sweep: counts, pace, the best trial, agents, failures, the slowest trials, GPUs
  why        Show why trials stand as they do; without trials, what has happened to the sweep
  logs       Print what a trial printed
  usage      Show what trials asked for and what they used, and which request would have been enough
  verify     Check that all files of a sweep are whole and fit together

Answer:
  collect    Make one table of all results: a row a trial with its state, parameters and metrics
  best       Show the best settings by a metric, averaged over seeds and folds, with intervals
  compare    Compare two settings, sweeps or sets of trials by a metric, and in what they cost
  effects    Show which parameters matter for a metric, and which value of each is best
  plot       Draw a picture for a paper: curves, heat map, effects, scaling or box plot
  report     Write a sweep as one HTML file: summary, charts, failures, cost, and the table

Share:
  export     Write a sweep as one archive: results tree, plan, code, table and report
  merge      Join the results of one plan from several clusters, shards or copies into one sweep

Steer:
  cancel     Cancel the trials of a sweep that have not ended
  hold       Hold the trials of a sweep that have not begun
  release    Release the held trials of a sweep

Site:
  doctor     Check an installation: scheduler, limits, MPI plugins, results tree, GPUs, clocks
  site       Show the site profile
  templates  Write the templates of the job scripts, for editing
  schema     Print the JSON schema of plans or of site profiles, for editors

Inside jobs:
  worker     Run one trial as one of its ranks (job scripts call this)
  launch     Start a command once a rank of this PBS job (job scripts call this)
  gpu        Show the GPUs of this host, or choose the best ones and hold them for a program

Options:
  -q, --quiet    Print only results and errors
  -h, --help     Print help (see more with '--help')
  -V, --version  Print version

Exit codes: 0 done, 1 some trials failed, 2 the request is wrong, 3 the scheduler refused or cannot
be reached, 4 the machine failed, 70 a bug of hpcsweep.
exit code 0
"
    );
    // Without a verb the same text is printed, as an error.
    let bare = world.run(&[]);
    assert_eq!((bare.code, bare.out.as_str(), bare.err.as_str()), (2, "", ran.out.as_str()));
}

#[test]
fn the_help_of_a_verb_says_what_it_does() {
    let world = World::new();
    for (verb, says) in VERBS {
        for args in [&[verb, "--help"][..], &[verb, "-h"], &["help", verb]] {
            let ran = world.run(args);
            assert_eq!(ran.ok().lines().next(), Some(says), "{args:?}");
            assert!(ran.out.contains(&format!("\nUsage: hpcsweep {verb} ")), "{}", ran.out);
            assert_eq!(ran.err, "");
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    let world = World::new();
    let version = format!("hpcsweep {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(world.run(&["--version"]).ok(), version);
    let worker = env!("CARGO_BIN_EXE_hpcsweep-worker");
    assert!(
        world
            .call(worker, &["--version"])
            .ok()
            .starts_with(&version.trim_end().replace(' ', "-worker "))
    );
}

#[test]
fn a_wrong_request_is_exit_code_two_and_says_nothing_on_standard_output() {
    let world = World::new();
    for (args, says) in [
        (&["statsu"][..], "a similar subcommand exists: 'status'"),
        (&["submit"], "required arguments were not provided:\n  <PLAN>"),
        (&["submit", "plan.toml", "--slurm", "--local"], "cannot be used with"),
        (&["submit", "plan.toml", "--json"], "--dry-run"),
        (&["submit", "plan.toml", "--memory", "4G"], "cannot read the plan `plan.toml`"),
        (&["retry", "--memory", "4"], "`--memory` cannot be `4`"),
        (&["retry", "--partition", "a\nb"], "`--partition` must be a name on one line"),
        (&["retry"], "no sweep here: no plan and no `results/`"),
        (&["submit", "plan.toml", "-j", "0"], "0 is not in 1.."),
        (&["submit", "plan.toml", "--lokal"], "a similar argument exists: '--local'"),
        (&["best", "--metric", "loss"], "<--min|--max>"),
        (
            &["best", "--metric", "loss", "--min", "--max"],
            "a metric has one goal: `--min` or `--max`",
        ),
        (&["collect", "--format", "xml"], "possible values: table, csv, jsonl"),
        (&["worker"], "--sweep <DIR>"),
        (&["worker", "--sweep", "x", "--wave", "1"], "--first <N>"),
        (&["worker", "--sweep", "x"], "which trial? `--trial N` is missing"),
        (&["logs", "first"], "no sweep is called `first`"),
        (&["status", "7-3"], "`7-3` runs backwards"),
        (&["status", "--where", "lr >"], "`--where lr >` is not an expression: found the end but"),
        (&["collect", "nowhere"], "no sweep is called `nowhere`"),
        (&["status"], "no sweep here: no plan and no `results/`"),
        (&["status", "."], "`.` is not a sweep: it has no `sweep.json`"),
    ] {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}

#[test]
fn quiet_says_nothing_but_results_and_errors() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"q\"\n[run]\ncommand = [\"true\"]\n";
    assert_eq!(world.local(plan, &["-q"]).whole(), "exit code 0\n");
    assert_eq!(world.run(&["-q", "init", "plan.toml"]).err.lines().count(), 2);
}

#[test]
fn every_verb_has_one_manual_page() {
    let world = World::new();
    assert_eq!(world.run(&["generate", "man", "man"]).whole(), "exit code 0\n");
    let mut expected = vec!["hpcsweep.1".to_owned()];
    expected.extend(VERBS.iter().map(|(verb, _)| format!("hpcsweep-{verb}.1")));
    let below = ["gpu-best", "gpu-list", "site-show", "templates-export"];
    expected.extend(below.map(|verb| format!("hpcsweep-{verb}.1")));
    expected.sort();
    assert_eq!(world.files("man"), expected);
    for (verb, says) in VERBS {
        let page = world.read(&format!("man/hpcsweep-{verb}.1"));
        let title = format!(".TH HPCSWEEP-{} 1", verb.to_uppercase());
        assert!(page.contains(&title), "{page}");
        let plain = page.replace("\\-", "-").replace('\n', " ");
        assert!(plain.contains(says), "{plain}");
        assert!(plain.contains(&format!("hpcsweep {verb}")), "{plain}");
    }
}

#[test]
fn completions_are_code_that_their_shells_take() {
    let world = World::new();
    assert_eq!(world.run(&["generate", "completions", "c"]).whole(), "exit code 0\n");
    assert_eq!(world.files("c"), ["bash/hpcsweep", "fish/hpcsweep.fish", "zsh/_hpcsweep"]);
    for (shell, file) in
        [("bash", "c/bash/hpcsweep"), ("zsh", "c/zsh/_hpcsweep"), ("fish", "c/fish/hpcsweep.fish")]
    {
        assert_eq!(world.call(shell, &["-n", file]).whole(), "exit code 0\n", "{shell}");
        let text = world.read(file);
        for (verb, _) in VERBS {
            assert!(text.contains(verb), "{file} lacks {verb}");
        }
    }
}

/// The offers of a shell for a line, with the completions of this program.
fn offers(world: &World, shell: &str, line: &str) -> Vec<String> {
    let (script, code) = match shell {
        "bash" => (
            "c/bash/hpcsweep",
            "source $0; COMP_WORDS=($1); [ \"${1% }\" = \"$1\" ] || COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
             _hpcsweep_candidates hpcsweep \"${COMP_WORDS[COMP_CWORD]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"",
        ),
        "zsh" => (
            "c/zsh/_hpcsweep",
            "compdef() { : }; source $0; compadd() { print -rl -- \"${(@P)@[-1]}\" }; _hpcsweep_script() { print script }
             words=(${(s: :)1}); [[ $1 != *' ' ]] || words+=(''); CURRENT=$#words; _hpcsweep",
        ),
        _ => ("c/fish/hpcsweep.fish", "source $argv[1]; complete -C $argv[2]"),
    };
    let options = if shell == "zsh" { vec!["-f", "-c"] } else { vec!["-c"] };
    let ran = world.call(shell, &[&options[..], &[code, script, line]].concat());
    let lines = ran.out.lines().map(|line| line.split('\t').next().unwrap().to_owned());
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn shells_offer_sweeps_trials_metrics_and_states() {
    let world = World::new();
    world.run(&["generate", "completions", "c"]).ok();
    world.program("hpcsweep", &format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n"));
    let code = "echo '{\"loss\": 1, \"acc\": 2}' >>$HPCSWEEP_METRICS";
    let grid = crate::support::plans::shell(code, "[grid]\na = [0,1,2,3,4,5,6,7,8,9,10,11]\n");
    world.local(&grid, &["-q"]).ok();
    for shell in ["bash", "zsh", "fish"] {
        let offers = |line: &str| offers(&world, shell, line).join(" ");
        // fish offers files as well.
        let sweeps = offers("hpcsweep status res").replace("results/ ", "");
        assert_eq!(sweeps, "results/s", "{shell}");
        assert_eq!(offers("hpcsweep logs 1"), "1 10 11", "{shell}");
        assert_eq!(offers("hpcsweep retry results/s 3-7,1"), "3-7,1 3-7,10 3-7,11", "{shell}");
        assert_eq!(offers("hpcsweep best -m "), "acc loss", "{shell}");
        assert_eq!(offers("hpcsweep cancel --state fa"), "failed", "{shell}");
        let causes = "walltime,out-of-memory";
        assert_eq!(offers("hpcsweep retry --cause walltime,out"), causes, "{shell}");
    }
    assert!(offers(&world, "bash", "hpcsweep sta").contains(&"status".to_owned()));
    assert_eq!(offers(&world, "zsh", "hpcsweep sta"), ["script"]);
    assert!(offers(&world, "fish", "hpcsweep sta").contains(&"status".to_owned()));
}

#[test]
fn the_site_profile_says_where_each_value_comes_from() {
    let mut world = World::new();
    let text = "version = 1\n[scheduler]\npartition = \"gpu\"\naccount = \"abc\"\n[caps]\nmax_walltime = \"12:00:00\"\n";
    world.write("site.toml", text);
    world.write("home/config/hpcsweep/site.toml", "version = 1\n[scheduler]\naccount = \"mine\"\n");
    world.set("HPCSWEEP_SITE", &world.text_path("site.toml"));
    let ran = world.run(&["site", "show"]);
    let rows: Vec<Vec<&str>> = ran
        .ok()
        .lines()
        .map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect())
        .collect();
    let row = |key: &str| rows.iter().find(|row| row[0] == key).unwrap()[1..].to_vec();
    assert_eq!(rows[0], ["key", "value", "from", "note"]);
    assert_eq!(row("scheduler.partition"), ["gpu", "$WORLD/site.toml:3"]);
    assert_eq!(row("scheduler.account")[..2], ["mine", "$WORLD/home/config/hpcsweep/site.toml:3"]);
    assert_eq!(row("caps.max_walltime")[..2], ["12:00:00", "$WORLD/site.toml:6"]);
    assert_eq!(row("scheduler.qos"), ["none", "built in"]);

    let json = world.run(&["site", "show", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.ok()).unwrap();
    let from: Vec<String> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["key"] == "scheduler.partition")
        .map(|row| format!("{} {}", row["value"], row["origin"]))
        .collect();
    assert_eq!(from, ["\"gpu\" \"$WORLD/site.toml:3\""]);
}

#[test]
fn a_wrong_profile_is_refused_by_every_verb_that_reads_it() {
    let mut world = World::new();
    world.write("site.toml", "version = 1\n[sceduler]\npartition = \"gpu\"\n");
    world.write("plan.toml", crate::support::plans::JDIT);
    world.set("HPCSWEEP_SITE", &world.text_path("site.toml"));
    for args in
        [&["site", "show"][..], &["plan", "plan.toml"], &["submit", "plan.toml"], &["doctor"]]
    {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.whole());
        assert!(ran.err.contains("sceduler") && ran.err.contains("`scheduler`"), "{}", ran.err);
    }
}

/// A Slurm for the doctor.
const SCONTROL: &str = "#!/bin/sh
echo 'Configuration data as of '$(date +%Y-%m-%dT%H:%M:%S)
echo 'AccountingStorageType   = accounting_storage/none'
echo 'MaxArraySize            = 1001'
echo 'MaxJobCount             = 10000'
echo 'MpiDefault              = pmix'
echo 'SLURM_VERSION           = 22.05.8'
";

const SRUN: &str = "#!/bin/sh
echo 'MPI plugin types are...
\tnone
\tpmix
\tpmi2
specific pmix plugin versions available: pmix_v4' >&2
";

#[test]
fn the_doctor_says_what_was_seen_and_what_to_do() {
    let world = World::new();
    world.program("scontrol", SCONTROL);
    world.program("srun", SRUN);
    let ran = world.run(&["doctor", "--json"]);
    let checks: Vec<serde_json::Value> = serde_json::from_str(ran.ok()).unwrap();
    let seen = |about: &str| {
        let check = checks.iter().find(|c| c["about"] == about);
        let check = check.unwrap_or_else(|| panic!("no check of {about}: {}", ran.out));
        (check["verdict"].as_str().unwrap(), check["seen"].as_str().unwrap())
    };
    for check in &checks {
        let keys: Vec<&String> = check.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["about", "verdict", "seen", "todo"]);
        // Findings that are not in order have a hint; those in order have none.
        assert!(check["verdict"] != "bad" || check["todo"] != "", "{check}");
        assert!(check["verdict"] != "ok" || check["todo"] == "", "{check}");
    }
    assert_eq!(seen("installation").0, "ok");
    assert_eq!(seen("scheduler"), ("ok", "Slurm 22.05.8"));
    assert_eq!(
        seen("limits"),
        ("ok", "MaxArraySize 1,001, max_array_tasks no limit, MaxJobCount 10,000")
    );
    assert_eq!(seen("accounting").0, "note");
    assert_eq!(seen("MPI plugins"), ("ok", "none pmix pmi2 pmix_v4 (default pmix)"));
    assert_eq!(seen("results tree"), ("ok", "rename, exclusive creation and links work"));
    assert_eq!(seen("space").0, "ok");
    assert_eq!(seen("file clock").0, "ok");
    assert_eq!(seen("clock").0, "ok");
    assert!(["ok", "note"].contains(&seen("GPUs").0));
    // It cleans up after itself.
    assert_eq!(world.files("."), ["bin/scontrol", "bin/srun"]);
}

#[test]
fn the_doctor_needs_no_scheduler_but_a_tree_to_write_to() {
    let world = World::new();
    world.program(
        "scontrol",
        "#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact' >&2\nexit 1\n",
    );
    let ran = world.run(&["doctor"]);
    assert!(ran.ok().contains("note  scheduler: no Slurm here: `scontrol` says: "), "{}", ran.out);
    world.write("file", "");
    let ran = world.run(&["doctor", "--root", "file"]);
    assert_eq!(ran.code, 4, "{}", ran.whole());
    assert!(
        ran.out.contains("BAD   results tree: cannot make the folder `$WORLD/file/"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("choose a root you may write to"), "{}", ran.out);
}

#[test]
fn work_goes_on_when_nobody_hears_what_is_said_of_it() {
    for args in [&["submit", "plan.toml", "--local"][..], &["worker", "--pull", "plan.toml"]] {
        let world = World::new();
        let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", \"exit $HPCSWEEP_PARAM_CODE\"]\n\
                    [grid]\ncode = [0, 3, 0]\n";
        world.write("plan.toml", plan);
        let mut child = world.command(PROGRAM).args(args).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{args:?}");
        assert_eq!(world.column("state"), ["\"done\"", "\"failed\"", "\"done\""], "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let world = World::new();
    let values: Vec<String> = (0..400).map(|n| format!("\"{n:0200}\"")).collect();
    let plan = format!(
        "version = 1\n[sweep]\nname = \"wide\"\n[run]\ncommand = [\"true\"]\n[grid]\nx = [{}]\n",
        values.join(", ")
    );
    world.write("plan.toml", &plan);
    // More than a pipe holds, so the writer meets the closed pipe.
    for args in [&["plan", "plan.toml", "--all"][..], &["plan", "plan.toml", "--json"]] {
        let mut started = world.start(args);
        let mut line = String::new();
        {
            let mut reader = BufReader::with_capacity(64, started.child.stdout.take().unwrap());
            reader.read_line(&mut line).unwrap();
        }
        assert!(!line.is_empty());
        let mut said = String::new();
        started.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = started.child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

/// What a program prints on a terminal.
fn on_a_terminal(world: &World, args: &[&str]) -> String {
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut child = world.command(PROGRAM).args(args).stdout(pty.slave).spawn().unwrap();
    let mut bytes = Vec::new();
    // It ends with an error when the last process has closed the other side.
    let _ = std::fs::File::from(pty.master).read_to_end(&mut bytes);
    assert!(child.wait().unwrap().success(), "{args:?}");
    // A terminal begins each line anew.
    world.shown(&bytes).replace("\r\n", "\n")
}

#[test]
fn json_on_a_terminal_is_the_same_document_and_steers_nothing() {
    let world = World::new();
    let value = "\u{9b}31m red \u{202e}txt.exe\u{2066} \u{7f}é";
    let plan = format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[grid]\nx = [{}, \"{}\"]\n",
        serde_json::to_string(value).unwrap().replace('\u{7f}', "\\u007f"),
        // Longer than what is written at once.
        "é".repeat(50_000)
    );
    world.local(&plan, &["-q"]).ok();
    for args in [
        &["plan", "plan.toml", "--json"][..],
        &["why", "0", "--json"],
        &["collect", "--format", "jsonl"],
        &["collect", "--format", "records"],
    ] {
        let piped = world.run(args);
        let shown = on_a_terminal(&world, args);
        assert!(
            !shown
                .contains(|c: char| c != '\n' && (c.is_control() || value.contains(c) && c > 'ÿ'))
        );
        assert!(piped.ok().contains('\u{202e}'), "{args:?}");
        let documents = |text: &str| -> Vec<serde_json::Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(documents(&shown), documents(&piped.out), "{args:?}");
    }
}

#[test]
fn the_tools_of_these_tests_are_here() {
    let world = World::new();
    for tool in ["bash", "zsh", "fish", "shellcheck"] {
        let output = world.command(tool).arg("--version").output();
        assert!(output.unwrap_or_else(|e| panic!("{}", missing(tool, &e))).status.success());
    }
}
