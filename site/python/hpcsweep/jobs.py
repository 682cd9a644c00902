"""What jobs start to call the function of a sweep, and how the function is found there.

`hpcsweep submit` has each job start `python -m hpcsweep.job`. That imports the function by its name, where it is found
so; otherwise it starts the script again as the job's main program, which becomes an agent where it calls `run` or
`submit`.
"""

import json
import os
import sys
from typing import Any, Callable, Dict, List, Optional

from . import plan as plans
from .grid import Grid
from .program import SweepError
from .runs import Work

# What `hpcsweep` says to a process that it has started as an agent of a sweep: JSON with the folder of the sweep,
# options for agents, and how many of them.
SERVE = "HPCSWEEP_SERVE"
# What `hpcsweep plan SCRIPT` and `hpcsweep submit SCRIPT` say to the script: JSON with the file that takes the path
# of the plan, and whether the plan is written beside the results or into that file.
SCRIPT = "HPCSWEEP_SCRIPT"
# Which sweep of a script a job is for; set by `hpcsweep.job`.
OF = "HPCSWEEP_SERVE_PATH"


def name_of(function: Any) -> str:
    """The function's name in the plan: module and name; for a script, the name of its file."""
    function = _unwrapped(function)
    module = getattr(function, "__module__", None) or type(function).__module__
    if module == "__main__":
        path = script()
        module = os.path.splitext(os.path.basename(path))[0] if path else module
    return "%s:%s" % (module, getattr(function, "__qualname__", None) or type(function).__qualname__)


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "func") and not hasattr(function, "__qualname__"):
        function = function.func
    return function


def script() -> Optional[str]:
    """The file of the program that runs here; None at a prompt and in a notebook."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.abspath(path) if path and os.path.isfile(path) else None


def _started_as() -> Optional[str]:
    """The name of the module that runs here as the program, where it was started by it (`python -m fits.sweep`)."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else spec.name


def found(module: Any, name: str) -> Any:
    """The member of a module with a dotted name; None if there is none."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def program_of(sweep: str, function: Any, grid: Grid) -> str:
    """The line of the plan that has jobs find and call this function."""
    argv = [sys.executable, "-m", "hpcsweep.job", "--folder", os.getcwd()]
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    by_name = grid.is_plain() and module is not None and name and found(module, name) is function
    path, started_as = script(), _started_as()
    is_main = getattr(module, "__name__", "__main__") == "__main__"
    if by_name and (path is not None or not is_main):
        if is_main and started_as is None:
            argv += ["--script", path or ""]
        else:
            argv += _module(started_as if is_main else module.__name__)  # type: ignore[union-attr, arg-type]
        argv += ["--name", name] + (["--positional"] if grid.positional else [])
        # A script that submits where it is imported, too, serves then.
        return plans.program_line(argv + ["--sweep", sweep, "--", *sys.argv[1:]])
    if path is None:
        raise SweepError(
            "a job cannot find the function `%s`: it is of a notebook or a prompt\n"
            "hint: write it into a file (`%%%%writefile fit.py` in a cell of its own) and import it from there"
            % (name or repr(function))
        )
    argv += ["--script", path] if started_as is None else _module(started_as)
    return plans.program_line(argv + ["--sweep", sweep, "--", *sys.argv[1:]])


def _module(name: str) -> List[str]:
    """The arguments by which a job finds a module."""
    argv = ["--module", name]
    # An empty entry, as prompts and notebooks have, is the current folder.
    for place in map(os.path.abspath, sys.path):
        if not place.startswith((sys.prefix, sys.base_prefix)):
            argv += ["--path", place]
    return argv


def enter(path: str, grid: Grid, function: Callable[..., Any], plan: plans.Text, write: Callable[[str], None]) -> None:
    """Does what this process was started for, if that is something else than what its script says, and ends it."""
    asked = os.environ.get(SCRIPT)
    if asked is not None:
        _describe(json.loads(asked), path, grid, function, plan, write)
        raise SystemExit(0)
    if os.environ.get(SERVE) is not None and os.environ.get(OF) == path:
        raise SystemExit(serve(function, grid))


def _describe(
    asked: Dict[str, Any], path: str, grid: Grid, function: Any, plan: plans.Text, write: Callable[[str], None]
) -> None:
    program = program_of(path, function, grid)
    if asked["write"]:
        write(plan.toml(grid, program=program))
        text = path + ".toml"
    else:
        text = plan.toml(grid, root=os.path.dirname(path), program=program)
    with open(asked["file"], "w", encoding="utf-8", newline="") as file:
        file.write(text)


def serve(function: Callable[..., Any], grid: Grid) -> int:
    """Is agents of the sweep that `hpcsweep` has started this process for: the exit code."""
    asked = json.loads(os.environ.pop(SERVE))
    options = asked["options"]  # type: List[str]
    work = Work(function, grid, asked["sweep"], asked["processes"], options)
    work.forks = asked.get("devices", False)
    try:
        work.go()
    except SweepError as e:
        print("hpcsweep: %s" % e, file=sys.stderr)
        return 1
    return int(work.has_failed)

