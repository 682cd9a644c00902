"""Samplers and loaders of ranks: torch's order, every setting kept, no sample lost or invented."""

import functools
import hashlib
import inspect
import json
import os
import unittest
import warnings
from pathlib import Path

from fake_worker import FakeWorker
from test_sync import environment, on_ranks

import hpcsweep
from hpcsweep import sync

try:
    import torch
except ImportError:
    raise unittest.SkipTest("No module named 'torch'")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from hpcsweep import loaders, samplers  # noqa: E402

FOLDER = Path(os.environ.get("HPCSWEEP_CASES", Path(__file__).resolve().parent.parent / "cases"))


class Numbers:
    """A data set whose samples are their indices."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def share(loader, world, shuffle=True, **settings):
    """The samplers of all ranks."""
    return [hpcsweep.build_loader_sampler(loader, shuffle, world, rank, **settings)[1] for rank in range(world)]


def visits(sampler_list):
    return [list(sampler) for sampler in sampler_list]


class Orders(unittest.TestCase):
    def test_it_is_the_order_of_torch_index_for_index(self):
        cases = json.loads((FOLDER / "distributed_sampler.json").read_text())["cases"]
        checked = 0
        for case in cases:
            if case["drop_last"]:
                continue
            settings = {"world_size": case["world_size"], "shuffle": case["shuffle"], "seed": case["seed"]}
            for rank, expected in enumerate(case["indices"]):
                with self.subTest(rank=rank, **settings):
                    sampler = samplers.ShareSampler(Numbers(case["n"]), rank=rank, **settings)
                    sampler.set_epoch(case["epoch"])
                    self.assertEqual((expected, len(expected)), (list(sampler), len(sampler)))
                    checked += 1
        self.assertGreater(checked, 50)

    def test_permutations_are_those_that_torch_had_when_the_cases_were_written(self):
        for case in json.loads((FOLDER / "distributed_sampler.json").read_text())["randperm"]:
            sampler = samplers.ShareSampler(Numbers(case["n"]), 1, 0, seed=case["seed"])
            text = ",".join(map(str, sampler))
            self.assertEqual(case["sha256"], hashlib.sha256(text.encode()).hexdigest())

    def test_each_iteration_is_a_new_epoch_unless_one_is_set(self):
        def torchs(epoch):
            reference = DistributedSampler(Numbers(100), 2, 1)
            reference.set_epoch(epoch)
            return list(reference)

        sampler = samplers.ShareSampler(Numbers(100), 2, 1)
        self.assertEqual([torchs(0), torchs(1), torchs(2)], [list(sampler) for _ in range(3)])
        self.assertNotEqual(torchs(0), torchs(1))
        sampler.set_epoch(7)
        self.assertEqual([torchs(7), torchs(7)], [list(sampler) for _ in range(2)])
        sampler.resume(5)
        self.assertEqual([torchs(5), torchs(6)], [list(sampler) for _ in range(2)])

    def test_loaders_with_processes_count_epochs_alike(self):
        for settings in [
            {},
            {"batch_size": None},
            {"num_workers": 1, "persistent_workers": True},
            {"num_workers": 1, "batch_size": None},
        ]:
            with self.subTest(**settings):
                loader = DataLoader(Numbers(20), shuffle=True, **settings)
                made, _ = hpcsweep.build_loader_sampler(loader, True, 2, 0)
                seen = [[int(value) for value in made] for _ in range(3)]
                self.assertEqual(self.epochs(20, 3), seen)

    def epochs(self, count, number):
        sampler = DistributedSampler(Numbers(count), 2, 0)
        found = []
        for epoch in range(number):
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    def test_the_order_knows_its_seed_and_no_other(self):
        loader = DataLoader(Numbers(50), shuffle=True)
        torch.manual_seed(1)
        first = visits(share(loader, 2))
        torch.manual_seed(2)
        self.assertEqual(first, visits(share(loader, 2)))
        self.assertNotEqual(first, visits(share(loader, 2, seed=3)))
        self.assertEqual(list(range(50)), sorted(sum(first, [])))


class Subsets(unittest.TestCase):
    def test_a_subset_never_yields_another_index(self):
        loader = DataLoader(Numbers(10), sampler=SubsetRandomSampler([1, 2, 3]))
        for world in (1, 2, 4):
            for exact in (False, True):
                ranks = share(loader, world, exact=exact)
                for _ in range(5):
                    seen = visits(ranks)
                    self.assertEqual([1, 2, 3], sorted(set(sum(seen, []))))
                    self.assertEqual([len(rank) for rank in ranks], [len(indices) for indices in seen])
                    if exact:
                        self.assertEqual([1, 2, 3], sorted(sum(seen, [])))
        self.assertEqual([[1, 3], [2, 1]], visits(share(loader, 2, shuffle=False)))
        orders = {tuple(share_of) for share_of in (list(each) for each in share(loader, 1) * 20)}
        self.assertGreater(len(orders), 1)

    def test_a_weighted_draw_is_one_draw_among_all_ranks(self):
        weights = [0.0, 1.0, 5.0, 0.0, 2.0]
        loader = DataLoader(Numbers(5), sampler=WeightedRandomSampler(weights, 12))
        for seed, epoch in ((0, 0), (0, 1), (7, 0)):
            ranks = share(loader, 4, seed=seed)
            for sampler in ranks:
                sampler.set_epoch(epoch)
            seen = visits(ranks)
            generator = torch.Generator()
            generator.manual_seed(seed + epoch)
            drawn = torch.multinomial(torch.tensor(weights).double(), 12, True, generator=generator).tolist()
            self.assertEqual(drawn, [seen[place % 4][place // 4] for place in range(12)])
            self.assertFalse({0, 3} & set(drawn))

    def test_random_draws_keep_their_length_and_kind(self):
        seen = sum(visits(share(DataLoader(Numbers(4), sampler=RandomSampler(Numbers(4), True, 40)), 2)), [])
        self.assertEqual((40, True), (len(seen), set(seen) <= set(range(4))))
        self.assertNotEqual(sorted(list(range(4)) * 10), sorted(seen))
        twice = DataLoader(Numbers(4), sampler=RandomSampler(Numbers(4), num_samples=8))
        self.assertEqual(sorted(list(range(4)) * 2), sorted(sum(visits(share(twice, 2)), [])))

    def test_a_part_of_the_data_that_a_sampler_names_stays_that_part(self):
        for sampler in (SequentialSampler(range(5)), RandomSampler(range(5))):
            seen = visits(share(DataLoader(Numbers(10), sampler=sampler), 5))
            self.assertEqual([0, 1, 2, 3, 4], sorted(sum(seen, [])))


class Exact(unittest.TestCase):
    def test_no_sample_comes_twice(self):
        loader = DataLoader(Numbers(10))
        self.assertEqual(
            [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]], visits(share(loader, 4, shuffle=False, exact=True))
        )
        for count, world in ((1, 4), (3, 8), (7, 3), (16, 4)):
            for shuffle in (False, True):
                ranks = share(DataLoader(Numbers(count)), world, shuffle=shuffle, exact=True)
                seen = visits(ranks)
                self.assertEqual(list(range(count)), sorted(sum(seen, [])))
                self.assertEqual([len(indices) for indices in seen], [len(rank) for rank in ranks])

    def test_the_order_of_the_data_is_restored(self):
        ten = DataLoader(Numbers(10), batch_size=2)
        subset = DataLoader(Numbers(20), batch_size=2, sampler=SubsetRandomSampler([17, 3, 5, 11, 2]))
        for loader, shuffle, expected in [
            (ten, False, list(range(10))),
            (ten, True, list(range(10))),
            (subset, True, [2, 3, 5, 11, 17]),
        ]:

            def program(client, rank):
                made, sampler = hpcsweep.build_loader_sampler(loader, shuffle, 4, rank, exact=True)
                sampler._mp_sync = functools.partial(sync._mp_sync, client)
                for _ in range(2):
                    seen = torch.cat(list(made))
                rows = sampler.gather_in_order(torch.stack([seen, seen], 1))
                plain = sampler.gather_in_order(seen.tolist(), return_tensor=False)
                return sampler.gather_in_order(seen).tolist(), rows[:, 1].tolist(), plain

            with self.subTest(shuffle=shuffle, expected=expected):
                got, _ = on_ranks(4, program)
                self.assertEqual([(expected, expected, expected)] * 4, got)

    def test_a_rank_may_have_no_sample(self):
        def program(client, rank):
            made, sampler = hpcsweep.build_loader_sampler(DataLoader(Numbers(3)), False, 4, rank, exact=True)
            sampler._mp_sync = functools.partial(sync._mp_sync, client)
            rows = [torch.tensor([index, 7]) for index in map(int, made)]
            got = sampler.gather_in_order(torch.stack(rows) if rows else [])
            return str(got.dtype), got.tolist()

        got, _ = on_ranks(4, program)
        self.assertEqual([("torch.int64", [[0, 7], [1, 7], [2, 7]])] * 4, got)

    def test_a_value_too_few_is_an_error(self):
        made, sampler = hpcsweep.build_loader_sampler(DataLoader(Numbers(10)), False, 1, 0, exact=True)
        with self.assertRaisesRegex(ValueError, r"ranks have \[10\] samples and gave \[9\] values"):
            sampler.gather_in_order([0.0] * 9)
        self.assertEqual(list(range(10)), sampler.gather_in_order(list(made.sampler), return_tensor=False))
        _, padded = hpcsweep.build_loader_sampler(DataLoader(Numbers(10)), False, 1, 0)
        with self.assertRaisesRegex(ValueError, "build it with exact=True"):
            padded.gather_in_order([0.0] * 10)


def keep_int(rows):
    return rows


def no_init(worker):
    pass


class Settings(unittest.TestCase):
    def test_every_setting_is_kept(self):
        settings = {
            "batch_size": 3,
            "num_workers": 2,
            "collate_fn": keep_int,
            "pin_memory": True,
            "drop_last": True,
            "timeout": 17.0,
            "worker_init_fn": no_init,
            "multiprocessing_context": "spawn",
            "generator": torch.Generator(),
            "prefetch_factor": 7,
            "persistent_workers": True,
            "pin_memory_device": "cuda",
            "in_order": False,
        }
        known = inspect.signature(DataLoader.__init__).parameters
        settings = {name: value for name, value in settings.items() if name in known}
        # A setting that a newer torch has is seen here.
        self.assertEqual(set(known) - set(loaders.OWN) - {"dataset"}, set(settings))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = DataLoader(Numbers(30), **settings)
            after, sampler = hpcsweep.build_loader_sampler(before, False, 2, 1)
        for name in list(settings) + ["dataset"]:
            self.assertEqual(getattr(before, name), getattr(after, name), name)
        self.assertIs(sampler, after.sampler)
        self.assertIsInstance(sampler, DistributedSampler)

    def test_the_defaults_are_kept(self):
        for settings in [{}, {"batch_size": None}, {"num_workers": 1}]:
            before = DataLoader(Numbers(3), **settings)
            after, _ = hpcsweep.build_loader_sampler(before, False, 1, 0)
            for name in set(inspect.signature(DataLoader.__init__).parameters) - set(loaders.OWN):
                self.assertEqual(getattr(before, name), getattr(after, name), name)

    def test_batches_of_torch_are_wrapped(self):
        before = DataLoader(Numbers(10), batch_sampler=BatchSampler(SequentialSampler(range(10)), 2, True))
        after, sampler = hpcsweep.build_loader_sampler(before, False, 2, 1)
        self.assertEqual([[1, 3], [5, 7]], [batch.tolist() for batch in after])
        self.assertIs(sampler, after.batch_sampler.sampler)

    def test_what_cannot_be_shared_is_refused_with_a_way_out(self):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))

        class Own(Sampler):
            def __init__(self):
                pass

            def __iter__(self):
                return iter([[0], [1]])

            def __len__(self):
                return 2

        class Loader(DataLoader):
            def __init__(self, extra):
                super().__init__(Numbers(extra))

        weighted = DataLoader(Numbers(3), sampler=WeightedRandomSampler([1.0] * 3, 3))
        for loader, shuffle, kind, sentence in [
            (DataLoader(Stream()), False, ValueError, r"IterableDataset.*hpcsweep.rank\(\)"),
            (DataLoader(Numbers(3), batch_sampler=Own()), False, ValueError, "batch sampler `Own`.*ShareSampler"),
            (DataLoader(Numbers(3), sampler=Own()), False, ValueError, "chosen by a `Own` cannot.*torch's samplers"),
            (DataLoader(Numbers(3), sampler=[2, 1]), False, ValueError, "chosen by a `list`"),
            (DataLoader(Numbers(3), sampler=DistributedSampler(Numbers(3), 1, 0)), True, ValueError, "`DistributedS"),
            (Loader(3), False, ValueError, "`Loader`, whose settings are not known.*ShareSampler"),
            (weighted, False, ValueError, "shuffle must be True"),
            ([1, 2], False, TypeError, "must be a torch DataLoader, not a `list`"),
        ]:
            with self.subTest(sentence=sentence), self.assertRaisesRegex(kind, sentence):
                hpcsweep.build_loader_sampler(loader, shuffle, 1, 0)
        with self.assertRaises(ValueError):
            hpcsweep.build_loader_sampler(DataLoader(Numbers(3)), False, 2, 2)


class Holder:
    def __init__(self, **names):
        self.__dict__.update(names)


class Ranked(Numbers):
    """Says what hpcsweep says where its samples are read."""

    def __getitem__(self, index):
        try:
            hpcsweep.mp_sync(1)
        except hpcsweep.SyncError as e:
            return hpcsweep.rank(), hpcsweep.world_size(), e.sentence


class Processes(unittest.TestCase):
    def test_who_reads_samples_knows_its_rank_and_leaves_the_socket_alone(self):
        with FakeWorker(1) as worker, environment(HPCSWEEP_SYNC=str(worker.ends[0].fileno()), RANK="1", WORLD_SIZE="2"):
            seen = [tuple(said) for said in DataLoader(Ranked(2), batch_size=None, num_workers=1)]
            self.assertEqual([(1, 2, "a worker of a DataLoader cannot sync")] * 2, seen)
            self.assertEqual([], worker.requests)


class Sets(unittest.TestCase):
    def loaders(self):
        return {
            "train_loader": DataLoader(Numbers(10), batch_size=5, shuffle=True),
            "validation_loader": DataLoader(Numbers(10), batch_size=5),
            "test_loader": None,
        }

    def test_a_dict_comes_back_with_other_loaders(self):
        before = self.loaders()
        after = hpcsweep.add_distributed_samplers(before, 4, 1)
        self.assertEqual(list(before), list(after))
        self.assertIsNone(after["test_loader"])
        self.assertEqual([[1, 5, 9]], [batch.tolist() for batch in after["validation_loader"]])
        reference = list(DistributedSampler(Numbers(10), 4, 1))
        self.assertEqual([reference], [batch.tolist() for batch in after["train_loader"]])
        self.assertIsInstance(before["train_loader"].sampler, RandomSampler)

    def test_an_object_gets_other_loaders(self):
        holder = Holder(**self.loaders())
        self.assertIs(holder, hpcsweep.add_distributed_samplers(holder, 4, 3))
        self.assertEqual([[3, 7, 1]], [batch.tolist() for batch in holder.validation_loader])
        self.assertIsNone(holder.test_loader)
        only = Holder(test_loader=DataLoader(Numbers(4)))
        hpcsweep.add_distributed_samplers(only, 2, 0)
        self.assertEqual([0, 2], [int(value) for value in only.test_loader])
        with self.assertRaisesRegex(TypeError, "attributes train_loader, validation_loader, test_loader"):
            hpcsweep.add_distributed_samplers(Holder())

    def test_all_of_them_or_none(self):
        holder = Holder(**self.loaders())
        holder.test_loader = DataLoader(Numbers(3), sampler=[0])
        before = holder.train_loader
        with self.assertRaisesRegex(ValueError, "`list`"):
            hpcsweep.add_distributed_samplers(holder, 2, 0)
        self.assertIs(before, holder.train_loader)
        with self.assertRaisesRegex(TypeError, "`b` must be a torch DataLoader, not a `int`"):
            hpcsweep.add_distributed_samplers({"a": None, "b": 3})

    def test_exact_spares_the_loader_that_trains(self):
        after = [hpcsweep.add_distributed_samplers(self.loaders(), 4, rank, exact=True) for rank in range(4)]
        self.assertEqual([3, 3, 2, 2], [len(each["validation_loader"].sampler) for each in after])
        self.assertEqual([3, 3, 3, 3], [len(each["train_loader"].sampler) for each in after])

    def test_rank_and_world_size_are_those_of_the_trial(self):
        with environment(RANK="1", WORLD_SIZE="2"):
            made = hpcsweep.add_distributed_samplers({"a": DataLoader(Numbers(4))})
        self.assertEqual([1, 3], [int(value) for value in made["a"]])
        with environment():
            made = hpcsweep.add_distributed_samplers({"a": DataLoader(Numbers(3))})
        self.assertEqual([0, 1, 2], [int(value) for value in made["a"]])


if __name__ == "__main__":
    unittest.main()
