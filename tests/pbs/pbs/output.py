"""The two forms of what is told: text wrapped as qstat does it, and JSON as its two generations of clients write it."""

import json
import re
from typing import Any, Dict, List, Tuple

from .status import Attributes

# As in qstat.
LINE = 78
# Their values stay texts, however they look; the older client knows of no such exception.
TEXTS = ("project", "Account_Name")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def _wrapped(name: str, value: str) -> str:
    """One attribute: broken at commas where possible, anywhere where not."""
    start = len(name) + 7
    out = [f"    {name} = "]
    is_first = True
    pieces = [piece for piece in value.split(",") if piece]
    for at, piece in enumerate(pieces):
        if len(piece) + start < LINE:
            out.append(piece)
            start += len(piece)
        else:
            if not is_first:
                out.append("\n\t")
                start = 9
            for char in piece:
                out.append(char)
                start += 1
                if start > LINE:
                    start = 8
                    out.append("\n\t")
        if at + 1 < len(pieces):
            is_first = False
            out.append(",")
    return "".join(out)


def _plain(variables: Dict[str, str]) -> str:
    """`Variable_List` in one line, as the server keeps it."""
    return ",".join(f"{name}={value}".replace(",", "\\,") for name, value in variables.items())


def text(head: str, attributes: Attributes) -> str:
    """One job, queue or server as `-f` prints it."""
    lines = [head]
    for name, value in attributes:
        if name == "Variable_List":
            lines.append(_wrapped(name, _plain(value)))
        elif isinstance(value, dict):
            lines.extend(_wrapped(f"{name}.{part}", str(inner)) for part, inner in value.items())
        else:
            lines.append(_wrapped(name, str(value)))
    return "\n".join(lines) + "\n\n"


def _old_number(value: str) -> str:
    return value if _NUMBER.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _new_number(value: str) -> str:
    """Whatever strtod takes whole is a number."""
    try:
        if not value or value != value.strip() or "_" in value:
            raise ValueError
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            return "null"
        return str(int(number)) if number == int(number) and abs(number) < 1e15 else f"{number:.15g}"
    except ValueError:
        return json.dumps(value, ensure_ascii=False)


def _escaped(value: str) -> str:
    """As the server escapes what `-V` brought; the newer client leaves it so."""
    return re.sub(r"""([\\"'])""", r"\\\1", value)


def _old_variables(variables: Dict[str, str]) -> List[Tuple[str, str]]:
    """An empty value swallows the variable that follows."""
    found: List[Tuple[str, str]] = []
    swallows = False
    for name, value in variables.items():
        if swallows:
            last, before = found[-1]
            found[-1] = (last, f"{before},{name}={value}")
        else:
            found.append((name, value))
        swallows = not value
    return found


class Writer:
    """JSON by hand, since no library writes these lies."""

    def __init__(self, style: str) -> None:
        self._is_old = style == "old"
        self._step = "    " if self._is_old else "\t"
        self._colon = ":" if self._is_old else ":\t"

    def _value(self, name: str, value: Any, depth: int) -> str:
        if name == "Variable_List":
            return self._list(self._variables(value), depth)
        if isinstance(value, dict):
            pairs = [(inner, self._value("", one, depth + 1)) for inner, one in value.items()]
            return self._list(pairs, depth)
        if isinstance(value, int):
            return str(value)
        is_text = name in TEXTS or (name == "Job_Name" and not self._is_old)
        if is_text:
            return json.dumps(value, ensure_ascii=False)
        return _old_number(value) if self._is_old else _new_number(value)

    def _variables(self, variables: Dict[str, str]) -> List[Tuple[str, str]]:
        if self._is_old:
            return [(name, _old_number(value)) for name, value in _old_variables(variables)]
        return [(name, _new_number(_escaped(value))) for name, value in variables.items()]

    def _list(self, pairs: List[Tuple[str, str]], depth: int) -> str:
        inner = self._step * (depth + 1)
        lines = [f"{inner}{json.dumps(name, ensure_ascii=False)}{self._colon}{value}" for name, value in pairs]
        return "{\n" + ",\n".join(lines) + "\n" + self._step * depth + "}"

    def document(self, head: Attributes, kind: str, records: List[Tuple[str, Attributes]]) -> str:
        """All that one call prints. Without records there is no word of their kind."""
        pairs = [(name, str(value) if isinstance(value, int) else json.dumps(value)) for name, value in head]
        if records:
            cache: Dict[Tuple[str, int], str] = {}
            bodies = [(name, self._list(self._record(attributes, cache), 2)) for name, attributes in records]
            pairs.append((kind, self._list(bodies, 1)))
        return self._list(pairs, 0) + "\n"

    def _record(self, attributes: Attributes, cache: Dict[Tuple[str, int], str]) -> List[Tuple[str, str]]:
        found = []
        for name, value in attributes:
            # The elements of an array share these.
            key = (name, id(value))
            if name in ("Variable_List", "Resource_List"):
                if key not in cache:
                    cache[key] = self._value(name, value, 3)
                found.append((name, cache[key]))
            else:
                found.append((name, self._value(name, value, 3)))
        return found
