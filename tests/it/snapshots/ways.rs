//! `[snapshot]` together with every other way in which a trial comes to run: repeated by itself, packed, by pilots, sent
//! back, with hooks; and what is shown of it.

use std::fs;

use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::snapshots::{git, job, plan, ran, submissions};
use crate::support::world::{World, wait_until};

const IGNORE: &str = "ignore = [\"/home/\", \"/bin/\", \"/tmp/\", \"/pbs/\", \"/events\", \"/good\", \"/go\", \"/calls*\"]";

#[test]
fn what_is_repeated_or_submitted_by_itself_runs_the_code_of_its_submission() {
    let mut pbs = Pbs::start();
    // Four of six have a place; each fails the first time.
    pbs.set("max_queued", 3);
    pbs.set("scheduling", false);
    let world = &pbs.world;
    let code = "#!/bin/sh\necho \"$HPCSWEEP_TRIAL old\" >>$HPCSWEEP_SOURCE/events\n\
        n=$(grep -c \"^$HPCSWEEP_TRIAL \" $HPCSWEEP_SOURCE/events)\n[ $n = 2 ] || exit 75\n";
    job(world, "old");
    fs::write(world.path("job.sh"), code).unwrap();
    let text = plan(IGNORE, "[0, 1, 2, 3, 4]");
    let retry = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\n[grid]";
    pbs.submit(&text.replace("[grid]", retry), &[]).ok();
    job(world, "new");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 5]);
    let twice: Vec<String> =
        (0..5).flat_map(|trial| [format!("{trial} old"), format!("{trial} old")]).collect();
    assert_eq!(ran(&pbs.world), twice.join(", "));
    assert_eq!(submissions(&pbs.world).len(), 1);
}

#[test]
fn packed_trials_pilots_and_jobs_that_are_sent_back_run_it() {
    for (how, rest) in
        [(&[][..], "[schedule]\npack = 3\n"), (&[][..], ""), (&["--pull", "--slots", "1"][..], "")]
    {
        let mut pbs = Pbs::start();
        pbs.world.set("TEST_PBS_OPERATOR", "1");
        let world = &pbs.world;
        let code = "#!/bin/sh\necho \"$HPCSWEEP_TRIAL old\" >>$HPCSWEEP_SOURCE/events\n\
            until [ -e $HPCSWEEP_SOURCE/go ]; do sleep 0.01; done\n";
        job(world, "old");
        fs::write(world.path("job.sh"), code).unwrap();
        let text = plan(IGNORE, "[0, 1, 2]").replace("[grid]", &format!("{rest}[grid]"));
        pbs.submit(&text, how).ok();
        wait_until("it runs", || world.exists("events"));
        job(world, "new");
        let jobs = pbs.jobs();
        let running: Vec<&String> = jobs
            .iter()
            .filter(|(id, job)| job["job_state"] == "R" && !id.contains("[]"))
            .map(|(id, _)| id)
            .collect();
        for id in &running {
            world.call("qrerun", &[id]).ok();
        }
        world.write("go", "");
        pbs.wait_idle();
        assert_eq!(pbs.standings(), ["done"; 3], "{how:?} {rest}");
        let ran = ran(&pbs.world);
        let mut versions: Vec<&str> = ran.split(", ").collect();
        assert!(versions.len() > 3, "nothing was sent back: {ran}");
        versions.dedup();
        assert_eq!(versions, ["0 old", "1 old", "2 old"], "{how:?} {rest}");
        pbs.set("scheduling", false);
    }
}

#[test]
fn hooks_of_trials_run_in_the_snapshot_and_those_of_the_sweep_do_not() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let world = &pbs.world;
    job(world, "old");
    world.write("good", "");
    let text = format!("#!/bin/sh\necho \"$1 $2 $(pwd)\" >>{}/hooks\n", world.text_path(""));
    for (name, mode) in [("hook.sh", 0o755), ("sweep.sh", 0o755)] {
        use std::os::unix::fs::PermissionsExt;
        world.write(name, &text);
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let hooks = "[hooks]\nfinish = [\"./hook.sh\", \"trial\", \"old\"]\nsweep_finished = [\"./sweep.sh\", \"sweep\", \"old\"]\n";
    let text = plan(&IGNORE.replace("/go\"", "/hooks\""), "[0]");
    pbs.submit(&text.replace("[snapshot]", &format!("{hooks}[snapshot]")), &[]).ok();
    world.write("hook.sh", "exit 1");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let name = submissions(&pbs.world)[0]["snapshot"].as_str().unwrap().to_owned();
    let at = pbs.world.text_path("results/s/code");
    let whole = pbs.world.text_path("");
    let whole = whole.trim_end_matches('/');
    let expected = format!("trial old {at}/{name}\nsweep old {whole}\n");
    assert_eq!(pbs.world.read("hooks"), expected);
}

#[test]
fn a_dry_run_says_what_has_changed_and_what_would_be_stored() {
    let world = World::new();
    job(&world, "old");
    world.write("lib.py", "1");
    world.write("plan.toml", &plan(IGNORE, "[0, 1]"));
    let dry = |args: &[&str]| {
        let before = (world.files("results"), world.files("tmp"));
        let ran = world.run(&[&["submit", "plan.toml", "--local", "--dry-run"], args].concat());
        assert_eq!((world.files("results"), world.files("tmp")), before);
        ran.ok().to_owned()
    };
    let code = |args: &[&str]| -> Value {
        let said: Value = serde_json::from_str(&dry(&[args, &["--json"]].concat())).unwrap();
        said["code"].clone()
    };
    let new = dry(&[]);
    assert!(new.contains("\ncode: snapshot of 3 files, 3 files would be stored, 2"), "{new}");
    let own = code(&[]);
    let (name, bytes) = (own["snapshot"].as_str().unwrap().to_owned(), own["bytes"].clone());
    assert_eq!(
        own,
        json!({"snapshot": name, "files": 3, "bytes": bytes, "new_files": 3, "new_bytes": bytes,
            "trials": 2, "changed": []})
    );
    // The submission stores what it said.
    world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(submissions(&world)[0]["snapshot"], name.as_str());
    // Nothing is to be stored then, and a change is reported.
    let same = dry(&[]);
    assert!(!same.contains("code: ") && !same.contains("changed"), "{same}");
    job(&world, "new");
    let changed = "job.sh changed: 2 trials have the old one\n\
        `--retry --current-code` runs trials again with the code as it is now\n";
    let edited = dry(&[]);
    assert!(edited.contains(changed) && !edited.contains("code: "), "{edited}");
    let own = code(&[]);
    let now = own["snapshot"].as_str().unwrap();
    let size = own["bytes"].clone();
    let of_old = json!([{"snapshot": name, "trials": 2, "files": ["job.sh"]}]);
    assert_eq!(
        own,
        json!({"snapshot": now, "files": 3, "bytes": size, "new_files": 0, "new_bytes": 0,
            "trials": 0, "changed": of_old})
    );
    let again = code(&["--retry", "--current-code"]);
    assert_eq!((&again["trials"], &again["new_files"]), (&json!(2), &json!(1)));
    assert_eq!(again["changed"], json!([]));
    let again = dry(&["--retry", "--current-code"]);
    assert!(again.contains("\ncode: snapshot of 3 files, 1 file would be stored, "), "{again}");
    // Without `[snapshot]` there is nothing to say.
    let text = plan(IGNORE, "[0, 1]").replace("[snapshot]\n", "").replace(IGNORE, "");
    world.write("plan.toml", &text);
    assert_eq!(code(&[]), Value::Null);
}

#[test]
fn a_dry_run_for_a_scheduler_and_for_agents_says_the_same_of_code() {
    let world = crate::support::slurm::slurm();
    job(&world, "old");
    world.write("plan.toml", &plan(IGNORE, "[0, 1]"));
    let said = "\ncode: snapshot of 2 files, 2 files would be stored, ";
    let hows: [&[&str]; 3] = [&["--slurm"], &["--local", "--pull"], &["--slurm", "--pull"]];
    for how in hows {
        let ran = world.run(&[&["submit", "plan.toml", "--dry-run"], how].concat());
        assert!(ran.ok().contains(said), "{how:?} {}", ran.whole());
        let ran = world.run(&[&["submit", "plan.toml", "--dry-run", "--json"], how].concat());
        let own: Value = serde_json::from_str(ran.ok()).unwrap();
        assert_eq!((&own["code"]["trials"], &own["code"]["new_files"]), (&json!(2), &json!(2)));
    }
    assert!(!world.exists("results"));
}

#[test]
fn why_and_collect_show_the_code_of_a_trial() {
    let world = World::new();
    job(&world, "old");
    world.write(".gitignore", "/home/\n/bin\n/tmp\n/results\n/events\n/good\n");
    world.write("plan.toml", &plan("", "[0, 1]"));
    git(&world, &["init", "-q", "-b", "trunk"]);
    git(&world, &["add", "."]);
    git(&world, &["commit", "-q", "-m", "first"]);
    let commit = git(&world, &["rev-parse", "HEAD"]);
    world.run(&["submit", "plan.toml", "--local"]);
    let first = submissions(&world)[0]["snapshot"].as_str().unwrap().to_owned();
    let line = |trial: &str| {
        let page = world.run(&["why", trial]);
        let mut lines = page.ok().lines().filter(|line| line.starts_with("  code: "));
        lines.next().unwrap_or_default().to_owned()
    };
    let clean = format!("  code: snapshot {}, commit {} on trunk", &first[..8], &commit[..12]);
    assert_eq!(line("0"), clean);
    let column = |name: &str| {
        let row = &world.table(&[])[0];
        row.get(name).cloned()
    };
    // One snapshot needs no column.
    assert_eq!(column("snapshot"), None);
    let records = || -> Vec<Value> {
        let ran = world.run(&["collect", "--format", "records"]);
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let code = |snapshot: &str, dirty: bool| json!({"snapshot": snapshot, "commit": commit, "branch": "trunk", "dirty": dirty});
    let of = |trial: usize| records()[trial]["code"].clone();
    assert_eq!((of(0), of(1)), (code(&first, false), code(&first, false)));
    job(&world, "new");
    world.write("good", "");
    // The other trial stays as it is.
    assert_eq!(world.run(&["retry", "1", "--current-code"]).code, 1);
    let second = submissions(&world)[1]["snapshot"].as_str().unwrap().to_owned();
    assert_eq!(line("0"), clean);
    let dirty = "on trunk with changes";
    let changed = format!("  code: snapshot {}, commit {} {dirty}", &second[..8], &commit[..12]);
    assert_eq!(line("1"), changed);
    assert_eq!((of(0), of(1)), (code(&first, false), code(&second, true)));
    assert_eq!(
        world.column("snapshot"),
        [json!(first[..8]).to_string(), json!(second[..8]).to_string()]
    );
    // The attempt that ran other code names it.
    let page = world.run(&["why", "1"]);
    let attempts: Vec<&str> =
        page.ok().lines().filter(|line| line.starts_with("  attempt ")).collect();
    assert!(attempts[0].ends_with(&format!(", snapshot {}", &first[..8])), "{attempts:?}");
    assert!(!attempts[1].contains("snapshot"), "{attempts:?}");
    let told: Value = serde_json::from_str(world.run(&["why", "1", "--json"]).ok()).unwrap();
    assert_eq!(told["code"], code(&second, true));
    let ran: Vec<&str> = told["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["snapshot"].as_str().unwrap())
        .collect();
    assert_eq!(ran, [&first, &second]);
}
