"""Scripts without `if __name__ == "__main__":`, which processes of `multiprocessing` would run again, with their sweeps."""

import ast
import contextlib
import sys
from typing import Any, Iterator, List, Tuple

from . import ranks
from .program import SweepError

_HINT = "\nhint: write `if __name__ == \"__main__\":` before what is not to be run again, the call of `run` or `submit` too"


def refuse_child() -> None:
    """A SweepError in a process of `multiprocessing` that imports the script, and has come to its sweep."""
    if ranks.is_imported_by_child():
        raise SweepError(
            "a process of `multiprocessing` has imported this script and come to its sweep, which stands there without "
            '`if __name__ == "__main__":`' + _HINT
        )


@contextlib.contextmanager
def spawns_refused() -> Iterator[None]:
    """Within, no process can be started that would run the script again up to here: its start is a SweepError.

    It would fail there, and a pool of processes starts another instead, for ever.
    """
    if not _is_bare():
        yield
        return
    # Both ways of multiprocessing that import the script ask this for where it is.
    from multiprocessing import spawn

    before = spawn.get_preparation_data

    def refuse(*_: Any) -> Any:
        raise SweepError(
            "a process of `multiprocessing` imports this script and would come to its sweep, which stands there without "
            '`if __name__ == "__main__":`' + _HINT
        )

    spawn.get_preparation_data = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        spawn.get_preparation_data = before


def _is_bare() -> bool:
    """Whether the statement of the program's script that runs now would run in processes that import the script, too."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    lines = [frame.f_lineno for frame in _frames() if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"]
    if path is None or not lines:
        return False
    try:
        with open(path, "rb") as file:
            guarded = _guarded(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError):
        return False
    return not any(first <= lines[0] <= last for first, last in guarded)


def _frames() -> Iterator[Any]:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _guarded(tree: ast.Module) -> List[Tuple[int, int]]:
    """The first and last lines of what depends on the module's name."""
    return [
        (statement.lineno, statement.end_lineno or statement.lineno)
        for statement in tree.body
        if isinstance(statement, ast.If)
        and any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))
    ]
