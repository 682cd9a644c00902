//! The command line that runs a program in a container: the one place that knows the runtimes.
//!
//! The launcher and the worker stay outside. The runtime is the worker's child in place of the program.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::host::{Vars, disk};
use crate::plan::{Container, Run, Runtime};

/// The place of a program in a container.
pub(crate) struct Inside<'a> {
    /// The folder in which the program starts.
    pub(crate) workdir: &'a Path,
    /// The plan's working folder, where images are.
    pub(crate) source: &'a Path,
    /// Folders that it must see under the names that they have outside.
    pub(crate) folders: Vec<PathBuf>,
    /// Whether it sees GPUs.
    pub(crate) gpus: bool,
    /// The runtime's variables. Podman and Enroot pass on those that are not in [`OF_HOST`].
    pub(crate) env: &'a Vars,
}

/// Variables that describe the host and not the trial.
const OF_HOST: [&str; 11] = [
    "HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM",
    "USER",
    "_",
];

/// The environment by which the private folder of an attempt is chosen: Charliecloud has the host's `/tmp` in every image, and no
/// folder that is not in the image.
pub(crate) fn vars<'a>(run: &Run, vars: &'a Vars) -> Cow<'a, Vars> {
    match &run.container {
        Some(own) if own.runtime == Runtime::Charliecloud && vars.contains_key("TMPDIR") => {
            let mut vars = vars.clone();
            vars.remove("TMPDIR");
            Cow::Owned(vars)
        }
        _ => Cow::Borrowed(vars),
    }
}

/// The argument vector by which a runtime runs a program; the program's own arguments stay as they are.
pub(crate) fn argv(own: &Container, inside: &Inside<'_>, program: Vec<String>) -> Vec<String> {
    let workdir = inside.workdir.to_string_lossy().into_owned();
    let image = image(own, inside.source);
    let mut argv: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    let binds = binds(own, &inside.folders);
    match own.runtime {
        Runtime::Apptainer => {
            add(&["apptainer", "exec"]);
            binds.iter().for_each(|bind| add(&["--bind", bind]));
            if inside.gpus {
                add(&["--nv"]);
            }
            add(&["--pwd", &workdir, &image]);
        }
        Runtime::Podman => {
            // The process stays in the job's cgroup and among the host's processes, so that it is measured and gets signals.
            add(&["podman", "run", "--rm", "--cgroups=disabled", "--pid=host", "--network=host"]);
            add(&["--ipc=host", "--userns=keep-id", "--security-opt=label=disable"]);
            for name in names(inside.env) {
                add(&["--env", name]);
            }
            binds.iter().for_each(|bind| add(&["--volume", &both(bind)]));
            if inside.gpus {
                add(&["--device", "nvidia.com/gpu=all"]);
            }
            add(&["--workdir", &workdir, "--entrypoint="]);
            if image.starts_with('/') {
                add(&["--rootfs"]);
            }
            add(&[&image]);
        }
        Runtime::Charliecloud => {
            add(&["ch-run"]);
            binds.iter().for_each(|bind| add(&["--bind", bind]));
            add(&["--cd", &workdir, &image, "--"]);
        }
        Runtime::Enroot => {
            add(&["enroot", "start"]);
            for name in names(inside.env) {
                add(&["--env", name]);
            }
            if inside.gpus {
                add(&["--env", "NVIDIA_VISIBLE_DEVICES=all"]);
            }
            binds.iter().for_each(|bind| add(&["--mount", &both(bind)]));
            // It has no option for the working folder.
            add(&[&image, "sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh", &workdir]);
        }
    }
    argv.extend(program);
    argv
}

/// Refuses an image that is not there, and folders that a container cannot have.
///
/// # Errors
/// When the program could not be started in it.
pub(crate) fn check(own: &Container, inside: &Inside<'_>) -> Result<(), Fault> {
    let image = image(own, inside.source);
    let root = Path::new(&image);
    if !root.is_absolute() {
        return Ok(());
    }
    if !root.exists() {
        return Err(Fault::machine(format!("the image `{image}` does not exist here"))
            .because(Cause::SetUp)
            .hint("correct `[container] image`; a path is relative to `workdir`"));
    }
    if own.runtime != Runtime::Charliecloud || !root.is_dir() {
        return Ok(());
    }
    for bind in binds(own, &inside.folders) {
        let to = bind.split_once(':').map_or(&*bind, |(_, to)| to);
        let below = Path::new(to).strip_prefix("/").unwrap_or(Path::new(to));
        // The host's /tmp is there anyway.
        if !below.starts_with("tmp") && !root.join(below).exists() {
            let place = root.join(below);
            let sentence = format!("the image `{image}` has no folder `{to}` to bind to");
            return Err(Fault::machine(sentence)
                .because(Cause::SetUp)
                .hint(format!("Charliecloud makes none: `mkdir -p {}`", place.display())));
        }
    }
    Ok(())
}

/// The image; one that is named by a path, by its absolute path.
fn image(own: &Container, source: &Path) -> String {
    let image = &own.image;
    let is_path = match own.runtime {
        Runtime::Apptainer => !image.contains("://"),
        Runtime::Podman => image.starts_with(['.', '/']),
        Runtime::Charliecloud | Runtime::Enroot => {
            image.starts_with(['.', '/']) || image.ends_with(".sqfs") || image.ends_with(".sqsh")
        }
    };
    if is_path {
        disk::absolute(&source.join(image)).to_string_lossy().into_owned()
    } else {
        image.clone()
    }
}

/// What is bound: each folder once, and none below another.
fn binds(own: &Container, folders: &[PathBuf]) -> Vec<String> {
    let mut all: Vec<&PathBuf> = folders.iter().collect();
    all.sort();
    all.dedup();
    let is_top = |folder: &&&PathBuf| {
        !all.iter().any(|other| *other != **folder && folder.starts_with(other))
    };
    let top = all.iter().filter(is_top).map(|folder| folder.to_string_lossy().into_owned());
    top.chain(own.binds.iter().cloned()).collect()
}

fn both(bind: &str) -> String {
    if bind.contains(':') { bind.to_owned() } else { format!("{bind}:{bind}") }
}

/// The variables that the program gets, where a runtime passes none by itself.
fn names(env: &Vars) -> impl Iterator<Item = &str> {
    env.keys().map(String::as_str).filter(|name| !OF_HOST.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(runtime: Runtime, image: &str, gpus: bool) -> String {
        let own = Container {
            runtime,
            image: image.to_owned(),
            binds: vec!["/scratch/data:/data".to_owned()],
            gpus: None,
        };
        let vars = [("PATH", "/bin"), ("RANK", "1"), ("HPCSWEEP_TRIAL", "7")];
        let env: Vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let folders = vec![
            "/p/exp".into(),
            "/p/exp/results/s".into(),
            "/tmp/hpcsweep-1".into(),
            "/p/exp".into(),
        ];
        let inside = Inside {
            workdir: Path::new("/p/exp"),
            source: Path::new("/p/exp"),
            folders,
            gpus,
            env: &env,
        };
        argv(&own, &inside, vec!["train".to_owned(), "a b".to_owned(), "--".to_owned()]).join("|")
    }

    #[test]
    fn each_runtime_has_its_command_line() {
        assert_eq!(
            line(Runtime::Apptainer, "../a.sif", true),
            "apptainer|exec|--bind|/p/exp|--bind|/tmp/hpcsweep-1|--bind|/scratch/data:/data|--nv|--pwd|/p/exp|/p/a.sif|train|a b|--"
        );
        assert_eq!(
            line(Runtime::Apptainer, "docker://debian", false),
            "apptainer|exec|--bind|/p/exp|--bind|/tmp/hpcsweep-1|--bind|/scratch/data:/data|--pwd|/p/exp|docker://debian|train|a b|--"
        );
        assert_eq!(
            line(Runtime::Podman, "debian:12", true),
            "podman|run|--rm|--cgroups=disabled|--pid=host|--network=host|--ipc=host|--userns=keep-id|--security-opt=label=disable|\
             --env|HPCSWEEP_TRIAL|--env|RANK|--volume|/p/exp:/p/exp|--volume|/tmp/hpcsweep-1:/tmp/hpcsweep-1|\
             --volume|/scratch/data:/data|--device|nvidia.com/gpu=all|--workdir|/p/exp|--entrypoint=|debian:12|train|a b|--"
        );
        assert!(
            line(Runtime::Podman, "./root", false)
                .contains("|--entrypoint=|--rootfs|/p/exp/root|train|")
        );
        assert_eq!(
            line(Runtime::Charliecloud, "./root", true),
            "ch-run|--bind|/p/exp|--bind|/tmp/hpcsweep-1|--bind|/scratch/data:/data|--cd|/p/exp|/p/exp/root|--|train|a b|--"
        );
        assert_eq!(
            line(Runtime::Enroot, "debian", true),
            "enroot|start|--env|HPCSWEEP_TRIAL|--env|RANK|--env|NVIDIA_VISIBLE_DEVICES=all|--mount|/p/exp:/p/exp|\
             --mount|/tmp/hpcsweep-1:/tmp/hpcsweep-1|--mount|/scratch/data:/data|\
             debian|sh|-c|cd \"$1\" && shift && exec \"$@\"|sh|/p/exp|train|a b|--"
        );
    }
}
