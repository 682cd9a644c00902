"""`Sweep`: a function called for all combinations of some parameters, by any number of processes on any hosts."""

import inspect
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Union

from . import grid as grids
from . import record as records
from . import trial
from .agent import Agent
from .pool import AGENTS, Pool
from .program import SweepError, output_of
from .record import Record
from .runner import Interrupt, Runner


# How long a callback is waited for when all trials have ended, seconds: as long as a hook of a plan may take.
PATIENCE = 60.0


# How a trial stands that nobody goes on with by himself.
FINAL = ("done", "failed", "timeout", "skipped", "cancelled", "lost")


class Stopped(SystemExit):
    """A signal has ended the sweep here; the trials that were not done are others', or the next start's."""


class Sweep:
    """A sweep whose results lie in a folder: `Sweep("results/demo")`, or `Sweep("demo")` for the same."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], settings: str = "", quiet: bool = False):
        """settings: further tables of the plan, as TOML: `[pull]`, `[hooks]`, `[resources]` and others of docs/plan.md.
        quiet: agents say nothing but errors on standard error.
        """
        given = os.fspath(path)
        # Functions may change the folder that the process is in.
        self._path = os.path.abspath(given if os.sep in given else os.path.join("results", given))
        self._root, self._name = os.path.split(self._path)
        allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        if not 0 < len(self._name) <= 64 or set(self._name) - set(allowed) or set(self._name) <= {"."}:
            raise ValueError(
                "a sweep's name has up to 64 letters, digits, `.`, `_` and `-`, and %r is none" % self._name
            )
        self._settings = settings
        self._quiet = quiet
        self._grid = None  # type: Optional[grids.Grid]

    def __repr__(self) -> str:
        return "Sweep(%r)" % self._path

    @property
    def plan(self) -> str:
        """The file of the plan, beside the folder of the results."""
        return self._path + ".toml"

    def grid(self, *lists: Any, **axes: Any) -> "Sweep":
        """The values of each parameter; all combinations are run, the last axis varying fastest.

        grid(lr=[0.1, 0.01], layers=[1, 2]) calls function(lr=..., layers=...), grid([0.1, 0.01], [1, 2]) calls
        function(..., ...).
        """
        self._grid = grids.grid(lists, axes)
        return self

    def points(self, rows: Iterable[Any]) -> "Sweep":
        """Instead of a grid some points: dicts of parameters, or tuples for function(..., ...)."""
        self._grid = grids.points(rows)
        return self

    def run(
        self,
        function: Callable[..., Any],
        processes: int = 1,
        attempts: int = 1,
        on_finish: Optional[Callable[[Record], None]] = None,
        on_error: Optional[Callable[[Record], None]] = None,
        retry: bool = False,
        gpus: int = 0,
        max_processes: Optional[int] = None,
    ) -> List[Record]:
        """Calls the function for all points of the grid that have no result yet, together with all others that
        run this sweep, and returns the records of all trials, in the order of the grid.

        processes: so many at a time here, each forked from this one. attempts: how often a trial is tried
        before it has failed. on_finish, on_error: called in a thread for each trial that was done, or has failed
        for good, by these processes. retry: trials that have failed before are run again. gpus: GPUs of each
        process. max_processes: the same as processes.
        """
        if self._grid is None:
            raise ValueError("what is to be run? call grid(...) or points(...) before run(...)")
        if not callable(function):
            raise TypeError("run() needs a function, not a `%s`" % type(function).__name__)
        processes = processes if max_processes is None else max_processes
        for name, number, least in (("processes", processes, 1), ("attempts", attempts, 1), ("gpus", gpus, 0)):
            if type(number) is not int or number < least:
                raise ValueError("%s must be a whole number of at least %d, not %r" % (name, least, number))
        grid = self._grid
        _check(function, grid)
        self._write(grids.plan(self._name, grid, _name_of(function), attempts, gpus, self._settings))

        def start(first: bool) -> Agent:
            return Agent(self.plan, retry and first, self._quiet)

        def make(tell: Any) -> Runner:
            return Runner(function, grid, tell)

        tells = on_finish is not None or on_error is not None
        late = set()  # type: Set[int]
        with _Callbacks(on_finish, on_error) as callbacks:

            def tell(line: Dict[str, Any]) -> None:
                if "late" in line:
                    late.add(line["late"])
                else:
                    callbacks.put(Record(line, params=grid.meant(line["params"])))

            if processes == 1:
                with Interrupt() as interrupt:
                    ends = [_alone(make(callbacks.put if tells else None), start, interrupt)]
            else:
                # Before there is a thread, or a handler of signals.
                with Pool(processes, start, make, tells) as pool:
                    with Interrupt((signal.SIGTERM, signal.SIGUSR2)) as interrupt:
                        ends = pool.run(tell, interrupt)
            _conclude(ends, bool(interrupt.count), interrupt.told)
            results = self.results()
            for record in results:
                if tells and record.trial in late:
                    callbacks.put(record)
        left = [record for record in results if record.state not in FINAL]
        if left and None in ends:
            raise SweepError("processes of the sweep were killed, and trials are left: start it again")
        if left:
            # Nobody has it in hand any more: whatever the reason, this is no end of a sweep.
            names = ", ".join("%d is %s" % (record.trial, record.state) for record in left[:5])
            raise SweepError("the sweep is not at its end: trial %s; start it again" % names)
        return results

    def results(self) -> List[Record]:
        """The records of all trials of the plan, in the order of the grid, as they stand now."""
        place = self.plan if self._grid is not None else self._path
        text = output_of(["collect", "--planned", "--format", "records", place]).decode()
        lines = [json.loads(line) for line in text.splitlines()]
        if self._grid is None:
            return [records.from_line(line, None) for line in lines]
        points = list(self._grid.points())
        if len(points) != len(lines) or not all(map(self._grid.agrees, self._grid.wires(), lines)):
            raise SweepError("the plan `%s` was changed by another process: it has another grid" % self.plan)
        names = self._grid.names()
        return [records.from_line(line, dict(zip(names, point))) for line, point in zip(lines, points)]

    def best(self, key: Union[None, str, Callable[[Record], Any]] = None, mode: str = "min") -> Record:
        """The record of the trial that is done whose value is least or greatest (mode="max").

        key: the name of a metric, that is what the function reported or a member of a dict that it returned
        (`"val.loss"`, `"loss.min"`); or a function that makes a number of a record.
        """
        return records.best(self.results(), key, mode)

    def _write(self, text: str) -> None:
        """Writes the plan, unless it is there. Whoever else comes with the same grid writes the same."""
        try:
            with open(self.plan, encoding="utf-8") as file:
                if file.read() == text:
                    return
        except OSError:
            pass
        os.makedirs(self._root, exist_ok=True)
        aside = os.path.join(self._root, ".%s.%s.tmp" % (self._name, os.urandom(8).hex()))
        try:
            with open(aside, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.plan)
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)
            raise


def _check(function: Callable[..., Any], grid: grids.Grid) -> None:
    """Before all trials fail of it."""
    args, kwargs = grid.arguments(dict.fromkeys(grid.names()))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Functions of C need not have one.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        axes = ", ".join(grid.names())
        raise TypeError("the function cannot be called with %s: %s" % (axes, e)) from None


def _name_of(function: Any) -> str:
    """What stands in the plan: module and name, of a script the name of its file."""
    while hasattr(function, "func") and not hasattr(function, "__qualname__"):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    if module == "__main__":
        path = getattr(sys.modules["__main__"], "__file__", None)
        module = os.path.splitext(os.path.basename(path))[0] if path else module
    return "%s:%s" % (module, getattr(function, "__qualname__", None) or type(function).__qualname__)


def _alone(runner: Runner, start: Callable[[bool], Agent], interrupt: Interrupt) -> Optional[Dict[str, Any]]:
    """Runs trials in this process: the last line of the agent."""
    for attempt in range(AGENTS):
        agent = start(attempt == 0)
        try:
            end = runner.run(agent, interrupt)
        finally:
            agent.close()
        if runner.fault is not None:
            raise runner.fault
        if end is not None:
            return end
        agent.check()
    raise SweepError("%d agents were killed, one after the other" % AGENTS)


def _conclude(ends: List[Optional[Dict[str, Any]]], interrupted: bool, told: int) -> None:
    """Raises what kept the sweep from its end."""
    there = [end for end in ends if end is not None]
    for end in there:
        if "fault" in end:
            raise SweepError(end["fault"])
    signals = [end["signal"] for end in there if end["signal"]]
    if interrupted or 2 in signals:
        raise KeyboardInterrupt
    told = told or trial.was_told()
    if signals or told:
        raise Stopped(128 + (signals[0] if signals else told))
    for end in there:
        if end["reason"]:
            raise SweepError(end["reason"])


class _Callbacks:
    """Calls what the user wants to be called, in a thread."""

    def __init__(self, on_finish: Any, on_error: Any):
        self._on_finish = on_finish
        self._on_error = on_error
        self._queue = queue.Queue()  # type: queue.Queue
        self._thread = None  # type: Optional[threading.Thread]
        self._called = 0

    def __enter__(self) -> "_Callbacks":
        return self

    def put(self, record: Record) -> None:
        """A trial has ended for good."""
        if self._thread is None:
            # Not before it is needed: processes are forked from one that has none.
            self._thread = threading.Thread(target=self._run, name="hpcsweep callbacks", daemon=True)
            self._thread.start()
        self._queue.put(record)

    def _run(self) -> None:
        while True:
            record = self._queue.get()
            if record is None:
                return
            self._called += 1
            callback = self._on_finish if record.done else self._on_error
            if callback is None:
                continue
            try:
                callback(record)
            except BaseException:
                name = "on_finish" if record.done else "on_error"
                print("hpcsweep: %s of trial %s:" % (name, record.trial), file=sys.stderr)
                traceback.print_exc()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._thread is None:
            return
        self._queue.put(None)
        if kind is not None and not issubclass(kind, Exception):
            # Somebody wants to be gone.
            self._thread.join(PATIENCE / 10)
            return
        called = -1
        while self._thread.is_alive() and self._called != called:
            called = self._called
            deadline = time.monotonic() + PATIENCE
            while self._thread.is_alive() and self._called == called and time.monotonic() < deadline:
                self._thread.join(0.05)
        if self._thread.is_alive():
            print("hpcsweep: a callback takes more than %g s: it is not waited for" % PATIENCE, file=sys.stderr)
