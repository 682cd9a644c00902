"""Arrays and what is told of them: each claim was observed on a real OpenPBS."""

import os
import signal
import subprocess
import unittest
from typing import Dict, List, Tuple

from harness import Case, Record, until

USAGE_LINES = 8


def short(records: Dict[str, Record]) -> List[Tuple[str, str, int, object]]:
    """Name, state, substate and exit status of all records."""
    return [
        (name.split(".")[0], one["job_state"], one["substate"], one.get("Exit_status")) for name, one in records.items()
    ]


class Arrays(Case):
    """`-J`, identifiers, and what each element is given."""

    def test_an_array_runs_each_index_once_in_the_home_folder(self) -> None:
        self.pbs.write("s.sh", "echo $PBS_ARRAY_INDEX $PBS_JOBID $PBS_ARRAY_ID $PWD $(umask) >>$PBS_O_WORKDIR/ran\n")
        self.assertEqual(self.pbs.qsub("-J", "3-7:2", "s.sh"), "0[].pbshead")
        self.pbs.ended("0[].pbshead")
        home = self.pbs.environment["HOME"]
        lines = sorted(self.pbs.read("ran").splitlines())
        self.assertEqual(lines, [f"{i} 0[{i}].pbshead 0[].pbshead {home} 0077" for i in (3, 5, 7)])
        names = [f"s.sh.{letter}0.{i}" for letter in "eo" for i in (3, 5, 7)]
        self.assertEqual(self.pbs.files(), ["ran", "s.sh", *names])
        self.assertEqual(os.stat(os.path.join(self.pbs.work, names[0])).st_mode & 0o777, 0o600)
        self.assertEqual(self.pbs.call("qstat", "0").err, "qstat: Unknown Job Id 0.pbshead\n")

    def test_ranges_that_the_client_refuses(self) -> None:
        for value in ("5-5", "5", "0-0", "3-1", "1,3,5", "0-3,7-9", "0-9:0", "", "-1-3", "a-b"):
            ran = self.pbs.call("qsub", "-J", value, "-h", "--", "/bin/true")
            lines = ran.err.splitlines()
            self.assertEqual((ran.code, ran.out, lines[0], len(lines)), (2, "", "qsub: illegal -J value", USAGE_LINES))

    def test_ranges_that_are_taken(self) -> None:
        # One index alone looks like a number, and becomes one.
        taken = {
            "0-9:3": ("0-9:3", "0-9:3", 4),
            "5-6:2": ("5-6:2", 5, 1),
            "00-03": ("00-03", "0-3", 4),
            "0-9:2%2": ("0-9:2", "0-9:2", 5),
            "0-9:20": ("0-9:20", 0, 1),
            "100000-100005": ("100000-100005", "100000-100005", 6),
        }
        for value, (submitted, remaining, count) in taken.items():
            record = self.pbs.record(self.pbs.qsub("-J", value, "-h", "--", "/bin/true"))
            found = (record["array_indices_submitted"], record["array_indices_remaining"])
            self.assertEqual(found, (submitted, remaining))
            self.assertEqual(record["array_state_count"], f"Queued:{count} Running:0 Exiting:0 Expired:0")

    def test_limits_count_elements_and_use_up_a_number(self) -> None:
        self.pbs.config(max_array_size=20, max_queued=50)
        self.assertEqual(self.pbs.qsub("-J", "1000-1019", "-h", "--", "/bin/true"), "0[].pbshead")
        ran = self.pbs.call("qsub", "-J", "0-20", "-h", "--", "/bin/true")
        self.assertEqual(ran, (3, "", "qsub: Array job exceeds server or queue size limit\n"))
        self.assertEqual(self.pbs.qsub("-J", "0-19", "-h", "--", "/bin/true"), "2[].pbshead")
        ran = self.pbs.call("qsub", "-J", "0-19", "-h", "--", "/bin/true")
        self.assertEqual(ran, (38, "", "qsub: would exceed complex's per-user limit\n"))
        self.assertEqual(self.pbs.qsub("-h", "--", "/bin/true"), "4.pbshead")

    def test_a_throttle_lets_so_many_run_and_zero_lets_none(self) -> None:
        array = self.pbs.shell("sleep 60", "-J", "0-5%2")
        self.pbs.in_state(array, "B")
        until("two run", lambda: "Running:2" in self.pbs.record(array)["array_state_count"])
        never = self.pbs.shell("true", "-J", "0-5%0")
        comment = "Not Running: Number of concurrent running subjobs limit reached"
        until("it says why", lambda: self.pbs.record(never).get("comment") == comment)
        self.assertEqual(self.pbs.record(array)["array_state_count"], "Queued:4 Running:2 Exiting:0 Expired:0")
        self.assertEqual(self.pbs.record(array)["max_run_subjobs"], 2)

    def test_before_22_05_there_is_no_throttle_and_all_elements_count(self) -> None:
        self.pbs.config(version="20.0.1")
        self.assertEqual(self.pbs.call("qsub", "-J", "0-9%2", "--", "/bin/true").code, 2)
        array = self.last("test $PBS_ARRAY_INDEX != 2")
        self.go_last(array)
        self.assertEqual(self.pbs.ended(array)["Exit_status"], 1)

    def test_an_array_cannot_be_no_rerunnable_one(self) -> None:
        ran = self.pbs.call("qsub", "-r", "n", "-J", "0-3", "--", "/bin/true")
        self.assertEqual((ran.code, ran.err.splitlines()[0]), (2, "qsub:  cannot submit non-rerunable Array Job"))


class Traps(Case):
    """What must not be believed."""

    def test_1_the_last_element_to_end_decides_the_exit_status_of_the_array(self) -> None:
        array = self.last("test $PBS_ARRAY_INDEX != 1 || exit 7")
        self.go_last(array)
        ended = self.pbs.ended(array)
        self.assertEqual((ended["Exit_status"], ended["substate"]), (0, 93))
        self.assertTrue(ended["comment"].endswith(" and failed"), ended["comment"])
        self.assertEqual(self.pbs.record("0[1].pbshead")["Exit_status"], 7)

    def test_1_a_last_element_killed_by_walltime_counts_as_nothing(self) -> None:
        array = self.pbs.shell("test $PBS_ARRAY_INDEX != 1 || sleep 60", "-J", "0-2", "-l", "walltime=1")
        good = self.pbs.shell("true", "-W", f"depend=afterok:{array}")
        bad = self.pbs.shell("true", "-W", f"depend=afternotok:{array}")
        ended = self.pbs.ended(array)
        self.assertEqual((ended["Exit_status"], ended["substate"]), (0, 93))
        self.assertEqual(self.pbs.record("0[1].pbshead")["Exit_status"], -29)
        self.assertNotIn("Exit_status", self.pbs.ended(good))
        self.assertEqual(self.pbs.ended(bad)["Exit_status"], 0)

    def test_2_the_counts_of_an_ended_array_are_zero(self) -> None:
        array = self.pbs.shell("test $PBS_ARRAY_INDEX != 3 || sleep 60", "-J", "0-3")
        until(
            "three have ended", lambda: "Running:1 Exiting:0 Expired:3" in self.pbs.record(array)["array_state_count"]
        )
        states = [one["job_state"] for one in self.pbs.records(array).values()]
        self.assertEqual(states, ["B", "X", "X", "X", "R"])
        self.assertEqual(self.pbs.call("qdel", "0[3]").code, 0)
        ended = self.pbs.ended(array)
        self.assertEqual(ended["array_state_count"], "Queued:0 Running:0 Exiting:0 Expired:0")
        self.assertEqual(ended["array_indices_remaining"], "-")

    def test_3_an_element_deleted_while_queued_ends_as_a_success(self) -> None:
        array = self.pbs.shell("true", "-h", "-J", "0-9")
        self.assertEqual(self.pbs.call("qdel", "0[3-5]").code, 0)
        self.assertEqual(self.pbs.call("qdel", "0[8]").code, 0)
        record = self.pbs.record(array)
        self.assertEqual(record["array_indices_remaining"], "0-2,6-7,9")
        self.assertEqual(record["array_state_count"], "Queued:6 Running:0 Exiting:0 Expired:4")
        self.pbs.call("qrls", array)
        self.assertEqual(self.pbs.ended(array)["array_state_count"], "Queued:0 Running:0 Exiting:0 Expired:4")
        deleted, ran = self.pbs.record("0[3].pbshead"), self.pbs.record("0[2].pbshead")
        found = (deleted["job_state"], deleted["substate"], deleted["Exit_status"], deleted["comment"])
        self.assertEqual(found, ("F", 92, 0, "Subjob finished"))
        self.assertEqual(ran["Exit_status"], 0)
        missing = {"exec_host", "exec_vnode", "run_count", "resources_used", "array_index", "array_id"}
        self.assertEqual(missing - set(deleted), missing)
        self.assertEqual(missing - set(ran), set())
        self.assertEqual(deleted["Output_Path"].rpartition(".")[2], "^array_index^")
        self.assertFalse(self.pbs.exists("STDIN.o0.3"))

    def test_4_deleting_a_running_array_rewrites_what_had_ended(self) -> None:
        code = "case $PBS_ARRAY_INDEX in 1) exit 0;; 2) exit 7;; 3) kill -9 $$;; *) sleep 60;; esac"
        self.pbs.write("s.sh", f"#!/bin/sh\n{code}\n")
        array = self.pbs.qsub("-J", "0-4", "s.sh")
        until("three have ended", lambda: "Expired:3" in self.pbs.record(array)["array_state_count"])
        before = short(self.pbs.records(array))
        self.assertEqual(
            before[1:],
            [
                ("0[0]", "R", 42, None),
                ("0[1]", "X", 92, 0),
                ("0[2]", "X", 93, 7),
                ("0[3]", "X", 93, 137),
                ("0[4]", "R", 42, None),
            ],
        )
        self.assertEqual(self.pbs.call("qdel", array).code, 0)
        self.assertEqual(self.pbs.ended(array)["array_state_count"], "Queued:0 Running:0 Exiting:0 Expired:3")
        records = self.pbs.records(array)
        self.assertEqual(
            short(records),
            [
                ("0[]", "F", 91, 1),
                ("0[0]", "F", 91, 271),
                ("0[1]", "F", 91, 1),
                ("0[2]", "F", 91, 1),
                ("0[3]", "F", 91, 1),
                ("0[4]", "F", 91, 271),
            ],
        )
        self.assertEqual(records["0[1].pbshead"]["comment"], "Subjob finished")
        self.assertNotIn("resources_used", records["0[1].pbshead"])

    def test_5_without_history_ended_elements_show_the_array(self) -> None:
        self.pbs.config(history=False)
        array = self.last("exit $PBS_ARRAY_INDEX")

        def counts() -> str:
            found = self.pbs.call("qstat", "-f", array).out
            return next((line for line in found.splitlines() if "array_state_count" in line), "")

        until("three have ended", lambda: "Expired:3" in counts())
        shown = self.pbs.call("qstat", "-t", "-f", array).out
        # Each of them what the last of them to end made of the array; the one that runs has none.
        ends = [line.split(" = ")[1] for line in shown.splitlines() if "Exit_status" in line]
        self.assertEqual((len(ends), len(set(ends))), (4, 1))
        self.go()
        plain = self.pbs.shell("true")
        until("it has ended", lambda: self.pbs.call("qstat", plain).code == 153)
        ran = self.pbs.call("qstat", "-x", plain)
        self.assertEqual(ran, (0, "", f"qstat: PBS is not configured to maintain job history {plain}\n"))
        self.assertEqual(self.pbs.call("qstat", "-x").err, "qstat: PBS is not configured to maintain job history \n")

    def test_6_queued_elements_are_made_up_from_the_array(self) -> None:
        self.pbs.shell("true", "-h", "-J", "0-3", "-o", "x.^array_index^")
        record = self.pbs.record("0[2].pbshead")
        self.assertEqual((record["job_state"], record["Hold_Types"]), ("Q", "u"))
        self.assertEqual(record["Output_Path"], f"localhost:{self.pbs.work}/x.^array_index^")
        self.assertNotIn("array_index", record)
        self.assertEqual(self.pbs.record("0[].pbshead")["job_state"], "H")

    def test_7_a_job_removed_by_a_dependency_says_nothing(self) -> None:
        first = self.pbs.shell("exit 3")
        second = self.pbs.shell("true", "-W", f"depend=afterok:{first}")
        ended = self.pbs.ended(second)
        found = (ended["substate"], ended["Hold_Types"], ended["depend"])
        self.assertEqual(found, (92, "s", f"afterok:{first}@pbshead"))
        self.assertEqual({"Exit_status", "stime", "comment", "exec_host"} & set(ended), set())


class Ends(Case):
    """Every way of ending a job."""

    def test_qdel_of_a_running_job(self) -> None:
        self.pbs.write("s.sh", 'cd $PBS_O_WORKDIR; trap "echo TERM; exit 0" TERM; : >begun; sleep 60 & wait\n')
        job = self.pbs.qsub("s.sh")
        self.pbs.has("begun")
        self.pbs.call("qdel", job)
        ended = self.pbs.ended(job)
        self.assertEqual((ended["Exit_status"], ended["substate"]), (271, 91))
        self.assertEqual(self.pbs.read("s.sh.o0"), "TERM\n")
        self.assertEqual(self.pbs.call("qdel", job), (35, "", f"qdel: Job has finished {job}\n"))
        self.assertEqual(self.pbs.call("qdel", "99"), (153, "", "qdel: Unknown Job Id 99.pbshead\n"))

    def test_the_walltime_ends_a_session_but_not_what_left_it(self) -> None:
        code = "setsid sleep 600 & echo $! >outside; sleep 600 & echo $! >inside; wait"
        self.pbs.write("s.sh", f"cd $PBS_O_WORKDIR; trap 'echo TERM; exit 5' TERM; {code}\n")
        job = self.pbs.qsub("-l", "walltime=1", "-W", "umask=022", "s.sh")
        ended = self.pbs.ended(job)
        self.assertEqual((ended["Exit_status"], ended["substate"]), (-29, 93))
        self.assertTrue(ended["comment"].endswith(" and exceeded resource walltime"), ended["comment"])
        self.assertEqual(self.pbs.read("s.sh.o0"), "TERM\n")
        self.assertEqual(self.pbs.read("s.sh.e0"), "=>> PBS: job killed: walltime 1 exceeded limit 1\n")
        self.assertFalse(os.path.exists(f"/proc/{self.pbs.read('inside').strip()}"))
        self.assertTrue(os.path.exists(f"/proc/{self.pbs.read('outside').strip()}"))
        self.assertEqual(os.stat(os.path.join(self.pbs.work, "s.sh.o0")).st_mode & 0o777, 0o644)

    def test_what_a_script_leaves_in_its_session_ends_with_it(self) -> None:
        self.pbs.write("s.sh", "sleep 600 & echo $! >$PBS_O_WORKDIR/left\n")
        job = self.pbs.qsub("s.sh")
        self.assertEqual(self.pbs.ended(job)["Exit_status"], 0)
        self.assertFalse(os.path.exists(f"/proc/{self.pbs.read('left').strip()}"))

    def test_only_an_operator_reruns(self) -> None:
        code = "cd $PBS_O_WORKDIR; echo run $PBS_JOBID | tee -a ran; test $(wc -l <ran) = 2 || sleep 60"
        self.pbs.write("s.sh", code + "\n")
        job = self.pbs.qsub("s.sh")
        self.pbs.has("ran")
        self.assertEqual(self.pbs.call("qrerun", job), (159, "", f"qrerun: Unauthorized Request  {job}\n"))
        self.assertEqual(self.pbs.call("qrerun", job, TEST_PBS_OPERATOR="1"), (0, "", ""))
        ended = self.pbs.ended(job)
        self.assertEqual((ended["Exit_status"], ended["run_count"]), (0, 2))
        self.assertEqual(self.pbs.read("ran"), f"run {job}\n" * 2)
        self.assertEqual(self.pbs.read("s.sh.o0"), f"run {job}\n" * 2)

    def test_a_signal_kills_the_login_shell_although_the_script_traps_it(self) -> None:
        self.pbs.write("s.sh", 'cd $PBS_O_WORKDIR; trap "echo USR1" USR1; : >begun; while :; do sleep 0.02; done\n')
        job = self.pbs.qsub("s.sh")
        self.pbs.has("begun")
        self.assertEqual(self.pbs.call("qsig", "-s", "USR1", job), (0, "", ""))
        self.assertEqual(self.pbs.ended(job)["Exit_status"], 256 + signal.SIGUSR1)
        self.assertEqual(self.pbs.call("qsig", "-s", "USR1", job).code, 35)

    def test_holds(self) -> None:
        job = self.pbs.shell("true", "-h", "-J", "0-1")
        self.assertEqual((self.pbs.record(job)["job_state"], self.pbs.record(job)["substate"]), ("H", 20))
        self.assertEqual(self.pbs.call("qrls", "0[1]"), (156, "", "qrls: Invalid request 0[1].pbshead\n"))
        self.assertEqual(self.pbs.call("qhold", "0[1]").code, 156)
        self.assertEqual(self.pbs.call("qrls", job).code, 0)
        self.assertEqual(self.pbs.ended(job)["Exit_status"], 0)

    def test_nothing_outlives_the_server(self) -> None:
        self.pbs.write(
            "s.sh", "cd $PBS_O_WORKDIR; trap '' TERM HUP; setsid sleep 600 & echo $! >a; echo $$ >b; wait; sleep 600\n"
        )
        self.pbs.qsub("s.sh")
        pids = [self.pbs.written(name) for name in "ab"]
        assert self.pbs.process.stdin is not None
        self.pbs.process.stdin.close()
        self.pbs.process.wait(60)
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid.strip()}"))
        ran = self.pbs.call("qstat")
        self.assertEqual(ran, (255, "", "Connection refused\nqstat: cannot connect to server pbshead (errno=15010)\n"))


class Syntax(unittest.TestCase):
    """The clients and the server parse with the oldest Python that is promised."""

    def test_every_file_is_python_3_8(self) -> None:
        import ast

        here = os.path.dirname(os.path.abspath(__file__))
        listed = subprocess.run(["find", here, "-type", "f", "!", "-name", "*.pyc"], stdout=subprocess.PIPE, check=True)
        for path in listed.stdout.decode().split():
            with open(path, encoding="utf-8") as file:
                ast.parse(file.read(), path, feature_version=(3, 8))


if __name__ == "__main__":
    unittest.main()
