"""The program `hpcsweep`, and what it says."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import List


class SweepError(RuntimeError):
    """Why a sweep cannot be run or read."""


def find() -> str:
    """$HPCSWEEP_BIN, else the program of the installation that this module is of, else the one on PATH."""
    named = os.environ.get("HPCSWEEP_BIN")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise SweepError("HPCSWEEP_BIN=%s is no program" % named)
        return named
    here = Path(__file__).resolve()
    prefixes = []
    try:
        # What pip has installed says where it came from.
        prefixes.append(Path((here.parent / "prefix.txt").read_text().strip()))
    except OSError:
        # PREFIX/share/hpcsweep/python/hpcsweep/program.py
        prefixes.extend(here.parents[4:5])
    for prefix in prefixes:
        program = prefix / "bin" / "hpcsweep"
        if os.access(str(program), os.X_OK):
            return str(program)
    found = shutil.which("hpcsweep")
    if found is None:
        raise SweepError(
            "the program `hpcsweep` is not found\n"
            "hint: `module load hpcsweep`, put it on PATH, or set HPCSWEEP_BIN to its path"
        )
    return found


def output_of(args: List[str]) -> bytes:
    """What the program prints; an error is a SweepError with its words."""
    ran = subprocess.run([find()] + args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ran.returncode != 0:
        words = ran.stderr.decode(errors="replace").strip()
        raise SweepError(words[7:] if words.startswith("error: ") else words)
    return ran.stdout
