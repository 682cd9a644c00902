"""One call of `Sweep.run`: agents in this process or in forks of it, until they have left."""

import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from . import guards, trial
from .agent import Agent
from .grid import Grid, Unknown
from .pool import AGENTS, Pool, Reach, Spawn
from .program import SweepError
from .record import Record
from .runner import Interrupt, Runner

# How long a callback is waited for when all trials have ended, seconds: as long as a hook of a plan may take.
PATIENCE = 60.0


class Stopped(SystemExit):
    """A signal has ended the sweep here; the trials that were not done are others', or the next start's."""


class Work:
    """What processes are to do: a function that each of them reaches, for the trials of a plan, or of the folder of a sweep."""

    def __init__(self, reach: Reach, grid: Grid, place: str, processes: int, options: Sequence[str]):
        self.reach = reach
        self.grid = grid
        self.place = place
        self.processes = processes
        # Of the program `hpcsweep`, and of the agents.
        self.quiet = False
        self.options = list(options)
        # Whether calls are made in forks also where there is one process, as trials name their devices.
        self.forks = False
        # Makes what starts a process that finds the function by itself; None where each process is a fork.
        self.spawns = None  # type: Optional[Callable[[Dict[str, Any]], Spawn]]
        # Whether trials have failed here.
        self.has_failed = False
        # Whether processes were killed whose agents have not reported their end.
        self.has_lost_agents = False

    def go(
        self,
        retry: bool = False,
        on_finish: Optional[Callable[[Record], None]] = None,
        on_error: Optional[Callable[[Record], None]] = None,
        results: Callable[[], List[Record]] = list,
    ) -> List[Record]:
        """Runs trials until the agents have left, and returns `results()`.

        Raises KeyboardInterrupt, Stopped or SweepError where something else than the end of the sweep has ended them.
        """

        def start(first: bool) -> Agent:
            options = self.options + (["--retry"] if retry and first else [])
            return Agent(self.place, options, self.quiet)

        tells = on_finish is not None or on_error is not None
        late = set()  # type: Set[int]
        with guards.spawns_refused(), _Callbacks(on_finish, on_error) as callbacks:

            def tell(line: Dict[str, Any]) -> None:
                if "late" in line:
                    late.add(line["late"])
                else:
                    callbacks.put(Record(line, params=self.grid.meant(line["params"])))

            if self.processes == 1 and not self.forks:
                runner = Runner(callbacks.put if tells else None)
                self.reach(runner.has)
                with Interrupt() as interrupt:
                    ends = [_alone(runner, start, interrupt)]
            else:
                spawn = None  # type: Optional[Spawn]
                if self.spawns is not None:
                    asked = {"place": self.place, "options": self.options, "quiet": self.quiet}
                    spawn = self.spawns(dict(asked, retry=retry, tells=tells))
                # Before there is a thread, or a handler of signals.
                with Pool(self.processes, start, self.reach, tells, spawn) as pool:
                    with Interrupt((signal.SIGTERM, signal.SIGUSR2)) as interrupt:
                        ends = pool.run(tell, interrupt)
            self.has_failed = any(end is not None and end.get("failed") for end in ends)
            self.has_lost_agents = None in ends
            _conclude(ends, bool(interrupt.count), interrupt.told)
            records = results()
            for record in records:
                if tells and record.trial in late:
                    callbacks.put(record)
        return records


def work_of(function: Callable[..., Any], grid: Grid, place: str, processes: int, options: Sequence[str]) -> Work:
    """Work with a function that is here."""
    return Work(lambda call: call(function, grid), grid, place, processes, options)


def work_elsewhere(reach: Reach, place: str, processes: int, options: Sequence[str]) -> Work:
    """Work with a function that each process finds by itself."""
    return Work(reach, Unknown(False), place, processes, options)


def _alone(runner: Runner, start: Callable[[bool], Agent], interrupt: Interrupt) -> Optional[Dict[str, Any]]:
    """Runs trials in this process: the last line of the agent."""
    for attempt in range(AGENTS):
        agent = start(attempt == 0)
        try:
            end = runner.run(agent, interrupt)
        finally:
            agent.close()
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
            # The user wants to quit.
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
