"""pbs_tmrsh and pbsdsh: tasks of a running job, on any of its hosts."""

import getopt
from typing import Callable, List, Tuple

from . import ids
from .queries import find
from .errors import Refusal
from .requests import Answer, Request, version
from .running import Run
from .server import Server

Reply = Callable[[Answer], None]

TMRSH = "usage: pbs_tmrsh [-n][-l username] host [-n][-l username] command\n       pbs_tmrsh --version\n"
DSH = (
    "Usage: pbsdsh [-c copies][-s][-v][-o] -- program [args]...]\n"
    "       pbsdsh [-n nodenumber][-s][-v][-o] -- program [args]...\n"
    "       pbsdsh --version\n"
)


def _run(server: Server, request: Request) -> Run:
    name = request.environment.get("PBS_JOBID", "")
    try:
        job, elements = find(server, name)
    except Refusal:
        raise KeyError(name) from None
    element = elements[0] if elements else job.elements.get(None)
    if element is None or element.run is None:
        raise KeyError(name)
    run: Run = element.run
    return run


def tmrsh(server: Server, request: Request, reply: Reply) -> None:
    """One program on one host; its exit code."""
    words = list(request.arguments)
    if words == ["--version"]:
        reply(version(server))
        return
    host = ""
    while words and (words[0].startswith("-") or not host):
        word = words.pop(0)
        if word == "-l" and words:
            words.pop(0)
        elif not word.startswith("-"):
            host = word
    if not host or not words:
        reply(Answer("", TMRSH, 254))
        return
    try:
        run = _run(server, request)
    except KeyError:
        reply(Answer("", "pbs_tmrsh: not executing under PBS\n", 254))
        return
    if host not in run.hosts:
        reply(Answer("", f'pbs_tmrsh: host "{host}" is not a node in job <{run.element.id}>\n', 255))
        return
    run.task(host, words, lambda code: reply(Answer(code=code & 255)))


def dsh(server: Server, request: Request, reply: Reply) -> None:
    """One program a line of the node file; always a success."""
    if request.arguments == ["--version"]:
        reply(version(server))
        return
    try:
        pairs, program = getopt.getopt(request.arguments, "c:n:svo")
        options = dict(pairs)
        numbers = [int(options[name]) for name in ("-c", "-n") if name in options]
    except (getopt.GetoptError, ValueError):
        reply(Answer("", DSH, 1))
        return
    if not program or len(numbers) > 1:
        reply(Answer("", DSH, 1))
        return
    try:
        run = _run(server, request)
    except KeyError:
        reply(Answer("", "pbsdsh: not executing under PBS\n", 1))
        return
    lines = [one.host for one in run.element.placements for _ in range(one.chunk.ranks)]
    wanted = _wanted(options.get("-c"), options.get("-n"), lines)
    if not wanted:
        reply(Answer("", f"pbsdsh: error from tm_poll() {ids.SERVER}\n", 1))
        return
    _spread(run, wanted, program, "-v" in options, reply)


def _wanted(copies: object, number: object, lines: List[str]) -> List[Tuple[int, str]]:
    found = list(enumerate(lines))
    if copies is not None:
        count = int(str(copies))
        return [found[at % len(found)] for at in range(count)] if found else []
    if number is not None:
        at = int(str(number))
        return [found[at]] if 0 <= at < len(found) else []
    return found


def _spread(run: Run, wanted: List[Tuple[int, str]], program: List[str], is_verbose: bool, reply: Reply) -> None:
    codes = {}

    def ended(at: int, code: int) -> None:
        codes[at] = code
        if len(codes) == len(wanted):
            said = "".join(
                f"pbsdsh: task 0x{one:08x} exit status {codes[one]}\n"
                for one in sorted(codes)
                if is_verbose or codes[one]
            )
            reply(Answer("", said))

    for at, (_, host) in enumerate(wanted):
        run.task(host, program, lambda code, at=at: ended(at, code))  # type: ignore[misc]
