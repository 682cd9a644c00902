"""`-W depend`: each row of what was tried on a real OpenPBS."""

from typing import Dict, List

from harness import Case

KINDS = ("afterok", "afternotok", "afterany")


class Dependencies(Case):
    """What runs, and what is deleted without a word."""

    def waiting(self, target: str, *kinds: str) -> Dict[str, str]:
        """A job for each kind of waiting for another."""
        return {kind: self.pbs.shell("true", "-W", f"depend={kind}:{target}") for kind in kinds or KINDS}

    def ran(self, jobs: Dict[str, str]) -> List[str]:
        """Those of them that ran; the others have nothing that says how they ended."""
        return [kind for kind, job in jobs.items() if "Exit_status" in self.pbs.ended(job)]

    def test_all_elements_well(self) -> None:
        array = self.gate("true", "-J", "0-3")
        jobs = self.waiting(array)
        shown = ",".join(f"before{kind[5:]}:{job}@pbshead" for kind, job in jobs.items())
        self.assertEqual(self.pbs.record(array)["depend"], shown)
        for kind, job in jobs.items():
            record = self.pbs.record(job)
            found = (record["job_state"], record["substate"], record["Hold_Types"], record["depend"])
            self.assertEqual(found, ("H", 22, "s", f"{kind}:{array}@pbshead"))
        self.go()
        self.assertEqual(self.ran(jobs), ["afterok", "afterany"])

    def test_an_early_element_failed(self) -> None:
        array = self.last("test $PBS_ARRAY_INDEX != 1")
        jobs = self.waiting(array)
        self.go_last(array)
        self.assertEqual(self.ran(jobs), ["afterok", "afterany"])

    def test_the_last_element_failed(self) -> None:
        array = self.last("test $PBS_ARRAY_INDEX != 3")
        jobs = self.waiting(array)
        self.go_last(array)
        self.assertEqual(self.ran(jobs), ["afternotok", "afterany"])

    def test_an_array_waits_for_the_whole_of_another(self) -> None:
        first = self.gate("echo first >>ran", "-J", "0-3")
        second = self.pbs.shell("cd $PBS_O_WORKDIR; echo second >>ran", "-J", "0-1", "-W", f"depend=afterany:{first}")
        states = [one["job_state"] for one in self.pbs.records(second).values()]
        self.assertEqual(states, ["H", "Q", "Q"])
        self.go()
        self.pbs.ended(second)
        self.assertEqual(self.pbs.read("ran"), "first\n" * 4 + "second\n" * 2)

    def test_an_array_that_can_never_run_is_deleted_whole(self) -> None:
        first = self.gate("exit 1")
        second = self.pbs.shell("true", "-J", "0-1", "-W", f"depend=afterok:{first}")
        self.go()
        ended = self.pbs.ended(second)
        self.assertEqual(
            (ended["substate"], ended["comment"], ended["array_indices_remaining"]), (92, "Subjob finished", "-")
        )
        self.assertEqual([one["job_state"] for one in self.pbs.records(second).values()], ["F", "F", "F"])

    def test_elements_and_unknown_kinds_are_refused_by_the_client(self) -> None:
        self.pbs.shell("true", "-h", "-J", "0-3")
        for value in ("afterok:0[1]", "afterok:0[1-2].pbshead", "aftercorr:0[]", "afterok"):
            ran = self.pbs.call("qsub", "-W", f"depend={value}", "--", "/bin/true")
            self.assertEqual((ran.code, ran.err.splitlines()[0]), (2, "qsub: illegal -W value"))

    def test_what_is_not_there_deletes_what_waits_for_it(self) -> None:
        array = self.pbs.shell("true", "-h", "-J", "0-3")
        for target in (array.replace("[]", ""), "99999"):
            self.assertEqual(self.ran(self.waiting(target)), [])

    def test_history_is_judged_at_once(self) -> None:
        bad, good = self.pbs.shell("exit 1"), self.pbs.shell("true")
        never = self.pbs.shell("true", "-h")
        self.pbs.call("qdel", never)
        for job in (bad, good, never):
            self.pbs.ended(job)
        self.assertEqual(self.ran(self.waiting(bad, *KINDS, "after")), ["afternotok", "afterany", "after"])
        self.assertEqual(self.ran(self.waiting(good)), ["afterok", "afterany"])
        self.assertEqual(self.ran(self.waiting(never)), ["afternotok", "afterany"])
        self.assertEqual(self.ran(self.waiting(good, "before")), [])

    def test_without_history_even_afterany_is_deleted(self) -> None:
        self.pbs.config(history=False)
        job = self.pbs.shell("true")
        self.pbs.shell("true", "-h")
        while self.pbs.call("qstat", job).code == 0:
            pass
        waiting = self.pbs.shell("true", "-W", f"depend=afterany:{job}")
        self.assertEqual(self.pbs.call("qstat", waiting).code, 153)

    def test_nothing_runs_behind_a_job_deleted_by_a_dependency(self) -> None:
        first = self.gate("exit 3")
        second = self.waiting(first, "afterok")["afterok"]
        third = self.waiting(second)
        self.go()
        self.assertEqual(self.ran(third), [])

    def test_a_running_job_that_is_deleted_failed(self) -> None:
        job = self.pbs.shell("sleep 60")
        self.pbs.in_state(job, "R")
        jobs = self.waiting(job)
        self.pbs.call("qdel", job)
        self.assertEqual(self.ran(jobs), ["afternotok", "afterany"])

    def test_so_did_a_held_array_that_is_deleted(self) -> None:
        array = self.pbs.shell("true", "-h", "-J", "0-3")
        jobs = self.waiting(array)
        self.pbs.call("qdel", array)
        self.assertEqual(self.ran(jobs), ["afternotok", "afterany"])
        ended = self.pbs.record(array)
        self.assertEqual((ended["substate"], ended["Hold_Types"]), (91, "u"))
        self.assertNotIn("Exit_status", ended)

    def test_after_waits_for_the_start(self) -> None:
        held = self.pbs.shell("sleep 60", "-h")
        after = self.waiting(held, "after")["after"]
        self.assertEqual(self.pbs.record(after)["job_state"], "H")
        self.pbs.call("qrls", held)
        self.assertEqual(self.pbs.ended(after)["Exit_status"], 0)
        self.assertEqual(self.pbs.record(held)["job_state"], "R")

    def test_runone_keeps_one(self) -> None:
        first = self.gate("true")
        self.pbs.in_state(first, "R")
        others = self.waiting(first, "runone", "runone")
        self.assertEqual([self.pbs.record(job)["job_state"] for job in others.values()], ["H"])
        self.go()
        self.assertEqual(self.ran(others), [])

    def test_on_counts(self) -> None:
        counting = self.pbs.shell("true", "-W", "depend=on:2")
        first = self.pbs.shell("true", "-W", f"depend=beforeok:{counting}")
        self.pbs.ended(first)
        self.assertEqual(self.pbs.record(counting)["job_state"], "H")
        self.pbs.shell("exit 1", "-W", f"depend=beforeany:{counting}")
        self.assertEqual(self.pbs.ended(counting)["Exit_status"], 0)

    def test_several_are_waited_for_together(self) -> None:
        good = self.pbs.shell("true", "-h")
        bad = self.gate("exit 1")
        both = self.pbs.shell("true", "-W", f"depend=afterok:{good}:{bad}")
        either = self.pbs.shell("true", "-W", f"depend=afterok:{good},afterany:{bad}", "-W", "umask=022")
        self.pbs.call("qrls", good)
        self.pbs.ended(good)
        self.go()
        self.assertEqual(self.ran({"both": both, "either": either}), ["either"])
        self.assertEqual(self.pbs.record(both)["depend"], f"afterok:{bad}@pbshead")

    def test_a_job_may_wait_for_itself_from_inside(self) -> None:
        self.pbs.write("again.sh", "cd $PBS_O_WORKDIR; qsub -W depend=afterany:$PBS_JOBID -N next -- /bin/true >id\n")
        self.pbs.qsub("again.sh")
        self.assertEqual(self.pbs.ended("1.pbshead")["Exit_status"], 0)

    def test_qalter_takes_away_what_a_job_waits_for(self) -> None:
        first = self.pbs.shell("true", "-h")
        second = self.pbs.shell("true", "-W", f"depend=afterany:{first}")
        third = self.pbs.shell("true", "-W", f"depend=afterany:{second}")
        ran = self.pbs.call("qalter", "-W", f"depend=beforeany:{third}@pbshead", second)
        self.assertEqual((ran.code, ran.err), (0, ""))
        self.assertEqual([self.pbs.ended(job)["Exit_status"] for job in (second, third)], [0, 0])
        self.assertEqual(self.pbs.record(first)["job_state"], "H")
        self.assertNotIn("depend", self.pbs.record(first))

    def test_and_with_it_what_waits_for_the_job(self) -> None:
        first = self.pbs.shell("true", "-h")
        second = self.pbs.shell("true", "-W", f"depend=afterany:{first}")
        third = self.pbs.shell("true", "-W", f"depend=afterany:{second}")
        self.pbs.call("qhold", second)
        # All dependencies are replaced, those of others too.
        self.pbs.call("qalter", "-W", "depend=", second)
        self.pbs.ended(third)
        self.assertEqual(self.pbs.record(second)["Hold_Types"], "u")

    def test_what_registers_between_release_and_history_waits_for_ever(self) -> None:
        for options in ((), ("-J", "0-1")):
            self.pbs.config(ends_late=600)
            first = self.gate("true", *options)
            early = self.waiting(first, "afterany")["afterany"]
            self.go()
            self.pbs.in_state(early, "E")
            late = self.waiting(first, "afterany")["afterany"]
            self.pbs.config(ends_late=0)
            self.pbs.ended(first)
            record = self.pbs.record(late)
            self.assertEqual((record["job_state"], record["depend"]), ("H", f"afterany:{first}@pbshead"))
            self.pbs.call("qalter", "-W", "depend=", late)
            self.assertEqual(self.pbs.ended(late)["Exit_status"], 0)
            self.pbs.call("rm", "go")

    def test_a_history_of_seconds_forgets(self) -> None:
        self.pbs.config(history_duration=0.2)
        job = self.pbs.shell("true")
        self.pbs.shell("true", "-h")
        while self.pbs.call("qstat", "-x", job).code == 0:
            pass
        waiting = self.pbs.shell("true", "-W", f"depend=afterany:{job}")
        # Deleted, and soon forgotten too.
        self.assertIn(self.pbs.call("qstat", waiting).code, (35, 153))

    def test_behind_a_routing_queue_dependents_take_the_places_of_their_heads(self) -> None:
        queues = {"route": {"route_destinations": ["small"]}, "small": {"max_queued": 2}}
        self.pbs.config(queues=queues, routes_dependents=True)
        first = self.gate("true")
        held = [self.pbs.shell("true", "-h") for _ in range(2)]
        waiting = [self.waiting(job, "afterany")["afterany"] for job in held]
        for job in held:
            self.pbs.call("qrls", job)
        self.go()
        self.pbs.ended(first)
        for job in waiting:
            self.pbs.in_state(job, "H")
        queues_of = [self.pbs.record(job)["queue"] for job in held + waiting]
        self.assertEqual(queues_of, ["route", "route", "small", "small"])
