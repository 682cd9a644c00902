"""Threads of this process that a fork of it would lose, and wait for: those of libraries, which Python does not know."""

import ctypes
import os
import re
import threading
from typing import List

# They stand still in a fork that has none of their work: the sockets of a notebook.
_HARMLESS = re.compile(r"^ZMQbg/")
_OPENBLAS = re.compile(r"/lib(?:scipy_)?openblas[^/]*\.so[^/]*$")


def foreign() -> List[str]:
    """The names of the threads of libraries, sorted; those of OpenBLAS, which prepares for forks, left out.

    polars, OpenMP and gRPC wait in a fork for ever for threads that only the other process has.
    """
    names = list(filter(None, map(_name, _ids() - {thread.native_id for thread in threading.enumerate()})))
    own = _name(os.getpid())
    for _ in range(_of_openblas()):
        # Its threads have the name of the process.
        if own in names:
            names.remove(own)
    return sorted(name for name in names if not _HARMLESS.match(name))


def _ids() -> set:
    try:
        return {int(number) for number in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def _name(thread: int) -> str:
    """Its name, empty if it has ended."""
    try:
        with open("/proc/self/task/%d/comm" % thread, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _of_openblas() -> int:
    """How many threads the copies of OpenBLAS in this process may have beside the calling one."""
    count = 0
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if ".so" in line}
    for path in filter(_OPENBLAS.search, paths):
        try:
            library = ctypes.CDLL(path, os.RTLD_NOLOAD)
        except OSError:
            continue
        names = [front + "openblas_get_num_threads" + end for front in ("", "scipy_") for end in ("", "64_", "_64_")]
        found = [name for name in names if hasattr(library, name)]
        count += int(getattr(library, found[0])()) - 1 if found else 0
    return count
