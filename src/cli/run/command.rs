//! The command after `--`: `{lr}` and `{}` become expressions of the plan, all other text stays as it is.

use std::collections::BTreeSet;

use crate::base::fault::Fault;
use crate::base::words::{nearest, short};
use crate::plan::{Compiled, is_plain, toml_text};

/// What braces may name.
pub(super) struct Names<'a> {
    /// The parameters of the command line.
    pub(super) axes: Vec<&'a str>,
    /// The parameter for which `{}` stands.
    pub(super) input: Option<&'a str>,
}

/// A command as the plan has it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Command {
    /// Program and arguments, as templates.
    pub(super) argv: Vec<String>,
    /// The parameters that stand in it.
    pub(super) used: BTreeSet<String>,
}

/// A part of an argument.
enum Piece<'a> {
    Text(&'a str),
    Parameter(&'a str),
    /// All parameters that stand nowhere else.
    All,
}

/// What GNU parallel puts in for these, and how a shell makes it of the line.
const OF_PARALLEL: [(&str, &str); 7] = [
    (".", "echo \"${1%.*}\""),
    ("/", "echo \"${1##*/}\""),
    ("//", "dirname \"$1\""),
    ("/.", "name=${1##*/}; echo \"${name%.*}\""),
    ("#", "echo \"$HPCSWEEP_TRIAL\""),
    ("%", ""),
    ("+", ""),
];

/// Refuses what GNU parallel replaces in braces, where lines are given as to it.
fn refuse_of_parallel(before: &str, inside: &str) -> Result<(), Fault> {
    let known = OF_PARALLEL.iter().find(|(form, _)| *form == inside).map(|(_, code)| *code);
    let number = inside.trim_start_matches('-');
    // Behind a letter or a bracket it is a number of repeats in a pattern.
    let is_column = !number.is_empty()
        && number.bytes().all(|b| b.is_ascii_digit())
        && !before.ends_with(|c: char| c.is_alphanumeric() || "])._\\".contains(c));
    let is_code = inside.len() > 1 && inside.starts_with('=') && inside.ends_with('=');
    let code = match known {
        _ if is_column => "set -- $1; echo \"$2\"",
        Some(code) => code,
        None if is_code => "echo \"$1\" | sed s/A/B/",
        None => return Ok(()),
    };
    let hint = match code {
        "" => "leave it out; where the program wants these braces, make them a value: `p='\"{...}\"'` and `{p}`".to_owned(),
        code => format!("let a shell make it of the line: `bash -c '{code}' _ {{}}`"),
    };
    Err(Fault::request(format!("`{{{inside}}}` of GNU parallel is not replaced here")).hint(hint))
}

/// Stands for all parameters.
const ALL: &str = "{args}";

/// Whether an argument has the place of a line.
pub(super) fn takes_line(argument: &str) -> bool {
    has_place(argument, "{}")
}

/// Whether the line stands in an argument by the name of its parameter.
pub(super) fn names_line(argument: &str, parameter: &str) -> bool {
    has_place(argument, &format!("{{{parameter}}}"))
}

/// Whether an argument has this place. Behind `$` it is a variable of a shell.
fn has_place(argument: &str, place: &str) -> bool {
    argument.match_indices(place).any(|(at, _)| !argument[..at].ends_with('$'))
}

/// The command with its placeholders as templates.
///
/// # Errors
/// When a name in braces is nearly one of a parameter, or a form is one of GNU parallel.
pub(super) fn read(words: &[String], names: &Names<'_>) -> Result<Command, Fault> {
    let mut command = Command::default();
    for word in words {
        let place = |fault: Fault| fault.at(format!("in the command: {}", short(word, 100)));
        let pieces = pieces(word, names).map_err(place)?;
        for piece in &pieces {
            match piece {
                Piece::Parameter(name) => drop(command.used.insert((*name).to_owned())),
                Piece::All => command.used.extend(names.axes.iter().map(|name| (*name).to_owned())),
                Piece::Text(_) => {}
            }
        }
        command.argv.push(template(&pieces));
    }
    Ok(command)
}

fn pieces<'a>(word: &'a str, names: &Names<'a>) -> Result<Vec<Piece<'a>>, Fault> {
    if word == ALL && !names.axes.contains(&"args") {
        return Ok(vec![Piece::All]);
    }
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(open) = word[at..].find('{').map(|open| at + open) {
        at = open + 1;
        // `${x}` is a variable of a shell.
        if word[..open].ends_with('$') {
            continue;
        }
        let Some(close) = word[at..].find(['{', '}']).map(|close| at + close) else { continue };
        if !word[close..].starts_with('}') {
            continue;
        }
        let inside = &word[at..close];
        if let Some(parameter) = named(inside, names)? {
            if !inside.is_empty()
                && word[..open].ends_with('{')
                && word[close + 1..].starts_with('}')
            {
                let sentence = format!("`{{{{{inside}}}}}` has the braces of a plan");
                let hint = format!(
                    "write `{{{inside}}}` for the value; for braces around it `{{ {{{inside}}} }}`"
                );
                return Err(Fault::request(sentence).hint(hint));
            }
            pieces.extend((from < open).then(|| Piece::Text(&word[from..open])));
            pieces.push(Piece::Parameter(parameter));
            (from, at) = (close + 1, close + 1);
        } else if names.input.is_some() {
            refuse_of_parallel(&word[..open], inside)?;
        }
    }
    pieces.extend((from < word.len()).then(|| Piece::Text(&word[from..])));
    Ok(pieces)
}

/// The parameter that stands in braces; `None` for other text.
fn named<'a>(inside: &str, names: &Names<'a>) -> Result<Option<&'a str>, Fault> {
    if inside.is_empty() {
        return Ok(names.input);
    }
    if let Some(input) = names.input.filter(|input| *input == inside) {
        return Ok(Some(input));
    }
    if let Some(name) = names.axes.iter().find(|name| **name == inside) {
        return Ok(Some(name));
    }
    let name = inside.trim();
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    match nearest(name, names.axes.iter().copied()).filter(|_| is_name) {
        Some(near) => {
            let sentence = format!("`{{{inside}}}` names no parameter");
            let hint = format!(
                "did you mean `{{{near}}}`? If the program wants these braces, give the parameter `{near}` another name"
            );
            Err(Fault::request(sentence).hint(hint))
        }
        None => Ok(None),
    }
}

/// The template that gives these pieces, whatever the text among them holds.
fn template(pieces: &[Piece<'_>]) -> String {
    if let [Piece::Text(text)] = pieces
        && is_plain(text)
    {
        return (*text).to_owned();
    }
    let mut template = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Parameter(name) => template.push_str(&expression(name)),
            Piece::All => template.push_str("{{ args }}"),
            Piece::Text(text) => {
                let mut letters = text.chars().peekable();
                while let Some(letter) = letters.next() {
                    // Before another brace, `%` or `#` it would open an expression, also where that follows the text.
                    let opens = match letters.peek() {
                        Some(next) => "{%#".contains(*next),
                        None => i + 1 < pieces.len(),
                    };
                    if letter == '{' && opens {
                        template.push_str("{{ '{' }}");
                    } else {
                        template.push(letter);
                    }
                }
            }
        }
    }
    template
}

/// The expression of a parameter: its name, unless the engine reads that otherwise (`lr-decay`, `true`).
fn expression(name: &str) -> String {
    let plain = format!("{{{{ {name} }}}}");
    let is_read = |compiled: Compiled| compiled.uses.names == BTreeSet::from([name.to_owned()]);
    if Compiled::new(&plain).is_ok_and(is_read) {
        return plain;
    }
    let path: String = name.split('.').map(|part| format!("[{}]", toml_text(part))).collect();
    format!("{{{{ params{path} }}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_alone_are_all_parameters() {
        assert_eq!(of("{args}"), "{{ args }}");
        assert_eq!(of("--x={args}"), "--x={args}");
        let names = Names { axes: vec!["args"], input: None };
        let command = read(&["{args}".to_owned()], &names).unwrap();
        assert_eq!(command.argv, ["{{ args }}"]);
        let names = Names { axes: vec!["lr", "seed"], input: None };
        let words = ["p", "{seed}", "{args}"].map(str::to_owned);
        let command = read(&words, &names).unwrap();
        assert_eq!(command.used, BTreeSet::from(["lr", "seed"].map(str::to_owned)));
    }

    fn of(word: &str) -> String {
        let names = Names { axes: vec!["lr", "opt.lr", "lr-decay", "true"], input: Some("input") };
        match read(&[word.to_owned()], &names) {
            Ok(command) => command.argv.join(" "),
            Err(fault) => fault.to_string().replace('\n', " | "),
        }
    }

    #[test]
    fn known_names_alone_become_expressions() {
        for (word, template) in [
            ("--lr={lr}", "--lr={{ lr }}"),
            ("{}", "{{ input }}"),
            ("{opt.lr}/{lr}", "{{ opt.lr }}/{{ lr }}"),
            ("{lr-decay}{true}", "{{ params[\"lr-decay\"] }}{{ params[\"true\"] }}"),
            ("{ print $1 } ${x} {a,b} }{ {", "{ print $1 } ${x} {a,b} }{ {"),
            ("${lr} ${lrr} ${} {lr}", "${lr} ${lrr} ${} {{ lr }}"),
            ("{{x}}{%y%}{#z#}", "{{ '{' }}{x}}{{ '{' }}%y%}{{ '{' }}#z#}"),
            ("{ {lr} } {input}", "{ {{ lr }} } {{ input }}"),
            ("[0-9]{3} a{2} {,}", "[0-9]{3} a{2} {,}"),
            ("%s $HOME", "%s $HOME"),
        ] {
            assert_eq!(of(word), template, "{word}");
        }
    }

    #[test]
    fn a_variable_of_a_shell_is_no_place_of_a_line() {
        for (word, takes) in [("a{}", true), ("${}", false), ("${} {}", true), ("{lr}", false)] {
            assert_eq!(takes_line(word), takes, "{word}");
        }
        assert!(names_line("{input}", "input") && !names_line("${input}", "input"));
    }

    #[test]
    fn a_name_that_is_nearly_a_parameter_is_refused() {
        for (word, sentence) in [
            (
                "--x={lrr}",
                "`{lrr}` names no parameter |   in the command: --x={lrr} | hint: did you mean `{lr}`?",
            ),
            (
                "{{ lr }}",
                "`{ lr }` names no parameter |   in the command: {{ lr }} | hint: did you mean `{lr}`?",
            ),
            (
                "{{lr}}",
                "`{{lr}}` has the braces of a plan |   in the command: {{lr}} | hint: write `{lr}`",
            ),
            ("{/.}", "`{/.}` of GNU parallel is not replaced here"),
            ("{//}", "dirname \"$1\"' _ {}`"),
            ("{/}", "echo \"${1##*/}\"' _ {}`"),
            ("{.}", "echo \"${1%.*}\"' _ {}`"),
            ("a/{1}.txt", "`{1}` of GNU parallel"),
            ("{-1}", "`{-1}` of GNU parallel"),
            ("{#}", "$HPCSWEEP_TRIAL"),
            ("{%}", "leave it out"),
            ("{+}", "leave it out"),
            ("{= s/a/b/ =}", "`{= s/a/b/ =}` of GNU parallel"),
        ] {
            assert!(of(word).contains(sentence), "{}", of(word));
        }
        // Without lines a program may want them.
        let names = Names { axes: vec!["lr"], input: None };
        let words = ["{1}", "{#}", "{%}", "{+}", "{= x =}", "{.}", "{/}"].map(str::to_owned);
        assert_eq!(read(&words, &names).unwrap().used, BTreeSet::new());
    }
}
