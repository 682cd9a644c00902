"""Calls of a no-op function for all points of a grid, a second: through a sweep in one process, from the first call to
the last and with all that comes before and after, and in a loop that writes each result to a file."""

import json
import os
import sys
import time

import hpcsweep

B = 100
n = int(sys.argv[1])
first = last = 0.0


def call(a, b):
    global first, last
    last = time.perf_counter()
    first = first or last
    return a + b


def loop(axes):
    file = os.open("loop.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o644)
    for a in axes["a"]:
        for b in axes["b"]:
            line = {"params": {"a": a, "b": b}, "value": call(a, b)}
            os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


axes = {"a": list(range(n // B)), "b": list(range(B))}
begun = time.perf_counter()
records = hpcsweep.Sweep("results/noop", quiet=True).grid(**axes).run(call)
whole = time.perf_counter() - begun
assert [record.value for record in records] == [a + b for a in axes["a"] for b in axes["b"]]
calls, first = last - first, 0.0
loop(axes)
print(n / calls, n / whole, n / (last - first))
