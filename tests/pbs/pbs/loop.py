"""The server's heart: sockets, timers and the ends of child processes, one after another in one thread."""

import ctypes
import heapq
import itertools
import os
import selectors
import signal
import time
from typing import Callable, Dict, List, Tuple

PR_SET_CHILD_SUBREAPER = 36

Ended = Callable[[int, "Used"], None]


class Used:
    """What a child used: CPU seconds and the most memory, in kB."""

    def __init__(self, cpu: float, memory: int) -> None:
        self.cpu = cpu
        self.memory = memory


class Loop:
    """Waits and calls back."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._children: Dict[int, Ended] = {}
        # Whatever leaves its session becomes a child of this process, so that it can be ended with it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._woken = reading
        self.selector.register(reading, selectors.EVENT_READ, self._wake)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls once, later."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), call))

    def on_end(self, pid: int, call: Ended) -> None:
        """Calls with the wait status of a child, and what it used."""
        self._children[pid] = call

    def _wake(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            call = self._children.pop(pid, None)
            if call is not None:
                call(status, Used(used.ru_utime + used.ru_stime, used.ru_maxrss))

    def turn(self) -> None:
        """Waits for whatever comes next, and handles it."""
        timeout = None
        if self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, _ in self.selector.select(timeout):
            key.data()
        self._reap()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()


def children() -> Dict[int, List[Tuple[int, int, str]]]:
    """All processes: by parent, their number, session and state."""
    found: Dict[int, List[Tuple[int, int, str]]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program may hold blanks and parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 3:
            found.setdefault(int(fields[1]), []).append((int(name), int(fields[3]), fields[0].decode()))
    return found


def in_sessions(sessions: List[int]) -> List[int]:
    """The living processes of these sessions."""
    wanted = set(sessions)
    return [
        pid
        for group in children().values()
        for pid, session, state in group
        if session in wanted and state not in ("Z", "X")
    ]


def kill(pids: List[int], number: int) -> None:
    """Sends a signal to all that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass
