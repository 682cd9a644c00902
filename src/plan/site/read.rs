//! One profile file: TOML that overrides a [`Site`], every fault with its line, all of them at once.

use std::path::Path;

use super::form::Laid;
use super::keys::{KEYS, Key};
use super::{Origin, Site};
use crate::base::fault::Fault;
use crate::base::words;
use crate::plan::document::{Entry, Reader, entries};

/// The version of the format.
pub(super) const VERSION: i64 = 1;

/// Lays one profile over `site` and returns the faults of its text.
pub(super) fn lay(site: &mut Site, path: &Path, text: &str) -> Vec<Fault> {
    let name = path.display().to_string();
    let mut reader = Reader::new(&name, text);
    let document = reader.document();
    let mut has_version = false;
    for entry in entries(&document) {
        if entry.key == "version" {
            has_version = true;
            check_version(&mut reader, &entry);
        } else if !KEYS.iter().any(|key| key.table() == entry.key) {
            unknown(&mut reader, &entry, entry.key);
        } else if let Some(table) = reader.table(&entry) {
            let table_name = entry.key;
            for entry in entries(table) {
                let full = format!("{table_name}.{}", entry.key);
                match KEYS.iter().find(|key| key.name == full) {
                    Some(key) => value(&mut reader, &entry, key, site, path),
                    None => unknown(&mut reader, &entry, &full),
                }
            }
        }
    }
    if !has_version {
        let hint = format!("write `version = {VERSION}` above the first table");
        reader.missing("the profile does not say its version", hint);
    }
    reader.into_faults().0
}

fn check_version(reader: &mut Reader<'_>, entry: &Entry<'_>) {
    if let Some(version) = reader.integer(entry)
        && version != VERSION
    {
        let sentence = format!("this program does not read profiles of version {version}");
        reader.wrong(entry.at, sentence, format!("it reads `version = {VERSION}`"));
    }
}

/// Reports a key that profiles do not have; `name` is dotted.
fn unknown(reader: &mut Reader<'_>, entry: &Entry<'_>, name: &str) {
    let names = || KEYS.iter().map(|key| key.name);
    let last_component = name.rsplit('.').next();
    // A key under the wrong table is a commoner slip than a misspelt one.
    let elsewhere = KEYS.iter().find(|key| Some(key.leaf()) == last_component).map(|key| key.name);
    let near = elsewhere.or_else(|| match name.contains('.') {
        true => words::nearest(name, names()),
        false => words::nearest(name, KEYS.iter().map(Key::table).chain(["version"])),
    });
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`hpcsweep site show` lists every key".to_owned(),
    };
    reader.wrong(entry.at, format!("a site profile has no key `{name}`"), hint);
}

fn value(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    key: &'static Key,
    site: &mut Site,
    path: &Path,
) {
    let Some(laid) = (key.lay)(site, reader, entry) else { return };
    let origin = Origin::File { path: path.to_owned(), line: reader.line(entry.at) as usize };
    match laid {
        Laid::Taken => {
            site.origins.insert(key.name, origin);
        }
        Laid::Kept => {
            let note = format!("{origin} asks for more; a cap can only be lowered");
            site.notes.insert(key.name, note);
        }
        Laid::Added => {
            let note = format!("together with {}", site.origin(key.name));
            site.notes.insert(key.name, note);
            site.origins.insert(key.name, origin);
        }
    }
}
