"""Sweeps of functions that are submitted: from Python and by the program, on this machine."""

import json
import unittest

from world import NOTE, World

FIT = (
    NOTE
    + """
import hpcsweep, sys

def fit(x, y=0):
    note("ran", x, y, *sys.argv[1:])
    hpcsweep.report(loss=x)
    print("fit of", x)
    if x == 13:
        raise ValueError("unlucky")
    return x + y

if __name__ == "__main__":
    note("main")
    sweep = hpcsweep.Sweep("results/fit", quiet=True, function=fit).grid(x=[1, 2], y=[0, 10])
    submission = sweep.submit("local", workers=2, walltime="1h")
    print([record.value for record in submission.wait(60)], submission.jobs, submission.done())
"""
)

# No function of it can be found by a name, nor its values in the plan.
ODD = (
    NOTE
    + """
import hpcsweep, sys

def main():
    class Model:
        def __init__(self, n): self.n = n
        def __repr__(self): return "Model(%d)" % self.n
        def __eq__(self, other): return self.n == other.n

    note("main", *sys.argv[1:])
    sweep = hpcsweep.Sweep("results/odd", quiet=True).grid([Model(1), Model(2)], [None, "a"])
    print([r.value for r in sweep.run(lambda model, y: [model.n, y])])

main()
note("after")
"""
)


class Python(World):
    """`Sweep.submit`."""

    def test_a_function_that_has_a_name(self):
        """The job imports the script: what stands under __main__ is not run again. Again, nothing is left to do."""
        self.write("fit.py", FIT)
        for _ in range(2):
            ran = self.run_script("fit.py", "--flag")
            self.assertEqual((ran.code, ran.out), (0, "[1, 11, 2, 12] [] True\n"), str(ran))
        ran = sorted(self.lines("ran"))
        self.assertEqual(ran, ["1 0 --flag", "1 10 --flag", "2 0 --flag", "2 10 --flag"])
        self.assertEqual(self.lines("main"), ["", ""])
        # A run of the script here leaves in the plan what jobs start.
        self.write("fit.py", FIT.replace("x=[1, 2]", "x=[1, 3]").replace("submission = ", "sweep.run(); sys.exit() #"))
        self.run_script("fit.py")
        plan = (self.folder / "results/fit.toml").read_text()
        self.assertIn("\nprogram = ", plan)
        self.assertIn("x = [1, 3]", plan)

    def test_a_function_of_a_module_and_points(self):
        """Found by module and name; chains, uneven points, two processes."""
        self.write("model.py", NOTE + "def fit(x, y=5):\n    note('ran', x)\n    return x * y\n")
        ran = self.python(
            """
import hpcsweep, model
rows = [{"x": 3, "task_id": "a"}, {"x": 1, "y": 2, "task_id": "a"}, {"x": 2}]
sweep = hpcsweep.Sweep("s", quiet=True).points(rows)
print([r.value for r in sweep.submit("local", model.fit, processes=2).wait(60)])
positional = hpcsweep.Sweep("p", quiet=True).points([(3, 4), (5,)])
print([r.value for r in positional.submit("local", model.fit).wait(60)])
"""
        )
        self.assertEqual(ran.out, "[15, 2, 10]\n[12, 25]\n")
        chain = [line for line in self.lines("ran")[:3] if line != "2"]
        self.assertEqual(chain, ["3", "1"])

    def test_a_module_beside_a_prompt(self):
        """Prompts and notebooks have the current folder as an empty entry of `sys.path`."""
        self.write("model.py", "def fit(x):\n    return 2 * x\n")
        text = "import hpcsweep, model\nsweep = hpcsweep.Sweep('s', quiet=True).grid(x=[1, 2])\n"
        ran = self.run_script("-c", text + "print([r.value for r in sweep.submit('local', model.fit).wait(60)])")
        self.assertEqual(ran.out, "[2, 4]\n", str(ran))

    def test_a_job_gets_the_values_that_were_listed(self):
        """Also those of which the plan holds another: the job then runs the script again up to its sweep."""
        self.write(
            "fit.py",
            """
import hpcsweep

def fit(x):
    return repr(x)

if __name__ == "__main__":
    sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[(1, 2), {"a": (3,)}, [4], 0.5, float("inf"), "nan"])
    print([record.value for record in sweep.submit("local", fit, processes=2).wait(60)])
""",
        )
        ran = self.run_script("fit.py")
        self.assertEqual(ran.out, "['(1, 2)', \"{'a': (3,)}\", '[4]', '0.5', inf, \"'nan'\"]\n", str(ran))
        self.write("model.py", "def fit(x):\n    return x\n")
        prompt = "import hpcsweep, model\nhpcsweep.Sweep('n').grid(x=[1, (1, 2)]).submit('local', model.fit)\n"
        ran = self.run_script("-c", "exec(%r)" % prompt)
        self.assertIn("a job knows the values of the plan alone, which cannot hold (1, 2) as it is", ran.err)

    def test_what_fails(self):
        """A failed trial is a record; jobs that cannot begin are an error that names their log; so is a notebook."""
        self.write("fit.py", FIT.replace("x=[1, 2]", "x=[13, 2]"))
        ran = self.run_script("fit.py")
        self.assertEqual((ran.code, ran.out), (0, "[None, None, 2, 12] [] True\n"), str(ran))
        ran = self.python(
            """
import hpcsweep, os, sys
def f(x):
    return x
if os.environ.get("HPCSWEEP_SERVE"):
    sys.exit(3)
sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[1])
try:
    sweep.submit("local", f).wait(60)
except hpcsweep.SweepError as e:
    print(str(e).replace(os.getcwd(), "."))
for target, more in (("moon", {}), ("slurm", {"workers": 0}), ("slurm", {"gpu_share": 0})):
    try:
        sweep.submit(target, f, **more)
    except ValueError as e:
        print(e)
"""
        )
        self.assertEqual(
            ran.out,
            """the jobs have ended, and 1 trials are left
hint: ./results/s.log says why; submit again
target must be one of 'auto', 'slurm', 'pbs', 'local', not 'moon'
workers must be a whole number of at least 1, not 0
gpu_share must be a whole number of at least 1, not 0
""",
        )
        prompt = "import hpcsweep\nf = lambda x: x\nhpcsweep.Sweep('n').grid(x=[1]).submit('local', f)\n"
        ran = self.run_script("-c", "exec(%r)" % prompt)
        self.assertIn("a job cannot find the function `<lambda>`: it is of a notebook or a prompt", ran.err)


class Program(World):
    """`hpcsweep plan`, `submit` and `submit --smoke` of a script."""

    def test_a_script_as_a_plan(self):
        """plan and --smoke leave nothing, submit --local runs all, as often as it is called what is missing."""
        self.write("odd.py", ODD)
        said = self.call("plan", "odd.py", "--json", "--", "-v")
        self.assertEqual(json.loads(said)["trials"][0]["params"], {"arg0": "Model(1)", "arg1": "None"})
        self.assertIn("1 pilot", self.call("submit", "odd.py", "--slurm", "--dry-run", "--workers", "4", "--slots", "4"))
        self.call("submit", "odd.py", "--smoke", "3")
        self.assertFalse((self.folder / "results").exists())
        self.assertEqual(self.lines("main"), ["-v", "", "", ""])
        self.call("submit", "odd.py", "--local", "-j", "2", "--", "-v")
        values = [record["result"] for record in self.records("results/odd")]
        self.assertEqual(values, [[1, None], [1, "a"], [2, None], [2, "a"]])
        # In the first, and in both processes of the job, which are forks from before it; none comes to the line after the sweep.
        self.assertEqual(self.lines("main")[4:], ["-v", "-v", "-v"])
        self.assertFalse((self.folder / "after").exists())
        # The plan names what agents start, on whichever host they are started.
        self.call("submit", "results/odd.toml", "--local")
        self.call("worker", "--pull", "results/odd")
        ran = self.run_script("odd.py")
        self.assertEqual(ran.out, "[[1, None], [1, 'a'], [2, None], [2, 'a']]\n", str(ran))

    def test_scripts_that_are_none(self):
        """Without a sweep, with an error, not there; arguments for a plan."""
        self.write("none.py", "print('nothing')")
        self.write("bad.py", "1 / 0")
        self.write("plan.toml", "")
        for place, words in (
            (["none.py"], "error: `none.py` has no sweep"),
            (["bad.py"], "error: `bad.py` ended with exit code 1 before it came to a sweep"),
            (["plan.toml", "--", "x"], "error: arguments after `--` are those of a Python script"),
        ):
            for verb in ("plan", "submit"):
                self.assertIn(words, self.refused(verb, *place))

    def test_a_failure_is_the_exit_code(self):
        """As of any other sweep."""
        self.write("fit.py", FIT.replace("x=[1, 2]", "x=[13, 2]"))
        ran = self._called(["submit", "fit.py", "--smoke", "0"])
        self.assertEqual((ran.returncode, ran.stdout), (1, "fit of 13\n"), ran.stderr)
        self.assertRegex(ran.stderr, r"\Ametrics: loss=13\ntrial 0: failed in .* s: ValueError: .*\n\Z")
        ran = self._called(["submit", "fit.py", "--smoke", "2"])
        self.assertEqual((ran.returncode, ran.stdout), (0, "fit of 2\n"), ran.stderr)
        self.assertRegex(ran.stderr, r"\Ametrics: loss=2 result=2\ntrial 2: done in .* s\n\Z")
        self.call("submit", "fit.py", "--local", code=1)
        self.assertEqual([r["state"] for r in self.records("results/fit")], ["failed"] * 2 + ["done"] * 2)
        # Its program is known: the command is there to be copied.
        again = "to run them again: hpcsweep submit results/fit.toml --local --retry\n"
        self.assertTrue(self.call("status", code=1).endswith(again))


if __name__ == "__main__":
    unittest.main()
