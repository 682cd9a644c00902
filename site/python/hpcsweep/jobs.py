"""What jobs start to call the function of a sweep, and how the function is found there.

`hpcsweep submit` has each job start `python -m hpcsweep.job`. That imports the function by its name, where it is found
so; otherwise it starts the script again as the job's main program, which becomes an agent where it calls `run` or
`submit`.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional

from . import plan as plans
from . import pool
from .agent import Agent
from .grid import Grid
from .program import SweepError
from .runs import Work, work_elsewhere, work_of

# What `hpcsweep` says to a process that it has started as an agent of a sweep: JSON with the folder of the sweep,
# options for agents, and how many of them.
SERVE = "HPCSWEEP_SERVE"
# What `hpcsweep plan SCRIPT` and `hpcsweep submit SCRIPT` say to the script: JSON with the file that takes the path
# of the plan, and whether the plan is written beside the results or into that file.
SCRIPT = "HPCSWEEP_SCRIPT"
# Which sweep of a script a job is for; set by `hpcsweep.job`.
OF = "HPCSWEEP_SERVE_PATH"
# What `run` says to a process that it has started to keep a worker: JSON with the pipes of `pool.keep` and with the agent.
KEEP = "HPCSWEEP_KEEP"

# What is called where the script reaches the sweep that this process was started for.
_call = None  # type: Optional[Callable[[Any, Grid], None]]


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
    return plans.program_line(_program(sweep, function, grid))


def _program(sweep: str, function: Any, grid: Grid) -> List[str]:
    argv = [sys.executable, "-m", "hpcsweep.job", "--folder", os.getcwd()]
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    is_named = module is not None and name and found(module, name) is function
    by_name = is_named and not grid.lost()
    path, started_as = script(), _started_as()
    is_main = getattr(module, "__name__", "__main__") == "__main__"
    if by_name and (path is not None or not is_main):
        if is_main and started_as is None:
            argv += ["--script", path or ""]
        else:
            argv += _module(started_as if is_main else module.__name__)  # type: ignore[union-attr, arg-type]
        argv += ["--name", name] + (["--positional"] if grid.positional else [])
        # A script that submits where it is imported, too, serves then.
        return argv + ["--sweep", sweep, "--", *sys.argv[1:]]
    if path is None and is_named and not is_main:
        raise SweepError(
            "a job knows the values of the plan alone, which cannot hold %r as it is\n"
            "hint: give lists and numbers of Python, from which the function makes it, or submit from a script"
            % (grid.lost()[0],)
        )
    if path is None:
        raise SweepError(
            "a job cannot find the function `%s`: it is of a notebook or a prompt\n"
            "hint: write it into a file (`%%%%writefile fit.py` in a cell of its own) and import it from there"
            % (name or repr(function))
        )
    argv += ["--script", path] if started_as is None else _module(started_as)
    return argv + ["--sweep", sweep, "--", *sys.argv[1:]]


def spawns(sweep: str, function: Any, grid: Grid) -> Callable[[Dict[str, Any]], pool.Spawn]:
    """Makes what starts processes that find this function as jobs do, and keep workers that call it."""
    argv = _program(sweep, function, grid)

    def of(asked: Dict[str, Any]) -> pool.Spawn:
        def spawn(life: int, events: int, first: bool) -> int:
            said = json.dumps(dict(asked, life=life, events=events, retry=asked["retry"] and first))
            sys.stdout.flush()
            process = subprocess.Popen(
                argv, env=dict(os.environ, **{KEEP: said}), stdin=subprocess.DEVNULL, pass_fds=(life, events)
            )
            # The pool waits for it.
            process.returncode = 0
            return process.pid

        return spawn

    return of


def keep(reach: pool.Reach) -> None:
    """Is what `spawns` has started this process for; it does not return."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, pool.HELD)
    asked = json.loads(os.environ.pop(KEEP))

    def start(first: bool) -> Agent:
        return Agent(asked["place"], asked["options"] + (["--retry"] if first and asked["retry"] else []), asked["quiet"])

    pool.keep(asked["life"], asked["events"], start, reach, asked["tells"], set(mask))


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
    global _call
    asked = os.environ.get(SCRIPT)
    if asked is not None:
        _describe(json.loads(asked), path, grid, function, plan, write)
        raise SystemExit(0)
    if _call is not None and os.environ.get(OF) == path:
        call, _call = _call, None
        call(function, grid)
        raise SystemExit(0)


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


def reached(call: Callable[[Any, Grid], None]) -> None:
    """From now on the script calls this where it reaches the sweep that this process was started for, and ends."""
    global _call
    _call = call


def serve(reach: pool.Reach) -> int:
    """Is agents of the sweep that `hpcsweep` has started this process for: the exit code."""
    said = os.environ.pop(SERVE)
    asked = json.loads(said)

    def reach_here(call: Callable[[Any, Grid], None]) -> None:
        def found(function: Any, grid: Grid) -> None:
            del os.environ[SERVE]
            call(function, grid)

        # A script may want to know that a job has started it.
        os.environ[SERVE] = said
        reach(found)

    processes, forks = asked["processes"], asked.get("devices", False)
    if processes == 1 and not forks:
        reach_here(lambda function, grid: sys.exit(_go(work_of(function, grid, asked["sweep"], 1, asked["options"]))))
    # Each process is forked before it has what the function needs: threads of libraries do not survive a fork.
    work = work_elsewhere(reach_here, asked["sweep"], processes, asked["options"])
    work.forks = forks
    return _go(work)


def _go(work: Work) -> int:
    try:
        work.go()
    except SweepError as e:
        print("hpcsweep: %s" % e, file=sys.stderr)
        return 1
    return int(work.has_failed)

