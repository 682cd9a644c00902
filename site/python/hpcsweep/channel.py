"""The socket to the worker: requests and answers as docs/sync-protocol.md frames them."""

import json
import os
import socket
import struct
import sys
import threading
from typing import Any, Dict, Iterable, Optional, Tuple


class SyncError(RuntimeError):
    """What kept the ranks from a sync: the same sentence on every rank. The next call works again."""

    def __init__(self, sentence: str, hint: Optional[str] = None):
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        return self.sentence if not self.hint else "%s\n  hint: %s" % (self.sentence, self.hint)


class Channel:
    """One rank's end of the socket; one request at a time."""

    def __init__(self, fd: int):
        if sys.byteorder != "little":
            raise SyncError("values travel as little-endian numbers; this machine is big-endian")
        try:
            # A copy, so that the descriptor itself stays open for a process that is handed it.
            self._socket = socket.socket(fileno=os.dup(fd))
        except OSError as e:
            raise SyncError(
                "HPCSWEEP_SYNC=%d is no open socket: %s" % (fd, e.strerror),
                "a process that starts this one must hand the descriptor on: "
                "subprocess.run(..., pass_fds=[int(os.environ['HPCSWEEP_SYNC'])])",
            ) from None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._broken = None  # type: Optional[str]

    def ask(self, head: Dict[str, Any], numbers: Iterable[Any] = ()) -> Tuple[Dict[str, Any], bytearray]:
        """Sends a request and waits for its answer: the head, and all numbers behind it."""
        with self._lock:
            if self._pid != os.getpid():
                raise SyncError(
                    "only the process that began to sync may do so: this is a fork of it",
                    "sync in the program's main process",
                )
            if self._broken:
                raise SyncError(self._broken)
            # After an exception in the middle of an exchange (Ctrl-C, for example) later answers cannot be
            # distinguished from this one.
            self._broken = "an earlier sync was interrupted: the answers would no longer match"
            try:
                text = json.dumps(head).encode()
                self._socket.sendall(struct.pack("<I", len(text)) + text)
                for piece in numbers:
                    self._socket.sendall(piece)
                (length,) = struct.unpack("<I", self._receive(4))
                answer = json.loads(self._receive(length).decode())
                data = self._receive(answer.get("bytes", 0))
            except (OSError, EOFError) as e:
                self._broken = "the worker has gone: %s" % e
                raise SyncError(self._broken) from None
            self._broken = None
            return answer, data

    def _receive(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while len(view) > 0:
            got = self._socket.recv_into(view)
            if got == 0:
                raise EOFError("it closed the socket")
            view = view[got:]
        return data

    def close(self) -> None:
        """Ends it for this process; the descriptor in the environment stays."""
        self._socket.close()
