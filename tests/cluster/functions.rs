//! Python functions that jobs of a real Slurm call.

use std::collections::BTreeSet;

use crate::world::{BOTH, World};

/// Submits itself, unless a job has found its function; both workers have to be there before a trial ends.
const SCRIPT: &str = r#"
import os, sys, time
import hpcsweep

HERE = os.path.dirname(os.path.abspath(__file__))

def note(name, *words):
    with open(os.path.join(HERE, name), "a") as file:
        file.write(" ".join(map(str, words)) + "\n")

def fit(x, scale=1):
    job = os.environ["SLURM_ARRAY_TASK_ID"]
    os.makedirs(os.path.join(HERE, "jobs", job), exist_ok=True)
    while len(os.listdir(os.path.join(HERE, "jobs"))) < 2:
        time.sleep(0.05)
    note("ran", x)
    hpcsweep.report(loss=x)
    return {"x": x * scale, "job": job}

if __name__ == "__main__":
    points = [{"x": x, "task_id": x % 5} for x in range(19)] + [{"x": 19, "scale": 2, "task_id": "last"}]
    settings = "[resources]\nwalltime = '00:05:00'"
    sweep = hpcsweep.Sweep("results/SWEEP", settings=settings, function=fit).points(points)
    submission = sweep.submit("slurm", workers=2, processes=2, walltime="00:10:00", memory="100M", cpus=1)
    assert len(submission.jobs) == 1, submission
    records = submission.wait(170)
    assert [r.value["x"] for r in records] == list(range(19)) + [38], records
    print(len({r.value["job"] for r in records}), submission.done())
"#;

#[test]
fn a_python_sweep_is_submitted_and_waited_for() {
    for cluster in BOTH {
        let world = World::new(cluster, "function");
        world.write("fit.py", &SCRIPT.replace("SWEEP", &world.name));
        world.set("HPCSWEEP_BIN", env!("CARGO_BIN_EXE_hpcsweep"));
        world.set("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/site/python"));
        let said = world.call("python3", &["fit.py"]);
        assert_eq!(said, "2 True\n", "{}", world.report());
        assert_eq!(world.lines("ran"), (0..20).map(|x| x.to_string()).collect::<Vec<_>>());
        // By the program, from the script and from the plan that it left: nothing is left to run.
        for place in ["fit.py", &format!("results/{}.toml", world.name)] {
            let said = world.hpcsweep(&["submit", place, "--slurm", "--workers", "2"]).ok().stderr;
            assert!(said.contains("nothing left to run"), "{said}");
        }
    }
}

#[test]
fn a_script_is_submitted_and_its_pilots_end_elsewhere() {
    for cluster in BOTH {
        let world = World::new(cluster, "script");
        // Neither the function nor the values can be found by a name.
        world.write(
            "fit.py",
            "import hpcsweep, os, time
HERE = os.path.dirname(os.path.abspath(__file__))
def sweep_it():
    def fit(x, other):
        with open(HERE + '/ran', 'a') as file:
            file.write('%s %s\\n' % (x, os.environ['SLURMD_NODENAME']))
        while not os.path.exists(HERE + '/go'):
            time.sleep(0.05)
        return [x, other]
    print(len(hpcsweep.Sweep('results/script').grid(x=list(range(8)), other=[None]).run(fit)))
sweep_it()
",
        );
        let submit = ["submit", "fit.py", "--slurm", "--workers", "2"];
        let said = world.hpcsweep(&submit).ok().stderr;
        assert!(
            said.contains("2 pilots of 1 slot submitted") || said.contains("2 pilots submitted"),
            "{said}"
        );
        world.until_lines("ran", 2);
        world.call("scancel", &[&format!("{}_0", world.jobs()[0])]);
        world.until("one is left", || {
            let agents = world.status().json["witness"].to_string();
            agents.contains("1 agent at work").then_some(())
        });
        world.write("go", "");
        let status = world.until("all done", || {
            let status = world.status();
            status.is_final().then_some(status)
        });
        assert_eq!(status.states(), vec!["done"; 8], "{}", world.report());
        let trials: BTreeSet<String> =
            world.lines("ran").iter().map(|line| line[..1].to_owned()).collect();
        assert_eq!((trials.len(), world.lines("ran").len()), (8, 9), "{:?}", world.lines("ran"));
    }
}
