//! Verbs of which a part is in `hpcsweep-worker` alone.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::process;
use crate::run::worker::process::launch;

/// Becomes the program beside this one, which runs the same command line behind `verb`. Returns only if that fails: `what` is
/// what that program does, and `instead` what can be done without it.
pub(super) fn become_worker(verb: &str, what: &str, instead: &str) -> anyhow::Error {
    let argv = || -> Result<Vec<String>> {
        let path = launch::sibling()?;
        if !path.exists() {
            let sentence = format!("`{}`, which {what}, does not exist", path.display());
            return Err(Fault::machine(sentence)
                .hint(format!("install both programs together, or {instead}"))
                .into());
        }
        let mut argv = vec![path.to_string_lossy().into_owned(), verb.to_owned()];
        for arg in std::env::args_os().skip(1) {
            let arg = arg.into_string().map_err(|arg| {
                Fault::request(format!("`{}` is not UTF-8", arg.to_string_lossy()))
            })?;
            argv.push(arg);
        }
        Ok(argv)
    };
    match argv() {
        Ok(argv) => {
            let version = [(launch::VERSION_VARIABLE, env!("CARGO_PKG_VERSION"))];
            process::become_program(&argv, &version).into()
        }
        Err(error) => error,
    }
}
