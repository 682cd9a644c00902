//! What the program says of recorded sweeps, whole: a change of an answer is a change of a file here. `tests/cases/views/make` has made
//! the sweeps; `BLESS=1` records the answers anew.

use std::fs::{self, File};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use crate::support::slurm::slurm;
use crate::support::world::{PROGRAM, ROOT, World};

/// Where the sweeps were made. Elsewhere they would be copies.
const PLACE: &str = "/tmp/hpcsweep-views";

/// All that is asked of a sweep of so many trials.
fn questions(sweep: &str, trials: usize) -> Vec<String> {
    let mut all = vec![
        format!("status {sweep} --offline"),
        format!("status {sweep} --offline --json"),
        format!("usage {sweep} --json"),
        format!("collect {sweep} --offline --format records"),
        format!("collect {sweep} --offline --attempts --format jsonl"),
        format!("why {sweep} --offline --json"),
    ];
    all.extend((0..trials).map(|trial| format!("why {trial} {sweep} --offline --json")));
    all.push("plan plan.toml --json".to_owned());
    for target in ["--local -j 2", "--slurm"] {
        for again in ["", " --retry"] {
            all.push(format!("submit plan.toml {target} --dry-run --json{again}"));
        }
    }
    all
}

fn answers(world: &World, name: &str) -> String {
    let (folder, sweep) = (format!("{PLACE}/{name}"), format!("results/{name}"));
    let table = world.run_in(&folder, &["collect", &sweep, "--offline", "--format", "records"]);
    let questions = questions(&sweep, table.out.lines().count());
    let each = |question: &String| {
        let words: Vec<&str> = question.split(' ').collect();
        format!("$ hpcsweep {question}\n{}", world.run_in(&folder, &words).whole())
    };
    let cores = std::thread::available_parallelism().unwrap();
    let text: String = questions.iter().map(each).collect();
    text.replace(PROGRAM, "hpcsweep").replace(&format!("\"cores\":{cores}"), "\"cores\":2")
}

#[test]
fn answers_about_recorded_sweeps_are_as_they_were() {
    let world = slurm();
    let cases = Path::new(ROOT).join("tests/cases/views");
    let lock = File::create(format!("{PLACE}.lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let names = fs::read_dir(&cases).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> =
        names.filter_map(|name| Some(name.to_str()?.strip_suffix(".tar.gz")?.to_owned())).collect();
    assert!(names.len() > 5, "{names:?}");
    let mut changed = Vec::new();
    for name in names {
        let _ = fs::remove_dir_all(PLACE);
        fs::create_dir(PLACE).unwrap();
        let archive = cases.join(format!("{name}.tar.gz"));
        let unpack = ["-xzf", archive.to_str().unwrap(), "--no-same-owner", "-C", PLACE];
        world.call("tar", &unpack).ok();
        let (path, now) = (cases.join(format!("{name}.txt")), answers(&world, &name));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &now).unwrap();
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        let differs = before.lines().zip(now.lines()).find(|(before, now)| before != now);
        if before != now {
            changed.push(format!("{name}: {differs:?}"));
        }
    }
    fs::remove_dir_all(PLACE).unwrap();
    drop(lock);
    assert!(changed.is_empty(), "BLESS=1 records these anew:\n{}", changed.join("\n"));
}
