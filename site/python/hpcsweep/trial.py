"""What the program or function of a trial may ask and say: its parameters, metrics, checkpoints, the time to go.

Where no trial runs all of it does what does no harm.
"""

import json
import os
import signal
import threading
from typing import Any, Dict, Optional

from .jsonable import clean, numbers
from .record import Metrics


class Interrupted(Exception):
    """For a function to raise when it has stopped early, `should_stop()` being true: the trial goes on elsewhere."""


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
        with open(path, "a", encoding="utf-8") as file:
            # One write: a line that is not whole is read by nobody.
            file.write(json.dumps(line) + "\n")


def result(value: Any) -> None:
    """The final result of the trial, any JSON; of a function of `Sweep.run`, if it returns None. Where no trial
    runs, nothing."""
    trial = _own()
    if trial is not None:
        trial.result = value
        return
    path = os.environ.get("HPCSWEEP_RESULT")
    if path:
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


_stop = 0
# The process that listens to signals, and who did before.
_listener = 0
_before = {}  # type: Dict[int, Any]


def should_stop() -> bool:
    """Whether this process was told to end soon: by SIGTERM or SIGUSR2, or through its agent.

    The first call, in the main thread, begins to listen to the signals; before, they end the process.
    """
    if here is not None and here.pid != os.getpid():
        # A fork of the trial, which has to end when it is told to.
        return _stop != 0
    _listen()
    return _stop != 0 or (here is not None and here.agent.wants_stop())


def was_told() -> int:
    """The signal that has come, 0 without."""
    return _stop


def _listen() -> None:
    global _listener
    if _listener == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGUSR2):
        before = signal.getsignal(number)
        if before is signal.SIG_IGN:
            continue
        if before is not _hear:
            _before[number] = signal.SIG_DFL if before is None else before
        signal.signal(number, _hear)
    _listener = os.getpid()


def _hear(number: int, frame: Any) -> None:
    global _stop
    before = _before[number]
    if os.getpid() != _listener:
        # A fork that has not asked is ended by it as ever: pools of processes rely on that.
        signal.signal(number, before)
        os.kill(os.getpid(), number)
        return
    _stop = number
    if callable(before):
        before(number, frame)
