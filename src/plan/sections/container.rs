//! `[container]`: the image in which the command of every trial runs.

use serde::{Deserialize, Serialize};

use crate::plan::document::form::{FLAG, LINE, LINES, word};
use crate::plan::document::{Entry, Reader, Section, Word, find, section};

/// The program that runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Runtime {
    Apptainer,
    Podman,
    Charliecloud,
    Enroot,
}

impl Word for Runtime {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("apptainer", Self::Apptainer),
        ("podman", Self::Podman),
        ("charliecloud", Self::Charliecloud),
        ("enroot", Self::Enroot),
    ];
}

/// `[container]`: the runtime and the image in which the command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) runtime: Runtime,
    /// As the runtime names it; a path is relative to the working folder.
    pub(crate) image: String,
    /// Further folders to bind, `SRC` or `SRC:DST`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) binds: Vec<String>,
    /// Whether the program sees GPUs; `None`: where its trial asks for some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpus: Option<bool>,
}

/// The keys of `[container]`.
pub(crate) static CONTAINER: Section<Container> = section!("`[container]`", Container:
    "runtime" => runtime: word::<Runtime>(), "`\"apptainer\"`",
        "what runs the container: `\"apptainer\"`, `\"podman\"`, `\"charliecloud\"` or `\"enroot\"`";
    "image" => image: LINE, "required",
        "the image, as the runtime names it; a path is relative to `workdir`";
    "binds" => binds: LINES, "`[]`",
        "further folders that the program sees: `\"/scratch/data\"`, or `\"/scratch/data:/data\"`";
    "gpus" => gpus: FLAG, "whether the trial asks for GPUs", "whether the program sees GPUs";
);

/// Reads `[container]`; `None`, which is reported, without an image or where no command runs.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    runs_command: bool,
) -> Option<Container> {
    let mut container = Container {
        runtime: Runtime::Apptainer,
        image: String::new(),
        binds: Vec::new(),
        gpus: None,
    };
    let written = CONTAINER.read(reader, Some(entry), &mut container);
    if find(&written, "image").is_none() {
        reader.missing(
            "`[container]` has no image",
            "write `image = \"image.sif\"` under `[container]`",
        );
        return None;
    }
    if !runs_command {
        let sentence = "`[container]` runs a command, and the plan has none";
        reader.wrong(entry.at, sentence, "leave out `[container]`, or write a `command`");
        return None;
    }
    if let Some(bind) = container.binds.iter().find(|bind| !bind.starts_with('/')) {
        let binds_at = find(&written, "binds").map_or(entry.at, |binds| binds.at);
        let sentence = format!("`{bind}` is not an absolute path");
        reader.wrong(binds_at, sentence, "write `\"/scratch/data\"`, or `\"/scratch/data:/data\"`");
    }
    Some(container)
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::check_faults;

    #[test]
    fn what_cannot_be_a_container_is_refused() {
        check_faults(
            "[container]\nimage = \"a.sif\"\nruntime = \"docker\"\nbinds = [\"data\"]",
            "`runtime` has no setting `docker`
  plan.toml:6: runtime = \"docker\"
hint: write one of `apptainer`, `podman`, `charliecloud` and `enroot`
error: `data` is not an absolute path
  plan.toml:7: binds = [\"data\"]
hint: write `\"/scratch/data\"`, or `\"/scratch/data:/data\"`",
        );
        check_faults(
            "[metrics]\nsync = \"mpi\"\n[container]\nimage = \"a\"\nruntime = \"podman\"",
            "Podman does not pass the socket for `[metrics] sync = \"mpi\"` to programs
  plan.toml:6: [container]
hint: choose another `runtime`, or leave out `sync`: each rank then logs its own lines",
        );
    }
}
