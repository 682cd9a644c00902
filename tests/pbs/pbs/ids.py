"""Job identifiers, and ranges of array indices as PBS writes them."""

import re
from dataclasses import dataclass
from typing import List, Optional, Sequence

SERVER = "pbshead"

_ID = re.compile(r"(\d+)(\[([\d,:-]*)\])?(\.[A-Za-z0-9.-]+)?(@[A-Za-z0-9.-]+)?")
_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_ARRAY = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?:%(-?\d+))?")


@dataclass(frozen=True)
class JobId:
    """One that somebody wrote: a job, an array, or some of its elements."""

    sequence: int
    is_array: bool
    # None where the whole is meant.
    indices: Optional[Sequence[int]]

    @property
    def text(self) -> str:
        """The whole job's identifier as the server writes it."""
        return f"{self.sequence}{'[]' if self.is_array else ''}.{SERVER}"


def parse(text: str) -> Optional[JobId]:
    """What an identifier means; None where it is none."""
    found = _ID.fullmatch(text)
    if found is None:
        return None
    sequence = int(found.group(1))
    if found.group(2) is None:
        return JobId(sequence, False, None)
    if not found.group(3):
        return JobId(sequence, True, None)
    indices: List[int] = []
    for part in found.group(3).split(","):
        bounds = _PART.fullmatch(part)
        if bounds is None:
            return None
        first = int(bounds.group(1))
        last = int(bounds.group(2) or first)
        indices.extend(range(first, last + 1, int(bounds.group(3) or 1)))
    return JobId(sequence, True, indices)


def full(text: str) -> str:
    """An identifier with the server's name."""
    bare = text.split("@")[0]
    return bare if "." in bare else f"{bare}.{SERVER}"


@dataclass(frozen=True)
class ArraySpec:
    """The value of `-J`."""

    text: str
    first: int
    last: int
    step: int
    limit: Optional[int]

    @property
    def indices(self) -> range:
        """All its indices."""
        return range(self.first, self.last + 1, self.step)


def array_spec(text: str) -> Optional[ArraySpec]:
    """`X-Y[:Z][%N]`; None for what the client refuses."""
    found = _ARRAY.fullmatch(text)
    if found is None:
        return None
    first, last, step = int(found.group(1)), int(found.group(2)), int(found.group(3) or 1)
    if last <= first or step < 1:
        return None
    limit = int(found.group(4)) if found.group(4) is not None else None
    return ArraySpec(text.split("%")[0], first, last, step, limit)


def remaining(indices: Sequence[int], spec: ArraySpec) -> str:
    """Indices as ranges: `0-2,6-7,9`, or `-` for none. A range up to the end keeps the end that was asked for."""
    parts: List[str] = []
    start = 0
    for at in range(1, len(indices) + 1):
        if at < len(indices) and indices[at] == indices[at - 1] + spec.step:
            continue
        first, last = indices[start], indices[at - 1]
        start = at
        if first == last:
            parts.append(str(first))
            continue
        end = spec.last if last == spec.indices[-1] else last
        parts.append(f"{first}-{end}" + (f":{spec.step}" if spec.step > 1 else ""))
    return ",".join(parts) or "-"
