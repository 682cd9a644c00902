//! The crates that hpcsweep is built of have the licenses and the source that `deny.toml` allows.
//!
//! `cargo deny` checks the same and more; it takes longer to build than hpcsweep itself.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::ROOT;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether an expression of SPDX, or the older `MIT/Apache-2.0`, is met by these licenses.
fn is_allowed(license: &str, allowed: &BTreeSet<String>) -> bool {
    let parsed = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX);
    parsed
        .is_ok_and(|expression| expression.evaluate(|wanted| allowed.contains(&wanted.to_string())))
}

#[test]
fn a_license_is_allowed_by_all_of_its_parts() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    let of = |license| is_allowed(license, &allowed);
    assert!(of("MIT") && of("MIT OR GPL-3.0-only") && of("MIT/Apache-2.0") && of("MIT AND Zlib"));
    assert!(!of("GPL-3.0-only") && !of("MIT AND GPL-3.0-only") && !of("what") && !of(""));
}

#[test]
fn crates_have_an_allowed_license_and_come_from_crates_io() {
    let deny = std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap();
    let deny: toml::Table = deny.parse().unwrap();
    let allowed = deny["licenses"]["allow"].as_array().unwrap();
    let allowed = allowed.iter().map(|name| name.as_str().unwrap().to_owned()).collect();

    let told = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let packages = told["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "cargo names {} packages only", packages.len());

    let mut faults = Vec::new();
    // A package without a source is this project.
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let license = package["license"].as_str().unwrap_or_default();
        if !is_allowed(license, &allowed) {
            faults.push(format!("{name}: {license}"));
        }
        if package["source"] != CRATES_IO {
            faults.push(format!("{name}: {}", package["source"]));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}
