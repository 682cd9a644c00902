"""qstat: jobs, queues and the server, as text or as JSON."""

import getopt
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import ids, output, status
from .errors import FINISHED, UNKNOWN_JOB, UNKNOWN_QUEUE, Refusal
from .model import Element, Job
from .requests import Answer, Request, version
from .server import Server
from .status import Attributes

USAGE = "usage: \nqstat [-f] [-t] [-x] [-F format | -w] [ job_identifier... | destination... ]\n"
NO_HISTORY = "PBS is not configured to maintain job history "
HEAD = "Job id            Name             User              Time Use S Queue\n"
RULE = "----------------  ---------------- ----------------  -------- - -----\n"
WIDE = (
    "Job id                         Name            User             Time Use S Queue\n"
    "-----------------------------  --------------- ---------------  -------- - ---------------\n"
)
SERVERS = (
    "Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status\n"
    "---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------\n"
)
QUEUES = (
    "Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type\n"
    "---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----\n"
)
COUNTED = ("Queued", "Running", "Held", "Waiting", "Transit", "Exiting")

Record = Tuple[str, Attributes]


@dataclass
class _Options:
    full: bool = False
    json: bool = False
    history: bool = False
    elements: bool = False
    wide: bool = False
    kind: str = "Jobs"


def _options(words: List[str]) -> Tuple[_Options, List[str]]:
    pairs, rest = getopt.gnu_getopt(words, "fF:xtwBQH")
    found = _Options()
    for name, value in pairs:
        if name == "-F":
            if value.lower() != "json":
                raise getopt.GetoptError(f"format {value}")
            found.json = True
        found.full |= name == "-f"
        found.history |= name in ("-x", "-H")
        found.elements |= name == "-t"
        found.wide |= name == "-w"
        found.kind = {"-B": "Server", "-Q": "Queue"}.get(name, found.kind)
    if found.json and (found.wide or not found.full):
        raise getopt.GetoptError("conflicting options")
    return found, rest


def qstat(server: Server, request: Request) -> Answer:
    """One query."""
    fault = server.faults.next("qstat", server.config.qstat_fault, server.config.qstat_fault_count)
    if fault == "down":
        return Answer("", f"Connection refused\nqstat: cannot connect to server {ids.SERVER} (errno=15010)\n", 255)
    if fault == "garbage":
        return Answer('{\n    "timestamp":17952\n\x1b[31mqstat: bad', "")
    if request.arguments == ["--version"]:
        return version(server)
    try:
        options, names = _options(request.arguments)
    except getopt.GetoptError as error:
        return Answer("", f"qstat: {error.msg}\n{USAGE}", 2)
    errors: List[Tuple[str, int]] = []
    records = {"Jobs": _jobs, "Queue": _queues, "Server": _servers}[options.kind](server, options, names, errors)
    return Answer(
        _shown(server, options, records),
        "".join(f"qstat: {text}\n" for text, _ in errors),
        next((code for _, code in reversed(errors) if code), 0),
    )


def _shown(server: Server, options: _Options, records: List[Record]) -> str:
    if options.json:
        head: Attributes = [
            ("timestamp", int(time.time())),
            ("pbs_version", server.config.version),
            ("pbs_server", ids.SERVER),
        ]
        return output.Writer(server.config.json).document(head, options.kind, records)
    label = {"Jobs": "Job Id: ", "Queue": "Queue: ", "Server": "Server: "}[options.kind]
    if options.full:
        return "".join(output.text(label + name, attributes) for name, attributes in records)
    if not records:
        return ""
    if options.kind == "Jobs":
        return (WIDE if options.wide else HEAD + RULE) + "".join(_row(one, options.wide) for one in records)
    if options.kind == "Queue":
        return QUEUES + "".join(_queue_row(server, name) for name, _ in records)
    return SERVERS + f"{ids.SERVER:<16}     0 {_numbers(server, None)} Active    \n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "*"


def _row(record: Record, wide: bool) -> str:
    name, attributes = record
    values: Dict[str, Any] = dict(attributes)
    used = values.get("resources_used", {}).get("cput", "0")
    user = values["Job_Owner"].split("@")[0]
    first, second, third, last = (30, 15, 15, 15) if wide else (17, 16, 16, 16)
    return (
        f"{_cut(name, first):<{first}} {_cut(values['Job_Name'], second):<{second}} {_cut(user, third):<{third}}"
        f"  {used:>8} {values['job_state']} {_cut(values['queue'], last):<{last}}\n"
    )


def _numbers(server: Server, queue: Optional[str]) -> str:
    counts = status.counts(server, queue)
    return " ".join(f"{count:>5}" for count in [status.total(server, queue)] + [counts[name] for name in COUNTED])


def _queue_row(server: Server, name: str) -> str:
    queue = server.config.queues[name]
    answers = " ".join(" no" if not one else "yes" for one in (queue.enabled, queue.started))
    total, rest = _numbers(server, name)[:5], _numbers(server, name)[6:]
    kind = "Rou*" if queue.route_destinations else "Exe*"
    return f"{_cut(name, 16):<16}     0 {total} {answers} {rest} {kind}\n"


def _servers(server: Server, options: _Options, names: List[str], errors: List[Tuple[str, int]]) -> List[Record]:
    del options, names, errors
    return [(ids.SERVER, status.of_server(server))]


def _queues(server: Server, options: _Options, names: List[str], errors: List[Tuple[str, int]]) -> List[Record]:
    del options
    found = []
    for name in names or list(server.config.queues):
        queue = server.config.queues.get(name.split("@")[0])
        if queue is None:
            errors.append((f"Unknown queue {name}", Refusal(UNKNOWN_QUEUE).code))
        else:
            found.append((queue.name, status.of_queue(server, queue)))
    return found


def _jobs(server: Server, options: _Options, names: List[str], errors: List[Tuple[str, int]]) -> List[Record]:
    if options.history and not server.config.history:
        errors.extend((NO_HISTORY + ids.full(name), 0) for name in names)
        if not names:
            errors.append((NO_HISTORY, 0))
        return []
    found: List[Record] = []
    for name in names or [""]:
        try:
            more = _one(server, options, name) if name[:1].isdigit() else _in_queue(server, options, name, errors)
        except Refusal as refusal:
            errors.append((refusal.text, refusal.code))
            continue
        # Only the first of several identifiers becomes JSON, and no message says so.
        if not (options.json and found):
            found.extend(more)
    return found


def _in_queue(server: Server, options: _Options, name: str, errors: List[Tuple[str, int]]) -> List[Record]:
    if name and name not in server.config.queues:
        errors.append((f"Unknown queue destination {name}", Refusal(UNKNOWN_QUEUE).code))
    found: List[Record] = []
    for job in server.jobs.values():
        if (options.history or not job.is_finished) and name in ("", job.queue):
            found.extend(_whole(job, options))
    return found


def _whole(job: Job, options: _Options) -> List[Record]:
    found = [(job.id, status.of_job(job))]
    if options.elements and job.array is not None:
        found.extend((element.id, status.of_element(element)) for element in job.elements.values())
    return found


def find(server: Server, name: str) -> Tuple[Job, Optional[List[Element]]]:
    """A job, and the elements of it that are meant where it is not the whole."""
    wanted = ids.parse(name)
    job = server.jobs.get(wanted.sequence) if wanted is not None else None
    if wanted is None or job is None or wanted.is_array != (job.array is not None):
        raise Refusal(UNKNOWN_JOB, f"Unknown Job Id {ids.full(name)}")
    if wanted.indices is None:
        return job, None
    elements = [job.elements[index] for index in wanted.indices if index in job.elements]
    if not elements:
        raise Refusal(UNKNOWN_JOB, f"Unknown Job Id {ids.full(name)}")
    return job, elements


def _one(server: Server, options: _Options, name: str) -> List[Record]:
    job, elements = find(server, name)
    if job.is_finished and not options.history:
        text = f"{ids.full(name)} Job has finished, use -x or -H to obtain historical job information"
        raise Refusal(FINISHED, text)
    if elements is None:
        return _whole(job, options)
    return [(element.id, status.of_element(element)) for element in elements]
