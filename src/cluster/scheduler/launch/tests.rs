//! Launchers by what they print, and the command lines made for them.

use super::*;

/// Debian's Open MPI 4.1.4, called by its two names.
const OPEN_MPI: &str =
    "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
const OPEN_RTE: &str =
    "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
/// Debian's MPICH 4.0.2.
const MPICH: &str = "HYDRA build details:
    Version:                                 4.0.2
    Release Date:                            Thu Apr  7 12:34:45 CDT 2022
    Configure options:                       '--with-hwloc-prefix=/usr' '--with-device=ch4:ucx'
    Process Manager:                         pmi
    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist
    Resource management kernels available:   user slurm ll lsf sge pbs cobalt
";
const INTEL: &str =
    "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619 (id: c2e19c2f3e)
Copyright 2003-2023, Intel Corporation.
";

#[test]
fn launchers_are_told_by_their_version() {
    let check = |text: &str, expected: Flavour, says: &str| {
        assert_eq!((flavour("/usr/bin/mpiexec", text), version(text).as_str()), (expected, says));
    };
    let open = |major| Flavour::OpenMpi { major, tm: false };
    check(OPEN_MPI, open(4), "mpirun (Open MPI) 4.1.4");
    check(OPEN_RTE, open(4), "mpiexec (OpenRTE) 4.1.4");
    check("mpirun (Open MPI) 5.0.7\n", open(5), "mpirun (Open MPI) 5.0.7");
    check("prterun (PRRTE) 3.0.9\n", open(5), "prterun (PRRTE) 3.0.9");
    check(MPICH, Flavour::Hydra, "MPICH (Hydra) 4.0.2");
    check(INTEL, Flavour::Intel, INTEL.lines().next().unwrap());
    check("mpiexec PALS 1.2.12\n", Flavour::Pals, "mpiexec PALS 1.2.12");
    check("", Flavour::Unknown, "of unknown version");
    check("MPT 2.28\n", Flavour::Unknown, "MPT 2.28");
    let pals = "/opt/cray/pe/pals/1.2.12/bin/mpiexec";
    assert_eq!(flavour(pals, "mpiexec version 1.2.12\n"), Flavour::Pals);
    assert_eq!(flavour(pals, OPEN_MPI), open(4));
}

#[test]
fn an_open_mpi_built_for_pbs_lists_its_task_interface() {
    let without = "mca:plm:rsh:version:\"component:4.1.4\"\nmca:ras:slurm:version:\"api:3.0.0\"\n";
    assert!(!has_tm(without));
    assert!(!has_tm("config:cli:'--without-tm'\n                 MCA plm: rsh (MCA v2.1.0)\n"));
    assert!(has_tm("mca:plm:isolated:version:\"x\"\nmca:plm:tm:version:\"component:4.1.4\"\n"));
    assert!(has_tm("                 MCA plm: tm (MCA v2.1.0, API v2.0.0, Component v4.1.4)\n"));
    // Reading the hosts is not starting processes there.
    assert!(!has_tm("mca:ras:tm:version:\"component:4.1.4\"\n"));
}

#[test]
fn hosts_come_in_the_order_of_the_node_file_with_their_places() {
    let expected = [("b", 2), ("a", 1)].map(|(host, n)| (host.to_owned(), n));
    assert_eq!(hosts("b\na\n\nb\n"), expected);
    assert_eq!(hosts(""), []);
}

/// The command line for four ranks, as a person would type it, or the fault.
fn typed(flavour: Flavour, nodefile: &str, vars: &[(&str, &str)], own: &str) -> String {
    let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let launcher = Launcher { program: "/m/mpiexec".to_owned(), flavour, version: String::new() };
    let request = Request {
        nodefile: "/aux/9.s",
        hosts: &hosts(nodefile),
        hostfile: "/tmp/hosts",
        ranks: 4,
        own,
        vars: &vars,
        command: &["prog".to_owned(), "a b".to_owned()],
    };
    match launcher.line(&request) {
        Ok(line) => format!("{}{line}", if line.by_agent { "agent: " } else { "" }),
        Err(fault) => fault.to_string(),
    }
}

const ONE_HOST: &str = "a\na\na\na\n";
const TWO_HOSTS: &str = "a\na\nb\nb\n";
const OWN: &str = "/opt/hs/hpcsweep";

#[test]
fn ranks_of_one_host_need_no_agent() {
    let check = |flavour, expected: &str| {
        assert_eq!(typed(flavour, ONE_HOST, &[], "/with blank/hpcsweep"), expected);
    };
    for (major, name) in [(4, "OMPI_MCA_orte"), (5, "PRTE_MCA_prte")] {
        check(
            Flavour::OpenMpi { major, tm: false },
            &format!(
                "{name}_allowed_exit_without_sync=1 /m/mpiexec -n 4 --bind-to none --hostfile /aux/9.s prog 'a b'"
            ),
        );
    }
    check(Flavour::Hydra, "/m/mpiexec -n 4 prog 'a b'");
    check(Flavour::Intel, "I_MPI_PIN=off /m/mpiexec -n 4 prog 'a b'");
    check(Flavour::Pals, "/m/mpiexec -n 4 --ppn 4 --cpu-bind none prog 'a b'");
    check(Flavour::Unknown, "/m/mpiexec -n 4 prog 'a b'");
}

#[test]
fn other_hosts_are_reached_in_the_launchers_own_way() {
    let job = [("PBS_JOBID", "9[3].s"), ("PBS_ARRAY_INDEX", "3"), ("PBS_NODEFILE", "/aux/9.s")];
    let check =
        |flavour, expected: &str| assert_eq!(typed(flavour, TWO_HOSTS, &job, OWN), expected);
    let open = |major, tm| Flavour::OpenMpi { major, tm };
    check(
        open(4, false),
        "agent: OMPI_MCA_orte_allowed_exit_without_sync=1 /m/mpiexec -n 4 --bind-to none --hostfile /tmp/hosts \
         --mca plm_rsh_agent '/opt/hs/hpcsweep tm-agent' --mca plm_rsh_no_tree_spawn 1 \
         --mca orte_leave_session_attached 1 --mca plm_rsh_num_concurrent 2 \
         -x PBS_JOBID -x PBS_ARRAY_INDEX prog 'a b'",
    );
    check(
        open(5, false),
        "agent: PRTE_MCA_prte_allowed_exit_without_sync=1 /m/mpiexec -n 4 --bind-to none --hostfile /tmp/hosts \
         --prtemca plm_ssh_agent '/opt/hs/hpcsweep tm-agent' --prtemca plm_ssh_no_tree_spawn 1 \
         --leave-session-attached --prtemca plm_ssh_num_concurrent 2 \
         -x PBS_JOBID -x PBS_ARRAY_INDEX prog 'a b'",
    );
    check(
        open(4, true),
        "OMPI_MCA_orte_allowed_exit_without_sync=1 /m/mpiexec -n 4 --bind-to none -x PBS_JOBID \
         -x PBS_ARRAY_INDEX prog 'a b'",
    );
    check(
        Flavour::Hydra,
        "agent: HYDRA_LAUNCHER_EXTRA_ARGS=tm-agent /m/mpiexec -n 4 -bootstrap rsh \
         -bootstrap-exec /opt/hs/hpcsweep prog 'a b'",
    );
    check(
        Flavour::Intel,
        "agent: I_MPI_PIN=off /m/mpiexec -n 4 -bootstrap rsh -bootstrap-exec /opt/hs/hpcsweep \
         -bootstrap-exec-args tm-agent prog 'a b'",
    );
    check(Flavour::Pals, "/m/mpiexec -n 4 --ppn 2 --cpu-bind none prog 'a b'");
    check(Flavour::Unknown, "/m/mpiexec -n 4 prog 'a b'");
}

#[test]
fn open_mpi_is_told_how_many_places_each_host_has() {
    let vars = Vars::new();
    let of = |flavour, nodefile: &str| {
        let program = "/m/mpiexec".to_owned();
        let launcher = Launcher { program, flavour, version: String::new() };
        let hosts = hosts(nodefile);
        let ranks = hosts.iter().map(|(_, n)| n).sum();
        let (nodefile, hostfile, own, command) = ("/aux/9.s", "/tmp/hosts", OWN, &[][..]);
        let request =
            Request { nodefile, hosts: &hosts, hostfile, ranks, own, vars: &vars, command };
        launcher.line(&request).unwrap().hostfile
    };
    for major in [4, 5] {
        let without_tm = Flavour::OpenMpi { major, tm: false };
        assert_eq!(of(without_tm, "a\nb\n").as_deref(), Some("a slots=1\nb slots=1\n"));
        assert_eq!(of(without_tm, "a\na\nb\n").as_deref(), Some("a slots=2\nb slots=1\n"));
        assert_eq!(of(without_tm, ONE_HOST), None);
        assert_eq!(of(Flavour::OpenMpi { major, tm: true }, "a\nb\n"), None);
    }
    assert_eq!(of(Flavour::Hydra, "a\nb\n"), None);
}

#[test]
fn what_a_person_has_chosen_stays() {
    let check = |flavour, vars: &[(&str, &str)], expected: &str| {
        assert_eq!(typed(flavour, TWO_HOSTS, vars, OWN), expected);
    };
    check(
        Flavour::OpenMpi { major: 4, tm: false },
        &[
            ("OMPI_MCA_plm_rsh_agent", "ssh"),
            ("OMPI_MCA_hwloc_base_binding_policy", "core"),
            ("OMPI_MCA_orte_allowed_exit_without_sync", "0"),
        ],
        "/m/mpiexec -n 4 --hostfile /tmp/hosts prog 'a b'",
    );
    check(Flavour::Hydra, &[("HYDRA_LAUNCHER", "ssh")], "/m/mpiexec -n 4 prog 'a b'");
    let intel = [("I_MPI_HYDRA_BOOTSTRAP", "pbsdsh"), ("I_MPI_PIN_DOMAIN", "omp")];
    check(Flavour::Intel, &intel, "/m/mpiexec -n 4 prog 'a b'");
}

#[test]
fn a_job_that_does_not_fit_is_told() {
    let check = |nodefile, places: &str, where_: &str| {
        assert_eq!(
            typed(Flavour::Hydra, nodefile, &[], OWN),
            format!(
                "the job has {places} for ranks, the trial asks for 4\n  /aux/9.s: {where_}\n\
                 hint: PBS gives a place for each of `mpiprocs`: \
                 `-l select=HOSTS:ncpus=C:mpiprocs=RANKS_A_HOST`"
            )
        );
    };
    check("a\nb\n", "2 places", "a: 1, b: 1");
    check("a\n", "1 place", "a: 1");
    check("", "0 places", "empty");
    check("a\na\na\na\na\n", "5 places", "a: 5");
    assert_eq!(
        typed(Flavour::Pals, "a\na\na\nb\n", &[], OWN),
        "Cray PALS starts as many ranks on every host, but the job has 3 on `a` and 1 on `b`\n\
         hint: ask for equal chunks on hosts of their own (`place=scatter`), or name \
         `scheduler.launcher` in the site profile"
    );
}

#[test]
fn a_path_that_launchers_would_take_apart_is_told_before() {
    let flavours = [Flavour::OpenMpi { major: 4, tm: false }, Flavour::Hydra, Flavour::Intel];
    for (flavour, name) in flavours.into_iter().zip(["Open MPI", "Hydra", "Intel MPI"]) {
        for own in ["/with blank/hpcsweep", "/a:b/hpcsweep"] {
            assert_eq!(
                typed(flavour, TWO_HOSTS, &[], own),
                format!(
                    "{name} cannot call `{own}` on other hosts: the path has a blank or a colon\n\
                     hint: install hpcsweep under another path, or name `scheduler.launcher` in the \
                     site profile"
                )
            );
        }
    }
}

#[test]
fn the_agent_takes_a_host_and_a_shell_command_as_ssh_does() {
    let check = |words: &str, expected: Result<(&str, &str), &str>| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let got = agent_request(&words).map_err(|fault| fault.to_string());
        let expected = expected.map(|(host, command)| (host.to_owned(), command.to_owned()));
        assert_eq!(got, expected.map_err(str::to_owned), "{words:?}");
    };
    check("n2 orted -mca ess env", Ok(("n2", "orted -mca ess env")));
    check("-x -n -l ada n2 PATH=/m:$PATH ; orted", Ok(("n2", "PATH=/m:$PATH ; orted")));
    check("-x", Err("the agent is told no host"));
    check("n2", Err("the agent is told nothing to run on `n2`"));
}

#[test]
fn other_hosts_get_the_jobs_paths() {
    let vars = [("PATH", "/m/bin:/bin"), ("LD_LIBRARY_PATH", "/m/lib"), ("X", "1")];
    let vars: Vars = vars.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(
        on_other_host(&vars, OWN, "/bin/sh", "orted -x".to_owned()).join(" "),
        "/usr/bin/env PATH=/m/bin:/bin LD_LIBRARY_PATH=/m/lib /opt/hs/hpcsweep tm-agent --here /bin/sh -c orted -x"
    );
    assert_eq!(
        on_other_host(&Vars::new(), OWN, "/bin/tcsh", "x".to_owned()),
        ["/usr/bin/env", OWN, "tm-agent", "--here", "/bin/tcsh", "-c", "x"]
    );
}

#[test]
fn a_host_whose_domain_was_cut_off_is_found_again() {
    let nodefile = "n1.cluster.org\nn1.cluster.org\nn2.cluster.org\n";
    assert_eq!(host_in(nodefile, "n2"), "n2.cluster.org");
    assert_eq!(host_in(nodefile, "N1.other.org"), "n1.cluster.org");
    assert_eq!(host_in(nodefile, "n3"), "n3");
    assert_eq!(host_in("n2\nn1.a\n", "n2"), "n2");
    // Two of one name: neither is chosen.
    assert_eq!(host_in("n1.a\nn1.b\n", "n1"), "n1");
    assert_eq!(host_in("", "n1"), "n1");
}
