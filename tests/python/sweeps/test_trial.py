"""What a program asks hpcsweep of its trial: as a command of a plan, and by hand, where there is none."""

import ast
import os
import signal
import sys
import unittest

from world import MODULE, World

PLAN = """
version = 1
[sweep]
name = "s"
[run]
command = ["%s", "program.py"]
%s
[grid]
lr = [0.5, inf]
opt.name = ["adam"]
"""

PROGRAM_OF_TRIAL = """
import os
import hpcsweep

params = hpcsweep.params({"lr": 0.25, "opt": {"name": "sgd"}})
for step in range(2):
    hpcsweep.report(step=step, loss=params["lr"] / (step + 1))
folder = hpcsweep.checkpoint_dir()
with open(os.path.join(folder, "last"), "a") as file:
    file.write("x")
print(params, os.path.relpath(folder), hpcsweep.should_stop())
hpcsweep.result({"name": params["opt"]["name"]})
"""


class Trial(World):
    def test_a_command_of_a_plan(self):
        """The same program as trial and by hand: each call does what it says, or no harm."""
        self.write("program.py", PROGRAM_OF_TRIAL)
        self.write("plan.toml", PLAN % (sys.executable, ""))
        self.call("submit", "plan.toml", "--local", "--quiet")
        said = self.call("logs", "1", "results/s")
        self.assertIn("{'lr': inf, 'opt': {'name': 'adam'}} results/s/work/000/1/checkpoint False", said)
        first, second = self.records("results/s")
        metrics = {"step": 1, "loss": 0.25, "loss.min": 0.25, "loss.max": 0.5, "name": "adam"}
        self.assertEqual((first["result"], first["metrics"]), ({"name": "adam"}, metrics))
        self.assertEqual(second["metrics"]["loss"], "inf")
        # Python reads these sweeps, whichever program ran them.
        self.write("read.py", "import hpcsweep; s = hpcsweep.Sweep('s'); print(s.best('loss', mode='max').params)")
        self.assertEqual(self.run_script("read.py").out, "{'lr': inf, 'opt': {'name': 'adam'}}\n")
        ran = self.run_script("program.py")
        self.assertEqual((ran.code, ran.err), (0, ""))
        self.assertEqual(ran.out, "{'lr': 0.25, 'opt': {'name': 'sgd'}} checkpoint False\n")
        left = [".local", "checkpoint", "plan.toml", "program.py", "read.py", "results"]
        self.assertEqual(sorted(os.listdir(str(self.folder))), left)

    def test_no_parameters_by_hand(self):
        """Without a default there are none."""
        self.assertEqual(self.python("import hpcsweep; print(hpcsweep.params())").out, "{}\n")

    def test_should_stop(self):
        """SIGTERM is heard by who asks, and goes on ending who does not."""
        text = "import hpcsweep, time\n%s\nprint('begun', flush=True)\nwhile not %s: time.sleep(0.01)\nprint('saved')\n"
        for first, asks, code, out in [
            ("hpcsweep.should_stop()", "hpcsweep.should_stop()", 0, "saved\n"),
            ("", "False", -signal.SIGTERM, ""),
        ]:
            self.write("program.py", text % (first, asks))
            started = self.start("program.py")
            self.assertEqual(started.stdout.readline(), "begun\n")
            started.send_signal(signal.SIGTERM)
            ran = self.end(started)
            self.assertEqual((ran.code, ran.out), (code, out), str(ran))

    def test_a_fork_of_a_trial(self):
        """It may ask; only the trial's own process may say."""
        ran = self.python(
            """
import hpcsweep, multiprocessing

def part(i):
    assert hpcsweep.params() == {"x": 1} and not hpcsweep.should_stop()
    try:
        hpcsweep.report(i=i)
    except RuntimeError as e:
        return str(e)

def f(x):
    for i in range(20):
        # Which ends its processes with SIGTERM.
        with multiprocessing.get_context("fork").Pool(2) as pool:
            said = pool.map(part, range(2))
        hpcsweep.should_stop()
    return said

print(hpcsweep.Sweep("s", quiet=True).grid(x=[1]).run(f)[0].value[1])
"""
        )
        words = "only the process that runs the trial may say something of it: this is a fork of it\n"
        self.assertEqual(ran.out, words)

    def test_a_walltime(self):
        """A function that asks is told when its time is over; a result counts that comes soon after."""
        ran = self.python(
            """
import hpcsweep, time
def f(x):
    while not hpcsweep.should_stop():
        time.sleep(0.01)
    if x == "late":
        raise hpcsweep.Interrupted
    return x
for processes in (1, 2):
    sweep = hpcsweep.Sweep("s%d" % processes, settings='[resources]\\nwalltime = "1s"', quiet=True)
    sweep.grid(x=["late", "in time"])
    errors = []
    print([(r.state, r.value) for r in sweep.run(f, processes=processes, on_error=errors.append)], len(errors))
"""
        )
        self.assertEqual(ran.out, "[('timeout', None), ('done', 'in time')] 1\n" * 2)


class Module(unittest.TestCase):
    def test_it_is_python_3_8(self):
        """All of the module, and nothing but the standard library, torch and numpy, the last two not at import."""
        words = """argparse array ast contextlib ctypes dataclasses datetime functools importlib inspect io itertools json keyword math mmap os pathlib queue
            random re resource runpy select shutil signal socket struct subprocess sys tempfile threading time traceback typing
            multiprocessing warnings"""
        allowed = set(words.split())
        for path in sorted((MODULE / "hpcsweep").glob("*.py")):
            tree = ast.parse(path.read_text(), str(path), feature_version=(3, 8))
            for node in ast.walk(tree):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                for name in names:
                    self.assertIn(name.split(".")[0], allowed | {"torch", "numpy"}, str(path))

    def test_names(self):
        """What the module says that it has."""
        import hpcsweep

        for name in hpcsweep.__all__:
            self.assertTrue(hasattr(hpcsweep, name), name)
        self.assertFalse(hasattr(hpcsweep, "Swep"))


if __name__ == "__main__":
    unittest.main()
