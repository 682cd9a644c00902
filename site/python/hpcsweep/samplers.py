"""Samplers that share one draw of indices among the ranks. torch from 1.13 on.

Every rank makes the same list of indices, from seed and epoch, and takes every `world_size`-th of it. For
a whole data set that is torch's DistributedSampler, index for index.
"""

import math
from typing import Any, Iterator, List, Optional

import torch
from torch.utils.data.distributed import DistributedSampler

from . import sync
from .values import library


class ShareSampler(DistributedSampler):
    """This rank's share of a data set: all indices, in order or shuffled.

    Each iteration is an epoch of its own, shuffled anew, unless `set_epoch` is called: then it is the
    epoch that was set, as with torch. The last indices are padded with the first, so that all ranks have
    equally many; with `exact` they are not, and ranks differ by one at most.
    """

    def __init__(
        self,
        dataset: Any,
        world_size: Optional[int] = None,
        rank: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 0,
        exact: bool = False,
    ):
        world_size = sync.world_size() if world_size is None else world_size
        rank = sync.rank() if rank is None else rank
        super().__init__(dataset, world_size, rank, shuffle=shuffle, seed=seed)
        self.exact = exact
        count = self.count()
        self.num_samples = len(range(rank, count, world_size)) if exact else math.ceil(count / world_size)
        self.total_size = count if exact else self.num_samples * world_size
        self._was_set = False
        self._next = 0
        self._visited = 0

    _mp_sync = staticmethod(sync.mp_sync)

    def count(self) -> int:
        """How many indices one draw has, before padding."""
        return len(self.dataset)

    def draw(self, generator: torch.Generator) -> List[int]:
        """The indices of one epoch, the same on every rank."""
        return _order(self.count(), self.shuffle, generator)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of all iterations from now on, until the next call."""
        self.epoch = epoch
        self._was_set = True

    def resume(self, epoch: int) -> None:
        """The next iteration is this epoch, the one after it the next epoch."""
        self._next = epoch
        self._was_set = False

    def __iter__(self) -> Iterator[int]:
        # A generator, because DataLoader makes iterators that it never reads. Such an iterator must
        # not count as an epoch.
        if not self._was_set:
            self.epoch = self._next
            self._next += 1
        self._visited = self.epoch
        yield from self._padded()[self.rank : self.total_size : self.num_replicas]

    def _padded(self) -> List[int]:
        """The indices of all ranks in the epoch visited last."""
        generator = torch.Generator()
        generator.manual_seed(self.seed + self._visited)
        indices = self.draw(generator)
        missing = self.total_size - len(indices)
        if missing > 0:
            indices += (indices * math.ceil(missing / len(indices)))[:missing]
        return indices

    def gather_in_order(self, values: Any, double_precision: bool = False, return_tensor: bool = True) -> Any:
        """`mp_sync` of one value (a row) for each sample of this rank, in the order of the data set.

        Only with `exact`, after all samples of an epoch were visited.
        """
        if not self.exact:
            raise ValueError("only an exact sampler has one value for each sample: build it with exact=True")
        pieces = self._mp_sync(values, double_precision, False, return_tensor)
        lengths = [len(range(rank, self.total_size, self.num_replicas)) for rank in range(self.num_replicas)]
        if [len(piece) for piece in pieces] != lengths:
            raise ValueError(
                "one value for each sample is needed: ranks have %s samples and gave %s values (a loader with "
                "drop_last gives fewer)" % (lengths, [len(piece) for piece in pieces])
            )
        # Where each value came from, rank by rank, and then in the order of the data set.
        indices = self._padded()
        came = [index for rank in range(self.num_replicas) for index in indices[rank :: self.num_replicas]]
        # A rank without samples has nothing that says what its values would have been.
        pieces = [piece for piece in pieces if len(piece) > 0] or pieces[:1]
        return _rows(pieces, sorted(range(len(came)), key=came.__getitem__))


class SubsetSampler(ShareSampler):
    """A share of some indices of a data set, never of another."""

    def __init__(self, dataset: Any, indices: Any, **settings: Any):
        self.indices = [int(index) for index in indices]
        super().__init__(dataset, **settings)

    def count(self) -> int:
        return len(self.indices)

    def draw(self, generator: torch.Generator) -> List[int]:
        return [self.indices[place] for place in _order(self.count(), self.shuffle, generator)]


class RandomDrawSampler(ShareSampler):
    """A share of a draw of some length, with or without replacement, as RandomSampler makes it."""

    def __init__(self, dataset: Any, num_draws: int, replacement: bool, **settings: Any):
        self.num_draws = num_draws
        self.replacement = replacement
        super().__init__(dataset, **settings)

    def count(self) -> int:
        return self.num_draws

    def draw(self, generator: torch.Generator) -> List[int]:
        size = len(self.dataset)
        if self.replacement:
            return torch.randint(size, (self.num_draws,), generator=generator).tolist()
        rounds = math.ceil(self.num_draws / size)
        indices = [index for _ in range(rounds) for index in torch.randperm(size, generator=generator).tolist()]
        return indices[: self.num_draws]


class WeightedSampler(ShareSampler):
    """A share of one weighted draw, as WeightedRandomSampler makes it."""

    def __init__(self, dataset: Any, weights: Any, num_draws: int, replacement: bool = True, **settings: Any):
        self.weights = torch.as_tensor(weights, dtype=torch.double)
        self.num_draws = num_draws
        self.replacement = replacement
        super().__init__(dataset, **settings)

    def count(self) -> int:
        return self.num_draws

    def draw(self, generator: torch.Generator) -> List[int]:
        return torch.multinomial(self.weights, self.num_draws, self.replacement, generator=generator).tolist()


def _order(count: int, shuffle: bool, generator: torch.Generator) -> List[int]:
    return torch.randperm(count, generator=generator).tolist() if shuffle else list(range(count))


def _rows(pieces: List[Any], order: List[int]) -> Any:
    """The rows of all pieces in another order, as what the pieces are."""
    if isinstance(pieces[0], torch.Tensor):
        joined = torch.cat(pieces)
        return joined[torch.tensor(order, dtype=torch.long, device=joined.device)]
    numpy = library("numpy")
    if isinstance(pieces[0], getattr(numpy, "ndarray", ())):
        return numpy.concatenate(pieces)[order]
    rows = [row for piece in pieces for row in piece]
    return [rows[place] for place in order]
