//! Whole profiles in, whole answers out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;

const USER: &str = "/home/ada/.config/hpcsweep/site.toml";
const ETC: &str = "/etc/hpcsweep/site.toml";

/// Loads with these files present, the environment given, an installation under `/opt/h/share/hpcsweep`.
fn load_with(files: &[(&str, &str)], vars: &[(&str, &str)]) -> anyhow::Result<Site> {
    let files: BTreeMap<PathBuf, String> =
        files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
    let mut vars: BTreeMap<String, String> =
        vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    vars.entry("HOME".to_owned()).or_insert("/home/ada".to_owned());
    let read = |path: &Path| Ok(files.get(path).cloned());
    load(&vars, &read, Some(Path::new("/opt/h/share/hpcsweep")))
}

fn refused(text: &str) -> String {
    load_with(&[(USER, text)], &[]).unwrap_err().to_string()
}

/// The rows that are not as built in, as text.
fn changed(site: &Site) -> String {
    let plain = Site::default().rows();
    let rows = site.rows().into_iter().zip(plain).filter(|(row, plain)| row != plain);
    rows.map(|(row, _)| format!("{} = {} | {} | {}\n", row.key, row.value, row.origin, row.note))
        .collect()
}

#[test]
fn without_files_everything_is_built_in() {
    let site = load_with(&[], &[]).unwrap();
    assert_eq!(site, Site::default());
    let shown: String =
        site.rows().iter().map(|row| format!("{} = {}\n", row.key, row.value)).collect();
    let expected = "\
site.name = none
scheduler.kind = auto
scheduler.partition = none
scheduler.account = none
scheduler.qos = none
scheduler.launcher = that of the scheduler
scheduler.directives = none
scheduler.single_rank_step = false
pbs.gpu_resource = ngpus
pbs.constraint_resource = none
modules.load = none
modules.init = none
limits.max_array_size = as the scheduler says
limits.max_array_tasks = as the scheduler says
limits.max_submit_jobs = as the scheduler says
limits.max_job_count = as the scheduler says
limits.max_calls = 200
limits.settle_s = 10
limits.call_timeout_s = 60
results.shared = no
results.readable_by = as the umask says
caps.max_running = no cap
caps.max_trials = no cap
caps.max_walltime = no cap
caps.max_nodes = no cap
caps.max_array_size = no cap
caps.forbidden_partitions = none
templates.dir = none
shell.path = /bin/bash
";
    assert_eq!(shown, expected);
    assert!(site.rows().iter().all(|row| row.origin == "built in" && row.note.is_empty()));
}

#[test]
fn later_layers_win_and_caps_only_become_tighter() {
    let files = [
        (
            ETC,
            "version = 1\n\
             [scheduler]\nkind = \"slurm\"\npartition = \"batch\"\naccount = \"all\"\n\
             [caps]\nmax_nodes = 8\nmax_running = 100\nforbidden_partitions = [\"debug\"]\n\
             max_walltime = \"2-00:00:00\"\n",
        ),
        (
            "/opt/h/share/hpcsweep/site/site.toml",
            "version = 1\n[modules]\nload = [\"openmpi/4.1\"]\n[templates]\ndir = \"jobs\"\n",
        ),
        (
            "/proj/site.toml",
            "version = 1\n[scheduler]\npartition = \"gpu\"\n[caps]\nmax_nodes = 4\n",
        ),
        (
            USER,
            "version = 1\n\
             scheduler.account = \"\"\nscheduler.launcher = [\"srun\", \"--mpi=pmix\", \"a b\"]\n\
             [caps]\nmax_nodes = 64\nmax_running = 10\nforbidden_partitions = [\"gpu\"]\n",
        ),
    ];
    let site = load_with(&files, &[("HPCSWEEP_SITE", "/proj/site.toml")]).unwrap();
    let expected = "\
scheduler.kind = slurm | /etc/hpcsweep/site.toml:3 | \n\
scheduler.partition = gpu | /proj/site.toml:3 | \n\
scheduler.account = none | /home/ada/.config/hpcsweep/site.toml:2 | \n\
scheduler.launcher = srun --mpi=pmix 'a b' | /home/ada/.config/hpcsweep/site.toml:3 | \n\
modules.load = openmpi/4.1 | /opt/h/share/hpcsweep/site/site.toml:3 | \n\
caps.max_running = 10 | /home/ada/.config/hpcsweep/site.toml:6 | \n\
caps.max_walltime = 2-00:00:00 | /etc/hpcsweep/site.toml:10 | \n\
caps.max_nodes = 4 | /proj/site.toml:5 | /home/ada/.config/hpcsweep/site.toml:5 asks for more; a cap can only be lowered\n\
caps.forbidden_partitions = debug gpu | /home/ada/.config/hpcsweep/site.toml:7 | together with /etc/hpcsweep/site.toml:9\n\
templates.dir = /opt/h/share/hpcsweep/site/jobs | /opt/h/share/hpcsweep/site/site.toml:5 | \n";
    assert_eq!(changed(&site), expected);
    assert_eq!(
        *site.origin("scheduler.partition"),
        Origin::File { path: "/proj/site.toml".into(), line: 3 }
    );
}

#[test]
fn all_faults_of_all_profiles_are_reported_at_once() {
    let files = [
        (ETC, "[caps]\nmax_nodes = 0\n"),
        (
            USER,
            "version = 2\n\
             colour = 1\n\
             partition = \"x\"\n\
             [schedular]\nkind = \"slurm\"\n\
             [scheduler]\nkind = \"slrum\"\nlauncher = \"srun\"\ndirectives = [\"exclusive\", \"--array=1\"]\npartitoin = \"x\"\n\
             account = \"a\\nb\"\n\
             [modules]\npartition = \"x\"\n\
             [shell]\npath = \"bash\"\n",
        ),
    ];
    let error = load_with(&files, &[]).unwrap_err();
    let expected = "\
the profile does not say its version
  /etc/hpcsweep/site.toml
hint: write `version = 1` above the first table
error: `max_nodes` cannot be 0
  /etc/hpcsweep/site.toml:2: max_nodes = 0
hint: write a whole number from 1
error: this program does not read profiles of version 2
  /home/ada/.config/hpcsweep/site.toml:1: version = 2
hint: it reads `version = 1`
error: a site profile has no key `colour`
  /home/ada/.config/hpcsweep/site.toml:2: colour = 1
hint: `hpcsweep site show` lists every key
error: a site profile has no key `partition`
  /home/ada/.config/hpcsweep/site.toml:3: partition = \"x\"
hint: did you mean `scheduler.partition`?
error: a site profile has no key `schedular`
  /home/ada/.config/hpcsweep/site.toml:4: [schedular]
hint: did you mean `scheduler`?
error: `kind` has no setting `slrum`
  /home/ada/.config/hpcsweep/site.toml:7: kind = \"slrum\"
hint: did you mean `slurm`?
error: `launcher` must be a list of strings, not a string
  /home/ada/.config/hpcsweep/site.toml:8: launcher = \"srun\"
error: `exclusive` is not an option of a scheduler
  /home/ada/.config/hpcsweep/site.toml:9: directives = [\"exclusive\", \"--array=1\"]
hint: begin it with `--` or `-`, as in `--exclusive`
error: the directive `--array=1` would overwrite what hpcsweep sets itself
  /home/ada/.config/hpcsweep/site.toml:9: directives = [\"exclusive\", \"--array=1\"]
hint: remove it: it would hold for every job of every sweep
error: a site profile has no key `scheduler.partitoin`
  /home/ada/.config/hpcsweep/site.toml:10: partitoin = \"x\"
hint: did you mean `scheduler.partition`?
error: `account` holds a line break
  /home/ada/.config/hpcsweep/site.toml:11: account = \"a\\nb\"
hint: it becomes part of one line: remove the break
error: a site profile has no key `modules.partition`
  /home/ada/.config/hpcsweep/site.toml:13: partition = \"x\"
hint: did you mean `scheduler.partition`?
error: `path` must be an absolute path without blanks
  /home/ada/.config/hpcsweep/site.toml:15: path = \"bash\"
hint: write it as in `\"/bin/bash\"`";
    assert_eq!(error.to_string(), expected);
    assert_eq!(crate::base::fault::exit_code(&error), 2);
}

#[test]
fn what_is_not_toml_is_shown_with_its_line_and_the_rest_is_read_all_the_same() {
    let expected = "\
this is not TOML: string values must be quoted, expected literal string
  /home/ada/.config/hpcsweep/site.toml:3: kind = slurm
error: the same key or table is written twice
  /home/ada/.config/hpcsweep/site.toml:5: qos = \"b\"
hint: keep one of the two; a table's keys stand under one heading
error: `settle_s` must be an integer, not a float
  /home/ada/.config/hpcsweep/site.toml:7: settle_s = 0.5
error: `call_timeout_s` cannot be 1000000000000000000
  /home/ada/.config/hpcsweep/site.toml:8: call_timeout_s = 1_000_000_000_000_000_000
hint: write a number from 1 to 86400";
    let text = "version = 1\n[scheduler]\nkind = slurm\nqos = \"a\"\nqos = \"b\"\n[limits]\nsettle_s = 0.5\ncall_timeout_s = 1_000_000_000_000_000_000\n";
    assert_eq!(refused(text), expected);
}

#[test]
fn the_variable_names_a_file_or_a_profile() {
    let check = |asked: &str, expected: Result<&str, &str>| {
        let files = [
            ("/opt/h/share/hpcsweep/site/gpu.toml", "version = 1\nsite.name = \"of here\"\n"),
            ("/opt/h/share/hpcsweep/site/pbs.toml", "version = 1\nsite.name = \"edited\"\n"),
            ("mine.toml", "version = 1\nsite.name = \"mine\"\n"),
        ];
        let answer = load_with(&files, &[("HPCSWEEP_SITE", asked)])
            .map(|site| {
                format!("{} | {}", site.site.name.clone().unwrap(), site.origin("site.name"))
            })
            .map_err(|error| error.to_string());
        assert_eq!(answer.as_deref().map_err(String::as_str), expected);
    };
    check("gpu", Ok("of here | /opt/h/share/hpcsweep/site/gpu.toml:2"));
    check("pbs", Ok("edited | /opt/h/share/hpcsweep/site/pbs.toml:2"));
    check("slurm", Ok("a Slurm cluster | shipped/slurm.toml:6"));
    check("mine.toml", Ok("mine | mine.toml:2"));
    check(
        "slrum",
        Err("`HPCSWEEP_SITE` names no site profile: `slrum`\nhint: did you mean `slurm`?"),
    );
    check(
        "/no/such.toml",
        Err(
            "the site profile `/no/such.toml` does not exist\nhint: correct `HPCSWEEP_SITE`, or unset it",
        ),
    );
}

#[test]
fn the_users_own_file_follows_the_base_directory_rules() {
    let text = "version = 1\nsite.name = \"x\"\n";
    let check = |path: &str, vars: &[(&str, &str)], found: bool| {
        let site = load_with(&[(path, text)], vars).unwrap();
        assert_eq!(site.site.name.is_some(), found, "{path}");
    };
    check("/cfg/hpcsweep/site.toml", &[("XDG_CONFIG_HOME", "/cfg")], true);
    check(USER, &[("XDG_CONFIG_HOME", "/cfg")], false);
    check(USER, &[("XDG_CONFIG_HOME", "relative")], true);
    check(USER, &[("HPCSWEEP_SITE", "")], true);
}

#[test]
fn one_file_under_two_names_is_one_layer() {
    let site = "/opt/h/share/hpcsweep/site/site.toml";
    let files = [(site, "version = 1\ncaps.forbidden_partitions = [\"debug\"]\n")];
    let site = load_with(&files, &[("HPCSWEEP_SITE", site)]).unwrap();
    assert_eq!(site.notes, BTreeMap::new());
}

#[test]
fn a_profile_that_cannot_be_read_is_the_machines_fault() {
    let read = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    let error = load(&BTreeMap::new(), &read, None).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "reading the site profile /etc/hpcsweep/site.toml: permission denied"
    );
    assert_eq!(crate::base::fault::exit_code(&error), 4);
}

#[test]
fn shipped_profiles_are_sound() {
    for (name, _) in SHIPPED {
        let site = load_with(&[], &[("HPCSWEEP_SITE", name)]).unwrap();
        assert_eq!(site.scheduler.kind.word(), *name);
    }
}

#[test]
fn the_example_has_every_key_once_and_in_order() {
    let example = include_str!("../../../site/site.toml.example");
    // `#key = ` is an example, `# Words` is a comment.
    let uncommented: String = example
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let site = load_with(&[(USER, &uncommented)], &[]).unwrap();
    let lines: Vec<usize> = keys::KEYS
        .iter()
        .map(|key| match site.origin(key.name) {
            Origin::File { line, .. } => *line,
            Origin::BuiltIn => panic!("site.toml.example lacks `{}`", key.name),
        })
        .collect();
    assert!(lines.is_sorted(), "the keys stand in another order than in KEYS: {lines:?}");
    assert_eq!(load_with(&[(USER, example)], &[]).unwrap(), Site::default());
}

#[test]
fn the_json_has_the_shape_of_the_profile() {
    let site = load_with(&[(USER, "version = 1\ncaps.max_walltime = \"1h\"\n")], &[]).unwrap();
    let json = serde_json::to_value(&site).unwrap();
    assert_eq!(json["caps"]["max_walltime_s"], 3600);
    assert_eq!(json["scheduler"]["kind"], "auto");
    assert_eq!(json["origins"]["caps.max_walltime"], format!("{USER}:2"));
}

#[test]
fn the_administrators_guide_says_of_every_key_what_the_program_says() {
    let guide = include_str!("../../../site/README.md");
    let rows: Vec<(&str, &str)> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(key, _)| keys::KEYS.iter().any(|known| known.name == *key))
        .map(|(key, rest)| (key, rest.split(" | ").next().unwrap()))
        .collect();
    let expected: Vec<(&str, &str)> = keys::KEYS.iter().map(|key| (key.name, key.about)).collect();
    assert_eq!(rows, expected);
}
