"""Sweeps of a function in one process: the documented example, records, what fails, what is grown and resumed."""

import contextlib
import io
import json
import os
import pickle
import tempfile
import unittest
from pathlib import Path

from world import NOTE, PROGRAM, World

import hpcsweep

EXAMPLE = """
import hpcsweep

def fit(batch, layers, lr):
    return batch * layers * lr

sweep = hpcsweep.Sweep("results/fit")
sweep.grid(%s)
sweep.run(fit)
best = sweep.best(mode="max")
print(*best.params.values(), best.value)
print([record["value"] for record in sweep.results()])
"""


class Example(World):
    """Section 5.1 of what MultiRunner promises: 18 points, the best is (256, 2, 0.1) = 51.2."""

    def test_names_and_positions(self):
        """M2, M4, M20: named and positional calls give the same results, seen by the module and by the program."""
        values = [b * n * lr for b in (64, 128, 256) for n in (1, 2) for lr in (0.1, 0.01, 0.001)]
        for i, axes in enumerate(
            [
                "batch=[64, 128, 256], layers=[1, 2], lr=[0.1, 0.01, 0.001]",
                "[64, 128, 256], (1, 2), [0.1, 0.01, 0.001]",
            ]
        ):
            self.write("fit%d.py" % i, (EXAMPLE % axes).replace("results/fit", "results/fit%d" % i))
            ran = self.run_script("fit%d.py" % i)
            self.assertEqual(ran.out.splitlines(), ["256 2 0.1 51.2", repr(values)], str(ran))
            said = self.call("best", "results/fit%d" % i, "--metric", "result", "--max")
            self.assertIn("trial 15: result = 51.2", said)
            self.assertEqual([line["result"] for line in self.records("results/fit%d" % i)], values)

    def test_again_and_grown(self):
        """What is done is not run again; a changed grid brings what is new and keeps the rest, in its own order."""
        program = (
            NOTE
            + """
import hpcsweep, sys
def f(x, y=0):
    note("ran", x, y)
    return x + y
sweep = hpcsweep.Sweep("s", quiet=True)
sweep.grid(**eval(sys.argv[1]))
print([(r.params, r.value) for r in sweep.run(f)])
"""
        )
        self.write("p.py", program)
        said = []
        for axes in ("dict(x=[1, 2])", "dict(x=[1, 2])", "dict(x=[3, 2])", "dict(x=[2], y=[5])", "dict(x=[1, 2, 3])"):
            ran = self.run_script("p.py", axes)
            self.assertEqual((ran.code, ran.err), (0, ""))
            said.append(ran.out.strip())
        self.assertEqual(
            said,
            [
                "[({'x': 1}, 1), ({'x': 2}, 2)]",
                "[({'x': 1}, 1), ({'x': 2}, 2)]",
                "[({'x': 3}, 3), ({'x': 2}, 2)]",
                "[({'x': 2, 'y': 5}, 7)]",
                "[({'x': 1}, 1), ({'x': 2}, 2), ({'x': 3}, 3)]",
            ],
        )
        self.assertEqual(self.lines("ran"), ["1 0", "2 0", "3 0", "2 5"])
        # A name without a folder is one of the default root.
        self.assertEqual(len(self.records("results/s")), 4)


    def test_a_renamed_function(self):
        """The best of a sweep is the best of the function that its plan has, here and on the command line."""
        self.write(
            "p.py",
            """
import hpcsweep, sys
def old(x):
    return {"loss": x / 100}
def new(x):
    return {"loss": x}
sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[1, 2])
sweep.run(globals()[sys.argv[1]])
print(sweep.best("loss").value)
""",
        )

        def best(*more):
            ran = self._called(["best", "results/s", "--metric", "loss", "--min", *more])
            return ran.stdout.split("\n")[0], ran.stderr.strip()

        def left_out(other):
            return (
                "2 trials of `p:%s` are left out, of which 2 have a number for `loss`: "
                "hpcsweep best results/s --metric loss --min --function p:%s" % (other, other)
            )

        for name, value, trial, others in (
            ("old", "0.01", 0, ""), ("new", "1", 2, left_out("old")), ("old", "0.01", 0, left_out("new"))
        ):
            ran = self.run_script("p.py", name)
            self.assertEqual((ran.code, ran.out), (0, "{'loss': %s}\n" % value))
            self.assertEqual(best(), ("trial %d: loss = %s  (x=1)" % (trial, value), others))
        self.assertEqual(best("--function", "p:new")[0], "trial 2: loss = 1  (x=1)")
        wrong = "error: no trial is known to call `p:now`\nhint: did you mean `p:new`?"
        self.assertEqual(best("--function", "p:now"), ("", wrong))
        table = self._called(["collect", "results/s", "--format", "jsonl"]).stdout
        functions = [json.loads(line)["function"] for line in table.split("\n")[:-1]]
        self.assertEqual(functions, ["p:old"] * 2 + ["p:new"] * 2)
        shown = self._called(["status", "results/s", "--trials"]).stdout
        self.assertEqual([line.split()[2] for line in shown.split("\n")[-5:-1]], functions)

    def test_a_renamed_function_without_a_success(self):
        """What there is of the other function is named, and how the sweep is kept apart in Python's words."""
        self.write(
            "p.py",
            """
import hpcsweep, sys
def old(x):
    return {"loss": x}
def new(x):
    raise ValueError
hpcsweep.Sweep("s").grid(x=[1, 2]).run(globals()[sys.argv[1]])
""",
        )
        self.run_script("p.py", "old")
        ran = self.run_script("p.py", "new")
        self.assertIn("hint: to keep both apart, give this sweep another path: `hpcsweep.Sweep(PATH)`;", ran.err)
        best = self._called(["best", "results/s", "--metric", "loss", "--min"])
        self.assertEqual(
            best.stderr,
            "2 trials of `p:old` are left out, of which 2 have a number for `loss`: "
            "hpcsweep best results/s --metric loss --min --function p:old\n"
            "error: no finished trial has a number for `loss`\n"
            "hint: `hpcsweep status results/s` shows how the trials stand\n",
        )


class Here(World):
    """Sweeps of this process."""

    def setUp(self):
        super().setUp()
        before, folder = dict(os.environ), os.getcwd()

        def back():
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)

        self.addCleanup(back)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(str(self.folder))

    def sweep(self, *lists, **axes):
        return hpcsweep.Sweep("results/s", quiet=True).grid(*lists, **axes)

    def test_functions_of_any_kind(self):
        """J11: closures, lambdas, methods, partial functions, objects; the state of this process is theirs."""
        import functools

        seen = []

        def closure(x):
            seen.append(x)
            return -x

        class Model:
            def fit(self, x):
                return x * 10

            def __call__(self, x):
                return x * 100

        functions = [closure, lambda x: x + 1, Model().fit, Model(), functools.partial(closure), abs]
        values = []
        for i, function in enumerate(functions):
            sweep = hpcsweep.Sweep("results/s%d" % i, quiet=True).grid([1, 2])
            values.append([record.value for record in sweep.run(function)])
        self.assertEqual(values, [[-1, -2], [2, 3], [10, 20], [100, 200], [-1, -2], [1, 2]])
        self.assertEqual(seen, [1, 2, 1, 2])

    def test_a_function_that_cannot_be_called_so(self):
        """It is said at once, and nothing is left on disk."""
        for sweep, words in [
            (self.sweep(lr=[1], depth=[2]), "cannot be called with lr, depth: .*'depth'"),
            (self.sweep([1], [2]), "too many positional"),
        ]:
            with self.assertRaisesRegex(TypeError, words):
                sweep.run(lambda lr: lr)
        with self.assertRaisesRegex(TypeError, "needs a function, not a `int`"):
            self.sweep([1]).run(3)
        with self.assertRaisesRegex(ValueError, "processes must be a whole number of at least 1, not 0"):
            self.sweep([1]).run(abs, processes=0)
        with self.assertRaisesRegex(ValueError, "call grid"):
            hpcsweep.Sweep("results/s").run(abs)
        self.assertEqual(os.listdir("."), [])

    def test_axes_that_are_none(self):
        """M3: refused with the name of the axis, nothing is left on disk."""
        for axes, words in [
            (dict(lr=0.1), r"axis `lr` is one value, 0.1: write a list of values, \[0.1\]"),
            (dict(lr=[]), "axis `lr` is empty"),
            (dict(lr=[1], name="abc"), "axis `name` is one value, 'abc'"),
            (dict(lr={1, 2}), "axis `lr` is a set"),
            (dict(trial=[1]), "axis `trial`: the name has a meaning of its own"),
            (dict(f=[lambda x: x, lambda x: x]), "axis `f`: .* read the same in the plan"),
            (dict(x=[(1, 2), [1, 2]]), r"axis `x`: \(1, 2\) and \[1, 2\] read the same"),
            (dict(x=[[(1,)], [[1]]]), "read the same"),
            (dict(x=[{"a": (1,)}, {"a": [1]}]), "read the same"),
            (dict(x=[None, "None"]), "axis `x`: None and 'None' read the same"),
            (dict(x=[float("inf"), "inf"]), "axis `x`: inf and 'inf' read the same"),
            (dict(o=[object()]), "no text that would be the same in every process"),
            ({}, "needs at least one axis"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.sweep(**axes)
        with self.assertRaisesRegex(ValueError, "name all axes"):
            self.sweep([1], lr=[2])
        with self.assertRaisesRegex(ValueError, "a sweep's name"):
            hpcsweep.Sweep("results/a b")
        self.assertEqual(os.listdir("."), [])

    def test_values_come_as_they_were_given(self):
        """J13: numbers bit by bit, text, lists, tuples, dicts, booleans, None, odd numbers, functions and classes."""
        values = [
            0.1, 1e-5, 1 / 3, 5e-324, 1.7e308, -0.0, float("inf"), 1, 1.0, True, None, -(2 ** 63), 2 ** 70,
            "", "a\"\\\n\t\x7fé😀", "nan", "1", (0.9, 0.999), [1, [2, "x"]], {"a": {"b": 1}, "c": [1]}, {},
            {"a.b": 1}, len, dict, b"\0\xff", 1j, range(3), frozenset([1]), {1: 2},
        ]  # fmt: skip
        seen = []
        records = self.sweep(value=values).run(lambda value: seen.append(value) or len(seen))
        self.assertEqual([record.state for record in records], ["done"] * len(values))
        self.assertEqual(list(map(repr, seen)), list(map(repr, values)))
        self.assertEqual([repr(record.params["value"]) for record in records], list(map(repr, values)))
        self.assertEqual([record.value for record in records], list(range(1, len(values) + 1)))
        # They are known again, none is run a second time.
        self.sweep(value=values).run(lambda value: seen.append(value))
        with open("results/s.toml") as file:
            self.assertIn("function = ", file.read())

    def test_points(self):
        """M3: any list of points, in its order; two equal ones are two trials."""
        ran = []
        rows = [{"a": a, "b": b} for a, b in zip([3, 1, 1, 2], ["x", "y", "y", None])]
        sweep = hpcsweep.Sweep("results/s", quiet=True).points(rows)
        records = sweep.run(lambda b, a: ran.append((a, b)) or len(ran))
        self.assertEqual([record.params for record in records], rows)
        self.assertEqual(ran, [(3, "x"), (1, "y"), (1, "y"), (2, None)])
        self.assertEqual([record.value for record in records], [1, 2, 3, 4])
        # A grid with the same points has the same trials.
        grown = sweep.points(rows[1:] + [{"b": (1, 2), "a": 9}]).run(lambda b, a: ran.append((a, b)) or len(ran))
        self.assertEqual([record.value for record in grown], [2, 3, 4, 5])
        self.assertEqual(ran[4:], [(9, (1, 2))])
        positional = hpcsweep.Sweep("results/t", quiet=True).points((i, i * i) for i in range(3))
        self.assertEqual([record.value for record in positional.run(lambda x, y: y - x)], [0, 0, 2])
        for rows, words in [
            ([], "no points"),
            ([{"a": 1}, (1,)], r"point 1, \(1,\), is no dict"),
            ([{"a": 1, "task_id": None}], "point 0: `task_id` cannot be None"),
            ([1], "point 0, 1, is no dict"),
            ([()], "point 0"),
            ([{"trial": 1}], "axis `trial`"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                sweep.points(rows)

    def test_names_of_axes(self):
        """Whatever Python has for a name."""
        axes = {"λ": [1], "A1": [3], "résumé": [4]}
        records = self.sweep(**axes).run(lambda **all: all)
        self.assertEqual(records[0].value, {"λ": 1, "A1": 3, "résumé": 4})

    def test_results_of_any_kind(self):
        """M7: what a function returns is there again as JSON."""
        import collections
        import dataclasses

        @dataclasses.dataclass
        class Score:
            loss: float
            steps: list

        class Number:
            """As of numpy."""

            def tolist(self):
                return 0.5

        Point = collections.namedtuple("Point", "x y")
        results = [
            (0.1, 0.1), (None, None), (True, True), ("text\ud800", "text?"), ((1, 2), [1, 2]), ([], []), ({}, {}),
            ({1: 2, None: 3}, {"1": 2, "null": 3}), ({True: 1, 0: 2}, {"true": 1, "0": 2}), ({3}, "{3}"),
            (Score(0.5, [1]), {"loss": 0.5, "steps": [1]}), (Point(1, 2), {"x": 1, "y": 2}),
            (Number(), 0.5), ({"a": Number()}, {"a": 0.5}),
            (float("inf"), float("inf")), (2 ** 64 - 1, 2 ** 64 - 1), (2 ** 64, str(2 ** 64)),
        ]  # fmt: skip
        with contextlib.redirect_stderr(io.StringIO()) as said:
            records = self.sweep(i=list(range(len(results)))).run(lambda i: results[i][0])
        self.assertEqual([record.value for record in records], [value for _, value in results])
        self.assertIn("a result with `set` is not JSON: its text is kept", said.getvalue())
        sweep = self.sweep(i=[0, 1, 2]).grid(j=[0])
        (record,) = sweep.run(lambda j: float("nan"))
        self.assertTrue(record.value != record.value)
        with self.assertRaisesRegex(ValueError, "no trial that is done has a number"):
            sweep.best()

    def test_numpy(self):
        """Its numbers and arrays, as axis and as result; it is not imported by the module."""
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy")
        records = self.sweep(lr=numpy.logspace(-2, 0, 3), n=numpy.arange(2)).run(
            lambda lr, n: {"loss": numpy.float32(lr), "all": numpy.ones(2), "type": type(lr).__name__}
        )
        self.assertEqual(records[1].value, {"loss": float(numpy.float32(0.01)), "all": [1.0, 1.0], "type": "float64"})

    def test_a_record(self):
        """M7: parameters, value, duration, host, attempt; a dict and attributes; JSON and pickle."""
        import socket

        sweep = self.sweep(x=[2, 1])
        (first, second) = sweep.run(lambda x: {"loss": x, "more": {"acc": -x}})
        self.assertEqual(first["params"], {"x": 2})
        self.assertEqual(first.value, {"loss": 2, "more": {"acc": -2}})
        self.assertEqual(first.metrics, {"loss": 2, "more.acc": -2})
        self.assertEqual((first.state, first.done, first.attempt, first.exit_code), ("done", True, 1, 0))
        self.assertEqual((first.error, first.traceback, first.signal), (None, None, None))
        self.assertTrue(first.duration >= 0 and socket.gethostname().startswith(first.host))
        self.assertEqual(json.loads(json.dumps(first)), first)
        self.assertEqual(pickle.loads(pickle.dumps(first)), first)
        with self.assertRaisesRegex(AttributeError, "a record has no `loss`"):
            first.loss
        self.assertEqual(sweep.best("loss"), second)
        self.assertEqual(sweep.best("more.acc"), first)
        self.assertEqual(sweep.best(lambda record: -record.value["loss"]), first)
        with self.assertRaisesRegex(ValueError, "no trial that is done has a number: say which, `loss`, `more.acc`"):
            sweep.best()
        with self.assertRaisesRegex(ValueError, "no trial that is done has a number `los`"):
            sweep.best("los")
        with self.assertRaisesRegex(ValueError, 'mode must be "min" or "max"'):
            sweep.best("loss", mode="most")
        # Also for a program that knows nothing of the grid.
        self.assertEqual(hpcsweep.Sweep("s").results(), [first, second])

    def test_a_damaged_line(self):
        """What of the results can be read is returned, with a warning that names the file; the trial runs again."""
        sweep = self.sweep(x=[1, 2, 3])
        sweep.run(lambda x: x)
        (file,) = Path("results/s/agents").glob("*/*.jsonl")
        text = file.read_text()
        self.assertIn('"result":2', text)
        file.write_text(text.replace('"result":2', '"result":7'))
        with self.assertWarnsRegex(RuntimeWarning, r"agents/.*\.jsonl"):
            records = sweep.results()
        self.assertEqual([record.value for record in records if record.done], [1, 3])

    def test_what_fails(self):
        """J14, M12: exceptions and sys.exit fail the trial, not the sweep; nothing else is known of them."""

        def f(x):
            if x == 1:
                raise ValueError("no\nmore")
            if x in (3, 0, None):
                exit(x)
            if x == "deep":
                return f(x)
            if x == "word":
                raise SystemExit("why")
            return 7

        finished, failed = [], []
        records = self.sweep(x=[1, 3, 0, None, "deep", "word", "good"]).run(
            f, on_finish=finished.append, on_error=failed.append
        )
        self.assertEqual([record.state for record in records], ["failed"] * 6 + ["done"])
        self.assertEqual([record.exit_code for record in records], [1, 3, 1, 1, 1, 1, 0])
        first = records[0]
        self.assertRegex(first.error, r"^ValueError: no \(test_sweep.py, line \d+\)$")
        self.assertRegex(first.traceback, r"(?s)^Traceback .*in f\n.*ValueError: no\nmore\n$")
        self.assertNotIn("runner.py", first.traceback)
        self.assertIn("SystemExit: 3", records[1].error)
        self.assertIn("RecursionError", records[4].error)
        self.assertIn("no\nmore", self.call("logs", "0", "results/s"))
        self.assertIn("in Python, run(..., retry=True)\n", self.call("status", "results/s", code=1))
        # The hooks saw the same, each once.
        key = lambda record: record["trial"]
        self.assertEqual(finished, [records[6]])
        without = [dict(record, traceback=0) for record in sorted(failed, key=key)]
        self.assertEqual(without, [dict(record, traceback=0) for record in records[:6]])
        # They do not run again until a user asks for it.
        self.assertEqual([record.state for record in self.sweep(x=[1, "new"]).run(f)], ["failed", "done"])

    def test_retry_and_attempts(self):
        """M12, M13: attempts of a trial, its pause while others go first; retry=True runs again what has failed."""
        ran = []

        def f(x):
            ran.append(x)
            if x == 0 and len(ran) < 6:
                raise ValueError
            return x

        def g(x):
            return f(x)

        settings = "[pull]\nbackoff = 0.05"
        first, failed = [], []
        sweep = hpcsweep.Sweep("results/s", settings=settings, quiet=True).grid(x=[0, 1, 2])
        records = sweep.run(g, attempts=2, on_finish=first.append, on_error=failed.append)
        self.assertEqual((ran[0], sorted(ran[1:3]), ran[3:]), (0, [1, 2], [0]))
        self.assertEqual((records[0].state, records[0].attempt), ("failed", 2))
        self.assertEqual((len(first), [record.attempt for record in failed]), (2, [2]))
        again = sweep.run(g, attempts=2, retry=True, on_finish=first.append)
        self.assertEqual((again[0].state, again[0].value, ran[4:]), ("done", 0, [0, 0]))
        self.assertEqual(len(first), 3)

    def test_ten_poison_of_a_hundred(self):
        """M13: one process; 90 of 90 good ones are done."""
        failed = []
        records = self.sweep(x=list(range(100))).run(lambda x: 1 / (x % 10), on_error=failed.append)
        states = [record.state for record in records]
        self.assertEqual(states, (["failed"] + ["done"] * 9) * 10)
        self.assertEqual(sorted(record.params["x"] for record in failed), list(range(0, 100, 10)))

    def test_all_poison(self):
        """A bug of the function halts the sweep before it has cost a night; mended, the sweep goes on."""
        broken, ran = [True], []

        def f(x):
            ran.append(x)
            if broken:
                raise ValueError("a bug")
            return x

        sweep = self.sweep(x=list(range(200)))
        with self.assertRaisesRegex(hpcsweep.SweepError, "failed"):
            sweep.run(f)
        self.assertLess(len(ran), 100)
        broken.clear()
        self.assertEqual([record.value for record in sweep.run(f, retry=True)], list(range(200)))

    def test_callbacks(self):
        """J15: on_finish for what is done, on_error for what has failed; one that raises or blocks harms nobody."""
        import threading
        import time

        release, called, said = threading.Event(), [], io.StringIO()

        def on_finish(record):
            if not called:
                # All trials have ended while this one callback blocks.
                self.assertTrue(release.wait(60))
            called.append(record.trial)
            if record.trial == 2:
                raise RuntimeError("of a callback")
            if record.trial == 3:
                raise SystemExit

        def f(x):
            if x == 9:
                release.set()
            return x

        with contextlib.redirect_stderr(said):
            records = self.sweep(x=list(range(10))).run(f, on_finish=on_finish)
        self.assertEqual(sorted(called), list(range(10)))
        self.assertEqual([record.value for record in records], list(range(10)))
        self.assertIn("hpcsweep: on_finish of trial 2:", said.getvalue())
        self.assertIn("RuntimeError: of a callback", said.getvalue())
        # One that never ends is not waited for.
        import hpcsweep.runs as module

        before, module.PATIENCE = module.PATIENCE, 0.1
        never = threading.Event()
        try:
            with contextlib.redirect_stderr(said):
                self.assertEqual(len(self.sweep(x=[10]).run(f, on_finish=lambda record: never.wait(60))), 1)
        finally:
            module.PATIENCE = before
            never.set()
        self.assertIn("a callback takes more than", said.getvalue())

    def test_the_trial_of_a_function(self):
        """params, report, result, checkpoint_dir and should_stop within a function."""

        def f(x, y):
            assert hpcsweep.params() == {"x": x, "y": y}
            assert not hpcsweep.should_stop()
            for step in range(3):
                hpcsweep.report(step=step, loss=x / (step + 1), more={"acc": step})
            if x == 2:
                path = os.path.join(hpcsweep.checkpoint_dir(), "last")
                with open(path, "w") as file:
                    file.write("weights")
            else:
                hpcsweep.checkpoint_dir()
            hpcsweep.result({"final": x})

        finished = []
        sweep = self.sweep(x=[1, 2], y=[(0, 1)])
        records = sweep.run(f, on_finish=finished.append)
        metrics = {"step": 2, "loss": 1 / 3, "loss.min": 1 / 3, "loss.max": 1.0}
        metrics.update({"more.acc": 2, "more.acc.min": 0, "more.acc.max": 2, "final": 1})
        self.assertEqual(records[0].metrics, metrics)
        self.assertEqual([record.value for record in records], [{"final": 1}, {"final": 2}])
        self.assertEqual(finished, records)
        self.assertEqual(sweep.best("loss.min").trial, 0)
        self.assertEqual(len(self.call("collect", "results/s", "--steps").splitlines()), 7)
        # Folders in which nothing was left are gone.
        left = [os.path.join(at, name) for at, _, names in os.walk("results/s/work") for name in names]
        self.assertEqual(left, ["results/s/work/000/1/checkpoint/last"])
        self.assertEqual(os.listdir("results/s/work/000"), ["1"])

    def test_settings_of_the_plan(self):
        """Further tables; what is no plan is said in the plan's words."""
        sweep = hpcsweep.Sweep("results/s", settings='[hooks]\nfinish = ["sh", "-c", "echo >> hooked"]', quiet=True)
        sweep.grid(x=[1, 2]).run(lambda x: x)
        self.assertEqual(len(self.lines("hooked")) or self.lines("results/hooked"), ["", ""])
        for settings, words in [("lease = 1", "lease"), ("[grid]\nx = [1]", "grid"), ("[pul]\nlease = 1", "pull")]:
            sweep = hpcsweep.Sweep("results/t", settings=settings, quiet=True).grid(x=[1])
            with self.assertRaisesRegex(hpcsweep.SweepError, words):
                sweep.run(abs_of)

    def test_settings_that_make_other_trials_than_the_grid_has_points(self):
        """The records are those of the plan's trials, with the values of the grid as they are meant."""
        repeated = [({"x": x, "seed": seed}, [str(x), seed]) for seed in (1, 2) for x in [(1,), 2]]
        for number, (settings, function, expected) in enumerate(
            [
                ("[replicates]\ncount = 2", lambda x, seed: [str(x), seed], repeated),
                ("[[exclude]]\nx = 2", str, [({"x": (1,)}, "(1,)")]),
                ("exclude = [{ x = 2 }]", str, [({"x": (1,)}, "(1,)")]),
                ("sample.count = 1\nsample.parameters.k = { choice = [5] }", lambda x, k: k, [({"x": (1,), "k": 5}, 5), ({"x": 2, "k": 5}, 5)]),
            ]
        ):
            called = function if function is not str else lambda x: str(x)
            for processes in (1, 2):
                sweep = hpcsweep.Sweep("results/%d" % number, settings=settings, quiet=True).grid(x=[(1,), 2])
                records = sweep.run(called, processes=processes)
                self.assertEqual([(record.params, record.value) for record in records], expected, settings)
                self.assertEqual(sweep.results(), records)

    def test_another_folder(self):
        """A function may change the folder of the process."""
        records = self.sweep(x=[1, 2]).run(lambda x: os.chdir(tempfile.gettempdir()))
        self.assertEqual([record.done for record in records], [True, True])

    def test_how_the_program_is_found(self):
        """$HPCSWEEP_BIN, the installation that the module is of, PATH; else a sentence says so."""
        import shutil

        from hpcsweep import program

        self.assertEqual(program.find(), PROGRAM)
        os.environ["HPCSWEEP_BIN"] = "nowhere/hpcsweep"
        with self.assertRaisesRegex(hpcsweep.SweepError, "^HPCSWEEP_BIN=nowhere/hpcsweep is no program$"):
            self.sweep([1]).run(abs)
        os.environ["HPCSWEEP_BIN"] = shutil.which("true")
        with self.assertRaisesRegex(hpcsweep.SweepError, "has ended with exit code 0"):
            self.sweep([1]).run(abs)
        os.environ["HPCSWEEP_BIN"] = shutil.which("echo")
        with self.assertRaisesRegex(hpcsweep.SweepError, "is no agent: it says `"):
            self.sweep([1]).run(abs)
        del os.environ["HPCSWEEP_BIN"]
        os.environ["PATH"] = str(self.folder)
        with self.assertRaisesRegex(hpcsweep.SweepError, "(?s)`hpcsweep` is not found.*module load.*HPCSWEEP_BIN"):
            self.sweep([1]).run(abs)
        os.symlink(PROGRAM, "hpcsweep")
        self.assertEqual(program.find(), str(self.folder / "hpcsweep"))
        # An installation: its own program comes first, wherever it was moved to.
        shutil.copytree(os.path.dirname(program.__file__), "P/share/hpcsweep/python/hpcsweep")
        os.mkdir("P/bin")
        os.symlink(PROGRAM, "P/bin/hpcsweep")
        code = "import sys; sys.path.insert(0, %r); from hpcsweep import program; print(program.find())"
        self.write("p.py", code % str(self.folder / "P/share/hpcsweep/python"))
        self.environment.pop("HPCSWEEP_BIN")
        self.assertEqual(self.run_script("p.py").out, str(self.folder / "P/bin/hpcsweep") + "\n")


def abs_of(x):
    return abs(x)


if __name__ == "__main__":
    unittest.main()
