"""Calls the function of a sweep for what an agent hands over, and answers."""

import ctypes
import inspect
import os
import re
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Set, Tuple

from . import trial
from .agent import Agent
from .grid import Grid, Unknown
from .jsonable import clean
from .meter import Meter
from .record import Metrics, Record, make

# Of a traceback so much is kept, characters.
DETAILS = 1 << 16
REASON = 300
# How an object is shown that has no text of its own.
_NAMELESS = re.compile(r"^<.* at 0x[0-9a-fA-F]+>$", re.DOTALL)
# How often it is looked whether a function is to be ended, seconds.
WATCH = 0.2


class Interrupt:
    """Ctrl-C: while the function runs it is a KeyboardInterrupt there, otherwise something that wakes us up.

    The second is a KeyboardInterrupt wherever it comes. `also`: further signals, of which only a note is taken.
    """

    def __init__(self, also: Sequence[int] = ()) -> None:
        self.calling = False
        self.count = 0
        self.told = 0
        self._also = also
        self._before = {}  # type: Dict[int, Any]
        self.wake = None  # type: Optional[int]
        # Whether SIGINT is the word of our own watchdog.
        self.drops = False

    def __enter__(self) -> "Interrupt":
        heard = {number: self._note for number in self._also}
        heard[signal.SIGINT] = self._hear
        if threading.current_thread() is not threading.main_thread():
            return self
        # Ignored signals stay ignored. A shell ignores Ctrl-C, but not SIGTERM, for a process that it puts
        # into the background.
        before = {number: signal.getsignal(number) for number in heard}
        self._before = {number: was for number, was in before.items() if was not in (signal.SIG_IGN, None)}
        if self._before:
            self.wake, self._write = os.pipe()
            for end in (self.wake, self._write):
                os.set_blocking(end, False)
            self._wake_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in self._before:
                signal.signal(number, heard[number])
        return self

    def __exit__(self, *_: Any) -> None:
        if self.wake is not None:
            for number, before in self._before.items():
                signal.signal(number, before)
            signal.set_wakeup_fd(self._wake_before)
            os.close(self.wake)
            os.close(self._write)
            self.wake = None

    def _hear(self, number: int, frame: Any) -> None:
        if self.drops:
            self.drops = False
            if self.calling:
                raise trial.Dropped
            return
        self.count += 1
        if self.calling or self.count > 1:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: Any) -> None:
        self.told = number

    def drop(self, thread: int) -> None:
        """Ends the function that runs in this thread by an exception, as far as that is possible."""
        if thread == threading.main_thread().ident and signal.SIGINT in self._before:
            # A signal: it ends what waits in the system, too.
            self.drops = True
            signal.pthread_kill(thread, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(trial.Dropped))

    def drain(self) -> None:
        """Empties the pipe that has woken this process."""
        try:
            while self.wake is not None and os.read(self.wake, 512):
                pass
        except BlockingIOError:
            pass


class Watchdog:
    """Checks whether the agent still waits for the answer of the function that runs in this thread."""

    def __init__(self, agent: Agent, interrupt: Interrupt):
        self._agent = agent
        self._interrupt = interrupt
        self._caller = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hpcsweep watchdog", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(WATCH):
            if self._agent.is_void():
                self._interrupt.drop(self._caller)
                return

    def end(self) -> None:
        """The function has ended."""
        self._over.set()
        self._thread.join()


class Renewal(Exception):
    """The next trial has other devices than this process, which has used its own: another is to be forked for it."""


class Runner:
    """Runs what agents hand over, when it knows the function."""

    def __init__(self, tell: Optional[Callable[[Record], None]]):
        self._function = None  # type: Optional[Callable[..., Any]]
        self._grid = Unknown(False)  # type: Grid
        self._tell = tell
        # The trial whose answer the agent waits for, and the record that the agent has not
        # confirmed.
        self.running = None  # type: Optional[Dict[str, Any]]
        self.pending = None  # type: Optional[Record]
        # Whether it was handed a trial of another process's grid.
        self.is_foreign = False
        # Which devices the function has had in this process, once it was called.
        self._has_called = False
        self._devices = None  # type: Optional[str]
        self._odd = set()  # type: Set[str]
        self._meter = Meter()
        # Told of trials that have ended of which nothing else is known here.
        self.late = None  # type: Optional[Callable[[int], None]]

    def has(self, function: Callable[..., Any], grid: Grid) -> None:
        """This is the function, with the grid of its process."""
        self._function, self._grid = function, grid

    def run(self, agent: Agent, interrupt: Interrupt) -> Optional[Dict[str, Any]]:
        """Runs trials until the agent has left. Returns its last line, or None if it has gone without one."""
        assert self._function is not None
        agent.hears_ends = self._tell is not None
        while True:
            line = agent.hear(interrupt.wake)
            if line is None or "end" in line or "fault" in line:
                # Why the agent has left is known here then.
                return dict(line, reason="") if self.is_foreign and line is not None else line
            if "params" in line:
                self.running, self.pending = line, None
                answer, metrics = self._call(line, agent, interrupt)
                agent.say(answer)
                # While the agent records it.
                self.answered(line, answer, agent, metrics)
            elif "ended" in line:
                self.ended(line, agent)
            elif not line:
                interrupt.drain()
            if interrupt.count or trial.was_told() or self.is_foreign:
                agent.leave()

    def _call(
        self, line: Dict[str, Any], agent: Agent, interrupt: Interrupt
    ) -> Tuple[Dict[str, Any], Optional[Metrics]]:
        """The answer to a trial, and the metrics that it has reported."""
        answer = {"trial": line["trial"], "attempt": line["attempt"]}  # type: Dict[str, Any]
        if self._grid.is_foreign(line["params"]) or not self._has_devices(line, agent):
            self.is_foreign = True
            return dict(answer, interrupted=True), None
        meant = self._grid.meant(line["params"])
        here = trial.here = trial.Here(line, meant, agent)
        agent.begin(line)
        self._meter.begin()
        start, seconds = time.perf_counter(), 0.0
        odd = []  # type: list
        # A process of a pool is killed instead. Where nothing can end a function there is no thread: it may fork.
        watchdog = Watchdog(agent, interrupt) if line.get("may_end") and agent.begun is None else None
        try:
            interrupt.calling = True
            try:
                args, kwargs = self._grid.arguments(meant)
                value = self._function(*args, **kwargs)  # type: ignore[misc]
            finally:
                interrupt.calling = False
                seconds = time.perf_counter() - start
                if watchdog is not None:
                    watchdog.end()
            value = here.result if value is None else value
            answer["value"] = clean(value, odd)
            if odd:
                _check_value(value, answer["value"])
        except _NoValue as e:
            del answer["value"]
            answer.update(error=str(e), exit_code=1)
        except (KeyboardInterrupt, trial.Interrupted) as e:
            interrupt.count += isinstance(e, KeyboardInterrupt) and not interrupt.count
            answer["interrupted"] = True
        except BaseException as e:
            answer.update(_failure(e))
        finally:
            trial.here = None
        # As it will be recorded.
        answer["duration_s"] = round(seconds, 6)
        usage = self._meter.end(seconds)
        if usage is not None:
            answer["usage"] = usage
        if odd and not self._odd.issuperset(odd):
            self._odd.update(odd)
            names = ", ".join("`%s`" % name for name in sorted(set(odd)))
            _say("trial %d: a result with %s is not JSON: its text is kept" % (line["trial"], names))
        if here.made is not None:
            _tidy(here.made, line["work_dir"])
        return answer, here.metrics

    def _has_devices(self, line: Dict[str, Any], agent: Agent) -> bool:
        """Sets the devices of a trial; False where this process has used others."""
        devices = line.get("devices", agent.devices)
        if self._has_called and devices != self._devices:
            if agent.begun is not None:
                raise Renewal
            return False
        self._has_called, self._devices = True, devices
        if devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
            os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            # A sweep within the function has these devices for itself.
            os.environ["HPCSWEEP_WITHIN"] = agent.name
        return True

    def answered(
        self, line: Dict[str, Any], answer: Dict[str, Any], agent: Agent, metrics: Optional[Metrics] = None
    ) -> None:
        """Remembers the answer to a trial until the agent has recorded it."""
        self.running = line
        if self._tell is not None:
            self.pending = self._record(line, answer, agent, metrics or Metrics())

    def _record(self, line: Dict[str, Any], answer: Dict[str, Any], agent: Agent, metrics: Metrics) -> Record:
        meant = self._grid.meant(line["params"])
        return make(
            trial=line["trial"],
            params=meant,
            value=answer.get("value"),
            metrics=metrics.all(answer.get("value")),
            error=answer.get("error"),
            traceback=answer.get("details"),
            duration=answer.get("duration_s"),
            host=agent.name.rsplit("-", 2)[0],
            attempt=line["attempt"],
            exit_code=0 if "value" in answer else answer.get("exit_code"),
            signal=answer.get("signal"),
        )

    def ended(self, line: Dict[str, Any], agent: Agent) -> None:
        """The agent has recorded how an attempt ended."""
        if self._tell is None or not line["last"]:
            return
        running = self.running or {"trial": None, "attempt": None}
        if (running["trial"], running["attempt"]) != (line["ended"], line["attempt"]):
            # A process that was killed had answered: its answer is only on disk.
            if self.late is not None:
                self.late(line["ended"])
            return
        # The agent may not have waited for the answer.
        record = self.pending or self._record(running, {}, agent, Metrics())
        self.pending = None
        record["state"] = line["state"]
        self._tell(record)


class _NoValue(Exception):
    """What a function has returned has not run yet, or says nothing."""


def refuse_lazy(function: Callable[..., Any]) -> None:
    """A TypeError for a function whose call runs nothing of it."""
    while hasattr(function, "func") and not hasattr(function, "__qualname__"):
        function = function.func
    for each in (function, getattr(type(function), "__call__", None)):
        if inspect.iscoroutinefunction(each):
            raise TypeError("%r is a coroutine function: a call runs nothing of it; call it by asyncio.run()" % function)
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise TypeError("%r is a generator function: a call runs nothing of it; return its values in a list" % function)


def _check_value(value: Any, text: Any) -> None:
    """A _NoValue for a result of which only the name of an object would be kept."""
    if inspect.isawaitable(value):
        raise _NoValue("the function has returned a `%s`, which has not run: await it" % type(value).__name__)
    for each in _texts(text):
        if _NAMELESS.search(each):
            raise _NoValue("the result has %s, which says nothing: return its value" % each[:REASON])


def _texts(value: Any) -> Iterator[str]:
    if type(value) is str:
        yield value
    elif type(value) in (dict, list):
        for each in value.values() if type(value) is dict else value:
            yield from _texts(each)


def _failure(error: BaseException) -> Dict[str, Any]:
    # Without our own frames.
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        details = "".join(traceback.format_exception(type(error), error, frames))
        words = str(error)
    except Exception:
        details, words = "", ""
    words = words.strip().split("\n")[0][:REASON]
    reason = type(error).__name__ + (": " + words if words else "")
    last = traceback.extract_tb(frames)[-1:]
    if last:
        reason += " (%s, line %s)" % (os.path.basename(last[0].filename), last[0].lineno)
    code = 1
    if isinstance(error, SystemExit) and type(error.code) is int and 0 < error.code < 256:
        code = error.code
    return {"error": reason, "details": details[-DETAILS:], "exit_code": code}


def _tidy(checkpoints: str, work: str) -> None:
    """Removes folders in which nothing was left."""
    try:
        os.rmdir(checkpoints)
        os.rmdir(work)
    except OSError:
        pass


def _say(text: str) -> None:
    print("hpcsweep: " + text, file=sys.stderr, flush=True)
