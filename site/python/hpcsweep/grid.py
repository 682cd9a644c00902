"""The axes of a sweep: Python's values, as they stand in the plan, and back."""

import itertools
import json
import keyword
import math
import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

# Names that mean something else in a plan.
RESERVED = ("params", "trial", "sweep", "task_id", "gpu_ids_abs", "resources")


_encode = json.JSONEncoder(sort_keys=True).encode


class Axis:
    """One parameter and its values."""

    def __init__(self, name: str, values: Any):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError("axis `%s`: this is no name of a parameter" % name)
        if name in RESERVED:
            raise ValueError("axis `%s`: the name has a meaning of its own in plans; choose another" % name)
        self.name = name
        self.values = list(_several(name, values))
        if not self.values:
            raise ValueError("axis `%s` is empty: it needs at least one value" % name)
        # What the plan holds of each value, and the value that is meant by it.
        self.texts = []  # type: List[str]
        self.wires = []  # type: List[str]
        self.meant = {}  # type: Dict[str, Any]
        for value in self.values:
            held = _held(name, value)
            wire = _wire(held)
            meant = self.meant.setdefault(wire, value)
            if not _is_same(meant, value):
                sentence = "axis `%s`: %r and %r read the same in the plan: write one of them otherwise"
                raise ValueError(sentence % (name, meant, value))
            self.texts.append(_toml(held))
            self.wires.append(wire)

    def value_of(self, read: Any) -> Any:
        """The value that is meant by what was read of the plan; itself if the axis does not have it."""
        return self.meant.get(_wire(read), read)


class Grid:
    """All combinations of the values of some axes, the last axis fastest."""

    def __init__(self, axes: Sequence[Axis], positional: bool):
        self.axes = list(axes)
        self.positional = positional

    def names(self) -> List[str]:
        """The parameters."""
        return [axis.name for axis in self.axes]

    def points(self) -> Iterable[Tuple[Any, ...]]:
        """The points, in order."""
        return itertools.product(*[axis.values for axis in self.axes])

    def wires(self) -> Iterable[Tuple[str, ...]]:
        """What tells the points apart, in order."""
        return itertools.product(*[axis.wires for axis in self.axes])

    def agrees(self, wires: Tuple[str, ...], line: Optional[Dict[str, Any]]) -> bool:
        """Whether a record, if there is one, is of this point."""
        read = {} if line is None else line["params"]
        return line is None or (
            len(read) == len(self.axes)
            and all(axis.name in read and _wire(read[axis.name]) == wire for axis, wire in zip(self.axes, wires))
        )

    def meant(self, params: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters as they are meant."""
        return {axis.name: axis.value_of(params[axis.name]) for axis in self.axes}

    def arguments(self, params: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """What a function is called with."""
        return (tuple(params.values()), {}) if self.positional else ((), params)

    def toml(self) -> str:
        """As a table of the plan."""
        lines = ["%s = [%s]" % (_toml_key(axis.name), ", ".join(axis.texts)) for axis in self.axes]
        return "[grid]\n" + "".join(line + "\n" for line in lines)


class Points(Grid):
    """Some points: the first values of all axes, the second ones, and so on."""

    def points(self) -> Iterable[Tuple[Any, ...]]:
        """The points, in order."""
        return zip(*[axis.values for axis in self.axes])

    def wires(self) -> Iterable[Tuple[str, ...]]:
        """What tells the points apart, in order."""
        return zip(*[axis.wires for axis in self.axes])

    def toml(self) -> str:
        """As tables of the plan."""
        names = [_toml_key(axis.name) for axis in self.axes]
        rows = zip(*[axis.texts for axis in self.axes])
        return "\n".join("[[trials]]\n" + "".join("%s = %s\n" % pair for pair in zip(names, row)) for row in rows)


def points(rows: Iterable[Any]) -> Points:
    """From the argument of `Sweep.points`."""
    rows = list(rows)
    if not rows:
        raise ValueError("there are no points")
    positional = not isinstance(rows[0], dict)
    named = []  # type: List[Dict[str, Any]]
    for row in rows:
        if positional and isinstance(row, (list, tuple)):
            row = {"arg%d" % i: value for i, value in enumerate(row)}
        if not isinstance(row, dict) or not row or named and set(row) != set(named[0]):
            sentence = "point %d, %r, is no dict or tuple of the same parameters as the first"
            raise ValueError(sentence % (len(named), row))
        named.append(row)
    return Points([Axis(name, [row[name] for row in named]) for name in named[0]], positional)


def grid(lists: Sequence[Any], named: Dict[str, Any]) -> Grid:
    """From the arguments of `Sweep.grid`."""
    if lists and named:
        raise ValueError("name all axes of the grid, or none")
    if not lists and not named:
        raise ValueError("a grid needs at least one axis: grid(lr=[0.1, 0.01])")
    if named:
        return Grid([Axis(name, values) for name, values in named.items()], False)
    return Grid([Axis("arg%d" % i, values) for i, values in enumerate(lists)], True)


def _several(name: str, values: Any) -> Iterable[Any]:
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise ValueError("axis `%s` is one value, %r: write a list of values, [%r]" % (name, values, values))
    if isinstance(values, (set, frozenset)):
        raise ValueError("axis `%s` is a set, which has no order: write a list, or sorted(...)" % name)
    # An array without dimensions says that it can be iterated over, and cannot.
    if getattr(values, "ndim", 1) == 0:
        raise ValueError("axis `%s` is one value, %r: write a list of values" % (name, values))
    return values


def _held(name: str, value: Any) -> Any:
    """What a plan can hold of a value: the value, or text that is the same in every process."""
    plain = _plain_of(value)
    if _fits(plain):
        return plain
    text = _name_of(value)
    if " at 0x" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(
            "axis `%s`: %s has no text that would be the same in every process; name it, and let the "
            "function look it up" % (name, text)
        )
    return text


def _is_same(one: Any, other: Any) -> bool:
    """Whether it does not matter which of two values a function gets, of which the plan holds the same."""
    if one is other:
        return True
    if _fits(_plain_of(one)) and _fits(_plain_of(other)):
        # Infinity and the text `inf` do not.
        return _toml(_plain_of(one)) == _toml(_plain_of(other))
    try:
        return bool(one == other)
    except Exception:
        return False


def _plain_of(value: Any) -> Any:
    return value.tolist() if callable(getattr(value, "tolist", None)) else value


def _name_of(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value) if isinstance(os.fspath(value), str) else repr(value)
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        return "%s.%s" % (value.__module__, value.__qualname__)
    return repr(value)


def _fits(value: Any) -> bool:
    """Whether TOML can hold it."""
    kind = type(value)
    if kind in (bool, float):
        return True
    if kind is int:
        return -(2 ** 63) <= value < 2 ** 63
    if kind is str:
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if kind in (list, tuple):
        return all(map(_fits, value))
    if kind is dict:
        # Dots would make tables of tables of it.
        names = all(type(key) is str and key and not set(".=") & set(key) for key in value)
        return bool(value) and names and all(map(_fits, value.values()))
    return False


def _wire(value: Any) -> str:
    """What tells values apart that were read of a plan."""
    return _encode(_plain(value))


def _plain(value: Any) -> Any:
    if type(value) is float and not math.isfinite(value):
        return str(value)
    if type(value) in (list, tuple):
        return [_plain(each) for each in value]
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def _toml(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return repr(value)
    if type(value) is str:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if type(value) is dict:
        return "{ %s }" % ", ".join("%s = %s" % (_toml_key(key), _toml(each)) for key, each in value.items())
    return "[%s]" % ", ".join(map(_toml, value))


def _toml_key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _toml(name)


def plan(name: str, grid: Grid, function: str, attempts: int, gpus: int, settings: str) -> str:
    """The text of a plan: the same wherever and whenever it is made."""
    lines = [
        "# Written by hpcsweep.Sweep: a changed grid or function changes it.",
        "version = 1",
        "",
        *([settings.strip(), ""] if settings.strip() else []),
        "[sweep]",
        "name = %s" % _toml(name),
        'root = "."',
        "",
        "[run]",
        "function = %s" % _toml(function),
        "attempts = %d" % attempts,
        "",
    ]
    if gpus:
        lines += ["[resources]", "gpus_per_rank = %d" % gpus, ""]
    return "\n".join(lines) + "\n" + grid.toml()
