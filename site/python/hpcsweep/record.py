"""What is recorded of a trial."""

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .jsonable import numbers


class Record:
    """One trial of a sweep.

    trial: its number. params: its parameters; args: their values, in the order of the axes.
    state: `done`, `failed`, `timeout`, `interrupted`, `skipped`, or where it stands. value: what the function
    returned. error: why there is no value, in one line; traceback: the end of the traceback, or of the output.
    duration: seconds. host, attempt: where it ran and which attempt counts. exit_code, signal: of what ended
    it. All but trial and params may be None.
    """

    __slots__ = (
        "trial", "params", "args", "state", "value", "error", "traceback",
        "duration", "host", "attempt", "exit_code", "signal",
    )  # fmt: skip

    def __init__(self, **fields: Any):
        for name in self.__slots__:
            setattr(self, name, fields.get(name))

    @property
    def done(self) -> bool:
        """Whether the function has returned."""
        return self.state == "done"

    def __repr__(self) -> str:
        what = "value=%r" % (self.value,) if self.done else "state=%r, error=%r" % (self.state, self.error)
        return "Record(trial=%s, params=%r, %s)" % (self.trial, self.params, what)


def from_line(line: Optional[Dict[str, Any]], params: Optional[Dict[str, Any]]) -> Record:
    """From a line of `hpcsweep collect --format records`; `params` are the parameters as they are meant."""
    if line is None:
        own = params or {}
        return Record(params=own, args=tuple(own.values()), state="pending")
    own = numbers(line["params"]) if params is None else params
    done = line["state"] == "done"
    error = None
    if not done:
        code, signal = line["exit_code"], line["signal"]
        how = "signal %s" % signal if signal else "exit code %s" % code if code else None
        error = line["reason"] or how
    return Record(
        trial=line["trial"],
        params=own,
        args=tuple(own.values()),
        state=line["state"],
        value=numbers(line["result"]) if done else None,
        error=error,
        traceback=line["output"] or None,
        duration=line["duration_s"],
        host=line["host"],
        attempt=line["attempt"],
        exit_code=line["exit_code"],
        signal=line["signal"],
    )


def best(records: List[Record], key: Union[None, str, Callable[[Any], Any]], mode: str) -> Record:
    """The record with the least or greatest number; of equal ones the first."""
    if mode not in ("min", "max"):
        raise ValueError('mode must be "min" or "max", not %r' % (mode,))
    ranked = []  # type: List[Tuple[float, Record]]
    for record in records:
        number = _number(record.value, key) if record.done else None
        if number is not None and number == number:
            ranked.append((number, record))
    if not ranked:
        of = "" if key is None else " with `%s`" % (key,)
        raise ValueError("no trial has returned a number%s" % of)
    return (min if mode == "min" else max)(ranked, key=lambda pair: pair[0])[1]


def _number(value: Any, key: Union[None, str, Callable[[Any], Any]]) -> Optional[float]:
    if callable(key):
        value = key(value)
    elif key is not None:
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict) and len(value) == 1 and key is None:
        value = next(iter(value.values()))
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, (int, float)) else None
