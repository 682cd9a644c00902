"""What goes in and what comes out: options, files, environment, refusals, hosts, queries, faults."""

import json
import os
import subprocess
from typing import Dict

from harness import Case, until

SHOW = "cd $PBS_O_WORKDIR; python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'\n"


class Submissions(Case):
    """qsub."""

    def test_directives_end_at_the_first_command_and_the_command_line_wins(self) -> None:
        self.pbs.write(
            "s.sh",
            "#!/bin/bash\n#PBS -N inside -j oe\n# a comment\n"
            "#PBS -l select=1:ncpus=2 -l walltime=90\ntrue\n#PBS -J 0-3\n",
        )
        record = self.pbs.record(self.pbs.qsub("-h", "s.sh"))
        shown = {"ncpus": 2, "nodect": 1, "place": "free", "select": "1:ncpus=2", "walltime": "00:01:30"}
        self.assertEqual((record["Job_Name"], record["Join_Path"], record["Resource_List"]), ("inside", "oe", shown))
        record = self.pbs.record(self.pbs.qsub("-h", "-N", "outside", "-l", "walltime=1:00:00", "s.sh"))
        self.assertEqual((record["Job_Name"], record["Resource_List"]["walltime"]), ("outside", "01:00:00"))

    def test_the_script_is_copied_at_submission(self) -> None:
        self.pbs.write("s.sh", "echo old >$PBS_O_WORKDIR/said\n")
        job = self.pbs.qsub("-h", "s.sh")
        self.pbs.write("s.sh", "echo new >$PBS_O_WORKDIR/said\n")
        self.pbs.call("qrls", job)
        self.pbs.ended(job)
        self.assertEqual(self.pbs.read("said"), "old\n")

    def test_refusals(self) -> None:
        table = {
            ("-q", "nosuch"): (170, "Unknown queue"),
            ("-l", "select=1:foo=1"): (187, "Unknown resource: foo"),
            ("-l", "nosuch=1"): (187, "Unknown resource Resource_List.nosuch"),
            ("-l", "mem=abc"): (166, "Illegal attribute or resource value Resource_List.mem"),
            ("-l", "select=abc"): (166, "Illegal attribute or resource value Resource_List.select"),
            ("-l", "select=0"): (166, "Illegal attribute or resource value"),
            ("-l", "place=weird"): (166, "Illegal attribute or resource value Resource_List.place"),
            ("-l", "walltime=1:2:3:4"): (166, "Illegal attribute or resource value Resource_List.walltime"),
            ("-l", "select=2:ncpus=1", "-l", "ncpus=2"): (
                5,
                '"-lresource=" cannot be used with "select" or "place", resource is: ncpus',
            ),
            ("-l", "soft_walltime=5"): (
                159,
                "Cannot set attribute, read only or insufficient permission  Resource_List.soft_walltime",
            ),
            ("-W", "foo=bar"): (154, "Error (15002) submitting job"),
            ("-W", "group_list=nogroup"): (197, "Bad GID for job execution"),
            ("-J", "0-9%-1"): (166, "Error (15014) submitting job"),
        }
        for options, (code, text) in table.items():
            ran = self.pbs.call("qsub", *options, "--", "/bin/true")
            self.assertEqual(ran, (code, "", f"qsub: {text}\n"), options)
        for options, text in (
            (("-N", "a/b"), "illegal -N value"),
            (("-j", "xx"), "illegal -j value"),
            (("-Z",), "invalid option -- 'Z'"),
        ):
            ran = self.pbs.call("qsub", *options, "--", "/bin/true")
            self.assertEqual((ran.code, ran.err.splitlines()[0]), (2, f"qsub: {text}"))
        self.pbs.write("dos.sh", "true\r\n")
        for name, text in (
            ("none.sh", "script file:: No such file or directory"),
            (".", "script not a file"),
            ("dos.sh", "script contains cr, lf"),
        ):
            self.assertEqual(self.pbs.call("qsub", name), (1, "", f"qsub: {text}\n"))

    def test_queues(self) -> None:
        small = {"max_array_size": 4, "max_walltime": "01:00:00", "max_queued": 6}
        queues: Dict[str, object] = {
            "workq": None,
            "small": small,
            "closed": {"enabled": False},
            "stopped": {"started": False},
            "route": {"route_destinations": ["small"]},
        }
        self.pbs.config(queues=queues)
        refused = {
            ("-q", "closed"): (173, "Queue is not enabled"),
            ("-q", "small", "-l", "walltime=2:00:00"): (188, "Job violates queue and/or server resource limits"),
        }
        refused[("-q", "small", "-J", "0-5")] = (3, "Array job exceeds server or queue size limit")
        for options, (code, text) in refused.items():
            self.assertEqual(self.pbs.call("qsub", *options, "--", "/bin/true"), (code, "", f"qsub: {text}\n"))
        stopped = self.pbs.shell("true", "-q", "stopped")
        until("it says why", lambda: self.pbs.record(stopped).get("comment") == "Not Running: Queue not started.")
        routed = self.pbs.shell("true", "-q", "route", "-J", "0-3")
        self.assertEqual(self.pbs.ended(routed)["queue"], "small")
        self.assertEqual(self.pbs.record(routed)["Resource_List"].get("walltime"), None)
        # Too wide for where it would go: taken, and gone.
        lost = self.pbs.shell("true", "-q", "route", "-J", "0-9")
        self.assertEqual(self.pbs.call("qstat", "-x", lost), (153, "", f"qstat: Unknown Job Id {lost}\n"))
        # Held first, it leaves a record, and what waits for it waits for ever.
        held = self.pbs.shell("true", "-h", "-q", "route", "-J", "0-9")
        waiting = self.pbs.shell("true", "-W", f"depend=afterany:{held}")
        self.pbs.call("qrls", held)
        self.assertNotIn("Exit_status", self.pbs.ended(held))
        self.assertEqual(self.pbs.record(waiting)["job_state"], "H")

    def test_what_a_job_finds_in_its_environment(self) -> None:
        self.pbs.write("env.sh", SHOW)
        job = self.pbs.qsub(
            "-J",
            "4-5:2",
            "-l",
            "select=1:ncpus=4:mpiprocs=2",
            "-v",
            "A=x y,B='a,b',C=say \"hi\" you,E=",
            "-o",
            "out",
            "env.sh",
        )
        self.pbs.ended(job)
        found = json.loads(self.pbs.read("out"))
        expected = {
            "PBS_JOBID": "0[4].pbshead",
            "PBS_ARRAY_ID": "0[].pbshead",
            "PBS_ARRAY_INDEX": "4",
            "PBS_O_WORKDIR": self.pbs.work,
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "NCPUS": "4",
            "OMP_NUM_THREADS": "4",
            "HOME": self.pbs.environment["HOME"],
            "A": "x y",
            "B": "a,b",
            "C": "say hi you",
            "E": "",
        }
        self.assertEqual({name: found.get(name) for name in expected}, expected)
        self.assertEqual({"LANG", "PBS_NP", "CUDA_VISIBLE_DEVICES", "PBS_WALLTIME"} & set(found), set())
        self.assertTrue(found["TMPDIR"].endswith("/pbs.0[4].pbshead"))
        self.assertFalse(os.path.exists(found["TMPDIR"]))
        for value in ("A=it's", "NOT_SET", """A='{"a": 1}'"""):
            ran = self.pbs.call("qsub", "-v", value, "--", "/bin/true")
            self.assertEqual(ran, (1, "", "qsub: cannot send environment with the job\n"))

    def test_with_both_the_environment_wins_over_a_named_value(self) -> None:
        self.pbs.write("env.sh", SHOW)
        ran = self.pbs.call("qsub", "-V", "-v", "VA=over", "-o", "out", "env.sh", VA='a,b "q" it\'s\n')
        self.pbs.ended(ran.out.strip())
        self.assertEqual(json.loads(self.pbs.read("out"))["VA"], 'a,b "q" it\'s\n')

    def test_where_output_goes(self) -> None:
        os.mkdir(os.path.join(self.pbs.work, "out"))
        self.pbs.write("o.sh", "echo out; echo err >&2\n")
        table = {
            ("-o", "out/"): {"out/{n}.pbshead.OU": "out\n", "o.sh.e{n}": "err\n"},
            ("-j", "oe", "-o", "out/x.^array_index^", "-J", "0-1"): {"out/x.0": "out\nerr\n", "out/x.1": "out\nerr\n"},
            ("-koed", "-j", "oe", "-o", "out/d"): {"out/d": "out\nerr\n"},
            ("-j", "oe", "-o", "out/$PBS_JOBID"): {"out/$PBS_JOBID": "out\nerr\n"},
            ("-R", "oe"): {},
        }
        for number, (options, files) in enumerate(table.items()):
            job = self.pbs.qsub(*options, "o.sh")
            self.assertEqual(self.pbs.ended(job)["Stageout_status"], 1)
            found = {}
            for folder in (".", "out"):
                for name in os.listdir(os.path.join(self.pbs.work, folder)):
                    path = os.path.normpath(os.path.join(folder, name))
                    if os.path.isfile(os.path.join(self.pbs.work, path)) and path != "o.sh":
                        found[path] = self.pbs.read(path)
                        os.unlink(os.path.join(self.pbs.work, path))
            self.assertEqual(found, {name.format(n=number): text for name, text in files.items()}, options)

    def test_output_that_cannot_be_written_is_lost(self) -> None:
        self.pbs.write("o.sh", "echo out\n")
        job = self.pbs.qsub("-j", "oe", "-o", "no/such/x", "o.sh")
        ended = self.pbs.ended(job)
        self.assertEqual((ended["Exit_status"], ended["Stageout_status"]), (0, 0))
        self.assertFalse(self.pbs.exists("no"))
        # Written directly, it keeps the job from starting.
        held = self.pbs.qsub("-koed", "-j", "oe", "-o", "no/such/x", "o.sh")
        self.pbs.in_state(held, "H")
        self.assertEqual(self.pbs.record(held)["comment"], "job held, too many failed attempts to run")


class Hosts(Case):
    """Chunks, hosts and ranks."""

    def test_node_files_and_threads(self) -> None:
        self.pbs.write("sel.sh", "cat $PBS_NODEFILE | tr '\\n' ' '; echo $NCPUS $OMP_NUM_THREADS\n")
        table = {
            "1:ncpus=4": "pbsn1 4 4",
            "1:ncpus=4:mpiprocs=2": "pbsn1 pbsn1 4 4",
            "1:ncpus=4:mpiprocs=2:ompthreads=3": "pbsn1 pbsn1 3 3",
            "1:ncpus=2:mpiprocs=2+1:ncpus=4:mpiprocs=4": "pbsn1 " * 6 + "2 2",
            "3:ncpus=1": "pbsn1 pbsn1 pbsn1 1 1",
            "1:ncpus=4:mpiprocs=0": "0 0",
            "2": "pbsn1 pbsn1 1 1",
            "2:ncpus=12": "pbsn1 pbsn2 12 12",
        }
        for select, said in table.items():
            self.pbs.ended(self.pbs.qsub("-l", f"select={select}", "-j", "oe", "-o", "out", "sel.sh"))
            self.assertEqual(self.pbs.read("out"), said + "\n", select)

    def test_where_chunks_lie(self) -> None:
        job = self.pbs.shell("true", "-l", "select=2:ncpus=2:ngpus=1")
        ended = self.pbs.ended(job)
        self.assertEqual(
            (ended["exec_host"], ended["exec_vnode"]),
            ("pbsn1/0*2+pbsn1/1*2", "(pbsn1:ncpus=2:ngpus=1)+(pbsn1:ncpus=2:ngpus=1)"),
        )
        job = self.pbs.shell("true", "-l", "select=2:ncpus=1", "-l", "place=scatter")
        self.assertEqual(self.pbs.ended(job)["exec_host"], "pbsn1/0+pbsn2/0")

    def test_what_can_never_run_is_taken(self) -> None:
        comments = {
            "select=1:ncpus=17": "Not Running: Insufficient amount of resource: ncpus ",
            "select=4:ncpus=9": "Can Never Run: Insufficient amount of resource: ncpus (R: 36 A: 32 T: 32)",
            "select=1:ngpus=9": "Can Never Run: Insufficient amount of resource: ngpus (R: 9 A: 8 T: 8)",
        }
        for limits, comment in comments.items():
            job = self.pbs.shell("true", "-l", limits)
            self.assertEqual(self.pbs.comment(job), comment)

    def test_tasks(self) -> None:
        self.pbs.write(
            "t.sh",
            """t() { "$@" | grep nothing; echo "rc=${PIPESTATUS[0]}"; }
t pbs_tmrsh pbsn2 /bin/sh -c 'echo "$HPCSWEEP_TEST_HOST $PBS_TASKNUM $PBS_NODENUM <$PBS_ARRAY_INDEX> $PATH"; exit 5'
t pbs_tmrsh pbsn2 'echo a; echo b' 2>&1
t pbs_tmrsh nosuch hostname 2>&1
t pbsdsh -n 3 -- /bin/sh -c 'kill -9 $$'
""",
        )
        job = self.pbs.qsub(
            "-J", "0-1:2", "-j", "oe", "-o", "out", "-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter", "t.sh"
        )
        self.pbs.ended(job)
        expected = """pbsn2 20000001 1 <> /bin:/usr/bin
rc=5
echo a; echo b: No such file or directory
rc=254
pbs_tmrsh: host "nosuch" is not a node in job <0[0].pbshead>
rc=255
pbsdsh: task 0x00000000 exit status 265
rc=0
"""
        self.assertEqual(self.pbs.read("out"), expected)


class Queries(Case):
    """qstat."""

    def test_the_states_of_being_asked(self) -> None:
        self.assertEqual(self.pbs.call("qstat"), (0, "", ""))
        job = self.pbs.shell("true")
        self.pbs.ended(job)
        text = f"qstat: {job} Job has finished, use -x or -H to obtain historical job information\n"
        self.assertEqual(self.pbs.call("qstat", "0"), (35, "", text))
        ran = self.pbs.call("qstat", "-x", "-f", "-F", "json", "0", "99")
        self.assertEqual((ran.code, ran.err), (153, "qstat: Unknown Job Id 99.pbshead\n"))
        self.assertEqual(list(json.loads(ran.out)["Jobs"]), [job])
        self.assertEqual(
            set(json.loads(self.pbs.call("qstat", "-f", "-F", "json").out)), {"timestamp", "pbs_version", "pbs_server"}
        )
        user = self.pbs.record(job)["Job_Owner"].split("@")[0]
        row = f"{job:<17} STDIN            {user:<16}  00:00:00 F workq           "
        self.assertEqual(self.pbs.call("qstat", "-x").out.splitlines()[2:], [row])

    def test_of_several_identifiers_only_the_first_becomes_json(self) -> None:
        for _ in range(3):
            self.pbs.call("qsub", "-h", "--", "/bin/true")
        shown = json.loads(self.pbs.call("qstat", "-f", "-F", "json", "1", "0", "2").out)["Jobs"]
        self.assertEqual(list(shown), ["1.pbshead"])
        self.assertEqual(self.pbs.call("qstat", "-f", "1", "0", "2").out.count("Job Id: "), 3)
        self.assertEqual(len(json.loads(self.pbs.call("qstat", "-f", "-F", "json").out)["Jobs"]), 3)

    def test_both_generations_of_json_lie(self) -> None:
        job = self.pbs.qsub("-N", "1e5", "-v", "VA=1e5,VB=007,VC=,VD=x", "-h", "--", "/bin/true")
        found = self.pbs.record(job)
        variables = {name: found["Variable_List"][name] for name in ("VA", "VB", "VC", "VD")}
        self.assertEqual((found["Job_Name"], variables), ("1e5", {"VA": 100000, "VB": 7, "VC": "", "VD": "x"}))
        self.pbs.config(json="old")
        found = self.pbs.record(job)
        self.assertEqual(found["Job_Name"], 100000.0)
        variables = {name: value for name, value in found["Variable_List"].items() if name.startswith("V")}
        self.assertEqual(variables, {"VA": 100000.0, "VB": "007", "VC": ",VD=x"})

    def test_server_and_queues(self) -> None:
        self.pbs.config(queues={"workq": {"max_array_size": 20}}, max_queued=50, flavour="openpbs", version="22.05.11")
        self.assertEqual(self.pbs.call("qstat", "--version").out, "pbs_version = 22.05.11\n")
        server = json.loads(self.pbs.call("qstat", "-B", "-f", "-F", "json").out)["Server"]["pbshead"]
        found = {
            name: server.get(name) for name in ("max_array_size", "max_queued", "job_history_enable", "default_queue")
        }
        self.assertEqual(
            found,
            {
                "max_array_size": 10000,
                "max_queued": "[u:PBS_GENERIC=50]",
                "job_history_enable": "True",
                "default_queue": "workq",
            },
        )
        queue = json.loads(self.pbs.call("qstat", "-Q", "-f", "-F", "json").out)["Queue"]["workq"]
        self.assertEqual((queue["max_array_size"], queue["enabled"], queue["queue_type"]), (20, "True", "Execution"))
        self.assertIn("    max_array_size = 20\n", self.pbs.call("qstat", "-Qf").out)
        self.assertEqual(self.pbs.call("qstat", "-Qf", "nosuch"), (170, "", "qstat: Unknown queue nosuch\n"))


class Faults(Case):
    """What a test can have go wrong."""

    def test_a_lost_answer_leaves_a_job(self) -> None:
        self.pbs.config(qsub_fault="lost", qsub_fault_count=1)
        self.assertEqual(self.pbs.call("qsub", "--", "/bin/true"), (1, "", "qsub: Connection timed out\n"))
        self.assertEqual(self.pbs.ended("0.pbshead")["Exit_status"], 0)
        self.assertEqual(self.pbs.qsub("--", "/bin/true"), "1.pbshead")

    def test_a_refused_connection_leaves_none(self) -> None:
        self.pbs.config(qsub_fault="refused_connection")
        ran = self.pbs.call("qsub", "--", "/bin/true")
        self.assertEqual(ran, (162, "", "Connection refused\nqsub: cannot connect to server pbshead (errno=15010)\n"))
        self.assertEqual(self.pbs.records(), {})

    def test_a_qsub_that_hangs_leaves_a_job(self) -> None:
        self.pbs.config(qsub_fault="hang")
        hanging = subprocess.Popen(["qsub", "--", "/bin/true"], env=self.pbs.environment, cwd=self.pbs.work)
        self.addCleanup(hanging.wait)
        self.addCleanup(hanging.kill)
        until("the job is there", lambda: "0.pbshead" in self.pbs.records())
        self.pbs.ended("0.pbshead")
        self.assertIsNone(hanging.poll())

    def test_a_banner_stands_around_the_id(self) -> None:
        self.pbs.config(qsub_fault="banner")
        ran = self.pbs.call("qsub", "--", "/bin/true")
        self.assertEqual((ran.code, ran.out.splitlines()[2], len(ran.out.splitlines())), (0, "0.pbshead", 4))

    def test_qstat_fails(self) -> None:
        self.pbs.config(qstat_fault="down", qstat_fault_count=1)
        ran = self.pbs.call("qstat", "-f", "-F", "json")
        self.assertEqual((ran.code, ran.out), (255, ""))
        self.assertEqual(self.pbs.call("qstat").code, 0)
        self.pbs.config(qstat_fault="garbage", qstat_fault_count=None)
        ran = self.pbs.call("qstat", "-f", "-F", "json")
        self.assertEqual(ran.code, 0)
        self.assertRaises(ValueError, json.loads, ran.out)

    def test_a_wrong_configuration_is_said(self) -> None:
        self.pbs.config(histroy=False)
        self.assertEqual(self.pbs.call("qstat"), (2, "", "qstat: config.json: histroy is no key\n"))
