//! The programs that scripts and tests call are in the table of `scripts/setup`, or on every Debian.
//!
//! Where a program happens to be installed, a test that needs it passes, and fails elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ROOT, say};

/// What a new Debian has, and a machine with git and Rust.
const ALWAYS: &str = "apt-cache apt-get awk base64 basename bash cat chgrp chmod chown chroot cmp comm cp cut date dd \
    df dirname dpkg dpkg-query du env expr find flock getent git grep gzip head hostname id install ionice kill ln ls \
    md5sum mkdir mkfifo mknod mktemp mount mountpoint mv nice nohup nproc nsenter od paste perl readlink realpath rm \
    rmdir sed seq setpriv setsid sh sha256sum sleep sort stat stty su sync tail tar tee timeout touch tr true false \
    truncate cksum tty umount uname uniq unshare wc whoami xargs ldd nl numfmt tac useradd groupadd userdel runuser chsh \
    printenv logger ulimit renice pivot_root cargo rustc rustup rustdoc clippy-driver";

/// What the shell does itself.
const SHELL: &str = "alias bind break cd command continue declare echo eval exec exit export false fg getopts hash local \
    mapfile printf pwd read readonly return set shift shopt source test times trap true type typeset ulimit umask unset \
    wait jobs compgen complete let pushd popd disown enable builtin caller";

/// Programs of the packages in the table besides the one that the table names.
const ALSO: [(&str, &str); 9] = [
    ("binutils", "ar ld objdump strip"),
    ("build-essential", "gcc g++ make"),
    ("libopenmpi-dev", "mpicc mpicxx"),
    ("mariadb-server-core|mariadb-server", "mariadb-install-db"),
    ("munge", "mungekey"),
    ("openmpi-bin", "ompi_info orted prte"),
    ("procps", "pkill ps sysctl uptime"),
    ("python3-pip", "pip3"),
    ("slurm-wlm", "sacct sacctmgr sbatch scancel scontrol sinfo slurmd squeue srun"),
];

/// What a file that has this text in it calls by way of another program.
const IMPLIED: [(&str, &str); 1] = [(".tar.zst", "zstd")];

/// Programs that need not be there, each with the reason.
const OPTIONAL: [(&str, &str); 8] = [
    ("chromium", "`report-check` names what is missing"),
    ("debootstrap", "`on-release` installs it"),
    ("dnf", "another system than Debian"),
    ("hq", "`bench pull` fetches it"),
    ("module", "a function of Environment Modules or Lmod"),
    ("mpiexec", "a site's own template names it"),
    ("qselect", "asked where there is a PBS"),
    ("sudo", "`setup` says what is missing without it"),
];

/// The rows of the table of `scripts/setup`: packages, and the program that each is known by.
fn table(setup: &str) -> Vec<(&str, &str)> {
    let rows = setup.split_once("table='\n").unwrap().1.split_once("\n'\n").unwrap().0;
    let cells = rows.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    cells.map(|cells| (cells[1], cells[2])).collect()
}

/// The words that stand where a command is expected in the code of a shell, functions and variables left out.
struct Commands<'a> {
    rest: &'a str,
    found: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    heredocs: Vec<&'a str>,
}

impl<'a> Commands<'a> {
    fn of(text: &'a str) -> BTreeSet<&'a str> {
        let mut own = Self {
            rest: text,
            found: BTreeSet::new(),
            functions: BTreeSet::new(),
            heredocs: Vec::new(),
        };
        own.code(&[]);
        own.found.difference(&own.functions).copied().collect()
    }

    /// Passes over so many bytes.
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Passes over a backslash and the character behind it.
    fn escaped(&mut self) {
        self.skip(1 + self.rest[1..].chars().next().map_or(0, char::len_utf8));
    }

    /// Passes over everything up to this text, and over the text.
    fn past(&mut self, text: &str) {
        let end = self.rest.find(text).map_or(self.rest.len(), |at| at + text.len());
        self.skip(end);
    }

    /// Code up to the closing parenthesis of a substitution, or to the end.
    fn code(&mut self, until: &[char]) {
        // Whether a command may begin here, and whether the words belong to `case WORD in`.
        let (mut begins, mut is_case) = (true, false);
        while let Some(c) = self.rest.chars().next() {
            match c {
                _ if until.contains(&c) => {
                    self.skip(1);
                    return;
                }
                '\n' => {
                    self.skip(1);
                    for end in std::mem::take(&mut self.heredocs) {
                        let mut lines = self.rest.lines();
                        let before = lines.by_ref().take_while(|line| line.trim_start() != end);
                        let bytes = before.map(|line| line.len() + 1).sum::<usize>() + end.len();
                        self.skip(bytes);
                    }
                    begins = true;
                }
                ';' if self.rest.starts_with(";;") => {
                    self.skip(2);
                    self.pattern();
                    begins = true;
                }
                '#' => self.past_line(),
                '<' | '>' => begins = self.redirection(begins),
                '(' if self.rest.starts_with("((") => {
                    self.past("))");
                    begins = false;
                }
                '(' => {
                    self.skip(1);
                    self.code(&[')']);
                    begins = false;
                }
                ';' | '|' | '&' | '{' | '}' | '!' | ')' => {
                    self.skip(1);
                    begins = true;
                }
                c if c.is_whitespace() => self.skip(1),
                _ => {
                    let word = self.word();
                    let is_function = self.rest.starts_with("()");
                    match word {
                        _ if !begins && is_case && word == "in" => {
                            self.pattern();
                            (begins, is_case) = (true, false);
                        }
                        _ if !begins => {}
                        _ if is_function => {
                            self.functions.insert(word);
                            self.skip(2);
                        }
                        "case" => (begins, is_case) = (false, true),
                        "for" | "function" | "select" => begins = false,
                        "[[" => {
                            self.past("]]");
                            begins = false;
                        }
                        "if" | "then" | "elif" | "else" | "fi" | "do" | "done" | "while"
                        | "until" | "esac" | "time" | "in" => {}
                        _ if is_assignment(word) => {
                            if self.rest.starts_with('(') {
                                self.skip(1);
                                self.list();
                            }
                        }
                        _ => {
                            if is_name(word) {
                                self.found.insert(word);
                            }
                            begins = false;
                        }
                    }
                }
            }
        }
    }

    fn past_line(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.skip(end);
    }

    /// The pattern of a branch of `case`, unless that ends here.
    fn pattern(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.starts_with('#') {
                true => self.past_line(),
                false => break,
            }
        }
        while !self.rest.is_empty() && !self.rest.starts_with("esac") {
            if self.rest.starts_with(')') {
                return self.skip(1);
            }
            self.word();
        }
    }

    /// The words of an array, up to its end.
    fn list(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            match c {
                ')' => return self.skip(1),
                '#' => self.past_line(),
                c if c.is_whitespace() => self.skip(1),
                '<' | '>' => drop(self.redirection(false)),
                '(' => {
                    self.skip(1);
                    self.code(&[')']);
                }
                _ => drop(self.word()),
            }
        }
    }

    /// A redirection, with its file; whether a command may begin behind it.
    fn redirection(&mut self, begins: bool) -> bool {
        if self.rest.starts_with("<(") || self.rest.starts_with(">(") {
            self.skip(2);
            self.code(&[')']);
            return begins;
        }
        let is_heredoc = self.rest.starts_with("<<") && !self.rest.starts_with("<<<");
        let signs = self.rest.find(|c| !"<>&-|".contains(c)).unwrap_or(self.rest.len());
        self.skip(signs);
        self.rest = self.rest.trim_start_matches(' ');
        if self.rest.starts_with("<(") {
            return self.redirection(begins);
        }
        let word = self.word();
        if is_heredoc {
            self.heredocs.push(word.trim_matches(|c| "'\"\\".contains(c)));
        }
        begins
    }

    /// A word, with all quotes and substitutions in it.
    fn word(&mut self) -> &'a str {
        let whole = self.rest;
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => self.escaped(),
                '\'' => {
                    self.skip(1);
                    self.past("'");
                }
                '"' => {
                    self.skip(1);
                    self.quoted();
                }
                '$' => self.dollar(),
                c if c.is_whitespace() || ";|&<>()".contains(c) => break,
                c => self.skip(c.len_utf8()),
            }
        }
        if whole.len() == self.rest.len() {
            // A sign that begins no word.
            self.skip(1);
        }
        &whole[..whole.len() - self.rest.len()]
    }

    fn quoted(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '"' => return self.skip(1),
                '\\' => self.escaped(),
                '$' => self.dollar(),
                c => self.skip(c.len_utf8()),
            }
        }
    }

    fn dollar(&mut self) {
        if self.rest.starts_with("$((") {
            self.past("))");
        } else if self.rest.starts_with("$(") {
            self.skip(2);
            self.code(&[')']);
        } else if self.rest.starts_with("${") {
            self.skip(2);
            while let Some(c) = self.rest.chars().next() {
                match c {
                    '}' => return self.skip(1),
                    '$' => self.dollar(),
                    '"' => {
                        self.skip(1);
                        self.quoted();
                    }
                    '\'' => {
                        self.skip(1);
                        self.past("'");
                    }
                    '\\' => self.escaped(),
                    c => self.skip(c.len_utf8()),
                }
            }
        } else if self.rest.starts_with("$'") {
            self.skip(2);
            while let Some(c) = self.rest.chars().next() {
                match c {
                    '\'' => return self.skip(1),
                    '\\' => self.escaped(),
                    c => self.skip(c.len_utf8()),
                }
            }
        } else {
            self.skip(1);
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split(['=', '[']).next().unwrap_or_default().trim_end_matches('+');
    word.contains('=') && !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-+".contains(c))
}

/// The programs that code of Rust or Python calls by a name that is written there.
fn called<'a>(code: &'a str, before: &[&str]) -> BTreeSet<&'a str> {
    let names = before.iter().flat_map(|sign| code.split(sign).skip(1));
    names.filter_map(|rest| rest.split('"').next()).filter(|name| is_name(name)).collect()
}

/// The files below a folder of the project.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn commands_are_found_wherever_a_shell_runs_them() {
    let code = "#!/bin/bash\nf() { one -x | two; }\nf; a=(not this); b=$(three \"$(four)\" 'five') six seven\n\
        case $x in eight | \"$(nine)\") ten ;; *) ;; esac # eleven\ncat <<'END'\ntwelve\nEND\nif ! thirteen <file; then\n\
        for fourteen in fifteen; do \"$y\" >&2 && sixteen 2>/dev/null; done; fi\n[[ $a == b || seventeen ]] || x/eighteen\n\
        while read -r l; do :; done < <(nineteen <<<\"$twenty\")\n";
    let expected = [
        "cat", "four", "nine", "nineteen", "one", "read", "six", "sixteen", "ten", "thirteen",
        "three", "two",
    ];
    assert_eq!(Commands::of(code).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn programs_that_are_called_are_in_the_table_of_setup() {
    let root = Path::new(ROOT);
    let setup = fs::read_to_string(root.join("scripts/setup")).unwrap();
    let table = table(&setup);
    assert!(table.len() > 40, "{table:?}");
    let mut known: BTreeSet<&str> = table.iter().map(|(_, program)| *program).collect();
    let mut faults = Vec::new();
    for (package, programs) in ALSO {
        known.extend(programs.split_whitespace());
        if !table.iter().any(|row| row.0 == package) {
            faults.push(format!("ALSO names {package}, which is not in the table"));
        }
    }
    known.extend(ALWAYS.split_whitespace().chain(SHELL.split_whitespace()));
    known.extend(OPTIONAL.map(|(program, _)| program));
    let mut of_pbs = Vec::new();
    files(&root.join("tests/pbs/bin"), &mut of_pbs);
    known.extend(of_pbs.iter().filter_map(|path| path.file_name()?.to_str()));

    let mut all = vec![root.join(".ci/run")];
    for folder in ["scripts", "tests", "benches", "examples"] {
        files(&root.join(folder), &mut all);
    }
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let first = text.lines().next().unwrap_or_default();
        let is_shell = first.starts_with("#!") && first.ends_with("sh");
        let mut names = match path.extension().and_then(|ending| ending.to_str()) {
            Some("rs") => called(&text, &[".call(\"", ".command(\"", "Command::new(\""]),
            Some("py") => called(&text, &["Popen([\"", "subprocess.run([\"", "check_output([\""]),
            _ if is_shell => Commands::of(&text),
            _ => continue,
        };
        let is_this = path.ends_with("structure/programs.rs");
        let implied = IMPLIED.iter().filter(|(sign, _)| !is_this && text.contains(sign));
        names.extend(implied.map(|(_, program)| *program));
        let name = path.strip_prefix(root).unwrap().display();
        let unknown = names.difference(&known).filter(|_| !is_this);
        faults.extend(
            unknown.map(|program| format!("{name}: `{program}` is no program of scripts/setup")),
        );
    }
    say(faults);
}
