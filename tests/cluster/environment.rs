//! The environment that a job gets from its submission, from the site, and from modules.

use std::path::Path;

use crate::world::{Cluster, World};

/// Submitting from inside a job, a step, or a shell with variables of an old one makes no difference.
#[test]
fn nothing_of_an_outer_job_reaches_a_trial() {
    let world = World::new(Cluster::Accounting, "nested");
    // The first element is submitted from outside, the others from a job and from a step of it.
    let script = "env | sed 's/=.*//' | sort >$HERE/names-$HPCSWEEP_PARAM_X; env >$HERE/env-$HPCSWEEP_PARAM_X
                  echo $HPCSWEEP_TRIAL >>$HERE/ran";
    let resources = "[resources]\nmemory = \"50M\"\nwalltime = \"00:02:00\"\n[grid]\n";
    world.plan(script, &format!("{resources}x = [\"outside\"]"));
    world.submit().ok();
    for (x, before, launcher) in [
        ("job", "", ""),
        ("step", "", "srun --ntasks=1"),
        (
            "torch",
            "export RANK=7 WORLD_SIZE=9 LOCAL_RANK=7 MASTER_ADDR=far MASTER_PORT=1 OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=9",
            "",
        ),
    ] {
        let known: Vec<&str> = ["outside", "job", "step", "torch"]
            .into_iter()
            .take_while(|known| *known != x)
            .chain([x])
            .collect();
        world.plan(script, &format!("{resources}x = {known:?}"));
        let program = env!("CARGO_BIN_EXE_hpcsweep");
        let text = format!("#!/bin/sh\n{before}\n{launcher} {program} submit plan.toml --slurm\n");
        world.program("outer.sh", &text);
        let here = world.path("outer.log");
        let output = format!("--output={}", here.display());
        let chosen = ["--ntasks=3", "--nodes=2", "--mem=60M", "--gres=gpu:1", "--time=3", "--wait"];
        let mut args = vec!["--job-name=nested.outer", "--open-mode=append", &output];
        args.extend(chosen);
        args.push("outer.sh");
        world.call("/usr/bin/sbatch", &args);
        let ours = format!("env-{x}");
        world.until(&ours, || {
            world.lines("ran").iter().any(|_| world.path(&ours).exists()).then_some(())
        });
    }
    world.assert_each_ran_once(4);
    let outside = world.read("names-outside");
    assert!(outside.contains("SLURM_JOB_ID\n"), "{outside}");
    for x in ["job", "step", "torch"] {
        assert_eq!(
            world.read(&format!("names-{x}")),
            outside,
            "{x}: {}",
            world.read(&format!("env-{x}"))
        );
    }
    // The values are those of the trial's own job: one task, one node, no GPU, two minutes.
    for x in ["outside", "job", "step", "torch"] {
        let env = world.read(&format!("env-{x}"));
        for line in [
            "SLURM_NTASKS=1",
            "SLURM_NNODES=1",
            "SLURM_MEM_PER_NODE=50",
            "SLURM_ARRAY_TASK_ID=0",
            "SLURM_PROCID=0",
        ] {
            assert!(
                env.lines().any(|l| l == line)
                    || !outside.contains(line.split('=').next().unwrap()),
                "{x}: no {line} in\n{env}"
            );
        }
    }
}

#[test]
fn defaults_and_directives_of_the_site_reach_the_job() {
    let world = World::new(Cluster::Accounting, "site");
    world.site(
        "[scheduler]\npartition = \"short\"\naccount = \"dev\"\ndirectives = [\"--comment='of the site'\", \"--nice=7\"]\n",
    );
    let show = "scontrol -o show job $SLURM_JOB_ID | tr ' ' '\\n' >$HERE/job-$HPCSWEEP_TRIAL
                echo $HPCSWEEP_TRIAL >>$HERE/ran";
    world.plan(
        show,
        "[resources]\nmemory = \"50M\"\nwalltime = \"00:04:00\"\n[[trials]]\n[[trials]]\nresources.partition = \"main\"",
    );
    world.submit().ok();
    world.assert_each_ran_once(2);
    for (trial, partition) in [(0, "short"), (1, "main")] {
        let job = world.read(&format!("job-{trial}"));
        let has = |line: &str| {
            assert!(job.lines().any(|l| l == line), "trial {trial}: no {line} in\n{job}")
        };
        has(&format!("Partition={partition}"));
        has("Account=dev");
        has("TimeLimit=00:04:00");
        has("MinMemoryNode=50M");
        let nice = job.lines().find(|l| l.starts_with("Nice="));
        assert_eq!(nice, Some("Nice=7"));
        assert!(job.contains("Comment=of\nthe\nsite"), "{job}");
    }
}

#[test]
fn caps_of_the_site_refuse_before_any_call() {
    let world = World::new(Cluster::Plain, "caps");
    world.site(
        "[caps]\nmax_trials = 2\nmax_walltime = \"1h\"\nmax_nodes = 2\nforbidden_partitions = [\"short\"]\n",
    );
    world.plan(
        "true",
        "[resources]\nmemory = \"50M\"\nwalltime = \"02:00:00\"\npartition = \"short\"\nnodes = 3\nranks = 3\n[grid]\nx = [1, 2, 3]",
    );
    world.count_calls();
    let ran = world.submit();
    assert_eq!((ran.code, world.calls()), (2, 0), "{ran:?}");
    let sentences: Vec<&str> = ran.stderr.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(
        sentences,
        [
            "error: this site allows 2 trials a sweep, not 3",
            "error: this site allows 2 nodes a trial, not 3",
            "error: this site allows 01:00:00 of walltime a trial, not 02:00:00",
            "error: sweeps may not use the partition `short` of this site",
        ]
    );
}

/// `max_running` throttles: of six trials no more than two run at a time.
#[test]
fn a_cap_on_running_trials_throttles() {
    let world = World::new(Cluster::Plain, "throttle");
    world.site("[caps]\nmax_running = 2\n");
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/ran
        mkdir $HERE/running-$HPCSWEEP_TRIAL; ls -d $HERE/running-* | wc -l >>$HERE/counts
        until [ -e $HERE/go ]; do sleep 0.05; done; rmdir $HERE/running-$HPCSWEEP_TRIAL";
    world.plan(script, "[grid]\nx = [1, 2, 3, 4, 5, 6]");
    world.submit().ok();
    let (runs, waits) = ("running", "queued: JobArrayTaskLimit");
    let throttled = [runs, runs, waits, waits, waits, waits];
    world.until("two run, and no more may", || {
        (world.status().standings() == throttled && world.lines("counts").len() == 2).then_some(())
    });
    world.write("go", "");
    world.assert_each_ran_once(6);
    let counts = world.lines("counts");
    assert!(counts.iter().all(|n| n == "1" || n == "2"), "{counts:?}");
}

/// Also over arrays and over submissions: two arrays of chains, and more of both while they run.
#[test]
fn a_cap_on_running_trials_holds_for_the_whole_sweep() {
    let world = World::new(Cluster::Plain, "sweepwide");
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/ran
        mkdir $HERE/running-$HPCSWEEP_TRIAL; ls -d $HERE/running-* | wc -l >>$HERE/counts
        until [ -e $HERE/go ]; do sleep 0.05; done; rmdir $HERE/running-$HPCSWEEP_TRIAL";
    let plan = |x: &str| {
        let rest = format!(
            "[schedule]\nmax_running = 2\n[defaults]\ntask_id = \"{{{{ c }}}}-{{{{ resources.walltime }}}}\"\n\
             [grid]\nc = [{x}]\nresources.walltime = [\"5m\", \"6m\"]\nlink = [1, 2]\n"
        );
        world.plan(script, &rest);
        world.submit().ok();
    };
    plan("1");
    world.until("two run", || (world.lines("counts").len() == 2).then_some(()));
    plan("1, 2, 3");
    world.write("go", "");
    world.assert_each_ran_once(12);
    let counts = world.lines("counts");
    assert!(counts.iter().all(|n| n == "1" || n == "2"), "{counts:?}");
}

/// Modules are loaded by the real Environment Modules or Lmod of this machine, then the set-up runs.
#[test]
fn modules_are_loaded_before_the_setup_and_the_command() {
    let world = World::new(Cluster::Plain, "modules");
    let inits = ["/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash"];
    let init = inits.iter().find(|path| Path::new(path).exists());
    let init = init.expect("no environment-modules and no lmod: run `scripts/setup --for test`");
    world.write("modulefiles/tool/1.0", "#%Module1.0\nsetenv TOOL_HOME /opt/tool\n");
    world.write("modulefiles/site", "#%Module1.0\nsetenv OF_THE_SITE yes\n");
    world.set("MODULEPATH", world.path("modulefiles").to_str().unwrap());
    world.site(&format!("[modules]\nload = [\"site\"]\ninit = \"{init}\"\n"));
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/ran; echo $OF_THE_SITE $TOOL_HOME $DERIVED >>$HERE/seen",
        "modules = [\"tool/1.0\"]\nsetup = [\"export DERIVED=$TOOL_HOME/bin\"]",
    );
    world.submit().ok();
    world.assert_each_ran_once(1);
    assert_eq!(world.read("seen"), "yes /opt/tool /opt/tool/bin\n");
}

#[test]
fn a_module_that_does_not_exist_fails_the_trial_with_words() {
    let world = World::new(Cluster::Plain, "no-module");
    let inits = ["/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash"];
    let init = inits.iter().find(|path| Path::new(path).exists()).unwrap();
    world.set("MODULEPATH", world.path("modulefiles").to_str().unwrap());
    world.site(&format!("[modules]\ninit = \"{init}\"\n"));
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", "modules = [\"cudda/12.4\"]");
    world.submit().ok();
    assert_eq!(world.finished().states(), ["failed"]);
    assert_eq!(world.read("ran"), "");
    let log = world.read("results/no-module/logs/000/0.1.log");
    assert!(log.contains("cudda/12.4"), "{log}");
}

/// The project's own template, edited, is what is submitted.
#[test]
fn an_edited_template_takes_effect() {
    let world = World::new(Cluster::Plain, "template");
    world.hpcsweep(&["templates", "export", "templates"]).ok();
    let text = world.read("templates/slurm.sh.tera");
    let edited =
        text.replacen("#SBATCH --open-mode", "#SBATCH --comment=edited\n#SBATCH --open-mode", 1);
    assert_ne!(text, edited);
    world.write("templates/slurm.sh.tera", &edited);
    world.plan("scontrol show job $SLURM_JOB_ID >$HERE/job; echo $HPCSWEEP_TRIAL >>$HERE/ran", "");
    world.submit().ok();
    world.assert_each_ran_once(1);
    assert!(world.read("job").contains("Comment=edited"), "{}", world.read("job"));
}

/// Slurm makes the output of a job under the umask of its submission, which is that of the programs of its trials, too.
#[test]
fn what_jobs_leave_is_for_the_readers_of_a_sweep_whatever_the_umask_is() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new(Cluster::Accounting, "readers");
    world.plan("umask >$HERE/mask; echo $HPCSWEEP_TRIAL >>$HERE/ran", "");
    let plan = world.read("plan.toml");
    world.write("plan.toml", &plan.replace("root = ", "readable_by = \"all\", root = "));
    // The job has something to say of its own.
    let says = world.path("says");
    world.write("says", "#!/bin/bash\necho said\nexec /bin/bash \"$@\"\n");
    std::fs::set_permissions(&says, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.site(&format!("shell.path = \"{}\"\n", says.display()));
    let program = env!("CARGO_BIN_EXE_hpcsweep");
    world.call("bash", &["-c", "umask 077; exec \"$0\" submit plan.toml --slurm", program]);
    world.finished();
    assert_eq!(world.read("mask"), "0077\n");
    let files = world.files("");
    assert!(files.contains(&"logs/jobs/0001/0.log".to_owned()), "{files:?}");
    for file in files {
        let mode = std::fs::metadata(world.sweep().join(&file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "{file}");
    }
}
