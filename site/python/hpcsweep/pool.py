"""Several processes of one call of `Sweep.run`, each with an agent of its own.

Each is a keeper and its worker, forked from it: the keeper has started the agent, and when the worker is
killed it says so to the agent and forks another. Nothing is pickled but what was recorded, as JSON.

A keeper is a fork of the process that wants the results, where a fork works. A fork of a process with threads of
libraries would wait for them for ever: then the keeper is a new process, whose workers find the function as jobs do.
"""

import json
import math
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .agent import Agent, Begun, ready
from .grid import Grid
from .program import SweepError
from .record import Record
from .runner import Interrupt, Renewal, Runner

# How often a keeper looks up, seconds.
GLANCE = 0.5
# Seconds that a function has to react to Ctrl-C when the process that wants its results is gone.
GRACE = 5.0
# So many agents may be killed.
AGENTS = 10
# How much later a signal of a scheduler may reach one process than another, seconds.
MOMENT = 1.0
JOINED = b'{"joined"'
# The signals that end a process politely.
ENDING = (signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP)

# So many workers in a row may end before they have found the function.
LOST = 3
# Start starts an agent, the first one or a later one.
Start = Callable[[bool], Agent]
# Finds the function and the grid, and calls this with them; it may not return.
Reach = Callable[[Callable[[Callable[..., Any], Grid], None]], None]
# Starts a process that becomes a keeper of these pipes, of its life and its events; whether it is the first. Its number.
Spawn = Callable[[int, int, bool], int]


class Pool:
    """The processes, seen from the one that has forked them."""

    def __init__(self, size: int, start: Start, reach: Reach, tells: bool, spawn: Optional[Spawn] = None):
        self._pipes = {}  # type: Dict[int, int]
        # Bytes read from each pipe after the last end of a line.
        self._rest = {}  # type: Dict[int, bytes]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # Children see from this pipe that the holder of its other end lives. Only this process
        # holds it.
        life, self._life = os.pipe()
        try:
            for number in range(size):
                if spawn is None:
                    read = self._fork(life, lambda first, number=number: start(first and number == 0), reach, tells)
                else:
                    read, write = os.pipe()
                    self._has(spawn(life, write, number == 0), read, write)
                # One agent creates the queue, and only that one enqueues failed trials again.
                if number == 0 and not self._has_joined(read):
                    break
        except BaseException:
            self.close(kill=True)
            raise
        finally:
            os.close(life)

    def _fork(self, life: int, start: Start, reach: Reach, tells: bool) -> int:
        read, write = os.pipe()
        pid, mask = fork()
        if pid == 0:
            for end in (self._life, read, *self._pipes):
                os.close(end)
            keep(life, write, start, reach, tells, mask)
        self._has(pid, read, write)
        return read

    def _has(self, pid: int, read: int, write: int) -> None:
        try:
            os.setpgid(pid, pid)
        except OSError:
            # It was faster.
            pass
        os.close(write)
        self._pipes[read], self._rest[read] = pid, b""

    def _has_joined(self, read: int) -> bool:
        """Waits until the agent of a keeper has joined the sweep; `False` if it could not."""
        while not self._rest[read]:
            data = os.read(read, 1 << 16)
            if not data:
                return False
            self._rest[read] = data
        return self._rest[read].startswith(JOINED)

    def run(self, tell: Callable[[Dict[str, Any]], None], interrupt: Interrupt) -> List[Optional[Dict[str, Any]]]:
        """Hears them all to their ends: the last lines of their agents, None of one that was lost. Of each trial that
        has ended for good `tell` gets the record, or `{"late": NUMBER}`.
        """
        ends = {read: None for read in self._pipes}  # type: Dict[int, Optional[Dict[str, Any]]]
        silent = set()  # type: Set[int]
        passed_on, told_since = False, None  # type: bool, Optional[float]
        while len(silent) < len(ends):
            wake = [] if interrupt.wake is None else [interrupt.wake]
            for read in ready([*(set(ends) - silent), *wake], 1.0):
                if read == interrupt.wake:
                    interrupt.drain()
                    continue
                data = os.read(read, 1 << 16)
                lines = (self._rest[read] + data).split(b"\n")
                self._rest[read] = lines.pop()
                for line in map(json.loads, lines):
                    if "late" in line:
                        tell(line)
                    elif "record" in line:
                        tell(line["record"])
                    elif "joined" not in line:
                        ends[read] = line
                if not data:
                    silent.add(read)
            if interrupt.count and not passed_on:
                passed_on = True
                self._signal_all(signal.SIGINT)
            if interrupt.told and told_since is None:
                told_since = time.monotonic()
            if told_since is not None and time.monotonic() - told_since > MOMENT:
                told_since = math.inf
                self._signal_all(signal.SIGUSR1)
        return list(ends.values())

    def _signal_all(self, number: int) -> None:
        for pid in self._pipes.values():
            _signal(pid, number)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(kill=kind is not None)

    def close(self, kill: bool = False) -> None:
        """Waits for their ends."""
        if kill:
            for pid in self._pipes.values():
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        os.close(self._life)
        for read, pid in self._pipes.items():
            os.close(read)
            os.waitpid(pid, 0)


# The signals that a keeper or a worker does something with.
HELD = (*ENDING, signal.SIGUSR1, signal.SIGINT)


def fork() -> Tuple[int, Set[int]]:
    """os.fork(), whatever threads there are; and the signal mask that the child has to restore when it is ready."""
    # Python drops a signal that a process gets while it is being forked.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid, mask


def keep(life: int, events: int, start: Start, reach: Reach, tells: bool, mask: Set[int]) -> None:
    """Is a keeper in this process, and never returns. The signals of HELD are blocked; `mask` is the mask without them."""
    # A terminal's Ctrl-C is for the process that wants us, which passes it on once; its input too, its screen is for all.
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child(lambda: _Keeper(life, events, start, reach, tells).keep(mask))


def child(action: Callable[[], None]) -> None:
    """The life of a process that was forked: it never returns into the caller's program."""
    code = 70
    try:
        action()
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(code)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class _Keeper:
    """A process that starts an agent and keeps a worker for it."""

    def __init__(self, life: int, events: int, start: Start, reach: Reach, tells: bool):
        self._life = life
        self._events = events
        self._start = start
        self._reach = reach
        self._begun = Begun()
        self._runner = Runner(self._tell if tells else None)
        self._runner.late = lambda trial: self._send({"late": trial})
        self._worker = 0
        self._agent = None  # type: Optional[Agent]
        self._told = 0
        self._is_to_end = False

    def _send(self, line: Dict[str, Any]) -> None:
        data = memoryview(json.dumps(line).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._events, data) :]
        except BrokenPipeError:
            # The process that wants the results is gone.
            pass

    def _tell(self, record: Record) -> None:
        """A trial has ended for good."""
        assert self._runner.running is not None
        # As they were read: what is meant need not be JSON.
        self._send({"record": dict(record, params=self._runner.running["params"])})

    def keep(self, mask: Set[int]) -> None:
        """Until the agent has left; one that is killed is followed by another."""
        self._before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGUSR1)}
        for number in ENDING:
            signal.signal(number, self._note)
        signal.signal(signal.SIGUSR1, self._pass_on)
        signal.signal(signal.SIGINT, self._hear)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            for attempt in range(AGENTS):
                self._agent = self._start(attempt == 0)
                if self._told or self._is_to_end:
                    self._agent.leave()
                end = self._attend(self._agent)
                if end is not None:
                    return self._send(end)
                self._agent.check()
            raise SweepError("%d agents were killed, one after the other" % AGENTS)
        except SweepError as e:
            self._send({"fault": str(e)})

    def _hear(self, number: int, frame: Any) -> None:
        self._told += 1
        if self._worker:
            _signal(self._worker, signal.SIGINT)
        elif self._agent is not None:
            self._agent.leave()

    def _note(self, number: int, frame: Any) -> None:
        # A signal that a scheduler sends to all processes is meant for the worker and the agent.
        self._is_to_end = True

    def _pass_on(self, number: int, frame: Any) -> None:
        """The process that wants us got such a signal."""
        if self._is_to_end:
            return
        self._is_to_end = True
        if self._agent is not None:
            # First, as it has to know why the worker ends.
            _signal(self._agent.process.pid, signal.SIGTERM)
        if self._worker:
            _signal(self._worker, signal.SIGTERM)

    def _attend(self, agent: Agent) -> Optional[Dict[str, Any]]:
        """Keeps workers for an agent until it has left. Returns its last line, or None if it has gone without one."""
        hello = agent.hear()
        if hello is None:
            agent.close()
            return None
        if "agent" in hello:
            self._send({"joined": hello["agent"]})
        agent.hear_again(hello)
        lost = 0
        while True:
            alive, held = os.pipe()
            result, said = os.pipe()
            self._begun.is_ready = False
            self._worker, mask = fork()
            if self._worker == 0:
                for end in (alive, result, self._life):
                    os.close(end)
                for number, before in self._before.items():
                    signal.signal(number, before)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                child(lambda: self._work(agent, said, mask))
            os.close(held)
            os.close(said)
            status = self._wait(alive)
            os.close(alive)
            self._worker = 0
            with os.fdopen(result, "rb") as file:
                text = file.read()
            if text:
                agent.close()
                return json.loads(text.decode())["end"]
            if not self._begun.is_ready:
                lost += 1
                if self._told or self._is_to_end:
                    return _decline(agent)
                if lost == LOST:
                    agent.close()
                    raise SweepError("a process %s before it has found the function of the sweep" % _end_of(status))
            if self._told > 1 or not self._bury(agent, status):
                agent.close()
                return {"end": True, "reason": "", "signal": signal.SIGINT} if self._told else None

    def _work(self, agent: Agent, said: int, mask: Set[int]) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        agent.begun = self._begun
        # The agent may kill this process when it no longer waits for its answer. The keeper then
        # forks another.
        agent.say({"worker": os.getpid()})

        def call(function: Callable[..., Any], grid: Grid) -> None:
            self._begun.is_ready = True
            self._runner.has(function, grid)
            with Interrupt() as interrupt:
                interrupt.count = min(self._told, 1)
                try:
                    last = self._runner.run(agent, interrupt)
                except Renewal:
                    # The next process asks the agent again for the trial.
                    return
            _report(said, last)

        try:
            self._reach(call)
        except (Exception, SystemExit) as e:
            if self._begun.is_ready:
                # The script ends where it has reached its sweep.
                if not isinstance(e, SystemExit):
                    raise
                return
            if not isinstance(e, SweepError):
                traceback.print_exc()
            words = str(e) if isinstance(e, SweepError) else "%s: %s" % (type(e).__name__, e)
            _report(said, {"fault": "a process cannot find the function of the sweep: " + words})

    def _wait(self, alive: int) -> int:
        """Waits for the end of the worker, or of the process that wants it."""
        patience = None
        watched = [alive, self._life]
        while True:
            pid, status = os.waitpid(self._worker, os.WNOHANG)
            if pid:
                return status
            for fd in ready(watched, GLANCE):
                watched.remove(fd)
                if fd == alive:
                    # The worker ends now, unless another process still holds its pipe.
                    time.sleep(0.001)
                else:
                    # The process that wants the results is gone.
                    patience = time.monotonic() + GRACE
                    self._hear(signal.SIGINT, None)
            if patience is not None and time.monotonic() > patience:
                self._told = 2
                _signal(self._worker, signal.SIGKILL)

    def _bury(self, agent: Agent, status: int) -> bool:
        """Tells the agent how the worker has ended, and finds out where it stands; False if it is gone too."""
        # The bytes that the worker had read are lost with it, and its last message may be cut off.
        agent.ask_again()
        while True:
            heard = agent.hear()
            if heard is None:
                return False
            if "end" in heard or "fault" in heard:
                agent.hear_again(heard)
                return True
            if "ended" in heard:
                self._runner.ended(heard, agent)
            elif "again" in heard:
                line = heard["again"]
                if line is not None and (line["trial"], line["attempt"]) == self._begun.get():
                    self._answer_for(line, agent, status)
                elif line is not None:
                    agent.hear_again(line)
                return True

    def _answer_for(self, line: Dict[str, Any], agent: Agent, status: int) -> None:
        answer = {"trial": line["trial"], "attempt": line["attempt"]}  # type: Dict[str, Any]
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            answer.update(error="it was killed by %s" % _name(number), signal=number)
        else:
            code = os.WEXITSTATUS(status)
            answer.update(error="it has ended its process with code %d" % code, exit_code=code or 1)
        self._runner.answered(line, answer, agent)
        agent.say(answer)


def _report(said: int, last: Optional[Dict[str, Any]]) -> None:
    with os.fdopen(said, "wb") as file:
        file.write(json.dumps({"end": last}).encode())


def _decline(agent: Agent) -> Optional[Dict[str, Any]]:
    """Gives back what the agent has handed over, until it has left: its last line."""
    agent.leave()
    # Whatever a process has read of it, or said.
    agent.ask_again()
    line = agent.hear()
    while line is not None and "end" not in line and "fault" not in line:
        handed = line.get("again")
        if handed is not None:
            agent.say({"trial": handed["trial"], "attempt": handed["attempt"], "interrupted": True})
        line = agent.hear()
    agent.close()
    return line


def _end_of(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "was killed by %s" % _name(os.WTERMSIG(status))
    return "has ended with code %d" % os.WEXITSTATUS(status)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # One of the nameless real-time signals.
        return "signal %d" % number
