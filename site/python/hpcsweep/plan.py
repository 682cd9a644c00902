"""The plan of a sweep as text, which is the same in every process that has the same grid."""

import re
from typing import Any, Dict, List, Optional, Sequence

from .grid import Grid, _toml, _toml_key

# The line that names the program which jobs start; only who submits writes it.
PROGRAM = re.compile(r"^(run\.)?program = \[.*\]\n", re.MULTILINE)
_FUNCTION = re.compile(r"^(run\.)?function = ", re.MULTILINE)

_HEADER = re.compile(r"^[ \t]*\[[ \t]*([A-Za-z0-9_-]+)[ \t]*\][ \t]*(#.*)?$")


class Text:
    """The parts of a plan besides its grid.

    settings: further tables as TOML; tables: more of them, by their names, after the grid. request: keys of `[resources]`; pull, schedule, run: of the tables of that name.
    """

    def __init__(
        self, name: str, function: str, settings: str, run: Dict[str, Any], tables: Optional[Dict[str, Dict[str, Any]]] = None
    ):
        self.name = name
        self.function = function
        self.settings = settings.strip()
        self.run = run
        self.tables = tables or {}
        self.request = {}  # type: Dict[str, Any]
        self.pull = {}  # type: Dict[str, Any]
        self.schedule = {}  # type: Dict[str, Any]

    def toml(self, grid: Grid, root: str = ".", program: Optional[str] = None) -> str:
        """The plan. root: the folder of the results tree; program: the line that says what jobs start."""
        own = ["function = %s" % _toml(self.function), *_lines(self.run)]
        tables = [("sweep", ["name = %s" % _toml(self.name), "root = %s" % _toml(root)]), ("run", own)]
        tables += [("resources", _lines(self.request)), ("pull", _lines(self.pull))]
        tables.append(("schedule", _lines(self.schedule)))
        settings = self.settings.split("\n") if self.settings else []
        added = []  # type: List[str]
        for table, lines in tables:
            if lines and not _put(settings, table, lines):
                added += ["[%s]" % table, *lines, ""]
        head = ["# Written by hpcsweep.Sweep: a changed grid or function changes it.", "version = 1", ""]
        drawn = ["\n".join(["[%s]" % table, *_lines(keys)]) + "\n" for table, keys in self.tables.items()]
        parts = [part for part in [grid.toml(), *drawn] if part]
        text = "\n".join(head + settings + ([""] if settings else []) + added) + "\n" + "\n".join(parts)
        return with_program(text, program)


def with_program(text: str, line: Optional[str]) -> str:
    """The plan with this line in place of the one that it had."""
    text = PROGRAM.sub("", text, 1)
    found = _FUNCTION.search(text)
    if found is None or not line:
        return text
    return text[: found.start()] + (found.group(1) or "") + line + text[found.start() :]


def program_of(text: str) -> Optional[str]:
    """The line of a plan that names what jobs start."""
    found = PROGRAM.search(text)
    return found.group()[len(found.group(1) or "") :] if found else None


def program_line(argv: Sequence[str]) -> str:
    """The line that has jobs start this."""
    return "program = %s\n" % _toml(list(argv))


def _lines(table: Dict[str, Any]) -> List[str]:
    return ["%s = %s" % (_toml_key(key), _toml(value)) for key, value in table.items() if value is not None]


def _put(settings: List[str], table: str, lines: List[str]) -> bool:
    """Adds lines to a table that the settings have; `False` if they do not have it."""
    quote, is_root = "", True
    for number, line in enumerate(settings):
        header = None if quote else _HEADER.match(line)
        if header and header.group(1) == table:
            settings[number + 1 : number + 1] = lines
            return True
        is_root &= bool(quote) or not re.match(r"[ \t]*\[", line)
        if is_root and not quote and re.match(r"[ \t]*%s[ \t]*\." % table, line):
            # Dotted keys: the table is open where they stand.
            settings[number:number] = ["%s.%s" % (table, each) for each in lines]
            return True
        for mark in ('"""', "'''"):
            if quote in ("", mark) and line.count(mark) % 2:
                quote = "" if quote else mark
    return False
