"""What clients send and what they get."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from .server import Server


@dataclass
class Request:
    """One call of one client."""

    name: str
    folder: str
    arguments: List[str]
    environment: Dict[str, str]


@dataclass
class Answer:
    """What the client prints, and its exit code."""

    out: str = ""
    err: str = ""
    code: int = 0
    # The client is left waiting.
    never: bool = False

    def encoded(self) -> bytes:
        """As it goes over the socket."""
        out, err = os.fsencode(self.out), os.fsencode(self.err)
        return b"%d %d\n" % (self.code, len(out)) + out + err


def parse(data: bytes) -> Request:
    """A request as `client` writes it."""
    name, folder, count, *rest = [os.fsdecode(part) for part in data.split(b"\0")]
    arguments = rest[: int(count)]
    pairs = [part.partition("=") for part in rest[int(count) :]]
    return Request(name, folder, arguments, {key: value for key, _, value in pairs})


class Faults:
    """Faults that a test asked for, so many times."""

    def __init__(self) -> None:
        self._left: Dict[str, Tuple[Optional[str], Optional[int], Optional[int]]] = {}

    def next(self, client: str, fault: Optional[str], count: Optional[int]) -> str:
        """The fault of this call, or nothing."""
        asked = self._left.get(client)
        if asked is None or asked[:2] != (fault, count):
            asked = (fault, count, count)
        left = asked[2]
        if left is not None:
            asked = (fault, count, left - 1)
        self._left[client] = asked
        if fault is None or (left is not None and left <= 0):
            return ""
        return fault


def version(server: "Server") -> Answer:
    """`--version` of every client."""
    if server.config.flavour == "torque":
        return Answer("", f"Version: {server.config.version}\nCommit: unknown\n")
    return Answer(f"pbs_version = {server.config.version}\n")
