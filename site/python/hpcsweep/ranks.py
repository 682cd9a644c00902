"""Which rank this process is, where no worker says it: the one place that decides it."""

import json
import os
import sys
from typing import List, Optional, Sequence, Tuple

from . import groups
from .channel import SyncError

# What launchers call rank and number of ranks, in the order in which hpcsweep's worker believes them, and what tells one launch
# from another.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "PMIX_NAMESPACE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_ID"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MPIRUN_ID"),
    ("PALS_RANKID", "PMI_SIZE", "PALS_APID"),
    ("PMI_RANK", "PMI_SIZE", "PMI_FD"),
    # Those of a step: a batch script has SLURM_PROCID too, and is one process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"),
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
    if "HPCSWEEP_TRIAL" not in os.environ:
        found = _believed(LAUNCHERS)
    else:
        # A worker gives its program the first variables, whatever those of its own launcher are about.
        found = max(_believed(_begun_within()), key=lambda own: own[1], default=None)
        found = _believed(LAUNCHERS[:1]) if found is None else [found]
    if found:
        return found[0]
    rank_name, size_name, _ = LAUNCHERS[0]
    rank, size = _number(rank_name), _number(size_name)
    known, value, missing = (rank_name, rank or 0, size_name) if size is None else (size_name, size - 1, rank_name)
    if value > 0:
        raise SyncError(
            "%s=%s is set, and %s is not: this is one of several ranks, and nothing says which"
            % (known, os.environ[known], missing),
            "call torch.distributed.init_process_group before, or set both",
        )
    return None


def _believed(launchers: Sequence[Tuple[str, str, str]]) -> List[Tuple[int, int]]:
    """Rank and number of ranks by each of these launchers that has set both."""
    pairs = [(_number(rank_name), _number(size_name)) for rank_name, size_name, _ in launchers]
    return [(rank, size) for rank, size in pairs if rank is not None and size is not None]


def _begun_within() -> List[Tuple[str, str, str]]:
    """The launchers that the program of a trial has called: their variables are not what its worker saw."""
    seen = os.environ.get("HPCSWEEP_LAUNCHER")
    if seen is None:
        return []
    outer = json.loads(seen)
    return [names for names in LAUNCHERS if any(os.environ.get(name) != outer.get(name) for name in names)]


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
