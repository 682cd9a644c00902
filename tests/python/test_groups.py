"""Ranks that the program has started itself: by a process group, by variables that do not say enough, by multiprocessing."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_sync import SITE, environment

import hpcsweep
from hpcsweep import ranks, trial
from hpcsweep.channel import SyncError

try:
    import torch
except ImportError:
    torch = None

# Each rank prints one line for each call: what it returns, or why not.
PROGRAM = """
import json, os, sys
import torch, torch.distributed, torch.multiprocessing
from torch.utils.data import DataLoader, IterableDataset
import hpcsweep

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(hpcsweep.rank(), 6, hpcsweep.world_size())

def try_stream():
    # A worker that is not a fork knows no group.
    try:
        return [int(i) for i in DataLoader(Stream(), num_workers=1, multiprocessing_context="spawn")]
    except hpcsweep.SyncError as e:
        return [line for line in str(e).split("\\n") if "SyncError: " in line][0].split("SyncError: ")[1]

def told(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype)[6:], value.tolist()]
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items()}
    return [told(each) for each in value] if isinstance(value, list) else value

def rank(number, world, file):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + file, rank=number, world_size=world)
    out = []
    for call in CALLS:
        try:
            out.append(told(call(number)))
        except (hpcsweep.SyncError, ValueError) as e:
            out.append("%s: %s" % (type(e).__name__, str(e).split("\\n")[0]))
    with open("%s.%d" % (file, number), "w") as written:
        json.dump(out, written)
    torch.distributed.barrier()

CALLS = [
    CALLS_OF_TEST
]

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, (int(sys.argv[1]), sys.argv[2]), nprocs=int(sys.argv[1]))
"""


def spawned(world, *calls, **variables):
    """What the calls return on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        program, file = os.path.join(folder, "program.py"), os.path.join(folder, "group")
        text = ",\n    ".join("lambda r: " + call for call in calls)
        Path(program).write_text(PROGRAM.replace("CALLS_OF_TEST", text))
        with environment(PYTHONPATH=str(SITE), **variables):
            ran = subprocess.run([sys.executable, program, str(world), file], stderr=subprocess.PIPE)
        assert ran.returncode == 0, ran.stderr.decode()
        return [json.loads(Path("%s.%d" % (file, rank)).read_text()) for rank in range(world)]


@unittest.skipIf(torch is None, "No module named 'torch'")
class Groups(unittest.TestCase):
    maxDiff = None

    def check(self, world, *cases, **variables):
        """Each case is a call, and what it returns: on all ranks, or a tuple of each rank."""
        got = spawned(world, *[call for call, _ in cases], **variables)
        for number, (call, expected) in enumerate(cases):
            with self.subTest(call=call):
                every = list(expected) if isinstance(expected, tuple) else [expected] * world
                self.assertEqual(every, [rank[number] for rank in got])

    def test_values_come_from_all_ranks_of_the_group(self):
        third = 0.3333333432674408
        self.check(
            2,
            ("hpcsweep.rank()", (0, 1)),
            ("hpcsweep.world_size()", 2),
            ("hpcsweep.mp_sync(0.25 + r)", ["float32", [0.25, 1.25]]),
            ("hpcsweep.mp_sync([r] * (r + 1))", ["int64", [0, 1, 1]]),
            ("hpcsweep.mp_sync(r, concat_mp_data=False)", [["int64", [0]], ["int64", [1]]]),
            ("hpcsweep.mp_sync(1 / 3, return_tensor=False)", [third, third]),
            ("hpcsweep.mp_sync(1 / 3, double_precision=True, return_tensor=False)", [1 / 3, 1 / 3]),
            ("hpcsweep.mp_sync(1 / 3 if r else torch.tensor([0.5], dtype=torch.double))", ["float64", [0.5, 1 / 3]]),
            ("hpcsweep.mp_sync([] if r else [1, 2])", ["int64", [1, 2]]),
            ("hpcsweep.mp_sync(torch.full((r + 1, 2), r))", ["int64", [[0, 0], [1, 1], [1, 1]]]),
            ("hpcsweep.mp_sync_dict({'b': {'c': r}} if r else {'b': {'c': 7.0}})", {"b": {"c": ["float32", [7.0, 1.0]]}}),
        )

    def test_reductions_are_those_of_a_worker(self):
        self.check(
            2,
            ("hpcsweep.reduce({'a': 1.0 + r})", {"a": 1.5}),
            ("hpcsweep.reduce({'a': 1.0 + r}, weight=1 + 2 * r)", {"a": 1.75}),
            ("hpcsweep.reduce({'a': 4 + r}, 'sum')", {"a": 9}),
            ("hpcsweep.reduce({'a': 4 + r}, 'max')", {"a": 5}),
            ("hpcsweep.reduce({'a': [1.0 + r, 7.0]}, 'variance')", {"a": [0.25, 0.0]}),
            ("hpcsweep.reduce({'a': float('nan') if r else 3.0}, 'min', nan='ignore')", {"a": 3.0}),
            ("hpcsweep.reduce({'a': 5.0 + r}, 'sum', weight=r)", {"a": 6.0}),
            ("hpcsweep.reduce({'a': 1e308})", {"a": 1e308}),
            ("str(hpcsweep.reduce({'a': float('nan')}, nan='ignore'))", "{'a': nan}"),
            ("hpcsweep.reduce({'a': 2 ** 62}, 'sum')", "SyncError: `a`: the sum of the whole numbers does not fit into 64 bits"),
            ("hpcsweep.reduce({'a': float('nan') if r else 3.0}, nan='error')", "SyncError: `a`: NaN on rank 1"),
        )

    def test_an_error_is_the_same_on_every_rank_and_the_next_call_works(self):
        self.check(
            2,
            ("hpcsweep.mp_sync('abc' if r else 1.0)", "SyncError: rank 1: cannot sync a `str`"),
            ("hpcsweep.mp_sync_dict({'a': 1, 'b': None} if r else {'a': 1, 'b': 2})", "SyncError: rank 1, key `b`: cannot sync a `NoneType`"),
            ("hpcsweep.mp_sync_dict({'a': 1} if r else {'a': 1, 'b': 2})", "SyncError: the key `b` is missing on rank 1"),
            ("hpcsweep.mp_sync([[1], [2]][r] if r else [[1]])", "SyncError: the shapes differ beyond the first dimension: [1, 1] on rank 0, [1] on rank 1"),
            ("hpcsweep.mp_sync(torch.tensor(1j if r else 0.5))", "SyncError: complex numbers cannot be synced: `complex64` on rank 1"),
            ("hpcsweep.reduce({'a': [r, r] if r else [r]})", "SyncError: `a`: the shapes differ: [1] on rank 0, [2] on rank 1"),
            ("hpcsweep.mp_sync(r)", ["int64", [0, 1]]),
        )

    def test_ranks_share_their_data(self):
        loader = "DataLoader(list(range(6)), batch_size=2, num_workers=%d)"
        self.check(
            2,
            ("[b.tolist() for b in hpcsweep.add_distributed_samplers({'validation': %s})['validation']]" % (loader % 0),) + (([[0, 2], [4]], [[1, 3], [5]]),),
            ("[b.tolist() for b in hpcsweep.add_distributed_samplers({'a': %s})['a']]" % (loader % 1),) + (([[0, 2], [4]], [[1, 3], [5]]),),
            ("[int(i) for i in DataLoader(Stream(), num_workers=1, multiprocessing_context='fork')]", ([0, 2, 4], [1, 3, 5])),
            ("try_stream()", "a process of `multiprocessing` cannot tell which rank it is, and would have its own values only"),
        )

    def test_a_group_comes_before_what_the_environment_says(self):
        """Within a trial of one rank, of a launcher that gives the number of ranks alone, and of a rank of another group."""
        for variables in ({"HPCSWEEP_TRIAL": "7"}, {"WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": "4"}):
            self.check(2, ("[hpcsweep.rank(), hpcsweep.world_size()]", ([0, 2], [1, 2])), ("hpcsweep.mp_sync(r)", ["int64", [0, 1]]), **variables)

    def test_a_group_of_one_is_the_only_rank(self):
        self.check(1, ("hpcsweep.mp_sync(0.5)", ["float32", [0.5]]), ("[hpcsweep.rank(), hpcsweep.world_size()]", [0, 1]))


def asked(queue):
    """What a process of multiprocessing is told of its rank."""
    try:
        queue.put((hpcsweep.rank(), hpcsweep.world_size()))
    except SyncError as e:
        queue.put(str(e))


class Unknown(unittest.TestCase):
    CALLS = (hpcsweep.rank, hpcsweep.world_size, lambda: hpcsweep.mp_sync(1), lambda: hpcsweep.reduce({"a": 1}))

    def test_variables_that_do_not_say_which_rank_it_is_are_refused(self):
        for given, known, missing in [
            ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2", "RANK"),
            ({"WORLD_SIZE": "2", "LOCAL_RANK": "1", "HPCSWEEP_TRIAL": "7"}, "WORLD_SIZE=2", "RANK"),
            ({"WORLD_SIZE": "2", "RANK": "one"}, "WORLD_SIZE=2", "RANK"),
            ({"RANK": "1"}, "RANK=1", "WORLD_SIZE"),
        ]:
            for call in self.CALLS:
                with self.subTest(given=given), environment(**given):
                    with self.assertRaisesRegex(SyncError, "^%s is set, and %s is not: this is one of several" % (known, missing)):
                        call()
        for given in ({"WORLD_SIZE": "1"}, {"RANK": "0"}):
            with environment(**given):
                self.assertEqual((0, 1), (hpcsweep.rank(), hpcsweep.world_size()))
        with environment(WORLD_SIZE="4", SLURM_PROCID="2", SLURM_STEP_NUM_TASKS="4"):
            self.assertEqual((2, 4), (hpcsweep.rank(), hpcsweep.world_size()))

    def test_a_process_of_multiprocessing_is_not_taken_for_the_only_rank(self):
        for method, given, expected in [
            ("fork", {}, "a process of `multiprocessing` cannot tell which rank it is"),
            ("spawn", {}, "a process of `multiprocessing` cannot tell which rank it is"),
            ("spawn", {"RANK": "0", "WORLD_SIZE": "1"}, "a process of `multiprocessing` cannot tell which rank it is"),
            ("spawn", {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ]:
            with self.subTest(method=method, given=given), environment(**given):
                context = multiprocessing.get_context(method)
                queue = context.SimpleQueue()
                process = context.Process(target=asked, args=(queue,))
                process.start()
                got = queue.get()
                process.join()
                self.assertEqual(expected, got if isinstance(got, tuple) else got.split(",")[0])


class Reports(unittest.TestCase):
    def reported(self, **variables):
        with tempfile.TemporaryDirectory() as folder:
            metrics, result = (os.path.join(folder, name) for name in ("metrics", "result"))
            with environment(HPCSWEEP_TRIAL="7", HPCSWEEP_METRICS=metrics, HPCSWEEP_RESULT=result, **variables):
                trial.report(loss=0.5)
                trial.result(3)
            return json.loads(Path(metrics).read_text()), os.path.exists(result)

    def test_lines_of_ranks_that_a_trial_has_started_say_which_rank(self):
        """As torchrun and accelerate start them; and as Lightning does, of which the first process is rank 0."""
        self.assertEqual(({"loss": 0.5}, True), self.reported())
        self.assertEqual(({"loss": 0.5}, True), self.reported(RANK="0", WORLD_SIZE="1"))
        self.assertEqual(({"rank": 0, "loss": 0.5}, True), self.reported(RANK="0", WORLD_SIZE="2"))
        self.assertEqual(({"rank": 1, "loss": 0.5}, False), self.reported(RANK="1", WORLD_SIZE="2"))
        self.assertEqual(({"rank": 0, "loss": 0.5}, True), self.reported(WORLD_SIZE="2"))
        self.assertEqual(({"rank": 1, "loss": 0.5}, False), self.reported(WORLD_SIZE="2", LOCAL_RANK="1"))

    def test_a_launcher_within_a_trial_is_told_from_the_one_that_started_it(self):
        """mpirun and srun within a trial that mpirun, srun or nobody has started, and torchrun in each of two ranks."""
        mpirun = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "a"}
        srun = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"}
        ranks_of_trial = {"RANK": "1", "WORLD_SIZE": "2"}
        first = dict(mpirun, OMPI_COMM_WORLD_RANK="0")
        alone, zero, one = ({"loss": 0.5}, True), ({"rank": 0, "loss": 0.5}, True), ({"rank": 1, "loss": 0.5}, False)
        two = ({"rank": 2, "loss": 0.5}, False)
        for outer, inner, expected in (
            ({}, {}, alone),
            ({}, mpirun, one),
            ({}, first, zero),
            (mpirun, {}, alone),
            (srun, {}, alone),
            (srun, mpirun, one),
            (mpirun, {"PMIX_NAMESPACE": "b"}, one),
            (srun, {"SLURM_STEP_ID": "1"}, two),
            (ranks_of_trial, {}, one),
            # The larger of those that are known to be the program's own.
            (dict(mpirun, **ranks_of_trial), {"RANK": "2", "WORLD_SIZE": "4"}, two),
            ({}, dict(mpirun, RANK="2", WORLD_SIZE="4"), two),
            # Those of one rank alone: its worker knows which it is.
            (ranks_of_trial, {"RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, zero),
        ):
            with self.subTest(outer=outer, inner=inner):
                variables = dict(dict(outer, **inner), HPCSWEEP_LAUNCHER=json.dumps(outer))
                self.assertEqual(expected, self.reported(**variables))

    def test_lines_that_a_worker_joins_have_no_rank(self):
        self.assertEqual(({"loss": 0.5}, False), self.reported(RANK="1", WORLD_SIZE="2", HPCSWEEP_SYNC="900"))

    def test_a_rank_that_the_program_names_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "metrics")
            with environment(HPCSWEEP_METRICS=path, RANK="1", WORLD_SIZE="2"):
                self.assertEqual(1, ranks.within_trial())
                trial.report(rank=5)
            self.assertEqual({"rank": 5}, json.loads(Path(path).read_text()))


if __name__ == "__main__":
    unittest.main()
