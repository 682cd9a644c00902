"""Python's values as JSON: what is written of results and metrics."""

import dataclasses
import json
import math
import os
from typing import Any, List

# The range of integers that hpcsweep can read.
LEAST, GREATEST = -(2 ** 63), 2 ** 64 - 1


def clean(value: Any, odd: List[str]) -> Any:
    """A value that `json.dumps` can write. Of what JSON cannot hold its text is taken; its types go to `odd`.

    Arrays and tensors become lists, series of pandas with names dicts, numbers of other libraries Python's, tuples lists, dataclasses and named
    tuples dicts, paths text, keys of dicts text.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if LEAST <= value <= GREATEST else _text(value, odd)
    if isinstance(value, dict):
        return {_key(key): clean(each, odd) for key, each in value.items()}
    if hasattr(value, "_asdict") and isinstance(value, tuple):
        return clean(dict(value._asdict()), odd)
    if isinstance(value, (list, tuple)):
        return [clean(each, odd) for each in value]
    if callable(getattr(value, "tolist", None)):
        try:
            return clean(plain(value), odd)
        except Exception:
            return _text(value, odd)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: clean(getattr(value, name), odd) for name in names}
    if isinstance(value, (bool, float, str)) or (isinstance(value, int) and LEAST <= value <= GREATEST):
        # An enumeration's member, say, that is a number or text.
        return next(base(value) for base in (bool, int, float, str) if isinstance(value, base))
    if isinstance(value, os.PathLike):
        return str(value)
    return _text(value, odd)


def plain(value: Any) -> Any:
    """Values of numpy, torch or pandas as Python's; anything else as it is. A series with names of its own is a dict."""
    if not callable(getattr(value, "tolist", None)):
        return value
    index = getattr(value, "index", None)
    if not callable(getattr(value, "to_dict", None)) or type(index).__name__ == "RangeIndex":
        return value.tolist()
    names, values = index.tolist(), value.tolist()
    # Two values of one name would be one.
    return dict(zip(names, values)) if index.is_unique else [list(pair) for pair in zip(names, values)]


def _key(key: Any) -> str:
    return key if type(key) is str else json.dumps(key) if key is None or type(key) is bool else str(key)


def _text(value: Any, odd: List[str]) -> str:
    odd.append(type(value).__name__)
    try:
        return repr(value)
    except Exception:
        return "<%s>" % type(value).__name__


def numbers(value: Any) -> Any:
    """A value from a results tree, where `inf`, `-inf` and `nan` stand for numbers."""
    if type(value) is str:
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(value, value)
    if type(value) is list:
        return [numbers(each) for each in value]
    if type(value) is dict:
        return {key: numbers(each) for key, each in value.items()}
    return value
