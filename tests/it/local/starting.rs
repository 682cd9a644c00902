//! Why a program did not start, or its set-up ended: the trial says which it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::plans::shell;
use crate::support::world::World;

/// What `status` says of the one trial, run here and by an agent.
fn said(prepare: impl Fn(&World), plan: &str) -> [String; 2] {
    ["--local", "--pull"].map(|how| {
        let world = World::new();
        prepare(&world);
        world.write("plan.toml", plan);
        match how {
            "--local" => world.run(&["submit", "plan.toml", "--local", "-q"]),
            _ => world.run(&["worker", "--pull", "plan.toml"]),
        };
        let trial = world.status()["trials"][0].clone();
        assert_eq!(trial["state"], "failed", "{how}: {trial}");
        world.shown(trial["reason"].as_str().unwrap().as_bytes())
    })
}

fn plan(command: &str, rest: &str) -> String {
    format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = {command}\n{rest}")
}

fn program(world: &World, name: &str, text: &str) {
    world.write(name, text);
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_set_up_that_ends_names_its_last_command() {
    for (line, code) in [
        ("source nope", 1),
        (". ./nope", 1),
        ("false", 1),
        ("exit 3", 3),
        // The command was not run: that is not a success.
        ("exit 0", 1),
    ] {
        let setup = format!("setup = [\"true\", \"{line}\"]\n");
        for reason in said(|_| (), &shell("touch ran", &setup)) {
            assert_eq!(reason, format!("exit code {code}: the set-up failed at: {line}"));
        }
    }
}

/// Files that sites have their users source.
fn site_files(world: &World) {
    for (name, text) in [
        ("shift.sh", "while [ $# -gt 0 ]; do shift; done\n"),
        ("options.sh", "while getopts 'xc:' option; do :; done; shift $((OPTIND - 1))\n"),
        ("set.sh", "set -- one two\n"),
        (
            "takes.sh",
            "for word do shift; case $word in --*) ;; *) set -- \"$@\" \"$word\";; esac; done\n",
        ),
        ("split.sh", "IFS=:/; set -f -u\n"),
        ("trap.sh", "trap 'echo bye' EXIT ERR; trap '' INT\n"),
        ("exec.sh", "exec() { echo no exec; }; trap() { :; }\n"),
        ("careless.sh", "set +e\nfalse\ngrep -q optional /dev/null\nfalse\n"),
        ("own.sh", "echo \"$# $*\"\n"),
        (
            "vendor.sh",
            "true\nhave() { [ -e /nonexistent ]; }\ngrep -q optional /dev/null\nexport READY=1\n",
        ),
        ("inner.sh", ". ./vendor.sh\n"),
        ("leaves.sh", "trap - EXIT ERR; exit 0\n"),
        ("becomes.sh", "trap - EXIT ERR; exec true\n"),
    ] {
        world.write(name, text);
    }
}

#[test]
fn what_a_set_up_sources_sees_no_arguments_and_cannot_change_the_command() {
    let command = "[\"sh\", \"-c\", \"printf '<%s>' \\\"$0\\\" \\\"$@\\\" >got\", \"--config=a b\", \"--force\", \"\", \"lr=0.1\"]";
    for file in [
        "shift.sh",
        "options.sh",
        "set.sh",
        "takes.sh",
        "split.sh",
        "trap.sh",
        "exec.sh",
        "careless.sh",
        "own.sh",
    ] {
        let world = World::new();
        site_files(&world);
        world.local(&plan(command, &format!("setup = [\"source ./{file}\"]\n")), &[]).ok();
        assert_eq!(world.read("got"), "<--config=a b><--force><><lr=0.1>", "{file}");
        if file == "own.sh" {
            assert_eq!(world.run(&["logs", "0"]).ok(), "0 \n");
        }
    }
}

#[test]
fn a_set_up_that_ends_before_the_command_has_failed_whatever_it_does() {
    let inner = " (./vendor.sh, line 3: grep -q optional /dev/null)";
    for (lines, code, why) in [
        ("source ./vendor.sh", 1, format!("failed at: source ./vendor.sh{inner}")),
        (". ./inner.sh", 1, ". ./inner.sh".to_owned()),
        ("source ./leaves.sh", 1, "ended before the command began".to_owned()),
        ("source ./becomes.sh", 1, "ended before the command began".to_owned()),
        ("exec true", 1, "ended before the command began".to_owned()),
        ("trap - EXIT ERR; exit 9", 9, "ended before the command began".to_owned()),
    ] {
        let reasons = said(site_files, &shell("touch ran", &format!("setup = [\"{lines}\"]\n")));
        for reason in reasons {
            let is_told = reason.starts_with(&format!("exit code {code}: the set-up "));
            assert!(is_told && reason.contains(&why), "{lines}: {reason}");
        }
    }
}

#[test]
fn a_set_up_template_of_before_still_becomes_the_command() {
    let world = World::new();
    world.write("t/setup.sh.tera", "#!{{ shell }}\nset -e\nexport A=1\nexec \"$@\"\n");
    let ran = world.local(&shell("echo $A $1", ""), &["--templates", "t"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.run(&["logs", "0"]).ok(), "1\n");
}

#[test]
fn a_program_that_cannot_be_started_is_told_from_a_script_that_cannot() {
    let crlf = |world: &World| program(world, "run.sh", "#!/bin/sh\r\necho\r\n");
    let gone = |world: &World| program(world, "run.sh", "#!/opt/none/bash\necho\n");
    let fine = |world: &World| program(world, "ve.py", "print()\n");
    for setup in ["", "setup = [\"true\"]\n"] {
        let check = |reasons: [String; 2], why: &str| {
            for reason in reasons {
                assert!(reason.contains(why), "{setup:?}: {reason}");
            }
        };
        check(
            said(crlf, &plan("[\"./run.sh\"]", setup)),
            "cannot start `./run.sh`: its first line ends with a carriage return, as lines of Windows do",
        );
        check(
            said(gone, &plan("[\"./run.sh\"]", setup)),
            "cannot start `./run.sh`: its first line asks for `/opt/none/bash`, which does not exist here",
        );
        check(
            said(fine, &plan("[\"python3 ve.py\"]", setup)),
            "cannot start `python3 ve.py`: this is one word, and there is no program of that name",
        );
    }
}

/// Stands for Modules 3.2, which leaves with 0 when there is no such module.
const MODULES: &str = "module() { case \"$1 $2\" in
\"load good/1.0\") export GOOD=1 LOADEDMODULES=good/1.0; echo 'good/1.0 is old' >&2;;
\"load alias\") echo 'ERROR: deprecated' >&2; export LOADEDMODULES=$LOADEDMODULES:x/2;;
*) echo \"ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'\" >&2;;
esac; }\n";

#[test]
fn a_module_that_is_missing_fails_whatever_its_load_leaves_with() {
    let loads = |modules: &str| {
        let world = World::new();
        world.write("init.sh", MODULES);
        let init = format!("version = 1\n[modules]\ninit = \"{}\"\n", world.text_path("init.sh"));
        world.write("home/config/hpcsweep/site.toml", &init);
        world.local(&shell("echo GOOD=$GOOD", &format!("modules = {modules}\n")), &["-q"]);
        world.run(&["logs", "0", "-n", "2"]).out
    };
    assert_eq!(loads("[\"good/1.0\", \"alias\", \"good/1.0\"]"), "good/1.0 is old\nGOOD=1\n");
    let said = "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'no/2'\n\
                the set-up failed at: module load no/2\n";
    assert_eq!(loads("[\"good/1.0\", \"no/2\"]"), said);
    assert_eq!(loads("[\"no/2\", \"good/1.0\"]"), said);
}
