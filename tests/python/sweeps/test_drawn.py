"""Points that are repeated with seeds or drawn at random, and answers about their settings."""

import unittest
from unittest import mock

from world import PROGRAM, World

import hpcsweep

SEEDS = """
import hpcsweep
def fit(lr, seed):
    hpcsweep.report(loss=lr + seed / 100)
    return lr
sweep = hpcsweep.Sweep("results/seeds", quiet=True).grid(lr=[0.2, 0.1]).seeds(3)
for record in sweep.run(fit):
    print(record.params["lr"], record.params["seed"], record.value)
"""

SAMPLE = """
import sys
import hpcsweep
def fit(x, layers):
    return [x, layers]
sweep = hpcsweep.Sweep("results/sample", quiet=True)
sweep.sample(int(sys.argv[1]), x={"log_uniform": [1e-5, 1e-1]}, layers={"int": [1, 4]})
for record in sweep.run(fit):
    print(record.value)
"""


class Drawn(World):
    def setUp(self):
        super().setUp()
        found = mock.patch.dict("os.environ", HPCSWEEP_BIN=PROGRAM)
        found.start()
        self.addCleanup(found.stop)

    def test_settings_are_compared_over_their_seeds(self):
        self.write("fit.py", SEEDS)
        ran = self.run_script("fit.py")
        expected = ["%s %d %s" % (lr, seed, lr) for lr in (0.2, 0.1) for seed in (1, 2, 3)]
        self.assertEqual(ran.out.splitlines(), expected, ran)
        results = str(self.folder / "results" / "seeds")
        first, second = hpcsweep.best(results, metric="loss", mode="min", n=2)
        told = [(each["setting"], each["n"], round(each["mean"], 6)) for each in (first, second)]
        self.assertEqual(told, [({"lr": 0.1}, 3, 0.12), ({"lr": 0.2}, 3, 0.22)])
        compared = hpcsweep.compare("lr=0.1", "lr=0.2", results, metric="loss")
        self.assertEqual([round(compared[side]["mean"], 6) for side in "ab"], [0.12, 0.22])
        effects = hpcsweep.effects(results, metric="loss", mode="min")
        self.assertEqual([(each["parameter"], each["best"]) for each in effects["parameters"]], [("lr", "0.1")])

    def test_a_larger_sample_keeps_its_points(self):
        self.write("fit.py", SAMPLE)
        few = self.run_script("fit.py", "3").out.splitlines()
        many = self.run_script("fit.py", "5").out.splitlines()
        self.assertEqual((len(few), len(set(many)), many[:3]), (3, 5, few))

    def test_what_cannot_be_drawn_is_refused_before_anything_is_written(self):
        sweep = hpcsweep.Sweep(str(self.folder / "results" / "none"))
        with self.assertRaisesRegex(TypeError, "cannot be called with lr, seed"):
            sweep.grid(lr=[1]).seeds(2).run(lambda lr: lr)
        with self.assertRaisesRegex(ValueError, "count must be a whole number"):
            sweep.seeds(0)
        with self.assertRaisesRegex(ValueError, "`x` needs a distribution"):
            sweep.sample(3, x=[1, 2])
        settings = "[replicates]\ncount = 2\n"
        with self.assertRaisesRegex(ValueError, r"have `\[replicates\]` already"):
            hpcsweep.Sweep("none", settings=settings).grid(lr=[1]).seeds(2)
        with self.assertRaisesRegex(ValueError, "mode must be"):
            hpcsweep.best(metric="loss", mode="least")
        self.assertFalse((self.folder / "results").exists())


if __name__ == "__main__":
    unittest.main()
