"""`python -m hpcsweep.job`: what a job starts to call the function of a sweep. `jobs.program_of` writes its arguments."""

import argparse
import importlib
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from typing import Any, Callable, List

from . import jobs
from .grid import Grid, Unknown
from .program import SweepError


def main(given: List[str]) -> int:
    """Finds the function, calls it for trials, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hpcsweep.job", description=__doc__)
    parser.add_argument("--folder", help="where the script was started")
    parser.add_argument("--script", help="the script that has the function")
    parser.add_argument("--module", help="the module that has it")
    parser.add_argument("--path", action="append", default=[], help="where modules are looked for")
    parser.add_argument("--name", help="its name there; without one the script or module is run up to its sweep")
    parser.add_argument("--positional", action="store_true", help="parameters have no names")
    parser.add_argument("--sweep", required=True, help="the folder of the results, as the script has it")
    parser.add_argument("arguments", nargs="*", help="of the script")
    args = parser.parse_args(given)
    if jobs.KEEP in os.environ:
        jobs.keep(lambda call: _reach(args, call))
    if jobs.SERVE not in os.environ:
        parser.error("jobs of `hpcsweep submit` start this")
    try:
        return jobs.serve(lambda call: _reach(args, call))
    except SweepError as e:
        print("hpcsweep: %s" % e, file=sys.stderr)
        return 1


def _reach(args: argparse.Namespace, call: Callable[[Any, Grid], None]) -> None:
    """Finds the function, and calls this with it and its grid."""
    # To be found by the script's own `run` or `submit`, whatever folder the job's results are in.
    os.environ[jobs.OF] = args.sweep
    jobs.reached(call)
    os.chdir(args.folder or ".")
    if args.script:
        sys.path[0] = os.path.dirname(args.script)
    else:
        sys.path[0:1] = args.path
    what = args.script or args.module
    sys.argv = [what, *args.arguments]
    if args.name is None:
        if args.script:
            runpy.run_path(args.script, run_name="__main__")
        else:
            runpy.run_module(args.module, run_name="__main__", alter_sys=True)
        raise SweepError("`%s` has ended without a sweep in `%s`" % (what, args.sweep))
    module = _imported(args.script) if args.script else importlib.import_module(args.module)
    function = jobs.found(module, args.name)
    if function is None:
        raise SweepError("`%s` has no `%s`" % (what, args.name))
    call(function, Unknown(args.positional))


def _imported(path: str) -> Any:
    """A script as a module: what stands under `if __name__ == "__main__"` is not run."""
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As where the function's own classes look for what they are made of.
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
