//! Templates: written out, edited, used from the three places they may stand in, and wrong ones.

use crate::support::world::World;

/// A plan that needs a set-up script.
const PLAN: &str = r#"version = 1
[sweep]
name = "t"
[run]
command = ["sh", "-c", "echo hello $WHO from ${EDITED:-nobody}"]
setup = ["export WHO=me"]
"#;

/// The line of the set-up template before which an edit goes.
const LAST: &str = "trap - ERR EXIT\n";

fn edit(world: &World, folder: &str, line: &str) {
    let path = format!("{folder}/setup.sh.tera");
    let text = world.read(&path);
    assert!(text.contains(LAST));
    world.write(&path, &text.replace(LAST, &format!("{line}\n{LAST}")));
}

#[test]
fn exported_templates_are_the_embedded_ones() {
    let world = World::new();
    assert_eq!(
        world.run(&["templates", "export", "mine"]).whole(),
        "mine/pbs.sh.tera\nmine/setup.sh.tera\nmine/slurm.sh.tera\nexit code 0\n"
    );
    assert_eq!(world.files("mine"), ["pbs.sh.tera", "setup.sh.tera", "slurm.sh.tera"]);
    for name in world.files("mine") {
        let source = format!("{}/templates/{name}", crate::support::world::ROOT);
        assert_eq!(world.read(&format!("mine/{name}")), std::fs::read_to_string(source).unwrap());
    }
}

#[test]
fn exporting_never_overwrites_an_edited_template() {
    let world = World::new();
    world.write("mine/slurm.sh.tera", "mine");
    assert_eq!(
        world.run(&["templates", "export", "mine"]).whole(),
        "\
error: `mine/slurm.sh.tera` is there already
hint: export into an empty folder; your edited file is not overwritten
exit code 2
"
    );
    assert_eq!(world.files("mine"), ["slurm.sh.tera"]);
    assert_eq!(world.read("mine/slurm.sh.tera"), "mine");
}

#[test]
fn an_edit_beside_the_plan_takes_effect() {
    let world = World::new();
    world.run(&["templates", "export", "templates"]).ok();
    edit(&world, "templates", "export EDITED=beside");
    world.local(PLAN, &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "hello me from beside\n");
}

#[test]
fn a_named_folder_wins_over_the_one_beside_the_plan_and_that_over_the_sites() {
    let world = World::new();
    for folder in ["templates", "named", "site"] {
        world.run(&["templates", "export", folder]).ok();
        edit(&world, folder, &format!("export EDITED={folder}"));
    }
    let profile = format!("version = 1\n[templates]\ndir = \"{}\"\n", world.text_path("site"));
    world.write("home/config/hpcsweep/site.toml", &profile);
    let said = |number: u32, args: &[&str]| {
        let plan = PLAN.replace("\"t\"", &format!("\"t{number}\""));
        world.local(&plan, args).ok();
        world.run(&["logs", "0", &format!("results/t{number}")]).ok().to_owned()
    };
    assert_eq!(said(1, &["--templates", "named"]), "hello me from named\n");
    assert_eq!(said(2, &[]), "hello me from templates\n");
    std::fs::remove_dir_all(world.path("templates")).unwrap();
    assert_eq!(said(3, &[]), "hello me from site\n");
}

#[test]
fn a_folder_with_one_template_leaves_the_other_as_it_is() {
    let world = World::new();
    world.write("named/setup.sh.tera", "#!/bin/sh\nexport EDITED=alone\nexec \"$@\"\n");
    world.local(PLAN, &["--templates", "named"]).ok();
    // The edited script is used although it takes nothing from the plan.
    assert_eq!(world.run(&["logs", "0"]).ok(), "hello from alone\n");
}

#[test]
fn a_name_that_is_not_defined_is_refused_with_file_line_and_nearest() {
    let world = World::new();
    world.run(&["templates", "export", "templates"]).ok();
    edit(&world, "templates", "# for {{ sweeep | line }}");
    let at =
        world.read("templates/setup.sh.tera").lines().position(|l| l.contains("sweeep")).unwrap()
            + 1;
    let expected = format!(
        "\
error: template uses `sweeep`, which is not defined
  $WORLD/templates/setup.sh.tera:{at}: # for {{{{ sweeep | line }}}}
hint: did you mean `sweep`?
exit code 2
"
    );
    assert_eq!(world.local(PLAN, &[]).whole(), expected);
    assert_eq!(world.run(&["plan", "plan.toml"]).whole(), expected);
    assert!(!world.exists("results/t/trials"));
}

#[test]
fn a_broken_template_is_refused_with_file_and_line() {
    let world = World::new();
    world.write("named/setup.sh.tera", "#!{{ shell }}\n{% if modules %}\nexec \"$@\"\n");
    world.write("plan.toml", PLAN);
    let ran = world.run(&["submit", "plan.toml", "--local", "--templates", "named"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    assert!(ran.err.starts_with("error: template `named/setup.sh.tera`: "), "{}", ran.err);
    assert!(ran.err.contains("named/setup.sh.tera:4:1"), "{}", ran.err);
    assert!(!world.exists("results/t/trials"));
}

#[test]
fn a_folder_without_templates_is_refused() {
    let world = World::new();
    std::fs::create_dir(world.path("empty")).unwrap();
    for folder in ["empty", "nowhere"] {
        assert_eq!(
            world.local(PLAN, &["--templates", folder]).whole(),
            format!(
                "error: the folder `{folder}` holds no template\n\
                 hint: write them there: `hpcsweep templates export {folder}`\nexit code 2\n"
            )
        );
    }
}
