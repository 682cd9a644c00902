//! Plans that many tests run.

/// A plan that runs this shell code; `rest` is appended.
pub(crate) fn shell(code: &str, rest: &str) -> String {
    let code = toml::Value::String(code.to_owned());
    format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n{rest}")
}

pub(crate) const MINIMAL: &str =
    "version = 1\n[sweep]\nname = \"demo\"\n[run]\ncommand = [\"true\"]\n";

/// The documented jdit example: three trials, two chains.
pub(crate) const JDIT: &str = r#"version = 1
[sweep]
name = "jdit"
[run]
command = ["python3", "train.py", "{{ lr }}"]
[resources]
walltime = "01:00:00"
[[trials]]
task_id = 1
lr = 1e-3
gpu_ids_abs = [0]
[[trials]]
task_id = 1
lr = 1e-4
gpu_ids_abs = [0]
[[trials]]
task_id = 2
lr = 1e-5
gpu_ids_abs = [2, 3]
"#;

/// Code of a shell that prints the end of a traceback and fails.
pub(crate) fn raises(words: &str) -> String {
    format!(
        "printf 'Traceback (most recent call last):\\n  File \"t.py\", line 1, in <module>\\n%s\\n' \"{words}\" >&2; exit 1"
    )
}
