"""Where chunks lie: the hosts, what is taken of them, and the search for room."""

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set

from .config import Host
from .resources import Chunk, Request


@dataclass(frozen=True)
class Placement:
    """One chunk on one host."""

    host: str
    slot: int
    chunk: Chunk


class Hosts:
    """What is taken of each host."""

    def __init__(self) -> None:
        self._taken: Dict[str, List[Placement]] = {}

    def _free(self, host: Host, name: str, also: Sequence[Placement]) -> int:
        taken = self._taken.get(host.name, []) + [one for one in also if one.host == host.name]
        total: int = getattr(host, name)
        used: int = sum(getattr(one.chunk, name) for one in taken)
        return total - used

    def _fits(self, host: Host, chunk: Chunk, also: Sequence[Placement]) -> bool:
        return all(self._free(host, name, also) >= getattr(chunk, name) for name in ("ncpus", "ngpus"))

    def _slot(self, host: Host, also: Sequence[Placement]) -> int:
        taken = self._taken.get(host.name, []) + [one for one in also if one.host == host.name]
        used: Set[int] = {one.slot for one in taken}
        slot = 0
        while slot in used:
            slot += 1
        return slot

    def place(self, request: Request, hosts: Sequence[Host]) -> Optional[List[Placement]]:
        """Room for all chunks, taken; None where there is none now."""
        kinds = request.place.split(":")
        if "pack" in kinds:
            tries = [[host] for host in hosts]
        else:
            tries = [list(hosts)]
        for candidates in tries:
            found = self._try(request, candidates, "scatter" in kinds or "vscatter" in kinds)
            if found is not None:
                for one in found:
                    self._taken.setdefault(one.host, []).append(one)
                return found
        return None

    def _try(self, request: Request, hosts: Sequence[Host], scatters: bool) -> Optional[List[Placement]]:
        found: List[Placement] = []
        left = list(hosts)
        for chunk in request.chunks:
            host = next((one for one in left if self._fits(one, chunk, found)), None)
            if host is None:
                return None
            found.append(Placement(host.name, self._slot(host, found), chunk))
            if scatters:
                left.remove(host)
        return found

    def free(self, placements: Sequence[Placement]) -> None:
        """Gives room back."""
        for one in placements:
            self._taken[one.host].remove(one)

    def why_not(self, request: Request, hosts: Sequence[Host]) -> str:
        """The scheduler's comment on a job that does not run."""
        for name in ("ncpus", "ngpus"):
            asked, total = request.total(name), sum(getattr(host, name) for host in hosts)
            free = sum(self._free(host, name, ()) for host in hosts)
            text = f"Insufficient amount of resource: {name}"
            counts = f"(R: {asked} A: {{}} T: {total})"
            if asked > total:
                return f"Can Never Run: {text} {counts.format(total)}"
            if asked > free:
                return f"Not Running: {text} {counts.format(free)}"
        if "scatter" in request.place and len(request.chunks) > len(hosts):
            return "Can Never Run: Not enough total nodes available"
        name = next(
            (n for n in ("ngpus",) if any(chunk.ngpus > max(h.ngpus for h in hosts) for chunk in request.chunks)),
            "ncpus",
        )
        return f"Not Running: Insufficient amount of resource: {name} "
