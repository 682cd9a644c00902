"""What a program of a trial may ask of hpcsweep: values of all ranks, and loaders that share a data set.

    import hpcsweep

    losses = hpcsweep.mp_sync(loss)             # one value a rank, equal on every rank
    means = hpcsweep.reduce({"loss": loss}, weight=len(batch))
    loaders = hpcsweep.add_distributed_samplers({"train": train, "validation": validation})

The worker of the trial carries it out over MPI; outside of a worker there is one rank. Only the standard
library is needed: torch and numpy are used where the caller's values are theirs. See docs/python.md.
"""

import importlib

from .channel import SyncError
from .sync import mp_sync, mp_sync_dict, rank, reduce, world_size

__all__ = [
    "SyncError",
    "add_distributed_samplers",
    "build_loader_sampler",
    "mp_sync",
    "mp_sync_dict",
    "rank",
    "reduce",
    "world_size",
]


def __getattr__(name):
    # These need torch, which takes seconds to import: only who asks for them waits.
    if name in ("loaders", "samplers"):
        return importlib.import_module("." + name, __name__)
    if name in ("add_distributed_samplers", "build_loader_sampler"):
        return getattr(importlib.import_module(".loaders", __name__), name)
    raise AttributeError("module 'hpcsweep' has no attribute '%s'" % name)


def __dir__():
    return sorted(__all__)
