"""What is done to jobs that are there: qdel, qhold, qrls, qalter, qrerun, qsig."""

import getopt
import signal
from typing import Callable, Dict, List, Optional, Tuple

from . import arguments, ids
from .errors import (
    BAD_STATE,
    BAD_VALUE,
    FINISHED,
    INVALID_REQUEST,
    NOT_RERUNABLE,
    PERMISSION,
    TEXTS,
    UNKNOWN_SIGNAL,
    Refusal,
)
from .model import BEGUN, RUNNING, Element, Job
from .queries import find
from .requests import Answer, Request, version
from .server import Server

Reply = Callable[[Answer], None]

FORMS = {
    "qdel": ("W:x", "usage:\n\tqdel [-W force|suppress_email=X] [-x] job_identifier...\n\tqdel --version\n"),
    "qhold": ("h:", "usage: qhold [-h hold_list] job_identifier...\n       qhold --version\n"),
    "qrls": ("h:", "usage: qrls [-h hold_list] [-t taskid] job_identifier...\n       qrls --version\n"),
    "qrerun": ("W:", "usage: qrerun [-W force] job_identifier...\n       qrerun --version\n"),
    "qalter": ("W:", "usage: qalter [-W dependency_list] job_identifier...\n       qalter --version\n"),
    "qsig": ("s:", "usage: qsig [-s signal] job_identifier...\n       qsig --version\n"),
}


def _refusal(number: int, name: str) -> Refusal:
    return Refusal(number, f"{TEXTS[number]} {ids.full(name)}")


def _not_finished(job: Job, text: str) -> None:
    if job.is_finished:
        raise Refusal(FINISHED, text)


def _delete(server: Server, name: str, options: Dict[str, str]) -> None:
    job, elements = find(server, name)
    if job.is_finished and "-x" in options and elements is None:
        del server.jobs[job.sequence]
        return
    _not_finished(job, f"Job has finished {ids.full(name)}")
    at_once = options.get("-W", "") == "force"
    if elements is None:
        server.delete(job, at_once)
        if "-x" in options:
            server.jobs.pop(job.sequence, None)
        return
    for element in elements:
        server.delete_element(element, at_once)


def _hold(server: Server, name: str, options: Dict[str, str]) -> None:
    job, elements = find(server, name)
    _not_finished(job, "Job has finished")
    if elements is not None:
        raise _refusal(INVALID_REQUEST, name)
    if options.get("-h", "u") not in ("u", "n"):
        raise _refusal(PERMISSION, name)
    job.hold("u")


def _release(server: Server, name: str, options: Dict[str, str]) -> None:
    job, elements = find(server, name)
    _not_finished(job, "Job has finished")
    if elements is not None:
        raise _refusal(INVALID_REQUEST, name)
    del options
    job.release("u")
    server.soon()


def _alter(server: Server, name: str, options: Dict[str, str]) -> None:
    job, elements = find(server, name)
    _not_finished(job, "Job has finished")
    if elements is not None:
        raise _refusal(INVALID_REQUEST, name)
    key, _, value = options.get("-W", "").partition("=")
    if key != "depend":
        raise Refusal(BAD_VALUE, "illegal -W value")
    server.alter(job, arguments.dependencies(value) if value else [])


def _signal(server: Server, name: str, options: Dict[str, str]) -> None:
    job, elements = find(server, name)
    _not_finished(job, "Job has finished")
    wanted = options.get("-s", "SIGTERM")
    number: Optional[int] = int(wanted) if wanted.isdigit() else None
    if number is None:
        full = wanted if wanted.startswith("SIG") else f"SIG{wanted}"
        number = getattr(signal, full, None) if full in signal.Signals.__members__ else None
    running = [one for one in elements or job.elements.values() if one.run is not None]
    if not running:
        raise _refusal(BAD_STATE, name)
    if number is None:
        raise _refusal(UNKNOWN_SIGNAL, name)
    for element in running:
        element.run.signal(number)


def _rerun(server: Server, name: str, options: Dict[str, str], environment: Dict[str, str]) -> List[Element]:
    """Begins it, and returns what must be waited for."""
    if environment.get("TEST_PBS_OPERATOR") != "1":
        raise _refusal(PERMISSION, name)
    job, elements = find(server, name)
    _not_finished(job, "Job has finished")
    if job.submission.options.get("r") == "n":
        raise _refusal(NOT_RERUNABLE, name)
    running = [one for one in elements or job.elements.values() if one.run is not None]
    if not running or (job.state not in (RUNNING, BEGUN)):
        raise _refusal(BAD_STATE, name)
    del options
    for element in running:
        element.run.stop("rerun")
    return running


ORDERS = {"qdel": _delete, "qhold": _hold, "qrls": _release, "qalter": _alter, "qsig": _signal}


def order(server: Server, request: Request, reply: Reply) -> None:
    """One call of one of these clients, of any number of jobs."""
    form, usage = FORMS[request.name]
    if request.arguments == ["--version"]:
        reply(version(server))
        return
    try:
        pairs, names = getopt.gnu_getopt(request.arguments, form)
    except getopt.GetoptError as error:
        reply(Answer("", f"{request.name}: invalid option -- '{error.opt}'\n{usage}", 2))
        return
    if not names:
        reply(Answer("", usage, 2))
        return
    options, errors = dict(pairs), []
    waited: List[Element] = []
    for name in names:
        try:
            if request.name == "qrerun":
                waited.extend(_rerun(server, name, options, request.environment))
            else:
                ORDERS[request.name](server, name, options)
        except Refusal as refusal:
            errors.append((f"{request.name}: {refusal.text}\n", refusal.code))
    answer = _answer(errors)
    if not waited:
        reply(answer)
        return
    left = {element.id for element in waited}

    def done(one: str) -> None:
        left.discard(one)
        if not left:
            reply(answer)

    for element in waited:
        server.requeued.setdefault(element.id, []).append(lambda one=element.id: done(one))  # type: ignore[misc]


def _answer(errors: List[Tuple[str, int]]) -> Answer:
    return Answer("", "".join(text for text, _ in errors), errors[-1][1] if errors else 0)
