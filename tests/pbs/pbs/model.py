"""Jobs and the elements that they run: a plain job has one, an array one for each index."""

import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import ids
from .arguments import Dependency, Submission
from .hosts import Placement
from .resources import Request

QUEUED, HELD, RUNNING, EXITING, BEGUN, EXPIRED, FINISHED = "QHREBXF"

# Substates.
SUB_QUEUED, SUB_HELD, SUB_WAITING, SUB_RUNNING, SUB_EXITING, SUB_BEGUN = 10, 20, 22, 42, 50, 70
SUB_TERMINATED, SUB_FINISHED, SUB_FAILED = 91, 92, 93

# How a comment ends, by substate.
ENDS = {SUB_TERMINATED: " and terminated", SUB_FINISHED: " and finished", SUB_FAILED: " and failed"}


def minute(moment: float) -> str:
    """A moment as comments have it."""
    return time.strftime("%a %b %d at %H:%M", time.localtime(moment))


@dataclass
class Usage:
    """`resources_used` of an element."""

    cput: int = 0
    walltime: int = 0
    mem: int = 0
    cpupercent: int = 0


class Element:
    """What is run once: a plain job's only one, or one index of an array.

    With `has_record` false, all that PBS says of it is made up from its array.
    """

    def __init__(self, job: "Job", index: Optional[int]) -> None:
        self.job = job
        self.index = index
        self.state = QUEUED
        self.substate = SUB_QUEUED
        self.has_record = False
        # Told apart from those that ended: what an ended array still counts as expired.
        self.is_dropped = False
        self.placements: List[Placement] = []
        self.run_count = 0
        self.exit_status: Optional[int] = None
        self.stageout: Optional[int] = None
        self.usage: Optional[Usage] = None
        self.session: Optional[int] = None
        self.comment = ""
        self.stime: Optional[float] = None
        self.obittime: Optional[float] = None
        self.mtime = job.mtime
        # The process group under way: see `running`.
        self.run: Any = None

    @property
    def id(self) -> str:
        """Its identifier, with the server."""
        if self.index is None:
            return self.job.id
        return f"{self.job.sequence}[{self.index}].{ids.SERVER}"

    @property
    def exec_vnode(self) -> str:
        """Where it runs, chunk by chunk."""
        return "+".join(f"({one.host}:{one.chunk.text})" for one in self.placements)

    @property
    def exec_host(self) -> str:
        """Where it runs, slot by slot."""
        return "+".join(
            f"{one.host}/{one.slot}" + (f"*{one.chunk.ncpus}" if one.chunk.ncpus != 1 else "")
            for one in self.placements
        )

    def drop(self) -> None:
        """Forgets the record: from now on it is made up from the array."""
        self.has_record = False
        self.is_dropped = True


@dataclass
class Owner:
    """Who submitted, from where, with what."""

    user: str
    home: str
    folder: str
    # Full environment of the submitting client.
    environment: Dict[str, str]


class Job:
    """A plain job, or a whole array."""

    def __init__(self, sequence: int, submission: Submission, request: Request, owner: Owner, queue: str) -> None:
        now = time.time()
        self.sequence = sequence
        self.submission = submission
        self.request = request
        self.owner = owner
        self.queue = queue
        self.variables: Dict[str, str] = {}
        self.arguments = ""
        self.state = QUEUED
        self.substate = SUB_QUEUED
        self.holds: Dict[str, None] = {}
        self.comment = ""
        self.ctime = self.mtime = self.qtime = now
        self.etime: Optional[float] = now
        self.stime: Optional[float] = None
        self.obittime: Optional[float] = None
        self.history_time: Optional[float] = None
        self.exit_status: Optional[int] = None
        # What dependents go by: not always what is shown.
        self.last_exit: Optional[int] = None
        self.stageout: Optional[int] = None
        self.is_deleted = False
        self.is_requeued = False
        # What waited for it is released, and it is not history yet.
        self.is_ending = False
        # Removed by a dependency: nothing that waits for it ever runs.
        self.is_dependency_deleted = False
        self.waits: List[Dependency] = list(submission.dependencies)
        # What waits for this job: kind as shown here, identifier.
        self.dependents: List[Tuple[str, str]] = []
        self.array = submission.array
        indices: List[Optional[int]] = [None] if self.array is None else list(self.array.indices)
        self.elements: Dict[Optional[int], Element] = {index: Element(self, index) for index in indices}
        # The indices not started yet, in order.
        self.queued: Dict[Optional[int], None] = dict.fromkeys(indices)
        # What `status` has made of it already.
        self.cache: Dict[str, Any] = {}

    @property
    def id(self) -> str:
        """Its identifier, with the server."""
        return f"{self.sequence}{'' if self.array is None else '[]'}.{ids.SERVER}"

    @property
    def is_finished(self) -> bool:
        """Whether it is history."""
        return self.state == FINISHED

    @property
    def only(self) -> Element:
        """A plain job's element."""
        return self.elements[None]

    @property
    def limit(self) -> Optional[int]:
        """How many elements may run at a time."""
        return None if self.array is None else self.array.limit

    def in_state(self, *states: str) -> List[Element]:
        """The elements in these states."""
        return [one for one in self.elements.values() if one.state in states]

    def touch(self) -> None:
        """It has changed."""
        self.mtime = time.time()

    def hold(self, kind: str) -> None:
        """Adds a hold: `u` the user's, `s` the system's."""
        self.holds[kind] = None
        self.settle()

    def release(self, kind: str) -> None:
        """Takes a hold away."""
        self.holds.pop(kind, None)
        self.settle()

    def settle(self) -> None:
        """Brings state and substate in line with the holds; an array that began keeps its own."""
        self.touch()
        if self.state not in (QUEUED, HELD):
            return
        if self.holds:
            self.state = HELD
            self.substate = SUB_WAITING if self.waits else SUB_HELD
            self.etime = None
        else:
            self.state, self.substate = QUEUED, SUB_QUEUED
            self.etime = self.etime or time.time()
        if self.array is None:
            self.only.state, self.only.substate = self.state, self.substate

    def finish(self, substate: int, ends: str = "") -> None:
        """It becomes history."""
        now = time.time()
        self.state, self.substate = FINISHED, substate
        self.history_time = self.mtime = now
        if self.comment and not self.comment.startswith(("Not Running", "Can Never")):
            self.comment += ends
        self.queued.clear()
        for element in self.elements.values():
            element.state = FINISHED
