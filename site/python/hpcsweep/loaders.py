"""DataLoaders of one process made loaders of one rank: with all their settings, and a share of their data."""

import inspect
from typing import Any, Optional, Tuple

import torch.utils.data as data

from .samplers import RandomDrawSampler, ShareSampler, SubsetSampler, WeightedSampler

# The attributes of an object that holds loaders.
LOADERS = ("train_loader", "validation_loader", "test_loader")
# Settings that the new loader gets from its sampler.
OWN = ("self", "shuffle", "sampler", "batch_sampler")


def add_distributed_samplers(
    loaders: Any, world_size: Optional[int] = None, rank: Optional[int] = None, exact: bool = False
) -> Any:
    """Loaders that share their data among the ranks, shuffled if they were shuffled before.

    loaders: a dict with loaders (a new dict is returned), or an object with the attributes train_loader,
        validation_loader, test_loader (which are replaced; the object is returned). None is passed over.
    exact: no loader but those whose names begin with "train" is padded with samples that were there
        already. For evaluation; see `gather_in_order` of their samplers.
    """
    is_dict = isinstance(loaders, dict)
    found = loaders if is_dict else {name: getattr(loaders, name) for name in LOADERS if hasattr(loaders, name)}
    if not is_dict and not found:
        raise TypeError(
            "a dict of loaders, or an object with one of the attributes %s, is needed, not a `%s`"
            % (", ".join(LOADERS), type(loaders).__name__)
        )
    made = {}
    for name, loader in found.items():
        made[name] = loader
        if loader is not None:
            _check(loader, "`%s`" % name)
            shuffle = type(_sampler(loader)) is not data.SequentialSampler
            # Ranks that train take equally many steps.
            is_exact = exact and not str(name).startswith("train")
            made[name], _ = build_loader_sampler(loader, shuffle, world_size, rank, exact=is_exact)
    if is_dict:
        return made
    # Only now: all of them, or none.
    for name, loader in made.items():
        setattr(loaders, name, loader)
    return loaders


def build_loader_sampler(
    data_loader: Any,
    shuffle: bool,
    world_size: Optional[int] = None,
    rank: Optional[int] = None,
    seed: int = 0,
    exact: bool = False,
) -> Tuple[Any, ShareSampler]:
    """A copy of a loader that reads this rank's share of its samples, and the sampler in it.

    Every setting is kept. A subset stays a subset, a weighted draw one draw among all ranks. What cannot
    be shared without guessing (a batch sampler or sampler of one's own, a stream) is a ValueError.
    """
    _check(data_loader, "the data loader")
    settings = {"world_size": world_size, "rank": rank, "shuffle": shuffle, "seed": seed, "exact": exact}
    sampler = _share(_sampler(data_loader), data_loader.dataset, settings)
    names = [name for name in inspect.signature(data.DataLoader.__init__).parameters if name not in OWN]
    kept = {name: getattr(data_loader, name) for name in names}
    batches = data_loader.batch_sampler
    if data_loader.batch_size is None and batches is not None:
        # A batch sampler of torch's, given by the user: batches are its business alone.
        kept.pop("batch_size"), kept.pop("drop_last")
        kept["batch_sampler"] = data.BatchSampler(sampler, batches.batch_size, batches.drop_last)
    else:
        kept["sampler"] = sampler
    return type(data_loader)(**kept), sampler


def _sampler(loader: Any) -> Any:
    """What chooses the samples: of a given batch sampler, the one inside."""
    batches = loader.batch_sampler
    return batches.sampler if loader.batch_size is None and batches is not None else loader.sampler


def _check(loader: Any, name: str) -> None:
    if not isinstance(loader, data.DataLoader):
        raise TypeError("%s must be a torch DataLoader, not a `%s`" % (name, type(loader).__name__))
    if type(loader).__init__ is not data.DataLoader.__init__:
        raise ValueError(
            "%s is a `%s`, whose settings are not known: build it with sampler=hpcsweep.samplers.ShareSampler("
            "dataset) yourself" % (name, type(loader).__name__)
        )
    if isinstance(loader.dataset, data.IterableDataset):
        raise ValueError(
            "%s reads an IterableDataset, which has no indices to share: let its __iter__ pass over what is not "
            "for hpcsweep.rank() of hpcsweep.world_size()" % name
        )
    batches = loader.batch_sampler
    if loader.batch_size is None and batches is not None and type(batches) is not data.BatchSampler:
        raise ValueError(
            "%s has the batch sampler `%s`, whose batches cannot be shared without knowing it: share the samples "
            "inside of it, with hpcsweep.samplers.ShareSampler(dataset)" % (name, type(batches).__name__)
        )


def _share(sampler: Any, dataset: Any, settings: dict) -> ShareSampler:
    kind = type(sampler)
    if kind is data.SubsetRandomSampler:
        return SubsetSampler(dataset, sampler.indices, **settings)
    if kind is data.SequentialSampler:
        return ShareSampler(sampler.data_source, **settings)
    if kind is data.RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        return ShareSampler(sampler.data_source, **settings)
    if kind not in (data.RandomSampler, data.WeightedRandomSampler):
        raise ValueError(
            "samples chosen by a `%s` cannot be shared without knowing it: use one of torch's samplers, or one that "
            "knows hpcsweep.rank() and hpcsweep.world_size()" % kind.__name__
        )
    if not settings["shuffle"]:
        raise ValueError("a `%s` draws at random and has no order to keep: shuffle must be True" % kind.__name__)
    if kind is data.RandomSampler:
        return RandomDrawSampler(sampler.data_source, sampler.num_samples, sampler.replacement, **settings)
    return WeightedSampler(dataset, sampler.weights, sampler.num_samples, sampler.replacement, **settings)
