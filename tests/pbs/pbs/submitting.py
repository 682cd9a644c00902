"""qsub: from its arguments to a job, or to the refusal that PBS has for them."""

import os
import pwd
from typing import Dict, List, Tuple

from . import arguments, ids, resources
from .config import Queue
from .errors import BAD_VALUE, Misuse, Refusal
from .model import Job, Owner
from .requests import Answer, Request, version
from .server import Server

# The form in which a job gets the variables of the submitter.
SENT = ("HOME", "LANG", "LOGNAME", "PATH", "MAIL", "SHELL", "TZ")
# The message of a client that fails although the job exists, by fault. The second message is a site's own.
AFTER = {
    "lost": "qsub: Connection timed out\n",
    "complains": "qsub: the accounts of project 4711 do not answer\n",
}


def _script(request: Request, rest: List[str]) -> bytes:
    if not rest:
        raise Misuse("qsub: a script on standard input is not known here")
    if len(rest) > 1:
        raise Misuse("qsub: too many arguments")
    path = os.path.join(request.folder, rest[0])
    if os.path.isdir(path):
        raise Misuse("qsub: script not a file", 1, usage=False)
    try:
        with open(path, "rb") as file:
            script = file.read()
    except OSError as error:
        raise Misuse(f"qsub: script file:: {error.strerror}", 1, usage=False) from None
    if b"\r\n" in script:
        raise Misuse("qsub: script contains cr, lf", 1, usage=False)
    return script


def _owner(request: Request) -> Owner:
    try:
        account = pwd.getpwuid(os.getuid())
        user, home = account.pw_name, account.pw_dir
    except KeyError:
        user, home = str(os.getuid()), "/"
    folder = request.environment.get("PWD", request.folder)
    if not (os.path.isdir(folder) and os.path.samefile(folder, request.folder)):
        folder = request.folder
    return Owner(user, request.environment.get("HOME", home), folder, request.environment)


def _variables(owner: Owner, queue: str, sent: Dict[str, str]) -> Dict[str, str]:
    """`Variable_List`, in PBS's order."""
    found = {}
    for name in SENT:
        if name in owner.environment:
            found[f"PBS_O_{name}"] = owner.environment[name]
    found.setdefault("PBS_O_LOGNAME", owner.user)
    found["PBS_O_INTERACTIVE_AUTH_METHOD"] = "resvport"
    found["PBS_O_INTERACTIVE_ENCRYPT_METHOD"] = ""
    found["PBS_O_WORKDIR"] = owner.folder
    found["PBS_O_SYSTEM"] = "Linux"
    found.update(sent)
    found["PBS_O_QUEUE"] = queue
    found["PBS_O_HOST"] = ids.SERVER
    return found


def _limited(given: Dict[str, str], queue: Queue) -> Dict[str, str]:
    """A job that names no walltime gets the queue's."""
    usual = queue.default_walltime or queue.max_walltime
    if usual is None or "walltime" in given or queue.route_destinations:
        return given
    return {**given, "walltime": usual}


def _job(server: Server, request: Request) -> Job:
    old = server.config.release() < (22, 5)
    words, rest, is_command = arguments.positions(request.arguments)
    if "-f" in words and not server.config.has_f:
        raise Misuse("qsub: invalid option -- 'f'")
    if is_command and not rest:
        raise Misuse("qsub: no command")
    script = None if is_command else _script(request, rest)
    submission = arguments.read(words, rest, script, old)
    sent = arguments.variables(submission, request.environment)
    owner = _owner(request)
    if submission.options.get("u", owner.user) != owner.user:
        raise Refusal(15023, "Bad UID for job execution")
    # From here on the server speaks, and a number is used up.
    sequence = server.next_sequence()
    queue = server.queue(submission.options.get("q", server.config.default_queue).split("@")[0])
    if "group_list" in submission.attributes:
        raise Refusal(15045, "Bad GID for job execution")
    if submission.array is not None and submission.array.limit is not None and submission.array.limit < 0:
        raise Refusal(BAD_VALUE, "Error (15014) submitting job")
    asked = resources.request(_limited(submission.resources, queue), server.config.resources)
    server.check(owner.user, submission.array, asked, queue)
    job = Job(sequence, submission, asked, owner, queue.name)
    job.variables = _variables(owner, queue.name, sent)
    job.arguments = " ".join(request.arguments)
    return job


def qsub(server: Server, request: Request) -> Answer:
    """One submission."""
    if request.arguments == ["--version"]:
        return version(server)
    fault = server.faults.next("qsub", server.config.qsub_fault, server.config.qsub_fault_count)
    if fault == "refused_connection":
        return Answer("", f"Connection refused\nqsub: cannot connect to server {ids.SERVER} (errno=15010)\n", 162)
    try:
        job = _job(server, request)
    except Misuse as misuse:
        return Answer("", misuse.text + "\n" + (arguments.USAGE if misuse.usage else ""), misuse.code)
    except Refusal as refusal:
        return Answer("", f"qsub: {refusal.text}\n", refusal.code)
    server.enter(job)
    shown, code = _faulty(fault, "" if "z" in job.submission.options else f"{job.id}\n")
    return Answer(shown, AFTER.get(fault, ""), code, never=fault == "hang")


def _faulty(fault: str, shown: str) -> Tuple[str, int]:
    if fault in AFTER:
        return "", 1
    if fault == "banner":
        return f"*** Maintenance on the 24th. ***\n\n{shown}Your project has used 12.5 % of its 40000 hours.\n", 0
    return shown, 0
