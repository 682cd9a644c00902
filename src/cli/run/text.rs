//! The text of the plan that `run` writes, with a mark by which it knows its own plans again.

use crate::plan::author::RUN;
use crate::plan::toml_text;

use super::axes::Axis;

/// What a plan says.
pub(super) struct Wanted {
    pub(super) name: String,
    /// Program and arguments, as templates.
    pub(super) argv: Vec<String>,
    /// How `{{ args }}` of the command is written.
    pub(super) args: Option<String>,
    /// Keys of `[resources]` with their values in TOML.
    pub(super) requests: Vec<(&'static str, String)>,
    pub(super) axes: Vec<Axis>,
    pub(super) list: Option<List>,
}

/// A list of trials beside the plan.
pub(super) struct List {
    /// The parameter that has a line.
    pub(super) parameter: &'static str,
    /// The file, beside the plan.
    pub(super) file: String,
    pub(super) text: String,
}

impl List {
    /// The list of a sweep. Its name says what is in it, so that a plan and its list always fit.
    pub(super) fn new(sweep: &str, parameter: &'static str, text: String) -> Self {
        Self { parameter, file: format!("{sweep}{LINES}{}.json", digest(&text, 8)), text }
    }
}

/// What stands in the name of a list between that of its sweep and the digest of its text.
const LINES: &str = ".lines-";

impl Wanted {
    /// The plan.
    pub(super) fn text(&self) -> String {
        let quoted: Vec<String> = self.argv.iter().map(|word| toml_text(word)).collect();
        let mut text = format!(
            "# Edit it as you like, then `hpcsweep submit {name}.toml`: `hpcsweep run` leaves an edited plan alone.\n\
             version = 1\n\n[sweep]\nname = {quoted_name}\n\n\
             [run]\ncommand = [{}]\n",
            quoted.join(", "),
            name = self.name,
            quoted_name = toml_text(&self.name),
        );
        if let Some(style) = &self.args {
            text.push_str(&format!("args = {}\n", toml_text(style)));
        }
        if !self.requests.is_empty() {
            text.push_str("\n[resources]                    # of each trial\n");
            self.requests
                .iter()
                .for_each(|(key, value)| text.push_str(&format!("{key} = {value}\n")));
        }
        if let Some(list) = &self.list {
            text.push_str(&format!(
                "\n[trials]                       # one for each line, which is its `{}`\nfile = {}\n",
                list.parameter,
                toml_text(&list.file)
            ));
        }
        // A request or a chain can only be an axis.
        let is_shared = |axis: &Axis| {
            let top = axis.name.split('.').next().unwrap_or("");
            axis.values.len() == 1 && !["task_id", "gpu_ids_abs", "resources"].contains(&top)
        };
        let (shared, varied): (Vec<&Axis>, Vec<&Axis>) =
            self.axes.iter().partition(|axis| is_shared(axis));
        if !shared.is_empty() {
            text.push_str("\n[defaults]                     # the same for all trials\n");
            for axis in shared {
                text.push_str(&format!("{} = {}\n", axis.name, axis.values.join("")));
            }
        }
        if !varied.is_empty() {
            text.push_str("\n[grid]                         # each combination of these values\n");
            for axis in varied {
                let list = || format!("[{}]", axis.values.join(", "));
                let values = axis.described.clone().unwrap_or_else(list);
                text.push_str(&format!("{} = {values}\n", axis.name));
            }
        }
        format!("{RUN}{}: the same command continues the sweep.\n{text}", mark(&text))
    }
}

/// So many hexadecimal digits of the hash of a text.
fn digest(text: &str, digits: usize) -> String {
    blake3::hash(text.as_bytes()).to_hex().chars().take(digits).collect()
}

/// The mark of a plan without its first line. The name of a list in it stands for the list.
fn mark(text: &str) -> String {
    digest(text, 16)
}

/// Whether a plan was written by `run`, and has not changed since.
pub(super) fn is_own(plan: &str) -> bool {
    let Some((first, rest)) = plan.split_once('\n') else { return false };
    let written = first.strip_prefix(RUN).and_then(|after| after.split(':').next());
    written.is_some_and(|written| written == mark(rest))
}

/// The list that a plan of this sweep names, if `run` gave it its name.
pub(super) fn list_of<'a>(plan: &'a str, sweep: &str) -> Option<&'a str> {
    let named = |line: &'a str| line.strip_prefix("file = \"")?.strip_suffix('"');
    let is_list =
        |file: &&str| file.strip_prefix(sweep).is_some_and(|after| after.starts_with(LINES));
    plan.lines().find_map(named).filter(is_list)
}

/// Whether a list is what its name says.
pub(super) fn is_list(file: &str, text: &str) -> bool {
    file.ends_with(&format!("{LINES}{}.json", digest(text, 8)))
}

/// Whether a plan was written by `run`, be it edited or not.
pub(super) fn is_of_run(plan: &str) -> bool {
    plan.starts_with(RUN)
}

/// The name of a sweep after the program or script of its command.
pub(super) fn name_of(argv: &[String]) -> String {
    const SCRIPTS: [&str; 10] = ["py", "sh", "R", "r", "jl", "pl", "m", "lua", "rb", "js"];
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let script = |word: &String| {
        let base = base(word);
        let (stem, ending) = base.rsplit_once('.')?;
        (SCRIPTS.contains(&ending) && !word.starts_with('-') && !word.contains(char::is_whitespace))
            .then(|| stem.to_owned())
    };
    let module = || argv.windows(2).find(|pair| pair[0] == "-m").map(|pair| pair[1].clone());
    let program = || argv.first().map(|word| base(word));
    let name = argv.iter().find_map(script).or_else(module).or_else(program).unwrap_or_default();
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = name.chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
    let name: String = name.trim_start_matches(['.', '-']).chars().take(64).collect();
    if name.is_empty() { "sweep".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::command::{self, Names};
    use super::super::lines::{Kind, Lines};
    use super::*;
    use crate::plan::{CommandTemplate, parse_with};

    #[test]
    fn a_sweep_is_called_like_its_program_or_script() {
        for (argv, name) in [
            ("python3 train.py --lr 1", "train"),
            ("./segment {}", "segment"),
            ("python -m my.module x", "my.module"),
            ("bash -c run", "bash"),
            ("torchrun --nproc 2 src/fit.model.py", "fit.model"),
            ("/opt/a+b", "a-b"),
            ("...", "sweep"),
        ] {
            let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of(&argv), name);
        }
    }

    #[test]
    fn a_plan_is_its_own_until_it_or_its_list_changes() {
        let wanted = |list: &str| Wanted {
            name: "a".to_owned(),
            argv: vec!["true".to_owned()],
            args: None,
            requests: Vec::new(),
            axes: Vec::new(),
            list: Some(List::new("a", "input", list.to_owned())),
        };
        let text = wanted("[1]").text();
        assert!(is_own(&text) && !is_own(&(text.clone() + " ")) && !is_own(""));
        let file = list_of(&text, "a").unwrap();
        assert!(is_list(file, "[1]") && !is_list(file, "[2]"));
        assert_eq!(list_of(&text, "b"), None);
        assert_ne!(text, wanted("[2]").text());
    }

    /// Text full of what templates, TOML, JSON and shells care about.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            3 => "[{}%#'\"\\\\$ \t\r-]{0,5}",
            1 => proptest::sample::select(vec!["{{ x }}", "{% if %}", "{# c #}", "{}", "{n}", "{{n}}", "%s", "$HOME", "{{ '{{' }}", "{%- raw -%}"]).prop_map(str::to_owned),
            1 => "[^\0]{0,3}",
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_argument_and_any_line_reach_the_program_as_they_are(
            arguments in proptest::collection::vec(any_text(), 0..6),
            lines in proptest::collection::vec(any_text(), 1..4),
        ) {
            let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty() && !line.contains('\n')).collect();
            prop_assume!(!lines.is_empty() && !lines[0].starts_with('\u{feff}') && !lines.iter().any(|line| line.ends_with('\r')));
            let read = Lines::read("l", lines.join("\n").as_bytes(), Kind::Value).unwrap();
            prop_assert_eq!(&read.lines, &lines);
            let names = Names { axes: vec!["n"], input: Some("input") };
            let words: Vec<String> = std::iter::once("p".to_owned()).chain(arguments.clone()).collect();
            // What is refused is tested beside the reader.
            let Ok(command) = command::read(&words, &names) else { return Ok(()) };
            let wanted = Wanted {
                name: "a".to_owned(),
                argv: command.argv,
                args: None,
                requests: Vec::new(),
                axes: vec![Axis { name: "n".to_owned(), values: vec!["7".to_owned()], described: None }],
                list: Some(List::new("a", "input", read.list())),
            };
            let plan = parse_with(&wanted.text(), "a.toml", &|_: &str| Ok(read.list())).unwrap();
            prop_assert_eq!(plan.trials.len(), lines.len());
            let template = CommandTemplate::new(&plan.run).unwrap();
            let values = BTreeMap::from([("{n}", "7")]);
            for (trial, line) in plan.trials.iter().zip(&lines) {
                let expected: Vec<String> = words.iter().map(|word| filled(word, line, &values)).collect();
                prop_assert_eq!(template.render(&trial.params, &[]).unwrap().argv, expected);
            }
        }
    }

    /// The word with its places filled in from left to right, each once; `${}` is a shell's.
    fn filled(word: &str, line: &str, values: &BTreeMap<&str, &str>) -> String {
        let (mut text, mut unread) = (String::new(), word);
        while let Some(letter) = unread.chars().next() {
            // A variable of a shell.
            if let Some(after) = unread.strip_prefix("${") {
                text.push_str("${");
                unread = after;
                continue;
            }
            let place = std::iter::once(("{}", line)).chain(values.iter().map(|(k, v)| (*k, *v)));
            match place.into_iter().find(|(place, _)| unread.starts_with(place)) {
                Some((place, value)) => {
                    text.push_str(value);
                    unread = &unread[place.len()..];
                }
                None => {
                    text.push(letter);
                    unread = &unread[letter.len_utf8()..];
                }
            }
        }
        text
    }
}
