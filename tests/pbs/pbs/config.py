"""What a test chooses: `$TEST_PBS_HOME/config.json`, read again before each request when it has changed."""

import json
import os
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

T = TypeVar("T")


class Wrong(Exception):
    """A configuration that says nothing sensible."""


@dataclass
class Host:
    """One execution host."""

    name: str
    ncpus: int = 16
    ngpus: int = 0


@dataclass
class Queue:
    """One queue; with `route_destinations` one that passes its jobs on."""

    name: str
    max_array_size: Optional[int] = None
    max_queued: Optional[int] = None
    max_run: Optional[int] = None
    max_walltime: Optional[str] = None
    default_walltime: Optional[str] = None
    max_ncpus: Optional[int] = None
    min_nodes: Optional[int] = None
    kill_delay: Optional[float] = None
    priority: Optional[int] = None
    enabled: bool = True
    started: bool = True
    route_destinations: List[str] = field(default_factory=list)


@dataclass
class Config:
    """All keys with what holds where a test chooses nothing."""

    hosts: List[Host] = field(default_factory=lambda: [Host("pbsn1", 16, 4), Host("pbsn2", 16, 4)])
    # The first is the default queue.
    queues: Dict[str, Queue] = field(default_factory=lambda: {"workq": Queue("workq")})
    # Resources that are not built in.
    resources: List[str] = field(default_factory=lambda: ["ngpus"])
    # None: the attribute is not set, which means false as well.
    history: Optional[bool] = True
    # Seconds for which the history holds a job; None: two weeks.
    history_duration: Optional[float] = None
    # Seconds between the release of what waits for a job and its state F, as an epilogue takes them: what registers in
    # between is never released. (Of OpenPBS seen with plain jobs alone; here with arrays, too.)
    ends_late: float = 0.0
    # A routing queue knows no dependencies: it hands on whatever fits, the newest first, and only then do jobs wait.
    routes_dependents: bool = False
    max_array_size: Optional[int] = 10000
    max_queued: Optional[int] = None
    # Of all users together.
    max_queued_all: Optional[int] = None
    version: str = "23.06.06"
    flavour: str = "openpbs"
    json: str = "old"
    umask: str = "077"
    has_f: bool = True
    # False: nothing is started.
    scheduling: bool = True
    # Seconds.
    kill_delay: float = 1.0
    # A deleted job is seen to end only when `kill_delay` is over, as happens now and then.
    sees_ends_late: bool = False
    walltime_poll: float = 0.2
    cycle: float = 0.05
    delay: float = 0.0
    # Faults: lost, complains, refused_connection, hang, banner; down, garbage.
    qsub_fault: Optional[str] = None
    qsub_fault_count: Optional[int] = None
    qstat_fault: Optional[str] = None
    qstat_fault_count: Optional[int] = None

    @property
    def default_queue(self) -> str:
        """Where jobs go that name no queue."""
        return next(iter(self.queues))

    def release(self) -> Tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split(".")[:2] if part.isdigit())


CHOICES: Dict[str, List[Optional[str]]] = {
    "flavour": ["openpbs", "pbspro", "torque"],
    "json": ["old", "new"],
    "qsub_fault": [None, "lost", "complains", "refused_connection", "hang", "banner"],
    "qstat_fault": [None, "down", "garbage"],
}


def _fill(kind: Type[T], values: Dict[str, Any], where: str) -> T:
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise Wrong(f"config.json: {where}{key} is no key")
    return kind(**values)


def parse(text: str) -> Config:
    """The configuration that a text is."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise Wrong(f"config.json: {error}") from None
    if "hosts" in values:
        values["hosts"] = [_fill(Host, host, "hosts.") for host in values["hosts"]]
    if "queues" in values:
        queues = values["queues"].items()
        values["queues"] = {
            name: _fill(Queue, {**(queue or {}), "name": name}, f"queues.{name}.") for name, queue in queues
        }
    config = _fill(Config, values, "")
    for key, choices in CHOICES.items():
        if getattr(config, key) not in choices:
            raise Wrong(f"config.json: {key} is none of {choices}")
    if not config.queues or not config.hosts:
        raise Wrong("config.json: a scheduler has a queue and a host")
    return config


class Source:
    """The file of the configuration, and what it said last."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: Tuple[int, ...] = ()
        self._config = Config()

    def read(self) -> Config:
        """The configuration as it is now."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return self._config
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            with open(self._path, encoding="utf-8") as file:
                self._config = parse(file.read())
            self._seen = seen
        return self._config
