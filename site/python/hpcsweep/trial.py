"""Functions for the program or function of a trial: its parameters, metrics, checkpoints, and when to stop.

Where no trial runs, all of them do something harmless.
"""

import json
import os
import signal
import threading
import time
from typing import Any, Dict, Optional

from . import ranks
from .jsonable import clean, numbers
from .record import Metrics


class Interrupted(Exception):
    """A function raises this when it has stopped early because of `should_stop()`: the trial resumes elsewhere."""


class Dropped(BaseException):
    """Raised in a function whose answer is no longer needed: its walltime is over, or a copy of it was faster."""


class Here:
    """The trial that runs in this process by `Sweep.run`."""

    def __init__(self, line: Dict[str, Any], params: Dict[str, Any], agent: Any):
        self.line = line
        self.params = params
        self.agent = agent
        self.pid = os.getpid()
        self.metrics = Metrics()
        self.made = None  # type: Optional[str]
        self.result = None  # type: Any


here = None  # type: Optional[Here]


def _own() -> Optional[Here]:
    """The trial that runs here, for what only its own process can do."""
    if here is not None and here.pid != os.getpid():
        raise RuntimeError("only the process that runs the trial may say something of it: this is a fork of it")
    return here


def params(default: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """The parameters of the trial, nested; `default`, or none, where no trial runs."""
    if here is not None:
        return dict(here.params)
    path = os.environ.get("HPCSWEEP_PARAMS")
    if path:
        with open(path, encoding="utf-8") as file:
            return numbers(json.load(file))
    return dict(default or {})


def report(**metrics: Any) -> None:
    """One line of metrics: report(epoch=3, loss=0.25). Where no trial runs, nothing."""
    trial = _own()
    line = clean(metrics, [])
    if trial is not None:
        trial.metrics.add(line)
        trial.agent.metrics(trial.line, line)
        return
    path = os.environ.get("HPCSWEEP_METRICS")
    if path:
        # A worker that joins the lines of its ranks knows which rank they are of.
        rank = None if os.environ.get("HPCSWEEP_SYNC") else ranks.within_trial()
        line = line if rank is None else dict({"rank": rank}, **line)
        with open(path, "a", encoding="utf-8") as file:
            # One write, because the worker ignores lines that are not complete.
            file.write(json.dumps(line) + "\n")


def result(value: Any) -> None:
    """The final result of the trial, any JSON; of a function of `Sweep.run`, if it returns None. That of rank 0 counts.
    Where no trial runs, nothing."""
    trial = _own()
    if trial is not None:
        trial.result = value
        return
    path = os.environ.get("HPCSWEEP_RESULT")
    if path and not ranks.within_trial():
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(clean(value, []), file)
        os.replace(path + ".new", path)


def checkpoint_dir(default: str = "checkpoint") -> str:
    """A folder for checkpoints, the same for every attempt of the trial; it is made. `default` where no trial runs."""
    if here is not None:
        path = here.made = here.line["checkpoint_dir"]
    else:
        path = os.environ.get("HPCSWEEP_CHECKPOINT_DIR") or default
    os.makedirs(path, exist_ok=True)
    return path


def time_left() -> Optional[float]:
    """Seconds until the trial is asked to end because its time is over, at least 0; None where nothing limits it.

    The deadline is that of the start of the attempt: a later change of the job's time limit is not seen.
    """
    deadline = here.line.get("deadline") if here is not None else os.environ.get("HPCSWEEP_DEADLINE")
    return None if not deadline else max(0.0, float(deadline) - time.time())


_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_stop = 0
# Whether this process listens to signals, and what it did with them before.
_listens = False
_before = {}  # type: Dict[int, Any]
_fork = threading.local()


def should_stop() -> bool:
    """Whether this process was asked to end soon: by SIGTERM or SIGUSR2, or through its agent.

    The first call, in the main thread, begins to listen to the signals; before, they end the process.
    """
    if here is not None and here.pid != os.getpid():
        # A fork of the trial, which has to end when it is asked to.
        return _stop != 0
    _listen()
    return _stop != 0 or (here is not None and here.agent.wants_stop())


def was_told() -> int:
    """The signal that has come, 0 without."""
    return _stop


def _listen() -> None:
    global _listens
    if _listens or threading.current_thread() is not threading.main_thread():
        return
    if not _before:
        os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)
    for number in _SIGNALS:
        before = signal.getsignal(number)
        _before[number] = signal.SIG_DFL if before is None else before
        if before is not signal.SIG_IGN:
            signal.signal(number, _hear)
    _listens = True


def _hear(number: int, frame: Any) -> None:
    global _stop
    _stop = number
    before = _before[number]
    if callable(before):
        before(number, frame)


def _hold() -> None:
    # Python drops a signal that a process gets while it is being forked.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS if _listens else ())


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _forget() -> None:
    """A fork that has not asked is ended by signals as ever: pools of processes rely on that."""
    global _listens
    if _listens:
        _listens = False
        for number, before in _before.items():
            signal.signal(number, before)
    _let_go()
