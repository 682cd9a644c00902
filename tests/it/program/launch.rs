//! `hpcsweep launch` and its agent in a PBS job made of files: launchers of every kind as small scripts, a
//! `pbs_tmrsh` that records its arguments. And the ranks of a job whose launcher was forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::world::{PROGRAM, Ran, World};

/// A job with these lines in its node file, and no launcher but those that the test writes.
fn job(nodefile: &str) -> World {
    let mut world = World::new();
    world.write("aux/9[3].s", nodefile);
    world.set("PBS_NODEFILE", &world.text_path("aux/9[3].s"));
    world.set("PBS_JOBID", "9[3].s");
    fs::create_dir(world.path("job")).unwrap();
    world.set("TMPDIR", &world.text_path("job"));
    world.set("PBS_ARRAY_INDEX", "3");
    world.set("PBS_CONF_FILE", "/nowhere/pbs.conf");
    // The tools that the scripts below are made of, and nothing else of this machine.
    for tool in ["sh", "sort", "uniq", "env", "cat", "cut"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), world.path("bin").join(tool))
            .unwrap();
    }
    world.set("PATH", &world.text_path("bin"));
    world
}

/// Writes an executable anywhere in the world.
fn executable(world: &World, name: &str, text: &str) {
    world.write(name, text);
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn printed(world: &World, ranks: &str) -> Ran {
    let mut ran = world.run(&["launch", "--ranks", ranks, "--print", "--", "prog", "a b"]);
    ran.out = ran.out.replace(PROGRAM, "HPCSWEEP");
    ran
}

const TWO_HOSTS: &str = "n1\nn1\nn2\nn2\n";

/// A launcher that only says its version.
fn says(version: &str) -> String {
    format!("#!/bin/sh\ncat <<'EOF'\n{version}\nEOF\n")
}

#[test]
fn the_command_line_is_that_of_the_mpi_at_hand() {
    let check = |programs: &[(&str, &str)], expected: &str| {
        let world = job(TWO_HOSTS);
        for (name, version) in programs {
            world.program(name, &says(version));
        }
        let ran = printed(&world, "4");
        assert_eq!(ran.whole(), format!("{expected}\nexit code 0\n"), "{programs:?}");
    };
    let open_mpi = |name: &str| {
        format!("{name}_allowed_exit_without_sync=1 $WORLD/bin/mpiexec -n 4 --bind-to none")
    };
    let [orte, prte] = ["OMPI_MCA_orte", "PRTE_MCA_prte"].map(open_mpi);
    const CARRIED: &str = "-x PBS_JOBID -x PBS_ARRAY_INDEX prog 'a b'";
    let with_agent = |option: &str, name: &str| {
        let (start, attached) = match name {
            "ssh" => (&prte, "--leave-session-attached"),
            _ => (&orte, "--mca orte_leave_session_attached 1"),
        };
        format!(
            "{start} --hostfile '$WORLD/job/hpcsweep-hosts-9[3].s' {option} plm_{name}_agent 'HPCSWEEP tm-agent' \
             {option} plm_{name}_no_tree_spawn 1 {attached} \
             {option} plm_{name}_num_concurrent 2 {CARRIED}"
        )
    };
    let four = ("mpiexec", "mpiexec (OpenRTE) 4.1.4");
    let with_tm = "mca:plm:tm:version:\"component:4.1.4\"";
    let without = "mca:plm:rsh:version:\"component:4.1.4\"";
    check(&[four, ("ompi_info", without)], &with_agent("--mca", "rsh"));
    check(&[four, ("ompi_info", with_tm)], &format!("{orte} {CARRIED}"));
    // Without `ompi_info`, Open MPI counts as built without tm.
    check(&[four], &with_agent("--mca", "rsh"));
    let five = ("mpiexec", "mpiexec (Open MPI) 5.0.7");
    check(&[five, ("prte_info", without), ("ompi_info", with_tm)], &with_agent("--prtemca", "ssh"));
    check(&[five, ("prte_info", with_tm)], &format!("{prte} {CARRIED}"));
    check(
        &[("mpirun", "HYDRA build details:\n    Version:  4.0.2")],
        "HYDRA_LAUNCHER_EXTRA_ARGS=tm-agent $WORLD/bin/mpirun -n 4 -bootstrap rsh -bootstrap-exec HPCSWEEP prog 'a b'",
    );
    check(
        &[("mpirun", "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619")],
        "I_MPI_PIN=off $WORLD/bin/mpirun -n 4 -bootstrap rsh -bootstrap-exec HPCSWEEP -bootstrap-exec-args tm-agent prog 'a b'",
    );
    check(
        &[("mpiexec", "mpiexec PALS 1.2.12")],
        "$WORLD/bin/mpiexec -n 4 --ppn 2 --cpu-bind none prog 'a b'",
    );
    check(&[("mpiexec", "MPT 2.28")], "$WORLD/bin/mpiexec -n 4 prog 'a b'");
}

#[test]
fn the_script_of_pbs_itself_is_passed_over() {
    let mut world = job("n1\nn1\n");
    let path = format!("{}:{}", world.text_path("pbs/bin"), world.text_path("bin"));
    executable(&world, "pbs/bin/mpiexec", &says("mpiexec (OpenRTE) 4.1.4"));
    executable(&world, "pbs/bin/pbs_tmrsh", "#!/bin/sh\n");
    world.set("PATH", &path);
    let ran = printed(&world, "2");
    assert_eq!(
        ran.whole(),
        "error: no mpiexec or mpirun on the PATH that could start the ranks\n  \
         passed over: $WORLD/pbs/bin/mpiexec, a script of PBS itself\n\
         hint: load the MPI of your program (`module load openmpi` in `[run] setup` or `[modules]`), or \
         name `scheduler.launcher` in the site profile\nexit code 4\n"
    );
    world.program("mpirun", &says("MPT 2.28"));
    assert_eq!(printed(&world, "2").ok(), "$WORLD/bin/mpirun -n 2 prog 'a b'\n");
    // The same script where PBS is not.
    fs::remove_file(world.path("pbs/bin/pbs_tmrsh")).unwrap();
    assert!(printed(&world, "2").ok().contains(" $WORLD/pbs/bin/mpiexec -n 2 "));
}

#[test]
fn a_job_without_the_places_is_refused() {
    let mut world = job(TWO_HOSTS);
    world.program("mpiexec", &says("MPT 2.28"));
    let ran = world.run(&["launch", "--ranks", "8", "--", "prog"]);
    assert_eq!(
        ran.whole(),
        "error: the job has 4 places for ranks, the trial asks for 8\n  \
         $WORLD/aux/9[3].s: n1: 2, n2: 2\n\
         hint: PBS gives a place for each of `mpiprocs`: `-l select=HOSTS:ncpus=C:mpiprocs=RANKS_A_HOST`\n\
         exit code 2\n"
    );
    world.set("PBS_NODEFILE", &world.text_path("gone"));
    let ran = world.run(&["launch", "--ranks", "8", "--", "prog"]);
    assert_eq!(ran.code, 4);
    assert!(ran.err.starts_with("error: cannot read `$WORLD/gone`"), "{}", ran.err);
    world.set("PBS_NODEFILE", "");
    let ran = world.run(&["launch", "--ranks", "8", "--", "prog"]);
    assert_eq!(
        ran.whole(),
        "error: `PBS_NODEFILE` is not set: this is not a job of PBS\n\
         hint: elsewhere ranks are started by srun, mpiexec or `hpcsweep submit --local`\nexit code 2\n"
    );
}

/// An mpirun with its essentials: one agent a host, as Open MPI calls it and as Hydra does, which starts
/// that host's ranks; the exit code is the worst of theirs.
const MPIRUN: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo "$SAYS"; exit; fi
agent=
while :; do
    case $1 in
        -n | -x | --bind-to) shift 2 ;;
        --hostfile) hostfile=$2; shift 2 ;;
        --mca) [ "$2" != plm_rsh_agent ] || agent=$3; shift 3 ;;
        -bootstrap) shift 2 ;;
        -bootstrap-exec) agent="$2 $HYDRA_LAUNCHER_EXTRA_ARGS -x"; hostfile=$PBS_NODEFILE; shift 2 ;;
        *) break ;;
    esac
done
worst=0
for host in $(cut -d' ' -f1 "$hostfile" | sort -u); do
    $agent "$host" "AGENT_SAID='two words'; export AGENT_SAID;" "$@" || worst=$?
done
exit $worst
"#;

/// It runs its arguments as PBS does: no shell, the environment of the submission, another `PATH`.
const TMRSH: &str = r#"#!/bin/sh
grep -qx "$1" "$PBS_NODEFILE" || { echo "pbs_tmrsh: host \"$1\" is not a node in job"; exit 255; }
host=$1
shift
exec env -i PATH=/bin:/usr/bin HOST_OF_TASK=$host "$@"
"#;

#[test]
fn other_hosts_are_reached_through_pbs() {
    for version in ["mpirun (Open MPI) 4.1.4", "HYDRA build details:"] {
        let mut world = job("n1.org\nn1.org\nn2.org\nn2.org\n");
        world.set("SAYS", version);
        world.program("mpirun", MPIRUN);
        executable(&world, "pbs/bin/pbs_tmrsh", TMRSH);
        world.set("PBS_EXEC", &world.text_path("pbs"));
        world.set("LD_LIBRARY_PATH", "/m/lib");
        let grep = "/usr/bin/grep";
        std::os::unix::fs::symlink(grep, world.path("bin/grep")).unwrap();
        executable(
            &world,
            "rank",
            "#!/bin/sh\necho \"$HOST_OF_TASK $AGENT_SAID $LD_LIBRARY_PATH $PATH $PBS_JOBID $1\"\n[ $HOST_OF_TASK = n1.org ] || exit 7\n",
        );
        let rank = world.text_path("rank");
        let ran = world.run(&["launch", "--ranks", "4", "--", &rank, "end"]);
        assert_eq!(
            ran.whole(),
            "n1.org two words /m/lib $WORLD/bin  end\nn2.org two words /m/lib $WORLD/bin  end\nexit code 7\n",
            "{version}"
        );
    }
}

#[test]
fn the_agent_names_hosts_as_pbs_does() {
    let mut world = job("n1.org\nn2.org\n");
    world.program("pbs_tmrsh", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let told = |host: &str| {
        format!(
            "{host}\n/usr/bin/env\nPATH=$WORLD/bin\n{PROGRAM}\ntm-agent\n--here\n/bin/bash\n-c\norted -mca x 'y z' -h\nexit code 0\n"
        )
    };
    let words = ["orted", "-mca", "x", "'y z'", "-h"];
    for (options, host, known) in [
        (&[][..], "n2", "n2.org"),
        (&["-x", "-n"], "n1.org", "n1.org"),
        (&["-l", "ada"], "n3", "n3"),
    ] {
        let args = [&["tm-agent"][..], options, &[host], &words].concat();
        assert_eq!(world.run(&args).whole(), told(known), "{args:?}");
    }
    world.set("PATH", "/nowhere");
    world.set("PBS_EXEC", "/nowhere");
    // Where PBS is really installed in its usual place, that one is found.
    if !std::path::Path::new("/opt/pbs/bin/pbs_tmrsh").exists() {
        let ran = world.run(&["tm-agent", "n2", "true"]);
        assert_eq!(
            ran.whole(),
            "error: `pbs_tmrsh`, which starts processes on the other hosts of a PBS job, is not on this host\n\
             hint: set PBS_EXEC to where PBS is installed, or name in the site profile a \
             `scheduler.launcher` that reaches other hosts in another way\nexit code 4\n"
        );
    }
}

#[test]
fn a_forgotten_launcher_is_told_by_the_node_file() {
    let world = job(TWO_HOSTS);
    const ALONE: &str = "rank        0 of 1\nlocal rank  0 of 1\nnode        0 of 1\nstarted by  no launcher\n\n\
                         derived from\n  PBS_JOBID=9[3].s\n";
    assert_eq!(
        world.run(&["worker", "--explain"]).whole(),
        format!(
            "{ALONE}\nwarning: allocation has 4 tasks, but no launcher started me\n\
             hint: did you forget mpiexec? Without it this process works alone as rank 0 of 1; `mpiexec ... \
             hpcsweep worker` starts all ranks, `hpcsweep launch --ranks N -- hpcsweep worker ...` does so by \
             the mpiexec it finds\nexit code 0\n"
        )
    );
    assert_eq!(job("n1\n").run(&["worker", "--explain"]).whole(), format!("{ALONE}exit code 0\n"));
    // Other hosts of the job may have no such file; there a launcher is at work.
    let mut world = job("");
    world.set("PBS_NODEFILE", "/nowhere/9.s");
    assert_eq!(world.run(&["worker", "--explain"]).whole(), format!("{ALONE}exit code 0\n"));
    world.set("PMI_RANK", "1");
    world.set("PMI_SIZE", "4");
    let ran = world.run(&["worker", "--explain"]);
    assert!(ran.ok().starts_with("rank        1 of 4\n"), "{}", ran.out);
}

#[test]
fn a_worker_whose_ranks_are_missing_says_how_to_start_them() {
    let mut world = job(TWO_HOSTS);
    world.set("PATH", "/usr/bin:/bin");
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"false\"]\n[resources]\nranks = 4\n";
    assert_eq!(world.local(plan, &[]).code, 1);
    let ran = world.run(&["worker", "--sweep", "results/s", "--trial", "0"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    let trial = &world.status()["trials"][0];
    assert_eq!(
        (trial["state"].as_str().unwrap(), trial["reason"].as_str().unwrap()),
        (
            "failed",
            "trial 0 asks for 4 ranks, but 1 was started; launcher: no launcher; hint: put `hpcsweep \
             launch --ranks N --` in front of the worker, or the mpiexec of the MPI it was built with; \
             `hpcsweep worker --explain` shows what this one sees"
        )
    );
}

/// The doctor's findings about scheduler and launchers.
fn doctor(world: &World) -> Vec<String> {
    let ran = world.run(&["doctor", "--json"]);
    let checks: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    let about =
        ["scheduler", "history", "limits", "queue", "arrays", "launcher", "launch line", "mpirun"];
    let text = |check: &serde_json::Value, key: &str| check[key].as_str().unwrap().to_owned();
    checks
        .iter()
        .filter(|check| about.contains(&text(check, "about").as_str()))
        .map(|check| {
            let todo = text(check, "todo");
            let todo = if todo.is_empty() { todo } else { format!(" | {todo}") };
            let line = format!(
                "{} {}: {}{todo}",
                text(check, "verdict"),
                text(check, "about"),
                text(check, "seen")
            );
            world.shown(line.replace(PROGRAM, "HPCSWEEP").as_bytes())
        })
        .collect()
}

const QSTAT: &str = r#"#!/bin/sh
case "$*" in
    --version) echo pbs_version = 20.0.1 ;;
    "-B -f -F json") echo '{"Server": {"head": {"server_state": "Active", "scheduling": "True",
        "default_queue": "workq", "max_array_size": 10000}}}' ;;
    "-Q -f -F json") echo '{"Queue": {"workq": {"enabled": "True", "started": "True"}}}' ;;
    *) exit 2 ;;
esac
"#;

#[test]
fn the_doctor_examines_pbs_and_what_would_start_ranks() {
    let mut world = job("");
    world.program("qstat", QSTAT);
    world.program("pbs_tmrsh", "#!/bin/sh\n");
    world.program("mpiexec", &says("HYDRA build details:\n    Version:  4.0.2"));
    executable(&world, "other/mpirun", &says("MPT 2.28"));
    let path = format!("{}:{}", world.text_path("other"), world.text_path("bin"));
    const SERVER: [&str; 5] = [
        "ok scheduler: OpenPBS 20.0.1, server head (Active)",
        "note history: job_history_enable is off: a job is forgotten when it ends, and one that never started \
         looks the same | nothing: records keep what trials did; of a job that is gone without one, PBS will not \
         say why",
        "ok limits: max_array_size 10,000",
        "ok queue: workq (default)",
        "note arrays: OpenPBS 20.0.1 does not know `-J 0-9%2`, which came with 22.05 | a plan that limits how many \
         trials run at a time needs smaller arrays one behind the other, so more calls",
    ];
    let check = |world: &World, expected: &[&str]| {
        assert_eq!(doctor(world), [&SERVER[..], expected].concat());
    };
    check(
        &world,
        &[
            // A script beside pbs_tmrsh is PBS's own.
            "note launcher: no mpiexec or mpirun on the PATH that could start the ranks | trials of several ranks \
             need one: load the module of your MPI and run this again",
            "ok launcher: passed over: $WORLD/bin/mpiexec (a script of PBS itself)",
        ],
    );
    fs::rename(world.path("bin/pbs_tmrsh"), world.path("other/pbs_tmrsh")).unwrap();
    world.set("PBS_EXEC", "/nowhere");
    const LINE: &str = "ok launch line: 2 hosts of 2 ranks: HYDRA_LAUNCHER_EXTRA_ARGS=tm-agent $WORLD/bin/mpiexec -n 4 \
                        -bootstrap rsh -bootstrap-exec HPCSWEEP hpcsweep worker ...";
    const HYDRA: &str =
        "launcher: $WORLD/bin/mpiexec: MPICH (Hydra) 4.0.2; reads the hosts of a job by itself";
    world.set("PATH", &format!("{}:{}", world.text_path("bin"), world.text_path("other")));
    check(
        &world,
        &[
            &format!("ok {HYDRA}, reaches other hosts by pbs_tmrsh"),
            LINE,
            "ok launcher: passed over: $WORLD/other/mpirun (a script of PBS itself)",
        ],
    );
    world.set("PATH", &path);
    world.program("pbs_tmrsh", "");
    fs::remove_file(world.path("other/pbs_tmrsh")).unwrap();
    check(
        &world,
        &[
            "note launcher: $WORLD/other/mpirun: MPT 2.28; whose it is cannot be told, so it is only given the number \
             of ranks | try a plan of two hosts; `scheduler.launcher` in the site profile names a better command line",
            "ok launch line: $WORLD/other/mpirun -n 4 hpcsweep worker ...",
            "ok launcher: passed over: $WORLD/bin/mpiexec (a script of PBS itself)",
        ],
    );
    world.write(
        "home/config/hpcsweep/site.toml",
        "version = 1\nscheduler.launcher = [\"mpirun\", \"-x\", \"a b\"]\n",
    );
    check(&world, &["ok launcher: that of the site profile: mpirun -x 'a b'"]);
}

#[test]
fn the_doctor_tells_apart_what_calls_itself_qstat() {
    let check = |qstat: &str, expected: &str| {
        let world = job("");
        world.program("qstat", qstat);
        assert_eq!(doctor(&world).join("\n"), expected);
    };
    check(
        &says("Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e"),
        "bad scheduler: Torque 6.1.2, which is not supported: its arrays (`-t`, PBS_ARRAYID) and dependencies are other \
         ones than PBS's | `--local` runs a plan on one host; OpenPBS, PBS Professional and Slurm take it as job arrays",
    );
    check(
        "#!/bin/sh\necho 'Unknown option: version\nUsage:\n    qstat [-f]' >&2\nexit 2\n",
        "note scheduler: qsub and qstat are here, but they are wrappers for Slurm (slurm-wlm-torque), not PBS | submit \
         with `--slurm`: the wrappers lose requests and dependencies",
    );
    check(
        &says("SGE 8.1.9"),
        "note scheduler: $WORLD/bin/qstat is here, but not PBS's: it says `SGE 8.1.9` | only OpenPBS, PBS \
         Professional and Slurm are supported",
    );
    check(
        "#!/bin/sh\n[ $1 != --version ] || { echo pbs_version = 23.06.06; exit; }\n\
         echo 'qstat: cannot connect to server head (errno=15010)' >&2\nexit 255\n",
        "bad scheduler: OpenPBS 23.06.06, but `qstat` says: cannot connect to server head (errno=15010) | run this where \
         jobs can be submitted; does `qstat -B` work there?\n\
         ok arrays: `-J 0-9%2` limits how many elements run at a time\n\
         note launcher: no mpiexec or mpirun on the PATH that could start the ranks | trials of several ranks need one: \
         load the module of your MPI and run this again",
    );
}
