//! `scripts/install` and its module files, with the real Environment Modules and the real Lmod.
//!
//! Debian's two packages exclude each other, so one of them may be unpacked under `target/tools`.
//! A tool that is not there fails the test: nothing is skipped. Long because one installation is looked at from
//! all sides.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The newer version of the tests: the same programs, which only say another version.
const NEXT: &str = "99.10.0";

#[derive(Clone, Copy)]
enum Tool {
    EnvironmentModules,
    Lmod,
}

const TOOLS: [Tool; 2] = [Tool::EnvironmentModules, Tool::Lmod];

impl Tool {
    /// The program that answers `module` in a shell.
    fn program(self) -> PathBuf {
        let (package, places): (_, &[&str]) = match self {
            Self::EnvironmentModules => (
                "environment-modules",
                &[
                    "usr/lib/x86_64-linux-gnu/modulecmd.tcl",
                    "usr/lib/aarch64-linux-gnu/modulecmd.tcl",
                    "usr/share/Modules/libexec/modulecmd.tcl",
                ],
            ),
            Self::Lmod => {
                ("lmod", &["usr/share/lmod/lmod/libexec/lmod", "opt/apps/lmod/lmod/libexec/lmod"])
            }
        };
        let unpacked = Path::new(ROOT).join("target/tools").join(package);
        let found = [Path::new("/"), &unpacked]
            .into_iter()
            .flat_map(|base| places.iter().map(move |place| base.join(place)))
            .find(|path| path.exists());
        found.unwrap_or_else(|| {
            panic!(
                "{package} is neither installed nor unpacked in {}: run `scripts/setup --for test`",
                unpacked.display()
            )
        })
    }

    /// Shell code that defines `module` for bash, zsh or fish.
    fn init(self, shell: &str) -> String {
        let program = self.program();
        let program = program.display();
        match (self, shell) {
            (_, "fish") => {
                format!("function module; {program} fish $argv | string collect | source; end\n")
            }
            // Environment Modules ends its code with the status to return.
            (Self::EnvironmentModules, _) => {
                format!("module() {{ eval \"$({program} {shell} \"$@\")\"; }}\n")
            }
            (Self::Lmod, _) => {
                format!(
                    "export LMOD_PAGER=none\nmodule() {{ eval \"$({program} {shell} \"$@\")\"; }}\n"
                )
            }
        }
    }
}

/// A place of its own for one test.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("hpcsweep-install-").tempdir().unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program with nothing in its environment but a home and the system's programs.
    fn run(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TERM", "dumb")
            .current_dir(self.folder.path())
            .output()
            .unwrap_or_else(|e| panic!("{program}: {e}: run `scripts/setup --for test`"))
    }

    fn install_with(&self, args: &[&str]) -> Output {
        let script = format!("{ROOT}/scripts/install");
        let all: Vec<&str> =
            [script.as_str(), "--prefix", "P"].iter().chain(args).copied().collect();
        self.run("bash", &all)
    }

    fn install(&self, args: &[&str]) -> String {
        let output = self.install_with(args);
        assert!(output.status.success(), "install {args:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Installs what cargo built.
    fn install_built(&self) -> String {
        let built = Path::new(env!("CARGO_BIN_EXE_hpcsweep")).parent().unwrap();
        self.install(&["--from", built.to_str().unwrap(), "--no-build"])
    }

    /// A folder with the programs that cargo built, which say that they are another version.
    fn programs_of(&self, version: &str) -> String {
        let folder = self.path(&format!("built-{version}"));
        fs::create_dir(&folder).unwrap();
        for (name, real) in [
            ("hpcsweep", env!("CARGO_BIN_EXE_hpcsweep")),
            ("hpcsweep-worker", env!("CARGO_BIN_EXE_hpcsweep-worker")),
        ] {
            let path = folder.join(name);
            let script = format!(
                "#!/bin/sh\n[ \"$1\" != --version ] || exec echo '{name} {version}'\nexec '{real}' \"$@\"\n"
            );
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder.to_str().unwrap().to_owned()
    }

    /// The output of a shell that has `module`, with every path of this place as `HERE`.
    fn shell(&self, tool: Tool, shell: &str, script: &str) -> String {
        let script = format!("{}{script}", tool.init(shell));
        let args: &[&str] = match shell {
            "bash" => &["--norc", "--noprofile", "-c", &script],
            "zsh" => &["-f", "-c", &script],
            _ => &["--no-config", "-c", &script],
        };
        text(&self.run(shell, args)).replace(self.folder.path().to_str().unwrap(), "HERE")
    }

    /// Every file and link under a folder, relative to it.
    fn files(&self, folder: &str) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    walk(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(folder), &self.path(folder), &mut found);
        found.sort();
        found
    }

    fn is_empty(&self, folder: &str) -> bool {
        fs::read_dir(self.path(folder)).unwrap().next().is_none()
    }
}

/// All that a program printed.
fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Prints the environment without the bookkeeping of the module tools.
const SNAPSHOT: &str = "\
snapshot() {
  env | LC_ALL=C sort | grep -v -E '^(_|SHLVL|LOADEDMODULES|_LMFILES_|__MODULES_[A-Z_]*|_ModuleTable[0-9A-Za-z_]*|__LMOD[A-Z_]*|LMOD_[A-Z_]*)='
}
";

#[test]
fn every_part_is_installed_where_its_reader_looks() {
    let site = Site::new();
    let said = site.install_built();
    let here = site.folder.path().display();
    assert_eq!(
        said,
        format!(
            "install: hpcsweep {VERSION} is installed in {here}/P/hpcsweep/{VERSION}\n\n\
             Now type\n\n  module use {here}/P/modulefiles && module load hpcsweep\n\n\
             or, without modules,\n\n  export PATH={here}/P/hpcsweep/default/bin:\"$PATH\"\n\n\
             and then: hpcsweep doctor\n"
        )
    );
    let home = format!("hpcsweep/{VERSION}");
    let files = site.files("P");
    for file in [
        "hpcsweep/default".to_owned(),
        "modulefiles/hpcsweep/.version".to_owned(),
        format!("modulefiles/hpcsweep/{VERSION}"),
        format!("modulefiles/hpcsweep/{VERSION}.lua"),
        format!("{home}/bin/hpcsweep"),
        format!("{home}/bin/hpcsweep-worker"),
        format!("{home}/share/man/man1/hpcsweep.1"),
        format!("{home}/share/man/man1/hpcsweep-submit.1"),
        format!("{home}/share/bash-completion/completions/hpcsweep"),
        format!("{home}/share/zsh/site-functions/_hpcsweep"),
        format!("{home}/share/fish/vendor_completions.d/hpcsweep.fish"),
        format!("{home}/share/hpcsweep/site/slurm.toml"),
        format!("{home}/share/hpcsweep/site/site.toml.example"),
        format!("{home}/share/hpcsweep/templates/slurm.sh.tera"),
        format!("{home}/share/hpcsweep/validate-cluster"),
    ] {
        assert!(files.contains(&file), "{file} is not among {files:#?}");
    }

    let manifest =
        fs::read_to_string(site.path(&format!("P/{home}/share/hpcsweep/manifest"))).unwrap();
    let mut listed: Vec<&str> = manifest.lines().chain(["hpcsweep/default"]).collect();
    listed.push("modulefiles/hpcsweep/.version");
    listed.sort_unstable();
    assert_eq!(listed, files);
}

#[test]
fn programs_of_trials_find_the_python_module_after_what_is_theirs() {
    let site = Site::new();
    site.install_built();
    let installed = site.path(&format!("P/hpcsweep/{VERSION}/share/hpcsweep/python"));
    let code = "import hpcsweep, os; print(hpcsweep.__file__, os.environ['PYTHONPATH'], hpcsweep.world_size())";
    fs::write(
        site.path("plan.toml"),
        format!(
            "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"python3\", \"-B\", \"-c\", {code:?}]\n\
             [run.env]\nPYTHONPATH = \"{{{{ path }}}}\"\n\
             [grid]\npath = [\"\", \"/mine\", \"{here}:/mine\"]\n",
            here = installed.display(),
        ),
    )
    .unwrap();
    // Through the link, as with a PATH that names the default version.
    let program = site.path("P/hpcsweep/default/bin/hpcsweep");
    let ran = site.run(program.to_str().unwrap(), &["submit", "plan.toml", "--local"]);
    assert!(ran.status.success(), "{}", text(&ran));
    let here = installed.display();
    for (trial, paths) in
        [format!("{here}"), format!("/mine:{here}"), format!("{here}:/mine")].iter().enumerate()
    {
        let log = site.path(&format!("results/s/logs/000/{trial}.1.log"));
        let said = fs::read_to_string(log).unwrap();
        assert_eq!(said, format!("{here}/hpcsweep/__init__.py {paths} 1\n"));
    }
}

#[test]
fn a_python_that_has_loaded_the_module_sweeps_a_function() {
    for tool in TOOLS {
        let site = Site::new();
        site.install_built();
        let program = "import hpcsweep\n\n\
                       sweep = hpcsweep.Sweep(\"results/fit\", quiet=True)\n\
                       sweep.grid(batch=[64, 128, 256], layers=[1, 2], lr=[0.1, 0.01, 0.001])\n\
                       sweep.run(lambda batch, layers, lr: batch * layers * lr)\n\
                       print(sweep.best(mode=\"max\").value, hpcsweep.program.find())\n";
        fs::write(site.path("fit.py"), program).unwrap();
        let script = "module use $PWD/P/modulefiles\nmodule load hpcsweep\npython3 -B fit.py";
        let said = site.shell(tool, "bash", script);
        assert_eq!(said, format!("51.2 HERE/P/hpcsweep/{VERSION}/bin/hpcsweep\n"));
    }
}

#[test]
fn modules_load_switch_and_leave_no_trace() {
    for tool in TOOLS {
        let site = Site::new();
        let next = site.programs_of(NEXT);
        site.install(&["--from", &next]);
        site.install_built();
        // The version installed last is the default one.
        let script = format!(
            "{SNAPSHOT}
module use $PWD/P/modulefiles
snapshot >before
module load hpcsweep
hpcsweep --version
type -p hpcsweep
echo $XDG_DATA_DIRS
man -w hpcsweep
module switch hpcsweep/{NEXT} 2>switched
hpcsweep --version
echo $XDG_DATA_DIRS
module unload hpcsweep
type -p hpcsweep || echo gone
snapshot >after
diff before after && echo unchanged

export MANPATH=/usr/share/man XDG_DATA_DIRS=/data:/more
snapshot >before
module load hpcsweep/{NEXT}
echo $MANPATH $XDG_DATA_DIRS
man -w hpcsweep
module unload hpcsweep
snapshot >after
diff before after && echo unchanged
"
        );
        let expected = format!(
            "hpcsweep {VERSION}
HERE/P/hpcsweep/{VERSION}/bin/hpcsweep
HERE/P/hpcsweep/{VERSION}/share:/usr/local/share:/usr/share
HERE/P/hpcsweep/{VERSION}/share/man/man1/hpcsweep.1
hpcsweep {NEXT}
HERE/P/hpcsweep/{NEXT}/share:/usr/local/share:/usr/share
gone
unchanged
HERE/P/hpcsweep/{NEXT}/share/man:/usr/share/man HERE/P/hpcsweep/{NEXT}/share:/data:/more
HERE/P/hpcsweep/{NEXT}/share/man/man1/hpcsweep.1
unchanged
"
        );
        assert_eq!(site.shell(tool, "bash", &script), expected);
    }
}

#[test]
fn modules_say_what_they_are() {
    let what = "parameter sweeps on batch systems, one plan, native job arrays, one results tree";
    for tool in TOOLS {
        let site = Site::new();
        site.install_built();
        let module = |words: &str| {
            let script = format!("module use $PWD/P/modulefiles\nmodule {words} hpcsweep 2>&1");
            site.shell(tool, "bash", &script)
        };
        // The tools frame what a module says in their own ways.
        let whatis = module("whatis");
        assert!(whatis.contains(VERSION) && whatis.contains(what), "{whatis}");
        let help = module("help");
        let said = format!(
            "hpcsweep {VERSION} runs parameter sweeps on Slurm and PBS, or on this machine.\n\n  \
             hpcsweep plan PLAN.toml "
        );
        assert!(help.contains(&said), "{help}");
    }
}

#[test]
fn a_prefix_that_was_moved_and_a_link_to_a_module_file_still_work() {
    for tool in TOOLS {
        let site = Site::new();
        site.install_built();
        fs::create_dir(site.path("elsewhere")).unwrap();
        fs::rename(site.path("P"), site.path("elsewhere/Q")).unwrap();
        fs::create_dir_all(site.path("tree/tools/hpcsweep")).unwrap();
        for name in [VERSION.to_owned(), format!("{VERSION}.lua")] {
            let target = site.path(&format!("elsewhere/Q/modulefiles/hpcsweep/{name}"));
            let link = site.path(&format!("tree/tools/hpcsweep/{name}"));
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        let moved = format!("HERE/elsewhere/Q/hpcsweep/{VERSION}/bin/hpcsweep\n");
        for modules in ["elsewhere/Q/modulefiles", "tree/tools"] {
            let script =
                format!("module use $PWD/{modules}\nmodule load hpcsweep\ntype -p hpcsweep");
            assert_eq!(site.shell(tool, "bash", &script), moved);
        }
    }
}

#[test]
fn completions_reach_a_running_bash_zsh_and_fish_and_leave_it() {
    for tool in TOOLS {
        let site = Site::new();
        site.install_built();
        let bash = "
. /usr/share/bash-completion/bash_completion
module use $PWD/P/modulefiles
module load hpcsweep
_completion_loader hpcsweep
complete -p hpcsweep | grep -o 'hpcsweep$'
_completion_loader man
complete -p man | grep -o 'man$'
";
        assert_eq!(site.shell(tool, "bash", bash), "hpcsweep\nman\n");
        let zsh = "
autoload -Uz compinit; compinit -u -d zcompdump
module use $PWD/P/modulefiles
before=$#fpath
module load hpcsweep
print -r -- $_comps[hpcsweep] $(( $#fpath - before ))
whence -w _hpcsweep
module unload hpcsweep
print -r -- ${_comps[hpcsweep]:-none} $(( $#fpath - before ))
whence -w _hpcsweep
";
        assert_eq!(
            site.shell(tool, "zsh", zsh),
            "_hpcsweep 1\n_hpcsweep: function\nnone 0\n_hpcsweep: none\n"
        );
        let fish = "
module use $PWD/P/modulefiles
set before (count $fish_complete_path)
module load hpcsweep
complete -C 'hpcsweep sub' | string match -r '^submit'
math (count $fish_complete_path) - $before
module unload hpcsweep
complete -C 'hpcsweep sub' | string match -r '^submit'
math (count $fish_complete_path) - $before
";
        assert_eq!(site.shell(tool, "fish", fish), "submit\n1\n0\n");
    }
}

#[test]
fn uninstalling_removes_what_was_installed_and_nothing_else() {
    let site = Site::new();
    let next = site.programs_of(NEXT);
    site.install_built();
    site.install(&["--from", &next]);
    let own = format!("hpcsweep/{VERSION}/share/hpcsweep/site/site.toml");
    fs::write(site.path(&format!("P/{own}")), "version = 1\n").unwrap();
    // Installing again keeps a profile of the site.
    site.install_built();
    assert!(site.files("P").contains(&own));

    site.install(&["--uninstall", "--version", VERSION]);
    let here = site.files("P");
    let kept: Vec<&String> = here.iter().filter(|file| !file.contains(NEXT)).collect();
    assert_eq!(kept, [&own, "hpcsweep/default", "modulefiles/hpcsweep/.version"]);
    assert_eq!(fs::read_link(site.path("P/hpcsweep/default")).unwrap(), Path::new(NEXT));
    let default = fs::read_to_string(site.path("P/modulefiles/hpcsweep/.version")).unwrap();
    assert_eq!(default, format!("#%Module1.0\nset ModulesVersion \"{NEXT}\"\n"));

    fs::remove_file(site.path(&format!("P/{own}"))).unwrap();
    fs::remove_dir_all(site.path(&format!("P/hpcsweep/{VERSION}"))).unwrap();
    site.install(&["--uninstall", "--version", NEXT]);
    assert!(site.is_empty("P"), "left: {:?}", site.files("P"));
}

#[test]
fn module_files_can_stand_outside_of_the_prefix() {
    let site = Site::new();
    let next = site.programs_of(NEXT);
    // Moving them later leaves nothing at the first place.
    site.install(&["--from", &next]);
    site.install(&["--from", &next, "--modules", "shelf"]);
    assert_eq!(
        site.files("shelf"),
        [
            "hpcsweep/.version".to_owned(),
            format!("hpcsweep/{NEXT}"),
            format!("hpcsweep/{NEXT}.lua")
        ]
    );
    assert!(!site.path("P/modulefiles").exists());
    for tool in TOOLS {
        let script = "module use $PWD/shelf\nmodule load hpcsweep\nhpcsweep --version";
        assert_eq!(site.shell(tool, "bash", script), format!("hpcsweep {NEXT}\n"));
    }
    site.install(&["--uninstall", "--version", NEXT]);
    assert!(site.is_empty("P") && site.is_empty("shelf"));
}

#[test]
fn an_installation_that_is_killed_leaves_nothing_half_done() {
    let site = Site::new();
    let next = site.programs_of(NEXT);
    for step in ["man", "completions"] {
        // The program kills the script that called it.
        let killer = site.path(&format!("killer-{step}"));
        fs::create_dir(&killer).unwrap();
        fs::copy(format!("{next}/hpcsweep-worker"), killer.join("hpcsweep-worker")).unwrap();
        let script = fs::read_to_string(format!("{next}/hpcsweep")).unwrap();
        let script =
            script.replace("exec '", &format!("[ \"$2\" != {step} ] || kill -9 $PPID\nexec '"));
        fs::write(killer.join("hpcsweep"), script).unwrap();
        fs::set_permissions(killer.join("hpcsweep"), fs::Permissions::from_mode(0o755)).unwrap();

        let output = site.install_with(&["--from", killer.to_str().unwrap()]);
        assert_eq!(output.status.code(), None, "{}", text(&output));
        assert!(!site.path(&format!("P/hpcsweep/{NEXT}")).exists());
        assert!(site.is_empty("P/modulefiles/hpcsweep"));
    }
    site.install(&["--from", &next]);
    site.install(&["--uninstall", "--version", NEXT]);
    assert!(site.is_empty("P"), "left: {:?}", site.files("P"));
}

#[test]
fn wrong_requests_are_refused_in_one_sentence_and_change_nothing() {
    let site = Site::new();
    let next = site.programs_of(NEXT);
    let other = site.programs_of("1.2.3");
    let worker = format!("{other}/hpcsweep-worker");
    let check = |args: &[&str], code: i32, sentence: &str| {
        let output = site.install_with(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let said = text(&output).replace(site.folder.path().to_str().unwrap(), "HERE");
        assert_eq!(said.lines().last(), Some(sentence), "{args:?}");
        assert!(!site.path("P").exists(), "{args:?}");
    };
    check(&["--colour"], 2, "install: unknown option --colour");
    check(&["--from"], 2, "install: --from needs a value");
    check(&["--version", "1"], 2, "install: --version belongs to --uninstall");
    check(
        &["--from", &next, "--modules", "a b"],
        2,
        "install: the prefix must not have a blank, colon, brace, bracket or backslash in it",
    );
    check(&["--from", "nowhere"], 4, "install: there is no program HERE/nowhere/hpcsweep");
    check(
        &["--from", &next, "--worker", &worker],
        2,
        "install: HERE/built-1.2.3/hpcsweep-worker is version 1.2.3, not 99.10.0",
    );
    check(
        &["--uninstall", "--version", "7"],
        2,
        "install: hpcsweep 7 is not installed under HERE/P: there is no HERE/P/hpcsweep/7/share/hpcsweep/manifest",
    );
}

#[test]
fn the_script_is_clean() {
    let site = Site::new();
    let output = site.run("shellcheck", &[&format!("{ROOT}/scripts/install")]);
    assert_eq!(text(&output), "");
}
