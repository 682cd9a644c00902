"""The record of a trial."""

import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from .jsonable import numbers


class Record(dict):
    """One trial of a sweep: a dict, whose members are attributes too (`record["value"]`, `record.value`).

    trial: its number. params: its parameters. state: `done`, `failed`, `timeout`, `interrupted`, `skipped`, `dropped`, or where
    it stands. value: what the function returned. metrics: of each name that it reported the last value, of numbers
    also `NAME.min` and `NAME.max`; and the members of a dict that it returned, or `result`. error: why there is no
    value, in one line; traceback: the end of the traceback, or of the output. duration: seconds. host, attempt: where
    it ran and which attempt counts. exit_code, signal: of what ended it. All but trial, params and state may be None.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError("a record has no `%s`" % name) from None

    @property
    def done(self) -> bool:
        """Whether the function has returned."""
        return self["state"] == "done"


_NAMES = ("trial", "params", "state", "value", "metrics", "error", "traceback")
_NAMES += ("duration", "host", "attempt", "exit_code", "signal")
_EMPTY = dict.fromkeys(_NAMES)


def make(**fields: Any) -> Record:
    """A record; what is not given is None."""
    record = Record(_EMPTY)
    record.update(fields)
    return record


def from_line(line: Optional[Dict[str, Any]], params: Optional[Dict[str, Any]]) -> Record:
    """From a line of `hpcsweep collect --format records`; `params` are the parameters as they are meant."""
    if line is None:
        return make(params=params or {}, state="pending", metrics={})
    done = line["state"] == "done"
    error = None
    if not done:
        code, signal = line["exit_code"], line["signal"]
        how = "signal %s" % signal if signal else "exit code %s" % code if code else None
        error = line["reason"] or how
    return make(
        trial=line["trial"],
        params=numbers(line["params"]) if params is None else params,
        state=line["state"],
        value=numbers(line["result"]) if done else None,
        metrics=numbers(line["metrics"]),
        error=error,
        traceback=line["output"] or None,
        duration=line["duration_s"],
        host=line["host"],
        attempt=line["attempt"],
        exit_code=line["exit_code"],
        signal=line["signal"],
    )


class Metrics:
    """The metrics that a trial reports, as `hpcsweep collect` will show them."""

    def __init__(self) -> None:
        # Of each name its last value, the least and the greatest number, and how many there were.
        self._seen = {}  # type: Dict[str, Tuple[Any, float, float, int]]

    def add(self, row: Dict[str, Any]) -> None:
        """One more line."""
        for name, value in _leaves("", row):
            _, least, greatest, count = self._seen.get(name, (None, math.inf, -math.inf, 0))
            if type(value) in (int, float):
                count += 1
                least = float(value) if value < least else least
                greatest = float(value) if value > greatest else greatest
            self._seen[name] = (value, least, greatest, count)

    def all(self, result: Any) -> Dict[str, Any]:
        """All of it, with the result."""
        out = {}  # type: Dict[str, Any]
        for name, (last, least, greatest, count) in self._seen.items():
            if name == "rank":
                continue
            out[name] = last
            if count > 1 and name not in ("step", "epoch"):
                out[name + ".min"], out[name + ".max"] = least, greatest
        if result is not None:
            out.update(_leaves("", result if type(result) is dict else {"result": result}))
        return out


def _leaves(prefix: str, value: Any) -> Iterator[Tuple[str, Any]]:
    if type(value) is dict and (value or not prefix):
        for key, each in value.items():
            yield from _leaves("%s.%s" % (prefix, key) if prefix else key, each)
    else:
        yield prefix, value


def best(records: List[Record], key: Union[None, str, Callable[[Record], Any]], mode: str) -> Record:
    """The record with the least or greatest number; of equal ones the first."""
    if mode not in ("min", "max"):
        raise ValueError('mode must be "min" or "max", not %r' % (mode,))
    ranked = []  # type: List[Tuple[float, Record]]
    for record in records:
        number = _number(record, key) if record.done else None
        if number is not None and number == number:
            ranked.append((number, record))
    if not ranked:
        which = "" if key is None else " `%s`" % key if isinstance(key, str) else " by this key"
        raise ValueError("no trial that is done has a number%s%s" % (which, _instead(records, key)))
    return (min if mode == "min" else max)(ranked, key=lambda pair: pair[0])[1]


def _instead(records: List[Record], key: Any) -> str:
    names = {name for record in records if record.done for name in record.metrics}
    if not names or callable(key) or names == {"result"}:
        return ""
    return ": say which, %s" % ", ".join("`%s`" % name for name in sorted(names))


def _number(record: Record, key: Union[None, str, Callable[[Record], Any]]) -> Optional[float]:
    if callable(key):
        value = key(record)
    elif key is not None:
        value = record.metrics.get(key)
    else:
        value = record.value
    if key is None and isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if key is None and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, (int, float)) else None
