"""Where output goes: the paths that a job shows, and the files that they mean."""

import os
import shutil
from typing import Tuple

from . import ids
from .model import Element, Job

# The placeholder of an index in the path of an array's output.
INDEX = "^array_index^"


def shown(job: Job, letter: str) -> str:
    """`Output_Path` (o) or `Error_Path` (e)."""
    given = job.submission.options.get(letter)
    folder = job.owner.folder
    if given is None:
        ending = "" if job.array is None else f".{INDEX}"
        return f"{ids.SERVER}:{folder}/{job.submission.name}.{letter}{job.sequence}{ending}"
    host, colon, path = given.partition(":")
    if not colon or "/" in host:
        host, path = "localhost", given
    return f"{host}:{path if path.startswith('/') else f'{folder}/{path}'}"


def expanded(element: Element, letter: str) -> str:
    """The same for one element."""
    path = shown(element.job, letter)
    return path if element.index is None else path.replace(INDEX, str(element.index))


def streams(job: Job) -> Tuple[str, str]:
    """Which of `o` and `e` standard output and standard error go to."""
    join = job.submission.options.get("j", "n")
    return {"oe": ("o", "o"), "eo": ("e", "e")}.get(join, ("o", "e"))


def is_direct(job: Job, letter: str) -> bool:
    """Whether the file is written where it belongs, instead of copied there at the end."""
    keep = job.submission.options.get("k", "n")
    return "d" in keep and letter in keep


def target(element: Element, letter: str) -> str:
    """The file in the end. `-k` without `d` leaves it in the home folder of the execution host."""
    job = element.job
    if letter in job.submission.options.get("k", "n") and not is_direct(job, letter):
        ending = "" if element.index is None else f".{element.index}"
        return f"{job.owner.home}/{job.submission.name}.{letter}{job.sequence}{ending}"
    path = expanded(element, letter).partition(":")[2]
    if path.endswith("/") or os.path.isdir(path):
        return os.path.join(path, f"{element.id}.{'OU' if letter == 'o' else 'ER'}")
    return path


def mask(job: Job, default: str) -> int:
    """The umask of the job and of its output."""
    return int(job.submission.attributes.get("umask", default), 8)


def open_for(path: str, umask: int, again: bool) -> int:
    """Opens output for writing."""
    before = os.umask(umask)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if again else os.O_TRUNC)
        return os.open(path, flags, 0o666)
    finally:
        os.umask(before)


def copy(source: str, path: str, umask: int, undelivered: str) -> bool:
    """Copies spooled output to where it belongs. Where that fails, the file is out of the user's reach."""
    try:
        out = open_for(path, umask, again=False)
    except OSError:
        os.makedirs(undelivered, exist_ok=True)
        os.replace(source, os.path.join(undelivered, os.path.basename(source)))
        return False
    with open(source, "rb") as file, os.fdopen(out, "wb") as copied:
        shutil.copyfileobj(file, copied)
    os.unlink(source)
    return True
