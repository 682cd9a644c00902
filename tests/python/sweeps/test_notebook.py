"""Sweeps that are started from the cells of a notebook: by nbclient, in a real kernel."""

import json
import unittest

from world import World

try:
    import ipykernel
    import nbclient

    MISSING = not (ipykernel and nbclient)
except ImportError:
    MISSING = True

# Executes the cells of a file, and prints what each of them has printed.
PROGRAM = """
import json, nbclient, nbformat
with open("cells.json") as file:
    cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(file)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
said = []
for cell in notebook.cells:
    streams = [out for out in cell.outputs if out.output_type == "stream" and out.name == "stdout"]
    said.append("".join(out.text for out in streams))
print(json.dumps(said))
"""


@unittest.skipIf(MISSING, "nbclient and ipykernel are missing")
class Notebook(World):
    def cells(self, *cells):
        """What the cells print."""
        self.write("cells.json", json.dumps(cells))
        return json.loads(self.python(PROGRAM).out)

    def test_run_from_a_cell(self):
        """A function of a cell, with the state of the kernel, by one process and by two; the next cells see results."""
        said = self.cells(
            "import hpcsweep\nfactor = 10\ncalls = []",
            "def fit(x, y):\n    calls.append(x)\n    hpcsweep.report(loss=x)\n    return factor * x + y",
            "sweep = hpcsweep.Sweep('results/one', quiet=True).grid(x=[1, 2], y=[0, 5])\n"
            "print([r.value for r in sweep.run(fit)], calls)",
            "print([r.value for r in hpcsweep.Sweep('two', quiet=True).grid(x=[1, 2], y=[0, 5]).run(fit, processes=2)])",
            # Edited, and the same cells again: only what is new runs.
            "calls.clear()\nprint([r.value for r in sweep.grid(x=[1, 3], y=[0]).run(fit)], calls, sweep.best().params)",
            "sweep.results()",
        )
        self.assertEqual(
            said[2:5],
            ["[10, 15, 20, 25] [1, 1, 2, 2]\n", "[10, 15, 20, 25]\n", "[10, 30] [3] {'x': 1, 'y': 0}\n"],
        )
        self.assertEqual(len(self.records("results/two")), 4)

    def test_an_error_of_a_cell(self):
        """A trial that fails is a record; one that is interrupted is a KeyboardInterrupt, and the kernel lives."""
        said = self.cells(
            "import hpcsweep, os, signal\n"
            "def f(x):\n    if x == 1: raise ValueError('one')\n    if x == 2: os.kill(os.getpid(), signal.SIGINT)\n"
            "    return x\nsweep = hpcsweep.Sweep('s', quiet=True).grid(x=[0, 1])",
            "print([(r.state, r.error) for r in sweep.run(f)])",
            "try:\n    sweep.grid(x=[2]).run(f)\nexcept KeyboardInterrupt:\n    print('interrupted')",
            "print([r.value for r in sweep.grid(x=[3]).run(f)])",
        )
        self.assertRegex(said[1], r"\[\('done', None\), \('failed', .ValueError: one")
        self.assertEqual(said[2:], ["interrupted\n", "[3]\n"])

    def test_submit_from_a_cell(self):
        """A function of a file is found by jobs; that of a cell is not, which is said before anything is submitted."""
        said = self.cells(
            "%%writefile fit.py\nimport hpcsweep\ndef fit(x):\n    return 2 * x",
            "import hpcsweep, fit\nsweep = hpcsweep.Sweep('s', quiet=True).grid(x=[1, 2])\n"
            "print([r.value for r in sweep.submit('local', fit.fit, workers=2).wait(60)])",
            "try:\n    hpcsweep.Sweep('t').grid(x=[1]).submit('local', lambda x: x)\n"
            "except hpcsweep.SweepError as e:\n    print(e)",
        )
        self.assertEqual(said[1], "[2, 4]\n")
        self.assertIn("it is of a notebook or a prompt\nhint: write it into a file (`%%writefile fit.py`", said[2])
        self.assertFalse((self.folder / "results/t.toml").exists())


if __name__ == "__main__":
    unittest.main()
