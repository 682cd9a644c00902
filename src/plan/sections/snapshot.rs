//! `[snapshot]`: which files are stored when the plan is submitted, from which its trials run.

use ignore::gitignore::GitignoreBuilder;
use serde_json::json;

use crate::plan::document::form::{LINES, line_schema};
use crate::plan::document::{Entry, Form, Reader, Section, section};
use crate::plan::run::Run;

/// `[snapshot]`: which files of the plan's folder are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Files and folders, relative to the plan's folder; at least one.
    pub(crate) paths: Vec<String>,
    /// Patterns of files to leave out, as lines of a `.gitignore` in the plan's folder.
    pub(crate) ignore: Vec<String>,
    /// The command that lists packages with their versions; empty for none, `None` for that of the program's kind.
    pub(crate) packages: Option<Vec<String>>,
}

/// The keys of `[snapshot]`.
pub(crate) static SNAPSHOT: Section<Snapshot> = section!("`[snapshot]`", Snapshot:
    "paths" => paths: PATHS, "`[\".\"]`",
        "files and folders that are stored when the plan is submitted, relative to the plan; the trials run from what was stored";
    "ignore" => ignore: PATTERNS, "`[]`",
        "what is left out: patterns as in a `.gitignore` beside the plan, in addition to the `.gitignore` files that are there";
    "packages" => packages: LINES, "`[PYTHON, \"-m\", \"pip\", \"freeze\"]` where the command begins with a Python, else none",
        "the command whose output is recorded as the versions of packages; `[]` records none";
);

const PATHS: Form<Vec<String>> = Form {
    read: |reader, entry| {
        let paths = (LINES.read)(reader, entry)?;
        if let Some(path) = paths.iter().find(|path| path.starts_with('/')) {
            let sentence = format!("`{path}` is not relative to the plan");
            reader.wrong(entry.at, sentence, "name what lies in the plan's folder or beside it");
            return None;
        }
        if paths.is_empty() {
            reader.wrong(entry.at, "`paths` is empty", "leave out `[snapshot]` to store nothing");
            return None;
        }
        Some(paths)
    },
    schema: || json!({ "type": "array", "minItems": 1, "items": line_schema() }),
};

const PATTERNS: Form<Vec<String>> = Form {
    read: |reader, entry| {
        let patterns = (LINES.read)(reader, entry)?;
        for pattern in &patterns {
            if let Err(error) = GitignoreBuilder::new("/").add_line(None, pattern) {
                let sentence = format!("`{pattern}` is not a pattern: {error}");
                reader.wrong(entry.at, sentence, "write it as in a `.gitignore`: `*.h5`, `/data/`");
                return None;
            }
        }
        Some(patterns)
    },
    schema: || json!({ "type": "array", "items": line_schema() }),
};

/// Reads `[snapshot]`; without `paths`, the plan's folder. A plan without a command is reported.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>, run: Option<&Run>) -> Snapshot {
    let mut snapshot = Snapshot { paths: vec![".".to_owned()], ..Snapshot::default() };
    SNAPSHOT.read(reader, Some(entry), &mut snapshot);
    let of_us = run.is_some_and(|run| run.train.is_some());
    if of_us || run.is_some_and(|run| run.function.is_some()) {
        let what_runs = if of_us { "`[train]`" } else { "a function" };
        let sentence =
            format!("`[snapshot]` stores the files of a command, and the plan has {what_runs}");
        reader.wrong(entry.at, sentence, "leave out `[snapshot]`");
    }
    snapshot
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::check_faults;

    #[test]
    fn what_cannot_be_stored_is_refused() {
        check_faults(
            "snapshot.paths = []\nsnapshot.ignore = [\"a{b\"]",
            "`paths` is empty
  plan.toml:4: snapshot.paths = []
hint: leave out `[snapshot]` to store nothing
error: `a{b` is not a pattern: error parsing glob 'a{b': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
  plan.toml:5: snapshot.ignore = [\"a{b\"]
hint: write it as in a `.gitignore`: `*.h5`, `/data/`",
        );
        check_faults(
            "snapshot.paths = [\"/usr\"]",
            "`/usr` is not relative to the plan
  plan.toml:4: snapshot.paths = [\"/usr\"]
hint: name what lies in the plan's folder or beside it",
        );
    }
}
