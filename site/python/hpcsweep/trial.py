"""What the program or function of a trial may ask and say: its parameters, metrics, checkpoints, the time to go."""

import json
import os
import signal
import threading
from typing import Any, Dict, Optional

from .jsonable import clean, numbers


class Interrupted(Exception):
    """For a function to raise when it has stopped early, `should_stop()` being true: the trial goes on elsewhere."""


class Here:
    """The trial that runs in this process by `Sweep.run`."""

    def __init__(self, line: Dict[str, Any], params: Dict[str, Any], agent: Any):
        self.line = line
        self.params = params
        self.agent = agent
        self.pid = os.getpid()
        self.made = None  # type: Optional[str]
        self.result = None  # type: Any


here = None  # type: Optional[Here]


def _own() -> Optional[Here]:
    if here is not None and here.pid != os.getpid():
        raise RuntimeError("only the process that runs the trial may say something of it: this is a fork of it")
    return here


def params(default: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """The parameters of the trial, nested; `default` where no trial runs."""
    trial = _own()
    if trial is not None:
        return dict(trial.params)
    path = os.environ.get("HPCSWEEP_PARAMS")
    if path:
        with open(path, encoding="utf-8") as file:
            return numbers(json.load(file))
    if default is None:
        raise RuntimeError("no trial runs here: HPCSWEEP_PARAMS is not set; say params(default={...}) for that case")
    return dict(default)


def report(**metrics: Any) -> None:
    """One line of metrics: report(epoch=3, loss=0.25). Where no trial runs, nothing."""
    trial = _own()
    line = clean(metrics, [])
    if trial is not None:
        trial.agent.metrics(trial.line, line)
        return
    path = os.environ.get("HPCSWEEP_METRICS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            # One write: a line that is not whole is read by nobody.
            file.write(json.dumps(line) + "\n")


def result(value: Any) -> None:
    """The final result of the trial, any JSON. Of a function of `Sweep.run`: if it returns None."""
    trial = _own()
    if trial is not None:
        trial.result = value
        return
    path = os.environ.get("HPCSWEEP_RESULT")
    if path:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(clean(value, []), file)
        os.replace(path + ".new", path)


def checkpoint_dir(default: Optional[str] = None) -> str:
    """A folder for checkpoints, the same for every attempt of the trial; it is made. `default` where no trial runs."""
    trial = _own()
    path = trial.line["checkpoint_dir"] if trial is not None else os.environ.get("HPCSWEEP_CHECKPOINT_DIR") or default
    if path is None:
        raise RuntimeError("no trial runs here: HPCSWEEP_CHECKPOINT_DIR is not set")
    os.makedirs(path, exist_ok=True)
    if trial is not None:
        trial.made = path
    return path


_stop = 0
_listens = False


def should_stop() -> bool:
    """Whether this process was told to end soon: by SIGTERM or SIGUSR2, or through its agent.

    The first call, in the main thread, begins to listen to the signals; before, they end the process.
    """
    listen()
    trial = _own()
    return _stop != 0 or (trial is not None and trial.agent.wants_stop())


def was_told() -> int:
    """The signal that has come, 0 without."""
    return _stop


def listen() -> None:
    """Listens to the signals, if this is the main thread."""
    global _listens
    if _listens or threading.current_thread() is not threading.main_thread():
        return
    _listens = True
    for number in (signal.SIGTERM, signal.SIGUSR2):
        before = signal.getsignal(number)

        def hear(number: int, frame: Any, before: Any = before) -> None:
            global _stop
            _stop = number
            if callable(before):
                before(number, frame)

        if before is not signal.SIG_IGN:
            signal.signal(number, hear)
