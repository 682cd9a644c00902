"""One rank alone, and what goes over the wire among several."""

import math
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

from fake_worker import HINT, FakeWorker

import hpcsweep
from hpcsweep import sync
from hpcsweep.channel import Channel, SyncError

SITE = Path(__file__).resolve().parents[2] / "site" / "python"
NO_LIBRARIES = {"torch": None, "numpy": None}


def without_libraries():
    return mock.patch.dict(sys.modules, NO_LIBRARIES)


def environment(**values):
    """The process's environment with these values alone of all that hpcsweep reads."""
    kept = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    kept = {key: value for key, value in kept.items() if not key.startswith("HPCSWEEP_")}
    return mock.patch.dict(os.environ, dict(kept, **values), clear=True)


def on_ranks(world, program):
    """What `program(client)` returns or raises on each rank of a worker, and the requests it made."""
    results = [None] * world
    with FakeWorker(world) as worker:

        def run(rank):
            channel = Channel(worker.ends[rank].fileno())
            try:
                results[rank] = program(sync.Client(channel), rank)
            except Exception as e:
                results[rank] = e
            finally:
                channel.close()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results, worker.requests


class Alone(unittest.TestCase):
    def setUp(self):
        for patch in (without_libraries(), environment()):
            patch.start()
            self.addCleanup(patch.stop)

    def test_numbers_become_lists_of_one_by_the_rules_of_all_ranks(self):
        third = 1 / 3
        rounded = 0.3333333432674408
        for value, double, expected in [
            (third, False, [rounded]),
            (third, True, [third]),
            (7, False, [7]),
            (7, True, [7.0]),
            (True, False, [True]),
            (True, True, [1.0]),
            ([third, 1], False, [rounded, 1.0]),
            ((1, True), False, [1, 1]),
            ([[1, 2], [3, 4]], False, [[1, 2], [3, 4]]),
            ([], False, []),
            ([[], []], False, [[], []]),
            (1e300, False, [math.inf]),
            (2**63 - 1, False, [2**63 - 1]),
            (-(2**63), False, [-(2**63)]),
        ]:
            for return_tensor in (False, True):
                with self.subTest(value=value, double=double):
                    self.same(expected, hpcsweep.mp_sync(value, double, True, return_tensor))
                    self.same([expected], hpcsweep.mp_sync(value, double, False, return_tensor))

    def same(self, expected, got):
        # Also 1, 1.0 and True differ.
        self.assertEqual(repr(expected), repr(got))

    def test_what_cannot_be_sent_is_said_at_once(self):
        endless = []
        endless.append(endless)
        for value, sentence in [
            ("abc", "cannot sync a `str`"),
            (None, "cannot sync a `NoneType`"),
            ({"a": 1.0}, "cannot sync a `dict`"),
            (1j, "cannot sync a `complex`"),
            (["a"], "cannot sync a list with a `str` in it"),
            ([[1, 2], [3]], "cannot sync a ragged list: its rows differ in length"),
            ([1, [2]], "cannot sync a ragged list: its rows differ in length"),
            (endless, "cannot sync a list of more than 64 dimensions"),
            (2**63, "cannot sync an integer that does not fit into 64 bits: 9223372036854775808"),
            ([1, -(2**63) - 1], "cannot sync an integer that does not fit into 64 bits: -9223372036854775809"),
        ]:
            with self.subTest(value=str(value)):
                with self.assertRaises(SyncError) as caught:
                    hpcsweep.mp_sync(value)
                self.assertEqual((sentence, HINT), (caught.exception.sentence, caught.exception.hint))
                self.assertEqual("%s\n  hint: %s" % (sentence, HINT), str(caught.exception))

    def test_dicts_keep_their_shape(self):
        data = {"b": {"x": [1.0], 2: True, "empty": {}}, "a": 3}
        self.same({"b": {"x": [1.0], 2: [True], "empty": {}}, "a": [3]}, hpcsweep.mp_sync_dict(data))
        self.same({}, hpcsweep.mp_sync_dict({}))

    def test_dicts_that_cannot_be_synced(self):
        for data, sentence in [
            ([1], "cannot sync a `list` as a dict"),
            ({"a": {"b": "words"}}, "`a.b`: cannot sync a `str`"),
            ({1: 0.0, "1": 0.0}, "two keys of a dict read the same: ['1', '1']"),
            ({None: 1.0}, "the keys of a dict must be words or integers, at most 64 deep: None"),
        ]:
            with self.subTest(sentence=sentence):
                with self.assertRaises(SyncError) as caught:
                    hpcsweep.mp_sync_dict(data)
                self.assertEqual(sentence, caught.exception.sentence)

    def test_one_rank_reduced_is_itself(self):
        values = {"loss": 0.1, "n": {"seen": 3}, "late": True, "two": [0.5, 2]}
        for how, expected in [
            ("mean", {"loss": 0.1, "n": {"seen": 3.0}, "late": 1.0, "two": [0.5, 2.0]}),
            ("sum", {"loss": 0.1, "n": {"seen": 3}, "late": 1, "two": [0.5, 2.0]}),
            ("min", {"loss": 0.1, "n": {"seen": 3}, "late": True, "two": [0.5, 2.0]}),
            ("max", {"loss": 0.1, "n": {"seen": 3}, "late": True, "two": [0.5, 2.0]}),
            ("variance", {"loss": 0.0, "n": {"seen": 0.0}, "late": 0.0, "two": [0.0, 0.0]}),
        ]:
            self.same(expected, hpcsweep.reduce(values, how))
            self.same(expected, hpcsweep.reduce(values, how, weight=32))
            none = 0 if how == "sum" else math.nan
            self.same({"n": none, "x": none + 0.0}, hpcsweep.reduce({"n": 3, "x": 0.5}, how, weight=0))
            self.same({"x": none + 0.0}, hpcsweep.reduce({"x": math.nan}, how, nan="ignore"))
            self.same({"x": math.nan}, hpcsweep.reduce({"x": math.nan}, how))
            one = 0.0 if how == "variance" else 1.0
            self.same({"x": [math.nan, one]}, hpcsweep.reduce({"x": [math.nan, 1.0]}, how))

    def test_reductions_that_cannot_be(self):
        weight = "`a`: a weight is a number of at least 0, and this is %s"
        for arguments, sentence in [
            (({"a": math.nan}, "mean", None, "error"), "`a`: NaN on rank 0"),
            (({"a": 1}, "median"), "cannot reduce by `median`: there are sum, min, max, mean, variance"),
            (({"a": 1}, "sum", None, "no"), "no rule for NaN is called `no`: there are propagate, ignore, error"),
            (({"a": "words"},), "`a`: cannot sync a `str`"),
            (({"a": 1}, "mean", -1), weight % "-1"),
            (({"a": 1}, "mean", math.nan), weight % "nan"),
            (({"a": 1}, "mean", math.inf), weight % "inf"),
            (({"a": 1}, "mean", {"b": 1}), weight % "None"),
            (({"a": 1}, "mean", "heavy"), weight % "'heavy'"),
        ]:
            with self.subTest(sentence=sentence):
                with self.assertRaises(SyncError) as caught:
                    hpcsweep.reduce(*arguments)
                self.assertEqual(sentence, caught.exception.sentence)

    def test_rank_and_world_size_come_from_the_launcher(self):
        self.assertEqual((0, 1), (hpcsweep.rank(), hpcsweep.world_size()))
        with environment(RANK="2", WORLD_SIZE="4"):
            self.assertEqual((2, 4), (hpcsweep.rank(), hpcsweep.world_size()))

    def test_rank_and_world_size_are_those_of_any_launcher(self):
        for names in [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
            ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
            ("PALS_RANKID", "PMI_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ]:
            with self.subTest(names=names), environment(**dict(zip(names, ("2", "4")))):
                self.assertEqual((2, 4), (hpcsweep.rank(), hpcsweep.world_size()))
                with self.assertRaisesRegex(SyncError, "one of 4 ranks, and no worker of hpcsweep connects them"):
                    hpcsweep.mp_sync(1)
                # A worker knows better than what is left of the launcher that started it.
                with environment(HPCSWEEP_TRIAL="7"):
                    self.assertEqual((0, 1), (hpcsweep.rank(), hpcsweep.world_size()))
        # A batch script is one process, whatever the job has been given.
        with environment(SLURM_PROCID="0", SLURM_NTASKS="4"):
            self.assertEqual((0, 1), (hpcsweep.rank(), hpcsweep.world_size()))

    def test_ranks_that_nobody_connects_do_not_go_unnoticed(self):
        with environment(RANK="0", WORLD_SIZE="2"):
            for call in (hpcsweep.mp_sync, lambda x: hpcsweep.mp_sync_dict({"a": x}), lambda x: hpcsweep.reduce({"a": x})):
                with self.assertRaisesRegex(SyncError, 'one of 2 ranks(.|\n)*hint: run it as a trial with `sync = "mpi"`'):
                    call(1)
        with environment(RANK="0", WORLD_SIZE="1"):
            self.same([1], hpcsweep.mp_sync(1))
        with environment(RANK="0", WORLD_SIZE="2", HPCSWEEP_TRIAL="7"):
            with self.assertRaisesRegex(SyncError, 'cannot sync(.|\n)*hint: write `sync = "mpi"`'):
                hpcsweep.mp_sync(1)
            self.assertEqual(2, hpcsweep.world_size())

    def test_a_descriptor_that_is_none(self):
        with environment(HPCSWEEP_SYNC="900"):
            with self.assertRaisesRegex(SyncError, "HPCSWEEP_SYNC=900 is no open socket: (.|\n)*pass_fds"):
                hpcsweep.mp_sync(1)
        with environment(HPCSWEEP_SYNC="x"):
            with self.assertRaisesRegex(SyncError, "HPCSWEEP_SYNC=x is no number of a descriptor"):
                hpcsweep.mp_sync(1)
        self.same([1], hpcsweep.mp_sync(1))


class Import(unittest.TestCase):
    def test_it_imports_neither_torch_nor_numpy(self):
        script = "import sys, hpcsweep; hpcsweep.mp_sync([0.5], return_tensor=False); hpcsweep.rank()\n"
        script += "print(sorted({'torch', 'numpy'} & set(sys.modules)), sorted(set(dir(hpcsweep)) - set(hpcsweep.__all__)))"
        self.assertEqual("[] ['add_distributed_samplers', 'build_loader_sampler']\n", python(script))

    def test_there_is_nothing_else_in_it(self):
        with self.assertRaisesRegex(AttributeError, "module 'hpcsweep' has no attribute 'nothing'"):
            hpcsweep.nothing


def python(script):
    done = subprocess.run([sys.executable, "-c", script], cwd=str(SITE), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


class Ranks(unittest.TestCase):
    def setUp(self):
        patch = without_libraries()
        patch.start()
        self.addCleanup(patch.stop)

    def test_values_come_in_rank_order_and_may_be_uneven(self):
        for world in (1, 2, 4):
            got, _ = on_ranks(
                world, lambda client, rank: sync._mp_sync(client, [rank] * (rank + 1), False, True, False)
            )
            expected = [rank for rank in range(world) for _ in range(rank + 1)]
            self.assertEqual([expected] * world, got)

    def test_requests_are_as_the_protocol_says(self):
        got, requests = on_ranks(1, lambda client, rank: [
            client.hello(),
            client.hello(),
            sync._mp_sync(client, 0.5, True, False, True),
            sync._mp_sync_dict(client, {"b": [True], "a": {"c": 3, "d": "no"}}),
        ])  # fmt: skip
        self.assertEqual("rank 0: cannot sync a `str`", got[0].sentence)
        flags = {"double_precision": False, "concat": True, "return_tensor": True}
        self.assertEqual(
            [
                {"op": "hello", "bytes": 0},
                {
                    "op": "gather",
                    "flags": {"double_precision": True, "concat": False, "return_tensor": True},
                    "items": [{"key": [], "form": "scalar", "dtype": "float64", "shape": [], "bytes": 8}],
                    "bytes": 8,
                },
                {
                    "op": "gather_map",
                    "flags": flags,
                    "items": [
                        {"key": ["b"], "form": "list", "dtype": "bool", "shape": [1], "bytes": 1},
                        {"key": ["a", "c"], "form": "scalar", "dtype": "int64", "shape": [], "bytes": 8},
                        {"key": ["a", "d"], "error": "cannot sync a `str`"},
                    ],
                    "bytes": 9,
                },
            ],
            requests,
        )

    def test_reductions_are_as_the_protocol_says(self):
        got, requests = on_ranks(2, lambda client, rank: sync._reduce(
            client, {"loss": float(rank), "n": {"x": rank}}, "mean", {"loss": 1 + 2 * rank, "n": {"x": 1}}, "ignore"
        ))  # fmt: skip
        self.assertEqual([{"loss": 0.75, "n": {"x": 0.5}}] * 2, got)
        item = {"form": "scalar", "shape": [], "bytes": 8}
        items = [
            dict(item, key=["loss"], dtype="float64", weight=3.0),
            dict(item, key=["n", "x"], dtype="int64", weight=1.0),
        ]
        self.assertIn({"op": "reduce", "how": "mean", "nan": "ignore", "items": items, "bytes": 16}, requests)

    def test_an_error_is_the_same_everywhere_and_the_next_call_works(self):
        def program(client, rank):
            said = []
            for value in ["words" if rank == 1 else 1.0, 2**63 if rank == 0 else 1]:
                try:
                    sync._mp_sync(client, value, False, True, False)
                except SyncError as e:
                    said.append(str(e))
            return said, sync._mp_sync(client, rank, False, True, False)

        too_large = "rank 0: cannot sync an integer that does not fit into 64 bits: 9223372036854775808"
        said = ["%s\n  hint: %s" % (sentence, HINT) for sentence in ("rank 1: cannot sync a `str`", too_large)]
        for world in (2, 4):
            got, _ = on_ranks(world, program)
            self.assertEqual([(said, list(range(world)))] * world, got)

    def test_dicts_are_matched_by_key(self):
        def program(client, rank):
            pairs = [("a", [rank]), ("b", {"c": 10 + rank})]
            return sync._mp_sync_dict(client, dict(pairs if rank == 0 else reversed(pairs)))

        got, _ = on_ranks(2, program)
        self.assertEqual([{"a": [0, 1], "b": {"c": [10, 11]}}] * 2, got)
        self.assertEqual([["a", "b"], ["b", "a"]], [list(each) for each in got])
        got, _ = on_ranks(2, lambda client, rank: sync._mp_sync_dict(client, {"a": 1, "b": 2} if rank else {"a": 1}))
        self.assertEqual(["rank 0 has no `b`"] * 2, [e.sentence for e in got])

    def test_megabytes_arrive_whole(self):
        rows = list(range(1000000))
        got, _ = on_ranks(2, lambda client, rank: sync._mp_sync(client, rows[rank:], False, True, False))
        self.assertEqual([rows + rows[1:]] * 2, got)


class Broken(unittest.TestCase):
    def channel(self, worker):
        channel = Channel(worker.ends[0].fileno())
        self.addCleanup(channel.close)
        return channel

    def test_a_worker_that_goes_is_told_every_time(self):
        with FakeWorker(1) as worker:
            client = sync.Client(self.channel(worker))
            self.assertEqual((0, 1), client.hello())
        for _ in range(2):
            with self.assertRaisesRegex(SyncError, "^the worker has gone: "):
                sync._mp_sync(client, 1, False, True, False)

    def test_after_an_interrupt_no_answer_is_taken_for_another(self):
        with FakeWorker(1) as worker:
            channel = self.channel(worker)
            client = sync.Client(channel)
            with mock.patch.object(channel, "_receive", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    sync._mp_sync(client, 1, False, True, False)
            with self.assertRaisesRegex(SyncError, "an earlier sync was interrupted"):
                sync._mp_sync(client, 2, False, True, False)

    def test_a_fork_does_not_answer_for_its_parent(self):
        with FakeWorker(1) as worker:
            client = sync.Client(self.channel(worker))
            with mock.patch("os.getpid", return_value=-1):
                with self.assertRaisesRegex(SyncError, "this is a fork of it"):
                    client.hello()
            self.assertEqual((0, 1), client.hello())

    def test_the_descriptor_of_the_environment_is_used_and_stays_open(self):
        with FakeWorker(1) as worker, without_libraries():
            fd = worker.ends[0].fileno()
            with environment(HPCSWEEP_SYNC=str(fd), RANK="5", WORLD_SIZE="9"):
                self.assertEqual((0, 1), (hpcsweep.rank(), hpcsweep.world_size()))
                self.assertEqual([3], hpcsweep.mp_sync(3))
                sync._current()._channel.close()
                os.fstat(fd)
            with environment():
                self.assertEqual([3], hpcsweep.mp_sync(3))
            self.assertEqual(["hello", "gather"], [request["op"] for request in worker.requests])


if __name__ == "__main__":
    unittest.main()
