//! Slurm in a world: programs that answer like it and write down how they were called.

use std::fs;
use std::path::Path;

use crate::support::world::{PROGRAM, Ran, World, code_of};

/// Placeholders in golden files for the program, a sweep's token and the world's folder.
pub(crate) const SHOWN_PROGRAM: &str = "/opt/hpcsweep/bin/hpcsweep";

pub(crate) const SHOWN_TOKEN: &str = "token123";

pub(crate) const SHOWN_WORLD: &str = "/shared/ada";

/// A world in which `sbatch`, `scontrol` and `squeue` answer like Slurm 22.05.8 and write down how they
/// were called.
pub(crate) fn slurm() -> World {
    let world = World::new();
    add_slurm(&world);
    world
}

/// Adds them to a world.
pub(crate) fn add_slurm(world: &World) {
    let log = world.text_path("calls");
    let write_down = format!("#!/bin/sh\nprintf '%s\\n' \"${{0##*/}} $*\" >>'{log}'\n");
    world.write("calls", "");
    world.program(
        "sbatch",
        &format!(
            "{write_down}env >'{log}.env'\ncase $1 in --test-only)\n\
             echo 'sbatch: Job 9 to start at 2026-01-02T03:04:05 using 1 processors on nodes n1 in partition main' >&2\n\
             exit 0;;\nesac\necho $((100 + $(grep '^sbatch ' '{log}' | grep -vc test-only)))\n"
        ),
    );
    world.program("squeue", &write_down);
    world.program(
        "scontrol",
        &format!(
            "{write_down}case \"$*\" in\n\
             'show config') cat <<'END'\n\
             Configuration data as of 2026-03-01T12:00:00\n\
             AccountingStorageType   = accounting_storage/none\n\
             MaxArraySize            = 1001\n\
             MaxJobCount             = 10000\n\
             MpiDefault              = pmix\n\
             SchedulerParameters     = (null)\n\
             SLURM_VERSION           = 22.05.8\n\
             END\n;;\n\
             *) echo 'PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL \
             Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 \
             Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED \
             Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO \
             OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE \
             JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED' ;;\n\
             esac\n"
        ),
    );
}

/// A script with what differs from run to run replaced.
pub(crate) fn shown(world: &World, sweep: &str, script: &str) -> String {
    let identity: serde_json::Value =
        serde_json::from_str(&world.read(&format!("{sweep}/sweep.json"))).unwrap();
    let quoted = hpcsweep::base::words::sh_quote(PROGRAM);
    world
        .read(&format!("{sweep}/jobs/{script}"))
        .replace(&quoted, SHOWN_PROGRAM)
        .replace(identity["token"].as_str().unwrap(), SHOWN_TOKEN)
        .replace(world.text_path("").trim_end_matches('/'), SHOWN_WORLD)
}

/// Compares a script, as shown, with its golden file; `own` is where it really lies.
#[track_caller]
pub(crate) fn compare(world: &World, text: &str, own: &str, path: &Path) {
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{}: {e}: write it with BLESS=1 and read it", path.display()));
    assert_eq!(text, expected, "{} differs; if that is right: BLESS=1", path.display());
    assert_eq!(world.call("bash", &["-n", own]).whole(), "exit code 0\n");
    // SC1091: it cannot follow files of the person's own. SC2016: code between single quotes shall not run.
    let ran = world.call("shellcheck", &["--norc", "--exclude=SC1091,SC2016", own]);
    assert_eq!(ran.whole(), "exit code 0\n", "{text}");
}

/// Runs the script of an array the way Slurm starts an element.
pub(crate) fn element(world: &World, script: &str, index: u32, count: u32) -> Ran {
    let mut command = world.command("bash");
    command.arg(world.path(script)).env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
    command
        .env("SLURM_ARRAY_TASK_ID", index.to_string())
        .env("SLURM_ARRAY_TASK_COUNT", count.to_string());
    command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
    let output = command.output().unwrap();
    Ran {
        code: code_of(output.status),
        out: world.shown(&output.stdout),
        err: world.shown(&output.stderr),
    }
}

/// A Slurm that keeps what it was given in a file: `id|name` a line.
pub(crate) fn remembering_slurm() -> World {
    let world = slurm();
    let jobs = world.text_path("jobs");
    world.write("jobs", "");
    world.program(
        "sbatch",
        &format!(
            "#!/bin/sh\nfor script; do :; done\n\
             name=$(sed -n 's/^#SBATCH --job-name=//p' \"$script\")\n\
             id=$((101 + $(wc -l <'{jobs}')))\n\
             echo \"$id|$name\" >>'{jobs}'\necho $id\n"
        ),
    );
    world.program(
        "squeue",
        &format!(
            "#!/bin/sh\nsed 's/^\\([0-9]*\\)|\\(.*\\)$/\\1_[0-99]|PENDING|None|\\2/' '{jobs}'\n"
        ),
    );
    let profile = "version = 1\n[limits]\nmax_array_size = 100\nsettle_s = 1\n";
    world.write("home/config/hpcsweep/site.toml", profile);
    world
}
