"""What a call of a function costs beside the function itself."""

import json
import math
import unittest

from world import World

from hpcsweep import grid

COUNTS = """
import collections, os
import hpcsweep
from hpcsweep import grid

counts = collections.Counter()

def counted(name, function):
    def call(*args):
        counts[name] += 1
        return function(*args)
    return call

os.read, os.write = counted("read", os.read), counted("write", os.write)
grid.Points.shapes = counted("shapes", grid.Points.shapes)
seen = []

def f(i):
    seen.append(counts.copy())
    return i

%s
first, last = seen[0], seen[-1]
print(len(seen), {name: last[name] - first[name] for name in ("read", "write", "shapes")})
"""


class Cost(World):
    def test_a_call_is_one_message_each_way(self):
        """Not more where there are many points, nor where somebody wants to know of each end."""
        grids = "hpcsweep.Sweep('s', quiet=True).grid(i=list(range(300))).run(f)"
        points = "hpcsweep.Sweep('s', quiet=True).points([{'i': i} for i in range(300)]).run(f)"
        told = grids.replace("(f)", "(f, on_finish=lambda record: None)")
        for number, text in enumerate((grids, points, told)):
            ran = self.python(COUNTS % text.replace("'s'", "'s%d'" % number))
            self.assertEqual(ran.out, "300 {'read': 299, 'write': 299, 'shapes': 0}\n", str(ran))

    def test_numbers_are_told_apart_as_json_writes_them(self):
        for value in (0, -7, 2 ** 63 - 1, 0.0, -0.0, 0.1, 1e-5, 1e22, 5e-324, 1.7976931348623157e308, True, None, "1"):
            self.assertEqual(grid._wire(value), json.dumps(value))
        self.assertEqual([grid._wire(value) for value in (math.inf, -math.inf)], ['"inf"', '"-inf"'])


if __name__ == "__main__":
    unittest.main()
