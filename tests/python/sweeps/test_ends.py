"""Functions that do not end by themselves: ended at their walltime or when a copy was faster, in a process of the pool
and in the caller's own; and tried again as often as the plan says."""

import unittest

from world import NOTE, World

HANGS = (
    NOTE
    + """
import sys, time
import hpcsweep

def f(i):
    note("calls", i)
    if i == 1:
        # Nothing that asks whether to stop.
        if sys.argv[2] == "sleeps":
            time.sleep(1000)
        while True:
            pass
    return i

sweep = hpcsweep.Sweep("results/s", settings='[resources]\\nwalltime = "1s"', quiet=True).grid(i=list(range(4)))
print([(r.state, r.value) for r in sweep.run(f, processes=int(sys.argv[1]))])
"""
)

COPIES = (
    NOTE
    + """
import os, sys, time
import hpcsweep

def f(i):
    note("calls", i)
    if i == 0:
        try:
            os.mkdir("first")
        except FileExistsError:
            return "copy"
        while True:
            time.sleep(0.01)
    return i

settings = "[pull]\\nrepeatable = true"
sweep = hpcsweep.Sweep("results/s", settings=settings, quiet=True).grid(i=list(range(6)))
told = []
records = sweep.run(f, processes=int(sys.argv[1]), on_finish=lambda r: told.append(r.trial))
print([(r.state, r.value) for r in records], sorted(told))
"""
)


class Ends(World):
    def test_a_function_that_hangs_is_ended_at_its_walltime(self):
        """M4: it is a timeout, and the others are done; by a kill of the process, or an exception in the caller's."""
        expected = "[('done', 0), ('timeout', None), ('done', 2), ('done', 3)]\n"
        # At the same time: each waits for the ten seconds that a function may take to end by itself.
        folder, started = self.folder, []
        for processes, how in (("1", "sleeps"), ("1", "spins"), ("2", "spins")):
            self.folder = folder / (processes + how)
            self.folder.mkdir()
            self.write("fit.py", HANGS)
            started.append((self.folder, self.start("fit.py", processes, how)))
        for self.folder, process in started:
            ran = self.end(process)
            self.assertEqual((ran.code, ran.out), (0, expected), str(ran))
            self.assertEqual(sorted(self.lines("calls")), ["0", "1", "2", "3"])

    def test_a_copy_of_a_slow_call_wins(self):
        """M4: the slow one is ended, the copy's result is the trial's, and it is told of once."""
        values = "[('done', 'copy'), ('done', 1), ('done', 2), ('done', 3), ('done', 4), ('done', 5)]"
        self.write("fit.py", COPIES)
        ran = self.run_script("fit.py", "2")
        self.assertEqual((ran.code, ran.out), (0, values + " [0, 1, 2, 3, 4, 5]\n"), str(ran))
        self.assertEqual(sorted(self.lines("calls")), ["0", "0", "1", "2", "3", "4", "5"])

    def test_two_programs_of_one_process_copy_for_each_other(self):
        """M4: also where the slow call is in the caller's own process, which goes on."""
        self.write("fit.py", COPIES)
        both = [self.start("fit.py", "1") for _ in range(2)]
        values = "[('done', 'copy'), ('done', 1), ('done', 2), ('done', 3), ('done', 4), ('done', 5)]"
        ran = [self.end(process) for process in both]
        told = []
        for one in ran:
            self.assertEqual((one.code, one.out.split(" [")[0]), (0, values), str(one))
            told += eval("[" + one.out.split(" [")[1])
        self.assertEqual(sorted(told), [0, 1, 2, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
