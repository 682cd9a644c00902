//! `[trials] file = "trials.json"`: the entries of `[[trials]]` from another file, a list of objects in JSON or a table
//! with a head line in CSV ([`cells`]).

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use toml::de::DeValue;

use crate::base::fault::Fault;
use crate::plan::document::{Entry, Reader, Table, entries};
use crate::plan::expansion::cells::{self, Refusal, Rows};
use crate::plan::expansion::leaves::{Merge, Node};
use crate::plan::expansion::trials::{self, Given, Tasks, check_name};
use crate::plan::value::Value;

/// Gives the text of a file that the plan names.
pub(crate) type Files<'a> = &'a dyn Fn(&str) -> Result<String, Fault>;

/// Keys that are not parameters are read as TOML, with the faults of TOML.
const OF_TRIALS: [&str; 3] = ["task_id", "gpu_ids_abs", "resources"];

/// Reads `[[trials]]`, or the file that `[trials]` names: the entries, and the text of the file.
pub(crate) fn trials(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
    files: Files<'_>,
) -> (Vec<Given>, Option<String>) {
    let DeValue::Table(table) = entry.item.get_ref() else {
        return (trials::read_trials(reader, tasks, entry).unwrap_or_default(), None);
    };
    let read = read(reader, tasks, table, entry.at, files);
    read.map(|(given, text)| (given, Some(text))).unwrap_or_default()
}

fn read(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    table: &Table<'_>,
    at: usize,
    files: Files<'_>,
) -> Option<(Vec<Given>, String)> {
    let written = entries(table);
    for entry in written.iter().filter(|entry| entry.key != "file") {
        reader.unknown(entry, "`[trials]`", &["file"]);
    }
    let Some(entry) = written.iter().find(|entry| entry.key == "file") else {
        let hint = "write `[[trials]]` with its parameters below, or `file = \"trials.json\"`";
        reader.wrong(at, "`[trials]` names no file", hint);
        return None;
    };
    let name = reader.line_of_text(entry)?.to_owned();
    let text = files(&name)
        .map_err(|fault| {
            let entry_place = reader.place(entry.at);
            reader.report(entry.at, fault.at(entry_place));
        })
        .ok()?;
    // Spreadsheets begin a file with a byte order mark.
    let list = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let refusal = |why: &str| Refusal { sentence: format!("`{name}`{why}"), hint: HINT.to_owned() };
    let (place, rows) = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("json") => (format!("{name}, entry"), json(&name, list)),
        Some("csv") => (name.clone(), cells::rows(&name, list)),
        _ => (name.clone(), Err(refusal(": a list of trials is a `.json` or a `.csv` file"))),
    };
    let rows = rows.and_then(|rows| match rows.is_empty() {
        true => Err(refusal(" lists no trials")),
        false => Ok(rows),
    });
    let rows = rows.map_err(|no| reader.wrong(entry.at, no.sentence, no.hint)).ok()?;
    let given_trials = given(reader, tasks, entry, &place, &rows);
    Some((given_trials, text))
}

const HINT: &str = "write a list of objects, `[{ \"lr\": 0.1 }, { \"lr\": 0.2, \"depth\": null }]`, or a line of names with \
                    a line of values for each trial";

/// Each entry; places in faults are its line (CSV) or its number (JSON).
fn given(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    file: &Entry<'_>,
    name: &str,
    rows: &[(usize, Map<String, Json>)],
) -> Vec<Given> {
    // A document with each entry on its own line.
    let mut text = "trials = [".to_owned();
    let mut current_line = 1;
    for (line, object) in rows {
        text.push_str(&"\n".repeat(line - current_line));
        current_line = *line;
        let own_keys = OF_TRIALS.iter().filter_map(|key| Some((*key, object.get(*key)?)));
        let set_keys = own_keys.filter(|(_, value)| !value.is_null());
        let pairs: Vec<String> =
            set_keys.map(|(key, value)| format!("{key} = {}", toml(value))).collect();
        text.push_str(&format!("{{ {} }},", pairs.join(", ")));
    }
    text.push_str("\n]");
    let mut listed_reader = Reader::new(name, &text);
    let document = listed_reader.document();
    let tables = entries(&document);
    let n_templates_before = tasks.templates.len();
    let list =
        tables.first().and_then(|entry| trials::read_trials(&mut listed_reader, tasks, entry));
    let mut given_trials = list.unwrap_or_default();
    for (_, at) in &mut tasks.templates[n_templates_before..] {
        *at = file.at;
    }
    let line = reader.line(file.at);
    for (given, (_, object)) in given_trials.iter_mut().zip(rows) {
        let trial_at = given.at;
        (given.at, given.line) = (file.at, line);
        for (key, value) in object.iter().filter(|(key, _)| !OF_TRIALS.contains(&key.as_str())) {
            if !check_name(&mut listed_reader, trial_at, key) {
                continue;
            }
            if given.tree.touches(key) {
                listed_reader.wrong(
                    trial_at,
                    format!("the parameter `{key}` is written twice"),
                    "keep one of them",
                );
                continue;
            }
            // JSON of any kind is a value.
            let value = Value::deserialize(value).unwrap_or(Value::Null);
            given.tree.lay_at(key, Node::from_value(value), Merge::Deep);
        }
    }
    for fault in listed_reader.into_faults().0 {
        reader.report(file.at, fault);
    }
    given_trials
}

/// The objects of a list, each with its number from 1.
fn json(name: &str, text: &str) -> Result<Rows, Refusal> {
    let refuse = |sentence: String, hint: &str| Refusal {
        sentence: format!("`{name}`: {sentence}"),
        hint: hint.to_owned(),
    };
    if let Some(number) = cells::beyond_64_bits(text) {
        let hint = "write it in quotes for a text";
        return Err(refuse(format!("{number} does not fit in 64 bits with a sign"), hint));
    }
    let value = serde_json::from_str(text).map_err(|e| {
        let line = text.lines().nth(e.line().saturating_sub(1)).unwrap_or("");
        let hint = match ["NaN", "Infinity"].iter().any(|word| line.contains(word)) {
            true => {
                "JSON has no NaN or Infinity: write `null` for no value, or `\"nan\"` and `\"inf\"`"
            }
            false => HINT,
        };
        refuse(format!("this is not JSON: {e}"), hint)
    })?;
    let Json::Array(items) = value else {
        return Err(refuse("this is not a list".to_owned(), HINT));
    };
    items
        .into_iter()
        .enumerate()
        .map(|(number, item)| match item {
            Json::Object(object) => Ok((number + 1, object)),
            _ => Err(refuse(format!("entry {} is not an object", number + 1), HINT)),
        })
        .collect()
}

/// A JSON value as TOML writes it, on one line.
fn toml(value: &Json) -> String {
    match value {
        Json::Object(map) => {
            let pairs = map.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> =
                pairs.map(|(k, v)| format!("{} = {}", toml_text(k), toml(v))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Json::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Json::String(s) => toml_text(s),
        Json::Null => "\"\"".to_owned(),
        other => other.to_string(),
    }
}

/// A basic string of TOML, whose escapes are JSON's.
pub(crate) fn toml_text(s: &str) -> String {
    Json::from(s).to_string().replace('\u{7f}', "\\u007f")
}

/// Where a plan has no folder.
pub(crate) fn no_files(name: &str) -> Result<String, Fault> {
    Err(Fault::request(format!("`{name}` cannot be read: the plan has no folder")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::file::parse_with;
    use crate::plan::testing::params;

    const PLAN: &str = "version = 1\nsweep.name = \"s\"\nrun.command = [\"a\", \"{{ lr }}\"]\n[defaults]\nlr = 0.5\n[trials]\n";

    fn plan(name: &str, file: &str, more: &str) -> Result<crate::plan::Plan, String> {
        let file = file.to_owned();
        let files = move |_: &str| Ok(file.clone());
        parse_with(&format!("{PLAN}file = \"{name}\"\n{more}"), "plan.toml", &files)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_list_of_objects_is_a_list_of_trials() {
        let list = r#"[
  {"task_id": 1, "lr": 1e-3, "gpu_ids_abs": [0], "opt": {"kind": "adam", "decay": null}, "note": null},
  {"task_id": 1, "depth": [1, null, {"a": null}], "gpu_ids_abs": null},
  {"task_id": "t{{ lr }}", "opt.kind": "sgd", "resources": {"memory": "8G"}, "lr": 2, "a\"b": "\u0085\u2028"}]"#;
        let plan = plan("trials.json", list, "[grid]\nx = [1]\n").unwrap();
        assert_eq!(
            params(&plan),
            [
                r#"{"lr":0.001,"opt":{"kind":"adam","decay":null},"note":null,"x":1}"#,
                r#"{"lr":0.5,"depth":[1,null,{"a":null}],"x":1}"#,
                "{\"lr\":2,\"opt\":{\"kind\":\"sgd\"},\"a\\\"b\":\"\u{85}\u{2028}\",\"x\":1}",
            ]
        );
        let ids: Vec<String> =
            plan.trials.iter().map(|t| t.task_id.as_ref().unwrap().to_string()).collect();
        assert_eq!(ids, ["1", "1", "t2"]);
        assert_eq!(
            plan.trials[0].gpu_ids_abs.as_deref(),
            Some(&[crate::base::host::gpus::DeviceId::Index(0)][..])
        );
        assert_eq!(
            (&plan.trials[1].gpu_ids_abs, plan.trials[2].resources.memory_mib),
            (&None, Some(8192))
        );
        // Null is a value of its own.
        let key = |json: &str| {
            let plan = super::tests::plan("t.json", json, "").unwrap();
            plan.content_key(&plan.trials[0])
        };
        assert_ne!(key(r#"[{"a": null}]"#), key(r#"[{"a": ""}]"#));
    }

    #[test]
    fn a_table_is_a_list_of_trials() {
        let table = "lr,opt.kind,task_id,resources.memory,resources.ranks,note\n\
                     0.1,adam,1,2G,,\"two\nlines, \"\"one\"\" cell\"\n,[1],b,,2,null\n";
        let plan = plan("t.csv", table, "").unwrap();
        assert_eq!(
            params(&plan),
            [
                r#"{"lr":0.1,"opt":{"kind":"adam"},"note":"two\nlines, \"one\" cell"}"#,
                r#"{"lr":0.5,"opt":{"kind":[1]},"note":null}"#,
            ]
        );
        assert_eq!(
            (plan.trials[0].resources.memory_mib, plan.trials[1].resources.ranks),
            (Some(2048), 2)
        );
    }

    #[test]
    fn faults_name_the_entry_or_the_line() {
        for (name, list, said) in [
            (
                "t.json",
                "[{\"trial\": 1}, {\"lr\": 1, \"task_id\": 1.5}]",
                "a parameter cannot be called `trial`
  t.json, entry:1: trials = [{  },
hint: choose another name: templates use this one for something else
error: `task_id` must be an integer or a string, not a float
  t.json, entry:2: { task_id = 1.5 },",
            ),
            (
                "t.csv",
                "lr,gpu_ids_abs\n1,[0]\n2,x\n",
                "`gpu_ids_abs` must be a list of devices, not a string
  t.csv:3: { gpu_ids_abs = \"x\" },",
            ),
        ] {
            assert_eq!(plan(name, list, "").unwrap_err(), said, "{name}");
        }
        for (name, list, said) in [
            ("t.json", "{}", "`t.json`: this is not a list"),
            ("t.json", "[1]", "`t.json`: entry 1 is not an object"),
            (
                "t.json",
                "[{]",
                "`t.json`: this is not JSON: key must be a string at line 1 column 3",
            ),
            (
                "t.json",
                "[{\"a\": [18446744073709551615]}]",
                "18446744073709551615 does not fit in 64 bits",
            ),
            (
                "t.json",
                "[{\"a\": 1},\n {\"a\": NaN}]",
                "JSON has no NaN or Infinity: write `null` for no value",
            ),
            ("t.csv", "a,a\n1,2\n", "`t.csv`: two columns are called `a`"),
            ("t.csv", "a\n3.10\n", "`t.csv:2`: `a` is `3.10`, a number that would not come back"),
            ("t.txt", "", "`t.txt`: a list of trials is a `.json` or a `.csv` file"),
        ] {
            let fault = plan(name, list, "").unwrap_err();
            assert!(fault.contains(said) && fault.contains("plan.toml:7: file = "), "{fault}");
        }
        let fault =
            parse_with(&format!("{PLAN}fil = \"a.json\""), "plan.toml", &no_files).unwrap_err();
        assert!(fault.to_string().contains("`[trials]` names no file"), "{fault}");
    }

    #[test]
    fn a_list_without_trials_is_refused() {
        for (name, file) in [("t.json", "[]"), ("t.csv", "lr\n"), ("t.csv", "\u{feff}a,b\r\n,\r\n")]
        {
            let error = plan(name, file, "").err().unwrap_or_default();
            assert!(error.contains(&format!("`{name}` lists no trials")), "{error}");
        }
    }
}
