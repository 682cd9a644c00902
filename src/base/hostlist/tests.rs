//! Slurm's own vectors, what it misreads, and the two directions against each other.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let hosts = expand(text).unwrap();
    assert_eq!(hosts.join(" "), expected, "{text}");
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(expand(text).unwrap_err().sentence, expected);
}

/// Printed by `scontrol show hostnames` of Slurm 22.05.8.
#[test]
fn hosts_come_in_the_order_of_scontrol() {
    check("node[001-003,7]", "node001 node002 node003 node7");
    check("node[098-101]", "node098 node099 node100 node101");
    check("node[000-001]", "node000 node001");
    check("node[9,001]", "node9 node001");
    check("rack[1-2]node[3-4]", "rack1node3 rack1node4 rack2node3 rack2node4");
    check("gpu-a[5],gpu-b[1-2]", "gpu-a5 gpu-b1 gpu-b2");
    check("n[1-2]c[0-1]b[3-4]", "n1c0b3 n1c0b4 n2c0b3 n2c0b4 n1c1b3 n1c1b4 n2c1b3 n2c1b4");
    check(
        "n[1-2]c[0-1]b[3-4]d[7-8]",
        "n1c0b3d7 n1c0b3d8 n2c0b3d7 n2c0b3d8 n1c1b3d7 n1c1b3d8 n2c1b3d7 n2c1b3d8 \
         n1c0b4d7 n1c0b4d8 n2c0b4d7 n2c0b4d8 n1c1b4d7 n1c1b4d8 n2c1b4d7 n2c1b4d8",
    );
    check("tux2,tux1,tux2", "tux2 tux1 tux2");
    check("a[1,1]b[2,2]", "a1b2 a1b2 a1b2 a1b2");
    check("a1 b2", "a1 b2");
    check("a\tb\nc,,d,", "a b c d");
    check("a[1-2][3-4]", "a13 a14 a23 a24");
    check("[1-3]", "1 2 3");
    check("n[9-10]a[01-2]", "n9a01 n9a02 n10a01 n10a02");
    check("n[001-2]", "n001 n002");
    check("n[1-001]", "n1");
    check("n007", "n007");
    check("n1-3", "n1-3");
    check("", "");
    assert_eq!(expand("n[0-65535]").unwrap().len(), 65536);
}

/// Accepted since Slurm 23.11 (commit 0994b5f198); 22.05 says "Invalid hostlist".
#[test]
fn a_name_may_go_on_after_its_bracket() {
    check("rack[1-2]n5", "rack1n5 rack2n5");
    check("gpu-[3-4]-ib", "gpu-3-ib gpu-4-ib");
    check("r[1-2]n[3-4]-ib,x", "r1n3-ib r1n4-ib r2n3-ib r2n4-ib x");
}

#[test]
fn what_is_no_host_list_is_a_fault() {
    refused("node[3-1]", "`node[3-1]` is not a host list: the range `3-1` runs backwards");
    refused("gpu-[a]", "`gpu-[a]` is not a host list: `a` is not a number or a range");
    refused("x[1x2]", "`x[1x2]` is not a host list: `1x2` is not a number or a range");
    refused("n[]", "`n[]` is not a host list: `` is not a number or a range");
    refused("n[1,]", "`n[1,]` is not a host list: `` is not a number or a range");
    refused("n[1--3]", "`n[1--3]` is not a host list: `1--3` is not a number or a range");
    refused(
        "n[0-65536]",
        "`n[0-65536]` is not a host list: the range `0-65536` names more than 65,536 hosts",
    );
    refused("n[1[2]]", "`n[1[2]]` is not a host list: a bracket opens inside a bracket");
}

/// 22.05 prints `node]`, `n]`, `n01 n02` and a wrapped number for these, and exits with 0.
#[test]
fn what_slurm_misreads_silently_is_a_fault_too() {
    refused("node[1-", "`node[1-` is not a host list: a bracket is not closed");
    refused("n]", "`n]` is not a host list: a bracket closes that was not opened");
    refused("n[ 1-2]", "`n[ 1-2]` is not a host list: ` 1-2` is not a number or a range");
    refused("n[+1]", "`n[+1]` is not a host list: `+1` is not a number or a range");
    let huge = "n[99999999999999999999]";
    refused(
        huge,
        &format!("`{huge}` is not a host list: `99999999999999999999` is not a number or a range"),
    );
    refused("{f}", "`{f}` is not a host list: only the controller can expand `{...}`");
}

#[test]
fn a_short_text_cannot_fill_the_memory() {
    refused("a[0-65535]b[0-65535]", "`a[0-65535]b[0-65535]` names too many hosts");
    refused("a[0-65535,0-1]b[1]", "`a[0-65535,0-1]b[1]` names too many hosts");
    let many = ["n[0-65535]"; 5].join(",");
    refused(&many, &format!("`{many}` names too many hosts"));
}

#[test]
fn tasks_of_each_node_are_spelt_out() {
    let check = |text, expected: &[u32]| assert_eq!(tasks_per_node(text).unwrap(), expected);
    check("2(x3),1", &[2, 2, 2, 1]);
    check("3,1(x2)", &[3, 1, 1]);
    check("4", &[4]);
    let refused = |text: &str| {
        let fault = tasks_per_node(text).unwrap_err();
        assert_eq!(fault.sentence, format!("`{text}` does not count tasks a node"));
    };
    for text in ["", "2(x3", "2(3)", "2(x0)", "a", "1,,2", "-1", "1(x65536),1", "9999999999"] {
        refused(text);
    }
}

proptest! {
    #[test]
    fn a_range_of_any_width_is_spelt_out(start in 0u64..1200, n in 1u64..300, width in 1usize..5) {
        let hosts: Vec<String> =
            (start..start + n).map(|i| format!("n{i:0width$}")).collect();
        let text = format!("n[{start:0width$}-{:0width$}]", start + n - 1);
        prop_assert_eq!(expand(&text).unwrap(), hosts);
    }

    #[test]
    fn no_text_breaks_it(text in "[a-c0-9\\[\\]\\-, ]{0,24}") {
        let _ = expand(&text);
    }
}
