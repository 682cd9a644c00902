"""Results of sweeps, however these were run: records, and tables of pandas, polars or pyarrow."""

import datetime
import importlib
import io
import json
from typing import Any, Dict, List, Optional, Sequence, Union

from . import record as records
from .jsonable import numbers
from .program import SweepError, output_of

# What a table may be, with the libraries that it needs.
FORMS = {
    "records": (),
    "arrow": ("pyarrow",),
    "pandas": ("pandas", "pyarrow"),
    "polars": ("polars",),
}

Names = Union[None, str, Sequence[str]]


def load(
    *sweeps: Any,
    form: str = "records",
    where: Optional[str] = None,
    columns: Names = None,
    sort: Names = None,
    planned: bool = False,
    offline: bool = False
) -> Any:
    """The trials of sweeps: folders, plans or patterns ("results/*"); without any, as `hpcsweep collect` finds them.

    form: "records" for a list of records, "pandas", "polars" or "arrow" for a table with a row a trial. where: only trials for
    which an expression holds ('lr > 0.1 and state == "done"'). columns, sort: columns of a table, and those by which its rows
    are sorted ("-loss": the greatest first). planned: only trials of the plan as it is now, in its order. offline: without
    asking the scheduler.
    """
    args = _args(sweeps, where, columns, sort, planned, offline)
    if _check(form) == "records":
        return [_record(line) for line in _lines(args + ["--format", "records"])]
    return _table(args, form)


def steps(
    *sweeps: Any,
    form: str = "records",
    where: Optional[str] = None,
    columns: Names = None,
    sort: Names = None,
    planned: bool = False,
    offline: bool = False
) -> Any:
    """The learning curves of sweeps, a row a line of metrics: dicts, or a table. The arguments are those of `load`."""
    args = _args(sweeps, where, columns, sort, planned, offline) + ["--steps"]
    if _check(form) == "records":
        return [numbers(line) for line in _lines(args + ["--format", "jsonl"])]
    return _table(args, form)


def attempts(
    *sweeps: Any,
    form: str = "records",
    where: Optional[str] = None,
    columns: Names = None,
    sort: Names = None,
    planned: bool = False,
    offline: bool = False
) -> Any:
    """All attempts of the trials of sweeps, a row each: dicts, or a table. The arguments are those of `load`."""
    args = _args(sweeps, where, columns, sort, planned, offline) + ["--attempts"]
    if _check(form) == "records":
        return [_times(line) for line in _lines(args + ["--format", "jsonl"])]
    return _table(args, form)


def _check(form: str) -> str:
    if form not in FORMS:
        raise ValueError("form must be %s, not %r" % (", ".join('"%s"' % name for name in FORMS), form))
    return form


def best(
    *sweeps: Any,
    metric: str,
    mode: str,
    n: int = 1,
    where: Optional[str] = None,
    over: Names = None,
    by: Names = None
) -> List[Dict[str, Any]]:
    """The best settings by a metric, averaged over seeds and folds, as `hpcsweep best` finds them: of each its `setting`, `mean`,
    `interval`, `n`, `failed`, and whether it `is_tied` with the best one.

    mode: "min" or "max". n: how many settings. where: only trials for which an expression holds. over: the parameters to average
    over; by: those that make a setting.
    """
    args = ["best", *_of(sweeps, where, over, by), "--metric=" + metric, _mode(mode), "--top=%d" % n]
    return [numbers(line) for line in _lines(args + ["--json"])]


def compare(
    one: Any,
    other: Any,
    *sweeps: Any,
    metric: str,
    over: Names = None,
    by: Names = None
) -> Dict[str, Any]:
    """Two settings ("lr=0.1"), sweeps or sets of trials ("0-4") side by side, as `hpcsweep compare` shows them: difference,
    interval, tests and cost."""
    args = ["compare", str(one), str(other), *_of(sweeps, None, over, by), "--metric=" + metric, "--json"]
    return dict(numbers(_lines(args)[0]))


def effects(*sweeps: Any, metric: str, mode: str, where: Optional[str] = None, over: Names = None) -> Dict[str, Any]:
    """Which parameters matter for a metric, and which value of each is best, as `hpcsweep effects` finds it."""
    args = ["effects", *_of(sweeps, where, over, None), "--metric=" + metric, _mode(mode), "--json"]
    return dict(numbers(_lines(args)[0]))


def _mode(mode: str) -> str:
    if mode not in ("min", "max"):
        raise ValueError('mode must be "min" or "max", not %r' % (mode,))
    return "--" + mode


def _of(sweeps: Any, where: Optional[str], over: Names, by: Names) -> List[str]:
    """The sweeps, and what of them is asked for."""
    args = [] if where is None else ["--where=" + where]
    for option, names in (("--over", over), ("--by", by)):
        if names is not None:
            args.append("%s=%s" % (option, names if isinstance(names, str) else ",".join(names)))
    return args + [str(sweep) for sweep in sweeps]


def _args(sweeps: Any, where: Any, columns: Names, sort: Names, planned: bool, offline: bool) -> List[str]:
    args = ["collect"]
    if where is not None:
        args.append("--where=" + where)
    for option, names in (("--columns", columns), ("--sort", sort)):
        if names is not None:
            args += ["%s=%s" % (option, name) for name in ([names] if isinstance(names, str) else names)]
    args += ["--planned"] * planned + ["--offline"] * offline
    return args + [str(sweep) for sweep in sweeps]


def _lines(args: List[str]) -> List[Dict[str, Any]]:
    # Not splitlines(), which takes separators within a text for ends of lines.
    lines = [json.loads(line) for line in output_of(args).decode().split("\n") if line]
    return [line for line in lines if line is not None]


def _record(line: Dict[str, Any]) -> records.Record:
    record = records.from_line(line, None)
    if "sweep" in line:
        record["sweep"] = line["sweep"]
    return record


def _times(line: Dict[str, Any]) -> Dict[str, Any]:
    for name in ("start", "end"):
        if line.get(name) is not None:
            time = datetime.datetime.strptime(line[name], "%Y-%m-%dT%H:%M:%S.%fZ")
            line[name] = time.replace(tzinfo=datetime.timezone.utc)
    return line


def _table(args: List[str], form: str) -> Any:
    """A table from what the program writes as Arrow, without a copy as text."""
    found = {}  # type: Dict[str, Any]
    for name in FORMS[form]:
        try:
            found[name] = importlib.import_module(name)
        except ImportError as error:
            needed = " and ".join("`%s`" % each for each in FORMS[form])
            raise SweepError(
                "a table of %s needs %s: %s\nhint: pip install %s, or take form=\"records\""
                % (form, needed, error, " ".join(FORMS[form]))
            ) from None
    told = output_of(args + ["--format", "arrow"])
    if form == "polars":
        return found["polars"].read_ipc(io.BytesIO(told))
    table = importlib.import_module("pyarrow.ipc").open_file(found["pyarrow"].py_buffer(told)).read_all()
    return table.to_pandas() if form == "pandas" else table
