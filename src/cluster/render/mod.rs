//! Job scripts: templates, the names they may use, and the one filter through which values pass.
//!
//! A value of a plan reaches a shell only through [`crate::base::words::sh_quote`]; templates own the
//! scheduler's directives and nothing else.

pub(crate) mod context;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tera::{Context, Kwargs, State, Tera};

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::words;

/// The templates that come with the program, by file name.
pub(crate) const EMBEDDED: &[(&str, &str)] = &[
    ("pbs.sh.tera", include_str!("../../../templates/pbs.sh.tera")),
    ("setup.sh.tera", include_str!("../../../templates/setup.sh.tera")),
    ("slurm.sh.tera", include_str!("../../../templates/slurm.sh.tera")),
];

/// The templates of one submission: the embedded ones, or edited ones from a folder.
pub struct Templates {
    engine: Tera,
    sources: BTreeMap<String, (PathBuf, String)>,
}

impl Templates {
    /// The embedded templates, each replaced by the file of its name in `folder`, if there is one.
    ///
    /// # Errors
    /// When the folder does not exist, has no template, or one of them is not valid.
    pub fn load(folder: Option<&Path>) -> Result<Self> {
        let mut sources = BTreeMap::new();
        let mut n_own_templates = 0;
        for (name, text) in EMBEDDED {
            let mut source = (PathBuf::from(name), (*text).to_owned());
            if let Some(folder) = folder {
                let path = folder.join(name);
                if let Some(text) = disk::read_if_there(&path)? {
                    source = (path, text);
                    n_own_templates += 1;
                }
            }
            sources.insert((*name).to_owned(), source);
        }
        if let (Some(folder), 0) = (folder, n_own_templates) {
            let sentence = format!("the folder `{}` holds no template", folder.display());
            return Err(Fault::request(sentence)
                .hint(format!("write them there: `hpcsweep templates export {}`", folder.display()))
                .into());
        }
        let mut engine = Tera::default();
        engine.autoescape_on(Vec::<&str>::new());
        // `{#` stands in `${#array[@]}`; a comment in a template is `{! !}`.
        engine
            .set_delimiters(tera::Delimiters {
                comment_start: "{!".into(),
                comment_end: "!}".into(),
                ..tera::Delimiters::default()
            })
            .map_err(|e| anyhow::anyhow!("delimiters: {e}"))?;
        engine.register_filter("sh", |s: &str, _: Kwargs, _: &State| words::sh_quote(s));
        engine.register_filter("words", |list: Vec<String>, _: Kwargs, _: &State| {
            list.iter().map(|w| words::sh_quote(w)).collect::<Vec<_>>().join(" ")
        });
        engine.register_filter("directive", |s: &str, _: Kwargs, _: &State| directive(s));
        engine.register_filter("line", |s: &str, _: Kwargs, _: &State| one_line(s));
        let mut templates = Self { engine, sources };
        templates.add()?;
        Ok(templates)
    }

    fn add(&mut self) -> Result<()> {
        for (name, (path, text)) in &self.sources {
            self.engine.add_raw_template(name, text).map_err(|e| fault(path, &e.to_string()))?;
        }
        for (name, (path, text)) in &self.sources {
            let used = self
                .engine
                .get_template_variables(name)
                .map_err(|e| fault(path, &e.to_string()))?;
            let defined_names = context::names(name);
            let mut unknown: Vec<&str> =
                used.into_iter().filter(|used| !defined_names.contains(used)).collect();
            unknown.sort_unstable();
            if let Some(unknown) = unknown.first() {
                return Err(unknown_name(path, text, unknown, defined_names).into());
            }
        }
        Ok(())
    }

    /// Whether a template is the user's own rather than the embedded one.
    pub(crate) fn is_edited(&self, name: &str) -> bool {
        self.sources.get(name).is_some_and(|(path, _)| path != Path::new(name))
    }

    /// Renders a template by its file name.
    ///
    /// # Errors
    /// When the template cannot be rendered, with its path and line.
    pub(crate) fn render(&self, name: &str, context: &Context) -> Result<String> {
        let path = self.sources.get(name).map_or(Path::new(name), |(path, _)| path);
        let mut text =
            self.engine.render(name, context).map_err(|e| fault(path, &e.to_string()))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

/// Writes the embedded templates into a folder for editing; existing files are kept.
///
/// # Errors
/// When a file of that name is there already, or the disk refuses.
pub(crate) fn export(folder: &Path) -> Result<Vec<PathBuf>> {
    disk::make_dir(folder)?;
    for (name, _) in EMBEDDED {
        if folder.join(name).exists() {
            let sentence = format!("`{}` is there already", folder.join(name).display());
            return Err(Fault::request(sentence)
                .hint("export into an empty folder; your edited file is not overwritten")
                .into());
        }
    }
    EMBEDDED
        .iter()
        .map(|(name, text)| {
            let path = folder.join(name);
            disk::write_whole(&path, text.as_bytes())?;
            Ok(path)
        })
        .collect()
}

/// A value inside a `#SBATCH` line. Slurm splits such lines at blanks and knows single quotes, double
/// quotes and backslashes as a shell does; a line break would end the directive, so it becomes a blank.
fn directive(value: &str) -> String {
    words::sh_quote(&one_line(value))
}

fn one_line(value: &str) -> String {
    value.replace(['\n', '\r'], " ")
}

fn unknown_name(path: &Path, text: &str, name: &str, known: &[&str]) -> Fault {
    let holds = |line: &str| {
        line.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
            && (line.contains("{{") || line.contains("{%"))
    };
    let line_found = text.lines().enumerate().find(|(_, line)| holds(line));
    let template_place = line_found.map_or_else(
        || path.display().to_string(),
        |(i, line)| format!("{}:{}: {}", path.display(), i + 1, line.trim()),
    );
    let fault =
        Fault::request(format!("template uses `{name}`, which is not defined")).at(template_place);
    fault.hint(words::suggestion(name, known, "known names:"))
}

/// Tera's own report names template, line and column; only its path is made the user's.
fn fault(path: &Path, report: &str) -> Fault {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let shown = path.display().to_string();
    let report = if shown == name { report.to_owned() } else { report.replace(&name, &shown) };
    let mut lines = report.trim().lines();
    let first_line =
        lines.next().unwrap_or("it cannot be rendered").trim().trim_start_matches("error: ");
    let fault = Fault::request(format!("template `{shown}`: {first_line}"));
    let further_lines: Vec<&str> = lines.collect();
    if further_lines.is_empty() { fault } else { fault.at(further_lines.join("\n")) }
}
