"""`Sweep`: a function called for all combinations of some parameters, by any number of processes on any hosts."""

import inspect
import json
import os
import random
import re
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from . import grid as grids
from . import guards, jobs, runner, runs, threads
from . import plan as plans
from . import record as records
from .program import SweepError, output_of
from .record import Record
from .runs import Stopped
from .submission import FINAL, TARGETS, Submission

__all__ = ["Record", "Stopped", "Submission", "Sweep"]

# How long a process waits at most until it writes its own grid again, seconds.
PAUSE = 0.5
# Settings by which only the number of the devices counts that a point names.
_COUNT = re.compile(r"\bgpu_ids\s*=\s*[\"']count[\"']")
# Settings by which the plan has other trials than the grid has points.
_OTHER_TRIALS = re.compile(r"^[ \t]*(\[\[?[ \t]*)?(sample|replicates|exclude)[ \t]*[].=]", re.MULTILINE)


class Sweep:
    """A sweep whose results lie in a folder: `Sweep("results/demo")`, or `Sweep("demo")` for the same."""

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        settings: str = "",
        quiet: bool = False,
        function: Optional[Callable[..., Any]] = None,
    ):
        """settings: further tables of the plan, as TOML: `[pull]`, `[hooks]`, `[resources]` and others of docs/plan.md.
        quiet: agents say nothing but errors on standard error. function: what is run, if `run` does not say.
        """
        given = os.fspath(path)
        # Functions may change the folder that the process is in.
        self._path = os.path.abspath(given if os.sep in given else os.path.join("results", given))
        self._root, self._name = os.path.split(self._path)
        allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        if not 0 < len(self._name) <= 64 or set(self._name) - set(allowed) or set(self._name) <= {"."}:
            raise ValueError(
                "a sweep's name has up to 64 letters, digits, `.`, `_` and `-`, and %r is none" % self._name
            )
        self._settings = settings
        # Tables of the plan beside the settings, by their names.
        self._tables = {}  # type: Dict[str, Dict[str, Any]]
        self._quiet = quiet
        self._function = function
        self._grid = None  # type: Optional[grids.Grid]
        self._has_other_trials = False
        # As `run` or `submit` has made it.
        self._plan = None  # type: Optional[plans.Text]

    def __repr__(self) -> str:
        return "Sweep(%r)" % self._path

    @property
    def plan(self) -> str:
        """The file of the plan, beside the folder of the results."""
        return self._path + ".toml"

    def grid(self, *lists: Any, **axes: Any) -> "Sweep":
        """The values of each parameter; all combinations are run, the last axis varying fastest.

        grid(lr=[0.1, 0.01], layers=[1, 2]) calls function(lr=..., layers=...), grid([0.1, 0.01], [1, 2]) calls
        function(..., ...).
        """
        return self._has(grids.grid(lists, axes))

    def points(self, rows: Iterable[Any]) -> "Sweep":
        """Instead of a grid some points: dicts of parameters, or tuples for function(..., ...).

        Points need not have the same parameters. `task_id` (the chain), `gpu_ids_abs` and `resources` of a dict are
        those of the trial, and no parameters.
        """
        return self._has(grids.points(rows))

    def seeds(self, count: int, parameter: str = "seed") -> "Sweep":
        """Runs each point so many times, each with a seed of its own: function(..., seed=1), function(..., seed=2) and so on.

        `hpcsweep.best` averages over them. As `[replicates]` of docs/plan.md.
        """
        _whole("count", count)
        return self._adds("replicates", {"count": count, "parameter": parameter})

    def sample(self, count: int, **distributions: Any) -> "Sweep":
        """So many random points: sample(40, lr={"log_uniform": [1e-5, 1e-1]}, layers={"int": [1, 4]}), each of them with all points of
        the grid, if there is one. A larger count keeps the points. As `[sample]` of docs/plan.md, which has all distributions.
        """
        _whole("count", count)
        if not distributions:
            raise ValueError('sample() needs at least one parameter: sample(40, lr={"log_uniform": [1e-5, 1e-1]})')
        for name, distribution in distributions.items():
            if not isinstance(distribution, dict) or not grids.fits(distribution):
                raise ValueError(
                    'sample(): `%s` needs a distribution, as {"uniform": [0.0, 1.0]}, and not %r' % (name, distribution)
                )
        return self._adds("sample", {"count": count, "parameters": distributions})

    def _adds(self, table: str, keys: Dict[str, Any]) -> "Sweep":
        """Adds a table to the plan."""
        if re.search(r"^[ \t]*\[?[ \t]*%s[ \t]*[].=]" % table, self._settings, re.MULTILINE):
            raise ValueError("the settings of the sweep have `[%s]` already" % table)
        self._tables[table] = keys
        return self._has(grids.Grid([], False) if self._grid is None else self._grid)

    def _drawn(self) -> List[str]:
        """The parameters of the tables beside the grid."""
        seeds, sample = self._tables.get("replicates", {}), self._tables.get("sample", {})
        return [seeds[name] for name in seeds if name == "parameter"] + list(sample.get("parameters", {}))

    def _has(self, grid: grids.Grid) -> "Sweep":
        self._has_other_trials = bool(self._tables) or _OTHER_TRIALS.search(self._settings) is not None
        grid.has_defaults = "defaults" in self._settings or self._has_other_trials
        self._grid, self._plan = grid, None
        return self

    def run(
        self,
        function: Optional[Callable[..., Any]] = None,
        processes: int = 1,
        attempts: int = 1,
        on_finish: Optional[Callable[[Record], None]] = None,
        on_error: Optional[Callable[[Record], None]] = None,
        retry: bool = False,
        gpus: int = 0,
        max_processes: Optional[int] = None,
        on_failure: str = "stop",
        gpu_share: int = 1,
    ) -> List[Record]:
        """Calls the function for all points of the grid that have no result yet, together with all others that
        run this sweep, and returns the records of all trials, in the order of the grid.

        processes: so many at a time here, each forked from this one. attempts: how often a trial is tried
        before it has failed. on_finish, on_error: called in a thread for each trial that was done, or has failed
        for good, by these processes. retry: trials that have failed before are run again. gpus: GPUs of each
        process. max_processes: the same as processes. on_failure: "stop" or "continue" the chain of a trial that
        has failed. gpu_share: processes that use a GPU at the same time.
        """
        processes = processes if max_processes is None else max_processes
        function, grid, plan = self._asked(function, processes, attempts, gpus, gpu_share, on_failure)
        jobs.enter(self._path, grid, function, plan, self._write)
        self._check_devices(grid, processes)
        self._write(plan.toml(grid))
        work = runs.work_of(function, grid, self.plan, processes, [])
        work.quiet = self._quiet
        if processes > 1:
            work.spawns = self._spawns(function, grid)
        while True:
            results = work.go(retry, on_finish, on_error, self.results)
            left = [record for record in results if record.state not in FINAL]
            if not left:
                return results
            if self._is_planned(grid, plan):
                if work.has_lost_agents:
                    raise SweepError("processes of the sweep were killed, and trials are left: start it again")
                # No process runs these trials any more, so the sweep has not ended, whatever the
                # reason is.
                names = ", ".join("%s is %s" % (record.trial, record.state) for record in left[:5])
                raise SweepError("the sweep is not at its end: trial %s; start it again" % names)
            # Another process came with a grid that lacks some of these points.
            time.sleep(random.uniform(0.05, PAUSE))
            self._write(plan.toml(grid))
            retry = False

    def _spawns(self, function: Any, grid: grids.Grid) -> Any:
        """How processes are started where forks of this one would wait for its libraries' threads; None where they do not."""
        names = threads.foreign()
        if not names:
            return None
        try:
            return jobs.spawns(self._path, function, grid)
        except SweepError as e:
            raise SweepError(
                "processes=2 or more needs forks of this process, and they would wait for ever for threads that libraries "
                "have started here (%s): call run() before what starts them, or with processes=1; %s"
                % (", ".join(sorted(set(names))), e)
            ) from None

    def submit(
        self,
        target: str = "auto",
        function: Optional[Callable[..., Any]] = None,
        workers: int = 1,
        processes: int = 1,
        walltime: Optional[str] = None,
        cpus: Optional[int] = None,
        memory: Optional[str] = None,
        gpus: int = 0,
        partition: Optional[str] = None,
        account: Optional[str] = None,
        attempts: int = 1,
        on_failure: str = "stop",
        retry: bool = False,
        gpu_share: int = 1,
    ) -> "Submission":
        """Has jobs call the function for all points that have no result yet, and returns at once.

        target: "slurm", "pbs", "local" (processes of this machine, which outlive this one) or "auto", what the site's
        profile says. workers: most jobs, each with so many processes. walltime: of a job ("2h"). cpus, memory, gpus: of
        a process. gpu_share: processes that use a GPU at the same time. Each job starts this script again, up to this line, or imports what the function is in.
        """
        if target not in TARGETS:
            raise ValueError("target must be one of %s, not %r" % (", ".join(map(repr, TARGETS)), target))
        function, grid, plan = self._asked(function, processes, attempts, gpus, gpu_share, on_failure)
        if type(workers) is not int or workers < 1:
            raise ValueError("workers must be a whole number of at least 1, not %r" % (workers,))
        plan.request.update(cpus_per_rank=cpus, memory=memory, partition=partition, account=account)
        plan.pull.update(walltime=walltime)
        jobs.enter(self._path, grid, function, plan, self._write)
        self._write(plan.toml(grid, program=jobs.program_of(self._path, function, grid)))
        return Submission(self, target, workers, processes, retry)

    def _asked(
        self, function: Any, processes: int, attempts: int, gpus: int, gpu_share: int, on_failure: str
    ) -> Any:
        """Function, grid and plan, when all of it has been checked."""
        guards.refuse_child()
        if self._grid is None:
            raise ValueError("what is to be run? call grid(...) or points(...) before run(...)")
        function = self._function if function is None else function
        if not callable(function):
            raise TypeError("run() needs a function, not a `%s`" % type(function).__name__)
        numbers = (("processes", processes, 1), ("attempts", attempts, 1), ("gpus", gpus, 0))
        for name, number, least in (*numbers, ("gpu_share", gpu_share, 1)):
            if type(number) is not int or number < least:
                raise ValueError("%s must be a whole number of at least %d, not %r" % (name, least, number))
        if on_failure not in ("stop", "continue"):
            raise ValueError("on_failure must be 'stop' or 'continue', not %r" % (on_failure,))
        _check(function, self._grid, self._drawn())
        run = {"attempts": attempts, "on_failure": None if on_failure == "stop" else on_failure}
        self._plan = plans.Text(self._name, jobs.name_of(function), self._settings, run, self._tables)
        self._plan.request["gpus_per_rank"] = gpus or None
        self._plan.schedule["gpu_share"] = gpu_share if gpu_share > 1 else None
        return function, self._grid, self._plan

    def _check_devices(self, grid: grids.Grid, processes: int) -> None:
        """A process cannot change its devices once it has used them; a fork of it begins with none."""
        if processes == 1 and len(grid.devices()) > 1 and not _COUNT.search(self._settings):
            names = " and ".join("none" if ids is None else repr(ids) for ids in grid.devices()[:2])
            raise ValueError(
                "points name different devices in gpu_ids_abs (%s), and one process keeps those of its first call: "
                "run(..., processes=2) calls the function in forks, each with the devices of its point" % names
            )

    def results(self) -> List[Record]:
        """The records of all trials of the plan, in the order of the grid, as they stand now."""
        if self._grid is None:
            return [records.from_line(line, None) for line in self._collect(self._path)]
        if not os.path.exists(os.path.join(self._path, "sweep.json")):
            # No process has begun the sweep.
            return [records.from_line(None, point) for point in self._grid.points()]
        lines = self._planned(self._grid)
        if self._has_other_trials:
            return [records.from_line(line, self._grid.meant(line["params"])) for line in lines]
        if len(lines) != len(list(self._grid.points())) or not all(
            map(self._grid.agrees, self._grid.wires(), lines)
        ):
            raise SweepError("the plan `%s` was changed by another process: it has another grid" % self.plan)
        return [
            records.from_line(line, dict(self._grid.meant({} if line is None else line["params"]), **point))
            for line, point in zip(lines, self._grid.points())
        ]

    def _planned(self, grid: grids.Grid) -> List[Any]:
        """The lines of the grid's trials, whatever plan another process has left."""
        if self._plan is None:
            return self._collect(self.plan)
        if self._is_planned(grid, self._plan):
            lines = self._collect(self.plan)
            # Another process may have written its plan before the program has read this one.
            if self._is_planned(grid, self._plan):
                return lines
        with tempfile.TemporaryDirectory(prefix="hpcsweep-") as folder:
            own = os.path.join(folder, "plan.toml")
            with open(own, "w", encoding="utf-8") as file:
                file.write(self._plan.toml(grid, root=self._root))
            return self._collect(own)

    def _collect(self, place: str) -> List[Any]:
        text = output_of(["collect", "--planned", "--format", "records", place]).decode()
        # Not splitlines(), which takes separators within a text for ends of lines.
        return [json.loads(line) for line in text.split("\n") if line]

    def _is_planned(self, grid: grids.Grid, plan: plans.Text) -> bool:
        return plans.with_program(_read(self.plan), None) == plan.toml(grid)

    def best(self, key: Union[None, str, Callable[[Record], Any]] = None, mode: str = "min") -> Record:
        """The record of the trial that is done whose value is least or greatest (mode="max").

        Where points differ in a seed or a fold, that is the luckiest trial, perhaps of none of the good settings: the command
        `hpcsweep best` averages over seeds, and says which settings can be told apart.

        key: the name of a metric, that is what the function reported or a member of a dict that it returned
        (`"val.loss"`, `"loss.min"`); or a function that makes a number of a record.
        """
        return records.best(self.results(), key, mode)

    def _write(self, text: str) -> None:
        """Writes the plan, unless it is there. Another process with the same grid writes the same."""
        before = _read(self.plan)
        if plans.program_of(text) is None:
            # The submission of the sweep has set what jobs start.
            text = plans.with_program(text, plans.program_of(before))
        if text == before:
            return
        os.makedirs(self._root, exist_ok=True)
        aside = os.path.join(self._root, ".%s.%s.tmp" % (self._name, os.urandom(8).hex()))
        try:
            with open(aside, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.plan)
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)
            raise


def _whole(name: str, number: Any) -> None:
    if type(number) is not int or number < 1:
        raise ValueError("%s must be a whole number of at least 1, not %r" % (name, number))


def _read(path: str) -> str:
    """A text file as it is, empty if it is not there."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError:
        return ""


def _check(function: Callable[..., Any], grid: grids.Grid, drawn: List[str]) -> None:
    """Checks that the function runs when it is called, and takes the parameters, before all trials fail because of them."""
    runner.refuse_lazy(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Functions of C need not have one.
        return
    bind = signature.bind_partial if grid.has_defaults else signature.bind
    for shape in grid.shapes():
        names = [*shape, *drawn]
        args, kwargs = grid.arguments(dict.fromkeys(names))
        try:
            bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError("the function cannot be called with %s: %s" % (", ".join(names), e)) from None
