//! One profile file: TOML laid over a [`Site`], every fault with its line, all of them at once.

use std::ops::{Range, RangeInclusive};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::form::Laid;
use super::keys::{KEYS, Key};
use super::{Origin, Site};
use crate::fault::Fault;
use crate::syntax::{self, Slip};
use crate::words;

/// The version of the format.
const VERSION: &str = "1";

/// Lays one profile over `site` and returns the faults of its text.
pub(super) fn lay(site: &mut Site, path: &Path, text: &str) -> Vec<Fault> {
    let (root, slips) = syntax::parse(text);
    let mut reader = Reader { site, path, text, broken: Vec::new(), faults: Vec::new() };
    slips.into_iter().for_each(|slip| reader.slip(slip));
    reader.root(root.get_ref());
    reader.faults.sort_by_key(|(line, _)| *line);
    reader.faults.into_iter().map(|(_, fault)| fault).collect()
}

struct Reader<'a> {
    site: &'a mut Site,
    path: &'a Path,
    text: &'a str,
    /// Lines that are not TOML; what was salvaged from them is not judged again.
    broken: Vec<RangeInclusive<usize>>,
    /// The faults with their lines.
    faults: Vec<(usize, Fault)>,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|&&byte| byte == b'\n').count()
    }

    fn fault(&mut self, span: &Range<usize>, sentence: String, hint: Option<String>) {
        let line = self.line(span);
        if self.broken.iter().any(|lines| lines.contains(&line)) {
            return;
        }
        let source = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        let place = format!("{}:{line}: {source}", self.path.display());
        let mut fault = Fault::request(sentence).at(place.trim_end_matches(": "));
        fault.hint = hint;
        self.faults.push((line, fault));
    }

    fn slip(&mut self, slip: Slip) {
        let message = slip.message.lines().collect::<Vec<_>>().join(", ");
        let sentence = match message.as_str() {
            "duplicate key" => "the same key or table is written twice".to_owned(),
            message => format!("the profile is not TOML: {message}"),
        };
        self.fault(&(slip.at..slip.at), sentence, slip.hint);
        let Range { start, end } = slip.spoilt;
        self.broken.push(self.line(&(start..start))..=self.line(&(end..end)));
    }

    fn root(&mut self, root: &DeTable<'_>) {
        let mut version = false;
        for (name, value) in root {
            if name.get_ref() == "version" {
                version = true;
                self.version(value);
            } else if let Some(table) = value.get_ref().as_table() {
                self.table(name, table);
            } else {
                self.unknown(&name.span(), name.get_ref());
            }
        }
        // A syntax error can end the salvage before the version is reached.
        if !version && self.broken.is_empty() {
            let hint = Some(format!("write `version = {VERSION}` above the first table"));
            self.fault(&(0..0), "the profile does not say its version".to_owned(), hint);
        }
    }

    fn version(&mut self, value: &Spanned<DeValue<'_>>) {
        let written = &self.text[value.span()];
        if written != VERSION {
            let sentence = format!(
                "version {written} of the profile is unknown: this program reads {VERSION}"
            );
            self.fault(&value.span(), sentence, None);
        }
    }

    fn table(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, table: &DeTable<'_>) {
        let prefix = format!("{}.", name.get_ref());
        if !KEYS.iter().any(|key| key.name.starts_with(&prefix)) {
            return self.unknown(&name.span(), name.get_ref());
        }
        for (leaf, value) in table {
            let full = format!("{prefix}{}", leaf.get_ref());
            match KEYS.iter().find(|key| key.name == full) {
                Some(key) => self.value(key, &leaf.span(), value.get_ref()),
                None => self.unknown(&leaf.span(), &full),
            }
        }
    }

    fn unknown(&mut self, span: &Range<usize>, name: &str) {
        let leaf = |key: &'static str| key.split_once('.').map_or(key, |(_, leaf)| leaf);
        let hint = match name.split_once('.') {
            // A key under the wrong table is a commoner slip than a misspelt one.
            Some((_, last)) => KEYS
                .iter()
                .find(|key| leaf(key.name) == last)
                .map(|key| key.name)
                .or_else(|| words::nearest(name, KEYS.iter().map(|key| key.name))),
            None => {
                KEYS.iter().find(|key| leaf(key.name) == name).map(|key| key.name).or_else(|| {
                    let tables = KEYS.iter().filter_map(|key| key.name.split('.').next());
                    words::nearest(name, tables.chain(["version"]))
                })
            }
        };
        let hint = match hint {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`hpcsweep site show` lists every key".to_owned(),
        };
        self.fault(span, format!("a site profile has no key `{name}`"), Some(hint));
    }

    fn value(&mut self, key: &'static Key, span: &Range<usize>, value: &DeValue<'_>) {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let Some(laid) = (key.lay)(self.site, value, folder) else {
            let sentence = format!("`{}` must be {}", key.name, key.expects);
            return self.fault(span, sentence, None);
        };
        let here = Origin::File { path: self.path.to_owned(), line: self.line(span) };
        match laid {
            Laid::Taken => {
                self.site.origins.insert(key.name, here);
            }
            Laid::Kept => {
                let note = format!("{here} asks for more; a cap can only be lowered");
                self.site.notes.insert(key.name, note);
            }
            Laid::Added => {
                let note = format!("together with {}", self.site.origin(key.name));
                self.site.notes.insert(key.name, note);
                self.site.origins.insert(key.name, here);
            }
        }
    }
}
