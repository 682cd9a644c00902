"""Which rank this process is, where no worker says it: the one place that decides it."""

import os
import sys
from typing import Optional, Tuple

from . import groups
from .channel import SyncError

# What launchers call rank and number of ranks, in the order in which hpcsweep's worker believes them.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PALS_RANKID", "PMI_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    # Those of a step: a batch script has SLURM_PROCID too, and is one process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def own(is_alone: bool = False, loads_data: bool = False) -> Tuple[int, int]:
    """Rank and number of ranks by the program's process group, or by the process that started this one.

    is_alone: this process is the only rank where nothing else is known. loads_data: it is a DataLoader's worker, and the
    rank is that of the process that has started it. A SyncError if it may be one of several and nothing says which.
    """
    group = groups.current()
    found = (0, 1) if group is None else group.hello()
    if found[1] == 1:
        found = _launched() or found
    if found[1] == 1 and group is None and not is_alone and (_BEGAN_AS_CHILD if loads_data else _is_a_child()):
        raise SyncError(
            "a process of `multiprocessing` cannot tell which rank it is, and would have its own values only",
            "call torch.distributed.init_process_group before, or hand rank and world_size on from the process that knows them",
        )
    return found


def within_trial() -> Optional[int]:
    """The number of this process among the ranks that the program of a trial has started; None if it knows none."""
    try:
        rank, world = own(is_alone=True)
    except SyncError:
        # A launcher that starts processes one by one sets this before the others.
        rank, world = _number("LOCAL_RANK") or 0, 2
    return rank if world > 1 else None


def _launched() -> Optional[Tuple[int, int]]:
    """What the process that started this one says."""
    # A worker gives its program the first variables, whatever the launcher's variables are about.
    names = LAUNCHERS[:1] if "HPCSWEEP_TRIAL" in os.environ else LAUNCHERS
    for rank_name, size_name in names:
        rank, size = _number(rank_name), _number(size_name)
        if rank is not None and size is not None:
            return rank, size
    rank_name, size_name = LAUNCHERS[0]
    rank, size = _number(rank_name), _number(size_name)
    known, value, missing = (rank_name, rank or 0, size_name) if size is None else (size_name, size - 1, rank_name)
    if value > 0:
        raise SyncError(
            "%s=%s is set, and %s is not: this is one of several ranks, and nothing says which"
            % (known, os.environ[known], missing),
            "call torch.distributed.init_process_group before, or set both",
        )
    return None


def _number(name: str) -> Optional[int]:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def _is_a_child() -> bool:
    """Whether `multiprocessing` has started this process."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def is_imported_by_child() -> bool:
    """Whether a process of `multiprocessing` that is no fork just imports what it is to run: also the program's script."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


# A fork knows what the process knew that it is a fork of.
_BEGAN_AS_CHILD = _is_a_child() or is_imported_by_child()
