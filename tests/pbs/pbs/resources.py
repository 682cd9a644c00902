"""Requests for resources: `-l`, chunks of `select`, walltimes, and the list that a job shows."""

import math
import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

from .errors import (
    BAD_VALUE,
    PERMISSION,
    UNKNOWN_RESOURCE,
    Misuse,
    Refusal,
)

BUILT_IN = (
    "arch cput file host max_walltime mem min_walltime mpiprocs ncpus nice nodect nodes ompthreads place pmem "
    "pvmem select soft_walltime vmem vnode walltime"
).split()
WHOLE = ("ncpus", "ngpus", "mpiprocs", "ompthreads", "nodect", "nice")
SIZES = ("mem", "vmem", "pmem", "pvmem", "file")
TIMES = ("walltime", "cput", "min_walltime", "max_walltime")

_SIZE = re.compile(r"\d+([kmgtp]?[bw]?)", re.IGNORECASE)
_PLACE = re.compile(r"(free|pack|scatter|vscatter|excl|exclhost|shared)(:(excl|exclhost|shared|group=\w+))*")
ILLEGAL = "Illegal attribute or resource value Resource_List."


@dataclass
class Chunk:
    """What must lie on one host."""

    ncpus: int = 1
    ngpus: int = 0
    mem: Optional[str] = None
    mpiprocs: Optional[int] = None
    ompthreads: Optional[int] = None

    @property
    def ranks(self) -> int:
        """Lines in the node file."""
        return 1 if self.mpiprocs is None else self.mpiprocs

    @property
    def threads(self) -> int:
        """NCPUS and OMP_NUM_THREADS of its job, when it is the first."""
        if self.mpiprocs == 0:
            return 0
        return self.ncpus if self.ompthreads is None else self.ompthreads

    @property
    def text(self) -> str:
        """As in `exec_vnode`."""
        parts = [f"ncpus={self.ncpus}"]
        if self.mem is not None:
            parts.append(f"mem={self.mem}")
        if self.ngpus:
            parts.append(f"ngpus={self.ngpus}")
        return ":".join(parts)


@dataclass
class Request:
    """All that a job asks for."""

    chunks: List[Chunk]
    place: str
    # Seconds.
    walltime: Optional[int]
    # As `Resource_List` shows it, sorted.
    shown: Dict[str, str] = field(default_factory=dict)

    def total(self, name: str) -> int:
        """Sum over the chunks of `ncpus` or `ngpus`."""
        return sum(getattr(chunk, name) for chunk in self.chunks)


def seconds(text: str) -> Optional[int]:
    """A walltime; None where it is none."""
    parts = text.split(":")
    if len(parts) > 3 or not all(re.fullmatch(r"\d+", part) for part in parts[:-1]):
        return None
    if not re.fullmatch(r"\d+(\.\d*)?", parts[-1]):
        return None
    whole = math.ceil(float(parts[-1]))
    for at, part in enumerate(reversed(parts[:-1])):
        whole += int(part) * 60 ** (at + 1)
    return whole


def clock(whole: int) -> str:
    """Seconds as PBS shows them."""
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def split(values: Sequence[str]) -> Dict[str, str]:
    """The resources of `-l` options; what is named twice is what was said first."""
    found: Dict[str, str] = {}
    for value in values:
        for part in value.split(","):
            name, equals, given = part.partition("=")
            if not name or not equals:
                raise Misuse("qsub: illegal -l value")
            found.setdefault(name.strip(), given)
    return found


def _chunks(text: str, custom: Sequence[str]) -> List[Chunk]:
    chunks: List[Chunk] = []
    for part in text.split("+"):
        pieces = part.split(":")
        count = 1
        if "=" not in pieces[0]:
            if not pieces[0].isdigit():
                raise Refusal(BAD_VALUE, ILLEGAL + "select")
            count = int(pieces.pop(0))
            if count == 0:
                raise Refusal(BAD_VALUE)
        chunk = Chunk()
        for piece in pieces:
            name, equals, value = piece.partition("=")
            if name not in BUILT_IN and name not in custom:
                raise Refusal(UNKNOWN_RESOURCE, f"Unknown resource: {name}")
            is_good = _SIZE.fullmatch(value) if name in SIZES else value.isdigit() or name not in WHOLE
            if not equals or not value or not is_good:
                raise Refusal(BAD_VALUE, ILLEGAL + "select")
            if name in ("ncpus", "ngpus", "mpiprocs", "ompthreads"):
                setattr(chunk, name, int(value))
            elif name == "mem":
                chunk.mem = value
        chunks.extend([chunk] * count)
    return chunks


def _nodes(text: str) -> str:
    """`nodes=2:ppn=2` as a `select`."""
    parts = []
    for part in text.split("+"):
        found = re.fullmatch(r"(\d+)(?::ppn=(\d+))?", part)
        if found is None:
            raise Refusal(BAD_VALUE, ILLEGAL + "nodes")
        count, each = found.group(1), found.group(2)
        parts.append(f"{count}:ncpus={each}:mpiprocs={each}" if each else f"{count}:ncpus=1")
    return "+".join(parts)


def _check(given: Dict[str, str], custom: Sequence[str]) -> None:
    for name, value in given.items():
        if name not in BUILT_IN and name not in custom:
            raise Refusal(UNKNOWN_RESOURCE, f"Unknown resource Resource_List.{name}")
        if name == "soft_walltime":
            text = "Cannot set attribute, read only or insufficient permission  Resource_List.soft_walltime"
            raise Refusal(PERMISSION, text)
        is_bad = (
            (name in WHOLE and not value.isdigit())
            or (name in SIZES and not _SIZE.fullmatch(value))
            or (name in TIMES and seconds(value) is None)
            or (name == "place" and not _PLACE.fullmatch(value))
        )
        if is_bad:
            raise Refusal(BAD_VALUE, ILLEGAL + name)


def request(given: Dict[str, str], custom: Sequence[str]) -> Request:
    """What `-l` asks for, checked as the server does."""
    given = dict(given)
    _check(given, custom)
    shown = {name: clock(seconds(value) or 0) if name in TIMES else value for name, value in given.items()}
    if "nodes" in given and "select" not in given:
        given["select"] = _nodes(given["nodes"])
        given.setdefault("place", "scatter")
    if "select" in given:
        for name in ("ncpus", "ngpus", "mpiprocs", "mem"):
            if name in given:
                text = f'"-lresource=" cannot be used with "select" or "place", resource is: {name}'
                raise Refusal(15109, text)
        chunks = _chunks(given["select"], custom)
        select, place = given["select"], given.get("place", "free")
    else:
        chunks, select = _one_chunk(given)
        place = given.get("place", "pack")
    shown.update(_sums(chunks, given))
    shown["nodect"] = str(len(chunks))
    shown["place"] = place
    shown["select"] = select
    walltime = seconds(given["walltime"]) if "walltime" in given else None
    return Request(chunks, place, walltime, dict(sorted(shown.items())))


def _one_chunk(given: Dict[str, str]) -> Tuple[List[Chunk], str]:
    chunk = Chunk(ncpus=int(given.get("ncpus", "1")), ngpus=int(given.get("ngpus", "0")), mem=given.get("mem"))
    select = f"1:{chunk.text}"
    if "mpiprocs" in given:
        chunk.mpiprocs = int(given["mpiprocs"])
        select += f":mpiprocs={chunk.mpiprocs}"
    return [chunk], select


def _sums(chunks: Sequence[Chunk], given: Dict[str, str]) -> Dict[str, str]:
    sums = {"ncpus": str(sum(chunk.ncpus for chunk in chunks))}
    if "ngpus" in given or any(chunk.ngpus for chunk in chunks):
        sums["ngpus"] = str(sum(chunk.ngpus for chunk in chunks))
    if any(chunk.mpiprocs is not None for chunk in chunks):
        sums["mpiprocs"] = str(sum(chunk.mpiprocs or 0 for chunk in chunks))
    sizes = [chunk.mem for chunk in chunks if chunk.mem is not None]
    if len(sizes) == 1:
        sums["mem"] = sizes[0]
    elif sizes:
        sums["mem"] = f"{sum(map(_bytes, sizes)) // 1024}kb"
    return sums


def _bytes(text: str) -> int:
    found = re.match(r"\d+", text)
    number = int(found.group()) if found else 0
    unit = text[len(str(number)) :].lower().rstrip("b")
    return number << (10 * " kmgtp".index(unit[0]) if unit else 0)
