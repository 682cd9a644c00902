//! The keys of plans and profiles as data: JSON schemas for editors, and the reference in `docs/plan.md`.
//!
//! `BLESS=1 cargo test` writes the shipped schemas and the tables of the reference anew.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;

use crate::support::world::{ROOT, World};

fn schema(of: &str) -> Value {
    serde_json::from_str(World::new().run(&["schema", of]).ok()).unwrap()
}

/// The errors of a schema about a document: the place of each key that it refuses.
fn refused(validator: &Validator, text: &str) -> Vec<String> {
    let document: toml::Value = toml::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let json = serde_json::to_value(document).unwrap();
    validator
        .iter_errors(&json)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// All plans that the project shows: its examples, the projects of `init`, and what stands in its pages.
fn plans() -> Vec<(String, String)> {
    let root = Path::new(ROOT);
    let mut plans = Vec::new();
    let files = |pattern: &str| -> Vec<PathBuf> {
        let found = glob::glob(&root.join(pattern).display().to_string()).unwrap();
        found.map(Result::unwrap).collect()
    };
    for path in ["examples/*.toml", "templates/project/*/plan.toml"].iter().flat_map(|p| files(p)) {
        let text = fs::read_to_string(&path).unwrap().replace("@NAME@", "demo");
        plans.push((path.display().to_string(), text));
    }
    for path in ["README.md", "docs/*.md"].iter().flat_map(|p| files(p)) {
        let page = fs::read_to_string(&path).unwrap();
        for part in page.split("```toml\n").skip(1) {
            let text = part.split("```").next().unwrap();
            if text.contains("version = 1") && text.contains("[sweep]") {
                plans.push((path.display().to_string(), text.to_owned()));
            }
        }
    }
    plans
}

#[test]
fn editors_accept_every_plan_that_the_project_shows() {
    let validator = jsonschema::draft7::new(&schema("plan")).unwrap();
    let plans = plans();
    assert!(plans.len() > 20, "{} plans", plans.len());
    for (name, text) in plans {
        assert_eq!(refused(&validator, &text), [""; 0], "{name}:\n{text}");
    }
}

#[test]
fn editors_refuse_a_slip_in_any_table() {
    let validator = jsonschema::draft7::new(&schema("plan")).unwrap();
    let head = "version = 1\nsweep.name = \"s\"\nrun.command = [\"a\"]\n";
    assert_eq!(refused(&validator, head), [""; 0]);
    for slip in [
        "[sweeep]\n",
        "sweep.rot = \"x\"\n",
        "sweep.merge = \"depe\"\n",
        "run.atempts = 2\n",
        "run.attempts = 0\n",
        "run.env = { A = [1] }\n",
        "run.env.HPCSWEEP_X = \"1\"\n",
        "metrics.reduce.loss = \"avg\"\n",
        "hooks.timeout = 60\n",
        "resources.memory = 2\n",
        "resources.nodes = 0\n",
        "resources.directives = [\"exclusive\"]\n",
        "schedule.mode = \"push\"\n",
        "pull.breaker = 2\n",
        "pull.lease = true\n",
        "grid.lr = 0.1\n",
        "grid.opt.lr = []\n",
        "grid.seed = { range = [1, 20], setp = 2 }\n",
        "grid.lr = { log = [1e-4, 1e-1] , n = 7 }\n",
        "[[trials]]\nresources.rank = 1\n",
        "[[trials]]\ntask_id = 1.5\n",
        "exclude = [{}]\n",
        "replicates.parameter = \"seed\"\n",
        "[sample]\ncount = 3\nparameters.lr = { uniform = [1] }\n",
        "[train]\nmodel = { kind = \"mlp\", hidden = [8], outputs = 3 }\nepochs = 1\n",
        "[train]\nmodel = { kind = \"mlp\", hidden = [8], outputs = 3 }\ndata.train = \"a.npz\"\nepochs = \"many\"\n",
        "[train]\nmodel = { kind = \"mpl\", hidden = [8], outputs = 3 }\ndata.train = \"a.npz\"\nepochs = 1\n",
    ] {
        assert!(!refused(&validator, &format!("{head}{slip}")).is_empty(), "{slip}");
    }
    let training = "[train]\nmodel = { kind = \"{{ kind }}\", hidden = \"{{ hidden }}\", outputs = 3 }\ndata.train = \"a.npz\"\n\
                    epochs = \"{{ n + 1 }}\"\n";
    assert_eq!(refused(&validator, &head.replace("run.command = [\"a\"]\n", training)), [""; 0]);
}

#[test]
fn editors_check_site_profiles() {
    let validator = jsonschema::draft7::new(&schema("site")).unwrap();
    let example = fs::read_to_string(Path::new(ROOT).join("site/site.toml.example")).unwrap();
    let every_key: String = example
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(refused(&validator, &every_key), [""; 0]);
    for slip in
        ["caps.max_nodes = 0\n", "scheduler.kind = \"slrum\"\n", "schedular.kind = \"slurm\"\n"]
    {
        assert!(!refused(&validator, &format!("version = 1\n{slip}")).is_empty(), "{slip}");
    }
}

/// Compares a file of the project with what the program says, or writes it.
fn check_file(name: &str, expected: &str) {
    let path = Path::new(ROOT).join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, expected).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} is not current: BLESS=1 cargo test --test it -- schema");
}

#[test]
fn the_shipped_schemas_are_those_of_the_program() {
    for of in ["plan", "site"] {
        check_file(&format!("site/schema/{of}.json"), World::new().run(&["schema", of]).ok());
    }
}

#[test]
fn the_reference_of_plans_has_the_keys_of_the_program() {
    let path = Path::new(ROOT).join("docs/plan.md");
    let mut page = fs::read_to_string(path).unwrap();
    for (table, rows) in hpcsweep::plan::reference() {
        let heading = page
            .find(&format!("<a id=\"{table}\"></a>"))
            .unwrap_or_else(|| panic!("no heading: {table}"));
        let head = "| key | default | meaning |\n|---|---|---|\n";
        let from = heading
            + page[heading..].find(head).unwrap_or_else(|| panic!("no table: {table}"))
            + head.len();
        // A table may be empty.
        let is_row = |line: &&str| line.starts_with('|');
        let old: usize = page[from..].split_inclusive('\n').take_while(is_row).map(str::len).sum();
        let to = from + old;
        let mut lines = String::new();
        for row in rows {
            writeln!(lines, "| `{}` | {} | {} |", row.key, row.default, row.about).unwrap();
        }
        page.replace_range(from..to, &lines);
    }
    check_file("docs/plan.md", &page);
}

#[test]
fn a_new_project_names_its_schema_to_editors() {
    let world = World::new();
    world.run(&["init", "demo"]).ok();
    assert!(world.read("demo/plan.toml").starts_with("#:schema ./plan.schema.json\n"));
    assert_eq!(world.read("demo/plan.schema.json"), world.run(&["schema", "plan"]).ok());
    let example = fs::read_to_string(Path::new(ROOT).join("site/site.toml.example")).unwrap();
    assert!(example.starts_with("#:schema ./schema/site.json\n"));
}
