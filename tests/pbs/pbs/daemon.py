"""The daemon: one socket, one loop, and the promise that nothing outlives it."""

import json
import os
import selectors
import signal
import socket
import sys
from typing import Callable

from . import loop as loops
from . import orders, queries, requests, status, submitting, tasks
from .config import Wrong
from .loop import Loop
from .requests import Answer, Request
from .server import Server


class Connection:
    """One client, from its first byte to the answer."""

    def __init__(self, daemon: "Daemon", stream: socket.socket) -> None:
        self._daemon = daemon
        self._stream = stream
        self._data = b""
        stream.setblocking(False)
        daemon.loop.selector.register(stream, selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        try:
            part = self._stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        self._data += part
        if part:
            return
        self._daemon.loop.selector.unregister(self._stream)
        if self._data:
            self._daemon.handle(requests.parse(self._data), self._reply)
        else:
            self._stream.close()

    def _reply(self, answer: Answer) -> None:
        if answer.never:
            # Kept open: the client waits for as long as it likes.
            self._daemon.unanswered.append(self._stream)
            return
        self._data = answer.encoded()
        delay = self._daemon.server.config.delay
        if delay > 0:
            self._daemon.loop.after(delay, self._begin_writing)
        else:
            self._begin_writing()

    def _begin_writing(self) -> None:
        self._daemon.loop.selector.register(self._stream, selectors.EVENT_WRITE, self._write)
        self._write()

    def _write(self) -> None:
        try:
            self._data = self._data[self._stream.send(self._data) :]
        except BlockingIOError:
            return
        except OSError:
            self._data = b""
        if not self._data:
            self._close()

    def _close(self) -> None:
        self._daemon.loop.selector.unregister(self._stream)
        self._stream.close()


def _everything(server: Server) -> str:
    """All jobs with all their elements, truthfully typed: for the harness of the tests."""
    found = {}
    for job in server.jobs.values():
        found[job.id] = dict(status.of_job(job))
        if job.array is not None:
            for element in job.elements.values():
                found[element.id] = dict(status.of_element(element))
    return json.dumps(found)


class Daemon:
    """Serves until it is told to stop."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.loop = Loop()
        self.server = Server(home, self.loop)
        self.unanswered: list = []  # type: ignore[type-arg]
        self._is_ending = False

    def handle(self, request: Request, reply: Callable[[Answer], None]) -> None:
        """One request."""
        try:
            self.server.refresh()
            self._dispatch(request, reply)
        except Wrong as wrong:
            reply(Answer("", f"{request.name}: {wrong}\n", 2))
        except Exception as error:  # pylint: disable=broad-except
            # An error of this test scheduler, which no test may mistake for behaviour of PBS.
            sys.excepthook(type(error), error, error.__traceback__)
            reply(Answer("", f"{request.name}: the test scheduler itself failed: {error!r}\n", 99))

    def _dispatch(self, request: Request, reply: Callable[[Answer], None]) -> None:
        if request.name == "qsub":
            reply(submitting.qsub(self.server, request))
        elif request.name == "qstat":
            reply(queries.qstat(self.server, request))
        elif request.name in orders.FORMS:
            orders.order(self.server, request, reply)
        elif request.name == "pbs_tmrsh":
            tasks.tmrsh(self.server, request, reply)
        elif request.name == "pbsdsh":
            tasks.dsh(self.server, request, reply)
        elif request.name == "_jobs":
            reply(Answer(_everything(self.server)))
        else:
            reply(Answer("", f"{request.name}: no such client\n", 2))

    def serve(self) -> None:
        """Until standard input closes, or a signal to end comes."""
        os.chdir(self.home)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("socket")
        listener.listen(128)
        self.loop.selector.register(listener, selectors.EVENT_READ, lambda: Connection(self, listener.accept()[0]))
        self.loop.selector.register(0, selectors.EVENT_READ, self._told)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.end())
        with open("server.pid", "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        print("ready", flush=True)
        while not self._is_ending:
            self.loop.turn()
        os.unlink("socket")
        listener.close()
        self._kill_all()

    def _told(self) -> None:
        if not os.read(0, 4096):
            self.end()

    def end(self) -> None:
        """No turn more."""
        self._is_ending = True

    @staticmethod
    def _kill_all() -> None:
        """Everything below this process ends with it, whatever session it went to."""
        while True:
            family = loops.children()
            found, wanted = [], [os.getpid()]
            while wanted:
                for pid, _, _ in family.get(wanted.pop(), []):
                    found.append(pid)
                    wanted.append(pid)
            loops.kill(found, signal.SIGKILL)
            try:
                while os.waitpid(-1, 0 if found else os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return


def main() -> None:
    """`server` of the test scheduler."""
    home = os.environ.get("TEST_PBS_HOME")
    if home is None:
        sys.exit("server: TEST_PBS_HOME is not set")
    os.makedirs(home, exist_ok=True)
    Daemon(os.path.abspath(home)).serve()
