//! The sources keep the shape that `src/lib.rs` draws: rooms one above the other, one module for the machine, one for the
//! screen.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{ROOT, say};

/// The rooms, the lowest first: the table of `src/lib.rs`. A room uses those before it.
const ROOMS: [&str; 9] =
    ["base", "train", "plan", "cluster", "sweep", "run", "submit", "answers", "cli"];

/// Files outside `host` that use `std::fs` themselves, each with its reason.
const OWN_FILES: [(&str, &str); 20] = [
    ("src/cli/sweeps.rs", "the note of the last sweep, whose loss is no fault"),
    ("src/cli/doctor/checks/mod.rs", "tries the file system's own calls"),
    ("src/cli/project.rs", "renames a finished project into place"),
    ("src/run/pull/places/slot/mod.rs", "owns the open log of its slot"),
    ("src/submit/snapshot/store.rs", "links, copies and renames what is stored"),
    ("src/submit/snapshot/walk.rs", "looks at files and links of any kind"),
    ("src/sweep/tree/ledger/log.rs", "links, and tells a lost answer from a refusal"),
    ("src/sweep/tree/line/writer.rs", "owns the open file, and keeps what a full disk refuses"),
    ("src/sweep/tree/lock.rs", "links, renames and counts links"),
    ("src/sweep/tree/records/origin.rs", "keeps the file open whose lines it reads"),
    ("src/run/worker/attempt.rs", "owns the open log and the trial's own folders"),
    ("src/run/worker/process/lifeline.rs", "looks through the open files of another process"),
    ("src/run/worker/ranks/member.rs", "a rank without a log of its own"),
    ("src/run/worker/ranks/others.rs", "writes into the open log"),
    (
        "src/run/worker/process/output.rs",
        "writes into the open log, and removes the scheduler's empty one",
    ),
    ("src/run/worker/ranks/gather/mod.rs", "removes the meeting's file, whose loss is no fault"),
    ("src/run/worker/process/prepare.rs", "hands the open log to the program"),
    ("src/run/worker/process/program.rs", "hands the open log to the program"),
    ("src/run/worker/process/lines.rs", "follows the metrics file of a running program"),
    ("src/run/worker/process/scratch.rs", "a folder of its own mode for this user alone"),
];

/// The source files with their text above the first `#[cfg(test)]`.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned();
                let text = fs::read_to_string(&path).unwrap();
                found.push((name, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(ROOT).join("src"), &mut found);
    found.sort();
    assert!(found.len() > 60, "only {} files under src: is this the project?", found.len());
    found
}

/// Whether a file holds tests alone.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/") || name.ends_with("/testing.rs")
}

/// The part of a file that is no test, without comments. A module of tests ends with the first brace at the margin; one in
/// a file of its own is only named.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let begins = |next: &&&str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().as_ref().is_some_and(begins) {
            while lines.next().is_some_and(|line| line != "}") {}
        } else if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

#[test]
fn all_code_is_looked_at_but_modules_of_tests() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\n// no\nfn f() {}\n#[cfg(test)]\nmod inner {\n    fn g() {}\n}\nfn h() {}\n";
    assert_eq!(code(text), "use a;\n#[cfg(test)]\nmod tests;\nfn f() {}\nfn h() {}\n");
}

/// The room a file belongs to; the binaries belong to none.
fn room(name: &str) -> Option<&str> {
    let inner = name.strip_prefix("src/").unwrap();
    if inner.starts_with("heavy/") || inner == "main.rs" || inner == "lib.rs" {
        return None;
    }
    let first = inner.split('/').next().unwrap();
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The rooms named after `crate::`, also in braces.
fn used(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut rooms = BTreeSet::new();
    for (_, after) in code.match_indices("crate::").map(|(i, m)| (i, &code[i + m.len()..])) {
        match after.strip_prefix('{') {
            None => {
                rooms.insert(word(after));
            }
            Some(list) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && !c.is_whitespace() => {
                            rooms.insert(word(&list[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    rooms
}

#[test]
fn a_room_uses_lower_rooms_alone() {
    let place = |room: &str| ROOMS.iter().position(|name| *name == room);
    let mut faults = Vec::new();
    for (name, text) in sources() {
        let Some(own) = room(&name) else { continue };
        if is_test_file(&name) {
            continue;
        }
        let Some(here) = place(own) else {
            faults.push(format!("{name}: `{own}` is no room: add it to ROOMS and src/lib.rs"));
            continue;
        };
        for other in used(&code(&text)) {
            match place(&other) {
                Some(there) if there <= here => {}
                Some(_) => faults.push(format!("{name}: `{own}` must not use `{other}`")),
                None => faults.push(format!("{name}: `crate::{other}` is no room")),
            }
        }
    }
    say(faults);
}

/// The paths of `use` statements with their braces opened, and all other paths that begin with `crate::` or `super::`.
fn paths(code: &str) -> Vec<String> {
    fn open(before: &str, list: &str, found: &mut Vec<String>) {
        let (mut depth, mut from) = (0, 0);
        for (i, c) in list.char_indices().chain([(list.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let item = list[from..i].trim();
                    match item.split_once('{') {
                        Some((head, inner)) => {
                            open(&format!("{before}{head}"), inner.trim_end_matches('}'), found);
                        }
                        None => found.push(format!("{before}{item}")),
                    }
                    from = i + 1;
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for start in ["crate::", "super::"] {
        for (i, _) in code.match_indices(start) {
            if code[..i].ends_with(is_path) {
                continue;
            }
            let end = code[i..].find(|c: char| !is_path(c)).map_or(code.len(), |n| i + n);
            let path = &code[i..end];
            match code[end..].strip_prefix('{') {
                Some(list) if path.ends_with("::") => {
                    let end = list.find(';').unwrap_or(list.len());
                    open(path, list[..end].trim_end().trim_end_matches('}'), &mut found);
                }
                _ => found.push(path.to_owned()),
            }
        }
    }
    found
}

#[test]
fn paths_in_braces_are_seen() {
    let code = "use crate::a::{self, b::{C, d}, e};\nfn f() { super::g::h(crate::i) }\n";
    let expected = [
        "crate::a::self",
        "crate::a::b::C",
        "crate::a::b::d",
        "crate::a::e",
        "crate::i",
        "super::g::h",
    ];
    assert_eq!(paths(code), expected);
}

/// The modules of this library that a file names, its own and those around it left out.
fn named(module: &str, code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in paths(code) {
        let mut base: Vec<&str> = module.split("::").collect();
        let mut parts: Vec<&str> = path.split("::").collect();
        if parts[0] == "crate" {
            // The heavy program is a crate of its own.
            base.truncate(usize::from(base[0] == "heavy"));
            parts.remove(0);
        }
        while parts.first() == Some(&"super") {
            base.pop();
            parts.remove(0);
        }
        base.extend(parts);
        let whole = (1..=base.len()).rev().map(|n| base[..n].join("::"));
        let Some(file) = whole.into_iter().find(|path| modules.contains(path)) else { continue };
        let around =
            |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}::"));
        if !around(module, &file) && !around(&file, module) {
            found.insert(file);
        }
    }
    found
}

/// Readers read a trial in the same way wherever it ran: they read the records of workers together with the bundles
/// of agents.
const BACK: (&str, &str) = ("sweep::tree::records::read", "sweep::tree::bundle");

#[test]
fn files_of_a_room_make_no_circle() {
    let module = |name: &str| {
        let inner = name.strip_prefix("src/").unwrap().strip_suffix(".rs").unwrap();
        inner.strip_suffix("/mod").unwrap_or(inner).replace('/', "::")
    };
    let files: Vec<(String, String)> = sources()
        .into_iter()
        .filter(|(name, _)| room(name).is_some() || name.starts_with("src/heavy/"))
        .filter(|(name, _)| !is_test_file(name))
        .map(|(name, text)| (module(&name), code(&text)))
        .collect();
    let modules: BTreeSet<String> = files.iter().map(|(module, _)| module.clone()).collect();
    let first = |module: &str| module.split("::").next().unwrap().to_owned();
    let mut uses: std::collections::BTreeMap<String, BTreeSet<String>> = files
        .iter()
        .map(|(own, code)| {
            let mut named = named(own, code, &modules);
            named.retain(|other| {
                first(other) == first(own) && (own.as_str(), other.as_str()) != BACK
            });
            (own.clone(), named)
        })
        .collect();
    // What uses nothing that is left is in no circle.
    loop {
        let done: Vec<String> =
            uses.iter().filter(|(_, named)| named.is_empty()).map(|(own, _)| own.clone()).collect();
        if done.is_empty() {
            break;
        }
        for own in done {
            uses.remove(&own);
            uses.values_mut().for_each(|named| {
                named.remove(&own);
            });
        }
    }
    say(uses
        .iter()
        .map(|(own, named)| format!("{own} uses {named:?}: a circle, or above one"))
        .collect());
}

#[test]
fn the_map_in_the_library_shows_the_rooms() {
    let lib = fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let drawn: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split_once("`] | ").map(|(room, _)| room))
        .collect();
    assert_eq!(drawn, ROOMS);
    // Every room is declared, and nothing else.
    let declared: BTreeSet<&str> = lib
        .lines()
        .filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert_eq!(declared, BTreeSet::from(ROOMS));
}

#[test]
fn only_the_host_touches_files_and_programs() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if is_test_file(&name) || name.starts_with("src/base/host/") {
            continue;
        }
        let code = code(&text);
        let touches =
            ["std::fs", "fs::", "File::", "OpenOptions", "Command::new", "set_var(", "env::var("]
                .iter()
                .find(|word| code.contains(**word));
        let listed = OWN_FILES.iter().any(|(file, _)| *file == name);
        match (touches, listed) {
            // The heavy worker is a program of its own and reads one variable.
            (Some(&"env::var("), _) if name.starts_with("src/heavy/") => {}
            (Some(word), false) => faults.push(format!("{name}: `{word}` belongs to `host`")),
            (None, true) => faults.push(format!("{name}: needs no place in OWN_FILES")),
            _ => {}
        }
        if code.contains("Command::new") && !code.contains("CommandTemplate::new") {
            faults.push(format!("{name}: programs are started by `host::process`"));
        }
    }
    say(faults);
}

#[test]
fn only_the_screen_prints() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if is_test_file(&name) || name == "src/cli/out.rs" || name.starts_with("src/heavy/") {
            continue;
        }
        let code = code(&text);
        for word in ["println!", "print!", "io::stdout()", "io::stderr()", "dbg!"] {
            // Asking whether it is a terminal is not printing.
            if code.replace("io::stdout().is_terminal()", "").contains(word) {
                faults.push(format!("{name}: `{word}` belongs to cli/out.rs"));
            }
        }
    }
    say(faults);
}

#[test]
fn nothing_panics_where_the_machine_gives_no_thread() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if is_test_file(&name) {
            continue;
        }
        let code = code(&text);
        for word in ["thread::spawn(", "scope.spawn(", "rayon::spawn("] {
            if code.contains(word) {
                faults.push(format!("{name}: `{word}` panics: start threads with host::threads"));
            }
        }
        let own = code.matches("par_iter(").count() + code.matches("par_chunks(").count();
        if own > 0 && !code.contains("in_parallel(") {
            faults.push(format!("{name}: rayon's own pool panics: use host::threads::in_parallel"));
        }
    }
    say(faults);
}

#[test]
fn only_schedulers_tell_schedulers_apart() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if is_test_file(&name) || name.starts_with("src/cluster/scheduler/") {
            continue;
        }
        let code = code(&text);
        for word in ["SchedulerKind::Slurm", "SchedulerKind::Pbs"] {
            if code.contains(word) {
                faults.push(format!("{name}: `{word}`: ask a `Scheduler` or its `Facts`"));
            }
        }
    }
    say(faults);
}

#[test]
fn only_the_heavy_worker_names_mpi_and_torch() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if name.starts_with("src/heavy/") {
            continue;
        }
        let code = code(&text);
        let is_name = |before: Option<char>| {
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
        };
        for word in ["mpi::", "tch::"] {
            let found =
                code.match_indices(word).any(|(i, _)| is_name(code[..i].chars().next_back()));
            if found {
                faults.push(format!("{name}: `{word}` belongs to src/heavy"));
            }
        }
    }
    say(faults);
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let faults = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! ") || text.starts_with("//! stub"))
        .map(|(name, _)| format!("{name}: does not open with `//! ` and a sentence"));
    say(faults.collect());
}

/// A listing of the project shows only its own files: a file that was left there by mistake is an error.
#[test]
fn the_top_level_holds_what_it_should() {
    let listed = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let found: BTreeSet<&str> =
        listed.lines().map(|path| path.split('/').next().unwrap()).collect();
    let expected = BTreeSet::from([
        ".cargo",
        ".ci",
        ".clippy.toml",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "SECURITY.md",
        "benches",
        "deny.toml",
        "docs",
        "examples",
        "fuzz",
        "rustfmt.toml",
        "scripts",
        "site",
        "src",
        "templates",
        "tests",
    ]);
    assert_eq!(found, expected);
}

#[test]
fn nothing_is_left_to_do() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for word in ["todo!(", "unimplemented!(", "TODO", "FIXME", "XXX"] {
            if text.contains(word) {
                faults.push(format!("{name}: {word}"));
            }
        }
    }
    say(faults);
}

#[test]
fn the_changelog_knows_this_version() {
    let changelog = fs::read_to_string(Path::new(ROOT).join("CHANGELOG.md"))
        .unwrap_or_else(|e| panic!("CHANGELOG.md: {e}"));
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!("## [{version}]");
    assert!(changelog.lines().any(|line| line.starts_with(&heading)), "no heading `{heading}`");
}
