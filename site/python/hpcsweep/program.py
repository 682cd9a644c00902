"""The program `hpcsweep`, and what it says."""

import os
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import List

# The exit code of what is read of a damaged tree.
DAMAGED = 1


class SweepError(RuntimeError):
    """Why a sweep cannot be run or read."""


def find() -> str:
    """$HPCSWEEP_BIN, else the program of the installation that this module is of, else the one on PATH."""
    named = os.environ.get("HPCSWEEP_BIN")
    if named:
        program = shutil.which(named)
        if program is None:
            raise SweepError("HPCSWEEP_BIN=%s is no program" % named)
        return program
    # PREFIX/share/hpcsweep/python/hpcsweep/program.py, or PREFIX/lib/python3.11/site-packages/hpcsweep/program.py of a wheel
    above = Path(__file__).resolve().parents
    if len(above) > 4 and (above[2].name == "hpcsweep" or above[1].name in ("site-packages", "dist-packages")):
        program = shutil.which(str(above[4] / "bin" / "hpcsweep"))
        if program is not None:
            return program
    found = shutil.which("hpcsweep")
    if found is None:
        raise SweepError(
            "the program `hpcsweep` is not found\n"
            "hint: `module load hpcsweep`, put it on PATH, or set HPCSWEEP_BIN to its path"
        )
    return found


def output_of(args: List[str]) -> bytes:
    """The output of the program; an error is a SweepError with its message.

    Results of which a part is damaged are returned without that part, with a warning.
    """
    ran = subprocess.run([find()] + args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    words = ran.stderr.decode(errors="replace").strip()
    if ran.returncode == DAMAGED and words.startswith("warning: "):
        warnings.warn(words[len("warning: ") :], RuntimeWarning, stacklevel=4)
    elif ran.returncode != 0:
        raise SweepError(words[7:] if words.startswith("error: ") else words)
    return ran.stdout
