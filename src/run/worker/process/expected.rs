//! What a trial must have left to be done: `[run] expect`. An exit code of 0 alone shows little.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::base::cause::{Cause, Why};
use crate::base::fault::Fault;
use crate::plan::{CommandTemplate, Params};

/// The metrics and the files that a plan expects of a trial.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Metrics that have not been reported yet.
    metrics: Vec<String>,
    files: Vec<PathBuf>,
}

impl Expected {
    /// Fills in what is expected of a trial in `workdir`. A text that begins with `/`, `./` or `../` is a file.
    ///
    /// # Errors
    /// When a template cannot be filled in.
    pub(crate) fn of(
        expect: &[String],
        (params, extra): (&Params, &[(&str, Value)]),
        workdir: &std::path::Path,
    ) -> Result<Self, Fault> {
        let filled = CommandTemplate::named("expect", expect, &[])?.render(params, extra)?;
        let is_file = |text: &String| ["/", "./", "../"].iter().any(|head| text.starts_with(head));
        let (files, metrics): (Vec<String>, Vec<String>) =
            filled.argv.into_iter().partition(is_file);
        Ok(Self { metrics, files: files.iter().map(|file| workdir.join(file)).collect() })
    }

    /// Takes note of what was reported.
    pub(crate) fn see(&mut self, row: &Map<String, Value>) {
        self.metrics.retain(|name| !has(row, name));
    }

    /// Why a trial that ended with 0 and this result is not done.
    pub(crate) fn lacks(&self, result: Option<&Value>) -> Option<Why> {
        let is_in_result = |name: &str| match result {
            Some(Value::Object(row)) => has(row, name),
            Some(_) => name == "result",
            None => false,
        };
        let metrics = self.metrics.iter().filter(|name| !is_in_result(name));
        let metrics = metrics.map(|name| format!("no metric `{name}`"));
        let files = self.files.iter().filter(|file| !file.exists());
        let files = files.map(|file| format!("no file `{}`", file.display()));
        let all: Vec<String> = metrics.chain(files).collect();
        let words = || format!("it ended with 0 and left {}", all.join(", "));
        (!all.is_empty()).then(|| Why::new(Cause::NoResult, words()))
    }
}

/// Whether a row has a value of this name, in tables within it too: `val.loss`.
fn has(row: &Map<String, Value>, name: &str) -> bool {
    row.get(name).is_some_and(|value| !value.is_null())
        || name.match_indices('.').any(|(at, _)| {
            let inner = row.get(&name[..at]).and_then(Value::as_object);
            inner.is_some_and(|inner| has(inner, &name[at + 1..]))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_expected_is_seen_in_lines_results_and_files() {
        let tmp = tempfile::tempdir().unwrap();
        let expect = ["loss", "val.acc", "a/b", "./m-{{ x }}.pt"].map(str::to_owned);
        let params =
            Params::new([std::sync::Arc::from("x")].into(), [crate::plan::Value::Int(3)].into());
        let mut expected = Expected::of(&expect, (&params, &[]), tmp.path()).unwrap();
        let words =
            |expected: &Expected, result: Value| expected.lacks(Some(&result)).map(|why| why.words);
        let file = tmp.path().join("./m-3.pt");
        let all = format!(
            "it ended with 0 and left no metric `loss`, no metric `val.acc`, no metric `a/b`, no file `{}`",
            file.display()
        );
        assert_eq!(words(&expected, json!(1)), Some(all));
        expected.see(json!({"loss": 1, "val": {"acc": null}}).as_object().unwrap());
        std::fs::write(&file, "").unwrap();
        let left = "it ended with 0 and left no metric `a/b`".to_owned();
        assert_eq!(words(&expected, json!({"val": {"acc": "nan"}})), Some(left));
        assert_eq!(words(&expected, json!({"val.acc": 2, "a/b": 0})), None);
    }
}
