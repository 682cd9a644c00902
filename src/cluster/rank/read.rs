//! Reads one variable as a number, with a precise error.

use std::collections::BTreeMap;

use crate::base::fault::Fault;

/// Notes every variable it was asked for, so that a row can show its evidence.
#[derive(Debug)]
pub(super) struct Reader<'v> {
    vars: &'v BTreeMap<String, String>,
    pub(super) evidence: Vec<(String, String)>,
}

impl<'v> Reader<'v> {
    pub(super) fn new(vars: &'v BTreeMap<String, String>) -> Self {
        Self { vars, evidence: Vec::new() }
    }

    /// The text of a variable; an empty one counts as unset, as launchers and shells leave them.
    pub(super) fn text(&mut self, name: &str) -> Option<&'v str> {
        let text = text(self.vars, name)?;
        if !self.evidence.iter().any(|(known, _)| known == name) {
            self.evidence.push((name.to_owned(), text.to_owned()));
        }
        Some(text)
    }

    /// The number in a variable, if it is set.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u32>, Fault> {
        self.text(name).map(|text| parse(name, text)).transpose()
    }

    /// The number in the first of these variables that is set.
    pub(super) fn first(&mut self, names: &[&str]) -> Result<Option<u32>, Fault> {
        let set = names.iter().find(|name| text(self.vars, name).is_some());
        set.map_or(Ok(None), |name| self.number(name))
    }

    /// The number in a variable that must be set because `other` is.
    pub(super) fn required(&mut self, name: &str, other: &str) -> Result<u32, Fault> {
        self.number(name)?.ok_or_else(|| {
            Fault::request(format!("`{other}` is set, but `{name}` is not"))
                .hint(format!("set both, or unset `{other}`"))
        })
    }
}

/// The text of a variable, `None` when it is empty.
pub(super) fn text<'v>(vars: &'v BTreeMap<String, String>, name: &str) -> Option<&'v str> {
    vars.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// A number that is only wanted for comparison: anything wrong counts as unset.
pub(super) fn glance(vars: &BTreeMap<String, String>, name: &str) -> Option<u32> {
    text(vars, name).and_then(|text| parse(name, text).ok())
}

fn parse(name: &str, text: &str) -> Result<u32, Fault> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        Fault::request(format!("`{name}` is `{text}`, which is not a number from 0 on"))
            .hint(format!("unset `{name}` if nothing needs it, or start the ranks with a launcher"))
    })
}
