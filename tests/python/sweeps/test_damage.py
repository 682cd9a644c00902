"""Sweeps of functions whose files are damaged, and functions that go on where they were killed."""

import json
import unittest

from world import World

SWEEP = """
import json, os, random, subprocess, sys, warnings
import hpcsweep

def f(x):
    for step in range(2):
        hpcsweep.report(step=step, loss=x / (step + 1))
    return {"acc": x}

sweep = hpcsweep.Sweep("results/s", quiet=True).grid(x=[3.0, 1.0, 2.0])
"""

# With one file changed, Python and the program show what they showed before, or report damage.
DAMAGE = (
    SWEEP
    + """
sweep.run(f)
PROGRAM = os.environ["HPCSWEEP_BIN"]

def python():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            rows = [json.dumps(row, default=str) for row in sweep.results()]
            best = json.dumps(sweep.best("acc"), default=str)
        except hpcsweep.SweepError:
            return "error"
        except ValueError:
            # No trial is done any more, and that must have been reported.
            return "warning" if said else "nothing"
        return "warning" if said else [rows, best]

def program():
    args = [PROGRAM, "best", "results/s", "--metric", "acc", "--json"]
    ran = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ran.returncode in (0, 1, 2, 4), ran
    return "error" if ran.returncode else ran.stdout

good = python(), program()
assert good[0][1] == json.dumps(sweep.results()[1], default=str), good
files = [os.path.join(folder, name) for folder, _, names in os.walk("results/s") for name in names]
files = sorted(name for name in files if not name.endswith(".log") and "/work/" not in name)
dice = random.Random(int(sys.argv[1]))
silent = 0
for number in range(120):
    name = dice.choice(files)
    with open(name, "rb") as file:
        whole = file.read()
    if not whole:
        continue
    at = dice.randrange(len(whole))
    what = dice.choice(["flip", "cut", "line"])
    if what == "flip":
        changed = whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :]
    elif what == "cut":
        changed = whole[:at]
    else:
        # Cut off at the end of a line.
        changed = whole[: whole.rfind(b"\\n", 0, at) + 1]
    with open(name, "wb") as file:
        file.write(changed)
    seen = python(), program()
    with open(name, "wb") as file:
        file.write(whole)
    for then, now in zip(good, seen):
        assert now in ("error", "warning", then), (number, what, name, at, then, now)
    silent += seen == good
assert (python(), program()) == good
print(silent < 40)
"""
)

CURVE = """
import os, signal, sys
import hpcsweep

def f(x):
    # The first run is killed in step 3; the second begins again with step 2.
    run = 1 + os.path.exists("began-%s" % x)
    with open("began-%s" % x, "w"):
        pass
    for step in range(0 if run == 1 else 2, 6):
        hpcsweep.report(step=step, loss=100 * run + step)
        if run == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return x

sweep = hpcsweep.Sweep("results/s", quiet=True, settings="[pull]\\nlease = 1").grid(x=[1, 2])
records = sweep.run(f, processes=int(sys.argv[1]), attempts=2)
print([record.value for record in records])
"""


class Damage(World):
    def test_files_of_a_sweep(self):
        """Results and the best of them are those that were recorded, or damage is reported."""
        self.write("fit.py", DAMAGE)
        ran = self.run_script("fit.py", "7")
        self.assertEqual((ran.code, ran.out), (0, "True\n"), str(ran))


class Curves(World):
    def test_a_killed_function_that_goes_on_has_one_curve(self):
        """The later value of a step counts, whoever was killed: the script itself or a process of several."""
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.folder = self.folder / str(processes)
                self.folder.mkdir()
                self.write("fit.py", CURVE)
                for _ in range(6):
                    ran = self.run_script("fit.py", str(processes))
                    if ran.code == 0:
                        break
                self.assertEqual((ran.code, ran.out), (0, "[1, 2]\n"), str(ran))
                steps = self.call("collect", "--steps", "--format", "jsonl", "results/s").split("\n")
                steps = [json.loads(line) for line in steps if line]
                curve = [(0, 100), (1, 101), (2, 202), (3, 203), (4, 204), (5, 205)]
                for trial in (0, 1):
                    seen = sorted((row["step"], row["loss"]) for row in steps if row["trial"] == trial)
                    self.assertEqual(seen, curve)
                for record in self.records("results/s"):
                    metrics = {name: record["metrics"][name] for name in ("loss", "loss.min", "loss.max")}
                    self.assertEqual(metrics, {"loss": 205, "loss.min": 100, "loss.max": 205})


if __name__ == "__main__":
    unittest.main()
