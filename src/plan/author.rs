//! The author of a plan: hints name what the author can change.

/// The author of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Author {
    /// A person, as TOML.
    #[default]
    Person,
    /// `hpcsweep run`, for a user who may give it other words, or edit the plan.
    Run,
    /// The Python module, for a user who calls `Sweep.run` or `Sweep.submit`.
    Python,
}

/// How the plans of the Python module begin (`plan.py` there).
const PYTHON: &str = "# Written by hpcsweep.Sweep:";

/// How the plans of `hpcsweep run` begin.
pub(crate) const RUN: &str = "# Written by hpcsweep run ";

/// Keys of the plan that are arguments in Python, and what they are called there.
const ARGUMENTS: [((&str, &str), &str); 12] = [
    (("resources", "gpus_per_rank"), "gpus"),
    (("resources", "cpus_per_rank"), "cpus"),
    (("resources", "memory"), "memory"),
    (("resources", "partition"), "partition"),
    (("resources", "account"), "account"),
    (("schedule", "gpu_share"), "gpu_share"),
    (("resources", "walltime"), "walltime"),
    (("pull", "walltime"), "walltime"),
    (("pull", "workers"), "workers"),
    (("pull", "slots"), "processes"),
    (("run", "attempts"), "attempts"),
    (("run", "on_failure"), "on_failure"),
];

impl Author {
    /// The author of a plan with this text.
    pub(crate) fn from_text(text: &str) -> Self {
        match text {
            _ if text.starts_with(PYTHON) => Self::Python,
            _ if text.starts_with(RUN) => Self::Run,
            _ => Self::Person,
        }
    }

    /// A key of a table, as its author finds it.
    pub(crate) fn key(self, table: &str, key: &str) -> String {
        self.named(table, key, None)
    }

    /// A key of a table with a value, as its author would write it.
    pub(crate) fn set(self, table: &str, key: &str, value: &str) -> String {
        self.named(table, key, Some(value))
    }

    fn named(self, table: &str, key: &str, value: Option<&str>) -> String {
        let argument = ARGUMENTS.iter().find(|(place, _)| *place == (table, key));
        match (self, argument) {
            (Self::Python, Some((_, name))) => {
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                format!("`{name}{value}` of `run` or `submit`")
            }
            (author, _) => {
                let value = value.map(|value| format!(" = {value}")).unwrap_or_default();
                let setting = format!("`{key}{value}` under `[{table}]`");
                if author == Self::Python {
                    format!("{setting} in `Sweep(..., settings=...)`")
                } else {
                    setting
                }
            }
        }
    }

    /// Where the name of a sweep is given.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Person => "give this plan another `[sweep] name`",
            Self::Run => "give this sweep another name: `hpcsweep run --name OTHER`",
            Self::Python => "give this sweep another path: `hpcsweep.Sweep(PATH)`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_what_the_author_of_a_plan_can_change() {
        let python = Author::from_text("# Written by hpcsweep.Sweep: a changed grid changes it.\n");
        let run = Author::from_text(
            "# Written by hpcsweep run 00: the same command continues the sweep.\n",
        );
        assert!(run == Author::Run && run.name().contains("--name OTHER"));
        assert_eq!((Author::from_text("version = 1\n"), python), (Author::Person, Author::Python));
        let check = |author: Author, table, key, expected: &str| {
            assert_eq!(author.set(table, key, "2"), expected);
        };
        check(Author::Person, "schedule", "gpu_share", "`gpu_share = 2` under `[schedule]`");
        check(Author::Python, "schedule", "gpu_share", "`gpu_share=2` of `run` or `submit`");
        let settings = "`lease = 2` under `[pull]` in `Sweep(..., settings=...)`";
        check(Author::Python, "pull", "lease", settings);
        assert_eq!(Author::Python.key("resources", "gpus_per_rank"), "`gpus` of `run` or `submit`");
    }
}
