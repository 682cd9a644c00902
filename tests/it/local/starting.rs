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
