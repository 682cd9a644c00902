"""The promises of tests/cases/mp_sync_cases.json, by one rank alone and by two and four with a worker."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cases_client
from fake_worker import FakeWorker

import hpcsweep

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("HPCSWEEP_CASES", HERE.parent / "cases"))
MISSING = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]


def alone(promise, rank, world):
    """What rank `rank` alone would be promised."""
    if "per_rank" in promise:
        return dict(promise, per_rank=[promise["per_rank"][rank]])
    count = len(promise["value"]) // world
    part = dict(promise, value=promise["value"][rank * count : (rank + 1) * count])
    if "shape" in part:
        part["shape"] = [count] + part["shape"][1:]
    if "len" in part:
        part["len"] = count
    return part


@unittest.skipIf(MISSING, "not installed: %s" % ", ".join(MISSING))
class Cases(unittest.TestCase):
    def test_one_rank_alone_keeps_every_promise(self):
        cases = json.loads((FOLDER / "mp_sync_cases.json").read_text())["cases"]
        self.assertGreater(len(cases), 0)
        for case in cases:
            for rank, described in enumerate(case["input"]):
                with self.subTest(case=cases_client.name(case), world=case["world_size"], rank=rank):
                    value = cases_client.build(described)
                    if case["flags"] is None:
                        self.one_dict(case["case"], value, described)
                    elif case["promise"] is not None:
                        result = cases_client.attempt(hpcsweep.mp_sync, value, **case["flags"])
                        promise = alone(case["promise"], rank, case["world_size"])
                        self.assertIsNone(cases_client.differs(result, promise))
                    elif case["case"] != "list_of_tensors_0d":
                        with self.assertRaises(hpcsweep.SyncError):
                            hpcsweep.mp_sync(value, **case["flags"])

    def one_dict(self, case, value, described):
        result = cases_client.attempt(hpcsweep.mp_sync_dict, value)
        if "string" in case:
            self.assertIsInstance(result, hpcsweep.SyncError)
        else:
            promise = {"type": "dict", "value": cases_client.joined_dict([described["value"]])}
            self.assertIsNone(cases_client.differs(result, promise))

    def test_ranks_keep_every_promise(self):
        for world in (2, 4):
            ran, said = run_client(world)
            self.assertEqual([0] * world, ran, said)
            self.assertRegex(said, "rank 0 of %d: [1-9][0-9]+ cases, 0 failed" % world)

    def test_a_broken_promise_is_named(self):
        fault = "import hpcsweep.sync as s; old = s.decode\n"
        fault += "s.decode = lambda item, device=None: old(item, device) if item.form != 'list' else [0.5]"
        ran, said = run_client(2, fault)
        self.assertEqual([1, 1], ran, said)
        self.assertIn("rank 1: float [concat_mp_data]: promised", said)
        self.assertNotIn("float [concat_mp_data, return_tensor]", said)


def run_client(world, fault=""):
    """The exit codes of cases_client.py as the ranks of a worker, and all that they said."""
    script = "import sys; sys.argv = ['cases_client.py', %r]\nsys.path[:0] = [%r]\nimport cases_client\n%s\n" % (
        str(FOLDER), str(HERE), fault,
    )  # fmt: skip
    script += "sys.exit(cases_client.main())"
    with FakeWorker(world) as worker:
        ranks, outputs = [], [tempfile.TemporaryFile("w+") for _ in range(world)]
        for rank, end in enumerate(worker.ends):
            os.set_inheritable(end.fileno(), True)
            environment = dict(os.environ, HPCSWEEP_SYNC=str(end.fileno()), RANK=str(rank), OMP_NUM_THREADS="1")
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-c", script], env=environment, pass_fds=[end.fileno()],
                    stdout=outputs[rank], stderr=subprocess.STDOUT,
                )  # fmt: skip
            )
        codes = [rank.wait(timeout=300) for rank in ranks]
    said = ""
    for output in outputs:
        output.seek(0)
        said += output.read()
        output.close()
    return codes, said


if __name__ == "__main__":
    unittest.main()
