"""The axes of a sweep: Python's values, as they stand in the plan, and back."""

import itertools
import json
import keyword
import math
import os
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

from .jsonable import numbers
from .jsonable import plain as _plain_of

# Keys of a point that are not parameters.
OF_TRIALS = ("task_id", "gpu_ids_abs", "resources")
# Names that mean something else in a plan.
RESERVED = ("params", "trial", "sweep", *OF_TRIALS)


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
        # The plan's form of each value, and the value that it stands for.
        self.texts = []  # type: List[str]
        self.wires = []  # type: List[str]
        self.meant = {}  # type: Dict[str, Any]
        # Whether texts stand for values that TOML cannot hold.
        self.names_objects = False
        # The values that a process which knows the plan alone would not have.
        self.lost = []  # type: List[Any]
        for value in self.values:
            held = _held(name, value)
            self.names_objects |= not fits(_plain_of(value))
            wire = _wire(held)
            read = numbers(_plain(held))
            if not _is_same(read, value):
                self.lost.append(value)
            meant = self.meant.setdefault(wire, value)
            if not _is_same(meant, value):
                sentence = "axis `%s`: %r and %r read the same in the plan: write one of them otherwise"
                raise ValueError(sentence % (name, meant, value))
            self.texts.append(_toml(held))
            self.wires.append(wire)

    def value_of(self, read: Any) -> Any:
        """The value that is meant by what was read of the plan; itself if the axis does not have it."""
        return self.meant.get(_wire(read), read)

    def is_lost(self, read: Any) -> bool:
        """Whether the text stands for an object that only another process can know."""
        return self.names_objects and type(read) is str and _wire(read) not in self.meant


class Grid:
    """All combinations of the values of some axes, the last axis fastest.

    has_defaults: the plan has parameters of its own beside those of the grid (`[defaults]`).
    """

    def __init__(self, axes: Sequence[Axis], positional: bool):
        self.axes = list(axes)
        self.positional = positional
        self.has_defaults = False
        self._shapes = None  # type: Optional[Set[FrozenSet[str]]]
        self._of_objects = [axis for axis in self.axes if axis.names_objects]

    def names(self) -> List[str]:
        """The parameters."""
        return [axis.name for axis in self.axes]

    def shapes(self) -> List[Tuple[str, ...]]:
        """The sets of parameters that points have."""
        return [tuple(self.names())]

    def points(self) -> Iterable[Dict[str, Any]]:
        """The points, in order."""
        names = self.names()
        return (dict(zip(names, values)) for values in itertools.product(*[axis.values for axis in self.axes]))

    def wires(self) -> Iterable[Dict[str, str]]:
        """What tells the points apart, in order."""
        names = self.names()
        return (dict(zip(names, wires)) for wires in itertools.product(*[axis.wires for axis in self.axes]))

    def agrees(self, wires: Dict[str, str], line: Optional[Dict[str, Any]]) -> bool:
        """Whether a record, if there is one, is of this point."""
        if line is None:
            return True
        read = line["params"]
        return (self.has_defaults or len(read) == len(wires)) and all(
            name in read and _wire(read[name]) == wire for name, wire in wires.items()
        )

    def is_foreign(self, read: Dict[str, Any]) -> bool:
        """Whether this process cannot call its function for a trial, which is of another process's grid."""
        if self._shapes is None:
            self._shapes = set(map(frozenset, self.shapes()))
        names = frozenset(read)
        fits = names in self._shapes or (self.has_defaults and any(shape <= names for shape in self._shapes))
        return not fits or any(axis.is_lost(read[axis.name]) for axis in self._of_objects if axis.name in read)

    def meant(self, params: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters as they are meant, those of the axes first."""
        meant = {axis.name: axis.value_of(params[axis.name]) for axis in self.axes if axis.name in params}
        if len(meant) < len(params):
            meant.update((name, numbers(value)) for name, value in params.items() if name not in meant)
        return meant

    def arguments(self, params: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """The arguments of a call of the function."""
        if not self.positional:
            return (), params
        named = {name: value for name, value in params.items() if not _place_of(name)}
        return tuple(value for name, value in params.items() if _place_of(name)), named

    def lost(self) -> List[Any]:
        """The values that a process would not have which knows the plan alone: it holds lists in place of tuples and arrays."""
        return [value for axis in self.axes for value in axis.lost]

    def toml(self) -> str:
        """As a table of the plan."""
        lines = ["%s = [%s]" % (_toml_key(axis.name), ", ".join(axis.texts)) for axis in self.axes]
        return "" if not lines else "[grid]\n" + "".join(line + "\n" for line in lines)

    def devices(self) -> List[Any]:
        """What points name as their devices, each set once; None where one names none."""
        return [None]


class Points(Grid):
    """Some points, each with parameters of its own.

    rows: of each point the names and values of its parameters; of_trials: what else it says of its trial.
    """

    def __init__(self, rows: List[Dict[str, Any]], of_trials: List[Dict[str, Any]], positional: bool):
        names = list(dict.fromkeys(name for row in rows for name in row))
        super().__init__([Axis(name, [row[name] for row in rows if name in row]) for name in names], positional)
        self._rows = rows
        self._of_trials = of_trials
        # Each axis has the values of the points that have it, in their order.
        wires, texts = ({axis.name: iter(each(axis)) for axis in self.axes} for each in (_wires_of, _texts_of))
        self._wires = [{name: next(wires[name]) for name in row} for row in rows]
        self._texts = [{name: next(texts[name]) for name in row} for row in rows]

    def shapes(self) -> List[Tuple[str, ...]]:
        """The sets of parameters that points have."""
        return list(dict.fromkeys(map(tuple, self._rows)))

    def points(self) -> Iterable[Dict[str, Any]]:
        """The points, in order."""
        return iter(self._rows)

    def wires(self) -> Iterable[Dict[str, str]]:
        """What tells the points apart, in order."""
        return iter(self._wires)

    def toml(self) -> str:
        """As tables of the plan."""
        tables = []
        for row, of_trial in zip(self._texts, self._of_trials):
            lines = ["%s = %s\n" % (_toml_key(name), text) for name, text in row.items()]
            lines += ["%s = %s\n" % (name, _toml(value)) for name, value in of_trial.items()]
            tables.append("[[trials]]\n" + "".join(lines))
        return "\n".join(tables)

    def devices(self) -> List[Any]:
        """What points name as their devices, each set once; None where one names none."""
        named = [of_trial.get("gpu_ids_abs") for of_trial in self._of_trials]
        return [ids for number, ids in enumerate(named) if ids not in named[:number]]


class Unknown(Grid):
    """The grid of a function that was found by its name: what the plan says is what is meant."""

    def __init__(self, positional: bool):
        super().__init__([], positional)

    def is_foreign(self, read: Dict[str, Any]) -> bool:
        """Whatever the plan has."""
        return False

    def meant(self, params: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters in the order of their places."""
        return {name: numbers(params[name]) for name in sorted(params, key=_place_of)}


def _wires_of(axis: Axis) -> List[str]:
    return axis.wires


def _texts_of(axis: Axis) -> List[str]:
    return axis.texts


def _place_of(name: str) -> int:
    """From 1 of a positional parameter, 0 of one with a name."""
    return int(name[3:]) + 1 if name[:3] == "arg" and name[3:].isdigit() and name[3:].isascii() else 0


def points(rows: Iterable[Any]) -> Points:
    """From the argument of `Sweep.points`."""
    rows = list(rows)
    if not rows:
        raise ValueError("there are no points")
    # Series of pandas and the like have names, too.
    rows = [dict(row) if callable(getattr(row, "keys", None)) else row for row in rows]
    positional = not isinstance(rows[0], dict)
    named, of_trials = [], []  # type: List[Dict[str, Any]], List[Dict[str, Any]]
    for number, row in enumerate(rows):
        if positional and isinstance(row, (list, tuple)):
            row = {"arg%d" % i: value for i, value in enumerate(row)}
        if not isinstance(row, dict) or not row:
            raise ValueError("point %d, %r, is no dict or tuple of parameters as the first is" % (number, row))
        named.append({name: value for name, value in row.items() if name not in OF_TRIALS})
        of_trial = {name: _plain_of(row[name]) for name in OF_TRIALS if name in row}
        for name, value in of_trial.items():
            if not fits(value):
                raise ValueError("point %d: `%s` cannot be %r" % (number, name, value))
        of_trials.append(of_trial)
    return Points(named, of_trials, positional)


def grid(lists: Sequence[Any], named: Dict[str, Any]) -> Grid:
    """From the arguments of `Sweep.grid`."""
    if lists and named:
        raise ValueError("name all axes of the grid, or none")
    if len(lists) == 1 and isinstance(lists[0], dict):
        raise ValueError("grid() takes the axes by name: write two asterisks before the dict, grid(**{...})")
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
    """The form of a value in the plan: the value itself, or text that is the same in every process."""
    plain = _plain_of(value)
    if fits(plain):
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
    # A tuple and a list, or numbers of two libraries, stand in the plan alike, and a function gets one of them.
    if type(one) is not type(other) or str(getattr(one, "dtype", "")) != str(getattr(other, "dtype", "")):
        return False
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if type(one) is dict:
        return list(one) == list(other) and all(map(_is_same, one.values(), other.values()))
    if fits(_plain_of(one)) and fits(_plain_of(other)):
        # Infinity and the text `inf` do not.
        return _toml(_plain_of(one)) == _toml(_plain_of(other))
    try:
        return bool(one == other)
    except Exception:
        return False


def _name_of(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value) if isinstance(os.fspath(value), str) else repr(value)
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        return "%s.%s" % (value.__module__, value.__qualname__)
    return repr(value)


def fits(value: Any) -> bool:
    """Whether TOML can hold it."""
    kind = type(value)
    if kind in (bool, float):
        return True
    if kind is int:
        return -(2 ** 63) <= value < 2 ** 63
    if kind is str:
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if kind in (list, tuple):
        return all(map(fits, value))
    if kind is dict:
        # Dots would make tables of tables of it.
        names = all(type(key) is str and key and not set(".=") & set(key) for key in value)
        return bool(value) and names and all(map(fits, value.values()))
    return False


def _wire(value: Any) -> str:
    """What tells values apart that were read of a plan."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        # The same text as the encoder's, without the encoder: each trial has such numbers.
        return repr(value)
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
