//! Helpers that the tests of this room share: plans with a short head, and what they become.

use super::{Plan, parse};

/// The three lines that every test plan begins with: what is added begins on line 4.
const HEAD: &str = "version = 1\nsweep.name = \"s\"\nrun.command = [\"true\"]\n";

/// The plan of a head and a body.
pub(crate) fn plan(body: &str) -> Plan {
    parse(&format!("{HEAD}{body}"), "plan.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Compares all faults of a head and a body.
pub(super) fn check_faults(body: &str, expected: &str) {
    check_plan_faults(&format!("{HEAD}{body}"), expected);
}

/// Compares all faults of a whole plan.
pub(super) fn check_plan_faults(text: &str, expected: &str) {
    match parse(text, "plan.toml") {
        Ok(plan) => panic!("no fault, but {} trials", plan.trials.len()),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

/// The names of the trials' chains; `-` where there is none.
pub(crate) fn tasks(plan: &Plan) -> Vec<String> {
    let name = |task: &crate::plan::trial::TaskId| task.to_string();
    plan.trials.iter().map(|t| t.task_id.as_ref().map_or("-".into(), name)).collect()
}

/// The parameters of the trials as JSON.
pub(crate) fn params(plan: &Plan) -> Vec<String> {
    plan.trials.iter().map(|t| serde_json::to_string(&t.params).unwrap()).collect()
}
