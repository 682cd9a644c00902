"""Results of sweeps as records and as tables: load, steps, attempts."""

import datetime
import math
import sys
import types
import unittest
from unittest import mock

from world import PROGRAM, World

import hpcsweep

CODE = """
import hpcsweep
sweep = hpcsweep.Sweep("results/%s", quiet=True)
sweep.grid(lr=%s)
def fit(lr):
    hpcsweep.report(step=1, loss=lr)
    hpcsweep.report(step=2, loss=float("nan") if lr == 2 else lr / 2)
    if lr == 3:
        raise ValueError("no")
    return {"acc": lr}
sweep.run(fit)
"""


class Answers(World):
    def setUp(self):
        super().setUp()
        found = mock.patch.dict("os.environ", HPCSWEEP_BIN=PROGRAM)
        found.start()
        self.addCleanup(found.stop)
        for name, lr in (("a", [1, 2]), ("b", [3])):
            self.python(CODE % (name, lr))
        self.sweeps = str(self.folder / "results" / "*")

    def sweep(self, name):
        return str(self.folder / "results" / name)

    def test_records_are_those_of_all_sweeps(self):
        found = hpcsweep.load(self.sweeps)
        self.assertEqual([each["params"] for each in found], [{"lr": 1}, {"lr": 2}, {"lr": 3}])
        self.assertEqual([each.get("sweep") for each in found], ["a", "a", "b"])
        self.assertEqual([each.state for each in found], ["done", "done", "failed"])
        self.assertTrue(math.isnan(found[1].metrics["loss"]))
        self.assertEqual([each.params["lr"] for each in hpcsweep.load(self.sweeps, where="lr > 2")], [3])
        # Of one sweep, records are those of `results()`.
        one = hpcsweep.load(self.sweep("b"))
        self.assertEqual(one, hpcsweep.Sweep(self.sweep("b")).results())

    def test_steps_and_attempts_are_dicts(self):
        found = hpcsweep.steps(self.sweep("a"), columns=["trial", "step", "loss"], sort="-loss")
        self.assertEqual(
            [tuple(each.values()) for each in found[:3]], [(1, 1, 2), (0, 1, 1), (0, 2, 0.5)]
        )
        self.assertTrue(math.isnan(found[3]["loss"]))
        found = hpcsweep.attempts(self.sweeps, columns="sweep,trial,state,start")
        self.assertEqual([each["state"] for each in found], ["done", "done", "failed"])
        self.assertTrue(all(each["start"].tzinfo is datetime.timezone.utc for each in found))

    def test_a_table_is_what_the_library_makes_of_arrow(self):
        class Table:
            def __init__(self, told):
                self.told = told

            def read_all(self):
                return self

            def to_pandas(self):
                return ("pandas", self.told)

        pyarrow = types.SimpleNamespace(py_buffer=bytes)
        ipc = types.SimpleNamespace(open_file=Table)
        polars = types.SimpleNamespace(read_ipc=lambda file: ("polars", file.read()))
        pandas = types.SimpleNamespace()
        found = {"pyarrow": pyarrow, "pyarrow.ipc": ipc, "polars": polars, "pandas": pandas}
        with mock.patch.dict(sys.modules, found):
            told = hpcsweep.load(self.sweeps, form="arrow").told
            self.assertEqual(told[:6], b"ARROW1")
            self.assertEqual(hpcsweep.load(self.sweeps, form="pandas"), ("pandas", told))
            self.assertEqual(hpcsweep.load(self.sweeps, form="polars"), ("polars", told))

    def test_what_is_missing_or_wrong_is_named(self):
        with mock.patch.dict(sys.modules, {"pyarrow": None}):
            with self.assertRaisesRegex(hpcsweep.SweepError, "a table of arrow needs `pyarrow`.*\\nhint: pip install"):
                hpcsweep.load(self.sweeps, form="arrow")
        with self.assertRaisesRegex(ValueError, '"records", "arrow", "pandas", "polars", not \'csv\''):
            hpcsweep.load(self.sweeps, form="csv")
        with self.assertRaisesRegex(hpcsweep.SweepError, "there is no column `los`\\nhint: did you mean `loss`"):
            hpcsweep.steps(self.sweeps, columns="los")

    def test_libraries_that_are_here_read_the_same(self):
        try:
            import pandas
            import polars
            import pyarrow
        except ImportError as error:
            self.skipTest(str(error))
        table = hpcsweep.load(self.sweeps, form="arrow", sort="-lr")
        self.assertIsInstance(table, pyarrow.Table)
        self.assertEqual(table["lr"].to_pylist(), [3, 2, 1])
        frame = hpcsweep.attempts(self.sweeps, form="pandas")
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(list(frame["state"]), ["done", "done", "failed"])
        self.assertEqual(str(frame["start"].dtype), "datetime64[us, UTC]")
        self.assertEqual(str(frame["duration_s"].dtype), "timedelta64[us]")
        self.assertEqual(str(frame["state"].dtype), "category")
        frame = hpcsweep.steps(self.sweeps, form="polars")
        self.assertIsInstance(frame, polars.DataFrame)
        self.assertEqual(frame["trial"].to_list(), [0, 0, 1, 1, 0, 0])


if __name__ == "__main__":
    unittest.main()
