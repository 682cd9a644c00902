"""Many starts of one script: all at the same moment, and again after kill -9 at any moment."""

import json
import os
import random
import signal
import time
import unittest

from world import NOTE, World, kill_session

SCRIPT = (
    NOTE
    + """
import sys, time
import hpcsweep

def f(a, b):
    note("log", "begin", sys.argv[1], a, b)
    time.sleep(0.005)
    note("log", "end", sys.argv[1], a, b)
    return {"sum": a + b}

if sys.argv[2] == "wait":
    # Until the pipe is closed, for all of them at once.
    sys.stdin.read()
# A machine with too much to do may let a process wait for longer than a short lease.
settings = "" if sys.argv[2] == "wait" else "[pull]\\nlease = 1"
sweep = hpcsweep.Sweep("results/s", settings=settings, quiet=True)
sweep.grid(a=list(range(20)), b=list(range(10)))
records = sweep.run(f, processes=int(sys.argv[3]))
assert [r.value for r in records] == [{"sum": a + b} for a in range(20) for b in range(10)], records
assert [r.params for r in records] == [{"a": a, "b": b} for a in range(20) for b in range(10)]
print(sweep.best("sum", mode="max").trial)
"""
)


class Starts(World):
    def test_24_at_once(self):
        """M11, M17: of a sweep that nobody has planned yet: nothing is lost, nothing is done twice, nobody crashes."""
        self.write("fit.py", SCRIPT)
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.folder = self.folder / str(processes)
                self.folder.mkdir()
                self.write("fit.py", SCRIPT)
                read, write = os.pipe()
                started = [
                    self.start("fit.py", str(i), "wait", str(processes), stdin=read) for i in range(24 // processes)
                ]
                os.close(read)
                os.close(write)
                for ran in map(self.end, started):
                    self.assertEqual((ran.code, ran.out, ran.err), (0, "199\n", ""), str(ran))
                ends = [line.split()[2:] for line in self.lines("log") if line.startswith("end")]
                self.assertEqual(sorted(ends), sorted([str(a), str(b)] for a in range(20) for b in range(10)))
                self.assertEqual(len(self.lines("log")), 400)
                self.assertEqual({record["attempt"] for record in self.records("results/s")}, {1})
                # A plan, and the sweep: no temporary file is left of the processes that came at the same
                # moment.
                self.assertEqual(sorted(os.listdir(str(self.folder / "results"))), ["s", "s.toml"])

    def test_killed_at_any_moment(self):
        """M21, M22: what was recorded stays and is never run again; what was running is; nothing is counted twice."""
        seed = random.randrange(2 ** 32)
        chance = random.Random(seed)
        self.write("fit.py", SCRIPT)
        # The trials that were done at each round.
        done = {}
        whole = 0.4
        for number in range(10):
            started = self.start("fit.py", str(number), "go", str(1 + number % 3))
            time.sleep(chance.uniform(0, whole))
            how = ("group", "session", "first")[number % 3]
            if how == "group":
                os.killpg(started.pid, signal.SIGKILL)
            elif how == "session":
                # As a machine that is gone: agents too.
                kill_session(started.pid)
            else:
                started.kill()
            _, err = started.communicate()
            if how == "first":
                # The others have gone in silence.
                self.assertEqual(err, "")
            if (self.folder / "results/s/sweep.json").exists():
                for record in self.records("results/s"):
                    if record["state"] == "done":
                        done.setdefault((record["params"]["a"], record["params"]["b"]), number)
        with self.subTest(seed=seed, done=len(done)):
            ran = self.run_script("fit.py", "last", "go", "2")
            self.assertEqual((ran.code, ran.out), (0, "199\n"), str(ran))
            begun = {}
            for line in self.lines("log"):
                word, number, a, b = line.split()
                if word == "begin":
                    begun.setdefault((int(a), int(b)), []).append(99 if number == "last" else int(number))
            self.assertEqual(len(begun), 200)
            for point, number in done.items():
                self.assertLessEqual(max(begun[point]), number, "trial %s was done in %d" % (point, number))
            records = self.records("results/s")
            self.assertEqual(sorted(r["trial"] for r in records), list(range(200)))
            self.assertEqual({r["state"] for r in records}, {"done"})

    def test_a_result_is_there_before_the_next_trial_begins(self):
        """M22: kill -9 of everything in the fourth of six trials: three results are readable."""
        self.write(
            "six.py",
            """
import hpcsweep, os, signal
def f(x):
    if x == 4:
        os.killpg(0, signal.SIGKILL)
    return x
hpcsweep.Sweep("s", quiet=True).grid(x=[1, 2, 3, 4, 5, 6]).run(f)
""",
        )
        ran = self.run_script("six.py")
        self.assertEqual(ran.code, -signal.SIGKILL)
        self.assertEqual([r["result"] for r in self.records("results/s")], [1, 2, 3, None, None, None])


if __name__ == "__main__":
    unittest.main()
