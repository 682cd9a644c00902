"""An agent of ours: the process `hpcsweep worker --serve`, which hands trials over and records what comes of them.

docs/serve.md has the lines.
"""

import json
import mmap
import os
import select
import struct
import subprocess
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .program import SweepError, find


_encode = json.JSONEncoder(ensure_ascii=False).encode
_decode = json.JSONDecoder().raw_decode


def _poll(fds: List[int]) -> "select.poll":
    # Not select(), which knows no descriptor beyond 1023.
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll


def ready(fds: List[int], seconds: Optional[float] = None) -> List[int]:
    """Those of the descriptors from which something can be read, or that are at their ends."""
    return [fd for fd, _ in _poll(fds).poll(None if seconds is None else seconds * 1000)]


class Begun:
    """Which trial runs, in memory that a process shares with its forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 17)
        # Whether the newest process has found the function that it is to call.
        self.is_ready = False

    def note(self, line: Dict[str, Any]) -> None:
        """This one."""
        self._memory[:16] = struct.pack("=QQ", line["trial"], line["attempt"])

    def get(self) -> Tuple[int, int]:
        """Its number and attempt; attempts begin with 1."""
        trial, attempt = struct.unpack("=QQ", self._memory[:16])
        return trial, attempt

    @property
    def is_ready(self) -> bool:
        return self._memory[16] == 1

    @is_ready.setter
    def is_ready(self, value: bool) -> None:
        self._memory[16] = int(value)


class Agent:
    """The pipe to an agent, and the messages on it that were not read yet."""

    def __init__(self, place: str, options: Sequence[str], quiet: bool):
        """place: a plan, or the folder of a sweep. options: further ones of `hpcsweep worker --pull`."""
        command = [find()] + (["--quiet"] if quiet else [])
        command += ["worker", "--pull", place, "--serve", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to = self.process.stdin.fileno()
        self._from = self.process.stdout.fileno()
        self._buffer = b""
        self._lines = []  # type: List[bytes]
        self._lock = threading.Lock()
        self._stops = False
        # What it says of trials that it has recorded is not read where nobody wants to know.
        self.hears_ends = True
        self._wake, self._ready = None, select.poll()  # type: Optional[int], select.poll
        # As it says when it has joined.
        self.name = ""
        self.devices = None  # type: Optional[str]
        self.begun = None  # type: Optional[Begun]

    def hear(self, wake: Optional[int] = None) -> Optional[Dict[str, Any]]:
        """The next line; None at the end, `{}` if there is something to read from `wake` first."""
        while not self._lines:
            if wake is not None and self._is_woken(wake):
                return {}
            if not self._read():
                return None
        text = self._lines.pop(0).decode(errors="replace")
        try:
            line, _ = _decode(text)
        except ValueError:
            raise SweepError("`%s` is no agent: it says `%s`" % (" ".join(self.process.args), text[:80])) from None
        if "agent" in line:
            self.name, self.devices = line["agent"], line["devices"]
        return line

    def hear_again(self, line: Dict[str, Any]) -> None:
        """Makes this the next message that `hear` returns."""
        self._lines.insert(0, json.dumps(line).encode())

    def _is_woken(self, wake: int) -> bool:
        """Waits for something to read; whether that is from `wake`."""
        if self._wake != wake:
            # Made once: a poll for each of many short trials costs more than its system call.
            self._wake, self._ready = wake, _poll([self._from, wake])
        return any(fd == wake for fd, _ in self._ready.poll())

    def _read(self) -> bool:
        data = os.read(self._from, 1 << 16)
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        self._lines += lines if self.hears_ends else [line for line in lines if not line.startswith(b'{"ended"')]
        return bool(data)

    def begin(self, line: Dict[str, Any]) -> None:
        """This trial is about to run."""
        self._stops = False
        if self.begun is not None:
            self.begun.note(line)

    def wants_stop(self) -> bool:
        """Whether the agent has asked for an end of what runs."""
        with self._lock:
            while not self._stops:
                self._stops = any(line.startswith(b'{"stop"') for line in self._lines)
                if not ready([self._from], 0) or not self._read():
                    break
            return self._stops

    def is_void(self) -> bool:
        """Whether the agent no longer waits for the answer: the trial's time is over, or another run of it counts."""
        with self._lock:
            while ready([self._from], 0) and self._read():
                pass
            return any(line.startswith(b'{"stop"') and b'"now"' in line for line in self._lines)

    def ask_again(self) -> None:
        """Asks for the current trial, for a process that takes over, perhaps in the middle of a line."""
        self._write(b"\n")
        self.say({"again": True})

    def say(self, line: Dict[str, Any]) -> bool:
        """Sends a message; False if the agent no longer reads."""
        # Half of a surrogate pair, of a file's name say, is nothing that others could read.
        return self._write(_encode(line).encode(errors="replace") + b"\n")

    def _write(self, text: bytes) -> bool:
        data = memoryview(text)
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._to, data) :]
            except OSError:
                return False
        return True

    def metrics(self, trial: Dict[str, Any], row: Dict[str, Any]) -> None:
        """A line of metrics of what runs."""
        self.say({"trial": trial["trial"], "attempt": trial["attempt"], "metrics": [row]})

    def leave(self) -> None:
        """Asks it to go after what runs."""
        self.say({"stop": True})

    def close(self) -> None:
        """Says goodbye, and waits for its end."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()

    def check(self) -> None:
        """An agent that has ended without a last line must have been killed: anything else is a SweepError."""
        code = self.process.wait()
        if code >= 0:
            raise SweepError("`%s` has ended with exit code %d" % (" ".join(self.process.args), code))
