"""Functions whose call runs nothing of them, results that say nothing, and scripts that are started as modules."""

import unittest

from world import World

HEAD = "import asyncio, functools, hpcsweep\nsweep = hpcsweep.Sweep('results/s', quiet=True).grid(x=[1, 2])\n"


class Lazy(World):
    def test_a_function_whose_call_runs_nothing_is_refused_before_anything_is_planned(self):
        for text in [
            "async def f(x):\n    return x",
            "def f(x):\n    yield x",
            "async def f(x):\n    yield x",
            "async def g(y, x):\n    return x\nf = functools.partial(g, 1)",
            "class F:\n    async def __call__(self, x):\n        return x\nf = F()",
        ]:
            for call in ("run(f)", "submit('local', f)"):
                ran = self.python(HEAD + text + "\nsweep." + call, code=1)
                self.assertIn("function: a call runs nothing of it", ran.err)
                self.assertFalse((self.folder / "results").exists(), text)

    def test_a_result_that_has_not_run_or_says_nothing_is_none(self):
        for text, words in [
            ("async def g():\n    pass\ndef f(x): return g()", "a `coroutine`, which has not run"),
            ("def f(x): return (i for i in range(x))", "<generator object"),
            ("def f(x): return map(abs, [x])", "<map object at"),
            ("def f(x): return {'loss': [object()]}", "<object object at"),
        ]:
            ran = self.python(HEAD + text + "\nprint([(r.state, r.error) for r in sweep.run(f, retry=True)])")
            self.assertEqual(ran.out.count("('failed', "), 2, ran.out)
            self.assertIn(words, ran.out)
        ran = self.python(HEAD + "print([r.value for r in sweep.run(lambda x: {3 + 4j: 2 ** 70}, retry=True)])")
        self.assertIn("1180591620717411303424", ran.out)

    def test_all_names_without_torch(self):
        self.assertEqual(self.python("import sys\nfrom hpcsweep import *\nprint('torch' in sys.modules, Sweep)").out[:5], "False")


SCRIPT = """
from .model import loss
import hpcsweep
def fit(lr):
    return loss(lr)
if __name__ == "__main__":
    sweep = hpcsweep.Sweep("results/m", quiet=True).grid(lr=[0.25, 0.5])
    print([record.value for record in sweep.submit("local", %s).wait(timeout=100)])
"""


class Modules(World):
    def test_jobs_of_a_script_that_was_started_as_a_module_import_it_as_that(self):
        (self.folder / "proj").mkdir()
        self.write("proj/__init__.py", "")
        self.write("proj/model.py", "def loss(lr):\n    return lr * 2\n")
        for number, function in enumerate(["fit", "lambda lr: loss(lr)"]):
            self.write("proj/sweep.py", (SCRIPT % function).replace("results/m", "results/m%d" % number))
            ran = self.run_script("-m", "proj.sweep")
            self.assertEqual((ran.code, ran.out), (0, "[0.5, 1.0]\n"), str(ran))


if __name__ == "__main__":
    unittest.main()
