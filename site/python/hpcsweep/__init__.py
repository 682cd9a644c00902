"""Sweeps of a function, and functions for the program of a trial.

    import hpcsweep

    sweep = hpcsweep.Sweep("results/demo")
    sweep.grid(lr=[0.1, 0.01], layers=[1, 2])
    results = sweep.run(train)                  # train(lr=..., layers=...), here and wherever else this is started

    hpcsweep.params(), hpcsweep.report(loss=loss), hpcsweep.checkpoint_dir()        # in a trial, however it is run

    hpcsweep.load("results/*"), hpcsweep.load("results/*", form="pandas")       # any sweep; also steps(), attempts()
    hpcsweep.best("results/demo", metric="loss", mode="min")        # the best settings over their seeds; also compare(), effects()

    losses = hpcsweep.mp_sync(loss)             # one value a rank, equal on every rank
    means = hpcsweep.reduce({"loss": loss}, weight=len(batch))
    loaders = hpcsweep.add_distributed_samplers({"train": train, "validation": validation})

Only the standard library is needed: torch and numpy are used where the caller's values are theirs. See
docs/python.md.
"""

import importlib
from typing import TYPE_CHECKING, List

from .channel import SyncError
from .program import SweepError
from .sync import mp_sync, mp_sync_dict, rank, reduce, world_size
from .trial import Dropped, Interrupted, checkpoint_dir, params, report, result, should_stop, time_left

if TYPE_CHECKING:
    # What `__getattr__` finds when the program asks for it, for those who read types.
    from .answers import attempts, best, compare, effects, load, steps
    from .loaders import add_distributed_samplers as add_distributed_samplers
    from .loaders import build_loader_sampler as build_loader_sampler
    from .sweep import Record, Stopped, Submission, Sweep

# As Cargo.toml has it.
__version__ = "0.1.0"

__all__ = [
    "Dropped",
    "Interrupted",
    "Record",
    "Stopped",
    "Submission",
    "Sweep",
    "SweepError",
    "SyncError",
    "attempts",
    "best",
    "checkpoint_dir",
    "compare",
    "effects",
    "load",
    "mp_sync",
    "mp_sync_dict",
    "params",
    "rank",
    "reduce",
    "report",
    "result",
    "should_stop",
    "steps",
    "time_left",
    "world_size",
]

# Not part of `from hpcsweep import *`, which would import torch.
_OF_TORCH = ["add_distributed_samplers", "build_loader_sampler"]


if not TYPE_CHECKING:

    def __getattr__(name):
        # These need torch, which takes seconds to import: only who asks for them waits.
        if name in ("loaders", "samplers"):
            return importlib.import_module("." + name, __name__)
        if name in _OF_TORCH:
            return getattr(importlib.import_module(".loaders", __name__), name)
        # And this needs more of the standard library than a trial does.
        if name in ("Record", "Stopped", "Submission", "Sweep"):
            return getattr(importlib.import_module(".sweep", __name__), name)
        if name in ("attempts", "best", "compare", "effects", "load", "steps"):
            return getattr(importlib.import_module(".answers", __name__), name)
        raise AttributeError("module 'hpcsweep' has no attribute '%s'" % name)


def __dir__() -> List[str]:
    return sorted(__all__ + _OF_TORCH)
